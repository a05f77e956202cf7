"""How a workflow proceeds: which jobs may be submitted next, and the results. Pure: notes report to it what was done.

A note is a JSON object. Each note is on disk before its consequences are carried out. A course that takes the same
notes again reaches the same state: nothing else is needed after a restart.

    {"what": "submit", "step": "mesh", "attempt": 1}     will be submitted as id_of("…", 3, 1)
    {"what": "accepted", "step": "mesh", "attempt": 1}   the scheduler has it
    {"what": "over", "step": "mesh", "attempt": 1, "state": "ended", "energy_j": 812.0, "seconds": 60.1, "why": ""}
    {"what": "skipped", "step": "solve", "why": "…"}     will never be submitted
    {"what": "cancel", "why": "…"}                       no more jobs are submitted

One note can replace all notes of a step, for any number of attempts. It holds the step's state and the totals of all
attempts:

    {"what": "was", "step": "mesh", "attempt": 3, "state": "waiting", "energy_j": 812.0, "seconds": 60.1, "why": ""}
    {"what": "stopped", "step": "mesh"}                  this step stopped the workflow
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from sonde.power.stack.telemetry import NAN, known
from sonde.power.workflows.workflow import CONTINUE, Step, Workflow

WAITING, SUBMITTING, ACCEPTED = "waiting", "submitting", "accepted"
RUNNING, CANCELLING = "running", "cancelling"
GOING = (RUNNING, CANCELLING)
"""States of a course that is not over."""
ENDED, FAILED, CANCELLED, LOST, SKIPPED = "ended", "failed", "cancelled", "lost", "skipped"
OVER = (ENDED, FAILED, CANCELLED, LOST, SKIPPED)
RUNNING_STATES = (SUBMITTING, ACCEPTED)
STATES = (WAITING, *RUNNING_STATES, *OVER)
Note = Mapping[str, Any]


@dataclass
class Status:
    """State of a step. attempt: 0 before the first. energy_j, seconds: of all attempts, NaN: unknown.

    reported: the scheduler's state of the job, while it has the job.
    """

    state: str = WAITING
    attempt: int = 0
    energy_j: float = NAN
    seconds: float = NAN
    why: str = ""
    reported: str = ""

    @property
    def over(self) -> bool:
        return self.state in OVER


@dataclass(frozen=True)
class JobReport:
    """A scheduler's report on a job. state: one of OVER when the job is over, else any word."""

    state: str
    energy_j: float = NAN
    seconds: float = NAN
    why: str = ""

    @property
    def over(self) -> bool:
        return self.state in OVER


class Declined(Exception):
    """The scheduler refuses a job, for now or for good."""


class Unanswered(Exception):
    """No scheduler answered: it is unknown whether it has the job."""


class Scheduler(Protocol):
    def submit(self, id: str, step: Step) -> None:
        """Submit a job; the same id again is the same job. Raises Declined, Unanswered."""

    def look(self, id: str) -> JobReport | None:
        """None: no such job is known. Raises Unanswered."""

    def cancel(self, id: str) -> None:
        """Raises Unanswered."""


class Journal(Protocol):
    def note(self, note: Note) -> None:
        """Store a note; it is on disk when this returns."""


def id_of(run: str, number: int, attempt: int, secret: str = "") -> str:
    """The id of a step's job at the scheduler: the same before and after a restart.

    secret: of this run. With it nobody can guess a job's id, and take it, before the job is submitted.
    """
    name = f"{run}.{number}.{attempt}"
    if not secret:
        return name
    return f"{name}-{hashlib.blake2s(name.encode(), key=secret.encode(), digest_size=4).hexdigest()}"


