"""How a workflow goes: what may be handed in next, and what came of it. Pure: what it did is told to it as notes.

A note is a JSON object. Each is on disk before what follows from it is done, and a course that takes the same notes
again is where it was: that is all that a restart needs.

    {"what": "submit", "step": "mesh", "attempt": 1}     is about to be handed in, as id_of("…", 3, 1)
    {"what": "accepted", "step": "mesh", "attempt": 1}   the scheduler has it
    {"what": "over", "step": "mesh", "attempt": 1, "state": "ended", "energy_j": 812.0, "seconds": 60.1, "why": ""}
    {"what": "skipped", "step": "solve", "why": "…"}     never will be handed in
    {"what": "cancel", "why": "…"}                       nothing more is handed in

In place of all notes of a step, and so of any number of attempts, one may say where it is, with what all attempts had:

    {"what": "was", "step": "mesh", "attempt": 3, "state": "waiting", "energy_j": 812.0, "seconds": 60.1, "why": ""}
    {"what": "stopped", "step": "mesh"}                  this one stopped the workflow
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
    """Where a step is. attempt: 0 before the first. energy_j, seconds: of all attempts, NaN: not known.

    told: what the scheduler says of it while it has it.
    """

    state: str = WAITING
    attempt: int = 0
    energy_j: float = NAN
    seconds: float = NAN
    why: str = ""
    told: str = ""

    @property
    def over(self) -> bool:
        return self.state in OVER


@dataclass(frozen=True)
class Told:
    """What a scheduler says of a job. state: one of OVER when it is, else any word."""

    state: str
    energy_j: float = NAN
    seconds: float = NAN
    why: str = ""

    @property
    def over(self) -> bool:
        return self.state in OVER


class Declined(Exception):
    """A scheduler does not take a job, now or later."""


class Unanswered(Exception):
    """No scheduler answered: nobody knows whether it has the job."""


class Scheduler(Protocol):
    def submit(self, id: str, step: Step) -> None:
        """Hands a job in; the same id again is the same job. Raises Declined, Unanswered."""

    def look(self, id: str) -> Told | None:
        """None: it knows no such job. Raises Unanswered."""

    def cancel(self, id: str) -> None:
        """Raises Unanswered."""


class Journal(Protocol):
    def note(self, note: Note) -> None:
        """Keeps it; it is on the disk when this returns."""


def id_of(run: str, number: int, attempt: int, secret: str = "") -> str:
    """What a step's job is called at the scheduler: the same before and after a restart.

    secret: of this run. With it nobody can know the name of a job, and take it, before it is handed in.
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
        """Raises ValueError for a note of another workflow, or none."""
        what = note.get("what")
        if what == "cancel":
            self.cancelled = str(note.get("why") or "cancelled")
            return
        status = self.of.get(str(note.get("step")))
        if status is None or what not in ("submit", "accepted", "over", "skipped", "was", "stopped"):
            raise ValueError(f"{note} is no note of workflow '{self.workflow.name}'")
        if what == "skipped":
            status.state, status.why = SKIPPED, str(note["why"])
            return
        if what == "stopped":
            self.stopped = str(note["step"])
            return
        attempt = int(note["attempt"])
        if what == "was":
            if (state := str(note["state"])) not in STATES:
                raise ValueError(f"'{state}' is no state of a step")
            energy, seconds = known(note.get("energy_j")), known(note.get("seconds"))
            self.of[str(note["step"])] = Status(state, attempt, energy, seconds, str(note.get("why", "")))
        elif what == "submit":
            status.state, status.attempt, status.told = SUBMITTING, attempt, ""
        elif attempt == status.attempt and what == "accepted" and status.state == SUBMITTING:
            status.state = ACCEPTED
        elif attempt == status.attempt and what == "over" and not status.over:
            step = self.workflow.steps[str(note["step"])]
            status.energy_j = _more(status.energy_j, known(note.get("energy_j")))
            status.seconds = _more(status.seconds, known(note.get("seconds")))
            status.why = str(note.get("why", ""))
            state = str(note["state"])
            again = state in (FAILED, LOST) and attempt <= step.on_failure.retries
            # By attempt and state alone: a note of the next attempt follows, or none does where nothing more is begun.
            status.state = WAITING if again else state
            if state != ENDED and not again and step.on_failure.then != CONTINUE:
                self.stopped = self.stopped or step.name

    def notes(self) -> list[dict[str, Any]]:
        """Notes that bring another course of the workflow to where this one is: one for each step at most, and two."""
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
        """Notes of what is to be done now: steps to hand in, and such as never will be."""
        out: list[dict[str, Any]] = []
        gone = {name for name, status in self.of.items() if status.state == SKIPPED}
        over = {name for name, status in self.of.items() if status.over}
        halt = self.halted
        for name, step in self.workflow.steps.items():  # those that it waits for come before it
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
        """Why nothing more is handed in; "" where that is not so."""
        return self.cancelled or (f"'{self.stopped}' did not end well" if self.stopped else "")

    @property
    def underway(self) -> list[str]:
        return [name for name, status in self.of.items() if status.state in RUNNING_STATES]

    @property
    def over(self) -> bool:
        return all(status.over for status in self.of.values())

    @property
    def state(self) -> str:
        """running; cancelling: cancelled, and some of its jobs are not over yet; ended: all of it well; failed;
        cancelled."""
        if not self.over:
            return CANCELLING if self.cancelled else RUNNING
        if self.cancelled:
            return CANCELLED
        return ENDED if all(status.state == ENDED for status in self.of.values()) else FAILED

    @property
    def energy_j(self) -> float:
        """Of all jobs that told; NaN where none did."""
        told = [status.energy_j for status in self.of.values() if math.isfinite(status.energy_j)]
        return math.fsum(told) if told else NAN

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
    """Takes a course further, a look at a time: first what is known of jobs, then what follows from it.

    A job is noted before it is handed in, so that after a restart it is asked for under the same id, and not handed in
    under another.

    mutex: held while the course changes, and not while the scheduler is asked: who holds it sees a course that stands
    still, and may cancel it in the middle of a look.
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
        """False: something was left, as may_go_on(), which is asked before each step, said no. Raises what the journal
        does.
        """
        self.trouble = ""
        try:
            for name in self.course.underway:
                if not may_go_on():
                    return False
                self._look_at(name)
            # What is skipped may let others begin that wait for it to be over.
            while notes := self.course.next():
                halted = self.course.halted
                for note in notes:
                    if not may_go_on():
                        return False
                    with self.mutex:
                        if self.course.halted != halted:
                            break  # cancelled or stopped since: of the rest nothing is handed in
                        self._note(note)
                    if note["what"] == "submit":
                        self._hand_in(str(note["step"]))
        except Unanswered as why:
            self.trouble = str(why)
        return True

    def cancel(self, why: str) -> None:
        """Nothing more is handed in, and what the scheduler has is to end."""
        with self.mutex:
            if not self.course.cancelled and not self.course.over:
                self._note({"what": "cancel", "why": why})

    def _look_at(self, name: str) -> None:
        status, id = self.course.of[name], self.course.id(name)
        told = self.scheduler.look(id)
        if told is None:
            if status.state == ACCEPTED:
                self._over(name, Told(LOST, why="the scheduler knows no such job any more"))
            elif self.course.cancelled:
                self._over(name, Told(CANCELLED, why=self.course.cancelled))
            else:
                self._hand_in(name)
            return
        if status.state == SUBMITTING:
            self._note({"what": "accepted", "step": name, "attempt": status.attempt})
        status.told = told.state
        if told.over:
            self._over(name, told)
        elif self.course.cancelled and id not in self._asked_to_end:
            self.scheduler.cancel(id)
            self._asked_to_end.add(id)

    def _hand_in(self, name: str) -> None:
        try:
            self.scheduler.submit(self.course.id(name), self.course.workflow.steps[name])
        except Declined as why:
            self._over(name, Told(FAILED, why=str(why)))
            return
        self._note({"what": "accepted", "step": name, "attempt": self.course.of[name].attempt})

    def _over(self, name: str, told: Told) -> None:
        note = {"what": "over", "step": name, "attempt": self.course.of[name].attempt, "state": told.state}
        note |= {"energy_j": _number(told.energy_j), "seconds": _number(told.seconds), "why": told.why[:500]}
        self._note(note)

    def _note(self, note: Note) -> None:
        with self.mutex:
            self.journal.note(note)
            self.course.take(note)
