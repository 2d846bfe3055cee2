"""How quantised matrices lie in memory: blocks of sixteen rows by one group of 32 columns.

A block is one stretch of bytes: sixteen float16 scales, for "q4m" sixteen float16 minima, then the codes as vectors of 64
bytes. The whole matrix is uint8 [row blocks, groups, bytes of a block], read once from the first byte to the last. The
native kernels (`native/kernels/qlinear`) read this form; docs/formats.md states it for readers of files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

GROUP = 32
"""Columns that share a scale."""

ROWS = 16
"""Rows interleaved in one block."""

U8 = NDArray[np.uint8]
F16 = NDArray[np.float16]


def blocks_of(size: int, block: int) -> int:
    """Blocks that hold `size` things."""
    return -(-size // block)


@dataclass(frozen=True)
class Codes:
    """A quantised matrix taken apart, padded to whole blocks.

    codes: uint8 [rows, columns]. scales, minima: float16 [rows, groups]; `minima` is None without a minimum.
    """

    codes: U8
    scales: F16
    minima: F16 | None


@dataclass(frozen=True)
class Packing:
    """One packed form. A value is `(code - zero) * scale`, or `code * scale + minimum` when `minimum`.

    `bits` of a code are 8 (codes 1..255) or 4 (codes 0..15). Padded columns have the code `zero`, padded rows the scale 0.
    """

    bits: int
    zero: int
    minimum: bool

    @property
    def lowest(self) -> int:
        """The smallest code that is used."""
        return 1 if self.bits == 8 else 0

    @property
    def highest(self) -> int:
        """The largest code."""
        return 255 if self.bits == 8 else 15

    @property
    def head_bytes(self) -> int:
        """Bytes of scales and minima in a block."""
        return 2 * ROWS * (2 if self.minimum else 1)

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return self.head_bytes + ROWS * GROUP * self.bits // 8

    @property
    def bits_per_weight(self) -> float:
        """Bits that a value takes, its share of scales included."""
        return self.block_bytes * 8 / (ROWS * GROUP)

    def shape(self, rows: int, columns: int) -> tuple[int, int, int]:
        """The packed shape of a matrix [rows, columns]."""
        return blocks_of(rows, ROWS), blocks_of(columns, GROUP), self.block_bytes

    def pack(self, parts: Codes) -> U8:
        """`parts` (padded to whole blocks) as packed bytes."""
        rows, columns = parts.codes.shape
        count, groups, size = self.shape(rows, columns)
        out = np.empty((count, groups, size), np.uint8)
        heads = [parts.scales] if parts.minima is None else [parts.scales, parts.minima]
        for i, head in enumerate(heads):
            by_block = np.ascontiguousarray(head.reshape(count, ROWS, groups).transpose(0, 2, 1), dtype="<f2")
            out[:, :, 32 * i : 32 * (i + 1)] = by_block.view(np.uint8)
        codes = parts.codes.reshape(count, ROWS, groups, GROUP)
        if self.bits == 4:
            codes = codes[..., : GROUP // 2] | (codes[..., GROUP // 2 :] << np.uint8(4))
        vectors = codes.reshape(count, ROWS, groups, -1, 4).transpose(0, 2, 3, 1, 4)
        out[:, :, self.head_bytes :] = vectors.reshape(count, groups, -1)
        return out

    def unpack(self, stored: NDArray[Any]) -> Codes:
        """What `pack` put together."""
        count, groups, _ = stored.shape
        heads = [self._head(stored, i) for i in range(2 if self.minimum else 1)]
        vectors = stored[:, :, self.head_bytes :].reshape(count, groups, -1, ROWS, 4)
        codes = vectors.transpose(0, 3, 1, 2, 4).reshape(count, ROWS, groups, -1)
        if self.bits == 4:
            codes = np.concatenate([codes & np.uint8(15), codes >> np.uint8(4)], axis=-1)
        whole = np.ascontiguousarray(codes.reshape(count * ROWS, groups * GROUP))
        return Codes(whole, heads[0], heads[1] if self.minimum else None)

    def decode(self, stored: NDArray[Any]) -> NDArray[np.float32]:
        """The values in float32 with the padding, [rows up to whole blocks, columns up to whole groups]; exact."""
        parts = self.unpack(stored)
        rows, groups = parts.scales.shape
        values = parts.codes.reshape(rows, groups, GROUP).astype(np.float32)
        values -= np.float32(self.zero)
        values *= parts.scales.astype(np.float32)[:, :, None]
        if parts.minima is not None:
            values += parts.minima.astype(np.float32)[:, :, None]
        return values.reshape(rows, groups * GROUP)

    def _head(self, stored: NDArray[Any], number: int) -> F16:
        count, groups, _ = stored.shape
        raw = np.ascontiguousarray(stored[:, :, 32 * number : 32 * (number + 1)]).view("<f2")
        return np.ascontiguousarray(raw.transpose(0, 2, 1)).reshape(count * ROWS, groups).astype(np.float16, copy=False)


Q8 = Packing(bits=8, zero=128, minimum=False)
Q4 = Packing(bits=4, zero=8, minimum=False)
Q4M = Packing(bits=4, zero=0, minimum=True)
