"""The number of processes that this machine can run at once, which decides on binding and oversubscription."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sonde.core.lines import kernel_lines


@dataclass(frozen=True)
class Cpus:
    """The CPUs that this process may use.

    cores: physical cores. threads: hardware threads. quota: CPUs that a control group grants; None without a limit.
    """

    cores: int
    threads: int
    quota: float | None = None

    @property
    def at_once(self) -> int:
        """Processes that run at the same time without waiting for one another; at least 1."""
        return max(1, min(self.threads, int(self.quota)) if self.quota is not None else self.threads)


def parse_cpu_list(text: str) -> list[int]:
    """[0, 1, 2, 3, 8] for the kernel's "0-3,8"; [] for ""."""
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def available(root: Path = Path("/"), allowed: set[int] | None = None) -> Cpus:
    """The CPUs of this process under its affinity mask and control group.

    `root` is the tree that holds sys/ and proc/; `allowed` replaces the affinity mask. A CPU whose core the kernel does
    not name counts as a separate core.
    """
    cpus = os.sched_getaffinity(0) if allowed is None else allowed
    cores = set()
    for cpu in cpus:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        core = tuple(_read(topology / name) for name in ("physical_package_id", "die_id", "core_id"))
        cores.add(core if core[2] else ("", "", f"cpu{cpu}"))
    return Cpus(cores=len(cores), threads=len(cpus), quota=quota(root))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def quota(root: Path = Path("/")) -> float | None:
    """CPUs that the tightest control group above this process grants (cgroup v2 cpu.max, v1 cfs quota)."""
    granted: list[float] = []
    try:
        lines = kernel_lines(root / "proc/self/cgroup")
    except OSError:
        return None
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            base, read = root / "sys/fs/cgroup", _quota_v2
        elif "cpu" in controllers.split(","):
            base, read = root / "sys/fs/cgroup/cpu", _quota_v1
        else:
            continue
        # Inside a container the path names folders that are not mounted here; those that are mounted still count.
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):
            found = read(folder)
            if found is not None:
                granted.append(found)
            if folder == base:
                break
    return min(granted, default=None)


def _quota_v2(folder: Path) -> float | None:
    try:
        limit, period = (folder / "cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError, ArithmeticError):
        return None


def _quota_v1(folder: Path) -> float | None:
    try:
        limit = int((folder / "cpu.cfs_quota_us").read_text())
        return limit / int((folder / "cpu.cfs_period_us").read_text()) if limit > 0 else None
    except (OSError, ValueError, ArithmeticError):
        return None
