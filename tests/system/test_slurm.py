"""Sonde's ranks as steps of a real Slurm: a cluster of this one machine, with daemons, keys and ports of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

import sonde as library
from sonde.core import launch
from sonde.core.launch.mpirun import Mpi
from sonde_shell import ENDLESS, PROGRAM, Shell, finish, shell
from watching import samples_in, wait_for

pytestmark = [pytest.mark.mpi, pytest.mark.root]

NEEDED = ("munged", "slurmctld", "slurmd", "srun", "salloc", "squeue")
QUICK = ("--ntasks", "2", "--sizes", "8,1KiB", "--rule", "fixed:200", "--gap", "1ms", "--budget", "60s")
CONFIG = """\
ClusterName=sonde-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmdPort={slurmd}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
"""


def tool(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} is not there: install munge, slurmctld, slurmd and slurm-client")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def cluster(more: str = "") -> Iterator[Path]:
    """slurm.conf of a running cluster; its daemons are ended by the ids they wrote. more: further lines of it."""
    programs = {name: tool(name) for name in NEEDED}
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # short: a socket's path may have 107 characters
    path = folder / "slurm.conf"
    host = socket.gethostname().split(".")[0]
    path.write_text(CONFIG.format(host=host, folder=folder, ctld=free_port(), slurmd=free_port()) + more)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    files = {"key-file": key, "socket": folder / "munge.sock", "pid-file": folder / "munged.pid"}
    files |= {"log-file": folder / "munged.log", "seed-file": folder / "munged.seed"}

    def started(name: str, *words: str) -> None:
        ran = subprocess.run(
            [programs[name], *words],
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | {"SLURM_CONF": str(path)},
        )
        assert ran.returncode == 0, f"{name}: {ran.stderr}"

    def ended(name: str) -> None:
        with suppress(OSError, ValueError):
            pid = int((folder / f"{name}.pid").read_text())
            os.kill(pid, signal.SIGTERM)
            if not wait_for(lambda: not Path(f"/proc/{pid}").exists(), 20):
                os.kill(pid, signal.SIGKILL)

    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for name in ("munged", "slurmctld", "slurmd"):
            stack.callback(ended, name)
        started("munged", "--force", *(f"--{name}={file}" for name, file in files.items()))
        started("slurmctld", "-f", str(path))
        started("slurmd", "-f", str(path), "-N", host)
        idle = ["sinfo", "--noheader", "--states=idle", "--format=%n"]
        assert wait_for(lambda: host in asked(path, *idle), 60), (folder / "slurmctld.log").read_text()
        yield path


@pytest.fixture(scope="module")
def config() -> Iterator[Path]:
    with cluster() as path:
        yield path


def asked(config: Path, *argv: str) -> str:
    """What a client of that cluster prints."""
    ran = subprocess.run(
        argv, capture_output=True, text=True, timeout=60, env=os.environ | {"SLURM_CONF": str(config)}
    )
    return ran.stdout


@pytest.fixture
def slurm(tmp_path: Path, mpi: Mpi, config: Path) -> Iterator[Shell]:
    for made in shell(tmp_path, mpi):
        made.env["SLURM_CONF"] = str(config)
        yield made
        assert wait_for(lambda: asked(config, "squeue", "--noheader", "--steps") == ""), (
            "a step is still there"
        )
        assert wait_for(lambda: asked(config, "squeue", "--noheader") == ""), "a job is still there"
        assert made.left() == []


def test_srun_starts_the_ranks(slurm, mpi):
    told = slurm("net", "run", "--launcher", "srun", *QUICK, "-o", "a.nc", "--json").expect(0).json
    assert told["cells"] == told["converged"] == 4
    with library.open(slurm.cwd / "a.nc") as tree:
        assert tree.attrs["launcher"] == "srun"
        assert tree.attrs["mpi"] == {"openmpi": "Open MPI", "mpich": "MPICH"}[mpi.flavour]
        assert tree.attrs["hostlist"] == socket.gethostname().split(".")[0]


@pytest.mark.slow
def test_inside_a_job_nobody_needs_to_ask_for_srun(slurm):
    words = ["salloc", "--ntasks=2", str(PROGRAM), "net", "run", *QUICK, "-o", "job.nc"]
    ran = subprocess.run(words, cwd=slurm.cwd, env=slurm.env, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    with library.open(slurm.cwd / "job.nc") as tree:
        assert tree.attrs["launcher"] == "srun"
        assert tree.attrs["complete"]


@pytest.mark.slow
def test_ctrl_c_saves_and_ends_the_step(slurm):
    run = slurm.start("net", "run", "--launcher", "srun", *ENDLESS, "-o", "long.nc")
    assert wait_for(lambda: samples_in(slurm.cwd / "long.run") > 1000 or run.poll() is not None)
    os.killpg(run.pid, signal.SIGINT)
    ran = finish(run).expect(130)
    assert "interrupted" in ran.out
    with library.open(slurm.cwd / "long.nc") as tree:
        assert int(tree["raw"]["n"].sum()) > 1000


@pytest.mark.slow
def test_a_killed_rank_ends_the_step_and_what_was_measured_is_saved(slurm):
    run = slurm.start("net", "run", "--launcher", "srun", *ENDLESS, "-o", "hurt.nc")
    assert wait_for(lambda: samples_in(slurm.cwd / "hurt.run") > 1000 or run.poll() is not None)
    os.kill(slurm.ranks()[-1], signal.SIGKILL)
    ran = finish(run)
    assert ran.code not in (0, 130), ran.out
    assert "Traceback" not in ran.err
    with library.open(slurm.cwd / "hurt.nc") as tree:
        assert int(tree["raw"]["n"].sum()) > 1000
        assert tree.attrs["stop_reason"] == "failed"


@pytest.mark.slow
def test_programs_of_the_bus_are_steps_of_the_job(slurm):
    """`sonde bus run --hosts` in a job: srun starts each program, whose input and output are those of its step."""
    host = socket.gethostname().split(".")[0]
    run = [
        str(PROGRAM),
        "bus",
        "run",
        "latency",
        "--sizes",
        "64",
        "--variants",
        "cyclonedds,fastdds,raw/udp4",
    ]
    run += ["--hosts", host, "--rule", "fixed:60", "--budget", "90s", "-o", "bus.nc"]
    ran = subprocess.run(
        ["salloc", "--ntasks=2", *run],
        cwd=slurm.cwd,
        env=slurm.env,
        capture_output=True,
        text=True,
        timeout=200,
    )
    if "no data bus" in ran.stderr or "no implementation" in ran.stderr:
        pytest.skip("no implementation of DDS is here")
    assert ran.returncode == 0, ran.stderr
    with library.open(slurm.cwd / "bus.nc") as tree:
        assert (tree.attrs["launcher"], tree.attrs["hostlist"]) == ("srun", host)
        assert (tree["raw/n"].values > 0).all()


LOAD = ("-a", "POSIX", "-F", "-t", "64k", "-b", "256k", "-o", "data")  # of each rank a file of its own


def traced(told: dict) -> None:
    """Both ranks and nothing else are in the trace, and all that they wrote."""
    assert sorted(one["rank"] for one in told["processes"]) == [0, 1]
    assert {Path(one["program"]).name for one in told["processes"]} == {"sonde-ioload"}
    written = {one["path"]: one["write"]["bytes"] for one in told["files"] if one["layer"] == "posix"}
    assert {Path(path).name: size for path, size in written.items() if "data" in path} == {
        "data.00000000": 256 * 1024,
        "data.00000001": 256 * 1024,
    }


@pytest.mark.slow
@pytest.mark.parametrize("export", [(), ("--export=NONE",), ("--export", "PATH,HOME")])
def test_a_traced_program_is_started_by_srun(slurm, mpi, export):
    """`sonde io run -- srun …`: the tracer goes along, and srun itself is not part of the trace."""
    load = launch.libexec() / mpi.flavour / "sonde-ioload"
    kind = "pmix" if mpi.flavour == "openmpi" else "pmi2"
    line = ["srun", f"--mpi={kind}", "--ntasks", "2", "--overcommit", *export, load, *LOAD]
    traced(slurm("io", "run", "--json", "-o", "io.nc", "--", *line).expect(0).json)


@pytest.mark.slow
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a job"])
def test_srun_is_told_to_start_ranks_of_a_program(slurm, mpi, inside):
    """`sonde io run --launcher srun -- PROGRAM`."""
    load = launch.libexec() / mpi.flavour / "sonde-ioload"
    words = ["io", "run", "--launcher", "srun", "--json", "-o", "io.nc"]
    if inside:  # as many ranks as the job has tasks
        line = ["salloc", "--quiet", "--ntasks=2", PROGRAM, *words, "--", load, *LOAD]
        ran = subprocess.run(
            list(map(str, line)), cwd=slurm.cwd, env=slurm.env, capture_output=True, text=True, timeout=120
        )
        assert ran.returncode == 0, ran.stderr
        traced(json.loads(ran.stdout))
    else:
        traced(slurm(*words, "--ntasks", "2", "--", load, *LOAD).expect(0).json)


@pytest.mark.alone  # MPICH's ranks wait on cores that others want, and were silent for a minute
@pytest.mark.slow
def test_an_agent_is_measured_by_ranks_and_keepers_that_srun_started(slurm):
    words = ("--agent", "while :; do sleep 0.1; done", "--period", "0.1s", "--ntasks", "2", "--budget", "24s")
    ran = slurm("noise", "run", "--launcher", "srun", *words, "-o", "noise.nc", "--json")
    assert ran.code in (0, 1, 4), ran.err  # what is found depends on the machine
    with library.open(slurm.cwd / "noise.nc") as tree:
        assert tree.attrs["launcher"] == "srun"
        raw = tree["raw"]
        used = raw["agent_cpu"].values[0]
        on = (raw["variant"].values > 0) & (raw["status"].values == 1)
        assert on.any()
        assert (used[on] > 0).any()  # it did start, and its keeper saw it work
