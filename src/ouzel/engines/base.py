"""What every engine offers: an executable made from a graph and its weights, run step by step.

Source of the shape: sequences lie one after another in the rows ("ragged"); there is no batch axis.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ouzel.graph.graph import Graph

BLOCK_TOKENS = 32
"""Tokens in one cache block, on every engine. Softmax tiles are blocks, so results do not depend on chunk borders."""


class CancelToken:
    """Stops work from another thread. Engines look at it between layers; nothing is returned from a cancelled step."""

    def __init__(self) -> None:
        self.flag = np.zeros(1, np.int32)
        """One int32 that native code reads without the interpreter lock."""
        self._event = threading.Event()

    def cancel(self) -> None:
        """Asks the work to stop; may be called from any thread, any number of times."""
        self.flag[0] = 1
        self._event.set()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return bool(self.flag[0])


@dataclass(frozen=True)
class SequenceRows:
    """Rows `start : start + count` of a step belong to one sequence that already has `past` tokens in the cache.

    `blocks` are the numbers of its cache blocks (int32), enough for `past + count` tokens.
    """

    start: int
    count: int
    past: int
    blocks: NDArray[np.int32]


@dataclass(frozen=True)
class Step:
    """One pass over a graph.

    inputs: every input of the graph by name, C-contiguous, [rows, width], float32 or int32.
    wanted: names of the values to return.
    sequences: for causal attention; they cover all "tokens" rows in order.
    segments: int32 borders [n + 1] of the row ranges that see each other (attention in mode "segments").
    cancel: looked at between layers.
    """

    inputs: Mapping[str, NDArray[Any]]
    wanted: Sequence[str]
    sequences: Sequence[SequenceRows] = ()
    segments: NDArray[np.int32] | None = None
    cancel: CancelToken | None = None


@runtime_checkable
class Executable(Protocol):
    """A compiled graph. Not to be run from two threads at once; it owns its cache memory."""

    graph: Graph

    def run(self, step: Step) -> dict[str, NDArray[np.float32]]:
        """Runs the step and returns copies of the wanted values, [rows, width] float32.

        Raises EngineError for inputs that do not fit, Cancelled when the token was set.
        """
        ...

    def ensure_blocks(self, count: int) -> None:
        """Makes cache memory for at least `count` blocks; contents of existing blocks stay."""
        ...

    @property
    def cache_bytes(self) -> int:
        """Bytes of cache memory held now."""
        ...

    def stages(self) -> tuple[str, ...]:
        """Names that `wanted` may hold."""
        ...


class Engine(Protocol):
    """Compiles graphs. One object per loaded model: it owns threads and device handles."""

    name: str

    def compile(self, graph: Graph, weights: Mapping[str, Any], keep: Sequence[str] = ()) -> Executable:
        """`weights` maps each weight name of the graph to a `weights.load.Weight`; `keep` names stages not to fuse."""
        ...

    def describe(self) -> str:
        """One line for people: engine, instruction set, threads."""
        ...
