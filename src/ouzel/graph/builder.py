"""Builds a graph: each method adds one node and returns the name of its value."""

from __future__ import annotations

from typing import Any

from ouzel.errors import GraphError
from ouzel.graph.check import check_graph
from ouzel.graph.graph import Graph, Node, Value
from ouzel.graph.ops import OPS, operand_names


class GraphBuilder:
    """Collects nodes in order. Value names are the stage names that users see, so every call gives one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._inputs: list[str] = []
        self._values: dict[str, Value] = {}
        self._nodes: list[Node] = []
        self._weights: dict[str, tuple[int, ...]] = {}
        self._folds: dict[str, tuple[str, int]] = {}

    def input(self, name: str, rows: str, width: int, dtype: str = "f32") -> str:
        """Declares an array that the caller gives at every step."""
        self._add_value(Value(name, rows, width, dtype))
        self._inputs.append(name)
        return name

    def weight(self, name: str, *shape: int) -> str:
        """Declares a weight; the same name may be declared again with the same shape (a tied head)."""
        if self._weights.setdefault(name, shape) != shape:
            raise GraphError(f"weight {name} declared as {self._weights[name]} and as {shape}")
        return name

    def width(self, value: str) -> int:
        """Width of a value already made."""
        return self._values[value].width

    def node(self, op: str, output: str, *inputs: str, weights: tuple[str, ...] = (), **attrs: Any) -> str:
        """Adds one operation whose result is called `output`."""
        form = OPS[op]
        filled = {key: attr.default for key, attr in form.attrs.items() if attr.default is not None} | attrs
        in_names = operand_names(form, len(inputs), form.inputs)
        widths = {name: self._values[value].width for name, value in zip(in_names, inputs)}
        w_names = operand_names(form, len(weights), form.weights)
        shapes = {name: self._weights[weight] for name, weight in zip(w_names, weights)}
        rows = self._rows(op, dict(zip(in_names, inputs)), filled)
        self._add_value(Value(output, rows, form.width(widths, shapes, filled)))
        self._nodes.append(Node(op, inputs, output, weights, filled))
        return output

    def finish(self, *outputs: str) -> Graph:
        """The checked graph."""
        graph = Graph(
            self._name,
            tuple(self._inputs),
            outputs,
            dict(self._values),
            tuple(self._nodes),
            dict(self._weights),
            dict(self._folds),
        )
        check_graph(graph)
        return graph

    def _rows(self, op: str, inputs: dict[str, str], attrs: dict[str, Any]) -> str:
        rows_of = OPS[op].rows_of
        if rows_of is not None:
            return self._values[inputs[rows_of]].rows
        self._folds[attrs["rows"]] = (self._values[inputs["x"]].rows, attrs["count"])
        return attrs["rows"]

    def _add_value(self, value: Value) -> None:
        if value.name in self._values:
            raise GraphError(f"value {value.name} is made twice")
        self._values[value.name] = value
