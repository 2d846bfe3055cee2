"""Packed folders in the user's cache: made at the first load in given formats, mapped at the next."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from ouzel import env
from ouzel.checkpoint.folder import Checkpoint
from ouzel.checkpoint.json_file import os_error
from ouzel.checkpoint.packed import VERSION
from ouzel.errors import CheckpointError, RequestError, UnsupportedError
from ouzel.models.registry import make_family
from ouzel.packed.write import COPIED, convert
from ouzel.weights.formats import PARTS, FormatPlan
from ouzel.weights.open import open_weights

# Raised when the packer chooses other codes than before for the same weights: old entries are then not found.
_CODES = 1


def cached_folder(checkpoint: Checkpoint, plan: FormatPlan) -> Path:
    """Where the cache keeps this checkpoint in these formats.

    The name depends on the formats, on config.json and the other small files, and on name, size and time of change of
    every weight file.
    """
    files = [checkpoint.path / name for name in ("config.json", *COPIED) if checkpoint.file(name)]
    try:
        small = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
        large = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in checkpoint.tensors.files]
    except OSError as error:
        raise os_error("reading the checkpoint", checkpoint.path, error) from None
    formats = {part: plan.of(part) for part in PARTS}
    told = json.dumps([VERSION, _CODES, formats, sorted(small.items()), large], sort_keys=True)
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", checkpoint.path.resolve().name)[:60].strip(".-") or "model"
    return Path(env.get("OUZEL_CACHE")) / "packed" / f"{label}-{hashlib.sha256(told.encode()).hexdigest()[:20]}"


def packed_in_cache(checkpoint: Checkpoint, plan: FormatPlan, threads: int | None = None) -> Checkpoint:
    """The checkpoint as a packed folder of the user's cache, made when it is not there or damaged.

    A plan that packs nothing, a packed folder and a GGUF file are given back as they are.
    """
    if checkpoint.packed is not None or not plan.packs or not checkpoint.path.is_dir():
        return checkpoint
    folder = cached_folder(checkpoint, plan)
    kept = _opened(folder)
    if kept is not None:
        return kept
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise os_error("making the folder for packed models", folder.parent, error) from None
    try:
        convert(checkpoint, folder, plan, force=True, hash_source=False, threads=threads)
    except (CheckpointError, RequestError):
        # Another process may have put the same folder there meanwhile.
        kept = _opened(folder)
        if kept is None:
            raise
        return kept
    return Checkpoint.open(folder)


def _opened(folder: Path) -> Checkpoint | None:
    """The entry when it is whole in form, else None."""
    if not folder.is_dir():
        return None
    try:
        kept = Checkpoint.open(folder)
        family = make_family(kept)
        open_weights(kept, family.tensor_table(), tied=family.tied)
    except (CheckpointError, UnsupportedError):
        return None
    return kept
