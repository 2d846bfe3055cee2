"""What the work costs at least: bytes that must be read, multiply-adds that must be done."""

from __future__ import annotations

from dataclasses import dataclass

from ouzel.graph.graph import Graph
from ouzel.weights.weight_set import WeightSet


@dataclass(frozen=True)
class Work:
    """Floating-point operations (two for a multiply-add) and bytes of weights of one pass."""

    flop: float
    weight_bytes: float


def work(graph: Graph, weights: WeightSet, rows: dict[str, int], pairs: float) -> Work:
    """The work of a pass over a graph.

    rows: row count of every symbol. pairs: (query row, seen key) pairs of each attention, summed over segments.
    """
    flop = weight_bytes = 0.0
    for node in graph.nodes:
        if node.op == "linear":
            out, width = graph.weights[node.weights[0]]
            count = rows[graph.values[node.output].rows]
            flop += 2.0 * out * width * count
            weight_bytes += weights[node.weights[0]].nbytes if count else 0
        elif node.op == "attention":
            flop += 2.0 * node.attrs["heads"] * (node.attrs["head_dim"] + node.attrs["value_dim"]) * pairs
    return Work(flop, weight_bytes)


def cache_bytes(graph: Graph, tokens: int) -> float:
    """Bytes of cache that one decoded token reads after `tokens` tokens (float32 keys and values)."""
    return 4.0 * tokens * graph.cache_numbers
