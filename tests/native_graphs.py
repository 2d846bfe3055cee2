"""Small graphs with weights for the tests of the native engine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from op_cases import make_weight
from ouzel.engines.base import SequenceRows, Step
from ouzel.graph.builder import GraphBuilder
from ouzel.graph.graph import Graph
from ouzel.weights.weight_set import Weight

WIDTH, HEADS, KV_HEADS, HEAD = 48, 4, 2, 12
VOCABULARY = 50


def decoder(layers: int = 2) -> Graph:
    """A small decoder: ids, rotary tables and the rows wanted of the head are its inputs, `logits` its output."""
    b = GraphBuilder("decoder")
    ids, cos, sin = b.input("ids", "tokens", 1, "i32"), b.input("cos", "tokens", HEAD // 2), b.input("sin", "tokens", HEAD // 2)
    picked = b.input("picked", "picked", 1, "i32")
    table = b.weight("table", VOCABULARY, WIDTH)
    x = b.node("embed", "embeds", ids, weights=(table,))
    for i in range(layers):
        x = _layer(b, i, x, cos, sin)
    last = b.node("take_rows", "last", x, picked)
    return b.finish(b.node("linear", "logits", last, weights=(table,)))


def _layer(b: GraphBuilder, i: int, x: str, cos: str, sin: str) -> str:
    def linear(name: str, source: str, out: int) -> str:
        return b.node("linear", f"{name}.{i}", source, weights=(b.weight(f"{name}.{i}.w", out, b.width(source)),))

    h = b.node("rms_norm", f"norm.{i}", x, weights=(b.weight(f"norm.{i}.w", WIDTH),), eps=1e-6)
    q = b.node("rotary", f"q_turned.{i}", linear("q", h, HEADS * HEAD), cos, sin, heads=HEADS)
    k = b.node("rotary", f"k_turned.{i}", linear("k", h, KV_HEADS * HEAD), cos, sin, heads=KV_HEADS)
    v = linear("v", h, KV_HEADS * HEAD)
    sizes = {"heads": HEADS, "kv_heads": KV_HEADS, "head_dim": HEAD, "value_dim": HEAD}
    a = b.node("attention", f"attention.{i}", q, k, v, **sizes, scale=HEAD**-0.5, mode="causal", layer=i)
    x = b.node("add", f"attended.{i}", x, linear("o", a, WIDTH))
    m = b.node("silu_mul", f"gated.{i}", linear("gate", x, 80), linear("up", x, 80))
    return b.node("add", f"layer.{i}", linear("down", m, WIDTH), x)


def weights_of(graph: Graph, fmt: str = "f32", seed: int = 1) -> dict[str, Weight]:
    """Random weights in the size that keeps activations near 1."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, shape in graph.weights.items():
        values = (rng.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32)
        found[name] = make_weight(name, values, fmt if len(shape) == 2 else "f32")
    return found


def tokens(count: int, seed: int = 2) -> NDArray[np.int32]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, (count, 1)).astype(np.int32)


def decoder_step(ids: NDArray[np.int32], past: int, blocks: list[int], wanted: tuple[str, ...] = ("logits",)) -> Step:
    """One sequence's rows `ids` after `past` tokens; the head sees the last row."""
    count = len(ids)
    angle = np.arange(past, past + count)[:, None] * np.linspace(0.1, 1.0, HEAD // 2)
    inputs = {
        "ids": ids,
        "cos": np.cos(angle).astype(np.float32),
        "sin": np.sin(angle).astype(np.float32),
        "picked": np.array([[count - 1]] if count else np.zeros((0, 1)), np.int32),
    }
    return Step(inputs, wanted, (SequenceRows(0, count, past, np.array(blocks, np.int32)),))


def long_graph(layers: int = 200, width: int = 512) -> tuple[Graph, dict[str, Weight], Step]:
    """Matrix products that take seconds: something to stop."""
    b = GraphBuilder("long")
    x = b.input("x", "rows", width)
    w = b.weight("w", width, width)
    for i in range(layers):
        x = b.node("linear", f"y.{i}", x, weights=(w,))
    graph = b.finish(x)
    rows = np.random.default_rng(3).standard_normal((4096, width)).astype(np.float32)
    return graph, weights_of(graph), Step({"x": rows}, (x,))
