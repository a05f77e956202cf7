"""A description of the machine, and a dataset's root attributes about its origin.

It records only what explains a measurement: no environment, no MAC address, no serial number, no user. A value that
cannot be read is "unknown", never a guess. Everything comes from files under `root`, so a test can use an invented
machine.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess
from array import array
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import sonde
from sonde.core import distribution
from sonde.core.errors import typed
from sonde.core.launch import cpus
from sonde.core.surroundings import place_of_ranks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sonde.core.launch.mpirun import Mpi

UNKNOWN = "unknown"
Value = str | int | float
ROOT = Path("/")

# A scheduler's name for the job; the first one that is set counts.
_JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "OAR_JOB_ID", "FLUX_JOB_ID")


def machine(root: Path = ROOT, mpi: Mpi | None = None) -> dict[str, Value]:
    """The description of this machine, as flat names and values that fit NetCDF attributes and JSON.

    Parameters
    ----------
    root   the tree that holds proc/, sys/ and etc/.
    mpi    the MPI in use; None: "unknown".

    Returns
    -------
    hostname, cpu, architecture, microcode · sockets, cores, threads, threads_per_core, numa_nodes (counts) ·
    cpu_quota (CPUs that a control group grants, or "none") · smt, isolated_cpus, governor, cpufreq_driver,
    turbo · clock_source · kernel, distribution, virtualised ("none", "kvm", "kvm, docker", …) ·
    memory_bytes · load_average (1 min) · transparent_hugepages, aslr, numa_balancing, mitigations · bios ·
    network, infiniband (a device each, "; " between) · mpi, mpi_version · sonde_commit.
    "unknown" for every value that cannot be read.
    """
    found: dict[str, Value] = {
        "hostname": socket.gethostname() if root == ROOT else _text(root / "proc/sys/kernel/hostname"),
        "kernel": _text(root / "proc/sys/kernel/osrelease"),
        "distribution": distribution.os_release(root).get("PRETTY_NAME") or UNKNOWN,
        "clock_source": _text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "virtualised": virtualised(root),
        "memory_bytes": _memory_bytes(root),
        "load_average": _load_average(root),
        "bios": _each(
            (_text(root / f"sys/class/dmi/id/bios_{part}", "") for part in ("vendor", "version", "date")), " "
        ),
        "network": network(root),
        "infiniband": infiniband(root),
        "mpi": mpi.name if mpi else UNKNOWN,
        "mpi_version": mpi.version if mpi else UNKNOWN,
        "sonde_commit": commit() if root == ROOT else UNKNOWN,
    }
    return dict(sorted({**found, **_processor(root), **_kernel_settings(root)}.items()))


def attrs(
    *,
    command: Sequence[str],
    seed: int,
    hostlist: str,
    root: Path = ROOT,
    mpi: Mpi | None = None,
    env: Mapping[str, str] = os.environ,
    now: datetime | None = None,
) -> dict[str, Value]:
    """A dataset's root attributes that are the same for all rooms: how it was made, and `machine`.

    `command` is argv and comes out quoted for a shell; `hostlist` is compressed ("n[1-4]"); `now` has a time zone.
    """
    return {
        "sonde_version": sonde.__version__,
        "command": typed(*command),
        "created_utc": (now or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "seed": seed,
        "hostlist": hostlist,
        "job_id": next((env[name] for name in _JOB_VARIABLES if env.get(name)), "none"),
        **machine(root, mpi),
    }


def commit() -> str:
    """`git describe` of the running checkout, "-dirty" when changed; "unknown" when installed."""
    top = Path(sonde.__file__).resolve().parents[2]
    if not (top / ".git").exists() or shutil.which("git") is None:
        return UNKNOWN
    version = _run("git", "-C", str(top), "describe", "--always", "--dirty", "--tags")
    return version or UNKNOWN


# processor


def _processor(root: Path) -> dict[str, Value]:
    system = root / "sys/devices/system"
    online = cpus.parse_cpu_list(_text(system / "cpu/online", ""))
    packages = {_text(system / f"cpu/cpu{cpu}/topology/physical_package_id", "") for cpu in online}
    known = bool(online) and "" not in packages
    cores = cpus.available(root, set(online)).cores if known else 0
    frequency = [system / f"cpu/cpu{cpu}/cpufreq" for cpu in online]
    quota = cpus.quota(root)
    info = _cpuinfo(root)
    return {
        "cpu": info.get("model name") or _arm_name(info) or UNKNOWN,
        "microcode": info.get("microcode") or UNKNOWN,
        "architecture": os.uname().machine if root == ROOT else UNKNOWN,
        "threads": len(online) or UNKNOWN,
        "cores": cores or UNKNOWN,
        "sockets": len(packages) if known else UNKNOWN,
        "threads_per_core": len(online) // cores if cores else UNKNOWN,
        "numa_nodes": len(list((system / "node").glob("node[0-9]*"))) or UNKNOWN,
        "cpu_quota": "none" if quota is None else quota,
        "smt": _text(system / "cpu/smt/control"),
        "isolated_cpus": _text(system / "cpu/isolated", "") or "none",
        "governor": _each((_text(folder / "scaling_governor", "") for folder in frequency), ", "),
        "cpufreq_driver": _each((_text(folder / "scaling_driver", "") for folder in frequency), ", "),
        "turbo": _turbo(system / "cpu"),
    }


def _cpuinfo(root: Path) -> dict[str, str]:
    """The fields of the first processor in /proc/cpuinfo."""
    first = _text(root / "proc/cpuinfo", "").split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _arm_name(info: Mapping[str, str]) -> str:
    """The name of an Arm core: the kernel gives no model name, only the designer and the number of the core."""
    implementer, part = info.get("CPU implementer"), info.get("CPU part")
    return f"Arm implementer {implementer} part {part}" if implementer and part else ""


def _turbo(cpu: Path) -> str:
    """Whether clocks may exceed the nominal one: "on", "off"."""
    for file, on in (("intel_pstate/no_turbo", "0"), ("cpufreq/boost", "1")):
        value = _text(cpu / file, "")
        if value:
            return "on" if value == on else "off"
    return UNKNOWN


# kernel and firmware


def _kernel_settings(root: Path) -> dict[str, Value]:
    aslr = {"0": "off", "1": "partly", "2": "on"}
    balancing = {"0": "off"}
    numa = _text(root / "proc/sys/kernel/numa_balancing", "")
    vulnerabilities = sorted((root / "sys/devices/system/cpu/vulnerabilities").glob("*"))
    mitigations = [(path.name, _text(path, "")) for path in vulnerabilities]
    named = [
        f"{name}: {text.removeprefix('Mitigation: ')}" for name, text in mitigations if text != "Not affected"
    ]
    return {
        "transparent_hugepages": _chosen(_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        "aslr": aslr.get(_text(root / "proc/sys/kernel/randomize_va_space", ""), UNKNOWN),
        "numa_balancing": balancing.get(numa, "on") if numa else UNKNOWN,
        "mitigations": "; ".join(named) or ("none needed" if mitigations else UNKNOWN),
    }


def _chosen(text: str) -> str:
    """ "madvise" for the kernel's "always [madvise] never"."""
    return text.partition("[")[2].partition("]")[0] or text


