"""The reference engine: one NumPy call per node, in order. Slow, readable, the meaning of every graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.errors import Cancelled
from ouzel.graph.graph import Graph, Node
from ouzel.graph.ops import OPS
from ouzel.engines.base import Executable, Step
from ouzel.engines.inputs import check_step
from ouzel.engines.reference import attention
from ouzel.engines.reference.ops import FUNCTIONS
from ouzel.engines.reference.quantised import PackedMatrix


class ReferenceEngine:
    """NumPy on float32 copies of the weights; packed matrices are taken apart, see `quantised.py`."""

    name = "reference"

    def compile(self, graph: Graph, weights: Mapping[str, Any], keep: Sequence[str] = ()) -> Executable:
        """Executes the graph as declared; nothing is fused, so every value is a stage."""
        return ReferenceExecutable(graph, weights)

    def describe(self) -> str:
        """One line for people."""
        return f"reference (NumPy {np.__version__})"


class ReferenceExecutable:
    """A graph run node by node. In `dtype` float64 it gives the bounds that the tests of engines start from."""

    def __init__(self, graph: Graph, weights: Mapping[str, Any], dtype: type[np.floating[Any]] = np.float32) -> None:
        self.graph = graph
        self._dtype = dtype
        self._weights = {name: _operand(weights[name]) for name in graph.weights}
        self._caches = [attention.PagedCache(form, dtype) for form in graph.cache_layers]
        self._blocks = 0

    def run(self, step: Step) -> dict[str, NDArray[np.float32]]:
        """See `engines.base.Executable.run`."""
        check_step(self.graph, step, self._blocks)
        values: dict[str, NDArray[Any]] = {
            name: array if array.dtype == np.int32 else array.astype(self._dtype, copy=False)
            for name, array in step.inputs.items()
        }
        last = {name: at for at, node in enumerate(self.graph.nodes) for name in node.inputs}
        found = {name: np.array(values[name]) for name in step.wanted if name in values}
        # Overflow is not hidden: it travels as inf and nan to the check on the logits.
        with np.errstate(all="ignore"):
            for at, node in enumerate(self.graph.nodes):
                if step.cancel is not None and step.cancel.cancelled:
                    raise Cancelled
                values[node.output] = self._node(node, values, step)
                if node.output in step.wanted:
                    found[node.output] = np.array(values[node.output], self._dtype)
                for name in node.inputs:
                    if last[name] == at:
                        values.pop(name, None)
        return found

    def ensure_blocks(self, count: int) -> None:
        """See `engines.base.Executable.ensure_blocks`."""
        self._blocks = max(self._blocks, count)
        for cache in self._caches:
            cache.ensure(count)

    @property
    def cache_bytes(self) -> int:
        """Bytes of cache memory held now."""
        return sum(cache.nbytes for cache in self._caches)

    def stages(self) -> tuple[str, ...]:
        """Every value of the graph."""
        return tuple(self.graph.values)

    def _node(self, node: Node, values: Mapping[str, NDArray[Any]], step: Step) -> NDArray[np.float32]:
        if node.op == "attention":
            return self._attention(node, [values[name] for name in node.inputs], step)
        form = OPS[node.op]
        operands: list[NDArray[Any] | None] = []
        for names, given, source in ((form.inputs, node.inputs, values), (form.weights, node.weights, self._weights)):
            operands += [source[name] for name in given] + [None] * (len(names) - len(given))
        return FUNCTIONS[node.op](*operands, **node.attrs)

    def _attention(self, node: Node, operands: list[NDArray[Any]], step: Step) -> NDArray[np.float32]:
        a = node.attrs
        form = {"heads": a["heads"], "kv_heads": a["kv_heads"], "scale": a["scale"]}
        q, k, v = operands
        if a["mode"] == "segments":
            borders = step.segments if step.segments is not None else np.array([0, len(q)], np.int32)
            return attention.segments(q, k, v, borders, **form)
        return attention.causal(q, k, v, self._caches[a["layer"]], step.sequences, **form)


def _operand(weight: Any) -> Any:
    """A weight as the operations take it."""
    packing = getattr(getattr(weight, "format", None), "packing", None)
    return weight.f32() if packing is None else PackedMatrix(weight.array, packing, weight.shape)
