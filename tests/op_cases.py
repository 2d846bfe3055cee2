"""The operation-case table: one small graph for every case, run by every engine (and by the C++ runner elsewhere).

A case has one or more steps, run in order on one executable (causal attention keeps its cache between them). Sizes lie
around the sixteen lanes of the native core, rows include none and one, borders are ragged. Everything is seeded by the
case's name.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.base import BLOCK_TOKENS, SequenceRows, Step
from ouzel.graph.builder import GraphBuilder
from ouzel.graph.graph import Graph
from ouzel.weights.formats import FORMATS, PACKED
from ouzel.weights.table import TensorSpec
from ouzel.weights.weight_set import Weight

F32 = NDArray[np.float32]
EPS = np.float64(2.0**-24)
"""Half a unit in the last place of float32: the error of one rounding."""

EDGE_WIDTHS = (1, 15, 16, 17, 31, 33, 47, 128)
EDGE_ROWS = (0, 1, 2, 5, 13)
FLOAT_FORMATS = ("f32", "bf16", "f16")


@dataclass(frozen=True)
class OpCase:
    """One case. `bound(step number)` is the largest allowed difference from the float64 result, per element."""

    name: str
    op: str
    graph: Graph
    weights: dict[str, Weight]
    steps: tuple[Step, ...]
    bounds: tuple[NDArray[np.float64] | float, ...]
    blocks: int = 0


def op_cases() -> list[OpCase]:
    """Every case, in a fixed order."""
    return [case for make in _MAKERS for case in make()]


def packed_op_cases() -> list[OpCase]:
    """Cases of operations on packed weights; their exact result is the integer meaning with wider sums."""
    sizes = [(rows, 33, 47) for rows in EDGE_ROWS] + [(3, k, 19) for k in EDGE_WIDTHS] + [(2, 64, n) for n in (1, 15, 16, 17, 130)]
    cases = [_packed_linear_case(form, *size) for form in PACKED for size in sizes]
    for form in PACKED:
        for bias, residual in ((True, False), (False, True), (True, True)):
            cases.append(_packed_linear_case(form, 6, 96, 37, bias, residual, "silu"))
        for rows, width in ((1, 1), (5, 33), (13, 128), (0, 16)):
            c = _Case("embed", f"{form}-{rows}x{width}")
            c.graph.node("embed", "y", c.graph.input("ids", "r", 1, "i32"), weights=(c.weight("t", c.normal(17, width), form),))
            cases.append(c.one(0.0, ids=_index(c.rng.integers(0, 17, rows))))
    return cases


def _packed_linear_case(
    form: str, rows: int, k: int, n: int, bias: bool = False, residual: bool = False, activation: str = "none"
) -> OpCase:
    c = _Case("linear", f"{form}-{rows}x{k}x{n}-{activation}{'-bias' * bias}{'-residual' * residual}")
    names = [c.weight("w", c.normal(n, k, scale=k**-0.5), form)] + ([c.weight("b", c.normal(n))] if bias else [])
    arrays = {"x": c.normal(rows, k)} | ({"r": c.normal(rows, n)} if residual else {})
    inputs = [c.graph.input(name, "rows", a.shape[1]) for name, a in arrays.items()]
    c.graph.node("linear", "y", *inputs, weights=tuple(names), activation=activation)
    # Two sums a group, each rounded once, of terms no larger than the row's largest activation times the group's codes;
    # in q4m codes and minimum can be as large as the spread of the group each.
    spread = np.abs(c.value("w")).max(axis=1, keepdims=True).T * k * (3 if form == "q4m" else 1)
    size = (np.abs(arrays["x"]).max(axis=1, keepdims=True) if rows else np.zeros((0, 1))) * spread
    size = size + (np.abs(c.value("b")) if bias else 0.0)
    bound = 1.2 * EPS * (2 * (k // 32 + 1) + 8) * size + (0 if activation == "none" else 3e-7 * (1 + size))
    return c.one(bound + (4 * EPS * np.abs(arrays["r"]) if residual else 0.0), **arrays)


def make_weight(name: str, values: F32, fmt: str = "f32") -> Weight:
    """A weight that was stored in `fmt`; what is lost in storing is lost for every engine alike."""
    form = FORMATS[fmt]
    kind = "linear" if values.ndim == 2 else "norm"
    spec = TensorSpec(name, (name,), values.shape, kind, "text")
    return Weight(name, form, np.ascontiguousarray(form.encode(values)), spec, name, Path("case"), False)


class _Case:
    """Collects one case; random numbers depend on its name alone."""

    def __init__(self, op: str, name: str) -> None:
        self.op, self.name = op, f"{op}-{name}"
        self.rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        self.graph = GraphBuilder(op)
        self.weights: dict[str, Weight] = {}

    def normal(self, *shape: int, scale: float = 1.0) -> F32:
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def weight(self, name: str, values: F32, fmt: str = "f32") -> str:
        self.weights[name] = make_weight(name, values, fmt)
        return self.graph.weight(name, *values.shape)

    def value(self, name: str) -> NDArray[np.float64]:
        """A weight as stored, in float64."""
        return self.weights[name].f32().astype(np.float64)

    def done(self, steps: list[Step], bounds: list[NDArray[np.float64] | float], blocks: int = 0) -> OpCase:
        return OpCase(self.name, self.op, self.graph.finish("y"), self.weights, tuple(steps), tuple(bounds), blocks)

    def one(self, bound: NDArray[np.float64] | float, **inputs: NDArray) -> OpCase:
        return self.done([Step(inputs, ("y",))], [bound])


def _index(values: list[int] | NDArray) -> NDArray[np.int32]:
    return np.asarray(values, np.int32).reshape(-1, 1)


def _embed() -> Iterator[OpCase]:
    for fmt in FLOAT_FORMATS:
        for rows, width in ((1, 1), (5, 17), (13, 128), (0, 16)):
            c = _Case("embed", f"{fmt}-{rows}x{width}")
            c.graph.node("embed", "y", c.graph.input("ids", "r", 1, "i32"), weights=(c.weight("t", c.normal(7, width), fmt),))
            yield c.one(0.0, ids=_index(c.rng.integers(0, 7, rows)))


def _linear() -> Iterator[OpCase]:
    sizes = [(rows, 33, 47) for rows in (*EDGE_ROWS, 3, 4, 6, 7, 8, 9, 16, 40)]
    sizes += [(5, k, 19) for k in EDGE_WIDTHS] + [(2, 64, n) for n in (1, 2, 3, 5, 6, 7, 23, 24, 25, 130)]
    sizes += [(1, 1030, 9), (9, 2050, 14), (70, 96, 100)]
    for fmt in FLOAT_FORMATS:
        for rows, k, n in sizes:
            yield _linear_case(fmt, rows, k, n)
    for activation in ("none", "gelu_tanh", "gelu_erf", "silu"):
        for bias, residual in ((True, False), (False, True), (True, True)):
            yield _linear_case("bf16", 6, 48, 37, bias, residual, activation)


def _linear_case(
    fmt: str, rows: int, k: int, n: int, bias: bool = False, residual: bool = False, activation: str = "none"
) -> OpCase:
    c = _Case("linear", f"{fmt}-{rows}x{k}x{n}-{activation}{'-bias' * bias}{'-residual' * residual}")
    names = [c.weight("w", c.normal(n, k, scale=k**-0.5), fmt)] + ([c.weight("b", c.normal(n))] if bias else [])
    arrays = {"x": c.normal(rows, k)} | ({"r": c.normal(rows, n)} if residual else {})
    inputs = [c.graph.input(name, "rows", a.shape[1]) for name, a in arrays.items()]
    c.graph.node("linear", "y", *inputs, weights=tuple(names), activation=activation)
    # Every product and sum is rounded once; the activations' slope is below 1.2 and they add their own error.
    size = np.abs(arrays["x"]).astype(np.float64) @ np.abs(c.value("w")).T + (np.abs(c.value("b")) if bias else 0.0)
    bound = 1.2 * EPS * (k + 8) * size + (0 if activation == "none" else 3e-7 * (1 + size))
    return c.one(bound + (4 * EPS * np.abs(arrays["r"]) if residual else 0.0), **arrays)


def _norms() -> Iterator[OpCase]:
    for rows, width, heads in [(3, w, 1) for w in EDGE_WIDTHS] + [(r, 48, 3) for r in EDGE_ROWS] + [(4, 34, 2), (2, 256, 2)]:
        c = _Case("rms_norm", f"{rows}x{width}-{heads}")
        x, w = c.normal(rows, width, scale=3.0), c.normal(width // heads)
        c.graph.node("rms_norm", "y", c.graph.input("x", "r", width), weights=(c.weight("w", w),), eps=1e-6, heads=heads)
        parts = x.reshape(rows, heads, width // heads).astype(np.float64)
        scale = 1 / np.sqrt((parts**2).mean(-1, keepdims=True) + 1e-6) if rows else 0.0
        yield c.one((EPS * (width + 8) * np.abs(parts * scale * w)).reshape(rows, width), x=x)
    for rows, width in [(3, w) for w in EDGE_WIDTHS] + [(r, 72) for r in EDGE_ROWS]:
        c = _Case("layer_norm", f"{rows}x{width}")
        x, w, b = c.normal(rows, width, scale=3.0), c.normal(width), c.normal(width)
        weights = (c.weight("w", w), c.weight("b", b))
        c.graph.node("layer_norm", "y", c.graph.input("x", "r", width), weights=weights, eps=1e-6)
        wide = x.astype(np.float64)
        # The mean's error moves every element; the deviation divides it. A width of 1 has no deviation but epsilon.
        deviation = np.sqrt(wide.var(-1, keepdims=True) + 1e-6) if rows else 1.0
        largest = np.abs(wide).max(-1, keepdims=True) if rows else 0.0
        yield c.one(EPS * (2 * width + 16) * (largest / deviation * np.abs(w) + np.abs(b)) * np.ones((rows, width)), x=x)


def _rotary() -> Iterator[OpCase]:
    for style in ("halves", "pairs"):
        for rows, heads, dim, half in ((1, 1, 2, 1), (5, 2, 16, 8), (3, 3, 24, 12), (4, 2, 72, 36), (2, 2, 33, 16), (6, 1, 128, 20), (0, 2, 16, 8)):
            c = _Case("rotary", f"{style}-{rows}x{heads}x{dim}-{half}")
            x, angle = c.normal(rows, heads * dim), c.rng.uniform(-9, 9, (rows, half))
            cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
            inputs = [c.graph.input(name, "r", a.shape[1]) for name, a in (("x", x), ("cos", cos), ("sin", sin))]
            c.graph.node("rotary", "y", *inputs, heads=heads, style=style)
            largest = np.abs(x).max() if x.size else 0.0
            yield c.one(4 * EPS * 2 * largest, x=x, cos=cos, sin=sin)


def _elementwise() -> Iterator[OpCase]:
    for rows, width in [(2, w) for w in EDGE_WIDTHS] + [(0, 5), (13, 31)]:
        for op in ("silu_mul", "add", "mul"):
            c = _Case(op, f"{rows}x{width}")
            x, y = c.normal(rows, width, scale=4.0), c.normal(rows, width)
            names = ("x", "up") if op == "silu_mul" else ("x", "z")
            c.graph.node(op, "y", *(c.graph.input(name, "r", width) for name in names))
            bound = 3e-7 * (1 + np.abs(x)) * (1 + np.abs(y)) if op == "silu_mul" else 2 * EPS * (np.abs(x) + 1) * (np.abs(y) + 1)
            yield c.one(bound.astype(np.float64), **dict(zip(names, (x, y))))
        for form in ("tanh", "erf"):
            c = _Case("gelu", f"{form}-{rows}x{width}")
            x = c.normal(rows, width, scale=3.0)
            c.graph.node("gelu", "y", c.graph.input("x", "r", width), form=form)
            yield c.one((3e-7 * (1 + np.abs(x))).astype(np.float64), x=x)
    c = _Case("gelu", "far")
    x = np.array([[-200, -30, -10, -6, -5.5, -1e-20, 0, 1e-20, 5.5, 6, 10, 30, 200]], np.float32)
    c.graph.node("gelu", "y", c.graph.input("x", "r", x.shape[1]), form="erf")
    yield c.one((3e-7 * (1 + np.abs(x))).astype(np.float64), x=x)


def _rows() -> Iterator[OpCase]:
    for rows, width, picks in ((5, 17, [4, 0, 4, 2]), (3, 64, [1]), (4, 1, []), (13, 130, list(range(13)))):
        c = _Case("take_rows", f"{rows}x{width}-{len(picks)}")
        inputs = (c.graph.input("x", "r", width), c.graph.input("i", "picked", 1, "i32"))
        c.graph.node("take_rows", "y", *inputs)
        yield c.one(0.0, x=c.normal(rows, width), i=_index(picks))
        for op in ("put_rows", "add_rows"):
            once = list(dict.fromkeys(picks))
            c = _Case(op, f"{rows}x{width}-{len(once)}")
            inputs = (c.graph.input("x", "r", width), c.graph.input("v", "some", width), c.graph.input("i", "some", 1, "i32"))
            c.graph.node(op, "y", *inputs)
            arrays = {"x": c.normal(rows, width), "v": c.normal(len(once), width), "i": _index(once)}
            yield c.one(0.0 if op == "put_rows" else 1e-6, **arrays)
    for rows, width, count in ((8, 17, 4), (4, 1, 4), (0, 16, 4), (6, 33, 1), (6, 5, 3)):
        c = _Case("fold_rows", f"{rows}x{width}-{count}")
        c.graph.node("fold_rows", "y", c.graph.input("x", "r", width), count=count, rows="folded")
        yield c.one(0.0, x=c.normal(rows, width))
    for fmt in FLOAT_FORMATS:
        for rows, width, taps in ((5, 17, 4), (1, 64, 1), (0, 8, 4), (9, 130, 2)):
            c = _Case("blend_rows", f"{fmt}-{rows}x{width}-{taps}")
            inputs = (c.graph.input("t", "r", taps, "i32"), c.graph.input("x", "r", taps))
            c.graph.node("blend_rows", "y", *inputs, weights=(c.weight("w", c.normal(11, width), fmt),))
            index, x = c.rng.integers(0, 11, (rows, taps)).astype(np.int32), c.normal(rows, taps)
            size = np.abs(c.value("w")).max() * np.abs(x).sum(-1, keepdims=True).astype(np.float64)
            yield c.one(EPS * (taps + 4) * size * np.ones((rows, width)), t=index, x=x)


def _attention_graph(c: _Case, heads: int, kv_heads: int, dim: int, value_dim: int, mode: str) -> None:
    widths = {"q": heads * dim, "k": kv_heads * dim, "v": kv_heads * value_dim}
    inputs = [c.graph.input(name, "r", width) for name, width in widths.items()]
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_dim": dim, "value_dim": value_dim}
    layer = 0 if mode == "causal" else -1
    c.graph.node("attention", "y", *inputs, **sizes, scale=float(dim**-0.5), mode=mode, layer=layer)


def _qkv(c: _Case, rows: int, heads: int, kv_heads: int, dim: int, value_dim: int) -> dict[str, F32]:
    widths = {"q": heads * dim, "k": kv_heads * dim, "v": kv_heads * value_dim}
    return {name: c.normal(rows, width) for name, width in widths.items()}


def _attention_bound(c: _Case, keys: int, dim: int) -> float:
    """An error e in a score is a relative error e in its weight; values are below 6, scores are sums of dim products."""
    return float(EPS * (2 * (dim + 8) * 36 * dim**0.5 + keys + 64) * 6)


def _segments() -> Iterator[OpCase]:
    forms = ((2, 2, 16, 16), (4, 2, 24, 24), (3, 1, 72, 72), (2, 2, 8, 20), (1, 1, 1, 1))
    for heads, kv_heads, dim, value_dim in forms:
        for borders in ([0, 1], [0, 5], [0, 31, 31, 64, 130], [0, 33, 65]):
            c = _Case("attention", f"segments-{heads}-{kv_heads}-{dim}-{value_dim}-{borders[-1]}-{len(borders)}")
            _attention_graph(c, heads, kv_heads, dim, value_dim, "segments")
            arrays = _qkv(c, borders[-1], heads, kv_heads, dim, value_dim)
            step = Step(arrays, ("y",), segments=np.array(borders, np.int32))
            yield c.done([step], [_attention_bound(c, borders[-1], dim)])


def _causal() -> Iterator[OpCase]:
    forms = ((4, 2, 16, 16), (2, 2, 24, 24), (4, 1, 32, 32), (16, 8, 128, 128), (3, 1, 10, 7))
    plans = {
        "one": [[(0, 1)]],
        "prompt": [[(0, 70)]],
        "chunks": [[(0, 7)], [(0, 30)], [(0, 33)], [(0, 1)], [(0, 1)]],
        "ragged": [[(0, 40), (1, 3), (2, 1)], [(1, 31), (0, 1), (2, 64)], [(2, 1), (1, 1), (0, 1)]],
    }
    for heads, kv_heads, dim, value_dim in forms:
        for name, plan in plans.items():
            c = _Case("attention", f"causal-{heads}-{kv_heads}-{dim}-{value_dim}-{name}")
            _attention_graph(c, heads, kv_heads, dim, value_dim, "causal")
            yield _causal_steps(c, plan, (heads, kv_heads, dim, value_dim))


def _causal_steps(c: _Case, plan: list[list[tuple[int, int]]], form: tuple[int, int, int, int]) -> OpCase:
    """Each step runs (sequence, tokens) pairs; blocks are dealt in turn, so that a sequence's blocks are scattered."""
    past: dict[int, int] = {}
    blocks: dict[int, list[int]] = {}
    steps, dealt = [], 0
    for work in plan:
        rows, at = [], 0
        for sequence, count in work:
            before, own = past.get(sequence, 0), blocks.setdefault(sequence, [])
            while len(own) * BLOCK_TOKENS < before + count:
                own.append(dealt)
                dealt += 1
            rows.append(SequenceRows(at, count, before, np.array(own, np.int32)))
            past[sequence], at = before + count, at + count
        steps.append(Step(_qkv(c, at, *form), ("y",), sequences=tuple(rows)))
    bound = _attention_bound(c, max(past.values()), form[2])
    return c.done(steps, [bound] * len(steps), dealt)


_MAKERS: tuple[Callable[[], Iterator[OpCase]], ...] = (
    _embed,
    _linear,
    _norms,
    _rotary,
    _elementwise,
    _rows,
    _segments,
    _causal,
)
