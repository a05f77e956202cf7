"""A scheduler in a world of its own: others that answer, do not answer, or answer into the void; a disk that is full;
and a scheduler that is killed at any instant. What was begun is counted where it counts, at the job manager.
"""

from __future__ import annotations

import copy
import json
import math
import random
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

from sonde.bus.errors import Refused
from sonde.core.errors import EnvironmentFailure, UsageError, from_code
from sonde.power.jobs import jobs, run_guarantees, run_jobs_bus
from sonde.power.jobs.jobs import ENDED, OVER, RUNNING, STARTING, Run, Spec, to_plain
from sonde.power.jobs.queue_rows import USAGE
from sonde.power.jobs.refused_starts import GIVE_UP_S
from sonde.power.jobs.retention import Bounds
from sonde.power.jobs.run_job_scheduler import Scheduler
from sonde.power.jobs.run_jobs_store import CannotKeep
from sonde.power.jobs.run_resource_manager import Allocations, empty
from sonde.power.stack.config import Jobs, Listen, NodeLimits, Stack

S = 1_000_000_000
BUDGET_W, SAFE_W = 1300.0, 100.0


class Killed(BaseException):
    """The scheduler, by -9."""


class Clock:
    """In place of the module time."""

    def __init__(self) -> None:
        self.now_s = 1e6
        self.set_s = 0.0  # by how much somebody set the one that can be

    def time(self) -> float:
        return self.now_s + self.set_s

    def monotonic(self) -> float:
        return self.now_s

    def time_ns(self) -> int:
        return int(self.time() * 1e9)


class Disk:
    """A store that keeps what it says it kept."""

    def __init__(self, chance: World | None = None) -> None:
        self.rows: dict[str, str] = {}
        self.world, self.full = chance, False

    def load(self) -> dict[str, Any]:
        return {name: json.loads(text) for name, text in self.rows.items()}

    decoding = staticmethod(nullcontext)

    def save(self, changed: dict[str, Any], gone: Any = ()) -> None:
        if self.world is not None:
            self.world.may_be_killed()
        if self.full:
            raise CannotKeep("full")
        self.rows.update({name: json.dumps(value) for name, value in changed.items()})
        for name in gone:
            self.rows.pop(name, None)
        if self.world is not None:
            self.world.may_be_killed()


def stack(**more: Any) -> Stack:
    nodes = tuple(
        NodeLimits(f"n{k}", 60, 400, SAFE_W, f"r{k % 2}", cores=4, memory_bytes=1 << 30) for k in range(6)
    )
    queues = (
        {"name": "low", "priority": 0, "is_default": True},
        {"name": "high", "priority": 2, "is_default": False},
    )
    rest = {"users": [], "groups": [], "default_time_s": 20.0, "max_time_s": 60.0, "max_nodes": 0}
    return Stack(
        "",
        "demo",
        "",
        "",
        BUDGET_W,
        "fair",
        3,
        1,
        nodes,
        Listen("127.0.0.1", 0),
        "",
        1,
        1,
        racks={"r0": 900.0, "r1": 700.0},
        jobs=Jobs(
            age_s=50.0,
            keep_s=1e5,
            queues=tuple({**one, **rest, "max_power_w": None} for one in queues),
            **more,
        ),
    )


