"""The job scheduler: accepts jobs, and has the job manager start and stop them, within the power budget.

Each planned step is on disk before another role gets its order, and each role treats a repeated order as the same one.
So after a crash at any instant the scheduler goes on where it was.
"""

from __future__ import annotations

import grp
import math
import os
import pwd
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from sonde.core.errors import EnvironmentFailure, SondeError, UsageError
from sonde.core.surroundings import place_of_ranks
from sonde.power.jobs import jobs, planning, run_jobs_bus, run_proof
from sonde.power.jobs.clock import Clock
from sonde.power.jobs.cluster_power import ClusterPower
from sonde.power.jobs.entry import Entry
from sonde.power.jobs.jobs import RUNNING, STARTING, STOPPING, WAITING, Run, Spec
from sonde.power.jobs.listing import jobs_shown, queues_shown, shown
from sonde.power.jobs.refused_starts import RefusedStarts
from sonde.power.jobs.resources import Held
from sonde.power.jobs.run_guarantees import Guarantees
from sonde.power.jobs.run_job_starts import Starter
from sonde.power.jobs.run_jobs_store import CannotKeep, Store
from sonde.power.jobs.run_resource_manager import empty, held_of
from sonde.power.jobs.run_role_requests import Requests, Roles, RolesOnBus
from sonde.power.jobs.run_stored_queue import StoredQueue
from sonde.power.jobs.runs_seen import RunsSeen
from sonde.power.jobs.submission import Refusal
from sonde.power.stack.config import Stack
from sonde.power.stack.run_events import Ending, line, notify, until_ended
from sonde.power.stack.telemetry import NAN

NAME = "job-scheduler"
LOOK_S, CHARGE_S = 10.0, 60.0


