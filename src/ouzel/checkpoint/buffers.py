"""Arrays whose first byte lies on a wanted boundary."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import DTypeLike, NDArray


def alignment(array: NDArray[np.generic]) -> int:
    """The largest power of two (at most 4096) that divides the array's address."""
    address = array.__array_interface__["data"][0]
    return min(address & -address, 4096) if address else 4096


def aligned_empty(shape: tuple[int, ...], dtype: DTypeLike, boundary: int = 64) -> NDArray[np.generic]:
    """A C-contiguous array with undefined content whose address is a multiple of `boundary` (a power of two)."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    raw = np.empty(size + boundary, dtype=np.uint8)
    start = -raw.__array_interface__["data"][0] % boundary
    return raw[start : start + size].view(kind).reshape(shape)


def aligned_copy(array: NDArray[np.generic], boundary: int = 64) -> NDArray[np.generic]:
    """A copy of `array` on a multiple of `boundary`."""
    copy = aligned_empty(array.shape, array.dtype, boundary)
    copy[...] = array
    return copy
