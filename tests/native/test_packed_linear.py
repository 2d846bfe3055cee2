"""The native engine on packed weights against a NumPy statement of their meaning, bit for bit, on every instruction set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

_native = pytest.importorskip("ouzel._native", reason="the native core is not built")

from ouzel.engines.base import Step  # noqa: E402
from ouzel.engines.native.engine import NativeEngine  # noqa: E402
from ouzel.errors import EngineError  # noqa: E402
from ouzel.graph.builder import GraphBuilder  # noqa: E402
from ouzel.graph.graph import Graph  # noqa: E402

F32 = NDArray[np.float32]
FORMATS = {"q8": (512, False), "q4": (256, False), "q4m": (256, True)}
SHAPES = [(1, 1, 1), (1, 40, 33), (2, 16, 64), (3, 17, 31), (5, 33, 32), (6, 48, 96), (7, 100, 200), (13, 31, 65), (40, 130, 352)]
each_isa = pytest.mark.parametrize("isa", _native.isas_available())
each_format = pytest.mark.parametrize("form", FORMATS)


@dataclass(frozen=True)
class Packed:
    """A packed matrix as the engine takes it."""

    format: str
    array: NDArray[np.uint8]
    shape: tuple[int, int]


@dataclass(frozen=True)
class Plain:
    array: F32
    format: str = "f32"


def random_packed(rng: np.random.Generator, form: str, n: int, k: int) -> Packed:
    """Random bytes behind random scales; also the codes that quantisers never write."""
    codes, minimum = FORMATS[form]
    panels, groups, head = -(-n // 16), -(-k // 32), 64 if minimum else 32
    array = np.empty((panels, groups, head + codes), np.uint8)
    scales = rng.standard_normal((panels, groups, head // 2)).astype(np.float16)
    array[..., :head] = scales.view(np.uint8)
    array[..., head:] = rng.integers(0, 256, (panels, groups, codes))
    return Packed(form, array, (n, k))


def taken_apart(w: Packed) -> tuple[NDArray[np.int64], F32, F32]:
    """Centred codes [n, groups, 32], scales and minima [n, groups]."""
    codes, minimum = FORMATS[w.format]
    head = 64 if minimum else 32
    panels, groups, _ = w.array.shape
    halves = np.ascontiguousarray(w.array[..., :head]).view(np.float16).astype(np.float32)
    halves = halves.reshape(panels, groups, -1, 16).transpose(2, 0, 3, 1).reshape(-1, panels * 16, groups)
    vectors = w.array[..., head:].reshape(panels, groups, codes // 64, 16, 4).transpose(0, 3, 1, 2, 4)
    numbers = vectors.reshape(panels * 16, groups, codes // 16).astype(np.int64)
    if codes == 256:
        numbers = np.concatenate([numbers & 15, numbers >> 4], axis=-1)
    numbers -= {"q8": 128, "q4": 8, "q4m": 0}[w.format]
    return numbers, halves[0], halves[1] if minimum else np.zeros_like(halves[0])


def fma(number: NDArray[np.int64], scale: F32, acc: F32) -> F32:
    """number * scale + acc rounded once. The product is exact in float64 and the error of the sum is known, so the sum is
    rounded to odd before it is rounded to float32."""
    product, other = number.astype(np.float64) * scale.astype(np.float64), acc.astype(np.float64)
    total = product + other
    back = total - product
    lost = (product - (total - back)) + (other - back)
    towards = np.where((lost != 0) & (total.view(np.int64) % 2 == 0), np.copysign(np.inf, lost), total)
    return np.nextafter(total, towards).astype(np.float32)


def product(x: F32, w: Packed) -> F32:
    codes, scales, minima = taken_apart(w)
    groups = scales.shape[1]
    padded = np.zeros((len(x), groups * 32), np.float32)
    padded[:, : x.shape[1]] = x
    parts = padded.reshape(len(x), groups, 32)
    largest = np.abs(parts).max(-1)
    inverse = np.float32(127) / np.where(largest > 0, largest, np.float32(1))
    numbers = np.rint(parts * inverse[..., None]).astype(np.int64)
    row_scales = np.where(largest > 0, largest / np.float32(127), np.float32(0))
    acc = np.zeros((len(x), len(codes)), np.float32)
    for g in range(groups):
        dot = np.einsum("mi,ni->mn", numbers[:, g], codes[:, g])
        acc = fma(dot, row_scales[:, g, None] * scales[None, :, g], acc)
        if w.format == "q4m":
            total = np.broadcast_to(numbers[:, g].sum(-1)[:, None], acc.shape)
            acc = fma(total, row_scales[:, g, None] * minima[None, :, g], acc)
    return acc[:, : w.shape[0]]


def linear_graph(k: int, n: int, bias: bool = False, residual: bool = False, activation: str = "none") -> Graph:
    graph = GraphBuilder("packed")
    weights = (graph.weight("w", n, k), *([graph.weight("b", n)] if bias else []))
    inputs = [graph.input("x", "rows", k), *([graph.input("r", "rows", n)] if residual else [])]
    graph.node("linear", "y", *inputs, weights=weights, activation=activation)
    return graph.finish("y")


def run(engine: NativeEngine, graph: Graph, weights: dict[str, Packed | Plain], **inputs: NDArray) -> F32:
    executable = engine.compile(graph, weights)
    return executable.run(Step(inputs=inputs, wanted=("y",)))["y"]


def case_rows(rng: np.random.Generator, rows: int, k: int) -> F32:
    """Rows of different sizes; a group of zeros, one of tiny numbers and halves that lie on ties."""
    x = (rng.standard_normal((rows, k)) * 10.0 ** rng.integers(-6, 6, (rows, 1))).astype(np.float32)
    x[0, :32] = 0
    if rows > 1:
        x[1, :32] = np.float32(127) / 2 - np.arange(32, dtype=np.float32)[: min(k, 32)]
    return x


def same_bits(a: F32, b: F32) -> bool:
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


@each_isa
@each_format
def test_equals_the_meaning(form: str, isa: str) -> None:
    rng = np.random.default_rng(20)
    for rows, n, k in SHAPES:
        w, x = random_packed(rng, form, n, k), case_rows(rng, rows, k)
        for threads in (1, 2):
            found = run(NativeEngine(threads, isa), linear_graph(k, n), {"w": w}, x=x)
            assert same_bits(found, product(x, w)), f"{rows} x {n} x {k}, {threads} threads"


@each_isa
@each_format
def test_bias_and_residual(form: str, isa: str) -> None:
    rng = np.random.default_rng(21)
    w, x = random_packed(rng, form, 50, 70), case_rows(rng, 9, 70)
    b, r = (rng.standard_normal(shape).astype(np.float32) for shape in (50, (9, 50)))
    graph = linear_graph(70, 50, bias=True, residual=True)
    found = run(NativeEngine(2, isa), graph, {"w": w, "b": Plain(b)}, x=x, r=r)
    assert same_bits(found, (product(x, w) + b) + r)


@each_format
def test_a_row_does_not_depend_on_its_neighbours(form: str) -> None:
    rng = np.random.default_rng(22)
    w, x = random_packed(rng, form, 300, 160), case_rows(rng, 75, 160)
    graph = linear_graph(160, 300, activation="silu")
    executable = NativeEngine(2).compile(graph, {"w": w})

    def rows(first: int, end: int) -> F32:
        return executable.run(Step(inputs={"x": x[first:end]}, wanted=("y",)))["y"]

    whole = rows(0, 75)
    for first, end in [(0, 1), (1, 2), (3, 11), (7, 13), (20, 75), (74, 75), (0, 17)]:
        assert same_bits(rows(first, end), whole[first:end]), (first, end)


@each_isa
@each_format
def test_embedding_is_exact(form: str, isa: str) -> None:
    rng = np.random.default_rng(23)
    w = random_packed(rng, form, 37, 75)
    codes, scales, minima = taken_apart(w)
    values = codes.astype(np.float32) * scales[..., None]
    if form == "q4m":
        values += minima[..., None]
    graph = GraphBuilder("embedding")
    graph.node("embed", "y", graph.input("ids", "rows", 1, "i32"), weights=(graph.weight("w", 37, 75),))
    ids = np.array([[0], [15], [16], [36], [36]], np.int32)
    found = run(NativeEngine(2, isa), graph.finish("y"), {"w": w}, ids=ids)
    assert same_bits(found, values.reshape(len(values), -1)[ids[:, 0], :75])


@each_isa
def test_numbers_that_are_not_finite_never_become_numbers(isa: str) -> None:
    rng = np.random.default_rng(24)
    w = random_packed(rng, "q8", 20, 64)
    x = np.ones((3, 64), np.float32)
    x[0, 3], x[1, 40], x[2, 5] = np.nan, np.inf, 1e-38
    found = run(NativeEngine(1, isa), linear_graph(64, 20), {"w": w}, x=x)
    assert np.isnan(found[:2]).all() and np.isfinite(found[2]).all()


@each_isa
def test_numbers_too_small_to_quantise_count_as_zero(isa: str) -> None:
    w = random_packed(np.random.default_rng(25), "q4", 20, 32)
    x = np.full((1, 32), 1e-38, np.float32)
    assert not run(NativeEngine(1, isa), linear_graph(32, 20), {"w": w}, x=x).any()


def test_wrong_sizes_are_refused() -> None:
    w = random_packed(np.random.default_rng(26), "q4", 20, 64)
    with pytest.raises(EngineError, match="weight w"):
        NativeEngine(1).compile(linear_graph(64, 20), {"w": Packed("q4", w.array[:1], (20, 64))})
    with pytest.raises(EngineError, match="weight w"):
        NativeEngine(1).compile(linear_graph(64, 20), {"w": Packed("q8", w.array, (20, 64))})
    with pytest.raises(EngineError, match="weight w"):
        NativeEngine(1).compile(linear_graph(64, 20), {"w": Packed("q4", w.array, (32, 64))})
