"""Workflows that are over are forgotten in time, with their files; a large one does not make the engine deaf."""

from __future__ import annotations

import json
import math
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

from sonde.bus.errors import Refused
from sonde.core.errors import UsageError
from sonde.power.jobs.jobs import JobState, Spec, to_plain
from sonde.power.jobs.retention import Bounds
from sonde.power.stack.config import Users
from sonde.power.workflows import run_workflow_engine
from sonde.power.workflows.run_workflow_engine import KEEP_S, TURN_S, Engine

TEXT = 'name = "w"\n[jobs.a]\ncommand = ["true"]\n'


def begun(engine: Engine, run: str) -> Path:
    engine.order({"order": "RUN_WORKFLOW", "run": run, "text": TEXT, "path": "w.toml", "user": "ada"})
    return engine.workflows[run].journal.path


def a_scheduler_without_jobs(engine: Engine, service: str, body: dict[str, Any]) -> dict[str, Any]:
    if body.get("ask") == "GET_JOB":
        raise UsageError("power.no_job", "there is none")
    return {"jobs": []}


def test_what_has_been_over_for_long_is_forgotten_while_the_engine_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_workflow_engine, "SWEEP_S", 0.0)
    monkeypatch.setattr(Engine, "ask", a_scheduler_without_jobs)
    engine = Engine(str(tmp_path))
    engine.look()
    old, fresh, going = (begun(engine, run) for run in ("old", "fresh", "going"))
    for run in ("old", "fresh"):
        engine.order({"order": "CANCEL_WORKFLOW", "run": run, "user": "ada", "reason": ""})
    engine.look()
    assert [one.course.over for one in engine.workflows.values()] == [True, True, False]
    long_ago = time.time() - KEEP_S - 60
    for path in (old, going):
        os.utime(path, (long_ago, long_ago))
    engine.look()
    assert list(engine.workflows) == ["fresh", "going"]
    assert (old.exists(), fresh.exists(), going.exists()) == (False, True, True)
    with pytest.raises(Exception, match="no workflow is called 'old'"):
        engine.query({"run": "old"})


def test_the_secret_of_a_run_is_the_owner_s_alone_wherever_the_folder_is(tmp_path: Path):
    state = tmp_path / "made by another"
    state.mkdir()
    state.chmod(0o755)  # as an administrator or a unit may make it
    before = os.umask(0o022)
    try:
        path = begun(Engine(str(state)), "w")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)  # as it was left before there were secrets
    assert run_workflow_engine.Journal(path).head["run"] == "w"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


MANY = f'name = "w"\n[jobs.a]\ncommand = ["true"]\nforeach = {{ n = {list(range(200))} }}\n'