class Course:
    """One run of a workflow. Not for several threads."""

    def __init__(self, workflow: Workflow, run: str, secret: str = "") -> None:
        self.workflow, self.run, self._secret = workflow, run, secret
        self.numbers = {name: number for number, name in enumerate(workflow.steps, 1)}
        self.of: dict[str, Status] = {name: Status() for name in workflow.steps}
        self.cancelled = ""  # why
        self.stopped = ""  # by which step

    def take(self, note: Note) -> None:
        """Apply a note. Raises ValueError for a note of another workflow, or for something else."""
        what = note.get("what")
        if what == "cancel":
            self.cancelled = str(note.get("why") or "cancelled")
            return
        status = self.of.get(str(note.get("step")))
        if status is None or what not in ("submit", "accepted", "over", "skipped", "was", "stopped"):
            raise ValueError(f"{note} is not a note of workflow '{self.workflow.name}'")
        if what == "skipped":
            status.state, status.why = SKIPPED, str(note["why"])
            return
        if what == "stopped":
            self.stopped = str(note["step"])
            return
        attempt = int(note["attempt"])
        if what == "was":
            if (state := str(note["state"])) not in STATES:
                raise ValueError(f"'{state}' is not a state of a step")
            energy, seconds = known(note.get("energy_j")), known(note.get("seconds"))
            self.of[str(note["step"])] = Status(state, attempt, energy, seconds, str(note.get("why", "")))
        elif what == "submit":
            status.state, status.attempt, status.reported = SUBMITTING, attempt, ""
        elif attempt == status.attempt and what == "accepted" and status.state == SUBMITTING:
            status.state = ACCEPTED
        elif attempt == status.attempt and what == "over" and not status.over:
            step = self.workflow.steps[str(note["step"])]
            status.energy_j = _more(status.energy_j, known(note.get("energy_j")))
            status.seconds = _more(status.seconds, known(note.get("seconds")))
            status.why = str(note.get("why", ""))
            state = str(note["state"])
            again = state in (FAILED, LOST) and attempt <= step.on_failure.retries
            # From attempt and state alone: a note of the next attempt follows, or none if nothing more is started.
            status.state = WAITING if again else state
            if state != ENDED and not again and step.on_failure.then != CONTINUE:
                self.stopped = self.stopped or step.name

    def notes(self) -> list[dict[str, Any]]:
        """Notes that bring another course of the workflow to the same state: at most one for each step, and
        two more.
        """
        out: list[dict[str, Any]] = [
            {
                "what": "was",
                "step": name,
                "attempt": status.attempt,
                "state": status.state,
                "energy_j": _number(status.energy_j),
                "seconds": _number(status.seconds),
                "why": status.why,
            }
            for name, status in self.of.items()
            if status.attempt or status.state != WAITING
        ]
        out += [{"what": "stopped", "step": self.stopped}] if self.stopped else []
        return out + ([{"what": "cancel", "why": self.cancelled}] if self.cancelled else [])

    def id(self, name: str) -> str:
        return id_of(self.run, self.numbers[name], self.of[name].attempt, self._secret)

    def next(self) -> list[dict[str, Any]]:
        """Notes of what to do now: steps to submit, and steps that will never be submitted."""
        out: list[dict[str, Any]] = []
        gone = {name for name, status in self.of.items() if status.state == SKIPPED}
        over = {name for name, status in self.of.items() if status.over}
        halt = self.halted
        for name, step in self.workflow.steps.items():  # the steps that it waits for come before it
            status = self.of[name]
            if status.state != WAITING:
                continue
            why = halt
            if not why:
                bad = next(
                    (n for n in step.after if n in gone or (n in over and self.of[n].state != ENDED)), ""
                )
                why = f"'{bad}' did not end well" if bad else ""
            if why:
                out.append({"what": "skipped", "step": name, "why": why})
                gone.add(name)
                over.add(name)
            elif all(other in over for other in step.waits_for):
                out.append({"what": "submit", "step": name, "attempt": status.attempt + 1})
        return out

    @property
    def halted(self) -> str:
        """The reason why nothing more is submitted; "" if there is none."""
        return self.cancelled or (f"'{self.stopped}' did not end well" if self.stopped else "")

    @property
    def underway(self) -> list[str]:
        return [name for name, status in self.of.items() if status.state in RUNNING_STATES]

    @property
    def over(self) -> bool:
        return all(status.over for status in self.of.values())

    @property
    def state(self) -> str:
        """running; cancelling: cancelled, but some jobs are not over yet; ended: all jobs ended well; failed;
        cancelled.
        """
        if not self.over:
            return CANCELLING if self.cancelled else RUNNING
        if self.cancelled:
            return CANCELLED
        return ENDED if all(status.state == ENDED for status in self.of.values()) else FAILED

    @property
    def energy_j(self) -> float:
        """Energy of all jobs for which it is known; NaN if it is known for none."""
        energies = [status.energy_j for status in self.of.values() if math.isfinite(status.energy_j)]
        return math.fsum(energies) if energies else NAN

    def counts(self) -> dict[str, int]:
        out: dict[str, int] = {}
        for status in self.of.values():
            out[status.state] = out.get(status.state, 0) + 1
        return out


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _more(before: float, now: float) -> float:
    return now if math.isnan(before) else before if math.isnan(now) else before + now


