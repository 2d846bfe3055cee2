"""The integer meaning of `linear` on packed weights: against exact arithmetic, and the native engine bit for bit."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from ouzel.engines.base import Step
from ouzel.engines.native.engine import NativeEngine
from ouzel.engines.reference.engine import ReferenceEngine
from ouzel.engines.reference.quantised import PackedMatrix, fma_whole, linear, quantise_rows
from ouzel.graph.builder import GraphBuilder
from ouzel.weights.formats import FORMATS, PACKED
from ouzel.weights.table import TensorSpec
from ouzel.weights.weight_set import Weight


def weight(name: str, values: np.ndarray, form: str) -> Weight:
    kind = "linear" if values.ndim == 2 else "bias"
    spec = TensorSpec(name, (name,), values.shape, kind, "text")
    return Weight(name, FORMATS[form], np.ascontiguousarray(FORMATS[form].encode(values)), spec, name, Path("case"), False)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rounded(exact: Fraction) -> np.float32:
    """The nearest float32 of a fraction, ties to even: the three candidates around it are compared exactly."""
    near = np.float32(float(exact))
    around = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    return min(around, key=lambda f: (abs(Fraction(float(f)) - exact), int(f.view(np.uint32)) & 1))


def test_fma_rounds_once() -> None:
    rng = np.random.default_rng(1)
    count = 4000
    number = rng.integers(-516128, 516129, count).astype(np.float32)
    scale = (rng.standard_normal(count) * 2.0 ** rng.integers(-20, 3, count)).astype(np.float32)
    acc = (rng.standard_normal(count) * 2.0 ** rng.integers(-30, 25, count)).astype(np.float32)
    # Sums half way between two floats, and a little beside: rounding twice goes wrong there.
    for i in range(0, count, 2):
        acc[i] = np.float32(2**24 + 2 * (i % 7))
        number[i], scale[i] = np.float32(1 + (i % 5 == 0) * 2**20), np.float32(1 + 2.0**-23 * (i % 3))
        number[i] *= -1 if i % 4 else 1
    found = fma_whole(number, scale, acc)
    for n, s, a, f in zip(number, scale, acc, found):
        assert f == rounded(Fraction(float(n)) * Fraction(float(s)) + Fraction(float(a))), (n, s, a)


def test_fma_where_two_roundings_differ_from_one() -> None:
    # (2^12 + 1) (2^24 - 2^12 + 1) = 2^36 + 1 and (2^18 - 1) (2^18 + 1) = 2^36 - 1: beside half way between two floats, by
    # less than float64 keeps.
    number, scale = np.float32([4097, 2**18 - 1]), np.float32([2**24 - 2**12 + 1, 2**18 + 1])
    acc = np.float32([2.0**60, 2.0**60 + 2.0**37])
    wanted = np.float32([2.0**60 + 2.0**37, 2.0**60 + 2.0**37])
    twice = (number.astype(np.float64) * scale + acc.astype(np.float64)).astype(np.float32)
    assert (twice != wanted).all()
    for sign in (1, -1):
        assert np.array_equal(fma_whole(sign * number, scale, sign * acc), sign * wanted)


def test_fma_with_numbers_that_are_not_finite() -> None:
    huge = fma_whole(np.float32([2, 1, 0]), np.float32([3e38, np.nan, np.inf]), np.float32([3e38, 0, 0]))
    assert np.isinf(huge[0]) and np.isnan(huge[1]) and np.isnan(huge[2])


def test_activation_codes() -> None:
    x = np.zeros((5, 40), np.float32)
    x[0, :4] = [127, 0.5, 1.5, -2.5]  # a scale of one: ties go to even
    x[1, 33] = -4.0
    x[2, 0] = 1e-37  # 127 / a is infinite
    x[3, 5] = np.nan
    x[4, 6] = np.inf
    codes, scales = quantise_rows(x)
    assert codes.shape == (5, 2, 32) and codes[0, 0, :4].tolist() == [127, 0, 2, -2] and scales[0].tolist() == [1, 0]
    assert codes[1, 1, 1] == -127 and scales[1, 1] == np.float32(4.0) / np.float32(127)
    assert not codes[2].any() and not scales[2].any()
    assert not codes[3:].any() and np.isnan(scales[3:, 0]).all() and not scales[3:, 1].any()
    large = normal(2, 50, 96) * np.float32(1e30)
    assert np.abs(quantise_rows(large)[0]).max() == 127


@pytest.mark.parametrize("form", PACKED)
def test_linear_equals_a_sum_in_exact_arithmetic(form: str) -> None:
    """Number by number in fractions, each step rounded as the description says."""
    x, w = normal(3, 2, 70), normal(4, 3, 70)
    made = weight("w", w, form)
    packing = made.format.packing
    parts = packing.unpack(made.array)
    codes, scales = quantise_rows(x)
    found = linear(x, PackedMatrix(made.array, packing, made.shape))
    for row in range(2):
        for n in range(3):
            acc = np.float32(0)
            for g in range(3):
                u = parts.codes[n, 32 * g : 32 * g + 32].astype(int) - packing.zero
                q = codes[row, g].astype(int)
                both = scales[row, g] * np.float32(parts.scales[n, g])
                acc = rounded(Fraction(int(u @ q)) * Fraction(float(both)) + Fraction(float(acc)))
                if parts.minima is not None:
                    both = scales[row, g] * np.float32(parts.minima[n, g])
                    acc = rounded(Fraction(int(q.sum())) * Fraction(float(both)) + Fraction(float(acc)))
            assert found[row, n] == acc


@pytest.mark.parametrize("form", PACKED)
def test_linear_is_near_the_float_product(form: str) -> None:
    x, w = normal(5, 6, 256), normal(6, 40, 256)
    made = weight("w", w, form)
    wide = x.astype(np.float64) @ made.f32().T.astype(np.float64)
    # A code is at most half a step of a / 127 off in every column.
    step = np.abs(x).reshape(6, 8, 32).max(axis=-1).repeat(32, axis=1) / 127
    bound = 0.5001 * step.astype(np.float64) @ np.abs(made.f32()).T
    assert (np.abs(linear(x, PackedMatrix(made.array, made.format.packing, made.shape)) - wide) <= bound + 1e-4).all()


@pytest.mark.parametrize("form", PACKED)
def test_embedding_rows_are_exact(form: str) -> None:
    made = weight("t", normal(7, 35, 100), form)
    graph = GraphBuilder("e")
    graph.node("embed", "y", graph.input("ids", "r", 1, "i32"), weights=(graph.weight("t", 35, 100),))
    ids = np.array([[34], [0], [16], [34]], np.int32)
    step = Step({"ids": ids}, ("y",))
    built = graph.finish("y")
    for engine in (ReferenceEngine(), NativeEngine(2)):
        found = engine.compile(built, {"t": made}).run(step)["y"]
        assert np.array_equal(found.view(np.uint32), made.f32()[ids[:, 0]].view(np.uint32))


@pytest.mark.parametrize("form", PACKED)
@pytest.mark.parametrize("k", [1, 31, 32, 33, 100, 512])
def test_native_equals_the_reference_bit_for_bit(form: str, k: int) -> None:
    for n in (1, 15, 16, 17, 70):
        made = {"w": weight("w", normal(n, n, k), form), "b": weight("b", normal(n + 1, n), "f32")}
        graph = GraphBuilder("l")
        x = graph.input("x", "r", k)
        graph.node("linear", "y", x, weights=(graph.weight("w", n, k), graph.weight("b", n)), activation="none")
        built = graph.finish("y")
        for rows in (1, 2, 7, 33):
            size = np.random.default_rng(rows).choice([1e-38, 1e-3, 1.0, 1e4], (rows, 1)).astype(np.float32)
            step = Step({"x": normal(rows + k, rows, k) * size}, ("y",))
            mine, theirs = (engine.compile(built, made).run(step)["y"] for engine in (NativeEngine(2), ReferenceEngine()))
            assert np.array_equal(mine.view(np.uint32), theirs.view(np.uint32)), (n, rows)
