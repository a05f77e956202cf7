"""sonde doctor: each check on a simulated machine, the results of the rooms, and this machine."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pytest

from sonde.cli import doctor
from sonde.cli.diagnosis import checks, cluster, libraries, machine, mpi
from sonde.cli.diagnosis.mpi import say_hello
from sonde.core import diagnosis, distribution
from sonde.core.diagnosis import FACT, GOOD, NONE, POOR, Answer, Check, Here, Need, ask
from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.core.launch.mpirun import Mpi
from sonde.core.room import NAMES
from sonde.io import run_doctor as io
from sonde.noise import run_doctor as noise
from sonde.store import run
from sonde.store import run_doctor as store


@pytest.fixture
def tree(tmp_path: Path):
    """Makes a machine from the given files, by path below its root."""

    def make(**environ: str) -> Here:
        return Here(tmp_path, tmp_path, environ)

    def put(path: str, text: str = "") -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    make.put = put
    return make


CPUINFO = (
    "processor\t: 0\nmodel name\t: Example 9000\nflags\t\t: fpu {}\n\nprocessor\t: 1\nmodel name\t: Other\n"
)


def test_processor(tree):
    tree.put("proc/cpuinfo", CPUINFO)
    tree.put("sys/devices/system/node/node0/cpulist")
    tree.put("sys/devices/system/node/node1/cpulist")
    tree.put("sys/devices/system/node/possible")
    answer = machine.cpu(tree())
    assert answer.text.startswith("Example 9000, ")
    assert answer.text.endswith(", 2 NUMA nodes")
    assert answer.values["threads"] == len(os.sched_getaffinity(0))
    assert answer.mark == FACT


def test_a_cpu_quota_below_the_threads_is_poor(tree):
    tree.put("proc/self/cgroup", "0::/\n")
    tree.put("sys/fs/cgroup/cpu.max", "50000 100000\n")
    answer = machine.cpu(tree())
    assert answer.mark == POOR
    assert "a control group grants 0.5 CPUs" in answer.text
    assert answer.advice


def test_a_slow_clock_is_poor(tree, monkeypatch):
    tree.put("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n")
    tree.put("proc/cpuinfo", CPUINFO.format("constant_tsc nonstop_tsc"))
    from sonde import _core

    monkeypatch.setattr(_core, "clock_cost_s", lambda: 1.2e-6)
    answer = machine.clock(tree())
    assert answer.text == "hpet, 1.20 µs a reading, invariant TSC"
    assert answer.mark == POOR
    monkeypatch.setattr(_core, "clock_cost_s", lambda: 25e-9)
    assert machine.clock(tree()).mark == GOOD


def test_the_cost_of_a_clock_reading_is_measured():
    from sonde import _core

    assert 1e-9 < _core.clock_cost_s() < 1e-3


@pytest.mark.parametrize(
    ("governors", "text", "mark"),
    [
        ([], "not visible from here", FACT),
        (["performance", "performance"], "governor performance, turbo on", GOOD),
        (["performance", "powersave"], "governor performance, powersave, turbo on", POOR),
    ],
)
def test_governor(tree, governors, text, mark):
    tree.put("sys/devices/system/cpu/online", f"0-{max(0, len(governors) - 1)}")
    tree.put("sys/devices/system/cpu/cpufreq/boost", "1")
    for cpu, governor in enumerate(governors):
        tree.put(f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", governor + "\n")
    answer = machine.frequency(tree())
    assert (answer.text, answer.mark) == (text, mark)


def test_a_virtual_machine_is_poor_and_a_container_alone_is_not(tree):
    tree.put("proc/cpuinfo", CPUINFO.format("fpu"))
    assert (machine.virtual(tree()).text, machine.virtual(tree()).mark) == ("no", GOOD)
    tree.put(".dockerenv")
    assert (machine.virtual(tree()).text, machine.virtual(tree()).mark) == ("docker", FACT)
    tree.put("proc/cpuinfo", CPUINFO.format("hypervisor"))
    answer = machine.virtual(tree())
    assert (answer.text, answer.mark) == ("a hypervisor, docker", POOR)
    assert answer.advice


def test_kernel(tree):
    tree.put("proc/sys/kernel/osrelease", "6.1.0-18\n")
    tree.put("etc/os-release", 'NAME=x\nPRETTY_NAME="Debian GNU/Linux 12"\n')
    assert machine.kernel(tree()).text == "6.1.0-18, Debian GNU/Linux 12"


def test_load_of_others_is_poor(tree):
    assert machine.load(tree()).mark == FACT
    tree.put("proc/loadavg", "0.00 0.1 0.1 1/100 42\n")
    assert machine.load(tree()).mark == GOOD
    tree.put("proc/loadavg", "640.5 0.1 0.1 1/100 42\n")
    answer = machine.load(tree())
    assert answer.mark == POOR
    assert answer.text.startswith("640.5 processes")


@pytest.mark.parametrize(
    ("uid", "caps", "text"),
    [
        ("1000", "0", "user, no special capabilities; perf_event_paranoid 2"),
        ("1000", f"{1 << 19:x}", "user, cap_sys_ptrace; perf_event_paranoid 2"),
        ("0", "1ffffffffff", "root; perf_event_paranoid 2"),
    ],
)
def test_privileges(tree, uid, caps, text):
    tree.put("proc/self/status", f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{caps}\n")
    tree.put("proc/sys/kernel/perf_event_paranoid", "2\n")
    assert machine.privileges(tree()).text == text


def test_root_of_a_container_says_what_it_lacks(tree):
    tree.put("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\ta80425fb\n")  # docker's default set
    text = machine.privileges(tree()).text
    assert text.startswith("root without ")
    assert "cap_sys_ptrace" in text


def test_limits_matter_where_there_is_rdma(tree, monkeypatch):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (65536, 65536))
    assert machine.limits(tree()).mark == FACT
    tree.put("sys/class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n")
    answer = machine.limits(tree())
    assert answer.mark == POOR
    assert answer.text == "65536 open files, 64 KiB locked memory, 64 KiB stack"
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)
    assert machine.limits(tree()).text == "unlimited open files, unlimited locked memory, unlimited stack"


def test_memory(tree):
    tree.put(
        "proc/meminfo",
        "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\nHugePages_Total: 8\nHugepagesize: 2048 kB\n",
    )
    tree.put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    assert machine.memory(tree()).text == "512 MiB free of 1 GiB, 8 huge pages of 2 MiB, transparent: madvise"


def test_shared_memory(tree, monkeypatch):
    answer = machine.shm(tree())
    assert answer.mark == NONE
    assert answer.text == "not usable: no such file or directory"
    tree.put("dev/shm/x")
    assert machine.shm(tree()).values["free_bytes"] > 0
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda place: _Space(1 << 30, 1 << 20))
    assert machine.shm(tree()).mark == POOR


class _Space:
    def __init__(self, total: int, free: int) -> None:
        self.total, self.free = total, free


def test_a_folder_without_room_is_poor(tree, monkeypatch):
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda place: _Space(1 << 40, 1 << 20))
    assert machine.disk(tree()).mark == POOR
    monkeypatch.setattr(machine.os, "access", lambda place, mode: False)
    assert machine.disk(tree()).text == "not writable"


def test_network(tree):
    assert machine.network(tree()).text == "none"
    tree.put("sys/class/net/lo/operstate", "unknown")
    tree.put("sys/class/net/eth0/device/vendor")
    tree.put("sys/class/net/eth0/operstate", "up")
    tree.put("sys/class/net/eth0/speed", "25000")
    tree.put("sys/class/net/eth0/mtu", "9000")
    assert machine.network(tree()).text == "eth0: 25000 Mb/s, mtu 9000, up"
    tree.put("sys/class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n")
    assert "; mlx5_0/1: " in machine.network(tree()).text


def test_scheduler(tree):
    assert machine.scheduler(tree(PATH="")).text == "none"
    assert (
        machine.scheduler(tree(PATH="", SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n[1-2]")).text
        == "Slurm job 7 on n[1-2]"
    )


def test_config_file(tree, monkeypatch):
    assert machine.config_file(tree(SONDE_CONFIG="")).text == "none"
    tree.put("bad.toml", "x =\n")
    named = str(tree().root / "bad.toml")
    answer = machine.config_file(tree(SONDE_CONFIG=named))
    assert answer.mark == NONE
    assert f"{named}:1: not TOML" in answer.text
    tree.put("bad.toml", "x = 1\n")
    assert machine.config_file(tree(SONDE_CONFIG=named)).text == named


@pytest.mark.parametrize(
    ("status", "err", "mark", "text", "delays"),
    [
        (0, "", GOOD, "available, with rates and delays", True),
        (12, "x", GOOD, "available; this kernel has no delays (sch_netem)", False),
        (11, "x", GOOD, "available; this kernel has no rates and no delays (sch_tbf, sch_netem)", False),
        (10, "a\nUnknown device type.", FACT, "not available: Unknown device type.", False),
        (None, "no answer within 10 s", FACT, "not available: no answer within 10 s", False),
    ],
)
def test_virtual_clusters(tree, monkeypatch, status, err, mark, text, delays):
    from sonde.cluster import run

    monkeypatch.setattr(run, "check_here", lambda: None)
    monkeypatch.setattr(Here, "run", lambda here, words, timeout_s: diagnosis.Ran(status, "", err))
    answer = cluster.cluster(tree())
    assert (answer.mark, answer.text, answer.values["delays"]) == (mark, text, delays)
    assert answer.values["works"] is (mark == GOOD)


def test_virtual_clusters_without_root(tree, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    answer = cluster.cluster(tree())
    assert answer.mark == FACT
    assert "need root" in answer.text


# MPI

MPI4 = Mpi("openmpi", "Open MPI", "4.1.4", Path("/opt/ompi/bin/mpirun"))


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Puts a shell script in place of the probe for Open MPI."""

    def make(version: str) -> Path:
        probe = tmp_path / "libexec" / "openmpi" / "sonde-net"
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.write_text(f"#!/bin/sh\n{version}\n")
        probe.chmod(0o755)
        monkeypatch.setattr(mpi.launch, "libexec", lambda: tmp_path / "libexec")
        monkeypatch.setattr(mpi, "candidates", lambda: [MPI4])
        return probe

    return make


