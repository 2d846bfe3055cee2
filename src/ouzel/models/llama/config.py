"""Configuration of Llama text models (transformers `LlamaConfig`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.config import ConfigReader, refuse_quantized, tie_word_embeddings
from ouzel.checkpoint.rope import inv_freq, read_rope
from ouzel.models.blocks.decoder import DecoderConfig


def read_decoder(config: ConfigReader) -> DecoderConfig:
    """The decoder's sizes. Refuses what changes the mathematics and is not built."""
    refuse_quantized(config)
    config.refuse_unless("hidden_act", {"silu"}, default="silu")
    config.refuse_unless("partial_rotary_factor", {1.0}, default=1.0)
    heads = config.int("num_attention_heads")
    kv_heads = config.int("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise config.error("num_key_value_heads", f"a divisor of num_attention_heads ({heads})", kv_heads)
    hidden = config.int("hidden_size")
    head_dim = config.int("head_dim", default=None, multiple_of=2)
    if head_dim is None:
        if hidden % (2 * heads):
            raise config.error("hidden_size", f"a multiple of twice num_attention_heads ({2 * heads})", hidden)
        head_dim = hidden // heads
    return DecoderConfig(
        hidden=hidden,
        intermediate=config.int("intermediate_size"),
        layers=config.int("num_hidden_layers", max=4096),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        eps=config.float("rms_norm_eps", default=1e-6, above=0.0),
        vocab=config.int("vocab_size"),
        tied=tie_word_embeddings(config),
        attention_bias=config.bool("attention_bias", default=False),
        mlp_bias=config.bool("mlp_bias", default=False),
        qk_norm=False,
    )


def read_frequencies(config: ConfigReader, head_dim: int) -> tuple[NDArray[np.float32], float]:
    """The angle of each rotary pair at position 1, and the factor on cos and sin.

    `rope_frequency_divisors` is a key of our own: GGUF files of Llama 3.1 and later hold the divisor of every pair in place
    of the rule it came from.
    """
    frequencies, scaling = inv_freq(read_rope(config, default_theta=10000.0), head_dim)
    divisors = config.floats("rope_frequency_divisors", default=None, length=head_dim // 2)
    if divisors is None:
        return frequencies, scaling
    if min(divisors) <= 0:
        raise config.error("rope_frequency_divisors", "numbers above 0", min(divisors))
    return frequencies / np.array(divisors, np.float32), scaling


def max_context(config: ConfigReader) -> int:
    """Longest sequence of the model, in tokens."""
    return config.int("max_position_embeddings", default=2048)
