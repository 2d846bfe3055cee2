"""Tensors of a checkpoint to weights: matched with the family's table, checked, and converted where asked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.buffers import aligned_copy, aligned_empty, alignment
from ouzel.checkpoint.safetensors_file import TensorView
from ouzel.checkpoint.text import listed, shown_name
from ouzel.errors import TensorError
from ouzel.weights.check import check_finite as check_tensor
from ouzel.weights.check import first_not_finite
from ouzel.weights.formats import AUTO, FORMATS, Format, FormatPlan, format_of_dtype
from ouzel.weights.pack import Packer, packer
from ouzel.weights.repack import repacked
from ouzel.weights.table import VECTOR_KINDS, TensorSpec, check_table
from ouzel.weights.weight_set import Weight, WeightSet

# Tables of old releases that are computed from the config and not learned.
DEFAULT_IGNORE = ("*.rotary_emb.inv_freq",)

# Above this size a look at every weight would be felt when a mapped model is loaded.
CHECK_BELOW_BYTES = 200_000_000

# Values converted in one go: bounds the scratch memory to a few megabytes.
_BLOCK = 1 << 19


def load_weights(
    tensors: Mapping[str, TensorView],
    table: Iterable[TensorSpec],
    formats: FormatPlan | None = None,
    *,
    tied: Mapping[str, str] | None = None,
    ignore: Iterable[str] = DEFAULT_IGNORE,
    check_finite: bool | None = None,
    align: int = 1,
    importance: Mapping[str, NDArray[Any]] | None = None,
    threads: int | None = None,
) -> WeightSet:
    """The weights of `table` out of `tensors` (a `TensorIndex`).

    - A weight whose wanted format is the stored one ("auto" always is) stays the mapped file; others are converted in
      blocks of rows. Norms and biases become float32 copies.
    - `tied` maps a name of the table to the one whose tensor it shares ("head.weight" to "text.embed.weight"). A tensor
      of its own that the file may hold is then not used, as the config decides; when it differs, a note says so. When
      only the other's tensor is there, both use it. Each has the format of its own part.
    - `ignore` are patterns of tensors that the model does not need.
    - `check_finite` looks for NaN and infinity; by default in checkpoints under 200 MB (a larger one would be read
      from the disk whole). Conversion to a smaller format always checks that the values fit.
    - Packed formats are made here, on `threads` (by default all processors). `importance` holds, by our names, the mean
      squares of what a matrix is multiplied with; scales are chosen with it (see `quantise.py`).
    - `align` is the boundary in bytes that every array must lie on; an array of the mapped file that does not is
      copied. Elements are always aligned to their own size.

    Raises `TensorError` that names the tensors and the file for missing, left-over, wrongly shaped and damaged ones,
    and `UnsupportedError` for tensors in F64, integers or F8.
    """
    rows = check_table(table)
    tied = dict(tied or {})
    matched, notes = match_tensors(tensors, rows.values(), tied, ignore)
    if check_finite is None:
        check_finite = sum(view.nbytes for view in _distinct(matched).values()) < CHECK_BELOW_BYTES
    if check_finite:
        for view in _distinct(matched).values():
            # Blocks that only move have their scales looked at when they do.
            if view.stored not in FORMATS:
                check_tensor(view.name, view.data, view.dtype, view.file)
    plan = formats or FormatPlan()
    weighing = shared_importance(importance or {}, tied)
    made: dict[tuple[object, ...], tuple[NDArray[Any], bool]] = {}
    weights: dict[str, Weight] = {}
    with packer(threads) as packing:
        for name, view in matched.items():
            spec = rows[name]
            target = choose_format(spec, plan, view.stored)
            key = (view.name, target.name, spec.transform, spec.loaded_shape, spec.kind in VECTOR_KINDS)
            if key not in made:
                made[key] = make_array(spec, view, target, align, packing, weighing.get(name))
            array, mapped = made[key]
            weights[name] = Weight(name, target, array, spec, view.name, view.file, mapped, spec.final_shape)
    return WeightSet(weights, notes)


def match_tensors(
    tensors: Mapping[str, TensorView],
    table: Iterable[TensorSpec],
    tied: Mapping[str, str] | None = None,
    ignore: Iterable[str] = DEFAULT_IGNORE,
) -> tuple[dict[str, TensorView], tuple[str, ...]]:
    """Our names to the tensors they read, and notes; shapes and types are checked. Raises as `load_weights`."""
    rows = check_table(table)
    matched, notes = _match(tensors, rows, dict(tied or {}), tuple(ignore))
    for name, view in matched.items():
        _check_tensor(rows[name], view)
    return matched, notes


def shared_importance(
    importance: Mapping[str, NDArray[Any]], tied: Mapping[str, str]
) -> dict[str, NDArray[Any]]:
    """`importance` with the head's for the embedding that shares its tensor: they may share the packed bytes too."""
    found = dict(importance)
    for name, other in tied.items():
        if name in found:
            found.setdefault(other, found[name])
    return found


