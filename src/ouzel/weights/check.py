"""Finding NaN and infinity in weights, in blocks, on the stored bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.text import shown_name
from ouzel.errors import TensorError

# Elements looked at in one go: the scratch stays in the cache.
_BLOCK = 1 << 18

# Bits of the exponent (all set: infinity or NaN) for each stored type, with the unsigned type of the same width.
_EXPONENT: dict[str, tuple[type[np.unsignedinteger[Any]], int]] = {
    "F32": (np.uint32, 0x7F800000),
    "BF16": (np.uint16, 0x7F80),
    "F16": (np.uint16, 0x7C00),
}


def first_not_finite(data: NDArray[Any], dtype: str) -> int | None:
    """The flat position of the first NaN or infinity in `data`, None when there is none.

    `data` is an array in the storage type of `dtype` ("F32", "BF16", "F16").
    """
    kind, exponent = _EXPONENT[dtype]
    mask = kind(exponent)
    flat = data.reshape(-1).view(kind)
    for start in range(0, flat.size, _BLOCK):
        found = (flat[start : start + _BLOCK] & mask) == mask
        if found.any():
            return start + int(found.argmax())
    return None


def check_finite(name: str, data: NDArray[Any], dtype: str, file: Path) -> None:
    """`TensorError` naming the tensor, the file and the place when `data` holds a NaN or an infinity."""
    place = first_not_finite(data, dtype)
    if place is None:
        return
    index = tuple(int(i) for i in np.unravel_index(place, data.shape))
    raise TensorError(
        f"reading {file}, tensor {shown_name(name)}",
        expected="finite numbers",
        got=f"NaN or infinity at {list(index)}",
        fix="the weights are damaged; download the file again",
    )
