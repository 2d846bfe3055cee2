"""The checks of a step that every engine makes before anything runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.errors import EngineError
from ouzel.graph.graph import Graph
from ouzel.engines.base import BLOCK_TOKENS, Step

_INDEX_LIMIT = {"take_rows": "x", "put_rows": "x", "add_rows": "x"}


def check_step(graph: Graph, step: Step, blocks: int) -> dict[str, int]:
    """Row counts by symbol. Raises EngineError naming the input when names, types, shapes, indices or rows do not fit.

    blocks: how many cache blocks the executable holds.
    """
    where = f"step of graph {graph.name}"
    if set(step.inputs) != set(graph.inputs):
        missing, extra = set(graph.inputs) - set(step.inputs), set(step.inputs) - set(graph.inputs)
        raise EngineError(where, expected=f"inputs {sorted(graph.inputs)}", got=f"missing {sorted(missing)}, extra {sorted(extra)}")
    counts = _check_shapes(graph, step, where)
    unknown = [name for name in step.wanted if name not in graph.values]
    if unknown:
        raise EngineError(where, expected="names of its values as wanted stages", got=", ".join(sorted(unknown)))
    _check_indices(graph, step, counts, where)
    _check_sequences(graph, step, counts, blocks, where)
    return counts


def _check_shapes(graph: Graph, step: Step, where: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, array in step.inputs.items():
        value = graph.values[name]
        dtype = np.int32 if value.dtype == "i32" else np.float32
        if array.ndim != 2 or array.shape[1] != value.width or array.dtype != dtype or not array.flags.c_contiguous:
            expected = f"{name} as contiguous {np.dtype(dtype)} [rows, {value.width}]"
            raise EngineError(where, expected=expected, got=f"{array.dtype} {list(array.shape)}{_order(array)}")
        if counts.setdefault(value.rows, len(array)) != len(array):
            raise EngineError(where, expected=f"{counts[value.rows]} {value.rows} rows in {name}", got=str(len(array)))
    for symbol, (of, count) in graph.folds.items():
        if counts[of] % count:
            raise EngineError(where, expected=f"a number of {of} rows that {count} divides", got=str(counts[of]))
        counts[symbol] = counts[of] // count
    return counts


def _order(array: NDArray[Any]) -> str:
    return "" if array.flags.c_contiguous else ", not contiguous"


def _check_indices(graph: Graph, step: Step, counts: dict[str, int], where: str) -> None:
    for node in graph.nodes:
        if node.op in ("embed", "blend_rows"):
            name, limit = node.inputs[0], graph.weights[node.weights[0]][0]
        elif node.op in _INDEX_LIMIT:
            name, limit = node.inputs[-1], counts[graph.values[node.inputs[0]].rows]
        else:
            continue
        index = step.inputs[name]
        if index.size and (index.min() < 0 or index.max() >= limit):
            got = f"{index.min()} to {index.max()}"
            raise EngineError(f"{where}, {node.op} {node.output}", expected=f"{name} in 0 to {limit - 1}", got=got)


def _check_sequences(graph: Graph, step: Step, counts: dict[str, int], blocks: int, where: str) -> None:
    for node in graph.nodes:
        if node.op != "attention":
            continue
        rows = counts[graph.values[node.output].rows]
        if node.attrs["mode"] == "segments":
            borders = step.segments
            fits = borders is None or (
                len(borders) > 0 and borders[0] == 0 and borders[-1] == rows and (np.diff(borders) >= 0).all()
            )
            if not fits:
                raise EngineError(where, expected=f"segment borders rising from 0 to {rows}", got=str(borders))
            return
        at = 0
        for seq in step.sequences:
            need = -(-(seq.past + seq.count) // BLOCK_TOKENS)
            fits = seq.start == at and seq.count >= 0 and seq.past >= 0 and len(seq.blocks) >= need
            if not fits or (need and (seq.blocks[:need].min() < 0 or seq.blocks[:need].max() >= blocks)):
                raise EngineError(where, expected=f"sequences that follow each other with {need} of {blocks} cache blocks", got=repr(seq))
            at += seq.count
        if at != rows:
            raise EngineError(where, expected=f"sequences over {rows} rows", got=f"{at}")
        return
