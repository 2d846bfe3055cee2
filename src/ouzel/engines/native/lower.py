"""A graph with its memory plan and weights as the numbers of a native program.

Whatever takes the calls of `Sink` can be filled: `ouzel._native.Program`, or a writer of case files in the tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import EngineError
from ...graph.graph import Graph
from ...graph.plan import plan_memory

_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "uint16"}

# Bytes of a packed block of sixteen rows and 32 columns; see docs/formats.md.
_BLOCK_BYTES = {"q8": 544, "q4": 288, "q4m": 320}


class Sink(Protocol):
    """What a program is made of, piece by piece; see `_native.pyi`."""

    def add_fold(self, symbol: str, of: str, count: int) -> None: ...
    def add_slot(self, symbol: str, width: int) -> int: ...
    def add_input(self, name: str, symbol: str, width: int, dtype: str) -> int: ...
    def add_value(self, name: str, symbol: str, width: int, slot: int) -> int: ...
    def add_matrix(self, name: str, array: NDArray[Any], format: str) -> int: ...
    def add_packed(self, name: str, array: NDArray[np.uint8], format: str, rows: int, cols: int) -> int: ...
    def add_vector(self, name: str, array: NDArray[np.float32]) -> int: ...
    def add_node(
        self, op: str, inputs: Sequence[int], output: int, weights: Sequence[int], attributes: Mapping[str, Any]
    ) -> None: ...


def lower(graph: Graph, weights: Mapping[str, Any], sink: Sink) -> dict[str, int]:
    """Gives the whole graph to `sink` and returns the number of each value.

    `weights[name]` has `.array` and `.format` (a name, or an object with one): matrices [out, in] in "f32", "f16" or
    "bf16" (as uint16) or packed as bytes in "q8", "q4" or "q4m", vectors in "f32". Arrays are passed on without a copy where they are contiguous and aligned to
    their element. Raises EngineError that names the weight that is missing or does not fit.
    """
    plan = plan_memory(graph)
    for symbol, (of, count) in graph.folds.items():
        sink.add_fold(symbol, of, count)
    for slot in plan.slots:
        sink.add_slot(slot.rows, slot.width)
    numbers: dict[str, int] = {}
    for name in graph.inputs:
        value = graph.values[name]
        numbers[name] = sink.add_input(name, value.rows, value.width, value.dtype)
    for node in graph.nodes:
        value = graph.values[node.output]
        numbers[value.name] = sink.add_value(value.name, value.rows, value.width, plan.slot_of[value.name])
    weight_numbers = {name: _add_weight(graph, name, weights, sink) for name in graph.weights}
    for node in graph.nodes:
        inputs = [numbers[name] for name in node.inputs]
        used = [weight_numbers[name] for name in node.weights]
        sink.add_node(node.op, inputs, numbers[node.output], used, dict(node.attrs))
    return numbers


def _add_weight(graph: Graph, name: str, weights: Mapping[str, Any], sink: Sink) -> int:
    where, shape = f"compiling graph {graph.name}, weight {name}", graph.weights[name]
    if name not in weights:
        raise EngineError(where, expected=f"an array {list(shape)}", got="none")
    array, form = weights[name].array, weights[name].format
    form = getattr(form, "name", form)
    if form in _BLOCK_BYTES and len(shape) == 2:
        return _add_packed(where, name, shape, weights[name], form, sink)
    allowed = _DTYPES if len(shape) == 2 else {"f32": "float32"}
    if array.shape != shape or allowed.get(form) != str(array.dtype):
        names = [*allowed, *(_BLOCK_BYTES if len(shape) == 2 else ())]
        expected = f"{list(shape)} in one of {', '.join(names)}"
        raise EngineError(where, expected=expected, got=f"{list(array.shape)} {array.dtype} as {form}")
    array = np.require(array, requirements=["C", "A"])
    return sink.add_matrix(name, array, form) if len(shape) == 2 else sink.add_vector(name, array)


def _add_packed(where: str, name: str, shape: tuple[int, ...], weight: Any, form: str, sink: Sink) -> int:
    array = weight.array
    rows, cols = shape
    size = -(-rows // 16) * -(-cols // 32) * _BLOCK_BYTES[form]
    if tuple(weight.shape) != tuple(shape) or array.dtype != np.uint8 or array.size != size:
        got = f"{list(weight.shape)} in {array.size} {array.dtype}"
        raise EngineError(where, expected=f"{list(shape)} in {size} bytes as {form}", got=got)
    return sink.add_packed(name, np.require(array, requirements=["C"]), form, rows, cols)
