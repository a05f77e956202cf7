"""The workflow engine: submits the jobs of workflows to the job scheduler, each when the jobs it waits for are over.

Each workflow has a file with its text and one line for each step taken. Each line is on disk before its step is taken
(workflow_run.py). So after a crash at any instant the engine goes on where it was.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonde.core.errors import SondeError, UsageError
from sonde.core.owned_files import write_whole
from sonde.power.jobs import jobs, run_jobs_bus, run_proof
from sonde.power.jobs.jobs import JobState, Run
from sonde.power.jobs.retention import Bounds, Tally
from sonde.power.stack import run_bus, run_state
from sonde.power.stack.config import Stack, Users
from sonde.power.stack.run_events import Ending, line, notify, until_ended
from sonde.power.stack.telemetry import NAN
from sonde.power.workflows import run_workflow_bus, workflow
from sonde.power.workflows.workflow import Step
from sonde.power.workflows.workflow_run import Conductor, Course, Declined, JobReport, Note, Unanswered

if TYPE_CHECKING:
    from sonde.bus.client import Bus, Client

NAME = "workflow-engine"
RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}", re.ASCII)
CALL_S = 3.0
KEEP_S = 30 * 86400.0  # how long a workflow's file is stored after its end
SWEEP_S = 600.0
COMPACT_B = 4 << 20  # size of a workflow's file from which attempts that are over are summarised
GOING = Bounds(of_user=200, of_all=1_000, size_of_user=128 << 20, size_of_all=512 << 20)
"""Bounds for workflows that are not over. Beyond them no more are accepted."""
OVER = Bounds(of_user=1_000, of_all=4_000, size_of_user=64 << 20, size_of_all=256 << 20)
"""Bounds for workflows that are over. Beyond them the oldest are forgotten before KEEP_S has passed."""
TURN_S = (
    1.0  # of a workflow in a look: the others, and who ends this, do not wait for all that one has to hand in
)


class Journal:
    """A workflow's file. Only its owner may read it: it holds the secret part of its jobs' names. head: its first line.

    Raises
    ------
    OSError. ValueError: not a workflow's file.
    """

    def __init__(self, path: Path, head: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.compact_at_b = COMPACT_B
        if head is not None:
            self._write([head])
        else:
            path.chmod(0o600)  # older versions wrote the file without a secret
        data = path.read_bytes()
        self.length = data.rfind(b"\n") + 1  # an incomplete last line is ignored
        try:
            lines = [json.loads(one) for one in data[: self.length].splitlines()]
        except RecursionError:
            raise ValueError("a line is nested too deep") from None
        if not all(isinstance(one, dict) for one in lines):
            raise ValueError("a line is no object")
        if not lines or lines[0].get("what") != "workflow":
            raise ValueError("its first line does not describe a workflow")
        self.head: dict[str, Any] = lines[0]
        self.notes: list[Note] = lines[1:]

    def compact(self, notes: Sequence[Note]) -> None:
        """Replace all written notes by these. Raises OSError: the file is unchanged."""
        self.length = self._write([self.head, *notes])
        self.compact_at_b = max(COMPACT_B, 4 * self.length)

    def _write(self, lines: Sequence[Mapping[str, Any]]) -> int:
        data = b"".join(json.dumps(one).encode() + b"\n" for one in lines)
        write_whole(self.path, data, 0o600, sync=True)
        self._sync_folder()
        return len(data)

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def note(self, note: Note) -> None:
        """Append a note. Raises OSError: it was not stored."""
        text = json.dumps(note).encode() + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(file, self.length)
            if os.pwrite(file, text, self.length) < len(text):
                raise OSError(28, "no space left on the device", str(self.path))
            os.fsync(file)
        finally:
            os.close(file)
        self.length += len(text)


class Scheduler:
    """The job scheduler over the bus, for the jobs of one user; and the job manager, for their energy."""

    def __init__(self, engine: Engine, user: str, folder: str) -> None:
        self._engine, self._user, self._folder = engine, user, folder

    def submit(self, id: str, step: Step) -> None:
        spec = workflow.spec_of(step, id, self._user, self._folder)
        body = {"order": "SUBMIT_JOB", "job": id, "user": self._user, "spec": jobs.to_plain(spec)}
        try:
            self._engine.ask(jobs.SCHEDULER_SET, body)
        except UsageError as no:
            raise Declined(no.what) from None

    def look(self, id: str) -> JobReport | None:
        listed = self._engine.listed.get((id, self._user))
        if listed is not None:
            return JobReport(listed)
        try:
            answer = self._engine.ask(jobs.SCHEDULER_GET, {"ask": "GET_JOB", "job": id})
        except UsageError as no:
            if no.code == "power.no_job":
                return None
            raise Unanswered(no.what) from None
        state = JobState.of(answer["jobs"][0])
        if state.spec.user != self._user:  # another user took the job's name
            return None
        if not state.over:
            return JobReport(state.state)
        seconds = (state.ended_ns - state.started_ns) / 1e9 if state.started_ns else 0.0
        return JobReport(state.state, self._energy(id) if state.started_ns else 0.0, seconds, state.reason)

    def _energy(self, id: str) -> float:
        """The job's energy; NaN if it is unknown, which does not prevent the job from being over."""
        with suppress(Unanswered, SondeError):
            reports = self._engine.ask(jobs.JOB_GET, {"ask": "GET_RUN", "job": id})["runs"]
            run = Run.of(reports[0])
            if run.over:
                return run.energy_j
        return NAN

    def cancel(self, id: str) -> None:
        with suppress(UsageError):  # the job is over by now
            body = {
                "order": "CANCEL_JOB",
                "job": id,
                "user": self._user,
                "reason": "its workflow was cancelled",
            }
            self._engine.ask(jobs.SCHEDULER_SET, body)


