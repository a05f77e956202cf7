"""A workflow's way through a world that loses answers and kills the engine at any instant."""

from __future__ import annotations

import random
import threading

import pytest

from sonde.power.workflows.workflow import Step, Workflow, read
from sonde.power.workflows.workflow_run import (
    ACCEPTED,
    CANCELLED,
    ENDED,
    FAILED,
    LOST,
    SKIPPED,
    Conductor,
    Course,
    Declined,
    JobReport,
    Unanswered,
    id_of,
)


class Killed(Exception):
    """The engine, at this instant."""


class Disk:
    """Notes that outlive the engine."""

    def __init__(self) -> None:
        self.notes: list[dict] = []
        self.kill_before = self.kill_after = 0.0
        self.dice = random.Random(0)

    def note(self, note) -> None:
        if self.dice.random() < self.kill_before:
            raise Killed
        self.notes.append(dict(note))
        if self.dice.random() < self.kill_after:
            raise Killed


class Slots:
    """A scheduler whose jobs take some turns, some of which fail; a job is what its id says, however often it comes."""

    def __init__(self, dice: random.Random, workflow: Workflow, run: str = "r") -> None:
        self.dice, self.workflow = dice, workflow
        self.of = {
            id_of(run, n, a): (name, a) for n, name in enumerate(workflow.steps, 1) for a in range(1, 20)
        }
        self.jobs: dict[str, JobReport] = {}
        self.left: dict[str, int] = {}
        self.began: list[tuple[str, int]] = []
        self.lose = self.kill = self.fail = 0.0
        self.good: set[str] = set()
        self.over: set[str] = set()

    def _world(self) -> None:
        if self.dice.random() < self.kill:
            raise Killed
        if self.dice.random() < self.lose:
            raise Unanswered("no job-scheduler answered")

    def submit(self, id: str, step: Step) -> None:
        self._world()
        name, attempt = self.of[id]
        assert step.name == name
        if id not in self.jobs:
            # What it waits for is over, and well where it says so: seen from here, not from the engine.
            assert set(step.after) <= self.good, f"{name} before {step.after}"
            assert set(step.after_any) <= self.over | self.never(), f"{name} before {step.after_any}"
            assert all(n != name or a < attempt for n, a in self.began), f"{name} twice"
            self.began.append((name, attempt))
            self.jobs[id] = JobReport("running")
            self.left[id] = self.dice.randrange(1, 5)
        self._world()  # the answer may be lost as well

    def never(self) -> set[str]:
        """Steps that cannot run any more, as far as jobs tell."""
        gone: set[str] = set()
        for name, step in self.workflow.steps.items():
            bad = [
                other
                for other in step.after
                if other in gone or (other in self.over and other not in self.good)
            ]
            if bad and name not in self.over:
                gone.add(name)
        return gone

    def look(self, id: str) -> JobReport | None:
        self._world()
        return self.jobs.get(id)

    def cancel(self, id: str) -> None:
        self._world()
        if not self.jobs[id].over:
            self._end(id, CANCELLED)

    def turn(self) -> None:
        for id, job in list(self.jobs.items()):
            if job.over:
                continue
            self.left[id] -= 1
            if self.left[id] <= 0:
                self._end(id, FAILED if self.dice.random() < self.fail else ENDED)

    def _end(self, id: str, state: str) -> None:
        name, attempt = self.of[id]
        self.jobs[id] = JobReport(state, 10.0, 1.0, "" if state == ENDED else "it failed")
        if state == ENDED:
            self.good.add(name)
        if state == ENDED or attempt > self.workflow.steps[name].on_failure.retries:
            self.over.add(name)


def workflow_of(dice: random.Random) -> Workflow:
    """Any: up to 12 jobs, each after some of those before it."""
    text = ""
    for k in range(dice.randrange(1, 13)):
        before = [f"j{n}" for n in range(k)]
        names = dice.sample(before, min(len(before), dice.randrange(0, 4)))
        cut = dice.randrange(0, len(names) + 1)
        how = dice.choice(["stop", "continue", "continue", "retry 2", "retry 1, continue"])
        text += f'[jobs.j{k}]\ncommand = ["true"]\non_failure = "{how}"\n'
        text += f"after = {names[:cut]}\nafter_any = {names[cut:]}\n"
    return read(text)


def goes(seed: int) -> tuple[Course, Slots, Disk]:
    """One workflow to its end, whatever happens."""
    dice = random.Random(seed)
    workflow = workflow_of(dice)
    slots, disk = Slots(dice, workflow), Disk()
    disk.dice = dice
    slots.lose, slots.kill, slots.fail = dice.choice([0, 0.2]), dice.choice([0, 0.1]), dice.choice([0, 0.3])
    disk.kill_before = disk.kill_after = dice.choice([0, 0.1])
    cancels_at = dice.choice([-1, -1, dice.randrange(0, 20)])
    leave = dice.choice([0, 0.3])  # a look before all of it is done
    course = conductor = None
    for turn in range(3000):
        if conductor is None:  # a new engine, from what is on disk
            course = Course(workflow, "r")
            for note in disk.notes:
                course.take(note)
            conductor = Conductor(course, slots, disk)
        try:
            if turn == cancels_at:
                conductor.cancel("nobody wants it any more")
            conductor.look(lambda: dice.random() >= leave)
        except Killed:
            conductor = None
            continue
        slots.turn()
        if course.over:
            break
    assert course is not None
    return course, slots, disk


