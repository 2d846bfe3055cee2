"""The families by `model_type` of config.json. A new family is a folder beside this file and a line here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from ouzel.checkpoint.folder import Checkpoint
from ouzel.errors import UnsupportedError
from ouzel.models.family import Family

_FAMILIES = {
    "llama": ("llama.family", "Llama"),
    "qwen3": ("qwen3.family", "Qwen3"),
    "qwen3_vl": ("qwen3_vl.family", "Qwen3VL"),
}


def family_names() -> tuple[str, ...]:
    """The model types that can be loaded."""
    return tuple(_FAMILIES)


def make_family(checkpoint: Checkpoint) -> Family:
    """The family of a checkpoint, with its configuration read.

    Raises UnsupportedError for an unknown model type, naming those that exist, and ConfigError for a bad configuration.
    """
    found = _FAMILIES.get(checkpoint.model_type)
    if found is None:
        raise UnsupportedError(
            f"loading {checkpoint.path}",
            expected=f"config.json with model_type among {', '.join(_FAMILIES)}",
            got=repr(checkpoint.model_type),
        )
    module, name = found
    maker: Callable[[Checkpoint], Family] = getattr(import_module(f"ouzel.models.{module}"), name)
    return maker(checkpoint)