def test_no_mpi_says_what_to_install(monkeypatch):
    monkeypatch.setattr(mpi, "candidates", list)
    monkeypatch.setattr(mpi.launch, "built_flavours", tuple)
    answer = mpi.openmpi(Here())
    assert (answer.text, answer.mark) == ("not installed", NONE)
    assert "openmpi" in answer.needs[0].install


def test_an_mpi_without_its_probe_says_what_to_do(monkeypatch):
    monkeypatch.setattr(mpi, "candidates", lambda: [MPI4])
    monkeypatch.setattr(mpi.launch, "built_flavours", tuple)
    answer = mpi.openmpi(Here())
    assert answer.mark == NONE
    assert answer.text == "4.1.4, /opt/ompi/bin/mpirun; no probe was built for it"
    assert answer.needs[0].install.endswith("then 'make setup'")


def test_a_probe_whose_library_is_gone_does_not_work(built):
    built("echo 'error while loading shared libraries' >&2; exit 127")
    answer = mpi.openmpi(Here())
    assert answer.mark == NONE
    assert "does not start" in answer.text
    assert answer.values["works"] is False


VERSION = 'echo \'{"sonde":"0.1.0","mpi":"openmpi","mpi_version":"Open MPI v%s","hwloc":true}\''


def test_ranks_that_start_with_the_same_library_are_good(built, monkeypatch):
    built(VERSION % "4.1.6")
    monkeypatch.setattr(mpi, "say_hello", lambda mpi, probe: "")
    answer = mpi.openmpi(Here())
    assert (answer.text, answer.mark) == ("4.1.4, /opt/ompi/bin/mpirun; two ranks start", GOOD)
    assert answer.values["works"] is True
    assert answer.values["probe"]["hwloc"] is True


