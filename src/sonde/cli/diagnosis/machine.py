"""What the machine is, and what of it makes measurements worse."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

from sonde.cli.diagnosis import FACT, GOOD, NONE, POOR, Answer, Here, check
from sonde.core.launch.cpus import available
from sonde.core.units import format_duration, format_size

SLOW_CLOCK_S = 100e-9  # a reading served by the vDSO takes 15 to 40 ns, one by a system call several hundred

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
    info = here.read("proc/cpuinfo")
    model = _field(info, "model name") or _field(info, "Model") or platform.machine() or "unknown"
    cpus = available(here.root)
    numa = [name for name in _names(here, "sys/devices/system/node") if re.fullmatch(r"node\d+", name)]
    text = f"{model}, {_count(cpus.cores, 'core')}, {_count(cpus.threads, 'hardware thread')}"
    text += f", {len(numa)} NUMA nodes" if len(numa) > 1 else ""
    values = {
        "model": model,
        "cores": cpus.cores,
        "threads": cpus.threads,
        "quota": cpus.quota,
        "numa_nodes": len(numa) or 1,
    }
    if cpus.quota is not None and cpus.quota < cpus.threads:
        advice = "ranks are put to sleep when the quota is spent: use no more ranks than it grants"
        return Answer(f"{text}; a control group grants {cpus.quota:g} CPUs", POOR, values, advice=advice)
    return Answer(text, FACT, values)


@check("clock", "Clock", "Machine")
def clock(here: Here) -> Answer:
    from sonde import _core

    source = here.read("sys/devices/system/clocksource/clocksource0/current_clocksource") or "unknown"
    flags = _field(here.read("proc/cpuinfo"), "flags").split()
    invariant = "constant_tsc" in flags and "nonstop_tsc" in flags
    cost_s = _core.clock_cost_s()
    values = {"source": source, "read_cost_s": cost_s, "invariant_tsc": invariant if flags else None}
    text = f"{source}, {format_duration(cost_s)} a reading"
    text += ", invariant TSC" if invariant else ""
    if cost_s > SLOW_CLOCK_S:
        advice = "each sample pays two readings: boot with clocksource=tsc if the TSC is invariant"
        return Answer(text, POOR, values, advice=advice)
    return Answer(text, GOOD, values)


@check("frequency", "Frequency", "Machine")
def frequency(here: Here) -> Answer:
    base = here.root / "sys/devices/system/cpu"
    found = sorted(base.glob("cpu[0-9]*/cpufreq/scaling_governor"))
    governors = sorted({text for path in found if (text := here.read(str(path.relative_to(here.root))))})
    boost = here.number("sys/devices/system/cpu/cpufreq/boost")
    no_turbo = here.number("sys/devices/system/cpu/intel_pstate/no_turbo")
    turbo = bool(boost) if boost is not None else (not no_turbo if no_turbo is not None else None)
    values = {"governors": governors, "turbo": turbo}
    if not governors:
        return Answer("not visible from here", FACT, values)
    text = f"governor {', '.join(governors)}" + (
        "" if turbo is None else f", turbo {'on' if turbo else 'off'}"
    )
    if governors != ["performance"]:
        advice = "a core that must speed up first is slow at first: cpupower frequency-set -g performance"
        return Answer(text, POOR, values, advice=advice)
    return Answer(text, GOOD, values)


@check("virtual", "Virtualised", "Machine")
def virtual(here: Here) -> Answer:
    flags = _field(here.read("proc/cpuinfo"), "flags").split()
    told = here.run(["systemd-detect-virt", "--vm"], 5) if here.which("systemd-detect-virt") else None
    kind = told.out.strip() if told and told.status == 0 else ""
    machine = kind or ("unknown hypervisor" if "hypervisor" in flags else "")
    container = next(
        (name for name in (".dockerenv", "run/.containerenv") if (here.root / name).exists()), ""
    )
    inside = {"": "", ".dockerenv": "docker", "run/.containerenv": "podman"}[container]
    values = {"hypervisor": machine or None, "container": inside or None}
    text = ", ".join(part for part in (machine, f"in a container ({inside})" if inside else "") if part)
    if machine:
        advice = (
            "other guests of the same host disturb at times no epoch can average away: repeat at other hours"
        )
        return Answer(text, POOR, values, advice=advice)
    return Answer(text or "no", FACT if inside else GOOD, values)


@check("kernel", "Kernel", "Machine")
def kernel(here: Here) -> Answer:
    release = here.read("proc/sys/kernel/osrelease") or platform.release()
    distribution = _unquoted(re.search(r"^PRETTY_NAME=(.*)$", here.read("etc/os-release"), re.M))
    values = {"release": release, "distribution": distribution}
    return Answer(", ".join(part for part in (distribution, release) if part), FACT, values)


@check("load", "Load", "Machine")
def load(here: Here) -> Answer:
    told = here.read("proc/loadavg").split()[:1]
    if not told:
        return Answer("not visible from here", FACT, {"load": None})
    value, threads = float(told[0]), available(here.root).threads
    text = f"{value:g} processes running or waiting, on {_count(threads, 'hardware thread')}"
    if value > 0.5 * threads:
        return Answer(text, POOR, {"load": value}, advice="something else is running here; 'top' shows what")
    return Answer(text, GOOD, {"load": value})


@check("privileges", "Privileges", "Machine")
def privileges(here: Here) -> Answer:
    status = here.read("proc/self/status")
    effective = int(_field(status, "CapEff") or "0", 16)
    held = [name for name, bit in CAPABILITIES.items() if effective >> bit & 1]
    root = _field(status, "Uid").split()[1:2] == ["0"]
    paranoid = here.number("proc/sys/kernel/perf_event_paranoid")
    values = {"root": root, "capabilities": held, "perf_event_paranoid": paranoid}
    text = "root" if root else f"user, {', '.join(held) or 'no special capabilities'}"
    if root and len(held) < len(CAPABILITIES):
        text += f" without {', '.join(name for name in CAPABILITIES if name not in held)}"
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
    fabric = _names(here, "sys/class/infiniband")
    if fabric and locked != resource.RLIM_INFINITY:
        advice = "RDMA locks the memory it registers: ulimit -l unlimited, in limits.conf for good"
        return Answer(text, POOR, values, advice=advice)
    return Answer(text, FACT, values)


@check("memory", "Memory", "Machine")
def memory(here: Here) -> Answer:
    info = dict(re.findall(r"^(\w+):\s+(\d+)", here.read("proc/meminfo"), re.M))
    total, free = (1024 * int(info.get(key, 0)) for key in ("MemTotal", "MemAvailable"))
    pages, page = int(info.get("HugePages_Total", 0)), 1024 * int(info.get("Hugepagesize", 0))
    thp = re.search(r"\[(\w+)\]", here.read("sys/kernel/mm/transparent_hugepage/enabled"))
    values = {
        "total_bytes": total,
        "available_bytes": free,
        "huge_pages": pages,
        "huge_page_bytes": page,
        "transparent_huge_pages": thp[1] if thp else None,
    }
    text = f"{format_size(free)} free of {format_size(total)}"
    text += f", {pages} huge pages of {format_size(page)}" if pages else ", no huge pages reserved"
    text += f", transparent: {thp[1]}" if thp else ""
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
        return Answer("not writable", POOR, values, advice="give results another place with --output")
    text = f"{format_size(space.free)} free, writable"
    if space.free < 1 << 30:
        return Answer(
            text, POOR, values, advice="a run with every sample kept may need more: choose another --output"
        )
    return Answer(text, GOOD, values)


@check("network", "Network", "Machine")
def network(here: Here) -> Answer:
    ports: list[dict[str, Any]] = []
    for name in _names(here, "sys/class/net"):
        base = f"sys/class/net/{name}"
        if name == "lo" or here.read(f"{base}/operstate") == "down":
            continue
        speed = here.number(f"{base}/speed")  # Mbit/s; -1 or unreadable where the driver does not know
        ports.append({"name": name, "mbit_s": speed if speed and speed > 0 else None})
    fabric = [
        {
            "name": f"{device}/{port}",
            "rate": here.read(f"sys/class/infiniband/{device}/ports/{port}/rate"),
            "state": here.read(f"sys/class/infiniband/{device}/ports/{port}/state").partition(": ")[2],
            "layer": here.read(f"sys/class/infiniband/{device}/ports/{port}/link_layer"),
        }
        for device in _names(here, "sys/class/infiniband")
        for port in _names(here, f"sys/class/infiniband/{device}/ports")
    ]
    told = [f"{p['name']}" + (f" {p['mbit_s'] / 1000:g} Gbit/s" if p["mbit_s"] else "") for p in ports]
    told += [f"{p['name']} {p['layer']} {p['rate']} {p['state'].lower()}" for p in fabric]
    values = {"interfaces": ports, "rdma": fabric}
    return Answer(", ".join(told) or "no interface but loopback", FACT, values)


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
    """Reads it whole. Its keys are held against a command when that command starts."""
    from sonde.core import config
    from sonde.core.errors import UsageError

    path = config.find(None, here.environ, here.root / "etc")
    if path is None:
        return Answer("none", FACT, {"path": None})
    try:
        config.read(path)
    except UsageError as error:
        return Answer(error.what, NONE, {"path": str(path)}, advice=error.hint)
    return Answer(str(path), FACT, {"path": str(path)})


def _field(text: str, name: str) -> str:
    """The first `name : value` line's value, as /proc writes them."""
    match = re.search(rf"^{re.escape(name)}\s*:[ \t]*(.*)$", text, re.M)
    return match[1].strip() if match else ""


def _names(here: Here, folder: str) -> list[str]:
    try:
        return sorted(entry.name for entry in (here.root / folder).iterdir())
    except OSError:
        return []


def _unquoted(match: re.Match[str] | None) -> str:
    return match[1].strip().strip("\"'") if match else ""


def _limit(value: int) -> int | None:
    """For JSON: None is unlimited."""
    return None if value == resource.RLIM_INFINITY else value


def _shown(value: int, is_size: bool = True) -> str:
    if value == resource.RLIM_INFINITY:
        return "unlimited"
    return format_size(value) if is_size else str(value)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
