"""Orders to the job manager to start something, from a user of the machine without the right to give them."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

from power_cluster import Cluster, pytestmark
from power_daemons import DAEMON, Daemon, until
from sonde.core.errors import UsageError
from sonde.power.jobs import jobs, proof, run_jobs_bus
from sonde.power.jobs.jobs import Part, Spec, to_plain
from sonde.power.jobs.run_job_manager import JobManager
from sonde.power.jobs.run_job_settings import Settings
from sonde.power.jobs.run_job_start import account_of
from sonde.power.stack import run_bus
from sonde.power.stack.run_bus import _power

assert pytestmark
pytestmark = [
    *pytestmark,
    pytest.mark.root,
    pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv"),
]
STRANGER = 65534
# A stranger's program: it joins the bus that the configuration names, and orders the start of a command.
ORDER = """
import json, sys
from sonde.core.errors import SondeError
from sonde.power.jobs import jobs, run_jobs_bus
from sonde.power.stack import run_bus
config, body = sys.argv[1], json.loads(sys.argv[2])
stack = run_bus.load(config)
try:
    with run_jobs_bus.open_bus(stack, "stranger") as bus:
        print(json.dumps(run_jobs_bus.ask(bus, jobs.JOB_SET, body, 20.0).body["runs"][0]["state"]))
