"""The special tokens that a checkpoint names in `tokenizer_config.json` and `special_tokens_map.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ouzel.errors import CheckpointError
from ouzel.text.files import read_json

NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
LIST_NAMES = ("additional_special_tokens", "extra_special_tokens")


def named_special_tokens(folder: Path) -> dict[str, str]:
    """`bos_token`, `eos_token`, ... as strings, those that are set. `tokenizer_config.json` wins over the older map."""
    found: dict[str, str] = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        data = read_json(folder / file)
        if data is None:
            continue
        for name in NAMES:
            if name in data:
                found.pop(name, None)
                text = _content(data[name], folder / file, name)
                if text is not None:
                    found[name] = text
    return found


def extra_special_tokens(folder: Path) -> list[str]:
    """The unnamed special tokens, in the order of the files and without repeats."""
    found: dict[str, None] = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        data = read_json(folder / file) or {}
        for name in LIST_NAMES:
            value = data.get(name) or []
            values = list(value.values()) if isinstance(value, dict) else value
            if not isinstance(values, list):
                raise CheckpointError(f"{folder / file}: {name}", expected="a list", got=type(value).__name__)
            for item in values:
                text = _content(item, folder / file, name)
                if text:
                    found[text] = None
    return list(found)


def _content(value: Any, path: Path, name: str) -> str | None:
    """A token is a string, or a dictionary with `content` in older files; null and false mean that it is not set."""
    if value is None or value is False:
        return None
    if isinstance(value, dict):
        value = value.get("content")
    if not isinstance(value, str):
        raise CheckpointError(f"{path}: {name}", expected="a token string", got=type(value).__name__)
    return value
