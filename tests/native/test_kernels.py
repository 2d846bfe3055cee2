"""Builds native/tests/kernel_tests.cc with the plain compiler and runs it: every kernel on every instruction set of this
machine, again under the address and undefined-behaviour sanitizers, and the AArch64 build under qemu, whose results must
have the same bits."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "native"
COMMON = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", f"-I{NATIVE}"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
CROSS_COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
CROSS_INSTALL = "apt-get install -y g++-aarch64-linux-gnu qemu-user"

pytestmark = pytest.mark.skipif(
    platform.system() != "Linux", reason="guard pages, g++ and qemu are used as Linux has them"
)


def isa_flags(machine: str) -> dict[str, list[str]]:
    """The instruction sets of a machine and their compiler flags, from the build's own list."""
    text = (NATIVE / "kernels" / "kernels.cmake").read_text(encoding="utf-8")
    flags = {name: rest.split() for name, rest in re.findall(r"^ *ouzel_isa\((\w+)([^)]*)\)", text, re.MULTILINE)}
    wanted = {
        "x86_64": ["plain", "avx2", "avxvnni", "avx512", "avx512vnni"],
        "aarch64": ["plain", "neon", "neondot"],
    }.get(machine, ["plain"])
    return {name: flags[name] for name in wanted}


def run(command: list[str | Path], timeout: float = 1800) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, encoding="utf-8", errors="replace", timeout=timeout
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def build(folder: Path, machine: str, compiler: str, optimise: str, extra: list[str]) -> Path:
    """Compiles and links the test program into `folder`; the instruction sets' flags reach only their own files."""
    sources = {NATIVE / "kernels" / "isa" / f"{name}.cc": flags for name, flags in isa_flags(machine).items()}
    for other in ("kernels/choice.cc", "base/cpu.cc", "tests/kernel_tests.cc"):
        sources[NATIVE / other] = []

    def compile_one(item: tuple[Path, list[str]]) -> Path:
        source, flags = item
        target = folder / f"{source.stem}.o"
        run([compiler, *COMMON, optimise, *extra, *flags, "-c", source, "-o", target])
        return target

    with ThreadPoolExecutor(max_workers=2) as pool:
        objects = list(pool.map(compile_one, sources.items()))
    program = folder / "kernel_tests"
    run([compiler, *extra, *objects, "-o", program])
    return program


def digests(output: str) -> dict[str, dict[str, str]]:
    """Digest by instruction set and operation."""
    table: dict[str, dict[str, str]] = {}
    for isa, operation, digest in re.findall(r"^(\w+) (\w+) ([0-9a-f]{16})$", output, re.MULTILINE):
        table.setdefault(isa, {})[operation] = digest
    return table


@pytest.fixture(scope="module")
def compiler() -> str:
    found = shutil.which("g++") or shutil.which("c++")
    assert found, "a C++ compiler is needed: apt-get install -y g++"
    return found


@pytest.fixture(scope="module")
def native_output(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    program = build(tmp_path_factory.mktemp("kernels"), platform.machine(), compiler, "-O2", [])
    return run([program, "--digest"])


def test_kernels_pass_on_this_machine(native_output: str) -> None:
    assert re.search(r"^[1-9]\d{5,} passed, 0 failed$", native_output, re.MULTILINE), native_output[-2000:]


def test_instruction_sets_give_the_same_bits(native_output: str) -> None:
    found = digests(native_output)
    assert "plain" in found
    assert len(found["plain"]) >= 16
    for isa, operations in found.items():
        assert operations == found["plain"], isa


def test_kernels_under_sanitizers(compiler: str, tmp_path: Path) -> None:
    # With checks in every inner loop, optimising takes minutes to compile and finds nothing more.
    program = build(tmp_path, platform.machine(), compiler, "-O0", SANITIZE)
    assert ", 0 failed" in run([program])


def test_aarch64_gives_the_same_bits(native_output: str, tmp_path: Path) -> None:
    missing = [name for name in (CROSS_COMPILER, EMULATOR) if not shutil.which(name)]
    if missing and os.geteuid() != 0:
        pytest.skip(f"{', '.join(missing)} missing and not root to install: {CROSS_INSTALL}")
    assert not missing, f"{', '.join(missing)} missing: {CROSS_INSTALL}"
    program = build(tmp_path, "aarch64", CROSS_COMPILER, "-O2", ["-static"])
    output = run([EMULATOR, program, "--digest"])
    assert ", 0 failed" in output
    found = digests(output)
    assert set(found) == {"neondot", "neon", "plain"}
    assert found["neondot"] == found["neon"] == found["plain"] == digests(native_output)["plain"]
