"""Ouzel runs small vision-language models on ordinary machines without PyTorch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ouzel.errors import OuzelError

if TYPE_CHECKING:
    from ouzel.engines.base import CancelToken
    from ouzel.generation.request import Chunk, Prompt, Result, Timings, Usage
    from ouzel.model import Model, Stream, load

__version__ = "0.1.0"

# Loaded on first use: `import ouzel` stays quick, and `ouzel --help` needs none of them.
_LAZY = {
    "load": "ouzel.model",
    "Model": "ouzel.model",
    "Stream": "ouzel.model",
    "Chunk": "ouzel.generation.request",
    "Prompt": "ouzel.generation.request",
    "Result": "ouzel.generation.request",
    "Timings": "ouzel.generation.request",
    "Usage": "ouzel.generation.request",
    "CancelToken": "ouzel.engines.base",
}

__all__ = ["OuzelError", "__version__", *_LAZY]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'ouzel' has no attribute {name!r}")
