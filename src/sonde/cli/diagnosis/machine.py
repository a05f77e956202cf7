"""The machine, and its properties that make measurements worse."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import sys
from pathlib import Path

from sonde.core.diagnosis import FACT, GOOD, NONE, POOR, Answer, Here, check
from sonde.core.launch.cpus import available
from sonde.core.provenance import UNKNOWN
from sonde.core.units import format_duration, format_size

SLOW_CLOCK_S = 100e-9  # a reading by the vDSO takes 15 to 40 ns, one by a system call several hundred

CONTAINERS = ("docker", "podman", "lxc", "systemd-nspawn")  # a container alone is not a virtual machine

# Bits of the effective capability set. Source: include/uapi/linux/capability.h.
CAPABILITIES = {
    "cap_ipc_lock": 14,
    "cap_sys_rawio": 17,
    "cap_sys_ptrace": 19,
    "cap_sys_admin": 21,
    "cap_sys_nice": 23,
    "cap_perfmon": 38,
}


@check("cpu", "Processor", "Machine")
def cpu(here: Here) -> Answer:
    found, cpus = here.machine, available(here.root)
    text = f"{found['cpu']}, {_count(cpus.cores, 'core')}, {_count(cpus.threads, 'hardware thread')}"
    if found["numa_nodes"] not in (UNKNOWN, 1):
        text += f", {found['numa_nodes']} NUMA nodes"
    values = {"cores": cpus.cores, "threads": cpus.threads, "quota": cpus.quota}
    if cpus.quota is not None and cpus.quota < cpus.threads:
        advice = "ranks must sleep when the quota is spent: use no more ranks than it grants"
        return Answer(f"{text}; a control group grants {cpus.quota:g} CPUs", POOR, values, advice=advice)
    return Answer(text, FACT, values)


@check("clock", "Clock", "Machine")
def clock(here: Here) -> Answer:
    from sonde import _core

    flags = re.search(r"^flags\s*:(.*)$", here.read("proc/cpuinfo"), re.M)
    names = flags[1].split() if flags else []
    invariant = "constant_tsc" in names and "nonstop_tsc" in names
    cost_s = _core.clock_cost_s()
    values = {"read_cost_s": cost_s, "invariant_tsc": invariant if flags else None}
    text = f"{here.machine['clock_source']}, {format_duration(cost_s)} a reading"
    text += ", invariant TSC" if invariant else ""
    if cost_s > SLOW_CLOCK_S:
        advice = "each sample costs two readings: boot with clocksource=tsc if the TSC is invariant"
        return Answer(text, POOR, values, advice=advice)
    return Answer(text, GOOD, values)


@check("frequency", "Frequency", "Machine")
def frequency(here: Here) -> Answer:
    governor, turbo = here.machine["governor"], here.machine["turbo"]
    if governor == UNKNOWN:
        return Answer("not visible from here")
    text = f"governor {governor}" + ("" if turbo == UNKNOWN else f", turbo {turbo}")
    if governor != "performance":
        advice = "a core that must speed up first is slow at first: cpupower frequency-set -g performance"
        return Answer(text, POOR, advice=advice)
    return Answer(text, GOOD)


@check("virtual", "Virtualised", "Machine")
def virtual(here: Here) -> Answer:
    kinds = str(here.machine["virtualised"])
    if kinds == "none":
        return Answer("no", GOOD)
    if kinds in CONTAINERS or kinds == UNKNOWN:
        return Answer(kinds)
    advice = "other guests of the same host may disturb at any time: repeat at other hours"
    return Answer(kinds, POOR, advice=advice)


@check("kernel", "Kernel", "Machine")
def kernel(here: Here) -> Answer:
    return Answer(f"{here.machine['kernel']}, {here.machine['distribution']}")


@check("load", "Load", "Machine")
def load(here: Here) -> Answer:
    value, threads = here.machine["load_average"], available(here.root).threads
    if not isinstance(value, float):
        return Answer("not visible from here")
    text = f"{value:g} processes running or waiting, on {_count(threads, 'hardware thread')}"
    if value > 0.5 * threads:
        return Answer(text, POOR, advice="something else is running here; 'top' shows what")
    return Answer(text, GOOD)


@check("privileges", "Privileges", "Machine")
def privileges(here: Here) -> Answer:
    status = here.read("proc/self/status")
    effective = int(_field(status, "CapEff") or "0", 16)
    granted = [name for name, bit in CAPABILITIES.items() if effective >> bit & 1]
    root = _field(status, "Uid").split()[1:2] == ["0"]
    paranoid = here.number("proc/sys/kernel/perf_event_paranoid")
    values = {"root": root, "capabilities": granted, "perf_event_paranoid": paranoid}
    text = "root" if root else f"user, {', '.join(granted) or 'no special capabilities'}"
    if root and len(granted) < len(CAPABILITIES):
        text += f" without {', '.join(name for name in CAPABILITIES if name not in granted)}"
    if paranoid is not None:
        text += f"; perf_event_paranoid {paranoid}"
    return Answer(text, FACT, values)


@check("limits", "Limits", "Machine")
def limits(here: Here) -> Answer:
    locked, files, stack = (
        resource.getrlimit(kind)[0]
        for kind in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NOFILE, resource.RLIMIT_STACK)
    )
    values = {
        "memlock_bytes": _limit(locked),
        "open_files": _limit(files),
        "stack_bytes": _limit(stack),
        "address_space_bytes": _limit(resource.getrlimit(resource.RLIMIT_AS)[0]),
    }
    text = f"{_shown(files, False)} open files, {_shown(locked)} locked memory, {_shown(stack)} stack"
    if here.machine["infiniband"] not in ("none", UNKNOWN) and locked != resource.RLIM_INFINITY:
        advice = "RDMA locks the memory that it registers: ulimit -l unlimited; permanently in limits.conf"
        return Answer(text, POOR, values, advice=advice)
    return Answer(text, FACT, values)


@check("memory", "Memory", "Machine")
def memory(here: Here) -> Answer:
    info = dict(re.findall(r"^(\w+):\s+(\d+)", here.read("proc/meminfo"), re.M))
    total, free = (1024 * int(info.get(key, 0)) for key in ("MemTotal", "MemAvailable"))
    pages, page = int(info.get("HugePages_Total", 0)), 1024 * int(info.get("Hugepagesize", 0))
    values = {"available_bytes": free, "huge_pages": pages, "huge_page_bytes": page}
    text = f"{format_size(free)} free of {format_size(total)}"
    text += f", {pages} huge pages of {format_size(page)}" if pages else ", no huge pages reserved"
    text += f", transparent: {here.machine['transparent_hugepages']}"
    return Answer(text, FACT, values)


@check("shm", "/dev/shm", "Machine")
def shm(here: Here) -> Answer:
    place = here.root / "dev/shm"
    try:
        space = shutil.disk_usage(place)
    except OSError as error:
        text = f"not usable: {(error.strerror or str(error)).lower()}"
        return Answer(
            text, NONE, {"free_bytes": None}, advice="ranks of one host need it: mount a tmpfs on /dev/shm"
        )
    values = {"free_bytes": space.free, "total_bytes": space.total}
    text = f"{format_size(space.free)} free of {format_size(space.total)}"
    if space.free < 64 << 20:
        advice = (
            "64 MiB are few for ranks on one host: mount -o remount,size=1G /dev/shm (docker: --shm-size=1g)"
        )
        return Answer(text, POOR, values, advice=advice)
    return Answer(text, GOOD, values)


@check("disk", "This folder", "Machine")
def disk(here: Here) -> Answer:
    space = shutil.disk_usage(here.cwd)
    writable = os.access(here.cwd, os.W_OK)
    values = {"folder": str(here.cwd.resolve()), "free_bytes": space.free, "writable": writable}
    if not writable:
        return Answer("not writable", POOR, values, advice="choose another folder with --output")
    text = f"{format_size(space.free)} free, writable"
    if space.free < 1 << 30:
        return Answer(
            text, POOR, values, advice="a run that stores every sample may need more: choose another --output"
        )
    return Answer(text, GOOD, values)


@check("network", "Network", "Machine")
def network(here: Here) -> Answer:
    found = [here.machine[kind] for kind in ("network", "infiniband")]
    return Answer("; ".join(str(text) for text in found if text not in ("none", UNKNOWN)) or "none")


@check("scheduler", "Scheduler", "Machine")
def scheduler(here: Here) -> Answer:
    job = here.environ.get("SLURM_JOB_ID")
    srun = here.which("srun")
    values = {"srun": srun, "job_id": job, "nodes": here.environ.get("SLURM_JOB_NODELIST")}
    if job:
        return Answer(f"Slurm job {job} on {values['nodes'] or 'unknown nodes'}", GOOD, values)
    return Answer("Slurm, outside of a job" if srun else "none", FACT, values)


@check("python", "Python", "Machine")
def python(here: Here) -> Answer:
    import sonde

    values = {"version": platform.python_version(), "prefix": sys.prefix, "sonde": sonde.__version__}
    where = Path(sys.prefix).name if sys.prefix != sys.base_prefix else "system"
    return Answer(f"{values['version']} ({where}), Sonde {sonde.__version__}", FACT, values)


@check("config", "Config file", "Machine")
def config_file(here: Here) -> Answer:
    """Read the complete file. Its keys are checked when a command starts."""
    from sonde.core import config
    from sonde.core.errors import UsageError

    passed: list[str] = []
    path = config.find(None, here.environ, here.root / "etc", passed.append)
    if path is None:
        return Answer("; ".join(passed) or "none", FACT, {"path": None})
    try:
        config.read(path)
    except UsageError as error:
        return Answer(error.what, NONE, {"path": str(path)}, advice=error.hint)
    return Answer(str(path), FACT, {"path": str(path)})


def _field(text: str, name: str) -> str:
    """The value of the first `name : value` line, as /proc writes them."""
    match = re.search(rf"^{re.escape(name)}\s*:[ \t]*(.*)$", text, re.M)
    return match[1].strip() if match else ""


def _limit(value: int) -> int | None:
    """A limit for JSON: None is unlimited."""
    return None if value == resource.RLIM_INFINITY else value


def _shown(value: int, is_size: bool = True) -> str:
    if value == resource.RLIM_INFINITY:
        return "unlimited"
    return format_size(value) if is_size else str(value)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


CHECKS = (
    *(cpu, clock, frequency, virtual, kernel, load, privileges, limits),
    *(memory, shm, disk, network, scheduler, python, config_file),
)
