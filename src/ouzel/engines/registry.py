"""The engines by name."""

from __future__ import annotations

from collections.abc import Callable

from ouzel.errors import EngineError
from ouzel.engines.base import Engine


def _reference(threads: int | None) -> Engine:
    from ouzel.engines.reference.engine import ReferenceEngine

    return ReferenceEngine()


def _native(threads: int | None) -> Engine:
    from ouzel.engines.native.engine import NativeEngine

    return NativeEngine(threads=threads)


_ENGINES: dict[str, Callable[[int | None], Engine]] = {"native": _native, "reference": _reference}


def engine_names() -> tuple[str, ...]:
    """Names that `make_engine` knows."""
    return tuple(_ENGINES)


def make_engine(name: str, threads: int | None = None) -> Engine:
    """Makes an engine. Raises EngineError for an unknown name, naming those that exist."""
    maker = _ENGINES.get(name)
    if maker is None:
        raise EngineError("choosing an engine", expected=f"one of {', '.join(_ENGINES)}", got=name)
    return maker(threads)
