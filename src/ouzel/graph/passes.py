"""Passes over a graph. Each returns a new, checked graph; a stage that the caller wants to see is never fused away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from ouzel.graph.check import check_graph
from ouzel.graph.graph import Graph, Node

_GELU = {"tanh": "gelu_tanh", "erf": "gelu_erf"}


def fuse(graph: Graph, keep: Collection[str] = ()) -> Graph:
    """Joins `linear` with the `gelu` or the `add` that alone reads it.

    The fused node is a `linear` with `activation` or `residual`; its unfused meaning is in the operation table. Values in
    `keep` (stages wanted) stay values of their own.
    """
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    kept = set(keep) | set(graph.outputs)
    nodes: list[Node] = []
    place: dict[str, int] = {}
    for node in graph.nodes:
        fused = _fused(node, nodes, place, readers, kept)
        if fused is None:
            place[node.output] = len(nodes)
            nodes.append(node)
        else:
            old, new = fused
            # The joined node stands at its reader's place, where the other operand is ready too.
            nodes[old] = replace(nodes[old], op="")
            place[new.output] = len(nodes)
            nodes.append(new)
    live = [node for node in nodes if node.op]
    names = set(graph.inputs) | {node.output for node in live}
    result = replace(graph, nodes=tuple(live), values={k: v for k, v in graph.values.items() if k in names})
    check_graph(result)
    return result


def _fused(
    node: Node, nodes: list[Node], place: dict[str, int], readers: Counter[str], kept: set[str]
) -> tuple[int, Node] | None:
    if node.op == "gelu":
        old = _lone_linear(node.inputs[0], nodes, place, readers, kept)
        if old is not None and nodes[old].attrs["activation"] == "none" and len(nodes[old].inputs) == 1:
            attrs = {"activation": _GELU[node.attrs["form"]]}
            return old, replace(nodes[old], output=node.output, attrs=attrs)
    if node.op == "add":
        for name, other in (node.inputs, node.inputs[::-1]):
            old = _lone_linear(name, nodes, place, readers, kept)
            if old is not None and name != other and len(nodes[old].inputs) == 1:
                return old, replace(nodes[old], output=node.output, inputs=(nodes[old].inputs[0], other))
    return None


def _lone_linear(
    name: str, nodes: list[Node], place: dict[str, int], readers: Counter[str], kept: set[str]
) -> int | None:
    at = place.get(name)
    if at is None or nodes[at].op != "linear" or readers[name] != 1 or name in kept:
        return None
    return at
