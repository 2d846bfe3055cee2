"""The default number of threads, on made-up machines."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ouzel.engines.native import threads
from ouzel.engines.native.threads import cpu_quota, default_threads, fast_cores, thread_count
from ouzel.errors import RequestError


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def machine(root: Path, cores: list[tuple[int, int, int | None]]) -> None:
    """One processor for each (package, core, capacity)."""
    for cpu, (package, core, capacity) in enumerate(cores):
        put(root, f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", str(package))
        put(root, f"sys/devices/system/cpu/cpu{cpu}/topology/core_id", str(core))
        if capacity is not None:
            put(root, f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity", str(capacity))


def test_two_hardware_threads_are_one_core(tmp_path: Path) -> None:
    machine(tmp_path, [(0, 0, None), (0, 1, None), (0, 0, None), (0, 1, None)])
    assert fast_cores({0, 1, 2, 3}, tmp_path) == {0, 1}
    assert fast_cores({2, 3}, tmp_path) == {2, 3}


def test_cores_of_two_packages_are_not_the_same(tmp_path: Path) -> None:
    machine(tmp_path, [(0, 0, None), (1, 0, None)])
    assert fast_cores({0, 1}, tmp_path) == {0, 1}


def test_little_cores_are_left_out(tmp_path: Path) -> None:
    machine(tmp_path, [(0, 0, 400), (0, 1, 400), (0, 2, 1024), (0, 3, 900)])
    assert fast_cores({0, 1, 2, 3}, tmp_path) == {2, 3}
    assert fast_cores({0, 1}, tmp_path) == {0, 1}


def test_efficient_cores_are_left_out(tmp_path: Path) -> None:
    machine(tmp_path, [(0, 0, None), (0, 0, None), (0, 4, None), (0, 5, None)])
    put(tmp_path, "sys/devices/cpu_core/cpus", "0-1")
    assert fast_cores({0, 1, 2, 3}, tmp_path) == {0}


def test_no_sysfs(tmp_path: Path) -> None:
    assert fast_cores({0, 1}, tmp_path) == set()


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"sys/fs/cgroup/cpu.max": "max 100000"}, None),
        ({"sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        ({"sys/fs/cgroup/cpu.max": "max 100000", "sys/fs/cgroup/a/b/cpu.max": "300000 100000"}, 3.0),
        ({"sys/fs/cgroup/a/cpu.max": "200000 100000", "sys/fs/cgroup/a/b/cpu.max": "300000 100000"}, 2.0),
        ({"sys/fs/cgroup/cpu.max": "what is this"}, None),
        ({"sys/fs/cgroup/cpu.max": "100 0"}, None),
    ],
)
def test_quota_of_control_groups(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    put(tmp_path, "proc/self/cgroup", "0::/a/b")
    for name, text in files.items():
        put(tmp_path, name, text)
    assert cpu_quota(tmp_path) == quota


def test_quota_of_old_control_groups(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/x")
    put(tmp_path, "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "250000")
    put(tmp_path, "sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000")
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    assert cpu_quota(tmp_path) == 2.5


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS answers by itself")
@pytest.mark.parametrize(("quota", "expected"), [("max", 3), ("250000", 2), ("50000", 1), ("900000", 3)])
def test_default_is_the_least_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, expected: int
) -> None:
    machine(tmp_path, [(0, core, None) for core in (0, 0, 1, 1, 2, 2, 3, 3)])
    put(tmp_path, "proc/self/cgroup", "0::/")
    put(tmp_path, "sys/fs/cgroup/cpu.max", f"{quota} 100000")
    monkeypatch.setattr(threads, "_affinity", lambda: {0, 1, 2, 3, 4, 5})
    assert default_threads(tmp_path) == expected


def test_this_machine() -> None:
    assert 1 <= default_threads() <= (os.cpu_count() or 1)


def test_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUZEL_THREADS", "7")
    assert thread_count() == 7
    assert thread_count(3) == 3
    monkeypatch.setenv("OUZEL_THREADS", "0")
    with pytest.raises(RequestError, match="OUZEL_THREADS"):
        thread_count()
    monkeypatch.delenv("OUZEL_THREADS")
    assert thread_count() == default_threads()
