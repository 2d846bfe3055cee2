"""The block of the vision towers: layer norm, joint q/k/v, attention inside a segment, and a two-layer MLP."""

from __future__ import annotations

from dataclasses import dataclass

from ouzel.models.blocks.part import PartBuilder


@dataclass(frozen=True)
class TowerConfig:
    """Sizes of a vision tower."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    eps: float

    @property
    def head_dim(self) -> int:
        """Columns of one head."""
        return self.hidden // self.heads


def tower_block(b: PartBuilder, c: TowerConfig, i: int, x: str, source: str) -> str:
    """Adds block `i`; gives `vision.layers.<i>`. `source` is the checkpoint's module of this block."""
    n = f"vision.layers.{i}"
    h = b.layer_norm(f"{n}.norm1", x, f"{source}.norm1", c.eps)
    x = b.node("add", f"{n}.after_attn", x, tower_attention(b, c, n, h, f"{source}.attn"))
    h = b.layer_norm(f"{n}.norm2", x, f"{source}.norm2", c.eps)
    h = b.linear(f"{n}.fc1", h, f"{source}.mlp.linear_fc1", c.intermediate, bias=True)
    h = b.node("gelu", f"{n}.gelu", h, form="tanh")
    return b.node("add", n, x, b.linear(f"{n}.fc2", h, f"{source}.mlp.linear_fc2", c.hidden, bias=True))


def tower_attention(b: PartBuilder, c: TowerConfig, n: str, h: str, source: str) -> str:
    """One stored matrix holds the rows of q, then k, then v; each is read as a linear layer of its own."""
    w = c.hidden
    q, k, v = (
        b.linear(f"{n}.{name}", h, f"{source}.qkv", w, bias=True, rows=(at * w, 3 * w))
        for at, name in enumerate(("q", "k", "v"))
    )
    q = b.node("rotary", f"{n}.q_rope", q, "rope_cos", "rope_sin", heads=c.heads, style="halves")
    k = b.node("rotary", f"{n}.k_rope", k, "rope_cos", "rope_sin", heads=c.heads, style="halves")
    a = b.node(
        "attention",
        f"{n}.attn",
        q,
        k,
        v,
        heads=c.heads,
        kv_heads=c.heads,
        head_dim=c.head_dim,
        value_dim=c.head_dim,
        scale=c.head_dim**-0.5,
        mode="segments",
    )
    return b.linear(f"{n}.attn_out", a, f"{source}.proj", c.hidden, bias=True)
