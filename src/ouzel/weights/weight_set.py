"""Loaded weights by our names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.weights.formats import Format
from ouzel.weights.table import TensorSpec


@dataclass(frozen=True)
class Weight:
    """One weight: `array` holds `format`'s stored elements (bfloat16 as uint16 bits), C-contiguous and read-only.

    Matrices are `[out, in]` or `[rows, width]`, vectors `[width]`. `source` is the tensor's name in `file`; `mapped`
    says that the array is the mapped file itself and takes no memory of its own. In a packed format the array is bytes
    [row blocks, groups, bytes of a block], and `logical` the shape of the matrix (by default the table's).
    """

    name: str
    format: Format
    array: NDArray[Any]
    spec: TensorSpec
    source: str
    file: Path
    mapped: bool
    logical: tuple[int, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Values along each axis."""
        if self.format.packing is None:
            return self.array.shape
        return self.spec.loaded_shape if self.logical is None else self.logical

    @property
    def size(self) -> int:
        """The number of values."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the stored elements."""
        return self.array.nbytes

    def f32(self) -> NDArray[np.float32]:
        """The values in float32: the array itself when it is stored so, else a new one."""
        values = self.format.decode(self.array)
        return values if values.shape == self.shape else np.ascontiguousarray(values[: self.shape[0], : self.shape[1]])


class WeightSet(Mapping[str, Weight]):
    """Our names to weights. `notes` are remarks for the user (a tensor that was left unused, say)."""

    def __init__(self, weights: Mapping[str, Weight], notes: tuple[str, ...] = ()) -> None:
        self._weights = dict(weights)
        self.notes = notes

    def __getitem__(self, name: str) -> Weight:
        return self._weights[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    def _owned(self) -> Iterator[Weight]:
        """Each stored array once: a tied head that shares the embedding's array is not counted again."""
        seen: set[tuple[int, int]] = set()
        for weight in self._weights.values():
            key = (weight.array.__array_interface__["data"][0], weight.nbytes)
            if key not in seen or weight.nbytes == 0:
                seen.add(key)
                yield weight

    def total_bytes(self) -> int:
        """Bytes of all weights, shared ones once."""
        return sum(weight.nbytes for weight in self._owned())

    def bytes_by_part(self) -> dict[str, int]:
        """Bytes for each part that has weights; a shared array counts for the part that comes first in the table."""
        totals: dict[str, int] = {}
        for weight in self._owned():
            totals[weight.spec.part] = totals.get(weight.spec.part, 0) + weight.nbytes
        return totals

    def parameters(self) -> int:
        """The number of values, shared ones once."""
        return sum(weight.size for weight in self._owned())
