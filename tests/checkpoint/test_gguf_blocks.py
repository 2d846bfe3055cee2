"""Values and codes of GGUF blocks, against the gguf package and the packed formats."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from ouzel.checkpoint.gguf_blocks import BLOCK_TYPES, BlockType
from ouzel.weights.packing import Q4, Q4M, Q8, Codes

# Where half-precision numbers stand in a block: random bytes there must not be NaN.
HALVES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
PACKINGS = {"q8": Q8, "q4": Q4, "q4m": Q4M}

each_block_type = pytest.mark.parametrize("kind", [t for t in BLOCK_TYPES.values() if t.decode], ids=lambda t: t.name)


def random_blocks(kind: BlockType, count: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (count, kind.size), np.uint8)
    for at in HALVES[kind.name]:
        halves = random.normal(0, 0.05, (count, 1)).astype("<f2")
        blocks[:, at : at + 2] = halves.view(np.uint8)
    return blocks


@each_block_type
def test_sizes(kind: BlockType) -> None:
    number = gguf.GGMLQuantizationType[kind.name]
    assert BLOCK_TYPES[int(number)] is kind
    assert gguf.GGML_QUANT_SIZES[number] == (kind.values, kind.size)


@each_block_type
@pytest.mark.parametrize("count", [1, 7, 300])
def test_values_are_those_of_the_gguf_package(kind: BlockType, count: int) -> None:
    blocks = random_blocks(kind, count, seed=count)
    found = kind.decode(blocks)
    wanted = gguf.quants.dequantize(blocks.reshape(-1), gguf.GGMLQuantizationType[kind.name])
    # Both multiply and add in float32; the order of two products may differ, so a rounding or two of the largest part.
    bound = 4 * np.finfo(np.float32).eps * np.abs(wanted).max()
    assert found.dtype == np.float32
    assert np.abs(found.reshape(-1) - wanted.reshape(-1)).max() <= bound


@pytest.mark.parametrize("kind", [t for t in BLOCK_TYPES.values() if t.values == 256], ids=lambda t: t.name)
def test_nothing_passes_through_half_precision(kind: BlockType) -> None:
    found = kind.decode(random_blocks(kind, 64, seed=5))
    assert np.mean(found == found.astype(np.float16).astype(np.float32)) < 0.9


@pytest.mark.parametrize("kind", [t for t in BLOCK_TYPES.values() if t.form], ids=lambda t: t.name)
def test_codes_mean_the_values(kind: BlockType) -> None:
    """Bit for bit: the packed format holds the blocks exactly, every code included."""
    blocks = random_blocks(kind, 16 * 3, seed=9)
    parts, packing = kind.codes(blocks), PACKINGS[kind.form]
    assert parts.form == kind.form
    minima = None if parts.minima is None else parts.minima.reshape(16, 3)
    stored = packing.pack(Codes(parts.codes.reshape(16, 96), parts.scales.reshape(16, 3), minima))
    assert np.array_equal(packing.decode(stored), kind.decode(blocks).reshape(16, 96))