def choose_format(spec: TensorSpec, plan: FormatPlan, stored: str) -> Format:
    """The format that the weight of `spec` gets under `plan` when the file stores it as `stored` ("BF16", or "q8").

    Vectors are f32; else the wanted format when the table allows it, and the first that the table allows otherwise.
    """
    if spec.kind in VECTOR_KINDS:
        return FORMATS["f32"]
    wanted = plan.of(spec.part)
    if wanted == AUTO:
        own = format_of_dtype(stored)
        wanted = own.name if own else stored
    return FORMATS[wanted if wanted in spec.formats else spec.formats[0]]


# -- matching --------------------------------------------------------------------------------------------------------


def _match(
    tensors: Mapping[str, TensorView],
    rows: Mapping[str, TensorSpec],
    tied: Mapping[str, str],
    ignore: tuple[str, ...],
) -> tuple[dict[str, TensorView], tuple[str, ...]]:
    """Our names to tensors, in the order of the table, and notes; one error names all that is missing or left over."""
    sources = {name: list(spec.sources) for name, spec in rows.items()}
    for name, other in tied.items():
        if name in sources:
            # Either tensor serves both; the other's own names go first.
            sources[other] = sources[other] + [one for one in rows[name].sources if one not in sources[other]]
    for name, other in tied.items():
        if name in sources:
            sources[name] = sources[other]
    views: dict[str, TensorView] = {}
    missing: list[str] = []
    used: set[str] = set()
    for name, spec in rows.items():
        used.update(one for one in sources[name] if name in tied and one in tensors)
        source = next((one for one in sources[name] if one in tensors), None)
        if source is not None:
            used.add(source)
            views[name] = tensors[source]
        elif not spec.optional:
            missing.append(spec.sources[0])
    left = [one for one in tensors if one not in used and not any(fnmatchcase(one, p) for p in ignore)]
    _refuse(tensors, missing, left)
    return views, _tied_notes(tensors, rows, tied, views)


def _refuse(tensors: Mapping[str, TensorView], missing: list[str], left: list[str]) -> None:
    if not missing and not left:
        return
    where = getattr(tensors, "where", "the checkpoint")
    if missing and left:
        expected, got = f"the tensors {listed(missing)}", f"none of them, and left over {listed(left)}"
    elif missing:
        expected, got = f"the tensors {listed(missing)}", "no such tensors"
    else:
        expected, got = "only the tensors of this model", f"left over {listed(left)}"
    raise TensorError(
        f"reading {where}", expected=expected, got=got, fix="the file is not whole or does not fit its config.json"
    )


def _tied_notes(
    tensors: Mapping[str, TensorView],
    rows: Mapping[str, TensorSpec],
    tied: Mapping[str, str],
    views: Mapping[str, TensorView],
) -> tuple[str, ...]:
    """A note for each tied weight whose own tensor is in the file with other values."""
    notes = []
    for name in tied:
        own = next((one for one in rows[name].sources if one in tensors), None) if name in rows else None
        if own is None or own == views[name].name:
            continue
        if not _equal(tensors[own], views[name]):
            notes.append(
                f"{shown_name(own)} differs from {shown_name(views[name].name)}; "
                "the config ties them, so it is not used"
            )
    return tuple(notes)


