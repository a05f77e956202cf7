"""A real parallel file system under real programs: GlusterFS over four nodes, by its mount and by its library, and what
its bricks counted beside what was traced.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sonde as library
from sonde.cluster import Cluster, mpi, run, run_gluster, run_state
from sonde.core.launch.mpirun import Mpi
from sonde_shell import PROGRAM, Shell
from watching import wait_for

pytestmark = [pytest.mark.root, pytest.mark.slow]

IOLOAD = PROGRAM.with_name("sonde-ioload")
KIB, MIB = 1 << 10, 1 << 20
WHERE = "/mnt"
# Each of 4 ranks writes 2 × 1 MiB in calls of 64 KiB, reads what another wrote, and both are compared.
IOR = ("-t", "64k", "-b", "1m", "-s", "2", "-e", "-C", "-w", "-W", "-r", "-R")
TRANSFERS = 4 * 2 * 16


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    wanted = (*run.PROGRAMS, *run_gluster.PROGRAMS)
    if missing := [name for name in wanted if not shutil.which(name, path=run.program_path(os.environ))]:
        pytest.skip(f"{', '.join(missing)}: not there; deploy/setup test installs them")
    if not Path("/dev/fuse").exists():
        pytest.skip("no /dev/fuse: modprobe fuse")


@pytest.fixture(scope="module")
def volume(installed) -> Iterator[Cluster]:
    with Cluster.up(f"t{uuid.uuid4().hex[:8]}", 4, gluster=WHERE) as cluster:
        before = settings(cluster)
        yield cluster
        assert settings(cluster) == before  # profiling was left as it was found
        held = cluster.reaper.inside()
    assert not [pid for pid in held if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(("name", "value"), [("PYTHON", ""), ("PYTHONHOME", "/nowhere")])
def test_servers_begin_whatever_python_the_user_has_chosen(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with Cluster.up(f"t{uuid.uuid4().hex[:8]}", 1, gluster=WHERE) as cluster:
        assert cluster.run(0, ["stat", "-f", "-c", "%T", WHERE]).stdout == "fuseblk\n"


def gluster(cluster: Cluster, *words: str) -> str:
    return cluster.run(0, ["gluster", "--mode=script", "volume", *words], timeout_s=60).stdout


def settings(cluster: Cluster) -> str:
    return gluster(cluster, "info", cluster.name).partition("Options Reconfigured:")[2]


def traced(
    cluster: Cluster, sonde: Shell, command: list[str], code: int = 0, volume: str | None = None
) -> dict[str, Any]:
    """The outcome of `sonde io run --gluster` in node 0."""
    wanted = cluster.name if volume is None else volume
    words = ("io", "run", "--gluster", wanted, "--json", "-o", "a.nc", "--", *command)
    ran = cluster.run(0, [str(PROGRAM), *words], timeout_s=120, check=False, cwd=sonde.cwd, env=sonde.env)
    assert ran.returncode == code, f"{ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    assert "Traceback" not in ran.stderr
    return json.loads(ran.stdout)


def jobs(cluster: Cluster, found: Mpi, *words: str) -> list[str]:
    """sonde-ioload with a rank on each node."""
    return mpi.line(found, [str(IOLOAD), *words], cluster.plan.hostnames, 4)


def layer(told: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in told["layers"] if one["layer"] == name)


def of_file(told: dict[str, Any], path: str, name: str, way: str) -> dict[str, int]:
    return next(one for one in told["files"] if (one["path"], one["layer"]) == (path, name))[way]


def against(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["direction"]: one for one in told["servers"]["against_clients"]}


def codes(told: dict[str, Any]) -> list[str]:
    return [warning["code"] for warning in told["warnings"]]


class TestCounted:
    def test_by_the_mount(self, volume, sonde, default_mpi):
        path = f"{WHERE}/by-mount"
        told = traced(volume, sonde, jobs(volume, default_mpi, "-a", "POSIX", "-o", path, *IOR))
        assert [code for code in codes(told) if code.startswith("io.")] == []
        # The program: a call for each transfer; -W and -R read all of it again.
        assert of_file(told, path, "posix", "write") == {"requests": TRANSFERS, "bytes": 8 * MIB}
        assert of_file(told, path, "posix", "read") == {"requests": 3 * TRANSFERS, "bytes": 24 * MIB}
        # The bricks: the same bytes, to the last.
        servers = told["servers"]
        assert servers["system"] == f"GlusterFS volume {volume.name}, Distribute, shards of 4MB"
        assert [one["name"] for one in servers["servers"]] == [
            f"{host}:/dev/shm/brick" for host in volume.plan.hostnames
        ]
        assert all(one["answered"] for one in servers["servers"])
        compared = against(told)
        for way, moved in (("write", 8 * MIB), ("read", 24 * MIB)):
            assert compared[way]["client"] == "POSIX and C library"
            assert compared[way]["client_bytes"] == compared[way]["server_bytes"] == moved
            assert compared[way]["server_s"] > 0
        # A file of 8 MiB has two shards, which may lie on one brick.
        assert sum(one["write"]["bytes"] > 0 for one in servers["servers"]) in (1, 2)
        for one in servers["servers"]:
            for name, told_of in one["operations"].items():
                if told_of["mean_s"] is not None:
                    assert 0 < told_of["least_s"] <= told_of["mean_s"] <= told_of["most_s"] < 60, name

    def test_the_dataset_has_the_counters(self, volume, sonde, default_mpi):
        told = traced(
            volume, sonde, jobs(volume, default_mpi, "-a", "MPIIO", "-c", "-o", f"{WHERE}/collective", *IOR)
        )
        with library.open(sonde.cwd / "a.nc") as tree:
            raw = tree["raw"].to_dataset().load()
        names = raw["operation_name"].values.tolist()
        for way, operation in enumerate(("READ", "WRITE")):
            calls = raw["server_calls"].values[:, names.index(operation)]
            sizes = raw["server_sizes"].values[:, way]
            assert (
                sizes.sum(axis=1).tolist() == calls.tolist()
            )  # told twice by gluster, by size and by operation
            most = (sizes * (2.0 ** np.arange(sizes.shape[1]))).sum(axis=1)
            moved = raw["server_bytes"].values[:, way]
            assert ((most / 2 <= moved) & (moved <= most)).all()
        served = dict(zip(raw["path"].values, raw["file_served"].values))
        assert served[f"{WHERE}/collective"] == 1
        assert [path for path, is_ in served.items() if is_ and not path.startswith(WHERE)] == []
        shown = sonde("io", "show", "a.nc").expect(0).out
        assert "From the servers' own counters, not from events" in " ".join(shown.split())
        assert layer(told, "mpiio")["write"] == layer(told, "mpiio")["write"] | {
            "requests": TRANSFERS,
            "bytes": 8 * MIB,
        }

    def test_bt_io(self, volume, sonde, default_mpi):
        path = f"{WHERE}/bt"
        told = traced(
            volume, sonde, jobs(volume, default_mpi, "--bt-io", "--class", "S", "--niter", "20", "-o", path)
        )
        assert told["status"] == 0  # which it is not where a value was read back wrong
        dumps = 4 * 40 * 12**3
        compared = against(told)
        assert of_file(told, path, "posix", "write")["bytes"] == dumps
        # OMPIO keeps some bytes of its own beside the file.
        assert compared["write"]["server_bytes"] == compared["write"]["client_bytes"] >= dumps
        assert compared["read"]["server_bytes"] == compared["read"]["client_bytes"] >= dumps

    def test_by_the_library(self, volume, sonde, default_mpi):
        server = volume.plan.hostnames[2]
        place = ("--gfapi.volume", volume.name, "--gfapi.server", server, "-o", "by-library")
        told = traced(volume, sonde, jobs(volume, default_mpi, "-a", "GFAPI", *place, *IOR))
        client = layer(told, "gfapi")
        assert (client["write"]["requests"], client["write"]["bytes"]) == (TRANSFERS, 8 * MIB)
        assert (client["read"]["requests"], client["read"]["bytes"]) == (3 * TRANSFERS, 24 * MIB)
        assert of_file(told, "by-library", "gfapi", "write") == {"requests": TRANSFERS, "bytes": 8 * MIB}
        functions = {one["function"]: one for one in told["functions"] if one["layer"] == "gfapi"}
        assert functions["glfs_pwrite"]["calls"] == TRANSFERS
        assert functions["glfs_init"]["calls"] == functions["glfs_fsync"]["calls"] == 4
        assert functions["glfs_lstat"]["failed"] == 1  # there was no file to remove before writing
        assert functions["glfs_unlink"]["calls"] == 1
        compared = against(told)
        for way in ("write", "read"):
            assert compared[way]["client"] == "GlusterFS client (libgfapi)"
            assert compared[way]["client_bytes"] == compared[way]["server_bytes"] == client[way]["bytes"]
        # Write-behind hands on up to 128 KiB at once; without it there would be as many as the client had.
        assert compared["write"]["server_requests"] <= TRANSFERS
        assert volume.run(1, ["ls", WHERE]).stdout.split().count("by-library") == 0

    def test_profiling_that_was_on_stays_on(self, volume, sonde):
        gluster(volume, "profile", volume.name, "start")
        try:
            volume.run(1, ["dd", "if=/dev/zero", f"of={WHERE}/before", "bs=64k", "count=8"])
            told = traced(
                volume, sonde, ["dd", "if=/dev/zero", f"of={WHERE}/while", "bs=64k", "count=16", "conv=fsync"]
            )
            assert "io.gluster_profiled" in codes(told)
            moved = [one["write"]["bytes"] for one in told["servers"]["servers"]]
            assert sum(moved) == MIB  # and not what was written before
            written = [
                one["operations"]["WRITE"] for one in told["servers"]["servers"] if one["write"]["bytes"]
            ]
            assert all(one["mean_s"] > 0 for one in written)
            assert "diagnostics.count-fop-hits: on" in settings(volume)
        finally:
            gluster(volume, "profile", volume.name, "stop")


class TestTrouble:
    def test_a_brick_that_dies_is_reported_and_the_trace_is_whole(self, volume, sonde):
        """By the brick's own process number, which its server tells."""
        hosts = volume.plan.hostnames
        line = next(
            text
            for text in gluster(volume, "status", volume.name).splitlines()
            if text.startswith(f"Brick {hosts[3]}:")
        )
        brick = int(line.split()[-1])
        work = (
            "import os, time\n"
            f"data = os.open('{WHERE}/dying', os.O_CREAT | os.O_WRONLY)\n"
            "os.pwrite(data, bytes(4096), 0)\n"
            f"os.kill({brick}, 9)\n"
            "time.sleep(0.5)\n"
            "for k in range(16):\n"
            f"    try: os.close(os.open(f'{WHERE}/other{{k}}', os.O_CREAT | os.O_WRONLY))\n"
            "    except OSError: pass\n"
        )
        try:
            told = traced(volume, sonde, [sys.executable, "-c", work])
            assert [one["answered"] for one in told["servers"]["servers"]] == [True, True, True, False]
            (warning,) = (one for one in told["warnings"] if one["code"] == "io.brick_down")
            assert f"{hosts[3]}:/dev/shm/brick went down while the command ran" in warning["evidence"]
            assert of_file(told, f"{WHERE}/dying", "posix", "write") == {"requests": 1, "bytes": 4096}
            opened = next(one for one in told["functions"] if one["function"] == "open")
            assert opened["failed"] > 0  # those whose place is on that brick
            assert "down" in sonde("io", "show", "a.nc").expect(0).out
        finally:
            gluster(volume, "start", volume.name, "force")
            # Those whose place is on that brick are among them.
            again = ["sh", "-c", f"until touch $(seq -f {WHERE}/other%g 0 15); do sleep 0.2; done"]
            volume.run(0, again, timeout_s=60)

    def test_what_a_killed_sonde_leaves_is_reported(self, volume, sonde):
        work = f"import time; data = open('{WHERE}/killed', 'wb'); print(data.fileno(), flush=True); time.sleep(100)"
        words = ["io", "run", "--gluster", volume.name, "-o", "a.nc", "--", sys.executable, "-c", work]
        process = volume.popen(
            0, [str(PROGRAM), *words], stdout=subprocess.PIPE, text=True, cwd=sonde.cwd, env=sonde.env
        )
        with process:
            assert process.stdout
            assert process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            process.sweep()
        try:
            assert "diagnostics.count-fop-hits: on" in settings(volume)
            told = sonde("data", "recover", "a.run", "--json")
            shown = sonde("io", "show", "a.nc", "--json").expect(0).json
            (warning,) = (one for one in shown["warnings"] if one["code"] == "io.no_server_counters")
            assert warning["hint"] == f"gluster volume profile {volume.name} stop", told
            assert shown["servers"] is None
        finally:
            gluster(volume, "profile", volume.name, "stop")

    def test_what_cannot_be_is_reported_before_the_command_runs(self, volume, sonde):
        wrote = ["touch", str(sonde.cwd / "it ran")]
        error = traced(volume, sonde, wrote, code=2, volume=f"{volume.name}x")["error"]
        assert error["code"] == "io.no_volume"
        assert f"volumes here: {volume.name}" in error["what"]
        error = traced(volume, sonde, wrote, code=2, volume="a/b")["error"]
        assert error["code"] == "io.no_volume"
        # In node 3 there is no `gluster` for once: its mounts are its own.
        program = shutil.which("gluster", path=run.program_path(os.environ))
        volume.run(3, ["mount", "--bind", "/dev/null", program])
        try:
            words = [str(PROGRAM), "io", "run", "--gluster", volume.name, "-o", "a.nc", "--", *wrote]
            ran = volume.run(3, words, check=False, cwd=sonde.cwd, env=sonde.env)
        finally:
            volume.run(3, ["umount", program])
        assert ran.returncode == 3
        first, *_ = ran.stderr.splitlines()
        assert first.startswith(
            "error: io: --gluster needs the program 'gluster', which is not installed here"
        )
        # The kernel traces processes by numbers that they have not in here; without a word nothing would be seen.
        words = [str(PROGRAM), "io", "run", "--kernel", "--json", "-o", "a.nc", "--", *wrote]
        ran = volume.run(0, words, check=False, cwd=sonde.cwd, env=sonde.env)
        assert json.loads(ran.stdout)["error"]["code"] == "io.other_namespace"
        assert [path.name for path in sonde.cwd.iterdir()] == []
        assert "diagnostics" not in settings(volume)

    def test_a_volume_that_cannot_be_reached_by_the_library(self, volume):
        for place, why in (
            (
                ("--gfapi.volume", "none", "--gfapi.server", volume.plan.hostnames[1]),
                "No such file or directory",
            ),
            (("--gfapi.volume", volume.name, "--gfapi.server", "nowhere"), "not connected"),
        ):
            ran = volume.run(0, [str(IOLOAD), "-a", "GFAPI", *place], check=False, timeout_s=60)
            assert ran.returncode == 3
            assert f"cannot connect to the volume '{place[1]}' of {place[3]}" in ran.stderr
            assert why in ran.stderr


def test_nothing_is_left_of_a_file_system_whose_start_was_killed():
    name = f"t{uuid.uuid4().hex[:8]}"
    starter = subprocess.Popen(
        [str(PROGRAM), "cluster", "up", "--name", name, "--nodes", "2", "--gluster", WHERE],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    inside: list[int] = []

    def servers() -> list[int]:
        kept = run_state.kept_in(run_state.STATE / name)
        inside[:] = kept.reaper.inside() if kept else []
        return [pid for pid in inside if program(pid) == "glusterd"]

    try:
        assert wait_for(lambda: len(servers()) >= 2, 30)
        starter.send_signal(signal.SIGKILL)
        starter.wait()
        assert wait_for(lambda: not [pid for pid in inside if Path(f"/proc/{pid}").exists()])
    finally:
        with suppress(ProcessLookupError):
            starter.kill()
        run.down(name)
    assert not (run_state.STATE / name).exists()
    assert "glusterfs" not in Path("/proc/self/mounts").read_text()


def program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