def _memory_bytes(root: Path) -> Value:
    found = re.search(r"^MemTotal:\s+([0-9]{1,15}) kB$", _text(root / "proc/meminfo", ""), re.MULTILINE)
    return int(found[1]) * 1024 if found else UNKNOWN


def _load_average(root: Path) -> Value:
    text = _text(root / "proc/loadavg", "")
    return float(text.split()[0]) if text else UNKNOWN


def virtualised(root: Path = ROOT) -> str:
    """ "none", or the kind of virtualisation: a hypervisor ("kvm"), a container ("docker"), or both ("kvm, docker").

    systemd-detect-virt answers where it is installed; otherwise the processor's own flag and the firmware's maker do. A
    hypervisor that hides from both is "unknown".
    """
    if root == ROOT and shutil.which("systemd-detect-virt"):
        kinds = [_run("systemd-detect-virt", option) for option in ("--vm", "--container")]
        found = [kind for kind in kinds if kind and kind != "none"]
        return ", ".join(found) or ("none" if "none" in kinds else UNKNOWN)
    vendor = _text(root / "sys/class/dmi/id/sys_vendor", "")
    flags = _cpuinfo(root).get("flags", "").split()
    named = next((name for maker, name in _HYPERVISORS.items() if maker in vendor), "")
    if (
        flags
    ):  # x86: the processor flag decides; the maker alone does not, because clouds have bare machines too
        machine_kind = (named or "a hypervisor") if "hypervisor" in flags else ""
    else:
        machine_kind = named or UNKNOWN
    container = "docker" if (root / ".dockerenv").exists() else ""
    container = "podman" if (root / "run/.containerenv").exists() else container
    return ", ".join(filter(None, (machine_kind, container))) or "none"


