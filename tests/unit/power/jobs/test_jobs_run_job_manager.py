"""Jobs, their keepers, and what a job manager finds when it is there again. Real processes, without a bus."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

from power_daemons import until
from sonde.bus.errors import Refused
from sonde.core.errors import EnvironmentFailure
from sonde.core.processes import began
from sonde.power.jobs import run_job_archive
from sonde.power.jobs.jobs import Part, Spec, Target, to_plain
from sonde.power.jobs.retention import Bounds
from sonde.power.jobs.run_job_cgroup import removed
from sonde.power.jobs.run_job_end import end_orphans
from sonde.power.jobs.run_job_manager import JobManager
from sonde.power.jobs.run_job_settings import Settings
from sonde.power.jobs.run_job_start import account_of
from sonde.power.stack import run_bus
from sonde.power.stack.run_state import own_user

USER = own_user()
SPEC = Spec("j1", ("/bin/sh", "-c", "echo $SONDE_JOB_NODE"), USER, "a job", demand_w=250.0, grace_s=1.0)


class Managers:
    """Job managers of one folder, one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now: JobManager | None = None
        self.keepers: list[tuple[int, int]] = []

    def begin(self, users: str = f'users = ["{USER}"]', hosts: str = "n[1-2]") -> JobManager:
        """Another one, as after a kill -9 of the one before: its lock is gone, its keepers are not."""
        if self.now is not None:
            os.close(self.now._lock)
            for job in self.now.jobs.values():
                job.process, job.pidfd = None, -1
        config = self.folder / "power.toml"
        config.write_text(
            f'[budget]\npower_limit = 1000\n[[nodes]]\nhosts = "{hosts}"\nmin = 50\nmax = 300\nsafe = 100\n'
            f'[job-manager]\nstate = "runs"\ngrace = "1s"\n{users}\n'
        )
        self.now = JobManager(run_bus.load(config), Settings(str(config)))
        return self.now

    def start(self, spec: Spec = SPEC, nodes: tuple[str, ...] = ("n1",), **more: Any) -> dict[str, Any]:
        assert self.now is not None
        body = {
            "order": "START_JOB",
            "job": spec.job,
            "spec": to_plain(spec),
            "parts": to_plain([Part(n) for n in nodes]),
        }
        told = self.now.order({**body, **more})["runs"][0]
        mark = json.loads((self.folder / "runs" / spec.job / "keeper.json").read_text())
        self.keepers.append((mark["pid"], mark["began"]))
        return dict(told)

    def run(self, job: str = "j1") -> dict[str, Any]:
        assert self.now is not None
        for one in self.now.look()[1]:
            self.now.settle(one)
        return dict(self.now.query({"job": job})["runs"][0])

    def over(self, job: str = "j1") -> dict[str, Any]:
        return dict(
            until(lambda: (told := self.run(job)) if self.run(job)["state"] in ("ended", "failed") else None)
        )

    def refused(self, word: str, **body: Any) -> str:
        assert self.now is not None
        with pytest.raises(Refused) as error:
            self.now.order({"job": "", "spec": to_plain(SPEC), "parts": to_plain([Part("n1")]), **body})
        assert error.value.reply == word
        return str(error.value.what)


@pytest.fixture
def managers(tmp_path: Path) -> Iterator[Managers]:
    made = Managers(tmp_path)
    yield made
    for pid, start in made.keepers:
        if began(pid) == start:
            os.kill(pid, signal.SIGKILL)
            until(lambda pid=pid, start=start: began(pid) != start, "the keeper has ended")
    if made.now is not None:
        for job in made.now.jobs.values():
            end_orphans(job.folder, job.cgroup)
            until(lambda job=job: not job.cgroup or removed(job.cgroup), "its cgroup is empty")
        os.close(made.now._lock)


def test_a_job_runs_once_on_each_node_and_tells_how_it_ended(managers):
    managers.begin()
    assert managers.start(nodes=("n1", "n2"))["state"] == "running"
    told = managers.over()
    assert (told["state"], told["exit_status"], told["signal"]) == ("ended", 0, 0)
    outputs = [managers.folder / f"runs/j1/output.{n}" for n in ("n1", "n2")]
    assert [one.read_text() for one in outputs] == ["n1\n", "n2\n"]
    assert all(one.stat().st_mode & 0o077 == 0 for one in outputs)


