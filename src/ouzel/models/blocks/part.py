"""Declares one part of a model: each call adds a node and, beside it, the tensors that the node reads.

The graph and the tensor table come from the same lines, with the checkpoint's own names in sight, and so cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ouzel.graph.builder import GraphBuilder
from ouzel.graph.graph import Graph
from ouzel.weights.formats import FLOATS, FORMATS
from ouzel.weights.table import Kind, Part, TensorSpec


@dataclass(frozen=True)
class RowRange:
    """Takes rows `start : start + count` of a stored tensor; a view, nothing is copied."""

    start: int
    count: int

    def __call__(self, array: NDArray[Any]) -> NDArray[Any]:
        return array[self.start : self.start + self.count]


class PartBuilder:
    """A graph builder with the tensor table of one part ("vision" or "text").

    In every method `name` is the value's stage name and `source` the name of the checkpoint's module: a linear layer reads
    `source + ".weight"` and, with a bias, `source + ".bias"`.
    """

    def __init__(self, part: Part) -> None:
        self.part = part
        self.specs: list[TensorSpec] = []
        self._graph = GraphBuilder(part)
        self.input = self._graph.input
        self.node = self._graph.node
        self.width = self._graph.width

    def linear(
        self,
        name: str,
        x: str,
        source: str,
        out: int,
        *,
        bias: bool = False,
        rows: tuple[int, int] | None = None,
        shape: tuple[int, ...] | None = None,
        part: Part | None = None,
    ) -> str:
        """x @ weight.T (+ bias).

        `rows` = (first, total) reads rows first : first + out of a stored matrix with `total` rows (a joint q, k, v);
        `shape` is the stored shape where it is not [out, in] (a convolution whose kernel equals its stride).
        """
        width = self.width(x)
        first, total = rows or (0, out)
        weights = [self._graph.weight(f"{name}.weight", out, width)]
        kind: Kind = "linear" if shape is None else "conv"
        taken = None if rows is None else RowRange(first, out)
        self._spec(weights[0], f"{source}.weight", shape or (total, width), kind, part, taken)
        if bias:
            weights.append(self._graph.weight(f"{name}.bias", out))
            self._spec(weights[1], f"{source}.bias", (total,), "bias", part, taken)
        return self.node("linear", name, x, weights=tuple(weights))

    def embed(self, name: str, ids: str, source: str, vocab: int, width: int) -> str:
        """Rows of the embedding table."""
        weight = self._graph.weight(f"{name}.weight", vocab, width)
        self._spec(weight, f"{source}.weight", (vocab, width), "embedding", "embedding")
        return self.node("embed", name, ids, weights=(weight,))

    def blend(self, name: str, taps: str, amounts: str, source: str, table_rows: int, width: int) -> str:
        """A weighted gather from a table (interpolated positions)."""
        weight = self._graph.weight(f"{name}.weight", table_rows, width)
        # Small, and read by weighted sums that know no packed rows.
        self._spec(weight, f"{source}.weight", (table_rows, width), "embedding", formats=FLOATS)
        return self.node("blend_rows", name, taps, amounts, weights=(weight,))

    def rms_norm(self, name: str, x: str, source: str, eps: float, heads: int = 1) -> str:
        """Root-mean-square norm over the row, or over each of `heads` column ranges."""
        width = self.width(x) // heads
        weight = self._graph.weight(f"{name}.weight", width)
        self._spec(weight, f"{source}.weight", (width,), "norm")
        return self.node("rms_norm", name, x, weights=(weight,), eps=eps, heads=heads)

    def layer_norm(self, name: str, x: str, source: str, eps: float, part: Part | None = None) -> str:
        """Layer norm over the row, with weight and bias."""
        width = self.width(x)
        weights = tuple(self._graph.weight(f"{name}.{kind}", width) for kind in ("weight", "bias"))
        for weight, kind in zip(weights, ("weight", "bias")):
            self._spec(weight, f"{source}.{kind}", (width,), "norm" if kind == "weight" else "bias", part)
        return self.node("layer_norm", name, x, weights=weights, eps=eps)

    def finish(self, *outputs: str) -> Graph:
        """The checked graph."""
        return self._graph.finish(*outputs)

    def _spec(
        self,
        name: str,
        source: str,
        shape: tuple[int, ...],
        kind: Kind,
        part: Part | None = None,
        rows: RowRange | None = None,
        formats: tuple[str, ...] = tuple(FORMATS),
    ) -> None:
        self.specs.append(TensorSpec(name, (source,), shape, kind, part or self.part, formats, transform=rows))
