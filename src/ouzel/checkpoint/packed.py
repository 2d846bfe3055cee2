"""The packed folder: Ouzel's own form of a checkpoint. Its header model.json, and its checksums.

A packed folder holds model.json, weights.safetensors, the tokenizer, template and preprocessor files of the source, and
SHA256SUMS. docs/formats.md describes it for other readers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ouzel.checkpoint.json_file import os_error, read_bytes, read_json
from ouzel.checkpoint.safetensors_file import open_safetensors
from ouzel.checkpoint.tensor_index import TensorIndex
from ouzel.checkpoint.text import shown, shown_name
from ouzel.errors import CheckpointError, UnsupportedError

HEADER = "model.json"
WEIGHTS = "weights.safetensors"
SUMS = "SHA256SUMS"

FORMAT = "ouzel-packed"
VERSION = 1

PADDING = "padding."
"""Tensors with this prefix fill up to the next multiple of 64; they hold nothing."""

_SUM_LINE = re.compile(r"^([0-9a-f]{64})  ([^/\\\0]{1,255})$")
_BLOCK = 1 << 22


@dataclass(frozen=True)
class PackedHeader:
    """model.json: `family` (its model_type), `config` (the source's config.json), `formats` by part, `source` for people."""

    family: str
    config: dict[str, Any]
    formats: Mapping[str, str]
    source: Mapping[str, Any]


def is_packed(folder: Path) -> bool:
    """Whether the folder says that it is a packed one; a config.json of a model folder goes first."""
    try:
        if not (folder / HEADER).is_file():
            return False
        if not (folder / "config.json").is_file():
            return True
    except OSError:  # whoever reads the folder next says what is wrong
        return False
    try:
        return read_json(folder / HEADER).get("format") == FORMAT
    except CheckpointError:
        return False


def read_header(folder: Path) -> PackedHeader:
    """The checked header of a packed folder.

    Raises CheckpointError when it is damaged or incomplete, UnsupportedError for a newer version, by its number.
    """
    path = folder / HEADER
    data = read_json(path)
    if data.get("format") != FORMAT:
        raise CheckpointError(
            f"reading {path}", expected=f"'format' to be '{FORMAT}'", got=shown(data.get("format")),
            fix="give a packed folder that `ouzel convert` made, or a model folder with its config.json",
        )  # fmt: skip
    version = data.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise CheckpointError(f"reading {path}", expected="'version' to be a whole number from 1", got=shown(version))
    if version > VERSION:
        raise UnsupportedError(
            f"reading {path}", expected=f"a packed folder of version {VERSION} or older", got=f"version {version}",
            fix="update Ouzel, or convert the model again with this one",
        )  # fmt: skip
    family = _typed(path, data, "family", str, "a string")
    config = _typed(path, data, "config", dict, "an object")
    formats = _typed(path, data, "formats", dict, "an object")
    source = data.get("source", {})
    if not all(isinstance(value, str) for value in formats.values()):
        raise CheckpointError(f"reading {path}", expected="'formats' to hold names of formats", got=shown(formats))
    if config.get("model_type") != family:
        raise CheckpointError(
            f"reading {path}", expected=f"'family' to be config's model_type {shown(config.get('model_type'))}", got=shown(family)
        )
    return PackedHeader(family, config, formats, source if isinstance(source, dict) else {})


def _typed(path: Path, data: Mapping[str, Any], key: str, kind: type, words: str) -> Any:
    value = data.get(key)
    if not isinstance(value, kind):
        raise CheckpointError(f"reading {path}", expected=f"'{key}' to be {words}", got=shown(value))
    return value


def open_packed_tensors(folder: Path) -> TensorIndex:
    """The tensors of a packed folder by our names, padding left out."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise CheckpointError(f"reading {folder}", expected=WEIGHTS, got="no such file", fix="convert the model again")
    file = open_safetensors(path)
    return TensorIndex(path, {name: file for name in file if not name.startswith(PADDING)})


def file_sha256(path: Path, progress: Callable[[int], None] | None = None) -> str:
    """The SHA-256 of a file in hexadecimal; `progress` is told the bytes of every piece read."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                if progress is not None:
                    progress(len(block))
    except OSError as error:
        raise os_error(f"reading {path.name}", path, error) from None
    return digest.hexdigest()


def check_sums(folder: Path, progress: Callable[[int], None] | None = None) -> int:
    """Compares every file with SHA256SUMS and gives their number.

    Raises CheckpointError naming the first file that differs, is missing, or is not listed at all.
    """
    listed = _read_sums(folder)
    for needed in (HEADER, WEIGHTS):
        if needed not in listed:
            raise CheckpointError(f"reading {folder / SUMS}", expected=f"a line for {needed}", got="none")
    for name, wanted in listed.items():
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"checking {folder}", expected=f"the file {shown_name(name)}", got="no such file")
        found = file_sha256(path, progress)
        if found != wanted:
            raise CheckpointError(
                f"checking {path}", expected=f"the SHA-256 {wanted[:12]}...", got=f"{found[:12]}...",
                fix="the file is damaged; convert or copy it again",
            )  # fmt: skip
    extra = sorted(p.name for p in folder.iterdir() if p.is_file() and p.name not in listed and p.name != SUMS)
    if extra:
        raise CheckpointError(f"checking {folder}", expected=f"only files that {SUMS} lists", got=shown_name(extra[0]))
    return len(listed)


def _read_sums(folder: Path) -> dict[str, str]:
    path = folder / SUMS
    if not path.is_file():
        raise CheckpointError(f"checking {folder}", expected=SUMS, got="no such file")
    try:
        lines = read_bytes(path, 1 << 20).decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise CheckpointError(f"reading {path}", expected="UTF-8 text", got="other bytes") from None
    sums: dict[str, str] = {}
    for line in lines:
        match = _SUM_LINE.match(line)
        if match is None or match[2] in (".", ".."):
            raise CheckpointError(f"reading {path}", expected="lines of a SHA-256 and a file name", got=shown(line[:80]))
        sums[match[2]] = match[1]
    return sums
