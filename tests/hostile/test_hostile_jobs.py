"""Attempts of a job to survive its end, with the rights that a job has. Real processes, without a bus."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sonde.bus.errors import Refused
from sonde.core.processes import began

pytest.importorskip("sonde._power", reason="the power stack is not built")

from power_daemons import until
from sonde.power.jobs import run_job_account
from sonde.power.jobs.jobs import Part, Spec, to_plain
from sonde.power.jobs.run_job_cgroup import make_group, own_group, protections, share_limits
from sonde.power.jobs.run_job_manager import JobManager
from sonde.power.jobs.run_job_settings import Settings
from sonde.power.stack import run_bus

pytestmark = pytest.mark.root
SPEC = Spec("j1", ("true",), "nobody", folder="/", grace_s=0.3)
# Each process starts the next one, without any variable that identifies it.
CHAIN = """
echo $$ >> {pids}
[ "$1" -gt 0 ] || {{ touch {ready}; exec sleep 1000; }}
env -i /bin/sh {chain} $(($1 - 1))
:
"""


# Starts processes until that fails, which ends a shell; it writes down how many it started.
BOMB = "n=0; while [ $n -lt 400 ]; do sleep 1000 & n=$((n+1)); echo $n >{made}; done; touch {made}.all; wait"


ADD_KEY, KEYCTL = 248, 250  # system calls of x86_64
SESSION_KEYRING = -3  # KEY_SPEC_SESSION_KEYRING


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o755)
        (folder / "own").mkdir()
        (folder / "own").chmod(0o777)
        config = folder / "power.toml"
        config.write_text(
            '[budget]\npower_limit = 1000\n[[nodes]]\nhosts = "n1"\nmin = 50\nmax = 300\nsafe = 100\n'
            '[job-manager]\nstate = "runs"\nusers = ["nobody"]\n'
        )
        self.manager = JobManager(run_bus.load(config), Settings(str(config)))

    def order(self, order: str, **body: Any) -> dict[str, Any]:
        return dict(self.manager.order({"order": order, "job": "j1", **body})["runs"][0])

    def start(self, spec: Spec) -> None:
        self.order("START_JOB", spec=to_plain(spec), parts=to_plain([Part("n1")]))

    def over(self) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            for one in self.manager.look()[1]:
                self.manager.settle(one)
            told = dict(self.manager.query({"job": "j1"})["runs"][0])
            return told if told["state"] in ("ended", "failed") else None

        return dict(until(look, "the job is over"))

    def close(self) -> None:
        for job in self.manager.jobs.values():
            if not job.over and job.pidfd >= 0:
                signal.pidfd_send_signal(job.pidfd, signal.SIGKILL)
            until(
                lambda job=job: self.manager.look() and not Path(job.cgroup or "/none").exists(),
                "no cgroup is left",
            )
        os.close(self.manager._lock)
        pids = self.folder / "own/pids"
        for pid in pids.read_text().split() if pids.exists() else []:
            if began(int(pid)) and "sleep 1000" in commands([int(pid)]):
                os.kill(int(pid), signal.SIGKILL)
        shutil.rmtree(self.folder)


def commands(pids: list[int]) -> list[str]:
    found = []
    for pid in pids:
        try:
            found.append(
                Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode()
            )
        except OSError:
            continue
    return found


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site(Path(tempfile.mkdtemp(prefix="sonde-hostile-")))
    yield made
    made.close()


def test_an_output_that_is_a_pipe_which_nobody_reads_holds_up_nobody(site: Site):
    pipe = site.folder / "own/pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    site.start(replace(SPEC, output=str(pipe), limit_s=60.0))
    told = site.over()
    assert (told["exit_status"], "pipe' cannot be used" in told["reason"]) == (127, True)


def test_a_job_that_waits_for_its_own_output_ends_when_it_is_told_to(site: Site):
    """As on a file server that does not answer: here its user's pipe is full."""
    pipe = site.folder / "own/pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        ready = site.folder / "own/ready"
        line = f"touch {ready}; exec cat /dev/zero"
        site.start(replace(SPEC, command=("/bin/sh", "-c", line), output=str(pipe)))
        until(ready.exists)
        site.order("STOP_JOB", grace_s=0.2, reason="enough")
        assert site.over()["reason"] == "enough"
    finally:
        os.close(reader)


def test_a_chain_of_more_processes_than_a_program_recurses_ends_with_its_job(site: Site):
    pids, ready, chain = (site.folder / "own" / name for name in ("pids", "ready", "chain"))
    chain.write_text(CHAIN.format(pids=pids, ready=ready, chain=chain))
    chain.chmod(0o755)
    site.start(replace(SPEC, command=("/bin/sh", str(chain), "1200")))
    until(ready.exists)
    site.order("STOP_JOB", grace_s=0.2, reason="enough")
    told = site.over()
    assert (told["state"], told["reason"]) == ("ended", "enough")
    of_it = [int(pid) for pid in pids.read_text().split()]
    assert len(of_it) == 1201
    assert [one for one in commands(of_it) if str(chain) in one or "sleep 1000" in one] == []


