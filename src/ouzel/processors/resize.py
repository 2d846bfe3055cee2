"""Resizing of 8-bit pictures: one kernel with one result on every machine.

The method is the references': separable, the horizontal pass first, the filter widened when shrinking, weights rounded
to 22-bit fixed point, each pass rounded and cut to 8 bits. The NumPy code here is the meaning; the native kernel
(`native/kernels/resize`) gives the same bytes and is used when it is built. Pillow up to 12.3 computes the same; later
versions swap the passes for some sizes, which is why no library is called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ouzel.errors import ImageError, UnsupportedError

#: Bits after the point in a weight: 8 bits of pixel, 2 bits of head room for overshoot, the rest for the weight.
PRECISION_BITS = 32 - 8 - 2

# Rows of the result computed at a time by the NumPy fallback; keeps its int32 sums within a few megabytes.
_ROWS_AT_A_TIME = 64


@dataclass(frozen=True)
class Taps:
    """One axis of a resize: result `i` is the sum over `t` of `weights[i, t] * source[first[i] + t]`.

    `first` is int64 [out]; `weights` is int32 [out, taps] with `PRECISION_BITS` bits after the point. Weights past a
    row's own taps are 0, and their source index may lie past the end.
    """

    first: np.ndarray
    weights: np.ndarray


def _box(x: np.ndarray) -> np.ndarray:
    return np.where((x > -0.5) & (x <= 0.5), 1.0, 0.0)


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1.0 - np.abs(x), 0.0)


def _cubic(x: np.ndarray) -> np.ndarray:
    """Keys' cubic with a = -0.5, written with products only, so that every machine rounds alike."""
    a = -0.5
    x = np.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


# Taylor coefficients of sin(y)/y in y*y, up to y**22: exact to a double's last bit for |y| <= pi/2. The C library's sin
# may differ between systems, a fixed polynomial does not.
_SINE = tuple(
    sign / factorial
    for sign, factorial in (
        (1.0, 1.0),
        (-1.0, 6.0),
        (1.0, 120.0),
        (-1.0, 5040.0),
        (1.0, 362880.0),
        (-1.0, 39916800.0),
        (1.0, 6227020800.0),
        (-1.0, 1307674368000.0),
        (1.0, 355687428096000.0),
        (-1.0, 121645100408832000.0),
        (1.0, 51090942171709440000.0),
        (-1.0, 25852016738884976640000.0),
    )
)
_PI = 3.141592653589793


def _sinc(x: np.ndarray) -> np.ndarray:
    """sin(pi x) / (pi x) for x >= 0, by range reduction to half a turn and a fixed polynomial."""
    turns = np.floor(x + 0.5)
    y = (x - turns) * _PI
    square = y * y
    series = np.full_like(y, _SINE[-1])
    for coefficient in reversed(_SINE[:-1]):
        series = series * square + coefficient
    sine = y * series * np.where(np.mod(turns, 2.0) == 0.0, 1.0, -1.0)
    return np.where(x == 0.0, 1.0, sine / np.where(x == 0.0, 1.0, x * _PI))


def _lanczos3(x: np.ndarray) -> np.ndarray:
    x = np.abs(x)
    return np.where(x < 3.0, _sinc(x) * _sinc(x / 3.0), 0.0)


#: Filter name -> (function, half width in source pixels at scale 1). "nearest" takes one pixel and is handled apart.
FILTERS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "box": (_box, 0.5),
    "bilinear": (_triangle, 1.0),
    "bicubic": (_cubic, 2.0),
    "lanczos": (_lanczos3, 3.0),
}


def axis_taps(source: int, out: int, filter_name: str) -> Taps:
    """The taps that bring `source` pixels to `out` pixels with a filter; all arithmetic in double precision.

    Raises UnsupportedError when the filter is not one of `FILTERS` or "nearest".
    """
    scale = source / out
    if filter_name == "nearest":
        # Added up, as the reference does: its rounding decides at exact borders.
        places = np.add.accumulate(np.concatenate([[0.5 * scale], np.full(out - 1, scale)]))
        first = np.minimum(places.astype(np.int64), source - 1)
        return Taps(first, np.full((out, 1), 1 << PRECISION_BITS, np.int32))
    if filter_name not in FILTERS:
        raise UnsupportedError(
            "resize", expected=f"a filter out of {', '.join([*FILTERS, 'nearest'])}", got=repr(filter_name)
        )
    function, half_width = FILTERS[filter_name]
    widened = max(scale, 1.0)
    support = half_width * widened
    centre = (np.arange(out) + 0.5) * scale
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    end = np.minimum((centre + support + 0.5).astype(np.int64), source)
    return Taps(first, _fixed_weights(function, first, end, centre, 1.0 / widened))


