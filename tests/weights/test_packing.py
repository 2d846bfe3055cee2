"""The packed form, byte by byte, against a plain reading of its description."""

from __future__ import annotations

import numpy as np
import pytest

from ouzel.weights.packing import Q4, Q4M, Q8, Codes, Packing, blocks_of

FORMS = {"q8": Q8, "q4": Q4, "q4m": Q4M}
SIZES = [(n, k) for n in (1, 15, 16, 17) for k in (1, 31, 32, 33, 100)]


def random_codes(packing: Packing, n: int, k: int, seed: int = 3) -> Codes:
    rng = np.random.default_rng(seed)
    rows, groups = blocks_of(n, 16) * 16, blocks_of(k, 32)
    codes = rng.integers(packing.lowest, packing.highest + 1, (rows, groups * 32)).astype(np.uint8)
    scales = rng.normal(size=(rows, groups)).astype(np.float16)
    return Codes(codes, scales, rng.normal(size=(rows, groups)).astype(np.float16) if packing.minimum else None)


def value_in_bytes(stored: np.ndarray, name: str, n: int, k: int) -> float:
    """One value, read as docs/formats.md says."""
    block = stored[n // 16, k // 32].tobytes()
    row, column = n % 16, k % 32
    scale = np.frombuffer(block, "<f2", 1, 2 * row)[0].astype(np.float64)
    if name == "q8":
        return float((block[32 + column // 4 * 64 + row * 4 + column % 4] - 128) * scale)
    head = 64 if name == "q4m" else 32
    inside = column % 16
    byte = block[head + inside // 4 * 64 + row * 4 + inside % 4]
    code = byte >> 4 if column >= 16 else byte & 15
    if name == "q4":
        return float((code - 8) * scale)
    minimum = np.frombuffer(block, "<f2", 1, 32 + 2 * row)[0].astype(np.float64)
    # The product is rounded to float32 before the minimum is added.
    return float(np.float32(np.float32(code * scale) + np.float32(minimum)))


@pytest.mark.parametrize("name", FORMS)
def test_bits_per_weight(name: str) -> None:
    assert FORMS[name].bits_per_weight == {"q8": 8.5, "q4": 4.5, "q4m": 5.0}[name]
    assert FORMS[name].block_bytes == {"q8": 544, "q4": 288, "q4m": 320}[name]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_every_value_lies_where_the_description_says(name: str, n: int, k: int) -> None:
    packing = FORMS[name]
    stored = packing.pack(random_codes(packing, n, k))
    assert stored.shape == packing.shape(n, k) and stored.dtype == np.uint8
    decoded = packing.decode(stored)
    assert decoded.dtype == np.float32
    for row in range(decoded.shape[0]):
        for column in range(decoded.shape[1]):
            assert decoded[row, column] == np.float32(value_in_bytes(stored, name, row, column))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_unpack_undoes_pack(name: str, n: int, k: int) -> None:
    packing = FORMS[name]
    parts = random_codes(packing, n, k)
    again = packing.unpack(packing.pack(parts))
    assert np.array_equal(again.codes, parts.codes) and np.array_equal(again.scales, parts.scales)
    assert (again.minima is None) == (parts.minima is None)
    if parts.minima is not None:
        assert np.array_equal(again.minima, parts.minima)


def test_sizes() -> None:
    assert Q8.shape(1, 1) == (1, 1, 544) and Q4.shape(16, 32) == (1, 1, 288) and Q4M.shape(17, 33) == (2, 2, 320)