class Conductor:
    """Advances a course, one look at a time: first the state of its jobs, then what follows from it.

    A job is noted before it is submitted, so that after a restart it is looked up under the same id, and not submitted
    under another.

    mutex: held while the course changes, but not while the scheduler is asked: a thread that holds it sees a consistent
    course, and may cancel it in the middle of a look.
    """

    def __init__(
        self,
        course: Course,
        scheduler: Scheduler,
        journal: Journal,
        mutex: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.course, self.scheduler, self.journal = course, scheduler, journal
        self.mutex = nullcontext() if mutex is None else mutex
        self.trouble = ""  # of the last look
        self._asked_to_end: set[str] = set()

    def look(self, may_go_on: Callable[[], bool] = lambda: True) -> bool:
        """False: work was left, because may_go_on(), which is called before each step, returned False. Raises the
        journal's errors.
        """
        self.trouble = ""
        try:
            for name in self.course.underway:
                if not may_go_on():
                    return False
                self._look_at(name)
            # Skipped steps may allow steps to start that wait for them to be over.
            while notes := self.course.next():
                halted = self.course.halted
                for note in notes:
                    if not may_go_on():
                        return False
                    with self.mutex:
                        if self.course.halted != halted:
                            break  # cancelled or stopped since: the rest is not submitted
                        self._note(note)
                    if note["what"] == "submit":
                        self._hand_in(str(note["step"]))
        except Unanswered as why:
            self.trouble = str(why)
        return True

    def cancel(self, why: str) -> None:
        """Submit nothing more, and end the jobs that the scheduler has."""
        with self.mutex:
            if not self.course.cancelled and not self.course.over:
                self._note({"what": "cancel", "why": why})

    def _look_at(self, name: str) -> None:
        status, id = self.course.of[name], self.course.id(name)
        report = self.scheduler.look(id)
        if report is None:
            if status.state == ACCEPTED:
                self._over(name, JobReport(LOST, why="the scheduler no longer knows this job"))
            elif self.course.cancelled:
                self._over(name, JobReport(CANCELLED, why=self.course.cancelled))
            else:
                self._hand_in(name)
            return
        if status.state == SUBMITTING:
            self._note({"what": "accepted", "step": name, "attempt": status.attempt})
        status.reported = report.state
        if report.over:
            self._over(name, report)
        elif self.course.cancelled and id not in self._asked_to_end:
            self.scheduler.cancel(id)
            self._asked_to_end.add(id)

    def _hand_in(self, name: str) -> None:
        try:
            self.scheduler.submit(self.course.id(name), self.course.workflow.steps[name])
        except Declined as why:
            self._over(name, JobReport(FAILED, why=str(why)))
            return
        self._note({"what": "accepted", "step": name, "attempt": self.course.of[name].attempt})

    def _over(self, name: str, report: JobReport) -> None:
        note = {"what": "over", "step": name, "attempt": self.course.of[name].attempt, "state": report.state}
        note |= {
            "energy_j": _number(report.energy_j),
            "seconds": _number(report.seconds),
            "why": report.why[:500],
        }
        self._note(note)

    def _note(self, note: Note) -> None:
        with self.mutex:
            self.journal.note(note)
            self.course.take(note)
