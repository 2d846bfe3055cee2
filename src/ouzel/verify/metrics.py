"""How far an array is from the reference's: the numbers of one stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

OUTLIER_RATIO = 6.0
"""A channel is an outlier when its root mean square is this many times the median channel's (LLM.int8's threshold)."""

ROW_FLOOR = 0.1
"""Rows that are shorter than this share of the median row are measured against that: cancellation is not an error."""

WORST = 5


@dataclass(frozen=True)
class Element:
    """One of the worst elements: its row and channel, both values, and whether the channel is an outlier."""

    row: int
    channel: int
    found: float
    wanted: float
    outlier: bool


@dataclass(frozen=True)
class Difference:
    """The difference of two arrays [rows, width].

    relative: norm of the difference over norm of the reference. row: the largest over rows of the same, with short rows
    measured against a tenth of the median; row_inside: with the reference's outlier channels left out. p99, p999, p9999:
    quantiles of the absolute error. outlier_channels: of the reference. finite: whether everything found is.
    """

    max_abs: float
    mean_abs: float
    p99: float
    p999: float
    p9999: float
    cosine: float
    relative: float
    row: float
    row_inside: float
    worst_row: int
    worst: tuple[Element, ...]
    outlier_channels: tuple[int, ...]
    finite: bool


def compare(found: F32, wanted: F32) -> Difference:
    """The numbers of one stage; arrays of the same shape. Not finite differences count as infinite."""
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    finite = bool(np.isfinite(a).all())
    with np.errstate(all="ignore"):
        error = np.abs(a - b)
        error[~np.isfinite(error)] = np.inf
    if error.size == 0:
        return Difference(0, 0, 0, 0, 0, 1, 0, 0, 0, 0, (), (), True)
    rows = row_errors(error, b)
    worst_row = int(rows.argmax())
    outliers = outlier_channels(b)
    p99, p999, p9999 = _quantiles(error)
    return Difference(
        float(error.max()), float(error.mean()), p99, p999, p9999, _cosine(a, b), _relative(error, b), float(rows.max()),
        _inside(error, b, outliers), worst_row, _worst(error, a, b, set(outliers)), outliers, finite,
    )  # fmt: skip


def row_errors(error: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Relative error of every row."""
    lengths = np.linalg.norm(wanted, axis=1)
    # A norm over zeros only (padded pictures) has no relative error; the whole array's scale stands in.
    floor = max(ROW_FLOOR * float(np.median(lengths)), 1e-30)
    with np.errstate(all="ignore"):
        found = np.linalg.norm(error, axis=1) / np.maximum(lengths, floor)
    found[~np.isfinite(found)] = np.inf
    return found


def outlier_channels(wanted: NDArray[np.float64]) -> tuple[int, ...]:
    """Channels whose root mean square is far above the median channel's, largest first."""
    size = np.sqrt(np.mean(wanted * wanted, axis=0))
    found = np.flatnonzero(size > OUTLIER_RATIO * max(float(np.median(size)), 1e-30))
    return tuple(int(i) for i in found[np.argsort(-size[found])])[:32]


def _inside(error: NDArray[np.float64], wanted: NDArray[np.float64], outliers: tuple[int, ...]) -> float:
    if not outliers:
        return float(row_errors(error, wanted).max())
    kept = np.delete(np.arange(wanted.shape[1]), outliers)
    return float(row_errors(error[:, kept], wanted[:, kept]).max())


def heat(found: F32, wanted: F32, cells: tuple[int, int] = (40, 72)) -> list[list[float]]:
    """Largest absolute error in cells of rows and channels, at most `cells` of them, for a picture."""
    with np.errstate(all="ignore"):
        error = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
    error[~np.isfinite(error)] = np.inf
    starts = [_starts(length, count) for length, count in zip(error.shape, cells)]
    pooled = np.maximum.reduceat(np.maximum.reduceat(error, starts[0], axis=0), starts[1], axis=1)
    return [[float(v) for v in row] for row in pooled]


def _starts(length: int, count: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, length, min(length, count), endpoint=False).astype(np.int64))


def _quantiles(error: NDArray[np.float64]) -> tuple[float, float, float]:
    # "higher" never invents a value between a finite error and an infinite one.
    found = np.quantile(error, [0.99, 0.999, 0.9999], method="higher")
    return float(found[0]), float(found[1]), float(found[2])


def _cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    with np.errstate(all="ignore"):
        value = float((a * b).sum() / (np.linalg.norm(a) * np.linalg.norm(b)))
    if np.isfinite(value):
        return value
    return 1.0 if np.array_equal(a, b) else 0.0


def _relative(error: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
    top, bottom = float(np.linalg.norm(error)), float(np.linalg.norm(wanted))
    if top == 0:
        return 0.0
    return top / bottom if bottom else float("inf")


def _worst(error: NDArray[np.float64], a: NDArray[np.float64], b: NDArray[np.float64], outliers: set[int]) -> tuple[Element, ...]:
    if not error.any():
        return ()
    places = np.argsort(-error, axis=None, kind="stable")[:WORST]
    rows, channels = np.unravel_index(places, error.shape)
    return tuple(
        Element(int(r), int(c), float(a[r, c]), float(b[r, c]), int(c) in outliers)
        for r, c in zip(rows, channels)
        if error[r, c] > 0
    )
