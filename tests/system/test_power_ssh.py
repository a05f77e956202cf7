"""Jobs on other nodes, through a real ssh to a real server of it: of this machine, as if it were they."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

from mqtt_broker import free_port
from power_daemons import until
from sonde.core.processes import began
from sonde.power.jobs.jobs import Part, Spec, to_plain
from sonde.power.jobs.run_job_manager import JobManager
from sonde.power.jobs.run_job_settings import Settings
from sonde.power.stack import run_bus

SERVER = shutil.which("dropbear", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0
    or not (SERVER and all(map(shutil.which, ("dropbearkey", "ssh", "ssh-keygen"))))
    or subprocess.run(["unshare", "-m", "true"]).returncode != 0,
    reason="needs root, a mount namespace, ssh and dropbear",
)
SPEC = Spec("j1", ("/bin/sh", "-c", "echo $SONDE_JOB_NODE"), "root", "a job", grace_s=0.5)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """A launcher. The server has a home of root of its own, in which one key is let in; it listens on loopback."""
    folder = tmp_path_factory.mktemp("ssh")
    key, host = folder / "key", folder / "host"
    said_nothing: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], **said_nothing)
    subprocess.run(["dropbearkey", "-t", "ed25519", "-f", host], **said_nothing)
    home = Path("~root").expanduser()
    port = free_port()
    script = (
        f"mount -t tmpfs -o mode=700 tmpfs {home} && mkdir -m 700 {home}/.ssh && "
        f"install -m 600 {key}.pub {home}/.ssh/authorized_keys && "
        f"exec {SERVER} -F -E -s -j -k -r {host} -p 127.0.0.1:{port} -P ''"
    )
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(["unshare", "-m", "sh", "-c", script], stdout=log, stderr=log)
    try:
        until(lambda: listens(port) or server.poll() is not None, "the server of ssh listens")
        assert server.poll() is None, (folder / "log").read_text()
        options = ("HostName=127.0.0.1", "StrictHostKeyChecking=no", f"UserKnownHostsFile={folder}/known")
        yield [
            *("ssh", "-q", "-F", "none", "-i", str(key), "-p", str(port)),
            *(word for option in (*options, "BatchMode=yes") for word in ("-o", option)),
            *("{host}", "--"),
        ]
    finally:
        server.kill()
        server.wait()


def listens(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


class Site:
    def __init__(self, folder: Path, words: list[str]) -> None:
        self.folder = folder
        config = folder / "power.toml"
        config.write_text(
            '[budget]\npower_limit = 1000\n[[nodes]]\nhosts = "n[1-2]"\nmin = 50\nmax = 300\nsafe = 100\n'
            f'[job-manager]\nstate = "runs"\ngrace = "1s"\nusers = ["root"]\nlauncher = {words!r}\n'
        )
        self.manager = JobManager(run_bus.load(config), Settings(str(config)))

    def start(self, spec: Spec, *nodes: str) -> None:
        parts = to_plain([Part(node) for node in nodes])
        self.manager.order({"order": "START_JOB", "job": spec.job, "spec": to_plain(spec), "parts": parts})

    def over(self, job: str = "j1") -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            for one in self.manager.look()[1]:
                self.manager.settle(one)
            told = dict(self.manager.query({"job": job})["runs"][0])
            return told if told["state"] in ("ended", "failed") else None

        return dict(until(look, f"{job} is over"))

    def output(self, node: str = "") -> str:
        return (self.folder / f"runs/j1/output{node and '.'}{node}").read_text()

    def keeper(self, job: str = "j1") -> int:
        return self.manager.jobs[job].pid


@pytest.fixture
def site(tmp_path: Path, words: list[str]) -> Iterator[Site]:
    made = Site(tmp_path, words)
    yield made
    for job in made.manager.jobs.values():
        if not job.over:
            os.kill(job.pid, signal.SIGKILL)
    os.close(made.manager._lock)


def running(mark: str) -> list[int]:
    """Processes in whose words this stands."""
    out = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                text = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in text:
                out.append(int(name))
    return out


def test_a_command_runs_on_each_node_in_its_folder_with_its_variables(site):
    line = 'echo "$SONDE_JOB_NODE $SONDE_JOB_INDEX/$SONDE_JOB_COUNT $X"; pwd; echo 0.5 >> $SONDE_JOB_PROGRESS'
    value = "a  'b'\n$HOME `id` ä"
    spec = replace(SPEC, command=("/bin/sh", "-c", line), environment=(f"X={value}",))
    site.start(spec, "n1", "n2")
    told = site.over()
    assert (told["state"], told["exit_status"]) == ("ended", 0)
    for k, node in enumerate(("n1", "n2")):
        assert site.output(node) == f"{node} {k}/2 {value}\n{site.folder}/runs/j1\n"
        assert (site.folder / f"runs/j1/progress.{k}").read_text() == "0.5\n"


def test_the_exit_status_is_the_commands(site):
    site.start(replace(SPEC, command=("/bin/sh", "-c", "echo said >&2; exit 7")), "n1")
    assert site.over()["exit_status"] == 7
    assert site.output() == "said\n"


def test_while_it_runs_nobody_reads_its_variables_in_lists_of_arguments(site):
    gate, secret = site.folder / "gate", "hush-hush-hush"
    line = f'echo "$TOKEN" > {gate}.began; while [ ! -e {gate} ]; do sleep .02; done'
    site.start(replace(SPEC, command=("/bin/sh", "-c", line), environment=(f"TOKEN={secret}",)), "n1")
    began_file = Path(f"{gate}.began")
    until(lambda: began_file.exists() and began_file.read_text() == f"{secret}\n", "it has its variables")
    assert running(str(gate))
    assert not running(secret)
    gate.touch()
    assert site.over()["exit_status"] == 0


LEAVES = "(setsid sleep 300 & echo $! >> {pids}); echo $$ >> {pids}; sleep 300"


@pytest.mark.parametrize("how", ["stopped", "keeper killed", "connection cut"])
def test_however_it_ends_nothing_of_it_is_left_at_the_other_end(site, how):
    pids = site.folder / "pids"
    site.start(replace(SPEC, command=("/bin/sh", "-c", LEAVES.format(pids=pids))), "n1")
    until(lambda: pids.exists() and len(pids.read_text().split()) == 2, "it runs")
    there = [int(pid) for pid in pids.read_text().split()]
    if how == "stopped":
        site.manager.order({"order": "STOP_JOB", "job": "j1", "grace_s": 0.2, "reason": "enough"})
    elif how == "keeper killed":
        os.kill(site.keeper(), signal.SIGKILL)
    else:
        keeper = site.keeper()
        (ssh,) = map(int, Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split())
        os.kill(ssh, signal.SIGKILL)
    told = site.over()
    assert told["state"] == ("failed" if how == "keeper killed" else "ended")
    until(lambda: not any(began(pid) for pid in there), "all of it ended")


def test_what_a_command_leaves_in_the_background_is_ended_with_it(site):
    pid = site.folder / "pid"
    waits = f"while [ ! -e {pid} ]; do sleep .01; done"
    line = f"setsid sh -c 'echo $$ > {pid}.part; mv {pid}.part {pid}; exec sleep 300' & {waits}"
    site.start(replace(SPEC, command=("/bin/sh", "-c", line)), "n1")
    assert site.over()["exit_status"] == 0
    until(lambda: not began(int(pid.read_text())), "it is gone")


def test_a_node_that_is_not_reached_says_so(site):
    site.manager.settings.launcher = ("ssh", "-o", "BatchMode=yes", "-p", str(free_port()), "127.0.0.1")
    site.start(SPEC, "n1")
    told = site.over()
    assert (told["state"], told["exit_status"]) == ("ended", 255)
    assert "Connection refused" in site.output()