class Workflow:
    """One run of a workflow, with its file."""

    def __init__(self, engine: Engine, journal: Journal, already: workflow.Workflow | None = None) -> None:
        head = journal.head
        self.run, self.user, self.path = str(head["run"]), str(head["user"]), str(head["path"])
        self.text, self.began_ns = str(head["text"]), int(head["at_ns"])
        self.journal = journal
        of = already or workflow.read(self.text, self.path)
        self.course = Course(of, self.run, str(head.get("secret", "")))
        for note in journal.notes:
            self.course.take(note)
        journal.notes = []  # their content is in the course
        self.size_b = max(of.size_b, journal.length)
        self.counted_over = False
        folder = str(Path(self.path).parent) if self.path.startswith("/") else "/"
        scheduler = Scheduler(engine, self.user, folder)
        self.conductor = Conductor(self.course, scheduler, journal, engine.mutex)
        self.trouble = ""

    def shown(self, whole: bool) -> dict[str, Any]:
        course = self.course
        listed = [
            {
                "name": name[:512],
                "state": status.state,
                "told": status.reported,
                "attempt": status.attempt,
                "job": course.id(name) if status.attempt else "",
                "energy_j": status.energy_j,
                "seconds": status.seconds,
                "why": status.why[:500],
            }
            for name, status in course.of.items()
        ]
        return {
            "run": self.run,
            "name": course.workflow.name,
            "user": self.user,
            "path": self.path,
            "state": course.state,
            "trouble": self.trouble[:500],
            "began_ns": self.began_ns,
            "energy_j": course.energy_j,
            "total": len(listed),
            "over": sum(status.over for status in course.of.values()),
            "jobs": listed if whole else [],
        }