@pytest.mark.parametrize("block", range(10))
def test_every_job_comes_after_those_it_waits_for_and_none_twice_whatever_is_killed(block):
    for seed in range(block * 60, block * 60 + 60):
        course, slots, disk = goes(seed)
        assert course.over, f"seed {seed}: {course.counts()}"
        # Nothing runs that the course does not know to be over, and what it says of each is what happened.
        assert all(job.over for job in slots.jobs.values()), f"seed {seed}"
        for name, status in course.of.items():
            if status.state == ENDED:
                assert name in slots.good, f"seed {seed}"
            if status.state == SKIPPED:
                assert name not in slots.good, f"seed {seed}"
        if not course.cancelled and not course.stopped:
            assert {n for n, s in course.of.items() if s.state == ENDED} == slots.good
        ran = [n for n in disk.notes if n["what"] == "over" and n["energy_j"] is not None]
        assert len(ran) == len(slots.began), f"seed {seed}"
        assert not ran or course.energy_j == pytest.approx(10.0 * len(ran))
        again = Course(course.workflow, "r")
        for note in disk.notes:
            again.take(note)
        assert [(s.state, s.attempt) for s in again.of.values()] == [
            (s.state, s.attempt) for s in course.of.values()
        ]


def course_of(text: str) -> tuple[Course, Conductor, Slots, Disk]:
    workflow = read(text)
    course, slots, disk = Course(workflow, "r"), Slots(random.Random(1), workflow), Disk()
    return course, Conductor(course, slots, disk), slots, disk


A = '[jobs.a]\ncommand = ["true"]\non_failure = "{how}"\n'
B = '[jobs.b]\ncommand = ["true"]\n{key} = ["a"]\n'
C = '[jobs.c]\ncommand = ["true"]\n'


def played(text: str, fails: float = 1.0) -> Course:
    course, conductor, slots, _ = course_of(text)
    slots.fail = fails
    for _ in range(30):
        conductor.look()
        slots.turn()
        slots.fail = 0.0 if course.of["a"].attempt > 1 else slots.fail
    return course


def test_on_failure_says_what_becomes_of_the_others():
    stops = played((A + B).format(how="stop", key="after"))
    assert [s.state for s in stops.of.values()] == [FAILED, SKIPPED]
    assert (stops.state, stops.of["b"].why) == ("failed", "'a' did not end well")
    goes_on = played((A + B).format(how="continue", key="after_any"))
    assert [s.state for s in goes_on.of.values()] == [FAILED, FAILED]
    assert goes_on.of["b"].attempt == 1
    again = played((A + B).format(how="retry 3", key="after"))
    assert (again.of["a"].attempt, [s.state for s in again.of.values()]) == (2, [ENDED, ENDED])


def test_after_any_is_stopped_by_a_job_that_stops_all():
    assert played((A + B).format(how="stop", key="after_any")).of["b"].state == SKIPPED


def test_a_retry_that_is_used_up_stops():
    course, conductor, slots, _ = course_of((A + B).format(how="retry 2", key="after"))
    slots.fail = 1.0
    for _ in range(40):
        conductor.look()
        slots.turn()
    assert (course.of["a"].attempt, course.of["a"].state, course.of["b"].state) == (3, FAILED, SKIPPED)
    assert course.of["a"].energy_j == 30.0  # of all attempts


def test_what_is_declined_failed_and_says_why():
    course, conductor, slots, _ = course_of(C)

    def declined(id, step):
        raise Declined("there is no queue 'logn' (nearest: long)")

    slots.submit = declined
    conductor.look()
    assert (course.of["c"].state, course.of["c"].why) == (FAILED, "there is no queue 'logn' (nearest: long)")


def test_what_nobody_answers_is_asked_again_under_the_same_id():
    course, conductor, slots, disk = course_of(C)
    slots.lose = 1.0
    for _ in range(5):
        conductor.look()
    assert conductor.trouble == "no job-scheduler answered"
    assert [n["what"] for n in disk.notes] == ["submit"]
    slots.lose = 0.0
    conductor.look()
    assert (course.of["c"].state, slots.began) == (ACCEPTED, [("c", 1)])


def test_a_job_that_the_scheduler_forgot_is_lost_and_not_handed_in_again_as_the_same():
    course, conductor, slots, _ = course_of(C)
    conductor.look()
    slots.jobs.clear()
    conductor.look()
    assert (course.of["c"].state, course.state) == (LOST, "failed")
    assert slots.began == [("c", 1)]


