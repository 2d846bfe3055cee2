"""Choosing scales and codes: bounds, the search, importance, and the native kernel against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from ouzel import _native
from ouzel.weights.formats import FORMATS, f32_to_bf16
from ouzel.weights.pack import packer
from ouzel.weights.packing import Q4, Q4M, Q8, Packing
from ouzel.weights.quantise import NotStorable, normal_importance, quantise_numpy, quantise_rows

FORMS = {"q8": Q8, "q4": Q4, "q4m": Q4M}
SIZES = [(1, 1), (15, 31), (16, 32), (17, 33), (33, 100), (5, 256)]


def values(n: int, k: int, seed: int = 0) -> np.ndarray:
    """Rows of very different size with zeros, a zero row and negative zeros among them."""
    rng = np.random.default_rng(seed)
    x = rng.standard_t(4, size=(n, k)) * rng.choice([1e-7, 1e-4, 1.0, 100.0], size=(n, 1))
    x[rng.random((n, k)) < 0.05] = 0
    x[n // 2] = -0.0
    return x.astype(np.float32)


def stored(x: np.ndarray, dtype: str) -> np.ndarray:
    return {"F32": lambda: x, "BF16": lambda: f32_to_bf16(x), "F16": lambda: x.astype(np.float16)}[dtype]()


def packed(x: np.ndarray, packing: Packing, importance: np.ndarray | None = None, search: bool = True) -> np.ndarray:
    out = np.empty(packing.shape(*x.shape), np.uint8)
    quantise_rows(x, "F32", packing, out, normal_importance(importance, x.shape[1]), search)
    return out


def decoded(x: np.ndarray, packing: Packing, importance: np.ndarray | None = None, search: bool = True) -> np.ndarray:
    return packing.decode(packed(x, packing, importance, search))[: x.shape[0], : x.shape[1]]


@pytest.mark.parametrize("search", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
@pytest.mark.parametrize("name", FORMS)
def test_native_bytes_are_those_of_numpy(name: str, dtype: str, weighted: bool, search: bool) -> None:
    assert hasattr(_native, "quantise_rows")
    packing = FORMS[name]
    for seed, (n, k) in enumerate(SIZES):
        data = stored(values(n, k, seed), dtype)
        importance = normal_importance(np.random.default_rng(seed).random(k) ** 4, k) if weighted else None
        mine, theirs = (np.full(packing.shape(n, k), 99, np.uint8) for _ in range(2))
        quantise_rows(data, dtype, packing, mine, importance, search)
        quantise_numpy(data, dtype, packing, theirs, importance, search)
        assert np.array_equal(mine, theirs), (n, k)


@pytest.mark.parametrize(("name", "levels"), [("q8", 127), ("q4", 8)])
def test_without_search_no_value_is_further_than_half_a_step(name: str, levels: int) -> None:
    x = values(40, 96, 5)
    x = x[np.abs(x).max(axis=1) > 1e-3]
    error = np.abs(decoded(x, FORMS[name], search=False) - x).reshape(len(x), -1, 32)
    step = np.abs(x).reshape(len(x), -1, 32).max(axis=-1, keepdims=True) / levels
    # The scale is rounded to half precision (2^-11), which moves the ends; q4 has no code for the largest value of the
    # other sign and may miss it by a whole step.
    whole = 1.0 if name == "q4" else 0.5
    assert (error <= step * (whole + levels * 2.0**-11) + 1e-7).all()


def test_minimum_form_holds_constant_groups_and_shifted_ones() -> None:
    x = np.full((16, 32), 0.75, np.float32)
    x[1] = -3.0
    assert np.array_equal(decoded(x, Q4M), x)
    shifted = values(16, 64, 8) * 0 + np.linspace(5, 6, 64, dtype=np.float32)
    # A group spans half of 0..1, in fifteen steps.
    assert np.abs(decoded(shifted, Q4M) - shifted).max() <= 0.5 / 15 * 0.75 + 6 * 2.0**-11
    assert np.abs(decoded(shifted, Q4) - shifted).max() > 0.3 / 2


@pytest.mark.parametrize(("name", "gain"), [("q8", 0.95), ("q4", 0.97), ("q4m", 0.95)])
@pytest.mark.parametrize("kind", ["normal", "student"])
def test_search_beats_the_largest_value(name: str, gain: float, kind: str) -> None:
    rng = np.random.default_rng(11)
    x = rng.normal(size=(256, 512)) if kind == "normal" else rng.standard_t(5, size=(256, 512))
    x = (0.02 * x).astype(np.float32)
    found, plain = (np.square(decoded(x, FORMS[name], search=search) - x).sum() for search in (True, False))
    assert found < gain**2 * plain


@pytest.mark.parametrize("name", ["q4", "q4m"])
def test_importance_moves_the_error_away_from_what_matters(name: str) -> None:
    rng = np.random.default_rng(12)
    x = rng.normal(size=(128, 256)).astype(np.float32)
    importance = rng.random(256) ** 6 * 100
    weighted, plain = (np.square(decoded(x, FORMS[name], imp) - x) @ importance for imp in (importance, None))
    assert weighted.sum() < 0.93 * plain.sum()
    assert np.array_equal(packed(x, FORMS[name], np.ones(256)), packed(x, FORMS[name]))


def test_importance_that_cannot_be_used() -> None:
    assert normal_importance(np.zeros(4), 4) is None and normal_importance(None, 4) is None
    floor = normal_importance(np.array([0.0, 4.0]), 2)
    assert floor is not None and floor[0] == np.float32(1e-3) and floor[1] == 2
    for bad in (np.ones(3), np.array([1, 2, 3, np.nan]), np.array([1, 2, 3, -1.0])):
        with pytest.raises(ValueError, match="importance of 4 columns"):
            normal_importance(bad, 4)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_what_cannot_be_stored_is_told_with_its_place(name: str, value: float) -> None:
    for code in (quantise_rows, quantise_numpy):
        x = np.ones((40, 70), np.float32)
        x[17, 66] = value
        x[30, 2] = value
        with pytest.raises(NotStorable) as caught:
            code(x, "F32", FORMS[name], np.empty(FORMS[name].shape(40, 70), np.uint8))
        assert caught.value.place == (17, 66)


@pytest.mark.parametrize("name", FORMS)
def test_pieces_and_threads_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = values(200, 130, 4)
    monkeypatch.setattr("ouzel.weights.pack._PIECE", 16 * 130 * 2)
    for threads in (1, 3):
        with packer(threads) as pool:
            out = pool.pack(x, "F32", FORMS[name])
            assert np.array_equal(out, packed(x, FORMS[name]))
            assert out.__array_interface__["data"][0] % 64 == 0
            x[150, 3] = np.nan
            with pytest.raises(NotStorable) as caught:
                pool.pack(x, "F32", FORMS[name])
            assert caught.value.place == (150, 3)
            x[150, 3] = 0


@pytest.mark.parametrize("name", FORMS)
def test_padding_is_zero(name: str) -> None:
    form = FORMATS[name]
    whole = form.decode(form.encode(values(17, 33, 2)))
    assert whole.shape == (32, 64)
    assert not whole[17:].any()
    parts = form.packing.unpack(form.encode(values(17, 33, 2)))
    assert (parts.codes[:, 33:] == form.packing.zero).all() and not parts.scales[17:].any()