def test_a_probe_of_another_version_is_poor(built, monkeypatch):
    built(VERSION % "5.0.2")
    monkeypatch.setattr(mpi, "say_hello", lambda mpi, probe: "")
    answer = mpi.openmpi(Here())
    assert answer.mark == POOR
    assert "make setup" in answer.advice
    assert answer.values["works"] is True


def test_ranks_that_do_not_start_say_why(built, monkeypatch):
    built(VERSION % "4.1.4")
    monkeypatch.setattr(mpi, "say_hello", lambda mpi, probe: "a host could not be reached")
    answer = mpi.openmpi(Here())
    assert answer.mark == NONE
    assert answer.text.endswith("two ranks do not start: a host could not be reached")
    assert answer.values["works"] is False


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"other":1}'])
def test_a_probe_version_that_is_none(text):
    assert mpi.probe_version(text) == {}


def test_version_numbers():
    assert mpi.number("Open MPI v4.1.4, package") == (4, 1, 4)
    assert mpi.number("MPICH Version: 4.0.2") == (4, 0, 2)
    assert mpi.number("none") == ()


def test_two_ranks_say_hello(mpi: Mpi, tmp_path):
    """A script replaces the probe, so the test is independent of the build: only rank 0 prints."""
    probe = tmp_path / "probe"
    probe.write_text(
        '#!/bin/sh\n[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] && '
        'echo "{\\"event\\":\\"hello\\",\\"ranks\\":${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}}"; exit 0\n'
    )
    probe.chmod(0o755)
    assert say_hello(mpi, probe) == ""
    probe.write_text("#!/bin/sh\nexit 0\n")
    assert say_hello(mpi, probe) == "none of 2 answered"
    probe.write_text("#!/bin/sh\nexit 9\n")
    assert say_hello(mpi, probe)


