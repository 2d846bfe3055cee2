"""How many threads the native engine starts by default: the fast physical cores that this process may use.

Two hardware threads of one core share its arithmetic, and slow cores hold up the fast ones, so both are left out. A
container's quota and the affinity of the process are limits too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ... import env

# A core below this share of the fastest one's capacity is a slow one (a "little" or "efficient" core).
_FAST_SHARE = 0.8


def thread_count(asked: int | None = None) -> int:
    """`asked`, else OUZEL_THREADS, else `default_threads()`."""
    return asked or env.get("OUZEL_THREADS") or default_threads()


def default_threads(root: Path = Path("/")) -> int:
    """Fast physical cores of this machine within affinity and quota, at least 1. `root` holds `sys` and `proc`."""
    if sys.platform == "darwin":
        return _mac_cores()
    usable = _affinity()
    cores = len(fast_cores(usable, root)) or len(usable)
    quota = cpu_quota(root)
    return max(1, cores if quota is None else min(cores, int(quota)))


def fast_cores(usable: set[int], root: Path = Path("/")) -> set[int]:
    """One processor number for each fast physical core among `usable`; empty where Linux's sysfs is missing."""
    folder = root / "sys/devices/system/cpu"
    first_of: dict[tuple[str, str], int] = {}
    for cpu in sorted(usable):
        topology = folder / f"cpu{cpu}/topology"
        package, core = _text(topology / "physical_package_id"), _text(topology / "core_id")
        if core is not None:
            first_of.setdefault((package or "0", core), cpu)
    cores = set(first_of.values())
    fast = _listed(_text(root / "sys/devices/cpu_core/cpus") or "")
    if fast & cores:
        return fast & cores
    capacity = {cpu: _capacity(folder / f"cpu{cpu}") for cpu in cores}
    most = max(capacity.values(), default=0)
    return {cpu for cpu in cores if capacity[cpu] >= _FAST_SHARE * most}


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Processors' worth of time that the control groups of this process allow, or None without a limit."""
    quotas: list[float] = []
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if controllers == "":
            quotas += [q for folder in _ancestors(root / "sys/fs/cgroup", path) if (q := _quota_v2(folder))]
        elif "cpu" in controllers.split(","):
            quotas += [q for folder in _ancestors(root / "sys/fs/cgroup/cpu", path) if (q := _quota_v1(folder))]
    return min(quotas, default=None)


def _ancestors(top: Path, path: str) -> list[Path]:
    # Inside a container the path may be the host's and not exist here: the top is then the container's own group.
    parts = [part for part in path.split("/") if part not in ("", "..")]
    return [top.joinpath(*parts[:n]) for n in range(len(parts) + 1)]


def _quota_v2(folder: Path) -> float | None:
    words = (_text(folder / "cpu.max") or "max").split()
    if len(words) != 2 or words[0] == "max":
        return None
    return _ratio(words[0], words[1])


def _quota_v1(folder: Path) -> float | None:
    quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
    return None if quota is None or period is None else _ratio(quota, period)


def _ratio(quota: str, period: str) -> float | None:
    try:
        value = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return value if value > 0 else None


def _capacity(folder: Path) -> int:
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        text = _text(folder / name)
        if text is not None and text.isdigit():
            return int(text)
    return 1


def _listed(text: str) -> set[int]:
    """Processor numbers of a list such as "0-3,8"."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            found |= set(range(int(first), int(last if last.isdigit() else first) + 1))
    return found


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _mac_cores() -> int:
    for name in ("hw.perflevel0.physicalcpu", "hw.physicalcpu"):
        try:
            found = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, encoding="utf-8", check=True)
            return max(1, int(found.stdout))
        except (OSError, ValueError, subprocess.CalledProcessError):
            continue
    return os.cpu_count() or 1


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
