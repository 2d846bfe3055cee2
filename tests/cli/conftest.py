"""Running the command line: inside this process, or as a process of its own."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ouzel.cli import failure
from ouzel.cli.main import app

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"


# Old versions of click join the two outputs unless told otherwise; new ones do not know the word.
RUNNER = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner.__init__).parameters else {}


class Outcome:
    """What a command left: exit code, stdout and stderr as text."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> dict[str, Any]:
        """stdout as the one JSON object that it must be."""
        assert self.code == 0, self.err
        assert self.out.endswith("\n") and self.out.count("\n") == 1
        return json.loads(self.out)


@pytest.fixture
def ouzel() -> Callable[..., Outcome]:
    """Runs a command line in this process: `ouzel("run", "--model", ..., input=b"...")`."""

    def run(*args: str | Path, input: bytes | None = None, **env: str) -> Outcome:
        result = CliRunner(env=env, **RUNNER).invoke(app, [str(arg) for arg in args], input=input, prog_name="ouzel")
        failure.set_debug(False)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[bytes]]:
    """Starts a command line as a process of its own with pipes; `env` adds to the environment."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*args: str | Path, env: dict[str, str] | None = None, **more: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "ouzel", *(os.fsencode(arg) if isinstance(arg, str) else arg for arg in args)]
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0} | more
        # Unbuffered: `communicate` would pass by what an earlier read left in a buffer.
        # A test run in the background of a shell inherits an ignored Ctrl-C.
        process = subprocess.Popen(
            command, env=os.environ | (env or {}), preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **options
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[[str], Path]:
    """A writable copy of a fixture checkpoint: `tiny("qwen3/tiny")`."""

    def copy(name: str) -> Path:
        target = tmp_path / name.replace("/", "_")
        shutil.copytree(FIXTURES / name, target)
        return target

    return copy
