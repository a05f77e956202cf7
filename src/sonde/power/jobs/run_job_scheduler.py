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
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonde.bus.errors import Refused
from sonde.core.errors import EnvironmentFailure, SondeError, UsageError
from sonde.power.jobs import jobs, proof, run_jobs_bus, run_proof, schedule
from sonde.power.jobs.jobs import HELD, RUNNING, STARTING, STOPPING, WAITING, Run, Spec, to_plain
from sonde.power.jobs.queue import DEFAULT, Entry, Queue, Refusal, Share, as_text, in_use, name_of_node
from sonde.power.jobs.resources import Held, Resources
from sonde.power.jobs.run_jobs_bus import call
from sonde.power.jobs.run_jobs_store import CannotKeep, Store
from sonde.power.jobs.run_resource_manager import empty, held_of
from sonde.power.jobs.schedule import Budget, Candidate, Order, QueueRules, Usage
from sonde.power.stack import run_bus, run_state
from sonde.power.stack.config import Stack, Users
from sonde.power.stack.run_events import line, notify, until_ended
from sonde.power.stack.telemetry import ACTIVE, NAN, known

if TYPE_CHECKING:
    from sonde.bus.client import Bus, Client

NAME = "job-scheduler"
REPEAT_S, COUNTS_S = (
    20.0,
    90.0,
)  # orders to the system manager: how often each is repeated, how long each is valid
LOOK_S, CHARGE_S = 10.0, 60.0
CALL_S = 3.0
# A refused start is tried again after AGAIN_S. The pause doubles up to LONGEST_S. After GIVE_UP_S the job fails, if
# another job was started since the last attempt: then the fault is in this job, and not, for example, a full disk.
AGAIN_S, LONGEST_S, GIVE_UP_S = 10.0, 600.0, 3600.0
GUARANTEE_REFUSED = "the system manager refuses a job's guarantee"
USAGE = "#usage"  # stored next to jobs: no job has such an id
MAX_OVER = 1000  # most jobs that are over in one answer
MAX_USERS_LOGGED = 20  # most events about forgotten jobs at a time; each has the total number
NO_ROOM = "jobs that are over exceeded the storage limit: see docs/reference/power-jobs.md for the limits"


def rules(stack: Stack) -> tuple[QueueRules, ...]:
    queues = tuple(
        QueueRules(
            str(one["name"]),
            int(one["priority"]),
            bool(one["is_default"]),
            tuple(one["users"]),
            tuple(one["groups"]),
            known(one["default_time_s"]),
            known(one["max_time_s"]),
            int(one["max_nodes"]),
            known(one["max_power_w"]),
        )
        for one in stack.jobs.queues
    )
    return queues or (DEFAULT,)


