"""Finding NaN and infinity on the stored bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ouzel.errors import TensorError
from ouzel.weights import FORMATS, check_finite
from ouzel.weights.check import _BLOCK, first_not_finite

WORDS = {"f32": "F32", "bf16": "BF16", "f16": "F16"}


@pytest.mark.parametrize("name", sorted(WORDS))
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", [1, 17, _BLOCK - 1, _BLOCK, _BLOCK + 1, 2 * _BLOCK + 5])
def test_the_first_place_is_found(name, bad, size):
    values = np.random.default_rng(size).normal(size=size).astype(np.float32)
    for place in sorted({0, size // 2, size - 1, min(size - 1, _BLOCK)}):
        changed = values.copy()
        changed[place] = bad
        changed[-1] = bad
        assert first_not_finite(FORMATS[name].encode(changed), WORDS[name]) == place
    assert first_not_finite(FORMATS[name].encode(values), WORDS[name]) is None


@pytest.mark.parametrize("name", sorted(WORDS))
def test_every_pattern_of_the_upper_half(name):
    """All 65536 upper halves, against NumPy's own answer."""
    upper = np.arange(65536, dtype=np.uint32)
    if name == "f32":
        data = (upper << np.uint32(16)).view(np.float32)
    else:
        data = upper.astype(np.uint16).view(FORMATS[name].storage)
    wanted = ~np.isfinite(FORMATS[name].decode(data))
    got = np.array([first_not_finite(data[i : i + 1], WORDS[name]) is not None for i in range(65536)])
    assert np.array_equal(got, wanted)


def test_extremes_that_are_finite():
    for name, values in {
        "f32": [np.finfo(np.float32).max, np.finfo(np.float32).min, 1e-45],
        "f16": [65504, -65504, 6e-8],
    }.items():
        assert first_not_finite(np.array(values, FORMATS[name].storage), WORDS[name]) is None
    assert first_not_finite(np.array([0x7F7F, 0xFF7F, 0x0001], np.uint16), "BF16") is None
    assert first_not_finite(np.zeros((0, 3), np.float32), "F32") is None


def test_unaligned_memory():
    raw = np.zeros(4 * 9 + 1, np.uint8)
    data = np.frombuffer(raw.data, "<f4", 9, 1)
    assert first_not_finite(data, "F32") is None
    raw[1 + 4 * 7 : 1 + 4 * 8] = np.frombuffer(np.float32(np.nan).tobytes(), np.uint8)
    assert first_not_finite(data, "F32") == 7


def test_the_error_names_tensor_file_and_place():
    data = np.zeros((3, 4), np.float32)
    data[1, 2] = np.nan
    with pytest.raises(TensorError) as caught:
        check_finite("model.norm.weight", data, "F32", Path("some/model.safetensors"))
    message = str(caught.value)
    assert all(part in message for part in ("'model.norm.weight'", "model.safetensors", "[1, 2]"))
    check_finite("fine", np.zeros(3, np.float32), "F32", Path("x"))