class Scripted(Here):
    """A machine whose programs answer from a table."""

    def __new__(cls, answers):
        made = super().__new__(cls)
        object.__setattr__(made, "answers", answers)
        return made

    def __init__(self, answers) -> None:
        super().__init__()

    def which(self, program):
        return program if program in self.answers else None

    def run(self, words, timeout_s):
        return diagnosis.Ran(0, self.answers.get(Path(words[0]).name, ""), "")


def test_transports_of_open_mpi():
    out = (
        "mca:btl:tcp:version:1\nmca:btl:vader:version:1\nmca:pml:ucx:version:1\nmca:pml:ucx:param:x:value:1\n"
    )
    assert mpi.openmpi_transports(Scripted({"ompi_info": out}), MPI4) == [
        "shared memory (vader)",
        "tcp",
        "ucx",
    ]
    assert mpi.openmpi_transports(Scripted({}), MPI4) == []


@pytest.mark.parametrize(
    ("answers", "names"),
    [
        ({"mpirun": "Configure options: '--with-device=ch4:ucx'"}, ["shared memory (ch4)", "ucx"]),
        (
            {"mpirun": "", "mpichversion": "MPICH Device:    \tch4:ofi\n"},
            ["shared memory (ch4)", "libfabric"],
        ),
        ({"mpirun": "'--with-device=ch3'"}, ["shared memory (ch3)", "tcp"]),
        ({"mpirun": ""}, []),
    ],
)
def test_transports_of_mpich(answers, names):
    assert mpi.mpich_transports(Scripted(answers), Mpi("mpich", "MPICH", "4.0.2", Path("/x/mpirun"))) == names


