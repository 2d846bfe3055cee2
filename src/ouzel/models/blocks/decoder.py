"""The decoder block of the Llama and Qwen3 line: grouped-query attention, with a norm on query and key heads or not, and SwiGLU."""

from __future__ import annotations

from dataclasses import dataclass

from ouzel.models.blocks.part import PartBuilder


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of a decoder. `heads * head_dim` may differ from `hidden`; query head h reads key head h // (heads / kv_heads).

    qk_norm: a norm on every query and key head before the rotation. attention_bias, mlp_bias: biases of all linears there.
    """

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    vocab: int
    tied: bool
    attention_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = True


def decoder_layer(b: PartBuilder, c: DecoderConfig, i: int, x: str, source: str) -> str:
    """Adds decoder block `i`; gives `text.layers.<i>`. `source` is the prefix of the checkpoint's decoder, with its dot."""
    n, s = f"text.layers.{i}", f"{source}layers.{i}"
    h = b.rms_norm(f"{n}.input_norm", x, f"{s}.input_layernorm", c.eps)
    attended = self_attention(b, c, i, h, f"{s}.self_attn")
    x = b.node("add", f"{n}.after_attn", x, attended)
    h = b.rms_norm(f"{n}.mlp_norm", x, f"{s}.post_attention_layernorm", c.eps)
    return b.node("add", n, x, swiglu(b, n, h, f"{s}.mlp", c.intermediate, c.hidden, c.mlp_bias))


def self_attention(b: PartBuilder, c: DecoderConfig, i: int, h: str, source: str) -> str:
    """Where there is a norm on q and k, it comes BEFORE the rotation; causal attention, output projection."""
    n = f"text.layers.{i}"
    q_width, kv_width, bias = c.heads * c.head_dim, c.kv_heads * c.head_dim, c.attention_bias
    q = b.linear(f"{n}.q", h, f"{source}.q_proj", q_width, bias=bias)
    k = b.linear(f"{n}.k", h, f"{source}.k_proj", kv_width, bias=bias)
    v = b.linear(f"{n}.v", h, f"{source}.v_proj", kv_width, bias=bias)
    if c.qk_norm:
        q = b.rms_norm(f"{n}.q_norm", q, f"{source}.q_norm", c.eps, heads=c.heads)
        k = b.rms_norm(f"{n}.k_norm", k, f"{source}.k_norm", c.eps, heads=c.kv_heads)
    q = b.node("rotary", f"{n}.q_rope", q, "rope_cos", "rope_sin", heads=c.heads, style="halves")
    k = b.node("rotary", f"{n}.k_rope", k, "rope_cos", "rope_sin", heads=c.kv_heads, style="halves")
    a = b.node(
        "attention",
        f"{n}.attn",
        q,
        k,
        v,
        heads=c.heads,
        kv_heads=c.kv_heads,
        head_dim=c.head_dim,
        value_dim=c.head_dim,
        scale=c.head_dim**-0.5,
        mode="causal",
        layer=i,
    )
    return b.linear(f"{n}.attn_out", a, f"{source}.o_proj", c.hidden, bias=bias)


def swiglu(
    b: PartBuilder, n: str, h: str, source: str, intermediate: int, hidden: int, bias: bool = False
) -> str:
    """down(silu(gate) * up)."""
    gate = b.linear(f"{n}.gate", h, f"{source}.gate_proj", intermediate, bias=bias)
    up = b.linear(f"{n}.up", h, f"{source}.up_proj", intermediate, bias=bias)
    gated = b.node("silu_mul", f"{n}.gated", gate, up)
    return b.linear(f"{n}.down", gated, f"{source}.down_proj", hidden, bias=bias)


HEAD_WEIGHT, EMBEDDING_WEIGHT = "logits.weight", "text.embed.weight"


def tied_weights(c: DecoderConfig) -> dict[str, str]:
    """The head's weight reads the embedding's tensor where the configuration ties them."""
    return {HEAD_WEIGHT: EMBEDDING_WEIGHT} if c.tied else {}


def head(b: PartBuilder, c: DecoderConfig, x: str, norm_source: str) -> str:
    """Final norm and the vocabulary head, on the rows that `logit_rows` names only; gives `logits`."""
    x = b.rms_norm("text.final_norm", x, norm_source, c.eps)
    wanted = b.node("take_rows", "text.head_in", x, b.input("logit_rows", "logits", 1, "i32"))
    return b.linear("logits", wanted, "lm_head", c.vocab, part="head")
