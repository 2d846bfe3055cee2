"""Captures goldens: runs cases through transformers and writes every stage."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.folder import Checkpoint
from ouzel.errors import CheckpointError, RequestError
from ouzel.verify import manifest
from ouzel.verify.cases import Case
from ouzel.verify.golden import SCHEMA
from ouzel.verify.hooks import has_deepstack, recording
from ouzel.verify.inputs import Inputs
from ouzel.verify.torch_model import is_large, load_reference, need_torch, plain_errors

Memory = Literal["auto", "whole", "streamed"]
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "pillow", "numpy")
HASHED = (".json", ".jinja", ".txt", ".safetensors")


@dataclass(frozen=True)
class CaptureOptions:
    """max_tokens: greedy tokens of each answer. memory: the whole model, or one layer at a time; auto decides by its size."""

    max_tokens: int = 32
    memory: Memory = "auto"
    trust_remote_code: bool = False
    revision: str | None = None


def capture(
    checkpoint: Checkpoint,
    cases: Sequence[Case],
    out: Path,
    options: CaptureOptions,
    told: Callable[[str], None] = lambda text: None,
) -> list[Path]:
    """Writes each case to `out` (pictures are in out/images already) and gives the paths of the .safetensors files.

    Raises UnsupportedError without torch and for models that transformers cannot run, CheckpointError for folders that
    cannot be written.
    """
    need_torch()
    if options.max_tokens < 1:
        raise RequestError("max_tokens", expected="a whole number from 1", got=str(options.max_tokens))
    streamed = options.memory == "streamed" or (options.memory == "auto" and is_large(checkpoint))
    told(f"loading {checkpoint.name} in transformers" + (", one layer at a time" if streamed else ""))
    model = load_reference(checkpoint, streamed=streamed, trust_remote_code=options.trust_remote_code)
    with plain_errors(checkpoint, options.trust_remote_code):
        inputs = Inputs(checkpoint, options.trust_remote_code)
        about = _about(checkpoint, options, streamed, inputs.how)
        paths = []
        for case in cases:
            told(f"case {case.name}")
            data, arrays = _run(model, inputs, case, out / "images", options.max_tokens)
            paths.append(_write(out, case.name, about | data, arrays))
    return paths


def _run(model: Any, inputs: Inputs, case: Case, images: Path, max_tokens: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    import torch

    made, prompt, expanded = inputs.make(case, images)
    with torch.no_grad(), recording(model) as (recorder, positions):
        model(**made, use_cache=False)
    stages = _without_idle_deepstack(recorder.arrays(), "pixel_values" in made and has_deepstack(model))
    arrays = {name: _integers_or_floats(value) for name, value in made.items() if hasattr(value, "detach")}
    count = made["input_ids"].shape[1]
    arrays |= {"position_ids": np.arange(count, dtype=np.int64)[None], **positions, **stages}
    deltas = getattr(getattr(model, "model", None), "rope_deltas", None)
    if deltas is not None and "pixel_values" in made:
        arrays["rope_deltas"] = deltas.numpy().astype(np.int64)
    ids, logits = _generate(model, made, max_tokens)
    arrays |= {"generated_ids": ids, "step_logits": logits}
    data = {
        "case": case.name, "messages": case.messages, "template_kwargs": case.template, "prompt": prompt, "expanded_prompt": expanded,
        "text": inputs.decode(ids.tolist()), "notes": case.note,
        "generation": {"do_sample": False, "max_new_tokens": max_tokens, "eos_token_id": None, "repetition_penalty": 1.0},
    }  # fmt: skip
    return data, arrays


def _generate(model: Any, made: dict[str, Any], max_tokens: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Greedy over raw logits, past end tokens: ids and the logits of every step."""
    import torch
    from transformers import GenerationConfig

    # The checkpoint's own defaults (sampling, penalties, end tokens) would mix in.
    model.generation_config = GenerationConfig(do_sample=False, max_new_tokens=max_tokens, eos_token_id=None, pad_token_id=0)
    with torch.no_grad():
        found = model.generate(**made, return_dict_in_generate=True, output_logits=True)
    ids = found.sequences[0, made["input_ids"].shape[1] :].numpy().astype(np.int64)
    return ids, np.concatenate([row.float().numpy() for row in found.logits]).astype(np.float32)


def _without_idle_deepstack(arrays: dict[str, NDArray[Any]], used: bool) -> dict[str, NDArray[Any]]:
    """Layers after which nothing is added need no second copy of their output."""
    kept = {}
    for name, array in arrays.items():
        plain = arrays.get(name.removesuffix(".after_deepstack"))
        if name.endswith(".after_deepstack") and (not used or (plain is not None and np.array_equal(plain, array))):
            continue
        kept[name] = array
    return kept


def _integers_or_floats(value: Any) -> NDArray[Any]:
    array = value.detach().numpy()
    return array.astype(np.float32) if array.dtype.kind == "f" else array.astype(np.int64)


def _about(checkpoint: Checkpoint, options: CaptureOptions, streamed: bool, how: str) -> dict[str, Any]:
    """What is the same for all cases: versions, revision, hashes, settings."""
    names = [name for name in manifest.assets(checkpoint.path) if "/" not in name and name.endswith(HASHED)]
    return {
        "schema": SCHEMA,
        "family": checkpoint.model_type,
        "made_with": {name: found for name in PACKAGES if (found := _version(name))},
        "checkpoint": {
            "name": checkpoint.name if not Path(checkpoint.name).exists() else checkpoint.path.name,
            "revision": _commit(checkpoint) or options.revision,
            "sha256": {name: manifest.sha256(checkpoint.path / name) for name in names},
        },
        "settings": {
            "dtype": "float32", "attention": "eager", "device": "cpu", "layers_in_memory": "one" if streamed else "all",
            "inputs": how, "trust_remote_code": options.trust_remote_code,
        },
    }  # fmt: skip


def _commit(checkpoint: Checkpoint) -> str | None:
    """The commit of a hub id: its folder in the Hugging Face cache is called so."""
    return checkpoint.path.name if checkpoint.path.parent.name == "snapshots" else None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _write(out: Path, name: str, data: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Path:
    """Both files of a case, whole or not at all; the tensors, which make a case, come last."""
    from safetensors.numpy import save_file

    try:
        out.mkdir(parents=True, exist_ok=True)
        half = out / f"{name}.json.part"
        half.write_text(json.dumps(data, ensure_ascii=False, indent=1), encoding="utf-8")
        os.replace(half, out / f"{name}.json")
        half = out / f"{name}.safetensors.part"
        save_file({key: np.ascontiguousarray(value) for key, value in sorted(arrays.items())}, half)
        os.replace(half, out / f"{name}.safetensors")
    except OSError as error:
        raise CheckpointError(
            f"writing goldens to {out}", expected="a folder that can be written", got=error.strerror or str(error)
        ) from None
    return out / f"{name}.safetensors"