def test_started_again_it_is_the_same_and_another_one_is_refused(managers):
    managers.begin()
    marks = managers.folder / "marks"
    spec = replace(SPEC, command=("/bin/sh", "-c", f"echo x >> {marks}; exit 4"))
    managers.start(spec)
    managers.start(spec)
    assert managers.over()["exit_status"] == 4
    assert managers.start(spec)["state"] == "ended"
    assert managers.begin() is not None
    assert managers.start(spec)["exit_status"] == 4
    managers.now.order({"order": "FORGET_JOB", "job": "j1"})
    assert managers.now.query({"job": ""})["runs"] == []
    assert managers.start(spec)["exit_status"] == 4  # forgotten by who asked, not here
    assert marks.read_text() == "x\n"
    assert "another one" in managers.refused(
        "other_job", order="START_JOB", spec=to_plain(replace(spec, command=("y",)))
    )


def test_who_comes_after_a_killed_one_finds_what_runs_and_what_ended_meanwhile(managers):
    managers.begin()
    gate = managers.folder / "gate"
    wait = f"while ! [ -e {gate} ]; do sleep 0.01; done; exit 5"
    managers.start(replace(SPEC, command=("/bin/sh", "-c", wait), target=Target(slowdown=0.1)))
    managers.begin()
    told = managers.run()
    assert (told["state"], told["demand_w"]) == ("running", 250.0)
    with pytest.raises(EnvironmentFailure) as error:
        JobManager(managers.now.stack, managers.now.settings)
    assert error.value.code == "power.already_running"
    gate.touch()
    until((managers.folder / "runs/j1/exit.json").exists)
    until(lambda: began(managers.keepers[0][0]) != managers.keepers[0][1])
    managers.begin()
    assert (managers.run()["state"], managers.run()["exit_status"]) == ("ended", 5)


def test_a_job_that_runs_is_followed_without_what_is_damaged_beside_it(managers):
    managers.begin()
    gate = managers.folder / "gate"
    managers.start(
        replace(SPEC, command=("/bin/sh", "-c", f"while ! [ -e {gate} ]; do sleep 0.01; done; exit 5"))
    )
    meter = managers.folder / "runs/j1/meter.json"
    meter.write_text('{"energy_j": "x"}')
    begun = managers.begin()
    assert any(b"power.damaged" in event and str(meter).encode() in event for event in begun._events)
    assert managers.run()["state"] == "running"
    gate.touch()
    assert managers.over()["exit_status"] == 5


def test_a_job_whose_keeper_is_not_known_any_more_stays_on_the_disk(managers):
    """It may run: only who looks at its folder can tell."""
    managers.begin()
    managers.start()
    managers.over()
    folder = managers.folder / "runs/j1"
    (folder / "keeper.json").write_text("")
    begun = managers.begin()
    assert any(b"power.damaged" in event and str(folder).encode() in event for event in begun._events)
    assert (folder / "exit.json").exists()


def test_what_was_killed_before_its_keeper_was_known_never_began(managers):
    managers.begin()
    managers.start()
    managers.over()
    folder = managers.folder / "runs/j1"
    for name in ("keeper.json", "begun", "exit.json"):
        (folder / name).unlink()
    managers.begin()
    with pytest.raises(Refused) as error:
        managers.run()
    assert error.value.reply == "no_job"
    assert managers.start()["state"] == "running"  # so that it may begin


def test_a_job_whose_keeper_was_killed_is_lost_and_nothing_is_left_of_it(managers):
    managers.begin()
    pids = managers.folder / "pids"
    line = f"(setsid sleep 300 & echo $! >> {pids}); echo $$ >> {pids}; sleep 300"
    managers.start(replace(SPEC, command=("/bin/sh", "-c", line)))
    until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    os.kill(managers.keepers[0][0], signal.SIGKILL)
    told = managers.over()
    assert told["state"] == "failed"
    assert "job shim was killed" in told["reason"]
    until(lambda: not any(began(int(pid)) for pid in pids.read_text().split()))
    managers.begin()
    assert managers.run()["ended_ns"] == told["ended_ns"]  # it stays what it was


def test_stopping_is_term_then_kill_and_its_reason_is_reported(managers):
    managers.begin()
    ready = managers.folder / "ready"
    line = f"trap '' TERM; touch {ready}; while :; do sleep 0.05; done"
    managers.start(replace(SPEC, command=("/bin/sh", "-c", line)))
    until(ready.exists)
    order = {"order": "STOP_JOB", "job": "j1", "grace_s": 0.2, "reason": "its time is over"}
    assert managers.now.order(order)["runs"][0]["state"] == "stopping"
    told = managers.over()
    assert (told["state"], told["signal"], told["reason"]) == ("ended", signal.SIGKILL, "its time is over")


def test_who_was_killed_between_its_note_and_its_word_says_that_word_when_it_is_there_again(managers):
    managers.begin()
    managers.start(replace(SPEC, command=("sleep", "300")))
    (managers.folder / "runs/j1/stop.json").write_text('{"grace_s": 1.0, "reason": "it is not needed"}')
    managers.begin()
    assert managers.now.query({"job": "j1"})["runs"][0]["state"] == "stopping"
    told = managers.over()
    assert (told["signal"], told["reason"]) == (signal.SIGTERM, "it is not needed")