def slurm_answers() -> bool:
    """Whether a Slurm controller answers."""
    if shutil.which("scontrol") is None:
        return False
    with suppress(OSError, subprocess.TimeoutExpired):
        result = subprocess.run(
            ["scontrol", "ping"],
            cwd=place_of_ranks(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
        )
        return result.returncode == 0 and " UP" in result.stdout
    return False


def groups_of(user: str) -> list[str]:
    """A user's groups as this host knows them; [] for an unknown user."""
    try:
        known_as = pwd.getpwnam(user)
        numbers = os.getgrouplist(user, known_as.pw_gid)
    except (KeyError, OSError):
        return []
    names = []
    for number in numbers:
        with suppress(KeyError):
            names.append(grp.getgrgid(number).gr_name)
    return names


class Scheduler:
    """Answers requests, in threads of the bus, and takes a turn at a time, in one thread that calls turn()."""

    def __init__(self, stack: Stack, store: Store, roles: Roles, clock: Clock = time) -> None:
        self.stack, self._clock = stack, clock
        self.requests = Requests(roles)
        self.wake = threading.Event()
        self._stored = StoredQueue(stack, store, clock.time_ns())
        self.queue, self._mutex = self._stored.queue, self._stored.mutex
        self._empty = empty(stack)
        self._cores = {node.name: node.cores for node in stack.nodes}
        self._power = ClusterPower()
        self.allocated_w = NAN  # guarantees of all jobs with resources, and safe caps of the other nodes
        self._runs, self.refused = RunsSeen(), RefusedStarts()
        self._guarantees = Guarantees(self._cores, self._stored, self.requests, clock)
        self._starter = Starter(self._stored, self.requests, self._guarantees, self.refused, clock)
        self._deferred: set[str] = set()  # starting jobs whose start must not be ordered now
        self._looked_s = self._charged_s = -math.inf

    # ---- requests, in threads of the bus

    def order(self, body: dict[str, Any]) -> dict[str, Any]:
        run_jobs_bus.check_proof(self.stack.users, jobs.SCHEDULER_SET, body)
        spec = Spec.of(body["spec"])
        groups = groups_of(spec.user) if body["order"] == "SUBMIT_JOB" else []
        with self._mutex:
            before = self.queue.snapshot()
            try:
                changed = self._obey(body, spec, groups)
                self._stored.keep()
            except Refusal as no:
                raise run_jobs_bus.refused(no.word, no.what) from None
            except CannotKeep as error:
                self.queue.restore(before)
                raise run_jobs_bus.refused("cannot_keep", f"nothing was done: {error}") from None
        self.wake.set()
        return self._answer([shown(changed)])

    def _obey(self, body: dict[str, Any], spec: Spec, groups: list[str]) -> Entry:
        """Raises Refusal."""
        job, user, now = str(body["job"]), str(body["user"]), self._clock.time_ns()
        match str(body["order"]):
            case "SUBMIT_JOB":
                return self.queue.submit(spec, now, groups, self._empty, self._max_budget_w())
            case "CANCEL_JOB":
                return self.queue.cancel(job, user, now)
            case "HOLD_JOB":
                return self.queue.hold(job, user)
            case _:
                changed = self.queue.release(job, user)
                self.refused.retry_now(job)
                return changed

    def query(self, body: dict[str, Any]) -> dict[str, Any]:
        with self._mutex:
            entries = list(self.queue.entries.values())
            if body["ask"] == "GET_JOB":
                try:
                    entries = [self.queue.find(str(body["job"]))]
                except Refusal as no:
                    raise run_jobs_bus.refused(no.word, no.what) from None
        # Entries do not change: a request for many jobs delays no other.
        if body["ask"] == "GET_JOB":
            return self._answer([shown(entries[0])])
        if body["ask"] == "GET_QUEUES":
            default = self.queue.rules_of(Spec(""))
            return {**self._answer([]), "queues": queues_shown(self.queue.rules, default, entries)}
        return self._answer(jobs_shown(entries, body))

    def _answer(self, jobs_of_it: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "jobs": jobs_of_it,
            "budget_w": self._power.budget.now_w,
            "committed_w": self._power.committed_w,
            "guaranteed_w": self.allocated_w,
            "trouble": "; ".join(list(self.requests.troubles.values()))[:256],
            "forgotten": self.queue.forgotten,
        }

    def _max_budget_w(self) -> float:
        """The highest budget that can ever be available, as far as it is known."""
        budget = self._power.budget
        known = [w for w in (self.stack.budget_w, budget.now_w, budget.later_w) if math.isfinite(w)]
        return max(known, default=math.inf)

    # ---- a turn

    def turn(self) -> list[bytes]:
        """Check running jobs, end what is over, start what may start. Returns events."""
        now_s = self._clock.monotonic()
        with self._mutex:
            busy = bool(self.queue.active() or self.queue.to_clean())
            waits = any(one.state.state == WAITING for one in self.queue.entries.values())
        look = now_s - self._looked_s >= LOOK_S
        if look:
            self._looked_s = now_s
        try:
            runs_known = self._look_at_runs() if busy or waits or look else False
            self._stop()
            self._clean()
            self._charge(now_s)
            if waits or busy or look:
                self._look_at_power()
            self._guarantees.end_others()
            self._plan()
            if runs_known:
                self._starter.start(self._deferred | self._runs.jobs)
            self._guarantees.refresh(now_s)
            self.requests.note("disk", "")
        except CannotKeep as error:
            self.requests.note("disk", f"no job is started while the disk cannot be written: {error}")
        return self._stored.events()

    def _look_at_runs(self) -> bool:
        answer = self.requests.attempt("job-manager", jobs.JOB_GET, {"ask": "GET_RUN"})
        if answer is None:
            return False
        runs = [Run.of(run) for run in answer["runs"]]
        with self._mutex:
            now, now_s = self._clock.time_ns(), self._clock.monotonic()
            strays = self._runs.take(self.queue, runs, now, now_s, now_s - self._charged_s + CHARGE_S)
            self.refused.put_back(self.queue, self._runs.jobs, now, now_s)
            self.requests.note("starts", self.refused.trouble)
            self._stored.keep()
        for job, over in strays:
            with suppress(EnvironmentFailure):
                self.requests.order_job(job, "FORGET_JOB" if over else "STOP_JOB")
        return True

    def _stop(self) -> None:
        refused = ""
        for one in self._stored.in_state(STOPPING):
            job, grace_s, reason = one.state.job, one.spec.grace_s, one.state.reason[:256]
            try:
                if not self.requests.order_job(job, "STOP_JOB", grace_s=grace_s, reason=reason):
                    return
            except EnvironmentFailure as no:
                refused = refused or f"the job manager refuses to stop {job}: {no.what}"
        self.requests.note("stops", refused)

    def _clean(self) -> None:
        """Have the resources of jobs that are over released, and their runs forgotten."""
        with self._mutex:
            those = self.queue.to_clean()
        refused = ""
        for one in those:
            job = one.state.job
            try:
                if not self.requests.release(job):
                    return
                if one.asked and not self.requests.order_job(job, "FORGET_JOB"):
                    return
            except EnvironmentFailure as no:
                refused = refused or f"the resources of {job} could not be released: {no.what}"
                continue
            with self._mutex:
                self.queue.cleaned(job)
                self._stored.keep()
        self.requests.note("ends", refused)

    def _charge(self, now_s: float) -> None:
        with self._mutex:
            over = any(one.state.over and not one.charged for one in self.queue.entries.values())
            if not over and now_s - self._charged_s < CHARGE_S:
                return
            # The first time the length of the gap is unknown: no scheduler ran to measure it.
            most_s = now_s - self._charged_s + CHARGE_S
            self._charged_s = now_s
            now = self._clock.time_ns()
            self.queue.charge(now, self._cores, most_s)
            self.queue.forget(now - int(self.stack.jobs.keep_s * 1e9))
            self._stored.keep()

    def _look_at_power(self) -> None:
        try:
            answer = self.requests.roles.system("SystemPowerManager_get", {"ask": "GET_POWER"})
        except SondeError as error:
            self._power = self._power.unanswered()
            self.requests.note("power", f"the system manager does not answer: {error.what}")
            return
        self.requests.note("power", "")
        self._power = ClusterPower.of(answer, self._clock.time())
        self._guarantees.see(self._power)

    def _delayed(self) -> set[str]:
        """Jobs that may not start now. If a start arrived after its job was put back, that run ends first."""
        return self.refused.delayed(self._clock.monotonic()) | self._runs.jobs

    def _plan(self) -> None:
        """Plan what starts next; afterwards it is `starting`, and on disk."""
        with self._mutex:
            waiting = planning.candidates(self.queue, self._clock.time_ns(), self._delayed())
            self._deferred = {
                one.state.job for one in self._stored.in_state(STARTING)
            }  # until the budget is checked
        # the resources of refused starts are given back below
        if not waiting and not self._deferred and not self.refused:
            return
        troubles = self.requests.troubles
        lacking = troubles.get("power", "") or troubles.get("job-manager", "")
        ask = {"ask": "GET_RESOURCES"}
        answer = None if lacking else self.requests.attempt("resources", jobs.RESOURCES_GET, ask)
        if answer is None:
            why = f"waits: {lacking or troubles.get('resources', '')}"
            scores = {one.spec.job: one.score for one in waiting}
            with self._mutex:
                self.queue.set_reasons(dict.fromkeys(scores, why), {}, scores)
            return
        held = self._without_strays([held_of(one) for one in answer["allocations"]])
        with self._mutex:
            self._plan_with(held)

    def _plan_with(self, held: list[Held]) -> None:
        """Plan with what is allocated now."""
        now, queue = self._clock.time_ns(), self.queue
        used = empty(self.stack, self._power.at_least_w)
        self._deferred = planning.fill(used, queue, held, self._power.budget.now_w, self._runs.jobs)
        self.allocated_w = used.total_w
        starts = planning.plan_starts(queue, used, self._power, now, self._delayed())
        before = queue.snapshot()
        for start, priority in starts:
            queue.begin(start.job, start.parts, priority)
        try:
            self._stored.keep()
        except CannotKeep:
            queue.restore(before)
            raise

    def _without_strays(self, held: list[Held]) -> list[Held]:
        """The allocations, without those of jobs of this queue that must have none: these are given back."""
        remaining = []
        for one in held:
            with self._mutex:
                known_as = self.queue.entries.get(one.job)
            if known_as is not None and not known_as.state.active:
                with suppress(UsageError):
                    order = {"order": "RELEASE", "job": one.job}
                    if self.requests.attempt("resources", jobs.RESOURCES_SET, order) is None:
                        remaining.append(one)
                continue
            remaining.append(one)
        return remaining


def serve(stack: Stack, name: str = "", with_parent: bool = False) -> Iterator[bytes]:
    """Run until a signal to end; yields events, "ready" first, as JSON lines.

    Raises
    ------
    UsageError: a fault in the bus profile. EnvironmentFailure  power.cannot_keep, power.already_running,
    power.no_slurm, power.cannot_prove, bus.open. DataError  power.not_a_store.
    """
    called = name or NAME
    kind = stack.jobs.kind
    slurm = kind != "built-in" and slurm_answers()
    if kind == "slurm" and not slurm:
        raise EnvironmentFailure(
            "power.no_slurm",
            "[job-scheduler] kind is slurm, but no Slurm controller answers 'scontrol ping'",
            'start it, or set kind = "built-in"',
        )
    with ExitStack() as open_ones, until_ended(with_parent) as ending:
        if slurm:
            yield from _beside_slurm(stack, called, open_ones, ending)
            return
        run_proof.trial(stack.users)
        store = Store(stack.jobs.state, NAME)
        open_ones.callback(store.close)
        bus = open_ones.enter_context(run_jobs_bus.open_bus(stack, called))
        scheduler = Scheduler(stack, store, RolesOnBus(bus, open_ones, stack.users))
        open_ones.enter_context(run_jobs_bus.serve(bus, jobs.SCHEDULER_GET, scheduler.query, called))
        threads = run_proof.threads(stack.users)
        open_ones.enter_context(run_jobs_bus.serve(bus, jobs.SCHEDULER_SET, scheduler.order, called, threads))
        states = [one.state.state for one in scheduler.queue.entries.values()]
        yield line(
            "ready",
            role=NAME,
            name=called,
            kind="built-in",
            state=str(Path(stack.jobs.state)),
            waiting=states.count(WAITING),
            running=states.count(RUNNING),
            guarantees_held=stack.policy == "fair",
        )
        notify("READY=1")
        yield from _turns(scheduler, stack.jobs.period_s, ending)
        notify("STOPPING=1")
        yield line("end", role=NAME, why=ending.why)


def _turns(scheduler: Scheduler, period_s: float, ending: Ending) -> Iterator[bytes]:
    """A turn each period, or when an order came; yields events, also of troubles that begin and end."""
    reported: dict[str, str] = {}
    while not ending.asked:
        yield from scheduler.turn()
        troubles = dict(scheduler.requests.troubles)
        for about, what in troubles.items():
            if about not in reported:
                yield line("trouble", about=about, what=what)
        for about in reported.keys() - troubles.keys():
            yield line("mended", about=about)
        reported = troubles
        scheduler.wake.wait(period_s)
        scheduler.wake.clear()


def _beside_slurm(stack: Stack, called: str, open_ones: ExitStack, ending: Ending) -> Iterator[bytes]:
    """Where Slurm schedules, no jobs are accepted here; each request gets that answer."""

    def refuse(_body: dict[str, Any]) -> dict[str, Any]:
        raise run_jobs_bus.refused("unsupported", "Slurm schedules jobs here: sbatch, squeue, scancel")

    bus = open_ones.enter_context(run_jobs_bus.open_bus(stack, called))
    for service in (jobs.SCHEDULER_GET, jobs.SCHEDULER_SET):
        open_ones.enter_context(run_jobs_bus.serve(bus, service, refuse, called))
    yield line("ready", role=NAME, name=called, kind="slurm")
    notify("READY=1")
    while not ending.wait(3600):
        pass
    notify("STOPPING=1")
    yield line("end", role=NAME, why=ending.why)