def test_cross_memory_attach_is_tried_and_its_refusal_told(tree):
    real = mpi.cma(Here())
    assert isinstance(real.values["cma"], bool)
    assert real.mark == (GOOD if real.values["cma"] else POOR)

    class Refused(Here):
        def run(self, words, timeout_s):
            return diagnosis.Ran(0, "operation not permitted", "")

    tree.put("proc/sys/kernel/yama/ptrace_scope", "1\n")
    answer = mpi.cma(Refused(tree().root))
    assert answer.mark == POOR
    assert answer.text == "cross memory attach: operation not permitted"
    assert "ptrace_scope=0" in answer.advice


# libraries, and the overall result


def test_netcdf_is_written_and_read_back():
    answer = libraries.netcdf(Here())
    assert answer.mark == GOOD
    assert answer.values["works"] is True


def test_no_check_has_netcdf_files_open_while_another_has():
    """netCDF-C and HDF5 have no locks: the doctor once died of SIGBUS with two threads in them."""
    from sonde.core.netcdf import netCDF4
    from sonde.io.record import run_trace

    opened: list[object] = []
    answers: dict[str, Answer] = {}

    def both() -> None:
        answers.update(
            ask([Check("a", "A", "g", libraries.netcdf, 30), Check("b", "B", "g", io.io, 30)], Here())
        )

    asking = threading.Thread(target=both)
    with diagnosis.NETCDF, pytest.MonkeyPatch.context() as patch:
        patch.setattr(netCDF4, "Dataset", lambda *words, **more: opened.append(words))
        patch.setattr(run_trace, "trace", lambda *words, **more: opened.append(words))  # it writes a dataset
        asking.start()
        asking.join(0.5)
        assert asking.is_alive()
        assert not opened
    asking.join()
    assert [answer.mark for answer in answers.values()] == [GOOD, GOOD]


def test_a_missing_library_says_what_to_install(monkeypatch):
    monkeypatch.setattr(libraries, "find_spec", lambda name: None)
    assert libraries.report(Here()).needs == [Need("report", "make setup")]
    assert libraries.parquet(Here()).needs[0].install == distribution.install_python("pyarrow")
    assert libraries.browser(Here(environ={"PATH": ""})).mark == FACT


def test_a_store_that_was_not_built_says_what_to_install(tree, monkeypatch):
    def none():
        raise EnvironmentFailure("store.not_built", "this build of Sonde has no storage server")

    monkeypatch.setattr(run, "program", none)
    tree.put("etc/os-release", "ID=debian\n")
    answer = store.store(tree())
    assert (answer.mark, answer.values["built"], answer.values["works"]) == (NONE, False, False)
    assert answer.needs == [Need("store", "apt-get install libisal-dev libssl-dev, then 'make setup'")]


def test_what_a_store_was_built_without_is_named(tree, monkeypatch):
    pytest.importorskip("sonde._store", reason="the store is not built")
    has = {"data": ["null", "memory", "posix"], "kv": ["null", "memory"], "db": [], "transports": ["tcp"]}
    monkeypatch.setattr(run, "program", lambda: Path("/opt/sonde-stored"))
    monkeypatch.setattr(run, "has", lambda: has | {"auth": ["none", "token"]})
    tree.put("etc/os-release", "ID=arch\n")
    answer = store.store(tree())
    assert answer.mark == GOOD
    assert "stores data with posix; authentication: token" in answer.text
    assert Need("transports over libfabric", "pacman -S libfabric, then 'make setup'") in answer.needs
    assert len(answer.needs) == 5


def test_modules_of_a_store_that_do_not_load_are_named(tree, monkeypatch):
    pytest.importorskip("sonde._store", reason="the store is not built")
    broken = [
        {"what": f"cannot load the module {name}: too short", "hint": "build it again"} for name in "ab"
    ]
    has = {"data": ["memory"], "kv": ["memory"], "db": [], "transports": ["tcp"], "auth": ["none"]}
    monkeypatch.setattr(run, "program", lambda: Path("/opt/sonde-stored"))
    monkeypatch.setattr(run, "has", lambda: has | {"broken_modules": broken})
    answer = store.store(tree())
    assert (answer.mark, answer.values["works"]) == (POOR, True)
    assert all(one["what"] in answer.text for one in broken)
    assert answer.advice == "build it again"