class Engine:
    """All workflows of a folder. Requests come in threads; one thread calls look(), which holds the mutex for one note
    at a time.

    Raises
    ------
    EnvironmentFailure  power.cannot_keep, power.already_running.
    """

    def __init__(self, state: str, users: Users | None = None) -> None:
        self.state, self._users = Path(state), users or Users()
        self.mutex = threading.RLock()
        self.wake = threading.Event()
        self.listed: dict[tuple[str, str], str] = {}  # jobs that are not over, by id and user: their states
        self.workflows: dict[str, Workflow] = {}
        self._events: list[bytes] = []
        self._clients: dict[str, Client] = {}
        self._bus: Bus | None = None
        self._states: dict[str, dict[str, tuple[str, int]]] = {}
        self._going, self._over = Tally(GOING), Tally(OVER)
        self.forgotten = 0  # workflows that were forgotten early for lack of room
        self._lock = run_state.held(self.state, NAME, 0o700)
        for path in sorted(self.state.glob("*.jsonl")):
            self._load(path)
        self._sweep_s = 0.0
        self._sweep()
        self._forget_surplus()

    def _load(self, path: Path) -> None:
        try:
            journal = Journal(path)
            if self._users.proof != "none" and journal.head.get("proof") != self._users.proof:
                what = f"{path} was submitted without proof of identity: it is not continued"
                self._events.append(line("trouble", code="power.not_proven", what=what))
                return
            one = Workflow(self, journal)
        except (OSError, ValueError, KeyError, TypeError, OverflowError, SondeError) as error:
            what = f"{path} is damaged: {getattr(error, 'what', error)}"
            self._events.append(line("trouble", code="power.damaged", what=what))
            return
        self._add(one)

    def _add(self, one: Workflow) -> None:
        self.workflows[one.run] = one
        self._going.add(one.user, one.size_b)
        self._count(one)

    def _count(self, one: Workflow) -> None:
        """Count a workflow; one that is over counts with its file."""
        if one.course.over and not one.counted_over:
            self._going.add(one.user, -one.size_b, -1)
            one.size_b, one.counted_over = max(one.size_b, one.journal.length), True
            self._over.add(one.user, one.size_b)

    def _forget(self, run: str) -> None:
        """Forget a workflow. Raises OSError: nothing was removed."""
        one = self.workflows[run]
        one.journal.path.unlink(missing_ok=True)
        self._over.add(one.user, -one.size_b, -1)
        del self.workflows[run]
        self._states.pop(run, None)

    def _forget_surplus(self) -> None:
        """Forget workflows that are over and exceed the bounds: the oldest of the user who has most."""
        over = (one for one in self.workflows.values() if one.counted_over)
        oldest = sorted(over, key=lambda one: one.began_ns) if self._over.beyond else []
        gone = self._over.surplus((one.user, one.run, one.size_b) for one in oldest)
        users: Counter[str] = Counter()
        for run in gone:
            user = self.workflows[run].user
            with suppress(OSError):  # the next look tries again
                self._forget(run)
                users[user] += 1
        self.forgotten += users.total()
        why = "workflows that are over exceeded the storage limit: see docs/reference/power-workflow.md for the limits"
        for user, number in users.most_common(20):
            self._events.append(line("forgotten", workflows=number, user=user, why=why, total=self.forgotten))

    def _sweep(self) -> None:
        """From time to time, forget workflows that have been over for long."""
        if time.monotonic() < self._sweep_s:
            return
        self._sweep_s = time.monotonic() + SWEEP_S
        for run, one in list(self.workflows.items()):
            with suppress(OSError):
                if one.counted_over and time.time() - one.journal.path.stat().st_mtime > KEEP_S:
                    self._forget(run)

    def join(self, bus: Bus, open_ones: ExitStack) -> None:
        self._bus = bus
        for service in (jobs.SCHEDULER_GET, jobs.SCHEDULER_SET, jobs.JOB_GET):
            self._clients[service] = open_ones.enter_context(run_jobs_bus.client(bus, service))

    def ask(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        """Raises UsageError; Unanswered."""
        try:
            if service == jobs.SCHEDULER_SET:
                body = run_proof.proven(self._users, service, body)
            return dict(run_jobs_bus.call(self._clients[service], service, body, CALL_S).body)
        except UsageError as no:
            if no.code == "power.not_proven":  # this can be repaired, and is no fault of the job
                raise Unanswered(no.what) from None
            raise
        except SondeError as error:
            raise Unanswered(error.what) from None

    # ---- requests, in threads of the bus

    def query(self, body: dict[str, Any]) -> dict[str, Any]:
        run = str(body["run"])
        with self.mutex:
            if run:
                return {"workflows": [self._find(run).shown(True)]}
            return {"workflows": [one.shown(False) for one in self.workflows.values()]}

    def order(self, body: dict[str, Any]) -> dict[str, Any]:
        run = str(body["run"])
        try:
            run_proof.check(self._users, run_workflow_bus.SET, body)
        except run_proof.NotProven as no:
            raise run_workflow_bus.refused("cannot_prove" if no.cannot else "not_proven", no.what) from None
        with self.mutex:
            known = run in self.workflows
        try:
            # Before the lock is taken: a large workflow takes a while to read.
            begins = body["order"] == "RUN_WORKFLOW" and not known
            of = workflow.read(str(body["text"]), str(body["path"])) if begins else None
        except UsageError as error:
            raise run_workflow_bus.refused("bad_workflow", error.what) from None
        with self.mutex:
            try:
                one = self._begin(body, of) if body["order"] == "RUN_WORKFLOW" else self._cancel(body)
            except UsageError as error:
                raise run_workflow_bus.refused("bad_workflow", error.what) from None
            except OSError as error:
                what = f"{self.state}: {error.strerror}"
                raise run_workflow_bus.refused("cannot_keep", f"nothing was done: {what}") from None
            self.wake.set()
            return {"workflows": [one.shown(len(run) > 0)]}

    def _find(self, run: str) -> Workflow:
        if run not in self.workflows:
            raise run_workflow_bus.refused("no_workflow", f"no workflow is called '{run}'")
        return self.workflows[run]

    def _begin(self, body: dict[str, Any], of: workflow.Workflow | None) -> Workflow:
        run, text, path, user = (str(body[key]) for key in ("run", "text", "path", "user"))
        if not RUN.fullmatch(run):
            raise UsageError(
                "power.bad_run",
                f"'{run}' is not a valid run id; allowed: 1 to 40 letters, digits, '_', '.', '-'",
            )
        if run in self.workflows:
            before = self.workflows[run]
            if (before.text, before.user) != (text, user):
                raise run_workflow_bus.refused(
                    "other_workflow", f"'{run}' is another workflow, or another user's"
                )
            return before
        if not user:
            raise UsageError("power.bad_user", "the request does not name the workflow's user")
        of = of or workflow.read(text, path)  # it was known a moment ago
        self._check_room(user, of.size_b)
        file = self.state / f"{run}.jsonl"
        if file.exists():
            raise run_workflow_bus.refused(
                "other_workflow", f"'{run}' is the id of an earlier workflow, whose file {file} is damaged"
            )
        head = {"what": "workflow", "version": 1, "run": run, "user": user, "path": path, "text": text}
        head |= {"secret": secrets.token_hex(16), "proof": self._users.proof}
        journal = Journal(file, {**head, "at_ns": time.time_ns()})
        one = Workflow(self, journal, of)
        self._add(one)
        self._events.append(
            line("workflow", run=run, name=one.course.workflow.name, user=user, state="running")
        )
        return one

    def _check_room(self, user: str, size: int) -> None:
        """Raises Refused  engine_full: one user cannot fill the engine for all."""
        going = self._going
        for whose, number, most, had, room in (
            (f"{user}'s", going.number_of(user), GOING.of_user, going.size_of(user), GOING.size_of_user),
            ("all users'", going.number, GOING.of_all, going.size, GOING.size_of_all),
        ):
            if number >= most or had + size > room:
                what = f"{number} of {whose} workflows are not over, and take {had >> 20} MiB; allowed: {most}, and "
                raise run_workflow_bus.refused("engine_full", f"{what}{room >> 20} MiB with this one")

    def _cancel(self, body: dict[str, Any]) -> Workflow:
        one = self._find(str(body["run"]))
        user = str(body["user"])
        if user not in (one.user, "root"):
            raise run_workflow_bus.refused(
                "not_allowed", f"the workflow '{one.run}' belongs to {one.user}, not to {user}"
            )
        if one.course.over:
            raise run_workflow_bus.refused("workflow_over", f"'{one.run}' is over: {one.course.state}")
        if one.course.cancelled:  # the same answer whether its jobs have ended by now or not
            raise run_workflow_bus.refused(
                "workflow_over", f"'{one.run}' is being cancelled already: {one.course.cancelled}"
            )
        one.conductor.cancel(f"cancelled by {user}" + (f": {body['reason']}" if body["reason"] else ""))
        return one

    # ---- a look

    def look(self, ended: Callable[[], bool] = lambda: False) -> list[bytes]:
        """Take each workflow as far as it can go in its turn; if work is left, look() wakes itself. Returns events.

        ended: called between any two steps; True: leave the rest.
        """
        with self.mutex:
            self._sweep()
            self._forget_surplus()
            going = [one for one in self.workflows.values() if not one.course.over]
        if going:
            try:
                listed = self.ask(jobs.SCHEDULER_GET, {"ask": "GET_QUEUE"})["jobs"]
                self.listed = {
                    (str(one["spec"]["job"]), str(one["spec"]["user"])): str(one["state"]) for one in listed
                }
                lacking = ""
            except (Unanswered, UsageError) as why:
                lacking = getattr(why, "what", str(why))
            for one in going:
                if ended():
                    break
                self._take_further(one, lacking, ended)
        with self.mutex:
            events, self._events = self._events, []
        return events

    def _take_further(self, one: Workflow, lacking: str, ended: Callable[[], bool]) -> None:
        trouble = lacking
        if not lacking:
            end_s = time.monotonic() + TURN_S
            try:
                if not one.conductor.look(lambda: time.monotonic() < end_s and not ended()):
                    self.wake.set()
                trouble = one.conductor.trouble
                if one.journal.length > one.journal.compact_at_b:
                    with self.mutex:
                        one.journal.compact(one.course.notes())
            except OSError as error:
                trouble = f"{one.journal.path}: {error.strerror}; no job is started until it can be written"
        with self.mutex:
            self._add_events(one, trouble)

    def _add_events(self, one: Workflow, trouble: str) -> None:
        """Add events for what a turn changed."""
        if trouble != one.trouble:
            one.trouble = trouble
            self._events.append(line("trouble" if trouble else "mended", run=one.run, what=trouble))
        states = {name: (status.state, status.attempt) for name, status in one.course.of.items()}
        before = self._states.get(one.run, {})
        for name, (state, attempt) in states.items():
            if before.get(name) != (state, attempt) and state != "waiting":
                why = {"why": one.course.of[name].why} if one.course.of[name].why else {}
                self._events.append(line("job", run=one.run, name=name, state=state, attempt=attempt, **why))
        self._states[one.run] = states
        if one.course.over:
            self._states.pop(one.run, None)
            self._count(one)
            energy = one.course.energy_j
            used = {"energy_j": energy if math.isfinite(energy) else None}
            self._events.append(line("workflow", run=one.run, state=one.course.state, **used))


def _wake_when(ending: Ending, engine: Engine) -> None:
    while not ending.wait(3600):
        pass
    engine.wake.set()


def serve(stack: Stack, name: str = "", with_parent: bool = False) -> Iterator[bytes]:
    """Run until a signal to end; yields events, "ready" first, as JSON lines. Submitted jobs go on without the engine.

    Raises
    ------
    UsageError: a fault in the bus profile. EnvironmentFailure  power.cannot_keep, power.already_running,
    power.cannot_prove, bus.open.
    """
    called = name or NAME
    run_proof.trial(stack.users)
    section = run_bus._power.load_config(stack.path)["workflow_engine"]
    with ExitStack() as open_ones, until_ended(with_parent) as ending:
        engine = Engine(str(section["state"]), stack.users)
        bus = open_ones.enter_context(run_workflow_bus.open_bus(stack, called))
        engine.join(bus, open_ones)
        open_ones.enter_context(run_workflow_bus.serve(bus, run_workflow_bus.GET, engine.query, called))
        threads = run_proof.threads(stack.users)
        open_ones.enter_context(
            run_workflow_bus.serve(bus, run_workflow_bus.SET, engine.order, called, threads)
        )
        running = sum(not one.course.over for one in engine.workflows.values())
        yield line("ready", role=NAME, name=called, state=str(engine.state), running=running)
        notify("READY=1")
        threading.Thread(target=_wake_when, args=(ending, engine), daemon=True).start()
        while not ending.asked:
            yield from engine.look(lambda: ending.asked)
            engine.wake.wait(float(section["look_s"]))
            engine.wake.clear()
        notify("STOPPING=1")
        yield line("end", role=NAME, why=ending.why)
