"""Configuration of Qwen3 text models (transformers `Qwen3Config`; the text part of Qwen3-VL has the same keys)."""

from __future__ import annotations

from ouzel.checkpoint.config import ConfigReader, refuse_quantized, tie_word_embeddings
from ouzel.models.blocks.decoder import DecoderConfig


def read_decoder(config: ConfigReader) -> DecoderConfig:
    """The decoder's sizes, from the text part or a flat file. Refuses what changes the mathematics and is not built."""
    refuse_quantized(config)
    text = config.section("text_config", default=config)
    text.refuse_unless("hidden_act", {"silu"}, default="silu")
    text.refuse_unless("use_sliding_window", {False}, default=False)
    text.refuse_unless("partial_rotary_factor", {1.0}, default=1.0)
    kinds = text.strs("layer_types", default=[])
    if set(kinds) - {"full_attention"}:
        raise text.unsupported("layer_types", kinds, {"full_attention"})
    heads = text.int("num_attention_heads")
    kv_heads = text.int("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise text.error("num_key_value_heads", f"a divisor of num_attention_heads ({heads})", kv_heads)
    return DecoderConfig(
        hidden=text.int("hidden_size"),
        intermediate=text.int("intermediate_size"),
        layers=text.int("num_hidden_layers", max=4096),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=text.int("head_dim", default=128, multiple_of=2),
        eps=text.float("rms_norm_eps", default=1e-6, above=0.0),
        vocab=text.int("vocab_size"),
        tied=tie_word_embeddings(config),
        attention_bias=text.bool("attention_bias", default=False),
    )


def max_context(config: ConfigReader) -> int:
    """Longest sequence of the model, in tokens."""
    text = config.section("text_config", default=config)
    return text.int("max_position_embeddings", default=32768)
