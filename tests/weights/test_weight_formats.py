"""Number formats: round to nearest even, exact decoding, and plans for the parts of a model."""

from __future__ import annotations

import numpy as np
import pytest

from ouzel.errors import RequestError
from ouzel.weights import AUTO, FLOATS, FORMATS, PARTS, FormatPlan, format_of
from ouzel.weights.formats import bf16_to_f32, f32_to_bf16, format_of_dtype


def f32(bits) -> np.ndarray:
    return np.array(bits, dtype=np.uint32).view(np.float32)


@pytest.mark.parametrize(
    ("bits", "wanted"),
    [
        (0x3F800000, 0x3F80),  # 1
        (0x3F808000, 0x3F80),  # half way, kept part even: down
        (0x3F818000, 0x3F82),  # half way, kept part odd: up
        (0x3F808001, 0x3F81),  # just above half: up
        (0x3F807FFF, 0x3F80),  # just below half: down
        (0xBF818000, 0xBF82),  # the same with a sign
        (0x3FFFFFFF, 0x4000),  # the carry goes into the exponent
        (0x00000000, 0x0000),
        (0x80000000, 0x8000),
        (0x00000001, 0x0000),  # the smallest denormal
        (0x00008000, 0x0000),
        (0x00018000, 0x0002),
        (0x7F7F0000, 0x7F7F),  # the largest bfloat16
        (0x7F7F7FFF, 0x7F7F),
        (0x7F7F8000, 0x7F80),  # above it: infinity
        (0x7F800000, 0x7F80),
        (0xFF800000, 0xFF80),
    ],
)
def test_bfloat16_rounds_to_nearest_even(bits, wanted):
    assert int(f32_to_bf16(f32([bits]))[0]) == wanted


@pytest.mark.parametrize("bits", [0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001, 0x7FC00000, 0x7F80FFFF])
def test_nan_stays_nan_with_its_sign(bits):
    got = int(f32_to_bf16(f32([bits]))[0])
    assert got & 0x7FFF > 0x7F80 and got >> 15 == bits >> 31


def test_bfloat16_decoding_is_exact_and_encoding_its_inverse():
    every = np.arange(65536, dtype=np.uint16)
    values = bf16_to_f32(every)
    assert np.array_equal(values.view(np.uint32), every.astype(np.uint32) << 16)
    finite = np.isfinite(values)
    assert np.array_equal(f32_to_bf16(values)[finite], every[finite])


def test_against_torch():
    import torch

    rng = np.random.default_rng(3)
    values = rng.integers(0, 2**32, size=200_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    values = values[np.isfinite(values)]
    for name, kind in (("bf16", torch.bfloat16), ("f16", torch.float16)):
        wanted = torch.from_numpy(values.copy()).to(kind)
        got = FORMATS[name].encode(values)
        assert np.array_equal(got.view(np.int16), wanted.view(torch.int16).numpy())
        assert np.array_equal(FORMATS[name].decode(got), wanted.to(torch.float32).numpy())


@pytest.mark.parametrize("name", sorted(FLOATS))
@pytest.mark.parametrize("shape", [(), (1,), (0, 4), (3, 5), (2, 3, 4)])
def test_shapes_and_types(name, shape):
    row = FORMATS[name]
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    array = row.encode(values)
    assert array.shape == shape and array.dtype == row.storage and array.itemsize == row.itemsize
    back = row.decode(array)
    assert back.shape == shape and back.dtype == np.float32
    # Half a unit in the last place of 24, 8 or 11 significant bits.
    limit = {"f32": 0.0, "bf16": 2.0**-8, "f16": 2.0**-11}[name]
    assert np.all(np.abs(back - values) <= limit * np.abs(values))


def test_strided_values_are_encoded_in_their_order():
    values = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::3]
    for name in FLOATS:
        row = FORMATS[name]
        assert np.array_equal(row.decode(row.encode(values)), values)


def test_lookups():
    assert format_of("bf16") is FORMATS["bf16"] and format_of_dtype("BF16") is FORMATS["bf16"]
    assert format_of_dtype("F64") is None
    with pytest.raises(RequestError, match="one of f32, bf16, f16, q8, q4, q4m, got 'q3'"):
        format_of("q3")


def test_plans():
    assert all(FormatPlan().of(part) == AUTO for part in PARTS)
    assert all(FormatPlan.uniform("f16").of(part) == "f16" for part in PARTS)
    plan = FormatPlan(vision="f32", head="bf16")
    assert [plan.of(part) for part in PARTS] == ["f32", AUTO, AUTO, "bf16", AUTO]
    with pytest.raises(RequestError, match=r"part 'head'.*one of auto, f32"):
        FormatPlan(head="int3")


def test_presets():
    for name in ("q4", "q4m"):
        assert [FormatPlan.preset(name).of(part) for part in PARTS] == ["q8", "q8", name, "q8", "q8"]
    for name in ("q8", "bf16", "auto"):
        assert FormatPlan.preset(name) == FormatPlan.uniform(name)
    plan = FormatPlan.preset("q4", head="q4", vision=None, embedding="f16")
    assert [plan.of(part) for part in PARTS] == ["q8", "q8", "q4", "q4", "f16"]
    assert plan.packs and FormatPlan(head="q8").packs and not FormatPlan.uniform("f16").packs
    with pytest.raises(RequestError, match="part 'text'.*got 'q5'"):
        FormatPlan.preset("q4", text="q5")
