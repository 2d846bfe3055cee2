"""Stopping the native engine, using it from several threads and processes, leaving it behind."""

from __future__ import annotations

import _thread
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from native_graphs import decoder, decoder_step, long_graph, tokens, weights_of
from ouzel.engines.base import CancelToken
from ouzel.engines.native.engine import NativeEngine
from ouzel.errors import Cancelled, EngineError

TESTS = Path(__file__).parents[1]
IDS = tokens(77)


def test_cancelled_before_it_begins() -> None:
    graph = decoder()
    executable = NativeEngine(1).compile(graph, weights_of(graph))
    executable.ensure_blocks(3)
    token = CancelToken()
    step = replace(decoder_step(IDS, 0, [0, 1, 2]), cancel=token)
    wanted = executable.run(step)["logits"]
    token.cancel()
    with pytest.raises(Cancelled):
        executable.run(step)
    np.testing.assert_array_equal(executable.run(replace(step, cancel=None))["logits"], wanted)


def run_until(seconds: float, stop: object) -> float:
    """Seconds that the long graph took until it was stopped; `stop` is called after `seconds`."""
    graph, weights, step = long_graph()
    token = CancelToken()
    executable = NativeEngine(2).compile(graph, weights)
    timer = threading.Timer(seconds, stop, [token])
    start = time.monotonic()
    timer.start()
    try:
        executable.run(replace(step, cancel=token))
    finally:
        timer.join()
    return time.monotonic() - start


def test_cancelled_from_another_thread() -> None:
    start = time.monotonic()
    with pytest.raises(Cancelled):
        run_until(0.1, lambda token: token.cancel())
    # The whole takes at least 200 * 2 * 4096 * 512 * 512 operations, many seconds.
    assert time.monotonic() - start < 3


def test_ctrl_c_stops_the_step() -> None:
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_until(0.1, lambda token: _thread.interrupt_main())
    assert time.monotonic() - start < 3


def test_a_second_run_of_one_executable_is_refused() -> None:
    graph, weights, step = long_graph()
    token = CancelToken()
    executable = NativeEngine(1).compile(graph, weights)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(executable.run, replace(step, cancel=token))
        refused = ""
        while not refused and not running.done():
            try:
                executable.run(replace(step, inputs={"x": step.inputs["x"][:0]}))
            except EngineError as error:
                refused = str(error)
        token.cancel()
        with pytest.raises(Cancelled):
            running.result()
    assert "one run" in refused


@pytest.mark.parametrize("shared", [True, False])
def test_executables_run_side_by_side(shared: bool) -> None:
    graph = decoder()
    weights = weights_of(graph)
    engines = [NativeEngine(2)] * 4 if shared else [NativeEngine(2) for _ in range(4)]
    executables = [engine.compile(graph, weights) for engine in engines]

    def work(number: int) -> list[bytes]:
        ids = tokens(77, seed=number)
        executables[number].ensure_blocks(3)
        return [executables[number].run(decoder_step(ids, 0, [2, 1, 0]))["logits"].tobytes() for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(work, range(4)))
    for number, found in enumerate(together):
        assert set(found) == set(work(number))


SCRIPT = """
import os, sys, warnings
sys.path.insert(0, {tests!r})
from native_graphs import decoder, decoder_step, tokens, weights_of
from ouzel.engines.native.engine import NativeEngine
graph = decoder()
executable = NativeEngine(4).compile(graph, weights_of(graph))
executable.ensure_blocks(3)
step = decoder_step(tokens(77), 0, [0, 1, 2])
wanted = executable.run(step)["logits"].tobytes()
"""

FORK = """
warnings.simplefilter("ignore", DeprecationWarning)
child = os.fork()
if child == 0:
    os._exit(0 if executable.run(step)["logits"].tobytes() == wanted else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def run_script(text: str) -> None:
    command = [sys.executable, "-c", text.format(tests=str(TESTS))]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_the_interpreter_ends_while_a_model_lives() -> None:
    run_script(SCRIPT)


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system has no fork")
def test_a_forked_child_can_run() -> None:
    run_script(SCRIPT + FORK)