def _fixed_weights(
    function: Callable[[np.ndarray], np.ndarray],
    first: np.ndarray,
    end: np.ndarray,
    centre: np.ndarray,
    inverse: float,
) -> np.ndarray:
    """Filter values at every tap, divided by their sum and rounded half away from zero to fixed point."""
    count = int((end - first).max())
    taps = np.arange(count)
    inside = taps[None, :] < (end - first)[:, None]
    distance = ((taps[None, :] + first[:, None]) - centre[:, None] + 0.5) * inverse
    weights = np.where(inside, function(distance), 0.0)
    # Ascending order, one tap after the other: np.sum would add pairwise, and the native kernel does not.
    total = np.zeros(len(first))
    for tap in range(count):
        total += weights[:, tap]
    weights /= np.where(total == 0.0, 1.0, total)[:, None]
    scaled = weights * float(1 << PRECISION_BITS)
    return np.trunc(np.where(scaled < 0.0, scaled - 0.5, scaled + 0.5)).astype(np.int32)


def _pass(source: np.ndarray, taps: Taps, axis: int) -> np.ndarray:
    """One pass along `axis` (0 rows, 1 columns) of a uint8 [H, W, C] array."""
    last = source.shape[axis] - 1
    shape = list(source.shape)
    shape[axis] = len(taps.first)
    total = np.full(shape, 1 << (PRECISION_BITS - 1), np.int32)
    weight_shape = [1, 1, 1]
    weight_shape[axis] = len(taps.first)
    for tap in range(taps.weights.shape[1]):
        picked = np.take(source, np.minimum(taps.first + tap, last), axis=axis)
        total += picked * taps.weights[:, tap].reshape(weight_shape)
    return np.clip(total >> PRECISION_BITS, 0, 255).astype(np.uint8)


def resize_numpy(image: np.ndarray, height: int, width: int, filter_name: str = "bicubic") -> np.ndarray:
    """The meaning of `resize`, in NumPy; same arguments and result."""
    if width != image.shape[1]:
        taps = axis_taps(image.shape[1], width, filter_name)
        blocks = range(0, image.shape[0], _ROWS_AT_A_TIME)
        image = np.concatenate([_pass(image[row : row + _ROWS_AT_A_TIME], taps, 1) for row in blocks])
    if height != image.shape[0]:
        taps = axis_taps(image.shape[0], height, filter_name)
        blocks = range(0, height, _ROWS_AT_A_TIME)
        image = np.concatenate(
            [
                _pass(
                    image, Taps(taps.first[row : row + _ROWS_AT_A_TIME], taps.weights[row : row + _ROWS_AT_A_TIME]), 0
                )
                for row in blocks
            ]
        )
    return np.ascontiguousarray(image)


def _native_kernel() -> Callable[[np.ndarray, int, int, str], np.ndarray] | None:
    """The built kernel, or None where the package runs without its native part."""
    try:
        from ouzel import _native
    except ImportError:
        return None
    return getattr(_native, "resize_u8", None)


def resize(image: np.ndarray, height: int, width: int, filter_name: str = "bicubic") -> np.ndarray:
    """Resize a picture.

    image: uint8 [H, W, C], any number of channels. height, width: pixels wanted, at least 1. filter_name: "bicubic"
    (a = -0.5), "bilinear" (triangle), "lanczos" (3 lobes), "box" or "nearest". Returns uint8 [height, width, C].
    Sides that keep their length are not touched.

    Raises ImageError for other arrays or sizes, UnsupportedError for an unknown filter.
    """
    if image.dtype != np.uint8 or image.ndim != 3 or 0 in image.shape:
        raise ImageError(
            "resize", expected="a uint8 array [height, width, channels]", got=f"{image.dtype} {list(image.shape)}"
        )
    if height < 1 or width < 1:
        raise ImageError("resize", expected="at least 1x1 pixels", got=f"{width}x{height}")
    if filter_name != "nearest" and filter_name not in FILTERS:
        raise UnsupportedError(
            "resize", expected=f"a filter out of {', '.join([*FILTERS, 'nearest'])}", got=filter_name
        )
    if (height, width) == image.shape[:2]:
        return np.ascontiguousarray(image)
    kernel = _native_kernel()
    if kernel is None:
        return resize_numpy(image, height, width, filter_name)
    return kernel(np.ascontiguousarray(image), height, width, filter_name)