def test_a_munged_that_does_not_answer_lets_nobody_in(tree, monkeypatch):
    pytest.importorskip("sonde._store", reason="the store is not built")
    has = {"data": ["posix"], "kv": ["lmdb"], "db": ["sqlite"], "transports": ["tcp", "ofi-msg"]}
    monkeypatch.setattr(run, "program", lambda: Path("/opt/sonde-stored"))
    monkeypatch.setattr(run, "has", lambda: has | {"auth": ["none", "token", "munge"]})
    monkeypatch.setenv("SONDE_MUNGE_SOCKET", "/nowhere/munge.socket")
    answer = store.store(tree())
    assert answer.text.endswith("munged does not answer; authentication: token")
    assert answer.values["munge_works"] is False
    (need,) = [need for need in answer.needs if "MUNGE" in need.what]
    assert need.install.startswith("systemctl start munge")
    assert "/nowhere/munge.socket" in need.install
    monkeypatch.setattr("sonde._store.try_munge", lambda: None)
    answer = store.store(tree())
    assert answer.text.endswith("; authentication: token, munge")
    assert answer.values["munge_works"] is True


def test_a_store_that_does_not_start_does_not_work(tree, monkeypatch):
    def broken():
        raise EnvironmentFailure("store.broken", "sonde-stored does not start: no such library")

    monkeypatch.setattr(run, "program", lambda: Path("/opt/sonde-stored"))
    monkeypatch.setattr(run, "has", broken)
    answer = store.store(tree())
    assert (answer.mark, answer.values["built"], answer.values["works"]) == (NONE, True, False)
    assert "no such library" in answer.text


@pytest.mark.parametrize(
    ("tried", "mark", "text"),
    [
        ([{"provider": "tcp", "works": True, "half_round_trip_s": 5e-6}], GOOD, "64 B one way: tcp 5.00 µs"),
        ([{"provider": "verbs", "works": False, "half_round_trip_s": 0}], POOR, "no provider"),
    ],
)
def test_providers_are_reported_by_what_they_did(tree, monkeypatch, tried, mark, text):
    pytest.importorskip("sonde._store", reason="the store is not built")
    from sonde.store import client

    monkeypatch.setattr(client, "providers", lambda transport, limit_s: tried)
    answer = store.fabric(tree())
    assert answer.mark == mark
    assert text in answer.text


def test_without_libfabric_there_is_tcp(tree, monkeypatch):
    pytest.importorskip("sonde._store", reason="the store is not built")
    from sonde.store import client

    def unknown(transport, limit_s):
        raise UsageError("store.unknown_transport", "there is no transport ofi-msg")

    monkeypatch.setattr(client, "providers", unknown)
    assert store.fabric(tree()).mark == FACT


def answers(**changed: Answer) -> dict[str, Answer]:
    works = Answer("fine", GOOD, {"works": True, "built": True, "version": "4.1.4"})
    return {name: changed.get(name, works) for name in checks()}


def diagnose(answers):
    return doctor.diagnose(answers, {"cpu": "Example 9000"})


def test_all_works():
    outcome = diagnose(answers())
    assert (
        outcome.verdict
        == "net, noise, io, store, bus, power, data and report work here, with Open MPI 4.1.4 and MPICH 4.1.4."
    )
    assert outcome.exit == 0
    assert outcome.values["rooms"][0] == {"room": "net", "built": True, "works": True, "missing": []}


def test_one_mpi_is_enough_for_net():
    absent = Answer(
        "not installed", NONE, {"works": False, "built": False}, [Need("MPICH", "apt-get install mpich")]
    )
    outcome = diagnose(answers(mpich=absent))
    assert (
        outcome.verdict
        == "net, noise, io, store, bus, power, data and report work here, with Open MPI 4.1.4."
    )
    assert outcome.values["rooms"][0]["missing"] == [{"what": "MPICH", "install": "apt-get install mpich"}]