class Taking:
    """A scheduler that takes every job; meanwhile() is called when the asked-for job comes, in a thread of its own."""

    def __init__(self, at: int = 0, meanwhile: Callable[[], object] | None = None) -> None:
        self.at, self.meanwhile = at, meanwhile
        self.jobs: dict[str, str] = {}
        self.answered = False

    def __call__(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("ask") == "GET_QUEUE":
            return {
                "jobs": [
                    {"spec": {"job": job, "user": "ada"}, "state": state} for job, state in self.jobs.items()
                ]
            }
        if body.get("order") == "CANCEL_JOB":
            self.jobs[body["job"]] = "cancelling"
            return {}
        assert body["order"] == "SUBMIT_JOB"
        self.jobs[body["job"]] = "queued"
        if self.meanwhile is not None and len(self.jobs) == self.at:
            asking = threading.Thread(target=self.meanwhile, daemon=True)
            asking.start()
            asking.join(5)
            self.answered = not asking.is_alive()
        return {}


@pytest.fixture
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look may take as long as a slow disk makes it."""
    monkeypatch.setattr(run_workflow_engine, "TURN_S", math.inf)


def test_who_asks_while_a_large_workflow_is_handed_in_is_answered(tmp_path: Path, no_hurry: None):
    engine = Engine(str(tmp_path))
    begun_at(engine, "many")
    told: list[Any] = []
    scheduler = Taking(5, lambda: told.append(engine.query({"run": "many"})))
    engine.ask = scheduler  # type: ignore[method-assign]
    engine.look()
    assert scheduler.answered
    states = [job["state"] for job in told[0]["workflows"][0]["jobs"]]
    assert (states.count("accepted"), states.count("submitting"), states.count("waiting")) == (4, 1, 195)


def test_a_run_that_is_cancelled_says_so_and_is_not_cancelled_again_before_and_after_its_jobs_are_over(
    tmp_path: Path, no_hurry: None
):
    engine = Engine(str(tmp_path))
    begun(engine, "w")
    scheduler = Taking()
    engine.ask = scheduler  # type: ignore[method-assign]
    engine.look()
    order = {"order": "CANCEL_WORKFLOW", "run": "w", "user": "ada", "reason": "enough"}

    def refused_again(why: str) -> None:
        with pytest.raises(Refused) as no:
            engine.order(order)
        assert (no.value.code, no.value.what) == ("power.workflow_over", f"'w' is {why}")

    assert engine.order(order)["workflows"][0]["state"] == "cancelling"
    refused_again("being cancelled already: cancelled by ada: enough")
    engine.look()
    assert list(scheduler.jobs.values()) == ["cancelling"]  # its job is told, and not over yet
    assert engine.query({"run": "w"})["workflows"][0]["state"] == "cancelling"
    refused_again("being cancelled already: cancelled by ada: enough")
    engine.ask = a_scheduler_without_jobs.__get__(engine)  # type: ignore[method-assign]
    engine.look()
    assert engine.query({"run": "w"})["workflows"][0]["state"] == "cancelled"
    refused_again("over: cancelled")


def test_a_cancel_while_a_large_workflow_is_handed_in_comes_before_the_rest(tmp_path: Path, no_hurry: None):
    engine = Engine(str(tmp_path))
    begun_at(engine, "many")
    order = {"order": "CANCEL_WORKFLOW", "run": "many", "user": "ada", "reason": ""}
    scheduler = Taking(5, lambda: engine.order(order))
    engine.ask = scheduler  # type: ignore[method-assign]
    engine.look()
    engine.look()
    assert scheduler.answered
    assert list(scheduler.jobs.values()) == ["cancelling"] * 5


def test_what_a_turn_leaves_is_done_in_the_next_and_others_have_theirs_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    engine = Engine(str(tmp_path))
    begun_at(engine, "many")
    begun(engine, "small")
    scheduler = Taking()
    now_s = 0.0

    def ask(service: str, body: dict[str, Any]) -> dict[str, Any]:
        nonlocal now_s
        now_s += TURN_S / 10
        return scheduler(service, body)

    monkeypatch.setattr(engine, "ask", ask)
    monkeypatch.setattr(run_workflow_engine.time, "monotonic", lambda: now_s)
    engine.wake.clear()
    engine.look()
    assert 8 <= len(scheduler.jobs) <= 12
    assert any(job.startswith("small.1.1-") for job in scheduler.jobs)
    assert engine.wake.is_set()
    while engine.wake.is_set():
        engine.wake.clear()
        engine.look()
    assert len(scheduler.jobs) == 201


def test_who_is_to_end_leaves_the_rest(tmp_path: Path, no_hurry: None):
    engine = Engine(str(tmp_path))
    begun_at(engine, "many")
    begun_at(engine, "more")
    scheduler = Taking()
    engine.ask = scheduler  # type: ignore[method-assign]
    engine.look(lambda: len(scheduler.jobs) >= 3)
    assert [job.partition("-")[0] for job in scheduler.jobs] == ["many.1.1", "many.2.1", "many.3.1"]


def begun_at(engine: Engine, run: str) -> None:
    engine.order({"order": "RUN_WORKFLOW", "run": run, "text": MANY, "path": "w.toml", "user": "ada"})


def test_a_job_of_that_name_that_is_anothers_is_not_the_steps(tmp_path: Path, no_hurry: None):
    engine = Engine(str(tmp_path))
    begun(engine, "small")
    scheduler = Taking()
    engine.ask = scheduler  # type: ignore[method-assign]
    engine.look()
    (name,) = scheduler.jobs
    theirs = run_workflow_engine.Scheduler(engine, "bob", "/")
    ours = run_workflow_engine.Scheduler(engine, "ada", "/")
    engine.listed = {(name, "ada"): "running"}
    assert ours.look(name) is not None
    state = to_plain(JobState(Spec(name, user="ada"), "ended"))
    engine.listed, engine.ask = {}, lambda *_: {"jobs": [state]}  # type: ignore[method-assign, assignment]
    assert ours.look(name) is not None
    assert theirs.look(name) is None


def test_what_was_handed_in_before_anybody_proved_who_it_was_does_not_go_on(tmp_path: Path):
    engine = Engine(str(tmp_path / "a"))
    begun(engine, "small")
    (kept,) = (tmp_path / "a").glob("*.jsonl")
    for folder, users, there in (("b", Users(), True), ("c", Users("munge"), False)):
        (tmp_path / folder).mkdir(mode=0o700)
        shutil.copy(kept, tmp_path / folder)
        again = Engine(str(tmp_path / folder), users)
        assert ("small" in again.workflows) is there
        assert any(b"power.not_proven" in event for event in again._events) is not there


def test_one_user_s_workflows_do_not_fill_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_workflow_engine, "GOING", Bounds(2, 3, 1 << 30, 1 << 30))
    engine = Engine(str(tmp_path))
    engine.ask = Taking()  # type: ignore[method-assign]

    def run(name: str, user: str) -> str:
        order = {"order": "RUN_WORKFLOW", "run": name, "text": TEXT, "path": "w.toml", "user": user}
        try:
            engine.order(order)
        except Refused as no:
            return f"{no.code}: {no.what}"
        return ""

    assert [run(name, "ada") for name in ("a", "b", "a")] == ["", "", ""]  # sent again it is the same one
    assert run("c", "ada").startswith("power.engine_full: 2 of ada's workflows are not over")
    assert not (tmp_path / "c.jsonl").exists()
    assert run("c", "bob") == ""
    assert run("d", "eve").startswith("power.engine_full: 3 of all users' workflows")
    engine.order({"order": "CANCEL_WORKFLOW", "run": "a", "user": "ada", "reason": ""})
    engine.look()
    assert run("d", "ada") == ""


def test_a_workflow_too_large_for_what_its_user_has_left_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    engine = Engine(str(tmp_path))
    begun_at(engine, "many")
    monkeypatch.setattr(
        run_workflow_engine, "GOING", Bounds(9, 9, engine.workflows["many"].size_b + 5, 1 << 30)
    )
    with pytest.raises(Refused) as no:
        begun(engine, "small")
    assert no.value.code == "power.engine_full"


def test_the_oldest_workflows_of_who_has_most_are_forgotten_with_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_workflow_engine, "OVER", Bounds(8, 100, 1 << 30, 1 << 30))
    engine = Engine(str(tmp_path))
    engine.ask = a_scheduler_without_jobs.__get__(engine)  # type: ignore[method-assign]
    for k in range(9):
        begun(engine, f"w{k}")
        engine.order({"order": "CANCEL_WORKFLOW", "run": f"w{k}", "user": "ada", "reason": ""})
    for _ in range(2):
        events = engine.look()
    assert list(engine.workflows) == [f"w{k}" for k in range(2, 9)]
    assert sorted(path.stem for path in tmp_path.glob("*.jsonl")) == list(engine.workflows)
    (event,) = (json.loads(event) for event in events if b"forgotten" in event)
    assert (event["workflows"], event["user"], event["total"]) == (2, "ada", 2)
    assert set(engine._states) <= set(engine.workflows)
    os.close(engine._lock)
    monkeypatch.setattr(run_workflow_engine, "OVER", Bounds(4, 100, 1 << 30, 1 << 30))
    assert list(Engine(str(tmp_path)).workflows) == [f"w{k}" for k in range(5, 9)]  # as after a restart


def test_a_file_of_many_attempts_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_workflow_engine, "COMPACT_B", 4000)
    text = f'{TEXT}on_failure = "retry 100"\n'
    engine = Engine(str(tmp_path))
    engine.order({"order": "RUN_WORKFLOW", "run": "w", "text": text, "path": "w.toml", "user": "ada"})

    def failing(service: str, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("ask") == "GET_QUEUE":
            return {"jobs": []}
        if body.get("ask") == "GET_JOB":
            return {"jobs": [to_plain(JobState(Spec(body["job"], user="ada"), "failed", "y" * 400))]}
        return {}

    engine.ask = failing  # type: ignore[method-assign]
    path, sizes = tmp_path / "w.jsonl", []
    while not engine.workflows["w"].course.over:
        engine.look()
        sizes.append(path.stat().st_size)
    assert engine.workflows["w"].course.of["a"].attempt == 101
    assert max(sizes) < 8000
    before = engine.workflows["w"].course
    os.close(engine._lock)
    after = Engine(str(tmp_path)).workflows["w"].course
    assert (after.notes(), after.state, after.energy_j) == (before.notes(), before.state, before.energy_j)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
