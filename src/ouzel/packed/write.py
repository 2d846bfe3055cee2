"""Writing a packed folder: into a temporary folder beside its place, renamed when it is whole."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

import ouzel
from ouzel.checkpoint.folder import Checkpoint
from ouzel.checkpoint.json_file import os_error
from ouzel.checkpoint.packed import (
    FORMAT,
    HEADER,
    SUMS,
    VERSION,
    WEIGHTS,
    file_sha256,
    is_packed,
)
from ouzel.errors import CheckpointError, RequestError, UnsupportedError
from ouzel.models.registry import make_family
from ouzel.weights.check import check_finite
from ouzel.weights.formats import PARTS, FormatPlan
from ouzel.weights.load import (
    choose_format,
    make_array,
    match_tensors,
    shared_importance,
)
from ouzel.weights.pack import Packer, packer
from ouzel.weights.packed_file import ALIGN, Entry, entry_of, write_packed
from ouzel.weights.table import VECTOR_KINDS

COPIED = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
    "generation_config.json",
    "LICENSE",
    "LICENSE.txt",
    "LICENSE.md",
    "NOTICE",
)
"""Files of the source that a packed folder keeps as they are."""

Progress = Callable[[str, int, int], None]
"""Told what is done, and bytes of how many: ("writing", 100, 2000)."""


def convert(
    checkpoint: Checkpoint,
    destination: Path,
    plan: FormatPlan,
    *,
    importance: Mapping[str, NDArray[Any]] | None = None,
    notes: Mapping[str, Any] | None = None,
    force: bool = False,
    hash_source: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Writes `checkpoint` as the packed folder `destination` and gives its path.

    Beside the mapped source, memory holds one packed tensor at a time. `importance` as in `load_weights`; `notes` go into
    model.json's "source". `hash_source` notes the SHA-256 of the source's weight files.
    Raises UnsupportedError for GGUF files, RequestError when the destination exists (a packed folder is replaced with `force`) or the source is packed
    already, and what loading the source raises; nothing is left behind then.
    """
    if checkpoint.packed is not None:
        raise RequestError(f"converting {checkpoint.path}", expected="a model folder", got="a packed folder", fix="convert its source")
    if not checkpoint.path.is_dir():
        raise UnsupportedError(
            f"converting {checkpoint.path}", expected="a model folder", got="a GGUF file", fix="load it as it is, or convert the model's folder"
        )
    _check_place(checkpoint, destination, force)
    tell = progress or (lambda what, done, total: None)
    with _replacing(destination) as folder:
        sums = {name: _copied(checkpoint, name, folder) for name in COPIED if checkpoint.file(name)}
        sums[WEIGHTS] = _write_weights(checkpoint, folder / WEIGHTS, plan, importance or {}, threads, tell)
        header = _header(checkpoint, plan, {**_source(checkpoint, hash_source, tell), **(notes or {})})
        sums[HEADER] = _written(folder / HEADER, json.dumps(header, ensure_ascii=False, indent=1) + "\n")
        _written(folder / SUMS, "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))
    return destination


def _header(checkpoint: Checkpoint, plan: FormatPlan, source: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "made_by": f"ouzel {ouzel.__version__}",
        "family": checkpoint.model_type,
        "formats": {part: plan.of(part) for part in PARTS},
        "source": dict(source),
        "config": checkpoint.config,
    }


def _source(checkpoint: Checkpoint, hashed: bool, tell: Progress) -> dict[str, Any]:
    """Where the weights came from: name, and size and hash of every file."""
    files = checkpoint.tensors.files
    total, done = sum(file.stat().st_size for file in files), 0
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        found[file.name] = {"bytes": file.stat().st_size}
        if hashed:

            def count(read: int) -> None:
                nonlocal done
                done += read
                tell("hashing the source", done, total)

            found[file.name]["sha256"] = file_sha256(file, count)
    # A path on this machine says nothing elsewhere: the folder's own name does.
    name = checkpoint.path.resolve().name if Path(checkpoint.name).exists() else checkpoint.name
    return {"name": name, "files": found}


def _write_weights(
    checkpoint: Checkpoint,
    path: Path,
    plan: FormatPlan,
    importance: Mapping[str, NDArray[Any]],
    threads: int | None,
    tell: Progress,
) -> str:
    family = make_family(checkpoint)
    table = {spec.name: spec for spec in family.tensor_table()}
    views, _ = match_tensors(checkpoint.tensors, table.values(), family.tied)
    forms = {name: choose_format(table[name], plan, view.dtype) for name, view in views.items()}
    # A tied weight is stored once where both have one format.
    shared = {name for name, other in family.tied.items() if name in views and other in views and forms[name] is forms[other]}
    weighing = shared_importance(importance, family.tied)
    entries = [entry_of(table[name], form) for name, form in forms.items() if name not in shared]
    total, done = sum(entry.nbytes for entry in entries), 0
    with packer(threads) as packing:

        def make(entry: Entry) -> NDArray[Any]:
            nonlocal done
            array = _make(entry, table, views, packing, weighing)
            done += entry.nbytes
            tell("packing", done, total)
            return array

        return write_packed(path, entries, make)


def _make(entry: Entry, table: Mapping[str, Any], views: Mapping[str, Any], packing: Packer, weighing: Mapping[str, Any]) -> NDArray[Any]:
    view, spec = views[entry.name], table[entry.name]
    if entry.form.packing is None or spec.kind in VECTOR_KINDS:
        check_finite(view.name, view.data, view.dtype, view.file)
    return make_array(spec, view, entry.form, ALIGN, packing, weighing.get(entry.name))[0]


def _copied(checkpoint: Checkpoint, name: str, folder: Path) -> str:
    shutil.copyfile(checkpoint.path / name, folder / name)
    return file_sha256(folder / name)


def _written(path: Path, text: str) -> str:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
    return file_sha256(path)


# -- the place -------------------------------------------------------------------------------------------------------


def _check_place(checkpoint: Checkpoint, destination: Path, force: bool) -> None:
    where = f"converting to {destination}"
    if destination.resolve() == checkpoint.path.resolve():
        raise RequestError(where, expected="another folder than the source", got="the source itself")
    if not destination.parent.is_dir():
        raise RequestError(where, expected=f"an existing folder {destination.parent}", got="no such folder")
    if not (destination.exists() or destination.is_symlink()):
        return
    if not force:
        raise RequestError(where, expected="a new folder", got="one that exists", fix="give --force to replace a packed folder")
    if not destination.is_dir() or destination.is_symlink() or not is_packed(destination):
        raise RequestError(where, expected="a packed folder to replace", got="something else", fix="give another place")


@contextmanager
def _replacing(destination: Path) -> Iterator[Path]:
    """A temporary folder that takes the place of `destination` at the end, or is gone after an error."""
    folder = None
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", suffix=".part", dir=destination.parent))
        # mkdtemp makes folders that only their owner may enter.
        folder.chmod(0o777 & ~_umask())
        yield folder
        _swap(folder, destination)
    except OSError as error:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise os_error(f"writing {destination}", error.filename or destination, error) from None
    except BaseException:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _swap(folder: Path, destination: Path) -> None:
    if not destination.exists():
        os.rename(folder, destination)
        return
    old = folder.with_suffix(".old")
    os.rename(destination, old)
    try:
        os.rename(folder, destination)
    except OSError:
        os.rename(old, destination)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
