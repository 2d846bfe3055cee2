"""A graph: named values and the nodes that make them, for one part of a model (vision or text).

A graph holds no data. What depends on shapes and positions enters as an input; what depends on weights is named by the
family's tensor table and met with data in an engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Value:
    """A named 2-D array. `rows` is a symbol ("tokens", "patches", ...); its count is known when a step runs."""

    name: str
    rows: str
    width: int
    dtype: str = "f32"


@dataclass(frozen=True)
class Node:
    """One operation: input values, one output value, weights by name, attributes (complete, defaults filled in)."""

    op: str
    inputs: tuple[str, ...]
    output: str
    weights: tuple[str, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CacheLayer:
    """What attention layer `i` keeps for each token: keys [kv_heads * head_dim] and values [kv_heads * value_dim]."""

    kv_heads: int
    head_dim: int
    value_dim: int

    @property
    def numbers(self) -> int:
        """Numbers kept for each token."""
        return self.kv_heads * (self.head_dim + self.value_dim)


@dataclass(frozen=True)
class Graph:
    """Nodes in the order of execution. `folds` says which row symbol is how many rows of another one."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, Value]
    nodes: tuple[Node, ...]
    weights: Mapping[str, tuple[int, ...]]
    folds: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def cache_layers(self) -> tuple[CacheLayer, ...]:
        """The cache of each causal attention node, by its `layer` number."""
        found = {
            node.attrs["layer"]: CacheLayer(
                node.attrs["kv_heads"], node.attrs["head_dim"], node.attrs["value_dim"]
            )
            for node in self.nodes
            if node.op == "attention" and node.attrs["mode"] == "causal"
        }
        return tuple(found[i] for i in sorted(found))

    @property
    def cache_numbers(self) -> int:
        """Numbers that all causal attention layers keep for each token; four bytes each in a float32 cache."""
        return sum(layer.numbers for layer in self.cache_layers)

    def row_counts(self, inputs: Mapping[str, Any]) -> dict[str, int]:
        """Row count of every symbol, from the shapes of the input arrays."""
        counts = {self.values[name].rows: int(array.shape[0]) for name, array in inputs.items()}
        for symbol, (of, count) in self.folds.items():
            counts[symbol] = counts[of] // count
        return counts