def _equal(a: TensorView, b: TensorView) -> bool:
    """Whether two tensors hold the same bits, compared in blocks."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    left, right = a.data.reshape(-1).view(np.uint8), b.data.reshape(-1).view(np.uint8)
    step = _BLOCK * 4
    return all(
        np.array_equal(left[start : start + step], right[start : start + step]) for start in range(0, left.size, step)
    )


def _distinct(matched: Mapping[str, TensorView]) -> dict[str, TensorView]:
    return {view.name: view for view in matched.values()}


def _check_tensor(spec: TensorSpec, view: TensorView) -> None:
    view.require_float()
    if view.shape != spec.shape:
        raise TensorError(
            f"reading {view.file}, tensor {shown_name(view.name)}",
            expected=f"the shape {list(spec.shape)} (from config.json)",
            got=f"{list(view.shape)}",
        )


# -- making ----------------------------------------------------------------------------------------------------------


def make_array(
    spec: TensorSpec, view: TensorView, target: Format, align: int, packing: Packer, importance: NDArray[Any] | None
) -> tuple[NDArray[Any], bool]:
    """The stored array of a weight in the format `target`, and whether it is the mapped file itself."""
    own = format_of_dtype(view.dtype)
    assert own is not None  # _check_tensor refused the others
    if target.packing is not None and view.stored == target.name and spec.transform is None:
        return repacked(view, spec.loaded_shape, target.packing), False
    data = arranged(spec, view)
    if target.packing is not None:
        packed = packing.pack_view(view, data, target.name, target.packing, importance)
        packed.setflags(write=False)
        return packed, False
    boundary = max(align, target.storage.itemsize)
    if own is target and spec.kind not in VECTOR_KINDS:
        if alignment(data) >= boundary:
            data.setflags(write=False)
            return data, view.mapped and np.shares_memory(data, view.data)
        data = aligned_copy(data, max(boundary, 64))
    else:
        data = _convert(view, data, own, target, max(boundary, 64))
    data.setflags(write=False)
    return data, False


def arranged(spec: TensorSpec, view: TensorView) -> NDArray[Any]:
    """The tensor's elements in the shape and order of the weight; the mapped file itself where nothing moves."""
    data = view.data.reshape(spec.loaded_shape)
    return data if spec.transform is None else np.ascontiguousarray(spec.transform(data))


def _convert(view: TensorView, data: NDArray[Any], own: Format, target: Format, boundary: int) -> NDArray[Any]:
    """`data` from the format `own` to `target`, row block by row block; `TensorError` when a value does not fit."""
    result = aligned_empty(data.shape, target.storage, boundary)
    if data.size == 0:
        return result
    rows = data.reshape(data.shape[0], -1) if data.ndim else data.reshape(1, 1)
    out = result.reshape(rows.shape)
    step = max(1, _BLOCK // rows.shape[1])
    for start in range(0, rows.shape[0], step):
        values = own.decode(rows[start : start + step])
        block = target.encode(values)
        if own is not target and target.name != "f32":
            _check_fits(view, values, block, target)
        out[start : start + step] = block
    return result


def _check_fits(view: TensorView, values: NDArray[np.float32], block: NDArray[Any], target: Format) -> None:
    place = first_not_finite(block, target.dtype)
    if place is None:
        return
    value = float(values.reshape(-1)[place])
    got = f"{value:g}" if math.isfinite(value) else "NaN or infinity"
    raise TensorError(
        f"converting the tensor {shown_name(view.name)} of {view.file} to {target.name}",
        expected=f"numbers that {target.name} can hold",
        got=got,
        fix="choose f32 or bf16 for this part",
    )
