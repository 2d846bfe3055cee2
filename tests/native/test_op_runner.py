"""The whole table of operation cases without Python in the process: under sanitizers, and built for AArch64 in an
emulator. The results have the same bits as those of the module, on every instruction set.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from case_file import FileCase, read_results, write_cases
from native_graphs import decoder, decoder_step, tokens, weights_of
from op_cases import op_cases
from ouzel import _native
from ouzel.engines.native.engine import NativeEngine

ROOT = Path(__file__).resolve().parents[2]
CROSS_COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
CROSS_PACKAGES = "g++-aarch64-linux-gnu qemu-user"
CROSS = (
    "-DCMAKE_SYSTEM_NAME=Linux",
    "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
    f"-DCMAKE_CXX_COMPILER={CROSS_COMPILER}",
    "-DCMAKE_EXE_LINKER_FLAGS=-static",
)

pytestmark = pytest.mark.skipif(
    platform.system() != "Linux", reason="sanitizers and the emulator are used as g++ on Linux has them"
)


def run(*command: str | Path) -> str:
    # The tools of the Python environment come first: cmake and ninja are among the packages of the tests.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    tool = shutil.which(command[0], path=path)
    assert tool, f"{command[0]} is missing; install the package with its tests' needs: pip install '.[test]'"
    done = subprocess.run(
        [tool, *map(str, command[1:])],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=900,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def build(name: str, target: str, *options: str) -> Path:
    """Builds one test program in build/tests/<name>, where the next run finds it; returns its path."""
    folder = ROOT / "build" / "tests" / name
    run("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DOUZEL_PYTHON=OFF", "-DOUZEL_TESTS=ON", *options)
    run("cmake", "--build", folder, "--target", target)
    return folder / target


def file_cases() -> list[FileCase]:
    """The table, and a decoder in three steps: a prompt, a chunk and one token."""
    graph, ids, blocks = decoder(), tokens(77), [2, 0, 1]
    parts = ((0, 40), (40, 76), (76, 77))
    steps = [decoder_step(ids[a:b], a, blocks, ("logits", "layer.0")) for a, b in parts]
    whole = [FileCase(graph, weights_of(graph, fmt), steps, 3) for fmt in ("f32", "bf16", "f16")]
    return whole + [FileCase(case.graph, case.weights, case.steps, case.blocks) for case in op_cases()]


CASES = file_cases()


@pytest.fixture(scope="module")
def wanted() -> list[bytes]:
    """All wanted values of each case, from the module."""
    engine = NativeEngine(1)
    found = []
    for case in CASES:
        keep = {name for step in case.steps for name in step.wanted}
        executable = engine.compile(case.graph, case.weights, sorted(keep))
        executable.ensure_blocks(case.blocks)
        found.append(b"".join(array.tobytes() for step in case.steps for array in executable.run(step).values()))
    return found


def check(command: list[str | Path], isa: str, threads: int, wanted: list[bytes], folder: Path) -> None:
    cases, results = folder / "cases", folder / "results"
    write_cases(cases, CASES)
    said = run(*command, isa, str(threads), cases, results)
    assert said.startswith(f"{len(CASES)} cases")
    for number, steps in enumerate(read_results(results, CASES)):
        found = b"".join(array.tobytes() for step in steps for array in step.values())
        assert found == wanted[number], f"case {number}, {CASES[number].graph.name}, is not bit-equal"


@pytest.fixture(scope="module")
def sanitized() -> Path:
    return build("sanitized", "op_runner", "-DOUZEL_SANITIZE=address,undefined")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("isa", _native.isas_available())
def test_under_sanitizers(sanitized: Path, isa: str, threads: int, wanted: list[bytes], tmp_path: Path) -> None:
    check([sanitized], isa, threads, wanted, tmp_path)


@pytest.fixture(scope="module")
def aarch64() -> Path:
    missing = [name for name in (CROSS_COMPILER, EMULATOR) if not shutil.which(name)]
    if missing and os.geteuid() != 0:
        pytest.skip(f"{', '.join(missing)} missing and not root to install: apt-get install -y {CROSS_PACKAGES}")
    assert not missing, f"{', '.join(missing)} missing: apt-get install -y {CROSS_PACKAGES}"
    return build("aarch64", "op_runner", *CROSS)


@pytest.mark.parametrize(("isa", "threads"), [("neon", 1), ("neon", 2), ("plain", 1)])
def test_aarch64(aarch64: Path, isa: str, threads: int, wanted: list[bytes], tmp_path: Path) -> None:
    check([EMULATOR, aarch64], isa, threads, wanted, tmp_path)


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_thread_pool(sanitizer: str) -> None:
    program = build(f"pool-{sanitizer.split(',')[0]}", "thread_pool_test", f"-DOUZEL_SANITIZE={sanitizer}")
    assert run(program) == "thread pool: good\n"


def test_a_damaged_file_is_refused(sanitized: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    write_cases(whole, CASES[:1])
    data = whole.read_bytes()
    for size in np.linspace(0, len(data) - 1, 25).astype(int):
        cut = tmp_path / "cut"
        cut.write_bytes(data[:size])
        done = subprocess.run([sanitized, "widest", "1", cut, tmp_path / "out"], capture_output=True, timeout=60)
        assert done.returncode == 1 and done.stderr.startswith(b"op_runner: ")
