"""The tensor table of a family: our name, the checkpoint's names, the shape, the formats allowed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ouzel.weights.formats import FORMATS, PARTS

Kind = Literal["linear", "embedding", "conv", "norm", "bias"]
Part = Literal["vision", "projector", "text", "head", "embedding"]

_KINDS = ("linear", "embedding", "conv", "norm", "bias")

# Always float32 copies: small, and used in float32 arithmetic.
VECTOR_KINDS = ("norm", "bias")


@dataclass(frozen=True)
class TensorSpec:
    """One row of a tensor table.

    `name` is ours ("text.layers.0.q_proj.weight"). `sources` are the checkpoint's names for it, tried in order: some
    releases differ. `shape` is the source's shape, from the config. `kind`: "linear" `[out, in]`, "embedding"
    `[rows, width]`, "conv" (a patch embedding whose kernel equals its stride, `[out, ...]`, loaded as
    `[out, product of the rest]`), "norm" and "bias" (loaded as float32). `formats` are the allowed format names; the
    first is taken when the wanted one is not allowed. `optional` tensors may be missing. `transform` rearranges the
    stored array at load time (a slice, a transposition): it moves elements, never computes, because it sees the stored
    bits.
    """

    name: str
    sources: tuple[str, ...]
    shape: tuple[int, ...]
    kind: Kind
    part: Part
    formats: tuple[str, ...] = tuple(FORMATS)
    optional: bool = False
    transform: Callable[[NDArray[Any]], NDArray[Any]] | None = None

    def __post_init__(self) -> None:
        # Mistakes of a family's declaration, not of the user.
        if not self.sources or isinstance(self.sources, str):
            raise ValueError(f"{self.name}: sources must be a tuple of names")
        if self.kind not in _KINDS or self.part not in PARTS:
            raise ValueError(f"{self.name}: kind {self.kind!r} or part {self.part!r} is not known")
        if not self.formats or any(name not in FORMATS for name in self.formats):
            raise ValueError(f"{self.name}: formats {self.formats!r} are not known")
        if any(size < 0 for size in self.shape):
            raise ValueError(f"{self.name}: shape {self.shape!r} has a negative size")

    @property
    def loaded_shape(self) -> tuple[int, ...]:
        """The shape after loading, before `transform`: a "conv" has two axes, the others are as in the file."""
        if self.kind == "conv":
            return (self.shape[0], math.prod(self.shape[1:]))
        return self.shape

    @property
    def final_shape(self) -> tuple[int, ...]:
        """The shape of the weight, after `transform`."""
        if self.transform is None:
            return self.loaded_shape
        # An array of one byte that claims the shape: nothing is read.
        return self.transform(np.broadcast_to(np.zeros((), np.uint8), self.loaded_shape)).shape


def check_table(table: Iterable[TensorSpec]) -> dict[str, TensorSpec]:
    """The rows by our name; ValueError when a name stands twice (a mistake of the declaration)."""
    rows: dict[str, TensorSpec] = {}
    for spec in table:
        if spec.name in rows:
            raise ValueError(f"{spec.name} stands twice in the tensor table")
        rows[spec.name] = spec
    return rows
