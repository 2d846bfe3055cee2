"""The native engine: graphs compiled to plans of the C++ core."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import env
from ...errors import EngineError
from ...graph.graph import Graph
from ...graph.passes import fuse
from ..base import Executable, Step
from ..inputs import check_step
from .lower import lower
from .threads import thread_count

try:
    from ... import _native
except ImportError as error:  # the package runs from its source folder, or was built for another Python
    _native = None  # type: ignore[assignment]
    _why_not = str(error)


CACHE_BYTES = {"f32": 4, "f16": 2, "q8": 1}
"""Bytes that a number of the cache takes in each form ("q8": and four for each token's row of a head)."""


class NativeEngine:
    """The C++ core with a pool of threads that all its executables share.

    threads: of work, the caller's among them; by default OUZEL_THREADS, or the fast physical cores within the quota.
    isa: the widest instruction set to use ("avx512vnni", "avx512", "avxvnni", "avx2", "neondot", "neon", "plain"); by
    default OUZEL_ISA, or the widest that the machine has. Neither changes results.
    cache: what keys and values are kept in: "f32", "f16" (half the memory) or "q8" (a quarter: codes of eight bits with a
    scale for every token and head). What is kept of a token depends on that token alone.

    Raises EngineError when the core is not built, the instruction set is not available or the threads cannot start.
    """

    name = "native"

    def __init__(self, threads: int | None = None, isa: str | None = None, cache: str = "f32") -> None:
        if _native is None:
            raise EngineError(
                "starting the native engine",
                expected="the module ouzel._native",
                got=_why_not,
                fix="install the package with `pip install .` in its folder, or use engine='reference'",
            )
        if threads is not None and threads < 1:
            raise EngineError("starting the native engine", expected="1 or more threads", got=str(threads))
        if cache not in CACHE_BYTES:
            raise EngineError("starting the native engine", expected=f"a cache of {', '.join(CACHE_BYTES)}", got=cache)
        self.cache = cache
        cap = isa if isa is not None else env.get("OUZEL_ISA")
        self._machine = _native.Machine(cap or "", thread_count(threads))

    def compile(self, graph: Graph, weights: Mapping[str, Any], keep: Sequence[str] = ()) -> Executable:
        """Fuses, plans memory and makes the plan. `keep` names values that stay stages; see `engines.base.Engine`."""
        return NativeExecutable(self._machine, fuse(graph, keep), weights, self.cache)

    @property
    def threads(self) -> int:
        """Threads of work, the caller's among them."""
        return self._machine.threads

    @property
    def isa(self) -> str:
        """Name of the instruction set in use."""
        return self._machine.isa

    def describe(self) -> str:
        """One line for people, such as "native, avx512, 2 threads"."""
        cache = "" if self.cache == "f32" else f", {self.cache} cache"
        return f"native, {self.isa}, {self.threads} thread{'s' * (self.threads > 1)}{cache}"


class NativeExecutable:
    """A graph as one plan of the core; see `engines.base.Executable`."""

    def __init__(
        self, machine: _native.Machine, graph: Graph, weights: Mapping[str, Any], cache: str = "f32"
    ) -> None:
        self.graph = graph
        program = _native.Program()
        self._numbers = lower(graph, weights, program)
        self._plan = _native.Plan(machine, program, cache)

    def run(self, step: Step) -> dict[str, NDArray[np.float32]]:
        """Runs the whole step in one native call without the interpreter lock."""
        counts = check_step(self.graph, step, self._plan.blocks)
        found = {name: np.empty(self._shape(name, counts), np.float32) for name in step.wanted}
        self._plan.run(
            [step.inputs[name] for name in self.graph.inputs],
            [(self._numbers[name], array) for name, array in found.items()],
            [(s.start, s.count, s.past, np.ascontiguousarray(s.blocks, np.int32)) for s in step.sequences],
            None if step.segments is None else np.ascontiguousarray(step.segments, np.int32),
            None if step.cancel is None else step.cancel.flag,
            # Only the main thread gets signals, and only there is asking for the interpreter lock worth the wait.
            threading.current_thread() is threading.main_thread(),
        )
        return found

    def ensure_blocks(self, count: int) -> None:
        """Makes cache memory for at least `count` blocks; contents of existing blocks stay."""
        self._plan.ensure_blocks(count)

    @property
    def cache_bytes(self) -> int:
        """Bytes of cache memory held now."""
        return self._plan.cache_bytes

    def stages(self) -> tuple[str, ...]:
        """The float32 values of the fused graph."""
        return tuple(name for name, value in self.graph.values.items() if value.dtype == "f32")

    def _shape(self, name: str, counts: Mapping[str, int]) -> tuple[int, int]:
        value = self.graph.values[name]
        if value.dtype != "f32":
            raise EngineError("step", expected="float32 values as wanted stages", got=name)
        return counts[value.rows], value.width
