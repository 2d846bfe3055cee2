"""The vision graph of Qwen3-VL: tower, merger and deepstack mergers."""

from __future__ import annotations

from ouzel.graph.graph import Graph
from ouzel.models.blocks.part import PartBuilder
from ouzel.models.blocks.vision_tower import tower_block
from ouzel.models.qwen3_vl.config import VisionConfig


def declare_vision(c: VisionConfig, source: str) -> tuple[PartBuilder, Graph]:
    """Outputs `image_embeds` and `deepstack.<j>`, rows "merged". `source` is the checkpoint's prefix, with its dot."""
    b, t = PartBuilder("vision"), c.tower
    pixels = b.input("pixels", "patches", c.patch_values)
    taps = b.input("position_taps", "patches", 4, "i32")
    amounts = b.input("position_weights", "patches", 4)
    for name in ("rope_cos", "rope_sin"):
        b.input(name, "patches", t.head_dim // 2)
    stored = (t.hidden, c.channels, c.temporal, c.patch, c.patch)
    patches = b.linear("vision.patch_embed", pixels, f"{source}patch_embed.proj", t.hidden, bias=True, shape=stored)
    table = b.blend("vision.pos_embed", taps, amounts, f"{source}pos_embed", c.table_side**2, t.hidden)
    x = b.node("add", "vision.embeddings", patches, table)
    deepstack = []
    for i in range(t.layers):
        x = tower_block(b, t, i, x, f"{source}blocks.{i}")
        if i in c.deepstack:
            # The merger is the list's, the number of the feature is the order in which the tower meets it.
            merger = f"{source}deepstack_merger_list.{c.deepstack.index(i)}"
            deepstack.append(_deepstack_merger(b, c, len(deepstack), x, merger))
    merged = _merger(b, c, x, f"{source}merger")
    return b, b.finish(merged, *deepstack)


def _merger(b: PartBuilder, c: VisionConfig, x: str, source: str) -> str:
    """Norm on each patch, then merge * merge patches in one row."""
    h = b.layer_norm("vision.merger.norm", x, f"{source}.norm", c.tower.eps, part="projector")
    h = b.node("fold_rows", "vision.merger.folded", h, count=c.merge**2, rows="merged")
    return _mlp(b, c, "vision.merger", h, source, "image_embeds")


def _deepstack_merger(b: PartBuilder, c: VisionConfig, j: int, x: str, source: str) -> str:
    """The patches join FIRST, and the norm is over the wide row."""
    n = f"vision.deepstack.{j}"
    h = b.node("fold_rows", f"{n}.folded", x, count=c.merge**2, rows="merged")
    h = b.layer_norm(f"{n}.norm", h, f"{source}.norm", c.tower.eps, part="projector")
    return _mlp(b, c, n, h, source, f"deepstack.{j}")


def _mlp(b: PartBuilder, c: VisionConfig, n: str, h: str, source: str, output: str) -> str:
    wide = c.tower.hidden * c.merge**2
    h = b.linear(f"{n}.fc1", h, f"{source}.linear_fc1", wide, bias=True, part="projector")
    # The blocks' gelu is the tanh form, the mergers' the exact one.
    h = b.node("gelu", f"{n}.gelu", h, form="erf")
    return b.linear(output, h, f"{source}.linear_fc2", c.out, bias=True, part="projector")