def test_without_mpi_net_does_not_work():
    absent = Answer("not installed", NONE, {"works": False, "built": False}, [Need("MPI", "x")])
    outcome = diagnose(answers(mpich=absent, openmpi=absent))
    assert outcome.verdict == "io, store, bus, power, data and report work here; net and noise do not."
    assert outcome.values["rooms"][0] == {
        "room": "net",
        "built": False,
        "works": False,
        "missing": [{"what": "MPI", "install": "x"}],
    }


def test_without_netcdf_nothing_works():
    broken = Answer("does not load", NONE, {"works": False}, [Need("datasets", "make setup")])
    gone = Answer("not built", NONE, {"works": False, "built": False}, [Need("store", "x")])
    assert diagnose(answers(netcdf=broken, store=gone)).verdict.startswith("Nothing works here")
    assert diagnose(answers(netcdf=broken)).verdict.startswith("store works here")


def test_what_is_poor_becomes_a_warning_with_advice():
    slow = Answer("hpet", POOR, {"works": True}, advice="boot with clocksource=tsc")
    (warning,) = diagnose(answers(clock=slow)).warnings
    assert (warning.code, warning.evidence, warning.hint) == (
        "doctor.clock",
        "Clock: hpet",
        "boot with clocksource=tsc",
    )


def test_this_machine(sonde):
    ran = sonde("doctor", "--json")
    told = json.loads(ran.out)
    assert ran.code == 0
    assert [room["room"] for room in told["rooms"]] == [*NAMES, *doctor.PARTS]
    for room in told["rooms"]:
        assert set(room) == {"room", "built", "works", "missing"}
        assert all(set(need) == {"what", "install"} for need in room["missing"])
    assert told["machine"] == json.loads(json.dumps(Here().machine)) | {
        "load_average": told["machine"]["load_average"]
    }
    assert set(told["checks"]) == set(checks())
    assert {found["mark"] for found in told["checks"].values()} <= {"good", "poor", "none", "fact"}
    assert told["checks"]["cpu"]["threads"] == len(os.sched_getaffinity(0))
    assert told["checks"]["python"]["version"] == ".".join(map(str, sys.version_info[:3]))


def test_this_machine_for_a_person(sonde):
    ran = sonde("doctor")
    assert ran.code == 0
    for title in ("Rooms", "MPI", "Machine", "Libraries"):
        assert f"\n  {title}\n" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_noise_names_what_is_not_built(monkeypatch, tmp_path):
    monkeypatch.setattr(noise.launch, "libexec", lambda: tmp_path)
    monkeypatch.setattr(noise.launch, "built_flavours", lambda: ("openmpi",))
    answer = noise.noise(Here())
    assert answer.mark == NONE
    assert answer.values["programs_missing"] == [
        "sonde-agent",
        "sonde-detour",
        "sonde-keeper",
        "sonde-noise for openmpi",
    ]
    assert answer.needs == [Need("sonde-agent", "make setup")]


def test_noise_without_the_kernels_word_still_works(tmp_path):
    answer = noise.noise(Here(root=tmp_path))
    assert answer.mark == POOR
    assert answer.values["works"]
    assert "--poll" in answer.advice


def test_io_is_for_one_processor(monkeypatch):
    monkeypatch.setattr(io.platform, "machine", lambda: "aarch64")
    answer = io.io(Here())
    assert (answer.mark, answer.values) == (NONE, {"built": False, "works": False})
    assert "aarch64" in answer.text


def test_io_without_its_tracer(monkeypatch, tmp_path):
    from sonde.io.record import run_request

    monkeypatch.setattr(run_request.launch, "libexec", lambda: tmp_path)
    answer = io.io(Here())
    assert (answer.mark, answer.needs) == (NONE, [Need("the tracer", "make setup")])
    assert not answer.values["built"]


