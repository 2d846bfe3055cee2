"""Choosing scales and codes: float matrices to packed ones.

The NumPy code here is the meaning; the native kernel (`native/kernels/quantise`) gives the same bytes and is used when
it is built. Every sum runs over the columns of a group in ascending order, so the bytes are the same on every machine.

The scale of a group is searched: a few steps around the one that the largest value asks for give codes, and least
squares gives the best scale for those codes; the one that explains most wins. With an importance for every column the
squares are weighted by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.weights.packing import GROUP, ROWS, Codes, Packing, blocks_of

try:
    from ouzel import _native
except ImportError:  # the package runs from its source folder
    _native = None  # type: ignore[assignment]

F32 = NDArray[np.float32]

# Codes that the largest value is tried at: for q4 it has the sign that reaches -8.
STEPS_Q4 = tuple(np.float32(c) for c in (-9.1, -8.8, -8.5, -8.2, -7.9, -7.6, -7.3, -7.0))
STEPS_Q8 = tuple(np.float32(c) for c in (123.0, 123.75, 124.5, 125.25, 126.0, 126.75, 127.0, 127.4))
STEPS_Q4M = tuple(np.float32(c) for c in (14.0, 14.4, 14.8, 15.1, 15.4, 15.7, 16.1, 16.5))

# The least share of the mean importance that a column counts with: no column is given up.
LEAST_IMPORTANCE = 1e-3


@dataclass(frozen=True)
class Fit:
    """Scales and minima (float32 that are float16 values) and codes of groups [groups, 32]."""

    scale: F32
    minimum: F32 | None
    codes: NDArray[np.uint8]


class NotStorable(ValueError):
    """A value is not finite or too large for a half-precision scale; `place` is its row and column."""

    def __init__(self, place: tuple[int, int]) -> None:
        super().__init__(f"value at {list(place)}")
        self.place = place


def normal_importance(importance: NDArray[Any] | None, columns: int) -> F32 | None:
    """Mean squares of a linear's inputs as weights of its columns: mean 1, nowhere below LEAST_IMPORTANCE."""
    if importance is None:
        return None
    wide = np.asarray(importance, np.float64).reshape(-1)
    if wide.shape != (columns,) or not np.isfinite(wide).all() or (wide < 0).any():
        raise ValueError(f"importance of {columns} columns, finite and not negative")
    mean = wide.mean() if columns else 0.0
    if mean <= 0:
        return None
    return np.ascontiguousarray(np.maximum(wide / mean, LEAST_IMPORTANCE).astype(np.float32))


def quantise_rows(
    data: NDArray[Any], dtype: str, packing: Packing, out: NDArray[np.uint8], importance: F32 | None = None, search: bool = True
) -> None:
    """Quantises rows [n, k] stored as `dtype` ("F32", "BF16", "F16") into `out`, packed [n up to blocks, groups, bytes].

    importance: float32 [k] from `normal_importance`. search: False takes the scale of the largest value alone.
    Raises NotStorable for NaN, infinity and values beyond half-precision scales.
    """
    if _native is not None and hasattr(_native, "quantise_rows"):
        bad = _native.quantise_rows(
            np.require(data, requirements=["C", "A"]), dtype, packing.bits, packing.minimum, importance, search, out
        )
        if bad >= 0:
            raise NotStorable(divmod(bad, data.shape[1]))
        return
    quantise_numpy(data, dtype, packing, out, importance, search)


def quantise_numpy(
    data: NDArray[Any], dtype: str, packing: Packing, out: NDArray[np.uint8], importance: F32 | None = None, search: bool = True
) -> None:
    """`quantise_rows` in NumPy."""
    values = _to_f32(data, dtype)
    groups = _grouped(values)
    weights = _grouped_weights(importance, values.shape[1])
    with np.errstate(all="ignore"):
        fit = (_fit_minimum if packing.minimum else _fit_symmetric)(groups, weights, packing, search)
    _check(groups, fit, values.shape[1])
    out[...] = packing.pack(_padded(fit, packing, values.shape))


def _to_f32(data: NDArray[Any], dtype: str) -> F32:
    if dtype == "BF16":
        return (data.astype(np.uint32) << np.uint32(16)).view(np.float32)
    with np.errstate(invalid="ignore"):
        return data.astype(np.float32)


def _grouped(values: F32) -> F32:
    """[rows, groups, 32]; columns past the last repeat their group's first, so that they change no extremes."""
    rows, columns = values.shape
    count = blocks_of(columns, GROUP)
    padded = np.empty((rows, count * GROUP), np.float32)
    padded[:, :columns] = values
    if count:
        padded[:, columns:] = values[:, (count - 1) * GROUP, None]
    return padded.reshape(rows, count, GROUP)


def _grouped_weights(importance: F32 | None, columns: int) -> F32:
    weights = np.zeros(blocks_of(columns, GROUP) * GROUP, np.float32)
    weights[:columns] = 1 if importance is None else importance
    return weights.reshape(-1, GROUP)