def test_no_name_of_a_job_is_in_the_way_of_what_is_preserved(managers):
    managers.begin()
    for job in ("lock", "state", "j1.part", "forgotten"):
        assert managers.start(replace(SPEC, job=job))["state"] == "running"
        assert managers.over(job)["exit_status"] == 0
    managers.begin()
    assert len(managers.now.query({"job": ""})["runs"]) == 4


def test_a_job_goes_on_whose_node_was_taken_out_of_the_configuration(managers):
    managers.begin()
    managers.start(replace(SPEC, command=("sleep", "300"), target=Target(slowdown=0.1)), nodes=("n2",))
    managers.begin(hosts="n1")
    assert managers.run()["state"] == "running"
    managers.now.order({"order": "STOP_JOB", "job": "j1", "grace_s": 0.2, "reason": "enough"})
    assert managers.over()["reason"] == "enough"


def test_a_time_limit_is_held_by_the_keeper_alone(managers):
    managers.begin()
    managers.start(replace(SPEC, command=("sleep", "300"), limit_s=0.2))
    told = managers.over()
    assert (told["signal"], told["reason"]) == (signal.SIGTERM, "its time limit of 0.2 s is over")


def test_what_cannot_be_started_says_why(managers):
    managers.begin()
    managers.start(replace(SPEC, command=("/no/such/program",)))
    told = managers.over()
    assert (told["state"], told["exit_status"]) == ("ended", 127)
    assert "/no/such/program" in told["reason"]
    other = {"order": "START_JOB", "spec": to_plain(replace(SPEC, job="j2"))}
    assert "no node is called 'n9'" in managers.refused("unknown_node", **other, parts=to_plain([Part("n9")]))
    managers.refused("no_job", order="STOP_JOB", job="other", grace_s=0.0, reason="")


def test_jobs_are_of_those_users_that_are_named(managers):
    managers.begin('users = ["nobody-here"]')
    assert "allowed users: nobody-here" in managers.refused("not_allowed", order="START_JOB")
    managers.begin("")
    other = replace(SPEC, user="root" if USER == "root" else "somebody")
    assert "not allowed" in managers.refused("not_allowed", order="START_JOB", spec=to_plain(other))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_whose_rights_a_daemon_has_is_not_what_its_environment_says(
    managers, monkeypatch: pytest.MonkeyPatch
):
    # As `su` leaves it: root, with a user's LOGNAME. Their jobs must not be root's.
    for name in ("LOGNAME", "USER"):
        monkeypatch.setenv(name, "nobody")
    assert own_user() == pwd.getpwuid(os.geteuid()).pw_name
    given = account_of("nobody", managers.begin("").settings)
    assert given is not None
    assert given.pw_uid != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_daemon_of_root_gives_up_its_rights_for_the_user(managers):
    # pytest's folders are closed to others.
    managers.folder = Path(tempfile.mkdtemp(prefix="sonde-jobs-"))
    try:
        _as_nobody(managers)
    finally:
        shutil.rmtree(managers.folder)


def _as_nobody(managers: Managers) -> None:
    managers.folder.chmod(0o755)
    managers.begin('users = ["nobody"]')
    assert managers.now is not None
    line = "id -un; head -c1 /proc/self/status; cat start.json; echo 0.5 >> $SONDE_JOB_PROGRESS && echo told"
    managers.start(replace(SPEC, user="nobody", command=("/bin/sh", "-c", line)))
    assert managers.over()["exit_status"] == 0
    said_so = (managers.folder / "runs/j1/output").read_text().splitlines()
    assert said_so[0] == "nobody"
    assert said_so[-1] == "told"
    assert not (managers.folder / "runs/j1/start.json").exists()  # it has the environment in it
    assert any("Permission denied" in one for one in said_so)
    secret = managers.folder / "secret"
    secret.touch(0o600)
    managers.start(replace(SPEC, job="j2", user="nobody", output=str(secret)))
    assert "secret" in managers.over("j2")["reason"]
    # What is ours in a job's folder stays ours, by whatever name it calls its output.
    for k, name in enumerate(("start.json.part", "keeper.json.part", "exit.json", "lost.json", "other")):
        job = f"hostile-{k}"
        output = str(managers.folder / "runs" / job / name)
        managers.start(replace(SPEC, job=job, user="nobody", output=output))
        assert f"{name}' cannot be used: Permission denied" in managers.over(job)["reason"]
    for folder in (managers.folder / "runs").iterdir():
        if folder.is_dir():
            owned = {one.name for one in folder.iterdir() if one.stat().st_uid != 0}
            assert owned <= {"progress.0", "output"}
            assert all(one.stat().st_mode & 0o077 == 0 for one in folder.iterdir() if one.name in owned)
            assert (folder / "job.json").stat().st_mode & 0o077 == 0