_HYPERVISORS = {
    "QEMU": "kvm",
    "Amazon EC2": "amazon",
    "Google": "google",
    "Microsoft Corporation": "microsoft",
    "VMware": "vmware",
    "Xen": "xen",
    "innotek": "oracle",
}


# network


def network(root: Path = ROOT) -> str:
    """Network hardware: "eth0: mlx5_core, 100000 Mb/s, mtu 9000, up, firmware 16.35; …", or "none"."""
    lines = []
    for folder in sorted((root / "sys/class/net").glob("*")):
        if not (folder / "device").exists():
            continue  # loopback, bridges, tunnels
        driver = folder / "device/driver"
        speed = _text(folder / "speed", "")
        firmware = _ethernet_firmware(folder.name) if root == ROOT else ""
        parts = [
            os.path.basename(os.readlink(driver)) if driver.is_symlink() else "",
            f"{speed} Mb/s" if speed.isdigit() else "speed unknown",
            f"mtu {_text(folder / 'mtu')}",
            _text(folder / "operstate"),
            f"firmware {firmware}" if firmware else "",
        ]
        lines.append(f"{folder.name}: {', '.join(filter(None, parts))}")
    return "; ".join(lines) or ("none" if (root / "sys/class/net").is_dir() else UNKNOWN)


def infiniband(root: Path = ROOT) -> str:
    """RDMA ports: "mlx5_0/1: MT4123, firmware 20.31, 100 Gb/sec (2X HDR), InfiniBand, ACTIVE", or "none"."""
    if not (root / "sys/class").is_dir():
        return UNKNOWN
    lines = []
    for device in sorted((root / "sys/class/infiniband").glob("*")):
        for port in sorted((device / "ports").glob("*")):
            state = _text(port / "state", "").partition(": ")[2] or UNKNOWN
            parts = [
                _text(device / "hca_type", ""),
                f"firmware {_text(device / 'fw_ver')}",
                _text(port / "rate"),
                _text(port / "link_layer"),
                state,
            ]
            lines.append(f"{device.name}/{port.name}: {', '.join(filter(None, parts))}")
    return "; ".join(lines) or "none"


_SIOCETHTOOL = 0x8946
_ETHTOOL_GDRVINFO = 0x3
_DRVINFO = struct.Struct("=I32s32s32s32s32s12s5I")  # struct ethtool_drvinfo of linux/ethtool.h


def _ethernet_firmware(interface: str) -> str:
    """The firmware version that the driver reports; "" when it reports none."""
    answer = array("B", _DRVINFO.pack(_ETHTOOL_GDRVINFO, b"", b"", b"", b"", b"", b"", 0, 0, 0, 0, 0))
    request = struct.pack("16sP", interface.encode()[:15], answer.buffer_info()[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control.fileno(), _SIOCETHTOOL, request)
    except OSError:
        return ""
    firmware = _DRVINFO.unpack(answer.tobytes())[3].split(b"\0", 1)[0].decode("ascii", "replace").strip()
    return "" if firmware == "N/A" else firmware


# reading


def _text(path: Path, missing: str = UNKNOWN) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or missing
    except OSError:
        return missing


def _each(values: Iterable[str], between: str) -> str:
    """All different values in order; "unknown" if there are none."""
    return between.join(dict.fromkeys(filter(None, values))) or UNKNOWN


def _run(*command: str) -> str:
    """The first line that a command prints, whatever its exit status; "" if it does not run."""
    try:
        ran = subprocess.run(
            command,
            cwd=place_of_ranks(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.strip().partition("\n")[0]