def slurm_answers() -> bool:
    """Whether a Slurm controller answers."""
    if shutil.which("scontrol") is None:
        return False
    with suppress(OSError, subprocess.TimeoutExpired):
        result = subprocess.run(
            ["scontrol", "ping"],
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


def unanswered(error: SondeError) -> bool:
    """Whether a role of jobs gave no answer, as opposed to a refusal."""
    return error.code == "power.no_answer" or not error.code.startswith("power.")


@dataclass
class NotStarted:
    """The latest refused start of a job, and the earlier ones. Times as time.monotonic().

    first_s, at_s: the first refusal, and the latest. others: whether another job was started between the last two
    refusals. looked: whether the job manager was asked since then if it has the job anyway. again_s: the job waits
    until then.
    """

    why: str
    first_s: float
    at_s: float
    pause_s: float = AGAIN_S
    others: bool = False
    looked: bool = False
    again_s: float = math.inf


class Others:
    """The other roles, asked over the bus. If one cannot be asked, a SondeError is raised."""

    def __init__(self, bus: Bus, open_ones: ExitStack, users: Users) -> None:
        self._bus, self._open_ones, self._users = bus, open_ones, users
        self._clients: dict[str, Client] = {}

    def ask(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        """Raises UsageError, EnvironmentFailure."""
        if service not in self._clients:
            self._clients[service] = self._open_ones.enter_context(run_jobs_bus.client(self._bus, service))
        if service in proof.SERVICES:
            body = run_proof.proven(self._users, service, body)
        try:
            return dict(call(self._clients[service], service, body, CALL_S).body)
        except UsageError as no:
            if no.code == "power.not_proven":  # this process is refused; the job has no fault
                raise EnvironmentFailure(no.code, no.what, no.hint) from None
            raise

    def system(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        """Raises Refused, TimedOut, BusError."""
        if service not in self._clients:
            self._clients[service] = self._open_ones.enter_context(run_bus.client(self._bus, service))
        return dict(self._clients[service].call(body, ACTIVE, CALL_S).body)


def stored_queue(rows: dict[str, Any], stack: Stack) -> Queue:
    """The queue from its stored rows, by name. Invalid rows raise errors of any kind."""
    usage = rows.pop(USAGE, None)
    if "had" in rows.get("usage", {}):  # older versions stored it among the jobs' ids
        old = rows.pop("usage")
        usage = usage or old
    usage = usage or {"at_s": 0.0, "had": {}}
    settings = stack.jobs
    queue = Queue(
        rules(stack),
        Order(settings.fairness, settings.age_s, settings.half_life_s, settings.shares),
        Usage(settings.half_life_s, {u: (n, e) for u, (n, e) in usage["had"].items()}, float(usage["at_s"])),
        {"root", run_state.own_user()},
        settings.max_waiting,
        settings.grace_s,
        {name: Entry.of(row) for name, row in rows.items()},
        max_waiting_user=settings.max_waiting_user,
    )
    # Rows of older versions hold more than is stored today.
    queue.changed = {job for job, one in queue.entries.items() if as_text(one) != rows[job]}
    return queue


class Scheduler:
    """One queue, its store, and the state of the other roles. Requests come in threads; one thread calls turn()."""

    def __init__(self, stack: Stack, store: Store, others: Others) -> None:
        self.stack, self._store, self._others = stack, store, others
        self.mutex = threading.RLock()
        self.wake = threading.Event()
        with store.decoding():
            self.queue = stored_queue(store.load(), stack)
            self.queue.set_back(time.time_ns())
        self._empty = empty(stack)
        self._cores = {node.name: node.cores for node in stack.nodes}
        self._names_of_nodes = {name_of_node(node.name) for node in stack.nodes}
        self._budget = Budget(NAN)
        self._observes = False
        self._usable: set[str] = set()
        self._at_least: dict[str, float] = {}
        self._committed_w = self._guaranteed_w = NAN
        self._manager = ""
        self._deferred: set[str] = set()
        self._known_runs: set[str] = set()
        self._running: dict[str, float] = {}  # since when each was seen to run, as time.monotonic()
        self._not_started: dict[str, NotStarted] = {}
        self._accepted_s = -math.inf  # when the job manager last accepted a start
        self._managed: set[str] | None = None  # nodes that the system manager has; None: unknown
        self._guaranteed: set[str] = set()  # names of shares that the system manager has
        self._shares: dict[str, tuple[Share | None, float]] = {}  # as last confirmed; None: unknown
        self._looked_s = self._charged_s = -math.inf
        self._states: dict[str, str] = {job: one.state.state for job, one in self.queue.entries.items()}
        self._events: list[bytes] = []
        self.troubles: dict[str, str] = {}
        """Current troubles, by subject."""

    # ---- requests, in threads of the bus

    def order(self, body: dict[str, Any]) -> dict[str, Any]:
        run_jobs_bus.check_proof(self.stack.users, jobs.SCHEDULER_SET, body)
        spec, job, user = Spec.of(body["spec"]), str(body["job"]), str(body["user"])
        groups = groups_of(spec.user) if body["order"] == "SUBMIT_JOB" else []
        now = time.time_ns()
        with self.mutex:
            before = self.queue.snapshot()
            try:
                match str(body["order"]):
                    case "SUBMIT_JOB":
                        changed = self.queue.submit(spec, now, groups, self._empty, self._most_w())
                    case "CANCEL_JOB":
                        changed = self.queue.cancel(job, user, now)
                    case "HOLD_JOB":
                        changed = self.queue.hold(job, user)
                    case _:
                        changed = self.queue.release(job, user)
                        if job in self._not_started:
                            self._not_started[job].again_s = -math.inf
                self._keep()
            except Refusal as no:
                raise run_jobs_bus.refused(no.word, no.what) from None
            except CannotKeep as error:
                self.queue.restore(before)
                raise run_jobs_bus.refused("cannot_keep", f"nothing was done: {error}") from None
        self.wake.set()
        return self._answer([_shown(changed)])

    def query(self, body: dict[str, Any]) -> dict[str, Any]:
        with self.mutex:
            entries = list(self.queue.entries.values())
            if body["ask"] == "GET_JOB":
                try:
                    entries = [self.queue.find(str(body["job"]))]
                except Refusal as no:
                    raise run_jobs_bus.refused(no.word, no.what) from None
        # Entries do not change: a request for many jobs delays no other.
        if body["ask"] == "GET_JOB":
            return self._answer([_shown(entries[0])])
        if body["ask"] == "GET_QUEUES":
            return {**self._answer([]), "queues": self._queues(entries)}
        wanted = [
            one
            for one in entries
            if (not body["user"] or one.spec.user == body["user"])
            and (not body["queue"] or one.spec.queue == body["queue"])
        ]
        over = [one for one in wanted if one.state.over][-MAX_OVER:] if body["over"] else []
        present = [one for one in wanted if not one.state.over]
        present.sort(key=lambda one: (not one.state.active, -one.state.priority, one.number))
        return self._answer([_shown(one, brief=True) for one in (*over, *present)])

    def _queues(self, entries: list[Entry]) -> list[dict[str, Any]]:
        out = []
        for rule in self.queue.rules:
            those = [one.state for one in entries if one.spec.queue == rule.name]
            out.append(
                {
                    "name": rule.name,
                    "priority": rule.priority,
                    "is_default": rule == self.queue.rules_of(Spec("")),
                    "max_time_s": rule.max_time_s,
                    "max_nodes": rule.max_nodes,
                    "max_power_w": rule.max_power_w,
                    "users": list(rule.users),
                    "groups": list(rule.groups),
                    "waiting": sum(not one.over and not one.active for one in those),
                    "running": sum(one.active for one in those),
                }
            )
        return out

    def _answer(self, shown: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "jobs": shown,
            "budget_w": self._budget.now_w,
            "committed_w": self._committed_w,
            "guaranteed_w": self._guaranteed_w,
            "trouble": "; ".join(list(self.troubles.values()))[:256],
            "forgotten": self.queue.forgotten,
        }

    def _most_w(self) -> float:
        """The highest budget that can ever be available, as far as it is known."""
        known_budgets = [
            w for w in (self.stack.budget_w, self._budget.now_w, self._budget.later_w) if math.isfinite(w)
        ]
        return max(known_budgets, default=math.inf)

    # ---- a turn

    def turn(self) -> list[bytes]:
        """Check running jobs, end what is over, start what may start. Returns events."""
        now_s = time.monotonic()
        with self.mutex:
            busy = bool(self.queue.active() or self.queue.to_clean())
            waits = any(one.state.state == WAITING for one in self.queue.entries.values())
        look = now_s - self._looked_s >= LOOK_S
        if look:
            self._looked_s = now_s
        try:
            known_runs = self._look_at_runs() if busy or waits or look else False
            self._stop()
            self._clean()
            self._charge(now_s)
            if waits or busy or look:
                self._look_at_power()
            self._end_shares()
            self._plan()
            if known_runs:
                self._start()
            self._refresh_shares(now_s)
            self.troubles.pop("disk", None)
        except CannotKeep as error:
            self.troubles["disk"] = f"no job is started while the disk cannot be written: {error}"
        events, self._events = self._events, []
        return events

    def _ask(self, about: str, service: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Ask a role. None: no answer, which is a trouble until it answers. Raises SondeError: it refused."""
        try:
            answer = self._others.ask(service, body)
        except SondeError as error:
            if unanswered(error) and not isinstance(error, UsageError):
                self.troubles[about] = error.what
                return None
            self.troubles.pop(about, None)
            raise
        self.troubles.pop(about, None)
        return answer

    def _try(self, about: str, service: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Ask a role. None: no answer or a refusal, which is a trouble until the role accepts. Raises UsageError."""
        try:
            return self._ask(about, service, body)
        except UsageError:
            raise
        except SondeError as error:
            self.troubles[about] = error.what
            return None

    def _note(self, about: str, what: str) -> None:
        """Set or clear a trouble. what: the trouble; "": none."""
        if what:
            self.troubles[about] = what
        else:
            self.troubles.pop(about, None)

    def _look_at_runs(self) -> bool:
        answer = self._try("job-manager", jobs.JOB_GET, {"ask": "GET_RUN"})
        if answer is None:
            return False
        runs = {str(run["job"]): Run.of(run) for run in answer["runs"]}
        self._known_runs = set(runs)
        strays = []
        with self.mutex:
            now, now_s = time.time_ns(), time.monotonic()
            self.queue.set_back(now, now_s - self._charged_s + CHARGE_S)
            for job, run in runs.items():
                entry = self.queue.take_run(run, now)
                late = entry is not None and entry.state.state in (
                    WAITING,
                    HELD,
                )  # its resources went to other jobs
                if late or (entry is not None and entry.state.over and not (run.over and not entry.clean)):
                    # It did not receive the order to stop or to forget the job.
                    strays.append((job, run.over))
            for entry in self.queue.active():
                if entry.asked and entry.state.state != STARTING and entry.state.job not in runs:
                    self.queue.lost(entry.state.job, now)
            self._running = {
                one.state.job: self._running.get(one.state.job, now_s)
                for one in self.queue.active()
                if one.state.state == RUNNING
            }
            self.queue.over_time(now, {job: now_s - since for job, since in self._running.items()})
            self._take_back(now, now_s)
            self._keep()
        for job, over in strays:
            with suppress(EnvironmentFailure):
                self._order_job(job, "FORGET_JOB" if over else "STOP_JOB")
        return True

    def _take_back(self, now_ns: int, now_s: float) -> None:
        """Put jobs back whose start was refused and that the job manager does not have: they wait again, and their
        resources are free for others meanwhile.
        """
        for job, no in list(self._not_started.items()):
            one = self.queue.entries.get(job)
            if one is None or one.state.state not in (STARTING, WAITING):
                del self._not_started[job]
            elif one.state.state == STARTING and not no.looked and job not in self._known_runs:
                no.looked = True
                if no.others and now_s - no.first_s >= GIVE_UP_S:
                    self.queue.take_run(Run(job, jobs.FAILED, no.why[:1024]), now_ns)
                    del self._not_started[job]
                else:
                    no.again_s = now_s + no.pause_s
                    self.queue.refused(job, f"the start is tried again: {no.why}")
        self._note("starts", next((f"{job}: {no.why}" for job, no in self._not_started.items()), ""))

    def _order_job(self, job: str, order: str, **more: Any) -> bool:
        """Order something of the job manager. False: no answer. "Unknown job" is an answer. Raises EnvironmentFailure:
        it refused.
        """
        try:
            return self._ask("job-manager", jobs.JOB_SET, {"order": order, "job": job, **more}) is not None
        except UsageError:
            return True

    def _stop(self) -> None:
        with self.mutex:
            those = [one for one in self.queue.active() if one.state.state == STOPPING]
        refused = ""
        for one in those:
            try:
                if not self._order_job(
                    one.state.job, "STOP_JOB", grace_s=one.spec.grace_s, reason=one.state.reason[:256]
                ):
                    return
            except EnvironmentFailure as no:
                refused = refused or f"the job manager refuses to stop {one.state.job}: {no.what}"
        self._note("stops", refused)

    def _clean(self) -> None:
        with self.mutex:
            those = self.queue.to_clean()
        refused = ""
        for one in those:
            job = one.state.job
            try:
                with suppress(UsageError):  # it has nothing on these nodes
                    if self._ask("resources", jobs.RESOURCES_SET, {"order": "RELEASE", "job": job}) is None:
                        return
                if one.asked and not self._order_job(job, "FORGET_JOB"):
                    return
            except EnvironmentFailure as no:
                refused = refused or f"the resources of {job} could not be released: {no.what}"
                continue
            with self.mutex:
                self.queue.cleaned(job)
                self._keep()
        self._note("ends", refused)

    def _charge(self, now_s: float) -> None:
        over = False
        with self.mutex:
            over = any(one.state.over and not one.charged for one in self.queue.entries.values())
            if not over and now_s - self._charged_s < CHARGE_S:
                return
            # The first time the length of the gap is unknown: no scheduler ran to measure it.
            most_s = now_s - self._charged_s + CHARGE_S
            self._charged_s = now_s
            now = time.time_ns()
            self.queue.charge(now, self._cores, most_s)
            self.queue.forget(now - int(self.stack.jobs.keep_s * 1e9))
            self._keep()

    def _look_at_power(self) -> None:
        try:
            power = self._others.system("SystemPowerManager_get", {"ask": "GET_POWER"})
        except SondeError as error:
            self._budget = Budget(NAN)
            self._usable = set()
            self.troubles["power"] = f"the system manager does not answer: {error.what}"
            return
        self.troubles.pop("power", None)
        cluster = power["cluster"]
        restored, left = known(cluster["restored_w"]), known(cluster["shed_left_s"])
        later = time.time() + left if math.isfinite(restored) and left > 0 else math.inf
        self._budget = Budget(known(cluster["budget_w"]), restored, later)
        self._committed_w = known(cluster["committed_w"])
        manager = f"{cluster['manager']}#{cluster['epoch']}#{cluster['state']}"
        if manager != self._manager:
            self._manager = manager
            self._shares.clear()  # a new leader got no shares yet
        self._observes = cluster["state"] == "observing"
        self._managed = {str(node["node"]) for node in power["nodes"]}
        # A manager that only observes does not accept END_JOB either.
        self._guaranteed = set() if self._observes else {str(node["job"]) for node in power["nodes"]} - {""}
        self._usable = {str(node["node"]) for node in power["nodes"] if node["heard"]}
        # A node that draws more than its lease, or is not heard, counts at the most that it may draw.
        self._at_least = {
            str(node["node"]): known(node["committed_w"])
            for node in power["nodes"]
            if (node["trouble"] or not node["heard"]) and math.isfinite(known(node["committed_w"]))
        }

    def _plan(self) -> None:
        """Plan what starts next; afterwards it is `starting`, and on disk."""
        with self.mutex:
            waiting = self._candidates(time.time_ns())
            starting = {one.state.job for one in self.queue.active() if one.state.state == STARTING}
        self._deferred = starting  # until the budget was checked
        # the resources of refused starts are given back below
        if not waiting and not starting and not self._not_started:
            return
        lacking = self.troubles.get("power", "") or self.troubles.get("job-manager", "")
        answer = None if lacking else self._try("resources", jobs.RESOURCES_GET, {"ask": "GET_RESOURCES"})
        scores = {one.spec.job: one.score for one in waiting}
        if answer is None:
            why = lacking or self.troubles.get("resources", "")
            with self.mutex:
                self.queue.set_reasons({one.spec.job: f"waits: {why}" for one in waiting}, {}, scores)
            return
        held = self._without_strays([held_of(one) for one in answer["allocations"]])
        with self.mutex:
            now = time.time_ns()
            used = empty(self.stack, self._at_least)
            for job in in_use(used, self.queue.active(), held):
                if job in self.queue.entries:
                    self.queue.back(job, "waits: its nodes went to another job, or are gone")
            self._deferred = self._beyond(used)
            self._guaranteed_w = used.total_w
            # The resources of these jobs must still be given back, because the last attempt got no answer.
            waiting = [one for one in self._candidates(now) if one.spec.job not in used.held]
            plan = schedule.plan(waiting, self.queue.busy(now), used, self._budget, now / 1e9, self._usable)
            scores = {one.spec.job: one.score for one in waiting}
            self.queue.set_reasons(plan.reasons, plan.expected_s, scores)
            before = self.queue.snapshot()
            for start in plan.starts:
                self.queue.begin(start.job, start.parts, scores[start.job])
            try:
                self._keep()
            except CannotKeep:
                self.queue.restore(before)
                raise

    def _candidates(self, now_ns: int) -> list[Candidate]:
        """Jobs that may start now. A job that was refused lately delays no other."""
        now_s = time.monotonic()
        late = {job for job, no in self._not_started.items() if no.again_s > now_s}
        late |= self._known_runs  # a start that arrived after the job was put back: it ends first
        return [one for one in self.queue.waiting(now_ns) if one.spec.job not in late]

    def _beyond(self, used: Resources) -> set[str]:
        """Handle jobs that were about to start before the budget fell: the last ones wait again. A job whose start
        order the job manager may have keeps its resources, and the order is not repeated until the job fits.
        """
        deferred = []
        for one in reversed(self.queue.active()):
            job, before = one.state.job, used.total_w
            if one.state.state != STARTING or job in self._known_runs or not before > self._budget.now_w:
                continue
            had = used.held.get(job)  # allocated by the resource manager, whose answer may have been lost
            if had is None:
                continue
            used.give_back(job)
            if used.total_w < before and not one.asked:
                self.queue.back(job, "waits: the budget has fallen")
            elif used.total_w < before:
                deferred.append(had)
            else:
                used.take(job, had.parts, had.guaranteed_w)
        for had in deferred:
            used.take(had.job, had.parts, had.guaranteed_w)
        return {had.job for had in deferred}

    def _without_strays(self, held: list[Held]) -> list[Held]:
        """The allocations, without those of jobs of this queue that must have none: these are given back."""
        remaining = []
        for one in held:
            with self.mutex:
                known_as = self.queue.entries.get(one.job)
            if known_as is not None and not known_as.state.active:
                with suppress(UsageError):
                    if (
                        self._try("resources", jobs.RESOURCES_SET, {"order": "RELEASE", "job": one.job})
                        is None
                    ):
                        remaining.append(one)
                continue
            remaining.append(one)
        return remaining

    def _start(self) -> None:
        with self.mutex:
            those = [one for one in self.queue.active() if one.state.state == STARTING]
        for one in sorted(those, key=lambda one: (-one.state.priority, one.number)):
            job = one.state.job
            if job in self._deferred or job in self._known_runs:
                continue
            if not one.asked and not self._allocate(one):
                continue
            with self.mutex:
                one = self.queue.entries[job]
                if one.state.state != STARTING or not one.asked:
                    continue
            try:
                if not self._send_shares(one):
                    continue
            except Refused as no:
                self._refuses(job, f"the system manager refuses its guarantee: {no.what}")
                continue
            body = {
                "order": "START_JOB",
                "job": job,
                "spec": to_plain(one.spec),
                "parts": to_plain(one.state.parts),
                "target": to_plain(one.spec.target),
                "grace_s": one.spec.grace_s,
            }
            try:
                answer = self._ask("job-manager", jobs.JOB_SET, body)
            except UsageError as no:
                runs = [Run(job, jobs.FAILED, f"the job manager refuses it: {no.what}"[:1024])]
            except SondeError as no:
                self._refuses(job, f"the job manager refuses to start it: {no.what}")
                continue
            else:
                if answer is None:
                    return
                self._accepted_s = time.monotonic()
                runs = [Run.of(run) for run in answer["runs"] if run["job"] == job]
            with self.mutex:
                for run in runs:
                    self.queue.take_run(run, time.time_ns())
                self._keep()

    def _refuses(self, job: str, why: str) -> None:
        """Record a refused start. The job manager may have the job anyway: this is checked before others get its
        resources.
        """
        before, now_s = self._not_started.get(job), time.monotonic()
        if before is None:
            self._not_started[job] = NotStarted(why, now_s, now_s)
            return
        pause_s, others = min(2 * before.pause_s, LONGEST_S), self._accepted_s > before.at_s
        self._not_started[job] = NotStarted(why, before.first_s, now_s, pause_s, others)

    def _allocate(self, one: Entry) -> bool:
        """Have the resource manager allocate what was planned. True: it did, and that is on disk."""
        job = one.state.job
        hosts = tuple(part.node for part in one.state.parts)
        spec = to_plain(replace(one.spec, hosts=hosts, command=(), environment=()))
        try:
            answer = self._others.ask(jobs.RESOURCES_SET, {"order": "ALLOCATE", "job": job, "spec": spec})
        except EnvironmentFailure as error:
            if error.code == "power.no_room":
                with self.mutex:
                    self.queue.back(job, f"waits: {error.what}")
                    self._keep()
            else:
                self.troubles["resources"] = error.what
            return False
        except SondeError as error:
            with self.mutex:
                self.queue.back(job, f"waits: {error.what}")
                self._keep()
            return False
        parts = held_of(answer["allocations"][0]).parts
        with self.mutex:
            if self.queue.entries[job].state.state != STARTING:
                return False  # cancelled meanwhile: the allocation is given back
            self.queue.given(job, parts)
            self._keep()
        return True

    # ---- shares at the system manager

    def _wanted(self) -> dict[str, Share]:
        """The shares that the system manager should have. Only nodes that exist: it refuses a job's whole order for one
        that does not.
        """
        with self.mutex:
            shares = self.queue.shares()
        out = {}
        for name, share in shares.items():
            nodes = tuple(node for node in share.nodes if self._is_there(node))
            if nodes:
                out[name] = replace(share, nodes=nodes)
        return out

    def _is_there(self, node: str) -> bool:
        return node in self._cores and (self._managed is None or node in self._managed)

    def _send_shares(self, entry: Entry) -> bool:
        """Have the system manager guarantee a job's power on its nodes, before the job starts. False: no answer.

        Raises
        ------
        Refused.
        """
        nodes = {part.node for part in entry.state.parts}
        gone = next((node for node in sorted(nodes) if not self._is_there(node)), "")
        if gone:
            raise Refused("bus.not_found", f"no node is called '{gone}'")
        for name, share in self._wanted().items():
            if nodes & set(share.nodes):
                sent = self._shares.get(name)
                if sent is not None and sent[0] == share:
                    continue
                try:
                    self._send_share(name, share)
                except Refused:
                    raise
                except SondeError as error:
                    self.troubles["orders"] = f"{GUARANTEE_REFUSED}: {error.what}"
                    return False
        return True

    def _send_share(self, name: str, share: Share) -> None:
        """Raises SondeError: no answer; Refused: the system manager refused."""
        body = {
            "order": "SET_JOB",
            "job": name,
            "user": share.user,
            "nodes": list(share.nodes),
            "guaranteed_w": share.guaranteed_w,
            "demand_w": share.demand_w,
            "weight": share.weight,
            "for_s": COUNTS_S,
        }
        # until the answer comes, its state at the system manager is unknown
        self._shares[name] = None, -math.inf
        if (
            not self._observes
        ):  # a manager that only observes accepts no guarantee either, and jobs must run meanwhile
            self._others.system("SystemPowerManager_set", body)
        self._shares[name] = share, time.monotonic()

    def _end_shares(self) -> None:
        """End the guarantees of jobs that are over. The state of the system manager counts, not this process's memory
        of what it sent: an earlier scheduler or manager may have been killed between a job's end and its END_JOB.
        """
        wanted = self._wanted()
        with self.mutex:
            own = {
                name
                for name in self._guaranteed
                if name in self.queue.entries or name in self._names_of_nodes
            }
        for name in sorted((own | self._shares.keys()) - wanted.keys()):
            self._shares[name] = None, -math.inf
            try:
                self._others.system("SystemPowerManager_set", {"order": "END_JOB", "job": name})
            except Refused:
                pass  # it does not know the job, which is the wanted state
            except SondeError:
                return
            del self._shares[name]
            self._guaranteed.discard(name)

    def _refresh_shares(self, now_s: float) -> None:
        """Send the changed shares of running jobs, and repeat those that would lapse."""
        refused = ""
        for name, share in self._wanted().items():
            sent = self._shares.get(name)
            if sent is not None and sent[0] == share and now_s - sent[1] < REPEAT_S:
                continue
            try:
                self._send_share(name, share)
            except Refused as no:
                # The guarantees of the other jobs must not lapse because of this one.
                refused = refused or f"{GUARANTEE_REFUSED}: {no.what}"
            except SondeError as error:
                self.troubles["orders"] = f"{GUARANTEE_REFUSED}: {error.what}"
                return
        self._note("orders", refused)

    # ---- storage

    def _keep(self) -> None:
        """Store what changed. Raises CannotKeep: all of it must still be stored."""
        queue = self.queue
        if not queue.changed and not queue.gone:
            return
        forgotten = queue.forget_surplus()
        rows: dict[str, Any] = {job: as_text(queue.entries[job]) for job in queue.changed}
        rows[USAGE] = {"at_s": queue.usage.at_s, "had": queue.usage.had}
        self._store.save(rows, queue.gone)
        for job in sorted(queue.changed, key=lambda job: queue.entries[job].number):
            state = queue.entries[job].state
            if self._states.get(job) != state.state:
                self._states[job] = state.state
                self._events.append(
                    line("job", job=job, state=state.state, user=state.spec.user, why=state.reason)
                )
        for job in queue.gone:
            self._states.pop(job, None)
        queue.changed.clear()
        queue.gone.clear()
        for user, jobs_of_user in Counter(one.spec.user for one in forgotten).most_common(MAX_USERS_LOGGED):
            self._events.append(
                line("forgotten", jobs=jobs_of_user, user=user, why=NO_ROOM, total=queue.forgotten)
            )


def _shown(entry: Entry, brief: bool = False) -> dict[str, Any]:
    """An entry as others see it: without its environment, which is private to its user. brief: for a list
    of many jobs.
    """
    spec = entry.spec.brief if brief else replace(entry.spec, environment=())
    return dict(to_plain(replace(entry.state, spec=spec)))


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
        scheduler = Scheduler(stack, store, Others(bus, open_ones, stack.users))
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
        said_trouble: dict[str, str] = {}
        while not ending.asked:
            yield from scheduler.turn()
            for about, what in scheduler.troubles.items():
                if about not in said_trouble:
                    yield line("trouble", about=about, what=what)
            for about in said_trouble.keys() - scheduler.troubles.keys():
                yield line("mended", about=about)
            said_trouble = dict(scheduler.troubles)
            scheduler.wake.wait(stack.jobs.period_s)
            scheduler.wake.clear()
        notify("STOPPING=1")
        yield line("end", role=NAME, why=ending.why)


def _beside_slurm(stack: Stack, called: str, open_ones: ExitStack, ending: Any) -> Iterator[bytes]:
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