def test_cancelling_ends_what_runs_and_hands_in_nothing_more():
    course, conductor, slots, _ = course_of((A + B).format(how="stop", key="after"))
    conductor.look()
    conductor.cancel("enough")
    conductor.look()
    conductor.look()
    assert [s.state for s in course.of.values()] == [CANCELLED, SKIPPED]
    assert (course.state, slots.jobs["r.1.1"].state) == ("cancelled", CANCELLED)


MANY = f'[jobs.many]\ncommand = ["true"]\nforeach = {{ n = {list(range(300))} }}\non_failure = "stop"\n'


def test_a_look_leaves_the_rest_when_told_and_the_next_one_goes_on_there():
    _, conductor, slots, disk = course_of(MANY)
    for most, whole in ((120, False), (240, False), (400, True)):
        assert conductor.look(lambda most=most: len(slots.began) < most) == whole
        assert len(slots.began) == min(most, 300)
        assert len([note for note in disk.notes if note["what"] == "accepted"]) == min(most, 300)
    assert len(set(slots.began)) == 300


def test_a_cancel_in_the_middle_of_a_look_is_heard_before_more_is_handed_in():
    course, conductor, slots, _ = course_of(MANY)
    take = slots.submit

    def submit(id, step):
        take(id, step)
        if len(slots.began) == 7:
            conductor.cancel("enough")

    slots.submit = submit
    assert conductor.look()
    assert conductor.look()
    assert conductor.look()
    assert len(slots.began) == 7
    assert course.counts() == {CANCELLED: 7, SKIPPED: 293}


def test_what_stops_a_workflow_in_the_middle_of_a_look_keeps_the_rest_from_being_handed_in():
    course, conductor, slots, _ = course_of(MANY)

    def declined(id, step):
        slots.began.append((step.name, 1))
        raise Declined("there is no such queue")

    slots.submit = declined
    conductor.look()
    assert len(slots.began) == 1
    assert course.counts() == {FAILED: 1, SKIPPED: 299}


def test_who_holds_the_mutex_never_waits_for_the_scheduler():
    workflow = read(MANY)
    mutex = threading.Lock()
    disk, notes, asked = Disk(), [], []

    class Free(Slots):
        def _world(self) -> None:
            asked.append(mutex.locked())

    class Reentrant:
        """A mutex that its holder may take again, as an RLock, but that tells."""

        depth = 0

        def __enter__(self) -> None:
            if not self.depth:
                mutex.acquire()
            self.depth += 1

        def __exit__(self, *_: object) -> None:
            self.depth -= 1
            if not self.depth:
                mutex.release()

    disk.note = lambda note: notes.append(mutex.locked())  # type: ignore[method-assign]
    conductor = Conductor(Course(workflow, "r"), Free(random.Random(1), workflow), disk, Reentrant())
    conductor.look()
    conductor.look()
    assert not any(asked)
    assert all(notes)
    assert len(asked) >= 600


def test_a_note_of_another_workflow_is_refused():
    course, *_ = course_of(C)
    with pytest.raises(ValueError, match="is not a note of workflow"):
        course.take({"what": "submit", "step": "x", "attempt": 1})


def test_a_few_notes_bring_a_course_to_where_many_did():
    workflow = read(
        'name = "w"\n[jobs.a]\ncommand = ["x"]\non_failure = "retry 100"\n'
        '[jobs.b]\ncommand = ["x"]\n[jobs.c]\ncommand = ["x"]\nafter = ["b"]\n[jobs.d]\ncommand = ["x"]\n'
    )
    many = []
    for attempt in range(1, 60):
        many.append({"what": "submit", "step": "a", "attempt": attempt})
        many.append({"what": "accepted", "step": "a", "attempt": attempt})
        over = {"what": "over", "step": "a", "attempt": attempt, "state": FAILED, "energy_j": 2.0}
        many.append({**over, "seconds": None, "why": "x"})
    many.append({"what": "submit", "step": "a", "attempt": 60})
    many.append({"what": "submit", "step": "b", "attempt": 1})
    many.append({"what": "over", "step": "b", "attempt": 1, "state": FAILED, "why": "y"})
    many.append({"what": "skipped", "step": "c", "why": "'b' did not end well"})
    for more in ([], [{"what": "cancel", "why": "enough"}]):
        before, after = Course(workflow, "r"), Course(workflow, "r")
        for note in many + more:
            before.take(note)
        few = before.notes()
        assert len(few) == 4 + len(more)
        for note in few:
            after.take(note)
        assert repr(after.of) == repr(before.of)  # repr: NaN is not equal to itself
        assert (after.stopped, after.cancelled) == (before.stopped, before.cancelled)
        assert (after.next(), after.id("a"), after.energy_j) == (before.next(), before.id("a"), 118.0)
    with pytest.raises(ValueError, match="is not a state of a step"):
        Course(workflow, "r").take({"what": "was", "step": "a", "attempt": 1, "state": "done"})