class World:
    """The resource manager, a job manager and a system manager, and the way to them."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chance = random.Random(seed)
        self.clock = Clock()
        self.stack = stack()
        self.resources = Allocations(self.stack, Disk())  # type: ignore[arg-type]
        self.disk = Disk(self)
        self.kill_at, self.lose, self.refuse = 0.0, 0.0, 0.0
        self.refused: dict[str, str] = {}  # jobs that the job manager does not start, and why
        self.unguaranteed: set[str] = set()  # jobs of which the system manager takes nothing
        self.disk_is_full = False  # the job manager's
        self.tries: list[str] = []
        self.managed = {node.name for node in self.stack.nodes}
        self.budget_w, self.shed_until = BUDGET_W, 0.0
        self.silent: set[str] = set()
        self.observes = False
        self.epoch = 1
        self.runs: dict[str, Run] = {}
        self.held: dict[str, tuple[Spec, Any, float]] = {}  # spec, parts, ends
        self.begun: dict[str, int] = {}
        self.started_w: list[float] = []
        self.guaranteed: dict[str, dict[str, Any]] = {}
        self.kills = self.lost = 0
        self.scheduler = self.anew()

    def anew(self) -> Scheduler:
        self.disk.world, before = None, self.disk.world
        made = Scheduler(self.stack, self.disk, self, self.clock)  # type: ignore[arg-type]
        self.disk.world = before
        return made

    def may_be_killed(self) -> None:
        if self.chance.random() < self.kill_at:
            raise Killed

    # ---- what is asked

    def ask(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._on_its_way(lambda: self._ask(service, copy.deepcopy(body)))

    def system(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._on_its_way(lambda: self._system(service, copy.deepcopy(body)))

    def _on_its_way(self, answered: Any) -> Any:
        self.may_be_killed()
        if self.chance.random() < self.lose / 2:
            self.lost += 1
            raise EnvironmentFailure("power.no_answer", "the request was lost")
        answer = answered()
        self.may_be_killed()
        if self.chance.random() < self.lose / 2:
            self.lost += 1
            raise EnvironmentFailure("power.no_answer", "the answer was lost")
        return answer

    def _ask(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        if service == jobs.JOB_GET:
            return {"runs": [to_plain(run) for run in self.runs.values()]}
        if service == jobs.JOB_SET:
            return self._job(body)
        if body.get("order") == "ALLOCATE":
            assert json.loads(self.disk.rows[body["job"]])["state"]["state"] == STARTING, "it is not on disk"
        try:
            return self.resources.query(body) if service == jobs.RESOURCES_GET else self.resources.order(body)
        except Refused as no:
            word = jobs.CODES[no.number]
            raise from_code(f"power.{word}", no.what) from None

    def _job(self, body: dict[str, Any]) -> dict[str, Any]:
        job = body["job"]
        if body["order"] == "START_JOB":
            self.tries.append(job)
            word = "cannot_keep" if self.disk_is_full or self.chance.random() < self.refuse else ""
            word = self.refused.get(job, word)
            if word and job not in self.runs:
                raise EnvironmentFailure(f"power.{word}", f"nothing was done: {word}")
            if job not in self.runs:
                self._begin(Spec.of(body["spec"]), tuple(jobs.Part.of(part) for part in body["parts"]))
        elif job not in self.runs:
            raise UsageError("power.no_job", "unknown")
        elif body["order"] == "STOP_JOB":
            if job in self.refused:
                raise EnvironmentFailure("power.cannot_keep", "it cannot be stopped")
            if not self.runs[job].over:
                self._end(job, signal=15)
        else:
            assert self.runs[job].over
            del self.runs[job]
        return {"runs": [to_plain(self.runs[job])] if job in self.runs else []}

    def _begin(self, spec: Spec, parts: Any) -> None:
        self.begun[spec.job] = self.begun.get(spec.job, 0) + 1
        assert self.begun[spec.job] == 1, f"{spec.job} was started twice"
        kept = json.loads(self.disk.rows[spec.job])
        assert (kept["asked"], kept["state"]["state"]) == (True, STARTING), "it is not on disk"
        used = self.in_use()
        used.take(spec.job, parts, spec.guaranteed_w)  # raises where somebody is there
        assert len(parts) == (len(spec.hosts) or spec.nodes)
        for part in parts:
            told = [one for one in self.guaranteed.values() if part.node in one["nodes"]]
            assert len(told) == (0 if self.observes else 1), "the system manager was not told of it"
            assert all(one["guaranteed_w"] >= used.guaranteed_w(part.node) - 1e-9 for one in told)
        for rack, limit in self.stack.racks.items():
            assert used.rack_w(rack) <= limit + 1e-6
        self.started_w.append(used.total_w)
        if spec.guaranteed_w > SAFE_W:
            assert used.total_w <= self.highest_w + 1e-6
        self.held[spec.job] = spec, parts, self.clock.now_s + self.chance.uniform(0.5, 1.4) * spec.limit_s
        state = RUNNING if self.chance.random() < 0.8 else STARTING
        self.runs[spec.job] = Run(spec.job, state, started_ns=self.clock.time_ns())

    def _end(self, job: str, status: int = 0, signal: int = 0) -> None:
        del self.held[job]
        self.runs[job] = replace(
            self.runs[job],
            state=ENDED,
            exit_status=-1 if signal else status,
            signal=signal,
            ended_ns=self.clock.time_ns(),
            energy_j=1000.0,
        )

    def in_use(self) -> Any:
        used = empty(self.stack)
        for job, (spec, parts, _) in self.held.items():
            used.take(job, parts, spec.guaranteed_w)
        return used

    def _system(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        if service.endswith("_get"):
            shed = self.clock.now_s < self.shed_until
            self.highest_w = self.budget_w / 2 if shed else self.budget_w
            return {
                "cluster": {
                    "budget_w": self.highest_w,
                    "restored_w": self.budget_w if shed else math.nan,
                    "shed_left_s": self.shed_until - self.clock.now_s if shed else 0.0,
                    "committed_w": 600.0,
                    "manager": "m",
                    "epoch": self.epoch,
                    "state": "observing" if self.observes else "active",
                },
                "nodes": [
                    {
                        "node": node.name,
                        "heard": node.name not in self.silent,
                        "trouble": "",
                        "committed_w": SAFE_W,
                        "job": next(
                            (job for job, one in self.guaranteed.items() if node.name in one["nodes"]), ""
                        ),
                    }
                    for node in self.stack.nodes
                    if node.name in self.managed
                ],
            }
        if self.observes:
            raise Refused("bus.unsupported", "m only observes: it changes nothing", "", "unsupported", "", 7)
        if body["order"] == "END_JOB":
            if self.guaranteed.pop(body["job"], None) is None:
                raise Refused("bus.not_found", "unknown", "", "not_found", "", 3)
            return {}
        for node in body["nodes"]:
            if node not in self.managed or body["job"] in self.unguaranteed:
                raise Refused("bus.not_found", f"no node is called '{node}'", "", "not_found", "", 3)
        self.guaranteed[body["job"]] = body
        for name, other in list(self.guaranteed.items()):
            if name != body["job"]:
                other["nodes"] = [node for node in other["nodes"] if node not in body["nodes"]]
                if not other["nodes"]:
                    del self.guaranteed[name]
        return {}

    # ---- time goes on

    def step(self) -> None:
        self.clock.now_s += self.chance.uniform(0.1, 2.0)
        for job, (_, _, ends_s) in list(self.held.items()):
            if self.runs[job].state == STARTING:
                self.runs[job] = replace(self.runs[job], state=RUNNING)
            if self.clock.now_s >= ends_s:
                self._end(job, self.chance.choice((0, 0, 0, 3)))
        try:
            self.scheduler.turn()
        except Killed:
            self.kill()

    def order(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """None: it was killed, or refused."""
        try:
            return self.scheduler.order({"job": "", "user": "", "spec": to_plain(Spec("")), **body})
        except Killed:
            self.kill()
        except Refused:
            pass
        return None

    def kill(self) -> None:
        self.kills += 1
        self.scheduler = self.anew()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(1, monkeypatch)


def submit(world: World, job: str, **more: Any) -> None:
    spec = Spec(job, ("true",), "ada", **more)
    assert world.order({"order": "SUBMIT_JOB", "spec": to_plain(spec)})


def state(world: World, job: str) -> str:
    return world.scheduler.queue.entries[job].state.state


def until(world: World, true: Any, steps: int = 300) -> None:
    for _ in range(steps):
        if true():
            return
        world.step()
    raise AssertionError("it did not come to that")


def test_jobs_run_and_all_they_had_is_given_back(world):
    for k in range(4):
        submit(world, f"j{k}", nodes=2, guaranteed_w=200.0)
    until(world, lambda: all(state(world, f"j{k}") in OVER for k in range(4)))
    world.step()
    world.step()
    assert not world.resources.query({})["allocations"]
    assert not world.guaranteed
    assert not world.runs
    assert set(world.begun.values()) == {1}
    assert world.scheduler.queue.usage.had["ada"][0] > 0


def test_the_budget_is_waited_for_and_reported(world):
    submit(world, "a", hosts=("n0", "n2"), guaranteed_w=400.0)
    submit(world, "b", guaranteed_w=300.0)
    world.step()
    assert state(world, "a") in ("running", "starting")
    shown = world.scheduler.query({"ask": "GET_JOB", "job": "b"})["jobs"][0]
    assert shown["reason"] == "waits for power: it needs 200 W, 100 W of 1.3 kW are left"
    assert shown["expected_ns"] > world.clock.time_ns()
    until(world, lambda: state(world, "b") in OVER)


def test_nothing_starts_while_a_part_is_shed(world):
    world.shed_until = world.clock.now_s + 100
    submit(world, "a", guaranteed_w=400.0)
    submit(world, "free", guaranteed_w=80.0)
    until(world, lambda: state(world, "free") in OVER)
    assert state(world, "a") == "waiting" or world.clock.now_s >= world.shed_until
    until(world, lambda: state(world, "a") in OVER)
    assert world.clock.now_s >= world.shed_until


def test_what_was_planned_is_taken_back_when_the_budget_falls(world):
    submit(world, "a", guaranteed_w=400.0)
    refused = world.resources.order
    world.resources.order = lambda body: (_ for _ in ()).throw(run_jobs_bus.refused("cannot_keep", "full"))
    world.step()
    assert state(world, "a") == STARTING
    world.shed_until = world.clock.now_s + 50
    world.step()
    assert state(world, "a") == "waiting"
    world.resources.order = refused
    for _ in range(5):
        world.step()
    assert not world.begun
    until(world, lambda: state(world, "a") in OVER)


def test_nodes_that_do_not_answer_get_no_job(world):
    world.silent = {f"n{k}" for k in range(5)}
    submit(world, "two", nodes=2)
    submit(world, "one")
    until(world, lambda: state(world, "one") in OVER)
    assert state(world, "two") == "waiting"
    assert "5 nodes do not answer" in world.scheduler.queue.entries["two"].state.reason
    world.silent = set()
    until(world, lambda: state(world, "two") in OVER)


def test_a_job_past_its_time_is_stopped(world):
    world.chance.uniform = lambda low, high: 1.0 if high == 2.0 else 99.0  # type: ignore[method-assign]
    submit(world, "a", limit_s=10.0)
    until(world, lambda: state(world, "a") in OVER, 20)
    assert state(world, "a") == "failed"
    assert "time limit was reached: 10.0 s" in world.scheduler.queue.entries["a"].state.reason


def test_a_job_that_runs_is_cancelled_over_the_job_manager(world):
    submit(world, "a")
    until(world, lambda: state(world, "a") == RUNNING)
    assert world.order({"order": "CANCEL_JOB", "job": "a", "user": "ada"})
    until(world, lambda: state(world, "a") in OVER, 3)
    assert state(world, "a") == "cancelled"
    assert not world.held


def test_a_job_that_the_job_manager_lost_has_failed_and_is_not_started_again(world):
    submit(world, "a")
    until(world, lambda: state(world, "a") == RUNNING)
    world.runs.clear()
    world.held.clear()
    world.step()
    assert state(world, "a") == "failed"
    for _ in range(10):
        world.step()
    assert world.begun == {"a": 1}
    assert not world.resources.query({})["allocations"]


def test_a_start_that_arrives_after_its_job_was_cancelled_is_stopped(world):
    submit(world, "a")
    until(world, lambda: state(world, "a") == RUNNING)
    run, had = world.runs.pop("a"), world.held.pop("a")
    world.step()
    assert state(world, "a") == "failed"  # the job manager did not know it
    world.runs["a"], world.held["a"] = run, had
    until(world, lambda: not world.held and not world.runs, 60)  # it looks each 10 s
    assert state(world, "a") == "failed"


def test_a_guarantee_whose_answer_was_lost_is_reported_again(world):
    for job, power in (("a", 80.0), ("b", 50.0)):
        submit(world, job, hosts=("n0",), cores=1, guaranteed_w=power, limit_s=60.0)
    until(world, lambda: {state(world, job) for job in "ab"} == {RUNNING})
    system = world.system

    def lossy(service: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = system(service, body)
        if body.get("order") == "SET_JOB":
            raise EnvironmentFailure("power.no_answer", "the answer was lost")
        return answer

    world.system = lossy  # type: ignore[method-assign]
    world._end("b")
    world.step()
    assert world.guaranteed["on:n0"]["guaranteed_w"] == 80
    world.system = system  # type: ignore[method-assign]
    submit(world, "c", hosts=("n0",), cores=1, guaranteed_w=50.0)
    until(world, lambda: "c" in world.begun, 3)
    assert world.guaranteed["on:n0"]["guaranteed_w"] == 130


@pytest.mark.parametrize("cores", [0, 1])
def test_a_guarantee_ends_with_its_job_though_the_scheduler_is_killed_before_it_says_so(world, cores):
    submit(world, "a", hosts=("n0",), cores=cores, guaranteed_w=150.0)
    until(world, lambda: state(world, "a") == RUNNING)
    assert list(world.guaranteed) == ["on:n0" if cores else "a"]
    world._end("a")
    world.kill()  # while it was down the job ended: this one never told the system manager of it
    world.scheduler.turn()
    assert state(world, "a") in OVER
    assert not world.guaranteed


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_guarantee_ends_with_its_job_though_its_end_is_lost_and_the_scheduler_then_killed(world, lost):
    submit(world, "a", guaranteed_w=150.0)
    until(world, lambda: state(world, "a") == RUNNING)
    world._end("a")
    system = world.system

    def lossy(service: str, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("order") == "END_JOB":
            if lost == "answer":
                system(service, body)
            raise EnvironmentFailure("power.no_answer", f"the {lost} was lost")
        return system(service, body)

    world.system = lossy  # type: ignore[method-assign]
    world.scheduler.turn()
    assert state(world, "a") in OVER
    assert not world.runs
    world.system = system  # type: ignore[method-assign]
    world.kill()
    world.scheduler.turn()
    assert not world.guaranteed


def test_a_guarantee_ends_with_its_job_though_its_manager_leads_anew_at_that_moment(world):
    """One that stood back and leads again has what it was told before, under another epoch."""
    submit(world, "a", guaranteed_w=150.0)
    until(world, lambda: state(world, "a") == RUNNING)
    world._end("a")
    world.epoch += 1
    world.scheduler.turn()
    assert state(world, "a") in OVER
    assert not world.guaranteed


def test_what_others_told_the_system_manager_of_their_jobs_stays(world):
    for job, node in (("slurm-17", "n5"), ("on:elsewhere", "n4")):
        body = {"order": "SET_JOB", "job": job, "nodes": [node], "guaranteed_w": 150.0}
        world.system("SystemPowerManager_set", body)
    submit(world, "a", hosts=("n0",))
    until(world, lambda: state(world, "a") in OVER)
    world.kill()
    world.step()
    assert set(world.guaranteed) == {"slurm-17", "on:elsewhere"}


def test_a_job_that_is_refused_holds_up_nobody_and_fails_at_last(world):
    world.refused["bad"] = "cannot_keep"
    submit(world, "bad", queue="high", nodes=6)
    submit(world, "good")
    until(world, lambda: state(world, "good") in OVER, 60)
    assert state(world, "bad") in ("waiting", STARTING)
    until(world, lambda: state(world, "bad") == "waiting", 5)
    reason = world.scheduler.queue.entries["bad"].state.reason
    assert "the job manager refuses to start it: nothing was done: cannot_keep" in reason
    assert (
        "bad: the job manager refuses to start it" in world.scheduler.query({"ask": "GET_QUEUES"})["trouble"]
    )
    until(world, lambda: not world.resources.query({})["allocations"], 10)
    assert not world.guaranteed
    # Its user may have it tried at once.
    world.scheduler.refused.by_job["bad"].again_s = math.inf
    tried = len(world.tries)
    assert world.order({"order": "RELEASE_JOB", "job": "bad", "user": "ada"})
    until(world, lambda: len(world.tries) > tried, 5)
    # Others start all the while: it is this job that cannot.
    for k in range(6000):
        if state(world, "bad") in OVER:
            break
        if k % 20 == 0:
            submit(world, f"more{k}", limit_s=3.0)
        world.step()
    assert state(world, "bad") == "failed"
    assert "the job manager refuses to start it" in world.scheduler.queue.entries["bad"].state.reason
    assert world.tries.count("bad") < 20
    until(world, lambda: not world.runs and not world.resources.query({})["allocations"])
    assert "starts" not in world.scheduler.requests.troubles


def test_a_full_disk_of_the_job_manager_fails_no_job(world):
    world.disk_is_full = True
    for k in range(9):
        submit(world, f"j{k}")
    start_s = world.clock.now_s
    while world.clock.now_s < start_s + 3 * GIVE_UP_S:
        world.step()
    assert not world.begun
    assert {state(world, f"j{k}") for k in range(9)} <= {"waiting", STARTING}
    world.disk_is_full = False
    until(world, lambda: all(state(world, f"j{k}") in OVER for k in range(9)), 2000)
    assert set(world.begun.values()) == {1}
    assert len(world.begun) == 9


def test_a_start_that_is_refused_and_was_made_is_no_other_start(world):
    """The job manager failed after it had begun: whether it has the job is seen, not guessed."""
    submit(world, "a")
    begin = world._begin

    def fails(spec: Spec, parts: Any) -> None:
        begin(spec, parts)
        raise EnvironmentFailure("power.failed", "an error of its own")

    world._begin = fails  # type: ignore[method-assign]
    until(world, lambda: state(world, "a") in OVER)
    assert world.begun == {"a": 1}
    assert "starts" not in world.scheduler.requests.troubles


def test_a_job_that_cannot_be_stopped_holds_up_no_other(world):
    for job in ("a", "b"):
        submit(world, job, limit_s=60.0)
    world.chance.uniform = lambda low, high: 1.0  # type: ignore[method-assign]
    until(world, lambda: {state(world, job) for job in "ab"} == {RUNNING})
    world.refused["a"] = "cannot_keep"
    for job in ("a", "b"):
        assert world.order({"order": "CANCEL_JOB", "job": job, "user": "ada"})
    submit(world, "d")
    until(world, lambda: state(world, "b") in OVER and "d" in world.begun, 3)
    assert state(world, "a") == "stopping"
    assert (
        world.scheduler.requests.troubles["stops"]
        == "the job manager refuses to stop a: it cannot be stopped"
    )
    del world.refused["a"]
    until(world, lambda: state(world, "a") in OVER, 3)
    assert "stops" not in world.scheduler.requests.troubles


def test_a_job_called_usage_is_a_job(world):
    submit(world, "usage")
    submit(world, "a")
    world.kill()
    assert set(world.scheduler.queue.entries) == {"usage", "a"}
    until(world, lambda: {state(world, job) for job in ("usage", "a")} <= set(OVER))
    until(world, lambda: world.scheduler.queue.usage.had, 5)
    had = world.scheduler.queue.usage.had["ada"][0]
    world.kill()
    assert set(world.scheduler.queue.entries) == {"usage", "a"}
    assert world.scheduler.queue.usage.had["ada"][0] == pytest.approx(had, rel=0.01)


def test_what_users_had_is_read_from_where_it_was_kept_before(world):
    world.disk.rows["usage"] = json.dumps({"at_s": world.clock.now_s, "had": {"ada": [40.0, 5.0]}})
    world.kill()
    assert world.scheduler.queue.usage.had == {"ada": (40.0, 5.0)}
    assert not world.scheduler.queue.entries
    submit(world, "usage")
    world.kill()
    assert world.scheduler.queue.usage.had["ada"][0] == pytest.approx(40, rel=0.01)
    assert set(world.scheduler.queue.entries) == {"usage"}


def without(world: World, node: str) -> None:
    """An operator takes a node out of the configuration, and starts all roles anew."""
    left = tuple(one for one in world.stack.nodes if one.name != node)
    world.stack = replace(world.stack, nodes=left)
    world.managed.discard(node)
    world.guaranteed.clear()
    world.resources = Allocations(world.stack, world.resources._store)
    world.scheduler = world.anew()


def test_a_node_that_is_taken_out_takes_nothing_else_from_its_jobs(world):
    world.chance.uniform = lambda low, high: 1.0 if high == 2.0 else 99.0  # type: ignore[method-assign]
    submit(world, "wide", hosts=("n1", "n2"), guaranteed_w=300.0, limit_s=60.0)
    until(world, lambda: state(world, "wide") == RUNNING)
    submit(world, "beside", hosts=("n3",), guaranteed_w=150.0, limit_s=60.0)
    until(world, lambda: state(world, "beside") == RUNNING)
    without(world, "n2")
    submit(world, "next", hosts=("n1",), limit_s=10.0)
    for _ in range(5):
        world.step()
    assert state(world, "wide") == RUNNING
    assert state(world, "next") == "waiting"  # n1 is in use
    told = {job: (one["nodes"], one["guaranteed_w"]) for job, one in world.guaranteed.items()}
    assert told == {"wide": (["n1"], 300.0), "beside": (["n3"], 150.0)}
    assert "orders" not in world.scheduler.requests.troubles
    assert world.scheduler.allocated_w == 300 + 150 + 3 * SAFE_W
    assert world.order({"order": "CANCEL_JOB", "job": "wide", "user": "ada"})
    until(world, lambda: "next" in world.begun, 5)
    assert "wide" not in json.dumps(world.resources._store.load())


def test_a_guarantee_that_is_refused_does_not_keep_others_from_theirs(world):
    for k in range(3):
        submit(world, f"j{k}", guaranteed_w=150.0, limit_s=60.0)
    until(world, lambda: {state(world, f"j{k}") for k in range(3)} == {RUNNING})
    world.unguaranteed.add("j0")
    world.guaranteed.clear()
    world.clock.now_s += run_guarantees.REPEAT_S
    world.scheduler.turn()
    assert set(world.guaranteed) == {"j1", "j2"}
    assert "no node is called" in world.scheduler.requests.troubles["orders"]
    world.unguaranteed.clear()
    world.scheduler.turn()
    assert set(world.guaranteed) == {"j0", "j1", "j2"}
    assert "orders" not in world.scheduler.requests.troubles


def test_a_job_whose_guarantee_is_refused_is_not_started_and_holds_nothing(world):
    """A node that the scheduler's configuration has and the system manager's has not."""
    world.unguaranteed.add("a")
    submit(world, "a", hosts=("n0",), guaranteed_w=150.0)
    submit(world, "b", hosts=("n0",))
    until(world, lambda: state(world, "b") in OVER, 80)
    assert "a" not in world.begun
    until(world, lambda: state(world, "a") == "waiting", 5)
    reason = world.scheduler.queue.entries["a"].state.reason
    assert "the system manager refuses its guarantee" in reason
    world.unguaranteed.clear()
    until(world, lambda: state(world, "a") in OVER)


def test_under_a_manager_that_only_observes_jobs_run_and_nothing_is_guaranteed(world):
    world.observes = True
    submit(world, "a", guaranteed_w=150.0, limit_s=60.0)
    until(world, lambda: state(world, "a") == RUNNING)
    assert not world.guaranteed
    assert "orders" not in world.scheduler.requests.troubles
    world.observes = False
    until(world, lambda: "a" in world.guaranteed, 5)


def test_a_clock_that_is_set_forward_ends_no_job(world):
    world.chance.uniform = lambda low, high: 1.0 if high == 2.0 else 99.0  # type: ignore[method-assign]
    submit(world, "a", limit_s=30.0)
    until(world, lambda: state(world, "a") == RUNNING)
    world.clock.set_s = 86400.0
    for _ in range(25):
        world.step()
    assert state(world, "a") == RUNNING
    until(world, lambda: state(world, "a") in OVER, 15)  # its time, and what its keeper is given besides
    assert "time limit was reached: 30.0 s" in world.scheduler.queue.entries["a"].state.reason


def test_a_clock_that_is_set_back_charges_from_there(world):
    world.chance.uniform = lambda low, high: 1.0  # type: ignore[method-assign]
    submit(world, "a", limit_s=0.0, demand_w=100.0)
    until(world, lambda: state(world, "a") == RUNNING)
    world.clock.set_s = -86400.0
    world.kill()  # and what was kept is of the future
    assert world.scheduler.queue.usage.at_s <= world.clock.time()
    until(world, lambda: state(world, "a") in OVER, 100)
    until(world, lambda: not world.runs, 3)
    assert world.scheduler.queue.usage.had["ada"][0] > 15


def test_what_was_given_to_a_job_that_waits_is_given_back(world):
    submit(world, "big", nodes=6)
    assert world.order({"order": "HOLD_JOB", "job": "big", "user": "ada"})
    spec = to_plain(Spec("big", nodes=6))
    world.resources.order({"order": "ALLOCATE", "job": "big", "spec": spec})
    submit(world, "a")
    until(world, lambda: state(world, "a") in OVER, 60)
    assert state(world, "big") == "held"


def test_a_full_disk_refuses_orders_and_begins_nothing(world):
    submit(world, "a")
    world.disk.full = True
    with pytest.raises(Refused) as no:
        world.scheduler.order(
            {"order": "SUBMIT_JOB", "spec": to_plain(Spec("b", ("true",), "ada")), "job": "", "user": ""}
        )
    assert no.value.number == jobs.NUMBERS["cannot_keep"]
    with pytest.raises(Refused):
        world.scheduler.order({"order": "CANCEL_JOB", "spec": to_plain(Spec("")), "job": "a", "user": "ada"})
    for _ in range(5):
        world.step()
    assert not world.begun
    assert "disk" in world.scheduler.requests.troubles
    assert set(world.scheduler.queue.entries) == {"a"}
    world.disk.full = False
    until(world, lambda: state(world, "a") in OVER)
    assert "disk" not in world.scheduler.requests.troubles


def test_what_is_shown_has_no_environment(world):
    submit(world, "a", environment=("SECRET=1",))
    for ask in ("GET_JOB", "GET_QUEUE"):
        answer = world.scheduler.query({"ask": ask, "job": "a", "user": "", "queue": "", "over": False})
        assert "SECRET" not in json.dumps(answer)
    assert world.scheduler.queue.entries["a"].spec.environment == ("SECRET=1",)
    queues = world.scheduler.query({"ask": "GET_QUEUES"})["queues"]
    assert [(one["name"], one["is_default"], one["waiting"]) for one in queues] == [
        ("low", True, 1),
        ("high", False, 0),
    ]


def test_what_is_over_beyond_its_bound_is_forgotten_on_the_disk_too_and_counted(
    world, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sonde.power.jobs.queue.OVER", Bounds(8, 100, 1 << 30, 1 << 30))
    world.kill()
    for k in range(12):
        submit(world, f"j{k}")
        assert world.order({"order": "CANCEL_JOB", "job": f"j{k}", "user": "ada"})
        world.clock.now_s += 1
    listed = world.scheduler.query({"ask": "GET_QUEUE", "user": "", "queue": "", "over": True})
    assert listed["forgotten"] == 4
    stored = [name for name in world.disk.rows if name != USAGE]
    assert [one["spec"]["job"] for one in listed["jobs"]] == stored == [f"j{k}" for k in range(4, 12)]
    events = [json.loads(event) for event in world.scheduler.turn()]
    assert [(one["jobs"], one["user"], one["total"]) for one in events if one["event"] == "forgotten"] == [
        (2, "ada", 2),
        (2, "ada", 4),
    ]
    assert set(world.scheduler._stored._states) == set(world.scheduler.queue.entries)


def test_what_was_forgotten_and_could_not_be_stored_is_forgotten_later(
    world, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sonde.power.jobs.queue.OVER", Bounds(1, 100, 1 << 30, 1 << 30))
    world.kill()
    for name in ("a", "b"):
        submit(world, name)
    assert world.order({"order": "CANCEL_JOB", "job": "a", "user": "ada"})
    world.disk.full = True
    assert world.order({"order": "CANCEL_JOB", "job": "b", "user": "ada"}) is None
    assert (set(world.scheduler.queue.entries), world.scheduler.queue.forgotten) == ({"a", "b"}, 0)
    assert state(world, "b") == "waiting"
    world.disk.full = False
    assert world.order({"order": "CANCEL_JOB", "job": "b", "user": "ada"})
    assert (set(world.scheduler.queue.entries), world.scheduler.queue.forgotten) == ({"b"}, 1)
    assert set(world.disk.rows) - {USAGE} == {"b"}


def test_rows_of_before_are_written_anew_without_what_is_not_needed(world):
    submit(world, "a", environment=("SECRET=1",))
    assert world.order({"order": "CANCEL_JOB", "job": "a", "user": "ada"})
    row = json.loads(world.disk.rows["a"])
    row["state"]["spec"]["environment"] = ["SECRET=1"]
    row["sent"] = {**row["state"]["spec"], "nodes": 1}
    del row["digest"]
    world.disk.rows["a"] = json.dumps(row)
    world.kill()
    submit(world, "b")
    assert "SECRET" not in world.disk.rows["a"]


def test_what_is_removed_gives_its_room_back(tmp_path, monkeypatch: pytest.MonkeyPatch):
    from sonde.power.jobs import run_jobs_store

    monkeypatch.setattr(run_jobs_store, "MAX_FREE", 64)
    monkeypatch.setattr(run_jobs_store, "MAX_JOURNAL_B", 1 << 20)
    with ExitStack() as ends:
        store = run_jobs_store.Store(tmp_path, "job-scheduler")
        ends.callback(store.close)
        for k in range(16):
            store.save({f"j{k}": "x" * (1 << 20)})
        assert store.path.stat().st_size > 8 << 20
        store.save({}, [f"j{k}" for k in range(16)])
        for k in range(20):  # a part is given back at a time
            store.save({"a": k})
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 8 << 20
        assert store.load() == {"a": 19}


def test_the_fence_is_the_store(tmp_path):
    """The real one: what was saved is there for the next, and there is no second one beside it."""
    from sonde.core.errors import DataError
    from sonde.power.jobs.run_jobs_store import Store

    with ExitStack() as ends:
        store = Store(tmp_path / "new", "job-scheduler")
        ends.callback(store.close)
        store.save({"a": {"x": 1}, "b": 2})
        store.save({"a": 3}, ("b",))
        with pytest.raises(EnvironmentFailure) as no:
            Store(tmp_path / "new", "job-scheduler")
        assert no.value.code == "power.already_running"
        assert store.path.stat().st_mode & 0o077 == 0
    again = Store(tmp_path / "new", "job-scheduler")
    assert again.load() == {"a": 3}
    again.close()
    again.path.write_bytes(b"no database" * 100)
    with pytest.raises(DataError) as bad:
        Store(tmp_path / "new", "job-scheduler")
    assert bad.value.code == "power.not_a_store"


@pytest.mark.parametrize(
    "seed", [0, 183, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2, 5, 122))]
)
def test_whatever_is_lost_and_killed_no_job_is_lost_or_started_twice(seed, monkeypatch):
    """World._begin looks at each start: once, on what nobody has, within racks and budget, guaranteed before."""
    world = World(seed, monkeypatch)
    sent: dict[str, Spec] = {}
    accepted: set[str] = set()
    for step in range(700):
        wild = step < 600
        world.kill_at = 0.01 if wild else 0.0
        world.lose = 0.08 if wild else 0.0
        world.refuse = 0.2 if wild else 0.0
        world.disk.full = wild and world.chance.random() < 0.05
        if world.chance.random() < 0.02 and wild:
            world.shed_until = world.clock.now_s + world.chance.uniform(5, 60)
        if wild:
            world.silent = {"n5"} if world.chance.random() < 0.1 else set()
            world.epoch += step % 20 == 0  # a manager that leads anew
            if step % 60 == 0:
                world.guaranteed.clear()  # another one, which was told nothing
        if wild and world.chance.random() < 0.4 and len(sent) < 120:
            spec = Spec(
                f"j{len(sent)}",
                ("true",),
                world.chance.choice(("ada", "bob")),
                queue=world.chance.choice(("low", "high", "")),
                nodes=world.chance.choice((1, 1, 2, 3)),
                cores=world.chance.choice((0, 0, 1, 3)),
                limit_s=world.chance.choice((0.0, 3.0, 15.0)),
                guaranteed_w=world.chance.choice((0.0, 80.0, 150.0, 250.0)),
            )
            sent[spec.job] = spec
        for job, spec in sent.items():
            # Who gets no answer sends it again.
            if job not in accepted and world.order({"order": "SUBMIT_JOB", "spec": to_plain(spec)}):
                accepted.add(job)
        if accepted and world.chance.random() < 0.05:
            job = world.chance.choice(sorted(accepted))
            world.order({"order": "CANCEL_JOB", "job": job, "user": sent[job].user})
        world.step()
        assert accepted <= set(world.scheduler.queue.entries)
        world.in_use()  # raises where two jobs have one thing
    until(world, lambda: all(state(world, job) in OVER for job in sent) and not world.runs, 3000)
    world.step()
    assert len(sent) > 80
    assert len(accepted) == len(sent)
    states = [state(world, job) for job in sent]
    assert states.count("ended") > 30
    for job in sent:
        # What ended has run, once; what never ran was cancelled, or lost nothing.
        assert world.begun.get(job, 0) == (
            1 if state(world, job) in ("ended", "failed") else world.begun.get(job, 0)
        )
    assert not world.held
    assert not world.guaranteed
    assert not world.resources.query({})["allocations"]
    assert world.kills > 10
    assert world.lost > 50
