"""The machine as found, read from made-up trees of /proc, /sys and /etc."""

from __future__ import annotations

import json
import re
import shlex
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from sonde.core import provenance
from sonde.core.launch.cpus import parse_cpu_list
from sonde.core.launch.mpirun import Mpi
from sonde.core.provenance import attrs, commit, infiniband, machine, network, virtualised

MPICH = Mpi("mpich", "MPICH", "4.0.2", Path("/usr/bin/mpirun"))


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A compute node: 2 sockets of 2 cores of 2 threads, InfiniBand, bare metal."""
    cpu = "sys/devices/system/cpu"
    write(
        tmp_path,
        {
            "etc/os-release": 'PRETTY_NAME="Rocky Linux 9.4"\nID="rocky"',
            "proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 7763\nmicrocode\t: 0xa0011d5\n"
            "flags\t\t: fpu sse\n\nprocessor\t: 1\nmodel name\t: another",
            "proc/meminfo": "MemTotal:       527983416 kB\nMemFree:        1 kB",
            "proc/loadavg": "1.50 2.00 3.00 1/100 4242",
            "proc/self/cgroup": "0::/",
            "proc/sys/kernel/hostname": "n017",
            "proc/sys/kernel/osrelease": "5.14.0-427.el9.x86_64",
            "proc/sys/kernel/randomize_va_space": "2",
            "proc/sys/kernel/numa_balancing": "1",
            f"{cpu}/online": "0-7",
            f"{cpu}/smt/control": "on",
            f"{cpu}/isolated": "",
            f"{cpu}/intel_pstate/no_turbo": "1",
            f"{cpu}/vulnerabilities/meltdown": "Not affected",
            f"{cpu}/vulnerabilities/retbleed": "Mitigation: untrained return thunk",
            "sys/devices/system/node/node0/x": "",
            "sys/devices/system/node/node1/x": "",
            "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
            "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never",
            "sys/class/dmi/id/bios_vendor": "American Megatrends",
            "sys/class/dmi/id/bios_version": "2.4",
            "sys/class/dmi/id/bios_date": "03/01/2024",
            "sys/class/dmi/id/sys_vendor": "Supermicro",
            "sys/class/dmi/id/product_serial": "S123456789",
            "sys/class/net/lo/mtu": "65536",
            "sys/class/net/eth0/mtu": "9000",
            "sys/class/net/eth0/speed": "25000",
            "sys/class/net/eth0/operstate": "up",
            "sys/class/net/eth0/address": "0c:42:a1:00:00:01",
            "sys/class/net/eth0/device/vendor": "0x15b3",
            "sys/class/infiniband/mlx5_0/hca_type": "MT4123",
            "sys/class/infiniband/mlx5_0/fw_ver": "20.31.1014",
            "sys/class/infiniband/mlx5_0/node_guid": "0c42:a103:0000:0001",
            "sys/class/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)",
            "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand",
            "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
        },
    )
    for n in range(8):
        write(
            tmp_path,
            {
                f"{cpu}/cpu{n}/topology/physical_package_id": str(n % 4 // 2),
                f"{cpu}/cpu{n}/topology/core_id": str(n % 2),
                f"{cpu}/cpu{n}/cpufreq/scaling_governor": "performance" if n else "powersave",
                f"{cpu}/cpu{n}/cpufreq/scaling_driver": "acpi-cpufreq",
            },
        )
    return tmp_path


def test_a_compute_node_is_read_as_it_is(node: Path) -> None:
    assert machine(node, MPICH) == {
        "architecture": "unknown",
        "aslr": "on",
        "bios": "American Megatrends 2.4 03/01/2024",
        "clock_source": "tsc",
        "cores": 4,
        "cpu": "AMD EPYC 7763",
        "cpu_quota": "none",
        "cpufreq_driver": "acpi-cpufreq",
        "distribution": "Rocky Linux 9.4",
        "governor": "powersave, performance",
        "hostname": "n017",
        "infiniband": "mlx5_0/1: MT4123, firmware 20.31.1014, 200 Gb/sec (4X HDR), InfiniBand, ACTIVE",
        "isolated_cpus": "none",
        "kernel": "5.14.0-427.el9.x86_64",
        "load_average": 1.5,
        "memory_bytes": 527983416 * 1024,
        "microcode": "0xa0011d5",
        "mitigations": "retbleed: untrained return thunk",
        "mpi": "MPICH",
        "mpi_version": "4.0.2",
        "network": "eth0: 25000 Mb/s, mtu 9000, up",
        "numa_balancing": "on",
        "numa_nodes": 2,
        "smt": "on",
        "sockets": 2,
        "sonde_commit": "unknown",
        "threads": 8,
        "threads_per_core": 2,
        "transparent_hugepages": "always",
        "turbo": "off",
        "virtualised": "none",
    }


def test_nothing_secret_is_reported(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SONDE_TEST_TOKEN", "hunter2")
    told = json.dumps(machine(node)) + json.dumps(attrs(command=["sonde"], seed=1, hostlist="n1"))
    assert "0c:42:a1" not in told
    assert "0c42:a103" not in told
    assert "S123456789" not in told
    assert "hunter2" not in told


def test_on_an_empty_tree_everything_is_unknown(tmp_path: Path) -> None:
    told = machine(tmp_path)
    assert {key for key, value in told.items() if value != "unknown"} == {"cpu_quota", "isolated_cpus"}


def test_the_keys_are_the_same_on_every_machine(node: Path, tmp_path: Path) -> None:
    assert machine(node).keys() == machine(tmp_path / "empty").keys() == machine().keys()


def test_this_machine_is_described_in_values_that_fit_a_dataset() -> None:
    told = machine()
    assert told["hostname"]
    assert told["threads"] != "unknown"
    assert all(isinstance(value, str | int | float) for value in told.values())
    json.dumps(told)


def test_a_cpu_that_is_offline_is_not_counted(node: Path) -> None:
    write(node, {"sys/devices/system/cpu/online": "0-1,4-5"})
    told = machine(node)
    assert (told["threads"], told["cores"], told["sockets"]) == (4, 2, 1)


def test_arm_has_no_model_name(node: Path) -> None:
    write(node, {"proc/cpuinfo": "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c"})
    assert machine(node)["cpu"] == "Arm implementer 0x41 part 0xd0c"
    assert machine(node)["virtualised"] == "unknown"


def test_turbo_of_other_drivers(node: Path) -> None:
    (node / "sys/devices/system/cpu/intel_pstate/no_turbo").unlink()
    assert machine(node)["turbo"] == "unknown"
    write(node, {"sys/devices/system/cpu/cpufreq/boost": "1"})
    assert machine(node)["turbo"] == "on"


@pytest.mark.parametrize(
    ("flags", "vendor", "file", "told"),
    [
        ("fpu sse", "Dell Inc.", None, "none"),
        ("fpu hypervisor", "QEMU", None, "kvm"),
        ("fpu hypervisor", "", None, "a hypervisor"),
        ("fpu hypervisor", "VMware, Inc.", ".dockerenv", "vmware, docker"),
        ("fpu", "Amazon EC2", None, "none"),
        ("fpu", "Dell Inc.", "run/.containerenv", "podman"),
        ("", "Amazon EC2", None, "amazon"),
        ("", "", None, "unknown"),
    ],
)
def test_virtualised(tmp_path: Path, flags: str, vendor: str, file: str | None, told: str) -> None:
    if flags:
        write(tmp_path, {"proc/cpuinfo": f"flags\t: {flags}"})
    if vendor:
        write(tmp_path, {"sys/class/dmi/id/sys_vendor": vendor})
    if file:
        write(tmp_path, {file: ""})
    assert virtualised(tmp_path) == told


def test_network_names_the_driver_and_an_unknown_speed(tmp_path: Path) -> None:
    write(tmp_path, {"sys/class/net/eth0/mtu": "1500", "sys/class/net/eth0/speed": "-1"})
    assert network(tmp_path) == "none"  # no hardware behind it
    device = tmp_path / "sys/class/net/eth0/device"
    device.mkdir()
    (device / "driver").symlink_to("../../../../bus/virtio/drivers/virtio_net")
    assert network(tmp_path) == "eth0: virtio_net, speed unknown, mtu 1500, unknown"


def test_no_rdma_device(tmp_path: Path) -> None:
    assert infiniband(tmp_path) == "unknown"
    (tmp_path / "sys/class").mkdir(parents=True)
    assert infiniband(tmp_path) == "none"


@pytest.mark.parametrize(
    ("text", "numbers"), [("0-3,8", [0, 1, 2, 3, 8]), ("0", [0]), ("", []), ("2-2", [2])]
)
def test_parse_cpu_list(text: str, numbers: list[int]) -> None:
    assert parse_cpu_list(text) == numbers


def test_attributes_say_how_a_dataset_came_about(node: Path) -> None:
    argv = ["sonde", "net", "run", "-o", "my file.nc"]
    now = datetime(2026, 11, 21, 0, 47, 57, tzinfo=timezone(timedelta(hours=3)))
    told = attrs(command=argv, seed=7, hostlist="n[1-4]", root=node, env={"SLURM_JOB_ID": "42"}, now=now)
    assert told["created_utc"] == "2026-11-20T21:47:57Z"
    assert shlex.split(str(told["command"])) == argv
    assert (told["seed"], told["hostlist"], told["job_id"]) == (7, "n[1-4]", "42")
    assert told["sonde_version"] == provenance.sonde.__version__
    assert machine(node).items() <= told.items()


def test_attributes_outside_a_job_and_now(node: Path) -> None:
    told = attrs(command=["sonde"], seed=0, hostlist="n1", root=node, env={})
    assert told["job_id"] == "none"
    made = datetime.strptime(str(told["created_utc"]), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - made) < timedelta(minutes=10)


def test_commit_is_that_of_the_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert commit() == "unknown" or re.fullmatch(r"\S*[0-9a-f]{7,}\S*|v?\d\S*", commit())
    monkeypatch.setattr(provenance.sonde, "__file__", str(tmp_path / "lib/sonde/__init__.py"))
    assert commit() == "unknown"