def test_io_without_root_says_what_takes_it(tree, monkeypatch):
    monkeypatch.setattr(io.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(io.os, "geteuid", lambda: 1000)
    answer = io.iokernel(tree())
    assert (answer.mark, answer.text) == (FACT, "this kernel has no tracefs")
    tree.put("proc/filesystems", "nodev\ttracefs\n\text4\n")
    answer = io.iokernel(tree())
    assert (answer.mark, answer.text) == (FACT, "--kernel, --uprobes and --attach need root")
    assert not answer.values["root"]


@pytest.mark.parametrize(
    ("sight", "mark", "text"),
    [
        (("/t", True, (), "", ""), GOOD, "--kernel and --uprobes work; tracefs is mounted at /t"),
        (
            ("/t", False, (), "", ""),
            GOOD,
            "--kernel and --uprobes work; tracefs is mounted when needed",
        ),
        (("/t", True, (), "", "none"), GOOD, "--kernel works; no --uprobes: none; tracefs is mounted at /t"),
        (
            ("/t", True, (), "a", "b"),
            FACT,
            "no --kernel: a; no --uprobes: b; tracefs is mounted at /t",
        ),
        (
            ("/t", True, ("sonde-7_8", "sonde_io_7_8"), "", ""),
            POOR,
            "--kernel and --uprobes work; tracefs is mounted at /t; "
            "a killed Sonde left sonde-7_8, sonde_io_7_8",
        ),
    ],
)
def test_io_says_what_of_the_kernel_can_be_watched(monkeypatch, sight, mark, text):
    from sonde.io.record import run_watch

    monkeypatch.setattr(io.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(io.os, "geteuid", lambda: 0)
    monkeypatch.setattr(run_watch, "tried", lambda: run_watch.Sight(Path(sight[0]), *sight[1:]))
    answer = io.iokernel(Here())
    assert (answer.mark, answer.text) == (mark, text)
    assert answer.values["kernel"] is (not sight[3])
    assert answer.values["uprobes"] is (not sight[4])
    assert answer.values["left"] == list(sight[2])
    assert bool(answer.advice) is bool(sight[2])


def test_io_says_why_nothing_of_the_kernel_can_be_watched(monkeypatch):
    from sonde.io.record import run_watch

    def refused():
        raise EnvironmentFailure("io.no_tracefs", "tracefs cannot be mounted", "leave it out")

    monkeypatch.setattr(io.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(io.os, "geteuid", lambda: 0)
    monkeypatch.setattr(run_watch, "tried", refused)
    answer = io.iokernel(Here())
    assert (answer.mark, answer.values["kernel"], answer.values["uprobes"]) == (FACT, False, False)
    assert answer.text == "no --kernel, --uprobes, --attach: tracefs cannot be mounted"


def test_io_says_which_layers_can_be_seen(monkeypatch):
    from sonde.io.maps import run_exports

    def seen(layers, paths):
        by_name = {layer.name: layer for layer in layers}
        return [
            run_exports.Found(by_name["mpiio"], Path("/lib/libmpich.so.12"), ("MPI_File_open",), ()),
            run_exports.Found(by_name["romio"], Path("/lib/libmpich.so.12"), (), ("ADIO_Open",)),
            run_exports.Found(by_name["ompio"], Path("/lib/mca_io_ompio.so"), ("a", "b"), ()),
        ]

    monkeypatch.setattr(run_exports, "of_machine", lambda layers: [])
    monkeypatch.setattr(run_exports, "found_in", seen)
    answer = io.iostack(Here())
    assert answer.mark == GOOD
    assert answer.values == {"mpiio": ["libmpich.so.12"], "below": {"mca_io_ompio.so: ompio": 2}}
    assert answer.text == "functions visible below MPI-IO: 2 functions of OMPIO; MPICH hides its ROMIO"
    monkeypatch.setattr(run_exports, "found_in", lambda layers, paths: [])
    assert io.iostack(Here()).text == "no MPI library was found"
