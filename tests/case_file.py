"""Writes graphs, weights and steps into a case file for `native/tests/op_runner.cc`, and reads its results.

A file is a row of records: texts and arrays with their length, all numbers little-endian in 64 bits. The reader is
`native/tests/case_reader.cc`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.base import Step
from ouzel.engines.native.lower import lower
from ouzel.graph.graph import Graph
from ouzel.graph.passes import fuse


@dataclass(frozen=True)
class FileCase:
    """What one case of a file holds; `blocks` is the number of cache blocks, steps run in order."""

    graph: Graph
    weights: Mapping[str, Any]
    steps: Sequence[Step]
    blocks: int = 0


def write_cases(path: Path, cases: Iterable[FileCase]) -> None:
    """Writes the cases as the native engine would run them: fused, with planned memory."""
    with open(path, "wb") as file:
        _Writer(file).text("ouzel cases 1")
        for case in cases:
            _write_case(_Writer(file), case)
        _Writer(file).text("end")


def read_results(path: Path, cases: Iterable[FileCase]) -> list[list[dict[str, NDArray[np.float32]]]]:
    """The wanted values by case and step, from the file that the runner wrote. It must hold nothing else."""
    data = np.fromfile(path, "<f4")
    found, at = [], 0
    for case in cases:
        steps = []
        for step in case.steps:
            values = {}
            for name, shape in _wanted(case, step).items():
                size = shape[0] * shape[1]
                values[name] = data[at : at + size].reshape(shape)
                at += size
            steps.append(values)
        found.append(steps)
    assert at == len(data), f"{len(data)} numbers in the results, not {at}"
    return found


def _write_case(out: _Writer, case: FileCase) -> None:
    keep = {name for step in case.steps for name in step.wanted}
    graph = fuse(case.graph, keep)
    out.text("case")
    numbers = lower(graph, case.weights, out)
    out.text("blocks")
    out.integer(case.blocks)
    for step in case.steps:
        out.text("step")
        out.inputs([step.inputs[name] for name in graph.inputs])
        out.wanted([(numbers[name], shape) for name, shape in _wanted(case, step).items()])
        out.sequences(step)
        out.borders(step.segments)
    out.text("done")


def _wanted(case: FileCase, step: Step) -> dict[str, tuple[int, int]]:
    counts = case.graph.row_counts(step.inputs)
    values = {name: case.graph.values[name] for name in step.wanted}
    return {name: (counts[value.rows], value.width) for name, value in values.items()}


class _Writer:
    """Writes the records of one case; takes the calls of `ouzel.engines.native.lower.Sink`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._counts = {"slot": 0, "value": 0, "weight": 0}

    def integer(self, value: int) -> None:
        self._file.write(struct.pack("<q", value))

    def text(self, value: str) -> None:
        data = value.encode("utf-8")
        self.integer(len(data))
        self._file.write(data)

    def numbers(self, values: Sequence[int]) -> None:
        self.integer(len(values))
        for value in values:
            self.integer(value)

    def array(self, values: NDArray[Any]) -> None:
        self._file.write(values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())

    def inputs(self, arrays: Sequence[NDArray[Any]]) -> None:
        self.integer(len(arrays))
        for array in arrays:
            self.text("i32" if array.dtype == np.int32 else "f32")
            self.integer(array.shape[0])
            self.integer(array.shape[1])
            self.array(array)

    def wanted(self, values: Sequence[tuple[int, tuple[int, int]]]) -> None:
        self.integer(len(values))
        for number, (rows, width) in values:
            for value in (number, rows, width):
                self.integer(value)

    def sequences(self, step: Step) -> None:
        self.integer(len(step.sequences))
        for rows in step.sequences:
            for value in (rows.start, rows.count, rows.past, len(rows.blocks)):
                self.integer(value)
            self.array(rows.blocks.astype(np.int32))

    def borders(self, borders: NDArray[np.int32] | None) -> None:
        self.integer(int(borders is not None))
        if borders is not None:
            self.integer(len(borders))
            self.array(borders.astype(np.int32))

    def add_fold(self, symbol: str, of: str, count: int) -> None:
        self._record("fold", symbol, of, count)

    def add_slot(self, symbol: str, width: int) -> int:
        self._record("slot", symbol, width)
        return self._next("slot")

    def add_input(self, name: str, symbol: str, width: int, dtype: str) -> int:
        self._record("input", name, symbol, width, dtype)
        return self._next("value")

    def add_value(self, name: str, symbol: str, width: int, slot: int) -> int:
        self._record("value", name, symbol, width, slot)
        return self._next("value")

    def add_matrix(self, name: str, array: NDArray[Any], format: str) -> int:
        self._record("matrix", name, format, *array.shape)
        self.array(array)
        return self._next("weight")

    def add_vector(self, name: str, array: NDArray[np.float32]) -> int:
        self._record("vector", name, len(array))
        self.array(array)
        return self._next("weight")

    def add_node(
        self, op: str, inputs: Sequence[int], output: int, weights: Sequence[int], attributes: Mapping[str, Any]
    ) -> None:
        self._record("node", op)
        self.numbers(inputs)
        self.integer(output)
        self.numbers(weights)
        self.integer(len(attributes))
        for name, value in attributes.items():
            self.text(name)
            self._attribute(value)

    def _attribute(self, value: int | float | str) -> None:
        kinds = {int: "int", float: "float", str: "text"}
        self.text(kinds[type(value)])
        if isinstance(value, str):
            self.text(value)
        else:
            self._file.write(struct.pack("<q" if isinstance(value, int) else "<d", value))

    def _record(self, *fields: str | int) -> None:
        for field in fields:
            self.text(field) if isinstance(field, str) else self.integer(field)

    def _next(self, kind: str) -> int:
        self._counts[kind] += 1
        return self._counts[kind] - 1