def test_turns_and_a_target_lead_to_a_demand(managers):
    managers.begin()
    gate = managers.folder / "gate"
    line = f"while ! [ -e {gate} ]; do echo 0.5 >> $SONDE_JOB_PROGRESS; sleep 0.02; done"
    managers.start(replace(SPEC, command=("/bin/sh", "-c", line)))
    managers.now.order({"order": "SET_TARGET", "job": "j1", "target": to_plain(Target(iteration_s=30.0))})

    def demand() -> float:
        managers.now.report()
        return float(managers.run()["demand_w"])

    until(lambda: 0 < demand() < 250.0)
    managers.now.meter("n1", 100.0, 200.0)
    managers.now.meter("n1", 150.0, 200.0)
    ((_, sample),) = managers.now.report()
    assert (sample["state"], sample["progress"], sample["power_w"]) == ("running", 0.5, 200.0)
    assert sample["energy_j"] >= 50.0
    assert 0 < sample["iteration_s"] < 30
    gate.touch()
    assert managers.over()["demand_w"] == 0.0


def test_what_a_job_that_is_over_needs_no_more_is_not_stored(managers):
    managers.begin()
    spec = replace(SPEC, command=("true", *["x" * 1000] * 100), environment=("SECRET=1",))
    managers.start(spec)
    managers.over()
    folder = managers.folder / "runs/j1"

    def check() -> None:
        job = managers.now.jobs["j1"]
        assert (job.spec.environment, job.spec.command[-1]) == ((), "[cut: 101 words, 100004 characters]")
        assert not (folder / "start.json").exists()
        text = (folder / "job.json").read_text()
        assert "SECRET" not in text
        assert len(text) < 5000
        assert managers.start(spec)["state"] == "ended"  # it is still this job
        managers.refused("other_job", order="START_JOB", spec=to_plain(replace(spec, command=("true", "x"))))

    check()
    managers.begin()
    check()


def test_the_oldest_jobs_of_who_has_most_are_removed_with_their_folders(
    managers, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_job_archive, "OVER", Bounds(3, 100, 1 << 30, 1 << 30))
    managers.begin()
    state = managers.folder / "runs"
    for k in range(4):
        managers.start(replace(SPEC, job=f"j{k}"))
        managers.over(f"j{k}")
    assert len(managers.now.jobs) == 4  # the scheduler has not noted their ends yet
    for k in range(3):
        managers.now.order({"order": "FORGET_JOB", "job": f"j{k}"})
    managers.start(replace(SPEC, job="j4"))
    managers.over("j4")
    assert list(managers.now.jobs) == ["j2", "j3", "j4"]
    assert sorted(one.name for one in state.iterdir() if one.is_dir()) == ["j2", "j3", "j4"]
    assert managers.now.archive.removed == 2
    (state / ".gone-1").mkdir()  # as a manager leaves it that is killed meanwhile
    monkeypatch.setattr(run_job_archive, "OVER", Bounds(2, 100, 1 << 30, 1 << 30))
    managers.now.order({"order": "FORGET_JOB", "job": "j3"})
    begun = managers.begin()
    assert list(begun.jobs) == ["j3", "j4"]
    (event,) = (json.loads(event) for event in begun._events if b"forgotten" in event)
    assert (event["jobs"], event["user"], event["total"]) == (1, USER, 1)
    assert sorted(one.name for one in state.iterdir() if one.is_dir()) == ["j3", "j4"]


def test_a_file_of_a_job_that_does_not_answer_holds_up_nobody(managers, monkeypatch: pytest.MonkeyPatch):
    managers.begin()
    for job in ("slow", "fast"):
        managers.start(replace(SPEC, job=job, command=("sleep", "300")))
        (managers.folder / f"runs/{job}/progress.0").write_text("0.5\n")
    # As two users' jobs, on a machine where a test is one user.
    managers.now.jobs["slow"].spec = replace(managers.now.jobs["slow"].spec, user="eve")
    answers, real = threading.Event(), os.open

    def open_slowly(path, flags, *more, **named):
        if str(path).endswith("slow/progress.0"):
            answers.wait(100)
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", open_slowly)
    done = threading.Event()
    threading.Thread(target=lambda: (managers.now.report(), done.set()), daemon=True).start()
    try:
        assert done.wait(50), "a report waits for a user's file"
        until(lambda: managers.now.jobs["fast"].turns[0].lines == 1, "the other one's is read")
        assert managers.run("slow")["state"] == "running"
        managers.now.order({"order": "STOP_JOB", "job": "slow", "grace_s": 0.2, "reason": "enough"})
        assert managers.over("slow")["reason"] == "enough"
    finally:
        answers.set()
