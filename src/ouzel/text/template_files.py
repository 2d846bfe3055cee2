"""Finding the chat template in a checkpoint folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ouzel.errors import CheckpointError
from ouzel.text.files import read_json, read_text
from ouzel.text.special import named_special_tokens
from ouzel.text.template import ChatTemplate

# A folder with one of these belongs to a model with pictures, whose processor reads the template.
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")


def load_template(folder: str | Path) -> ChatTemplate | None:
    """The chat template of a checkpoint folder, or None when it has none.

    Order, as in transformers: with a processor, `chat_template.json` and then `chat_template.jinja`; without one,
    `chat_template.jinja` first. `tokenizer_config.json` comes last; there it is one string or a list of named templates, of
    which "default" is used, and "tool_use" when tools are given. The folder `additional_chat_templates` is not read.
    """
    root = Path(folder)
    finders = [_from_jinja, _from_json]
    if any((root / name).is_file() for name in PROCESSOR_FILES):
        finders = [_from_processor, _from_json, _from_jinja]
    for finder in (*finders, _from_tokenizer_config):
        found = finder(root)
        if found is not None:
            origin, source, tool_source = found
            return ChatTemplate(source, named_special_tokens(root), tool_source=tool_source, origin=origin)
    return None


_Found = tuple[str, str, "str | None"]


def _from_jinja(root: Path) -> _Found | None:
    text = read_text(root / "chat_template.jinja")
    return None if text is None else ("chat_template.jinja", text, None)


def _from_json(root: Path) -> _Found | None:
    data = read_json(root / "chat_template.json")
    return None if data is None else _pick(data.get("chat_template"), root / "chat_template.json", required=True)


def _from_processor(root: Path) -> _Found | None:
    data = read_json(root / "processor_config.json")
    return None if data is None else _pick(data.get("chat_template"), root / "processor_config.json")


def _from_tokenizer_config(root: Path) -> _Found | None:
    data = read_json(root / "tokenizer_config.json")
    return None if data is None else _pick(data.get("chat_template"), root / "tokenizer_config.json")


def _pick(value: Any, path: Path, *, required: bool = False) -> _Found | None:
    if value is None and not required:
        return None
    if isinstance(value, str):
        return path.name, value, None
    named = _named(value)
    if named is None or not isinstance(named.get("default"), str):
        got = type(value).__name__ if named is None else f"templates named {', '.join(map(str, named)) or 'nothing'}"
        raise CheckpointError(f"{path}: chat_template", expected="a template, or a list with one named default", got=got)
    tool_source = named.get("tool_use")
    return path.name, named["default"], tool_source if isinstance(tool_source, str) else None


def _named(value: Any) -> dict[str, Any] | None:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list) and all(isinstance(item, Mapping) and "name" in item for item in value):
        return {str(item["name"]): item.get("template") for item in value}
    return None