except SondeError as error:
    print(json.dumps(error.code))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that a stranger can enter: pytest's are closed to others."""
    made = Path(tempfile.mkdtemp(prefix="sonde-hostile-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


class Site(Cluster):
    users = ""

    def settings(self, name: str) -> str:
        return f'{super().settings(name)}[job-manager]\nstate = "runs"\ngrace = "1s"\n{self.users}'


def start(user: str, mark: Path, job: str = "a1") -> dict[str, object]:
    spec = Spec(job, ("/bin/sh", "-c", f"id -u > {mark}"), user, folder="/")
    parts = to_plain([Part("n1")])
    return {
        "order": "START_JOB",
        "job": job,
        "spec": to_plain(spec),
        "parts": parts,
        "target": to_plain(spec.target),
    }


def ordered(site: Cluster, body: dict[str, object], uid: int = STRANGER) -> str:
    words = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", sys.executable, "-c", ORDER]
    ran = subprocess.run(
        [*words, str(site.config("m1")), json.dumps(body)],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return str(json.loads(ran.stdout))


def heard(daemon: Daemon) -> str:
    """ "ready", or "" for one that ended without it."""
    until(
        lambda: not daemon.reader.is_alive() or any(one["event"] == "ready" for one in daemon.events),
        "a word",
    )
    return "ready" if any(one["event"] == "ready" for one in daemon.events) else ""


@pytest.mark.timeout(200)
def test_no_stranger_has_a_command_started_on_a_bus_that_asks_nobody(
    folder: Path, capfd: pytest.CaptureFixture[str]
):
    site = Site(folder, capfd)
    daemon = site.role("job-manager")
    mark = folder / "mark"
    told = ordered(site, start("daemon", mark)) if heard(daemon) else ""
    if told == "running":
        until(mark.exists, "the command ran")
    code = daemon.end()
    assert (told, mark.exists()) == ("", False)
    assert code == 2
    assert "could run anything as 'root'" in " ".join(daemon.log.read_text().split())


@pytest.mark.skipif(not _power.munge_built(), reason="needs a build with MUNGE")
@pytest.mark.timeout(200)
def test_orders_to_carry_something_out_are_proven_where_it_is_carried_out(
    folder: Path, munge: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("SONDE_MUNGE_SOCKET", str(munge))
    site = Site(folder, capfd)
    site.users = 'users = ["daemon"]\n[users]\nproof = "munge"\n'
    manager, resources = site.role("job-manager"), site.role("resource-manager")
    for one in (manager, resources):
        one.said("ready")

    def signed(body: dict[str, object], service: str, uid: int) -> dict[str, object]:
        text = f"sonde power order 1\nt\n{proof.digest(service, body)}"
        words = [
            "setpriv",
            f"--reuid={uid}",
            f"--regid={uid}",
            "--clear-groups",
            "munge",
            f"--socket={munge}",
        ]
        made = subprocess.run(words, input=text, capture_output=True, text=True, check=True)
        return {**body, "credential": made.stdout.strip()}

    try:
        mark = folder / "marks" / "mark"
        mark.parent.mkdir()
        mark.parent.chmod(0o777)
        body = start("daemon", mark)
        assert ordered(site, body) == "power.not_proven"
        assert ordered(site, signed(body, jobs.JOB_SET, STRANGER)) == "power.not_proven"
        # From root, but for another job; and a credential for another service.
        other = signed(start("daemon", mark, "a2"), jobs.JOB_SET, 0)
        assert ordered(site, {**body, "credential": other["credential"]}) == "power.not_proven"
        assert not mark.exists()
        stack = run_bus.load(site.config("m1"))
        allocate = {"order": "ALLOCATE", "job": "a1", "spec": body["spec"]}
        with run_jobs_bus.open_bus(stack, "test") as bus:
            for credential in ("", str(signed(allocate, jobs.RESOURCES_SET, STRANGER)["credential"])):
                with pytest.raises(UsageError) as no:
                    run_jobs_bus.ask(bus, jobs.RESOURCES_SET, {**allocate, "credential": credential}, 20.0)
                assert no.value.code == "power.not_proven"
            had = run_jobs_bus.ask(bus, jobs.RESOURCES_SET, signed(allocate, jobs.RESOURCES_SET, 0), 20.0)
            assert had.body["allocations"][0]["job"] == "a1"
        assert ordered(site, signed(body, jobs.JOB_SET, 0)) in ("running", "ended")
        until(lambda: mark.exists() and mark.read_text(), "the command ran")
        assert mark.read_text() == f"{pwd.getpwnam('daemon').pw_uid}\n"
    finally:
        for one in (manager, resources):
            one.end(signal.SIGTERM)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[JobManager]:
    config = tmp_path / "power.toml"
    config.write_text(
        '[budget]\npower_limit = 1000\n[[nodes]]\nhosts = "n1"\nmin = 50\nmax = 300\nsafe = 100\n'
        '[job-manager]\nstate = "runs"\n'
    )
    made = JobManager(run_bus.load(config), Settings(str(config)))
    yield made
    os.close(made._lock)


def test_a_user_is_a_number_and_no_name(manager: JobManager, monkeypatch: pytest.MonkeyPatch):
    known = pwd.getpwnam

    def other(name: str) -> pwd.struct_passwd:  # like a second account of root's in passwd(5)
        return pwd.struct_passwd(("toor", *known("root")[1:])) if name == "toor" else known(name)

    monkeypatch.setattr(pwd, "getpwnam", other)
    for user in ("toor", "root", "daemon", "bin", "", "nobody\0root"):
        with pytest.raises(UsageError) as no:
            account_of(user, manager.settings)
        assert no.value.code == "power.not_allowed"
    given = account_of("nobody", manager.settings)
    assert given is not None
    assert given.pw_uid == STRANGER


@pytest.mark.parametrize("said", ["", 'unprotected="yes"'])
def test_a_node_manager_sets_no_hardware_for_whoever_writes_to_its_bus(folder: Path, said: str):
    """powercap of this machine, whether it has any or not: only a node manager that may serve looks for it."""
    (folder / "bus.xml").write_text(
        f'<sonde-bus version="1"><profile name="p" domain="7" {said}/></sonde-bus>'
    )
    (folder / "power.toml").write_text(
        '[bus]\nprofile = "bus.xml"\n[budget]\npower_limit = 1000\n'
        '[[nodes]]\nhosts = "n1"\nmin = 50\nmax = 300\nsafe = 100\n'
        '[node-manager]\nname = "n1"\nstate = "state"\n'
        '[[node-manager.hardware]]\nkind = "powercap"\nmin = 50\nmax = 300\n'
    )
    words = [DAEMON, "node-manager", "--config", folder / "power.toml", "--with-parent"]
    ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    refused = "checks no identity" in ran.stderr
    assert refused == (not said), ran.stderr
    if refused:
        assert ran.returncode == 2
