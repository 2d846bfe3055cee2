"""Number formats of weights: how values are stored, encoded and decoded.

A format is a row of `FORMATS`. The full-precision ones keep one stored element per value; the packed ones (q8, q4, q4m)
keep matrices in blocks of codes with a scale for every 32 columns of a row (see `packing.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.errors import RequestError
from ouzel.weights.packing import Q4, Q4M, Q8, Packing
from ouzel.weights.quantise import quantise_rows

Stored = NDArray[Any]
F32 = NDArray[np.float32]


def _same(values: F32) -> Stored:
    return np.asarray(values, dtype=np.float32)


def f32_to_bf16(values: F32) -> NDArray[np.uint16]:
    """The bits of the nearest bfloat16 (ties to even) of each value, uint16 of the same shape; NaN stays NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    # Adding half of the dropped part, less one unless the kept part is odd, carries exactly when rounding goes up.
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = ((bits + (np.uint32(0x7FFF) + odd)) >> np.uint32(16)).astype(np.uint16)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    if nan.any():
        # The carry could turn a NaN into infinity or zero: keep its sign and set the quiet bit instead.
        quiet = (bits >> np.uint32(16)).astype(np.uint16) | np.uint16(0x0040)
        rounded = np.where(nan, quiet, rounded)
    return rounded.reshape(np.shape(values))


def bf16_to_f32(bits: NDArray[np.uint16]) -> F32:
    """The float32 values of bfloat16 bits; exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _f32_to_f16(values: F32) -> NDArray[np.float16]:
    # NumPy rounds to nearest even; values above 65504 become infinity, which the caller looks for.
    with np.errstate(over="ignore", under="ignore"):
        return values.astype(np.float16)


def _f16_to_f32(values: NDArray[np.float16]) -> F32:
    return values.astype(np.float32)


@dataclass(frozen=True)
class Format:
    """One number format.

    `name` is what users write, `dtype` the word in safetensors files (empty when they have none), `itemsize` bytes
    per value, `storage` the NumPy type of the stored array. `encode` takes float32 of any shape and rounds to the
    nearest storable value, ties to even; `decode` gives float32 of the same shape, exactly.

    A packed format has a `packing`: `encode` takes a matrix and gives packed bytes, `decode` gives the matrix with its
    padding, rows up to a multiple of 16 and columns up to a multiple of 32.
    """

    name: str
    dtype: str
    itemsize: float
    storage: np.dtype[Any]
    encode: Callable[[F32], Stored]
    decode: Callable[[Stored], F32]
    packing: Packing | None = None


def _packed(name: str, packing: Packing) -> Format:
    def encode(values: F32) -> Stored:
        matrix = np.ascontiguousarray(values, np.float32)
        out = np.empty(packing.shape(*matrix.shape), np.uint8)
        quantise_rows(matrix, "F32", packing, out)
        return out

    return Format(name, "", packing.bits_per_weight / 8, np.dtype("u1"), encode, packing.decode, packing)


FORMATS: dict[str, Format] = {
    row.name: row
    for row in (
        Format("f32", "F32", 4, np.dtype("<f4"), _same, _same),
        Format("bf16", "BF16", 2, np.dtype("<u2"), f32_to_bf16, bf16_to_f32),
        Format("f16", "F16", 2, np.dtype("<f2"), _f32_to_f16, _f16_to_f32),
        _packed("q8", Q8),
        _packed("q4", Q4),
        _packed("q4m", Q4M),
    )
}

_BY_DTYPE = {row.dtype: row for row in FORMATS.values() if row.dtype}

# "auto" keeps a weight as the checkpoint stores it.
AUTO = "auto"


def format_of(name: str) -> Format:
    """The format called `name`; `RequestError` lists those there are."""
    if name not in FORMATS:
        raise RequestError("choosing a number format", expected=f"one of {', '.join(FORMATS)}", got=repr(name)[:60])
    return FORMATS[name]


def format_of_dtype(dtype: str) -> Format | None:
    """The format whose safetensors word is `dtype` ("BF16"), None when there is none."""
    return _BY_DTYPE.get(dtype)


FLOATS = tuple(name for name, row in FORMATS.items() if row.packing is None)
"""Names of the formats with one element for every value."""

PACKED = tuple(name for name, row in FORMATS.items() if row.packing is not None)
"""Names of the packed formats."""

PARTS = ("vision", "projector", "text", "head", "embedding")


@dataclass(frozen=True)
class FormatPlan:
    """The number format wanted for each part of a model: a name of `FORMATS`, or "auto" for as stored."""

    vision: str = AUTO
    projector: str = AUTO
    text: str = AUTO
    head: str = AUTO
    embedding: str = AUTO

    def __post_init__(self) -> None:
        for part in PARTS:
            name = getattr(self, part)
            if name != AUTO and name not in FORMATS:
                raise RequestError(
                    f"choosing the number format of the part '{part}'",
                    expected=f"one of {', '.join([AUTO, *FORMATS])}",
                    got=repr(name)[:60],
                )

    @staticmethod
    def uniform(name: str) -> FormatPlan:
        """The same format for every part."""
        return FormatPlan(**dict.fromkeys(PARTS, name))

    @staticmethod
    def preset(name: str, **parts: str | None) -> FormatPlan:
        """What `--weights name` means, with other formats for the `parts` that are not None.

        Four bits are for the decoder's matrices: head, embedding, vision and projector get q8 with "q4" and "q4m",
        because small widths there hurt reading most. Every other name holds for all parts.
        """
        rest = "q8" if name in ("q4", "q4m") else name
        wanted = {part: name if part == "text" else rest for part in PARTS}
        return FormatPlan(**wanted | {part: given for part, given in parts.items() if given is not None})

    @property
    def packs(self) -> bool:
        """Whether any part is to be quantised."""
        return any(self.of(part) in PACKED for part in PARTS)

    def of(self, part: str) -> str:
        """The wanted format's name for `part`."""
        return str(getattr(self, part))
