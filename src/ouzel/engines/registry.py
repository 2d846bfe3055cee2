"""The engines by name."""

from __future__ import annotations

from collections.abc import Callable

from ouzel.errors import EngineError
from ouzel.engines.base import Engine


def _reference(threads: int | None, cache: str) -> Engine:
    from ouzel.engines.reference.engine import ReferenceEngine

    if cache != "f32":
        raise EngineError("choosing an engine", expected="engine='native' for a cache that is not f32", got="reference")
    return ReferenceEngine()


def _native(threads: int | None, cache: str) -> Engine:
    from ouzel.engines.native.engine import NativeEngine

    return NativeEngine(threads=threads, cache=cache)


_ENGINES: dict[str, Callable[[int | None, str], Engine]] = {"native": _native, "reference": _reference}


def engine_names() -> tuple[str, ...]:
    """Names that `make_engine` knows."""
    return tuple(_ENGINES)


def make_engine(name: str, threads: int | None = None, cache: str = "f32") -> Engine:
    """Makes an engine. `cache` is what it keeps keys and values in: "f32", "f16" or "q8", the reference "f32" alone.

    Raises EngineError for an unknown name, naming those that exist.
    """
    maker = _ENGINES.get(name)
    if maker is None:
        raise EngineError("choosing an engine", expected=f"one of {', '.join(_ENGINES)}", got=name)
    return maker(threads, cache)
