"""Writing and reading weights.safetensors of a packed folder: our names, packed bytes as U8, every tensor on 64 bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.packed import PADDING
from ouzel.checkpoint.safetensors_file import TensorView
from ouzel.checkpoint.text import listed, shown_name
from ouzel.errors import TensorError
from ouzel.weights.check import check_finite
from ouzel.weights.formats import AUTO, FORMATS, Format, FormatPlan, format_of_dtype
from ouzel.weights.table import VECTOR_KINDS, TensorSpec, check_table
from ouzel.weights.weight_set import Weight, WeightSet

ALIGN = 64


@dataclass(frozen=True)
class Entry:
    """A tensor to write: `form` says the type, `shape` is the stored one."""

    name: str
    form: Format
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the stored elements."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.form.storage.itemsize

    @property
    def dtype(self) -> str:
        """The word in the header."""
        return self.form.dtype or "U8"


def entry_of(spec: TensorSpec, form: Format) -> Entry:
    """What the weight of `spec` is in a packed file."""
    shape = spec.final_shape
    return Entry(spec.name, form, shape if form.packing is None else form.packing.shape(shape[0], shape[1]))


def write_packed(path: Path, entries: Iterable[Entry], make: Callable[[Entry], NDArray[Any]]) -> str:
    """Writes the file, one array of `make` at a time, and gives its SHA-256. Errors of the system pass through."""
    entries = list(entries)
    head = _header(entries)
    digest = hashlib.sha256(head)
    with open(path, "wb") as file:
        file.write(head)
        for entry in entries:
            array = make(entry)
            assert array.nbytes == entry.nbytes and array.flags.c_contiguous
            rest = bytes(-entry.nbytes % ALIGN)
            for piece in (memoryview(array.reshape(-1).view(np.uint8)), rest):
                file.write(piece)
                digest.update(piece)
            del array
    return digest.hexdigest()


def _header(entries: list[Entry]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "ouzel-packed"}}
    place = 0
    for number, entry in enumerate(entries):
        end = place + entry.nbytes
        header[entry.name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [place, end]}
        place = end + -end % ALIGN
        if place > end:
            header[f"{PADDING}{number}"] = {"dtype": "U8", "shape": [place - end], "data_offsets": [end, place]}
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-(len(text) + 8) % ALIGN)
    return len(text).to_bytes(8, "little") + text


def read_packed(
    tensors: Mapping[str, TensorView], table: Iterable[TensorSpec], plan: FormatPlan, *, tied: Mapping[str, str] | None = None
) -> WeightSet:
    """The weights of a packed folder: the mapped file, nothing converted.

    `plan` is what model.json says: packed bytes of a part are in its format. Raises TensorError naming what is missing,
    left over, or not of the size that the table asks for.
    """
    rows = check_table(table)
    where = getattr(tensors, "where", "the packed folder")
    sources = {name: _source(name, tensors, tied or {}) for name in rows}
    missing = [name for name, source in sources.items() if source not in tensors and not rows[name].optional]
    left = [name for name in tensors if name not in sources.values()]
    if missing or left:
        raise TensorError(
            f"reading {where}",
            expected=f"the tensors {listed(missing)}" if missing else "only the tensors of this model",
            got=f"left over {listed(left)}" if left else "no such tensors",
            fix="convert the model again",
        )
    made: dict[tuple[str, str], NDArray[Any]] = {}
    weights: dict[str, Weight] = {}
    for name, source in sources.items():
        if source not in tensors:
            continue
        view, spec = tensors[source], rows[name]
        form = _form(spec, view, plan)
        array = made.setdefault((source, form.name), view.aligned(ALIGN))
        weights[name] = Weight(name, form, array, spec, source, view.file, np.shares_memory(array, view.data), spec.final_shape)
    return WeightSet(weights)


def _source(name: str, tensors: Mapping[str, TensorView], tied: Mapping[str, str]) -> str:
    return tied[name] if name in tied and name not in tensors else name


def _form(spec: TensorSpec, view: TensorView, plan: FormatPlan) -> Format:
    """The format of a stored tensor, with its type and shape checked."""
    form = format_of_dtype(view.dtype)
    if view.dtype == "U8" and spec.kind not in VECTOR_KINDS:
        wanted = plan.of(spec.part)
        form = FORMATS[wanted] if wanted != AUTO and FORMATS[wanted].packing is not None else None
    allowed = ("f32",) if spec.kind in VECTOR_KINDS else spec.formats
    where = f"reading {view.file}, tensor {shown_name(view.name)}"
    if form is None or form.name not in allowed:
        raise TensorError(where, expected=f"one of the formats {', '.join(allowed)}", got=view.dtype, fix="convert the model again")
    wanted_shape = entry_of(spec, form).shape
    if view.shape != wanted_shape:
        raise TensorError(where, expected=f"the shape {list(wanted_shape)} ({form.name})", got=f"{list(view.shape)}")
    if spec.kind in VECTOR_KINDS:
        check_finite(view.name, view.data, view.dtype, view.file)
    return form
