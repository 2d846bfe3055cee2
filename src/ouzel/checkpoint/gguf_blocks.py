"""The block types of GGUF tensors: their sizes, and their values in float32.

Names and layouts are ggml's. A block is a run of values along a row with its scales. Values follow ggml's own order of
float32 operations, so that they are the numbers that llama.cpp's plain code has. Nothing is rounded to a smaller type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]
F16 = NDArray[np.float16]


@dataclass(frozen=True)
class BlockCodes:
    """Blocks of 32 taken apart as Ouzel's packed formats mean them.

    codes: uint8 [blocks, 32]; a value is `(code - zero) * scale`, or `code * scale + minimum`. scales, minima: float16
    [blocks]. `form` is the packed format with that meaning: "q8", "q4" or "q4m".
    """

    form: str
    codes: U8
    scales: F16
    minima: F16 | None = None


@dataclass(frozen=True)
class BlockType:
    """One type: `values` in a block of `size` bytes.

    decode: blocks uint8 [n, size] to float32 [n, values]; None for types that are plain numbers. form: the packed format
    that holds the blocks exactly, for which `codes` takes them apart.
    """

    name: str
    values: int
    size: int
    decode: Callable[[U8], F32] | None = None
    form: str | None = None
    codes: Callable[[U8], BlockCodes] | None = None

    def bytes_of(self, values: int) -> int:
        """Bytes of so many values (a multiple of the block's)."""
        return values // self.values * self.size


def _half(blocks: U8, at: int) -> F32:
    """The half-precision number at byte `at` of every block, [n, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _half_bits(blocks: U8, at: int) -> F16:
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2")[:, 0].astype(np.float16, copy=False)


def _nibbles(raw: U8) -> U8:
    """Low four bits of every byte, then the high ones: [..., 2 * bytes]."""
    return np.concatenate([raw & np.uint8(15), raw >> np.uint8(4)], axis=-1)


def _q8_0(blocks: U8) -> F32:
    return np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32) * _half(blocks, 0)


def _q8_0_codes(blocks: U8) -> BlockCodes:
    return BlockCodes("q8", blocks[:, 2:] ^ np.uint8(128), _half_bits(blocks, 0))


def _q4_0(blocks: U8) -> F32:
    return (_nibbles(blocks[:, 2:]).astype(np.float32) - np.float32(8)) * _half(blocks, 0)


def _q4_0_codes(blocks: U8) -> BlockCodes:
    return BlockCodes("q4", _nibbles(blocks[:, 2:]), _half_bits(blocks, 0))


def _q4_1(blocks: U8) -> F32:
    return _nibbles(blocks[:, 4:]).astype(np.float32) * _half(blocks, 0) + _half(blocks, 2)


def _q4_1_codes(blocks: U8) -> BlockCodes:
    return BlockCodes("q4m", _nibbles(blocks[:, 4:]), _half_bits(blocks, 0), _half_bits(blocks, 2))


def _fifth_bits(raw: U8) -> U8:
    """Bit j of a little-endian 32-bit word as 16 in place j: [n, 4] to [n, 32]."""
    return np.unpackbits(raw, axis=1, bitorder="little") << np.uint8(4)


def _q5_0(blocks: U8) -> F32:
    codes = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])
    return (codes.astype(np.float32) - np.float32(16)) * _half(blocks, 0)


def _q5_1(blocks: U8) -> F32:
    codes = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return codes.astype(np.float32) * _half(blocks, 0) + _half(blocks, 2)


def _scales_and_minima(raw: U8) -> tuple[F32, F32]:
    """The eight 6-bit scales and minima in the twelve bytes of a Q4_K or Q5_K block, each [n, 8]."""
    low, mid, high = raw[:, :4], raw[:, 4:8], raw[:, 8:]
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 6) << 4)], axis=1)
    minima = np.concatenate([mid & 63, (high >> 4) | ((mid >> 6) << 4)], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _k_values(blocks: U8, codes: U8) -> F32:
    """Eight groups of 32 codes [n, 8, 32] with the head of a Q4_K or Q5_K block."""
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    scales *= _half(blocks, 0)
    minima *= _half(blocks, 2)
    values = codes.astype(np.float32) * scales[:, :, None] - minima[:, :, None]
    return values.reshape(len(blocks), 256)


def _k_nibbles(raw: U8) -> U8:
    """128 bytes as eight groups: each run of 32 bytes holds one group in its low bits and the next in its high ones."""
    return _nibbles(raw.reshape(-1, 4, 32)).reshape(-1, 8, 32)


def _q4_k(blocks: U8) -> F32:
    return _k_values(blocks, _k_nibbles(blocks[:, 16:]))


def _q5_k(blocks: U8) -> F32:
    # Bit g of byte l is the fifth bit of value l of group g.
    fifth = (blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None]) & np.uint8(1)
    return _k_values(blocks, _k_nibbles(blocks[:, 48:]) | (fifth << np.uint8(4)))


def _q6_k(blocks: U8) -> F32:
    low = blocks[:, :128].reshape(-1, 2, 2, 32)
    low = np.concatenate([low & np.uint8(15), low >> np.uint8(4)], axis=2)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[None, None, :, None]
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & np.uint8(3)
    codes = (low | (high << np.uint8(4))).astype(np.float32) - np.float32(32)
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32) * _half(blocks, 208)
    return (codes.reshape(-1, 16, 16) * scales[:, :, None]).reshape(-1, 256)


BLOCK_TYPES: dict[int, BlockType] = {
    0: BlockType("F32", 1, 4),
    1: BlockType("F16", 1, 2),
    2: BlockType("Q4_0", 32, 18, _q4_0, "q4", _q4_0_codes),
    3: BlockType("Q4_1", 32, 20, _q4_1, "q4m", _q4_1_codes),
    6: BlockType("Q5_0", 32, 22, _q5_0),
    7: BlockType("Q5_1", 32, 24, _q5_1),
    8: BlockType("Q8_0", 32, 34, _q8_0, "q8", _q8_0_codes),
    12: BlockType("Q4_K", 256, 144, _q4_k),
    13: BlockType("Q5_K", 256, 176, _q5_k),
    14: BlockType("Q6_K", 256, 210, _q6_k),
    30: BlockType("BF16", 1, 2),
}
"""The implemented types by ggml's numbers."""

TYPE_NAMES = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL",
    21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M",
    34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
"""Other types, for messages."""
