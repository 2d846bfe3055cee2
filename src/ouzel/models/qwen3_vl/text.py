"""The text graph of Qwen3-VL: Qwen3 with picture rows put in and deepstack rows added after the first blocks."""

from __future__ import annotations

from ouzel.graph.graph import Graph
from ouzel.models.blocks.decoder import DecoderConfig, decoder_layer, head
from ouzel.models.blocks.part import PartBuilder


def declare_text(c: DecoderConfig, deepstack: int, source: str) -> tuple[PartBuilder, Graph]:
    """Feature j of `deepstack` is added AFTER block j, at picture rows only."""
    b = PartBuilder("text")
    ids = b.input("ids", "tokens", 1, "i32")
    for name in ("rope_cos", "rope_sin"):
        b.input(name, "tokens", c.head_dim // 2)
    rows = b.input("visual_rows", "visual", 1, "i32")
    embeds = b.input("visual_embeds", "visual", c.hidden)
    features = [b.input(f"visual_deepstack.{j}", "visual", c.hidden) for j in range(deepstack)]
    x = b.embed("text.embed", ids, f"{source}embed_tokens", c.vocab, c.hidden)
    x = b.node("put_rows", "text.inputs_embeds", x, embeds, rows)
    for i in range(c.layers):
        x = decoder_layer(b, c, i, x, source)
        if i < deepstack:
            x = b.node("add_rows", f"text.layers.{i}.after_deepstack", x, features[i], rows)
    return b, b.finish(head(b, c, x, f"{source}norm"))
