"""Weights of any checkpoint: a model folder (converted or quantised where asked) or a packed folder (mapped)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.folder import Checkpoint
from ouzel.checkpoint.packed import HEADER, check_sums
from ouzel.checkpoint.text import shown
from ouzel.errors import CheckpointError, RequestError
from ouzel.weights.formats import AUTO, FORMATS, PARTS, FormatPlan
from ouzel.weights.load import choose_format, load_weights, match_tensors
from ouzel.weights.packed_file import entry_of, read_packed
from ouzel.weights.table import VECTOR_KINDS, TensorSpec, check_table
from ouzel.weights.weight_set import Weight, WeightSet


def open_weights(
    checkpoint: Checkpoint,
    table: Iterable[TensorSpec],
    formats: FormatPlan | None = None,
    *,
    tied: Mapping[str, str] | None = None,
    check: bool = False,
    check_finite: bool | None = None,
    threads: int | None = None,
    importance: Mapping[str, NDArray[Any]] | None = None,
) -> WeightSet:
    """The weights of `checkpoint`; see `load_weights` for model folders.

    check: compares a packed folder with its SHA256SUMS first, and looks for numbers that are not finite in a model folder.
    Raises RequestError when `formats` ask for others than a packed folder holds: it cannot be converted again.
    """
    if checkpoint.packed is None:
        finite = True if check else check_finite
        return load_weights(
            checkpoint.tensors, table, formats, tied=tied, check_finite=finite, threads=threads, importance=importance
        )
    if check:
        check_sums(checkpoint.path)
    plan = packed_plan(checkpoint)
    wanted = formats or FormatPlan()
    for part in PARTS:
        if wanted.of(part) not in (AUTO, plan.of(part)):
            raise RequestError(
                f"loading {checkpoint.path}", expected=f"{plan.of(part)} for {part}, as the packed folder has it",
                got=wanted.of(part), fix="convert the model from its source again, or leave the format off",
            )  # fmt: skip
    return read_packed(checkpoint.tensors, table, plan, tied=tied)


def packed_plan(checkpoint: Checkpoint) -> FormatPlan:
    """The formats that the header of a packed folder names; CheckpointError for unknown parts and formats."""
    assert checkpoint.packed is not None
    formats = checkpoint.packed.formats
    if set(formats) != set(PARTS) or any(name != AUTO and name not in FORMATS for name in formats.values()):
        raise CheckpointError(
            f"reading {checkpoint.path / HEADER}",
            expected=f"'formats' to name one of {AUTO}, {', '.join(FORMATS)} for each of {', '.join(PARTS)}",
            got=shown(dict(formats)),
        )
    return FormatPlan(**formats)


def planned_weights(
    checkpoint: Checkpoint, table: Iterable[TensorSpec], formats: FormatPlan, *, tied: Mapping[str, str] | None = None
) -> WeightSet:
    """As `open_weights`, for sizes only: what would be converted is an array of zeros that takes no memory."""
    if checkpoint.packed is not None or formats == FormatPlan():
        return open_weights(checkpoint, table, formats, tied=tied, check_finite=False)
    rows = check_table(table)
    views, notes = match_tensors(checkpoint.tensors, rows.values(), tied)
    made: dict[tuple[object, ...], NDArray[Any]] = {}
    weights = {}
    for name, view in views.items():
        spec, form = rows[name], choose_format(rows[name], formats, view.stored)
        mapped = form.dtype == view.stored and spec.kind not in VECTOR_KINDS
        shape = entry_of(spec, form).shape
        key = (view.name, form.name, spec.transform)
        array = made.setdefault(key, np.broadcast_to(np.zeros((), form.storage), shape))
        weights[name] = Weight(name, form, array, spec, view.name, view.file, mapped, spec.final_shape)
    return WeightSet(weights, notes)
