"""What `ouzel inspect` tells about a checkpoint, as JSON types. Maps the weights and reads none of them whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ouzel.checkpoint.folder import Checkpoint
    from ouzel.models.family import Family
    from ouzel.text.tokenizer import Tokenizer
    from ouzel.weights.weight_set import WeightSet

CONTEXTS = (4096, 32768)
"""Context lengths whose memory is told."""

PREPROCESSORS = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")

Summary = dict[str, Any]


def summarise(name: str, revision: str | None, offline: bool | None, weights: str, parts: Mapping[str, str | None], check: bool) -> Summary:
    """All of it. Raises what loading the model would raise, except for values that are not finite."""
    from ouzel.checkpoint.folder import Checkpoint
    from ouzel.checkpoint.packed import check_sums
    from ouzel.models.registry import make_family
    from ouzel.weights.formats import FormatPlan
    from ouzel.weights.open import planned_weights

    checkpoint = Checkpoint.open(name, revision=revision, offline=offline)
    family = make_family(checkpoint)
    checked = check_sums(checkpoint.path) if check and checkpoint.packed is not None else None
    loaded = planned_weights(checkpoint, family.tensor_table(), FormatPlan.preset(weights, **parts), tied=family.tied)
    return {
        "model": name,
        "folder": str(checkpoint.path),
        "family": family.name,
        "packed": packed_summary(checkpoint, checked),
        "config": config_rows(checkpoint.config),
        "weights": weight_summary(checkpoint, loaded),
        "memory": memory(family, loaded),
        "tokenizer": tokenizer_summary(checkpoint),
        "chat_template": template_origin(checkpoint.path),
        "pictures": picture_settings(checkpoint),
        "tensors": tensor_rows(loaded),
        "stages": stage_names(family),
    }


def packed_summary(checkpoint: Checkpoint, checked: int | None) -> Summary | None:
    """The header of a packed folder and how many files were compared with their checksums; None for a model folder."""
    if checkpoint.packed is None:
        return None
    header = checkpoint.packed
    return {"formats": dict(header.formats), "source": dict(header.source), "checked_files": checked}


def config_rows(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """config.json as flat keys ("text_config.hidden_size"); long lists are cut."""
    rows: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            rows |= config_rows(value, f"{prefix}{key}.")
        elif isinstance(value, list) and len(value) > 8:
            kinds = sorted({str(item) for item in value})
            rows[prefix + key] = f"{len(value)} entries: {', '.join(kinds[:4])}{', ...' if len(kinds) > 4 else ''}"
        else:
            rows[prefix + key] = value
    return rows


def weight_summary(checkpoint: Checkpoint, loaded: WeightSet) -> Summary:
    """Totals: parameters, bytes in files and by part, formats, notes."""
    formats: dict[str, int] = {}
    for weight in loaded.values():
        if weight.array.ndim > 1:
            formats[weight.format.name] = formats.get(weight.format.name, 0) + 1
    return {
        "files": [path.name for path in checkpoint.tensors.files],
        "file_bytes": checkpoint.tensors.total_bytes(),
        "parameters": loaded.parameters(),
        "bytes": loaded.total_bytes(),
        "mapped_bytes": sum(w.nbytes for w in {id(w.array): w for w in loaded.values()}.values() if w.mapped),
        "bytes_by_part": loaded.bytes_by_part(),
        "matrix_formats": formats,
        "notes": list(loaded.notes),
    }


def memory(family: Family, loaded: WeightSet) -> Summary:
    """Bytes of weights and cache (float32) at a few context lengths."""
    per_token = 4 * family.text_graph().cache_numbers
    total = loaded.total_bytes()
    contexts = [
        {"tokens": tokens, "cache_bytes": per_token * tokens, "total_bytes": total + per_token * tokens}
        for tokens in CONTEXTS
    ]
    return {"cache_bytes_per_token": per_token, "max_context": family.sizes.max_context, "contexts": contexts}


def tokenizer_summary(checkpoint: Checkpoint) -> Summary | None:
    """Vocabulary, end tokens, added tokens; None for a folder without a tokenizer."""
    from ouzel.text.tokenizer import Tokenizer

    if not checkpoint.has_tokenizer:
        return None
    tokenizer = Tokenizer.from_folder(checkpoint.path)
    ends = checkpoint.eos_token_ids(tokenizer.id_of)
    return {
        "vocabulary": tokenizer.vocab_size,
        "named": dict(tokenizer.named),
        "end_tokens": [_token(tokenizer, token) for token in ends],
        "added": [
            {"id": token, "text": added.content, "special": added.special}
            for token, added in tokenizer.added_tokens.items()
        ],
    }


def _token(tokenizer: Tokenizer, token: int) -> Summary:
    return {"id": token, "text": tokenizer.token_of(token)}


def template_origin(folder: Path) -> str | None:
    """The file that the chat template stands in."""
    from ouzel.text.template_files import load_template

    template = load_template(folder)
    return None if template is None else template.origin


def picture_settings(checkpoint: Checkpoint) -> Summary:
    """The preprocessor files, flat, by file name."""
    found = {name: checkpoint.json(name) for name in PREPROCESSORS}
    return {name: config_rows(data) for name, data in found.items() if data is not None}


def tensor_rows(loaded: WeightSet) -> list[Summary]:
    """One row for each weight, in the order of the family's table."""
    return [
        {
            "name": weight.name,
            "source": weight.source,
            "file": weight.file.name,
            "part": weight.spec.part,
            "shape": list(weight.shape),
            "format": weight.format.name,
            "bytes": weight.nbytes,
            "mapped": weight.mapped,
        }
        for weight in loaded.values()
    ]


def stage_names(family: Family) -> list[str]:
    """Every name that `Model.stages` takes."""
    from ouzel.generation.stages import StageRunner

    return list(StageRunner(family, _never_compiled).available())


def _never_compiled(part: str, names: Any) -> Any:
    raise AssertionError("names of stages need no executable")