def _sum(values: F32) -> F32:
    """Over the last axis in ascending order, each sum rounded once."""
    total = np.zeros(values.shape[:-1], np.float32)
    for k in range(values.shape[-1]):
        total = total + values[..., k]
    return total


def _half(values: F32) -> F32:
    return values.astype(np.float16).astype(np.float32)


def _rounded(values: F32, low: float, high: float) -> F32:
    return np.rint(np.minimum(np.maximum(values, np.float32(low)), np.float32(high)))


def _largest(x: F32) -> F32:
    """The value of largest magnitude, the first of equals."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=-1)[..., None], axis=-1)[..., 0]


def _fit_symmetric(x: F32, w: F32, packing: Packing, search: bool) -> Fit:
    low, high = packing.lowest - packing.zero, packing.highest - packing.zero
    if packing.bits == 8:
        top, steps = np.abs(x).max(axis=-1), STEPS_Q8
        base = _half(top / np.float32(127))
    else:
        top, steps = _largest(x), STEPS_Q4
        # Adding zero makes one zero of two.
        base = _half(top / np.float32(-8)) + np.float32(0)
    scale = base
    if search:
        best, found = np.full(base.shape, -1, np.float32), base
        for step in steps:
            codes = _rounded(x * (step / top)[..., None], low, high)
            weighted = w * codes
            xl, ll = _sum(x * weighted), _sum(codes * weighted)
            gain = xl * xl / ll
            better = gain > best
            best, found = np.where(better, gain, best), np.where(better, xl / ll, found)
        found = _half(found)
        usable = (found != 0) & np.isfinite(found) & (base != 0)
        scale = np.where(usable, found, base)
    inverse = np.where(scale == 0, np.float32(0), np.float32(1) / scale)
    codes = _rounded(x * inverse[..., None], low, high)
    return Fit(scale, None, (codes + packing.zero).astype(np.uint8))


def _fit_minimum(x: F32, w: F32, packing: Packing, search: bool) -> Fit:
    low, high = x.min(axis=-1), x.max(axis=-1)
    spread = high - low
    scale, minimum = _half(spread / np.float32(15)), _half(low) + np.float32(0)
    if search:
        found_scale, found_minimum = _search_minimum(x, w, low, spread, scale, minimum)
        usable = (found_scale != 0) & np.isfinite(found_scale) & np.isfinite(found_minimum) & (scale != 0)
        scale = np.where(usable, found_scale, scale)
        minimum = np.where(usable, found_minimum, minimum)
    inverse = np.where(scale == 0, np.float32(0), np.float32(1) / scale)
    codes = _rounded((x - minimum[..., None]) * inverse[..., None], 0, 15)
    return Fit(scale, minimum, codes.astype(np.uint8))


def _search_minimum(x: F32, w: F32, low: F32, spread: F32, scale: F32, minimum: F32) -> tuple[F32, F32]:
    y = x - low[..., None]
    sw, sy = _sum(w), _sum(w * y)
    best = np.full(low.shape, -1, np.float32)
    for step in STEPS_Q4M:
        codes = _rounded(y * (step / spread)[..., None], 0, 15)
        weighted = w * codes
        sl, ll, yl = _sum(np.broadcast_to(weighted, y.shape)), _sum(codes * weighted), _sum(y * weighted)
        n, d = yl - sy * sl / sw, ll - sl * sl / sw
        gain = n * n / d
        better = gain > best
        s = n / d
        best, scale = np.where(better, gain, best), np.where(better, s, scale)
        minimum = np.where(better, (sy - s * sl) / sw + low, minimum)
    return _half(scale), _half(minimum) + np.float32(0)


def _check(groups: F32, fit: Fit, columns: int) -> None:
    bad = ~np.isfinite(fit.scale)
    if fit.minimum is not None:
        bad |= ~np.isfinite(fit.minimum)
    bad |= ~np.isfinite(groups).all(axis=-1)
    if not bad.any():
        return
    row, group = (int(i) for i in np.argwhere(bad)[0])
    values = groups[row, group, : columns - group * GROUP]
    odd = np.flatnonzero(~np.isfinite(values))
    at = int(odd[0]) if odd.size else int(np.abs(values).argmax())
    raise NotStorable((row, group * GROUP + at))


def _padded(fit: Fit, packing: Packing, shape: tuple[int, ...]) -> Codes:
    rows, columns = shape
    count, groups = blocks_of(rows, ROWS) * ROWS, blocks_of(columns, GROUP)
    codes = np.full((count, groups * GROUP), packing.zero, np.uint8)
    codes[:rows, :columns] = fit.codes.reshape(rows, -1)[:, :columns]
    heads = []
    for values in (fit.scale, fit.minimum):
        head = np.zeros((count, groups), np.float16)
        if values is not None:
            head[:rows] = values.astype(np.float16)
        heads.append(head)
    return Codes(codes, heads[0], heads[1] if fit.minimum is not None else None)
