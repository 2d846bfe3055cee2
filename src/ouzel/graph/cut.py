"""Cuts a graph at named values, so that each stage between two cuts runs on given inputs instead of on what came before."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ouzel.errors import GraphError
from ouzel.graph.check import check_graph
from ouzel.graph.graph import Graph, Node

GIVEN = "given."
"""Prefix of the inputs that take the place of a cut value."""


def cut(graph: Graph, at: Collection[str]) -> Graph:
    """The graph in which whoever reads a value of `at` reads the new input "given.<value>" instead.

    The values themselves are still made and may be asked for: one run gives every stage computed from given inputs. A value
    that nobody reads gets no input. Raises GraphError for a name that no node makes.
    """
    made = {node.output for node in graph.nodes}
    unknown = sorted(set(at) - made)
    if unknown:
        raise GraphError(f"cutting {graph.name}: no node makes {', '.join(unknown[:3])}")
    read = {name for node in graph.nodes for name in node.inputs}
    given = {name: GIVEN + name for name in at if name in read}
    nodes = tuple(replace(node, inputs=tuple(given.get(name, name) for name in node.inputs)) for node in graph.nodes)
    values = {**graph.values, **{new: replace(graph.values[old], name=new) for old, new in given.items()}}
    result = replace(graph, inputs=(*graph.inputs, *given.values()), nodes=nodes, values=values)
    check_graph(result)
    return result


def span(graph: Graph, output: str, given: Collection[str]) -> tuple[Node, ...]:
    """The nodes, in order, that make `output` when the values of `given` (other than `output`) are there already."""
    makers = {node.output: node for node in graph.nodes}
    wanted, seen = [output], set()
    while wanted:
        name = wanted.pop()
        if name in seen or name not in makers or (name in given and name != output):
            continue
        seen.add(name)
        wanted += makers[name].inputs
    return tuple(node for node in graph.nodes if node.output in seen)