@pytest.mark.skipif(own_group() is None, reason="no cgroup of version 2 is here in which others can be made")
def test_what_left_session_parent_and_environment_ends_with_a_keeper_that_was_killed(site: Site):
    pids, ready = site.folder / "own/pids", site.folder / "own/ready"
    line = f"env -i setsid sh -c 'echo $$ > {pids}; touch {ready}; exec sleep 1000' & wait"
    site.start(replace(SPEC, command=("/bin/sh", "-c", line)))
    until(ready.exists)
    keeper = json.loads((site.folder / "runs/j1/keeper.json").read_text())["pid"]
    os.kill(keeper, signal.SIGKILL)
    assert site.over()["state"] == "failed"
    (pid,) = map(int, pids.read_text().split())
    until(lambda: commands([pid]) == [], "what the job left has ended")
    cgroup = Path(site.manager.jobs["j1"].cgroup)
    assert cgroup.name.startswith("sonde-job-j1-")
    until(lambda: site.manager.look() and not cgroup.exists(), "its cgroup is removed")


def test_a_keeper_that_does_not_end_is_ended(site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sonde.power.jobs.run_job_manager.SHIM_S", 0.0)
    site.start(replace(SPEC, command=("sleep", "1000")))
    (job,) = site.manager.jobs.values()
    signal.pidfd_send_signal(job.pidfd, signal.SIGSTOP)
    site.order("STOP_JOB", grace_s=0.1, reason="enough")
    told = site.over()
    assert (told["state"], "its job shim was killed" in told["reason"]) == ("failed", True)


def test_a_job_has_a_session_keyring_of_its_own(site: Site):
    """In the job manager's, which all jobs once shared, each read and replaced the others' keys."""
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers of these system calls are those of x86_64")
    libc = ctypes.CDLL(None, use_errno=True)
    secret = f"sonde-test-{os.getpid()}".encode()
    if libc.syscall(ADD_KEY, b"user", secret, b"of root", 7, SESSION_KEYRING) < 0:
        pytest.skip(f"no keyrings here: {os.strerror(ctypes.get_errno())}")
    try:
        found = site.folder / "own/found"
        line = (
            "import ctypes, sys; libc = ctypes.CDLL(None); "
            f"key = libc.syscall({KEYCTL}, 10, {SESSION_KEYRING}, b'user', {secret!r}, 0); "
            f"own = libc.syscall({ADD_KEY}, b'user', b'own', b'x', 1, {SESSION_KEYRING}); "
            f"open({str(found)!r}, 'w').write(f'{{key > 0}} {{own > 0}}')"
        )
        site.start(replace(SPEC, command=("/usr/bin/python3", "-c", line)))
        assert site.over()["exit_status"] == 0
        assert found.read_text() == "False True", "it finds no key of others, and can store its own"
    finally:
        key = libc.syscall(KEYCTL, 10, SESSION_KEYRING, b"user", secret, 0)  # 10: search
        libc.syscall(KEYCTL, 9, key, SESSION_KEYRING)  # 9: unlink


def test_a_fork_bomb_ends_at_its_user_s_limit(site: Site):
    """With only the manager's limit of tasks it once took those of all other jobs, and the manager's own."""
    site.manager.settings.max_tasks = 60
    made = site.folder / "own/made"
    site.start(replace(SPEC, command=("/bin/sh", "-c", BOMB.format(made=made))))
    assert site.over()["exit_status"] > 0
    assert int(made.read_text()) < 60
    assert not made.with_suffix(".all").exists()


def test_without_a_limit_there_is_none(site: Site):
    site.manager.settings.max_tasks = 0
    made = site.folder / "own/made"
    site.start(replace(SPEC, command=("/bin/sh", "-c", BOMB.format(made=made))))
    until(made.with_suffix(".all").exists, "all are started")
    site.order("STOP_JOB", grace_s=0.2, reason="enough")
    assert site.over()["state"] == "ended"


class TestLimitsOfACgroup:
    """In a folder that looks like a cgroup: not every test machine has controllers of version 2."""

    @pytest.fixture
    def group(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        (tmp_path / "cgroup.subtree_control").write_text("")
        monkeypatch.setattr("sonde.power.jobs.run_job_cgroup.own_group", lambda: tmp_path)
        mkdir = Path.mkdir

        def fill(path: Path, *words: Any, **named: Any) -> None:
            mkdir(path, *words, **named)
            for file in ("cgroup.kill", "pids.max", "memory.max"):
                (path / file).write_text("max")

        monkeypatch.setattr(Path, "mkdir", fill)
        return tmp_path

    def test_a_job_gets_them_before_anything_is_in_it(self, group: Path):
        made = Path(make_group("j1", {"pids.max": 100, "memory.max": 1 << 30}))
        assert made.parent == group
        assert (made / "pids.max").read_text() == "100"
        assert (made / "memory.max").read_text() == str(1 << 30)

    def test_what_is_not_asked_for_stays(self, group: Path):
        made = Path(make_group("j1", {"pids.max": 100, "memory.max": 0}))
        assert (made / "memory.max").read_text() == "max"

    def test_the_kernel_is_asked_to_keep_them(self, group: Path, site: Site):
        share_limits(group)
        assert (group / "cgroup.subtree_control").read_text() == "+memory"  # as files: the last of the two
        assert protections(site.manager.settings)["limits"] is False


class TestAccounts:
    @pytest.fixture
    def refused(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
        """A PAM that admits nobody and records the accounts that it was asked for."""
        asked: list[tuple[str, str]] = []

        def refusal(service: str, user: str) -> str:
            asked.append((service, user))
            return f"PAM's service '{service}' does not admit '{user}': User account has expired"

        monkeypatch.setattr(run_job_account, "refusal", refusal)
        return asked

    def test_an_account_that_has_expired_starts_nothing(self, site: Site, refused: list[tuple[str, str]]):
        site.manager.settings.pam_service = "login"
        with pytest.raises(Refused, match="User account has expired"):
            site.start(SPEC)
        assert refused == [("login", "nobody")]
        assert not (site.folder / "runs/j1").exists()
        assert site.manager.jobs == {}

    def test_a_job_that_runs_is_reported_of_once_more(self, site: Site, refused: list[tuple[str, str]]):
        site.manager.settings.pam_service = ""
        site.start(replace(SPEC, command=("sleep", "1000")))
        assert refused == []
        site.manager.settings.pam_service = "login"
        site.start(replace(SPEC, command=("sleep", "1000")))  # the scheduler asks again: the job runs already
        site.order("STOP_JOB", grace_s=0.1, reason="enough")
        site.over()

    @pytest.mark.skipif(not run_job_account.available(), reason="no libpam.so.0")
    def test_pam_knows_accounts(self):
        assert run_job_account.refusal("login", "nobody") == ""
        assert "does not admit 'no-such-user'" in run_job_account.refusal("login", "no-such-user")

    @pytest.mark.skipif(not run_job_account.available(), reason="no libpam.so.0")
    def test_pam_knows_an_account_that_has_expired(self, tmp_path: Path):
        """On a copy of the accounts, in a mount namespace of its own."""
        line = (
            f"cp /etc/shadow {tmp_path}/shadow && mount --bind {tmp_path}/shadow /etc/shadow && "
            f"awk -F: -v OFS=: '$1 == \"nobody\" {{ $8 = 1 }} 1' {tmp_path}/shadow >{tmp_path}/new && "
            f'cat {tmp_path}/new >/etc/shadow && exec "$@"'
        )
        words = [sys.executable, "-I", run_job_account.__file__, "login", "nobody"]
        ran = subprocess.run(
            ["unshare", "-m", "sh", "-c", line, "sh", *words], capture_output=True, text=True, timeout=60
        )
        if "unshare" in ran.stderr or "mount" in ran.stderr:
            pytest.skip(f"no mount namespaces here: {ran.stderr}")
        # Debian's stack gives another reason, not the expiry.
        assert (ran.returncode, "does not admit 'nobody'" in ran.stdout) == (run_job_account.REFUSED, True), (
            ran
        )

    def test_pam_that_does_not_answer_counts_as_a_refusal(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(run_job_account, "LONGEST_S", 0.0)
        assert "gave no answer" in run_job_account.refusal("login", "nobody")

    @pytest.mark.skipif(not run_job_account.available(), reason="no libpam.so.0")
    @pytest.mark.parametrize("ending", ["sys.exit(0)", "sys.exit(2)", "os._exit(0)"])
    def test_a_program_that_ends_without_its_word_admits_nobody(
        self, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """Simulates a program in which a PAM module calls exit(3)."""
        program = tmp_path / "account.py"
        program.write_text(f"import os, sys\n{ending}\n")
        monkeypatch.setattr(run_job_account, "__file__", str(program))
        assert "exited with status" in run_job_account.refusal("login", "nobody")

    def test_where_there_is_no_pam_jobs_run_and_it_is_said(self, site: Site, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(run_job_account, "LIBRARY", "libno-such-pam.so")
        assert protections(site.manager.settings)["pam"] is False
