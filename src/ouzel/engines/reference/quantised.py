"""Packed matrices in the reference engine: the integer meaning of `linear`, bit for bit what the native kernels compute.

Activations become signed codes of eight bits for every row and group of 32 columns. A group's dot product is an exact
integer; it is scaled and added in float32 by fused multiply-add, groups ascending.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.weights.packing import GROUP, Packing

F32 = NDArray[np.float32]


class PackedMatrix:
    """A packed weight taken apart for NumPy: whole numbers as float32, which BLAS multiplies exactly (sums < 2^24).

    codes: [groups, 32, rows], less the packing's zero. scales, minima: float32 [groups, rows]. shape: of the matrix.
    """

    def __init__(self, stored: NDArray[Any], packing: Packing, shape: tuple[int, ...]) -> None:
        self.shape = shape
        rows = shape[0]
        parts = packing.unpack(stored)
        groups = parts.scales.shape[1]
        codes = parts.codes[:rows].reshape(rows, groups, GROUP).transpose(1, 2, 0).astype(np.float32)
        self.codes: F32 = np.ascontiguousarray(codes - np.float32(packing.zero))
        self.scales: F32 = np.ascontiguousarray(parts.scales[:rows].T.astype(np.float32))
        self.minima: F32 | None = None
        if parts.minima is not None:
            self.minima = np.ascontiguousarray(parts.minima[:rows].T.astype(np.float32))

    def rows(self, index: NDArray[np.int32]) -> F32:
        """Rows of the matrix in float32, each value exact: code * scale (+ minimum)."""
        values = self.codes[:, :, index] * self.scales[:, None, index]
        if self.minima is not None:
            values = values + self.minima[:, None, index]
        return np.ascontiguousarray(values.reshape(len(values) * GROUP, len(index)).T[:, : self.shape[1]])


def linear(x: NDArray[Any], weight: PackedMatrix) -> NDArray[Any]:
    """x @ weight.T as the packed formats mean it. In float64 only the sums over groups are wider."""
    dtype = x.dtype
    codes, scales = quantise_rows(x.astype(np.float32, copy=False))
    acc = np.zeros((len(x), weight.shape[0]), dtype)
    for g in range(codes.shape[1]):
        dot = codes[:, g] @ weight.codes[g]
        acc = _add(acc, dot, scales[:, g, None] * weight.scales[g])
        if weight.minima is not None:
            total = codes[:, g].sum(axis=1, keepdims=True)
            acc = _add(acc, total, scales[:, g, None] * weight.minima[g])
    return acc


def quantise_rows(x: F32) -> tuple[F32, F32]:
    """Codes (whole numbers -127..127 in float32) [rows, groups, 32] and scales [rows, groups] of float32 rows.

    a = max |x|, scale = a / 127, code = x * (127 / a) to the nearest, ties to even. A group whose a is so small that
    127 / a is infinite counts as zero; one with a number that is not finite has zeros and the scale NaN.
    """
    rows, columns = x.shape
    groups = -(-columns // GROUP)
    padded = np.zeros((rows, groups * GROUP), np.float32)
    padded[:, :columns] = x
    parts = padded.reshape(rows, groups, GROUP)
    with np.errstate(all="ignore"):
        largest = np.abs(parts).max(axis=-1, initial=0)
        inverse = np.float32(127) / largest
        finite = np.isfinite(parts).all(axis=-1)
        usable = finite & np.isfinite(inverse)
        codes = np.where(usable[..., None], np.rint(parts * inverse[..., None]), np.float32(0))
        scales = np.where(usable, largest / np.float32(127), np.float32(0))
    return codes, np.where(finite, scales, np.float32(np.nan))


def _add(acc: NDArray[Any], number: F32, scale: F32) -> NDArray[Any]:
    if acc.dtype != np.float32:
        return acc + number.astype(acc.dtype) * scale
    return fma_whole(number, scale, acc)


def fma_whole(number: F32, scale: F32, acc: F32) -> F32:
    """number * scale + acc in float32 with one rounding, for whole numbers below 2^24.

    The product of 24 and 24 bits is exact in float64. The sum there may be rounded, and rounding it again to float32
    could go wrong at a tie; so the float64 sum is rounded to odd first (its last bit set when anything was lost), after
    which the second rounding gives what a single one would: float64 has more than two bits beyond float32.
    """
    with np.errstate(all="ignore"):
        product = number.astype(np.float64) * scale.astype(np.float64)
        other = acc.astype(np.float64)
        total = product + other
        back = total - product
        lost = (product - (total - back)) + (other - back)
        bits = total.view(np.int64)
        even = (bits & 1) == 0
        away = (lost > 0) == (total > 0)
        odd = np.where(even & (lost != 0) & np.isfinite(total), np.where(away, bits + 1, bits - 1), bits)
        return odd.view(np.float64).astype(np.float32)
