"""The jobs of a scheduler, and what may happen to each. Pure: other modules store the queue and send it.

    waiting -> starting -> running -> ended, failed
    held <-> waiting      starting, running -> stopping -> cancelled, failed      waiting, held -> cancelled

Every change creates a new Entry, so that a change that could not be stored can be undone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sonde.core.errors import nearest
from sonde.core.units import format_duration
from sonde.power.jobs.entry import Entry
from sonde.power.jobs.jobs import (
    CANCELLED,
    ENDED,
    FAILED,
    HELD,
    RUNNING,
    STARTING,
    STOPPING,
    WAITING,
    JobState,
    Part,
    Run,
    Spec,
)
from sonde.power.jobs.proof import of_spec
from sonde.power.jobs.resources import Resources
from sonde.power.jobs.retention import Bounds, Tally
from sonde.power.jobs.schedule import Busy, Candidate, Order, QueueRules, Usage, ends_s, never, score
from sonde.power.jobs.submission import Refusal, check, check_limits

LARGEST_OF_USER, LARGEST_OF_ALL = 64 << 20, 256 << 20  # size of all jobs that are not over, B
OVER = Bounds(of_user=5_000, of_all=20_000, size_of_user=32 << 20, size_of_all=128 << 20)
"""Bounds for jobs that are over. Beyond them the oldest are forgotten before `keep` has passed."""
PAST = 5  # earlier jobs of the same name whose power predicts the next one's
# a job's shim ends it when its time is over; the scheduler does so after this additional time
MARGIN_S = 5.0
DEFAULT = QueueRules("default", is_default=True)
"""The queue of a configuration that defines none."""


Snapshot = tuple[dict[str, Entry], set[str], set[str], int]


@dataclass
class Queue:
    """All jobs.

    operators: users who may cancel and hold any job, in addition to the job's own user. grace_s: from TERM to KILL, for
    a job that sets none. changed, gone: jobs whose entry must be stored, and jobs whose entry must be removed.
    forgotten: how many jobs that are over were forgotten early for lack of room.
    """

    rules: Sequence[QueueRules] = (DEFAULT,)
    order: Order = field(default_factory=Order)
    usage: Usage = field(default_factory=lambda: Usage(7 * 86400.0))
    operators: Collection[str] = ("root",)
    max_waiting: int = 10_000
    grace_s: float = 10.0
    entries: dict[str, Entry] = field(default_factory=dict)
    next_number: int = 1
    changed: set[str] = field(default_factory=set)
    max_waiting_user: int = 2_500
    gone: set[str] = field(default_factory=set)
    forgotten: int = 0

    def __post_init__(self) -> None:
        self.next_number = max((e.number for e in self.entries.values()), default=0) + 1
        self._count()

    def _count(self) -> None:
        """Count jobs that are not over, with how many of them wait; and jobs that are over."""
        self._present = Tally(
            Bounds(self.max_waiting_user, self.max_waiting, LARGEST_OF_USER, LARGEST_OF_ALL)
        )
        self._past = Tally(OVER)
        for one in self.entries.values():
            self._counts(one, 1)

    def _counts(self, one: Entry, sign: int) -> None:
        user, size = one.spec.user, sign * one.state.size_b
        if one.state.over:
            self._past.add(user, size, sign)
        else:
            self._present.add(user, size, sign if one.waits else 0)

    def snapshot(self) -> Snapshot:
        return dict(self.entries), set(self.changed), set(self.gone), self.forgotten

    def restore(self, before: Snapshot) -> None:
        """Restore the state of then: the changes since could not be stored."""
        self.entries, self.changed, self.gone, self.forgotten = before
        self._count()

    # ---- requests of users

    def submit(
        self, spec: Spec, now_ns: int, groups: Collection[str], empty: Resources, budget_w: float
    ) -> Entry:
        """Add a job that waits. The same submission again returns the existing job.

        groups: the user's groups. empty, budget_w: the cluster with nothing in use, to detect jobs that can never
        start.

        Raises
        ------
        Refusal.
        """
        before = self.entries.get(spec.job)
        if before is not None:
            if before.digest == of_spec(spec):
                return before
            raise Refusal("other_job", f"the id {spec.job} belongs to another job, of {before.spec.user}")
        check(spec)
        rules = self.rules_of(spec)
        if not rules.allows(spec.user, groups):
            allowed = [*rules.users, *(f"members of {group}" for group in rules.groups)]
            raise Refusal(
                "not_allowed",
                f"the queue {rules.name} is not for {spec.user}; it is for {', '.join(allowed)}",
            )
        self._check_room(spec)
        full = replace(
            spec,
            queue=rules.name,
            nodes=len(spec.hosts) or spec.nodes,
            limit_s=spec.limit_s or rules.default_time_s or rules.max_time_s,
            grace_s=spec.grace_s or self.grace_s,
            demand_w=spec.demand_w or self.predicted_w(spec),
        )
        check_limits(full, rules)
        why = never(full, empty, budget_w)
        if why:
            raise Refusal("unknown_node" if why.startswith("there is no node") else "above_limit", why)
        state = JobState(full, WAITING, "waits for the next plan", submitted_ns=now_ns)
        return self._put(Entry(state, of_spec(spec), self.next_number))

    def _check_room(self, spec: Spec) -> None:
        """Raises Refusal  queue_full: one user cannot fill the queue for all."""
        present, user = self._present, spec.user
        if present.number >= self.max_waiting:
            raise Refusal("queue_full", f"{present.number} jobs wait; no more are accepted")
        if (own := present.number_of(user)) >= self.max_waiting_user:
            raise Refusal("queue_full", f"{own} jobs of {user} wait; no more jobs of this user are accepted")
        for whose, size, most in (
            (f"{user}'s jobs", present.size_of(user), LARGEST_OF_USER),
            ("all jobs", present.size, LARGEST_OF_ALL),
        ):
            if size + spec.size_b > most:
                raise Refusal(
                    "queue_full",
                    f"commands and environments of {whose} that are not over would take more than {most >> 20} MiB "
                    "with this one",
                )

    def rules_of(self, spec: Spec) -> QueueRules:
        """The queue that a job names, or the default one."""
        rules = self.rules or (DEFAULT,)
        if not spec.queue:
            return next((one for one in rules if one.is_default), rules[0])
        found = next((one for one in rules if one.name == spec.queue), None)
        if found is None:
            names = [one.name for one in rules]
            raise Refusal(
                "no_queue",
                f"there is no queue '{spec.queue}'{nearest(spec.queue, names)}; there are: {', '.join(names)}",
            )
        return found

    def predicted_w(self, spec: Spec) -> float:
        """The predicted power of a job on each node: the highest of this user's last jobs of the same name;
        0: unknown.
        """
        if not spec.name:
            return 0.0
        same = [
            one
            for one in self.entries.values()
            if one.state.state == ENDED and (one.spec.name, one.spec.user) == (spec.name, spec.user)
        ]
        drawn = [
            one.energy_j / ((one.state.ended_ns - one.state.started_ns) / 1e9) / len(one.state.parts)
            for one in sorted(same, key=lambda one: one.number)[-PAST:]
            if one.energy_j > 0 and one.state.ended_ns > one.state.started_ns and one.state.parts
        ]
        return max(drawn, default=0.0)

    def cancel(self, job: str, user: str, now_ns: int) -> Entry:
        """Raises Refusal."""
        one = self._of(job, user)
        if one.state.over or one.stop == "cancelled":
            return one
        if not one.state.active:
            return self._over(one, CANCELLED, f"cancelled by {user}", now_ns)
        if not one.asked:
            return self._over(one, CANCELLED, f"cancelled by {user}", now_ns)
        return self._stop(one, "cancelled", f"cancelled by {user}")

    def hold(self, job: str, user: str) -> Entry:
        """Raises Refusal."""
        one = self._of(job, user)
        if one.state.state == HELD:
            return one
        if one.state.state != WAITING:
            raise Refusal(
                "wrong_state", f"the job {job} is {one.state.state}; only a waiting job can be held"
            )
        return self._become(one, HELD, f"held by {user}", expected_ns=0)

    def release(self, job: str, user: str) -> Entry:
        """Raises Refusal."""
        one = self._of(job, user)
        if one.state.state == WAITING:
            return one
        if one.state.state != HELD:
            raise Refusal(
                "wrong_state", f"the job {job} is {one.state.state}; only a held job can be released"
            )
        return self._become(one, WAITING, "waits for the next plan")

    def find(self, job: str) -> Entry:
        """Raises Refusal  no_job."""
        if job not in self.entries:
            raise Refusal("no_job", f"no job is called '{job}'{nearest(job, list(self.entries)[-1000:])}")
        return self.entries[job]

    def _of(self, job: str, user: str) -> Entry:
        one = self.find(job)
        if user != one.spec.user and user not in self.operators:
            raise Refusal(
                "not_allowed", f"the job {job} belongs to {one.spec.user}, not to {user or 'nobody'}"
            )
        return one

    # ---- planning

    def waiting(self, now_ns: int) -> list[Candidate]:
        """Jobs that may start, with their scores."""
        self.usage.to(now_ns / 1e9)
        waiting = [one for one in self.entries.values() if one.state.state == WAITING]
        users = {one.spec.user for one in waiting}
        fair = {user: self.usage.factor(user, self.order.shares, users) for user in users}
        priorities = {rules.name: rules.priority for rules in self.rules}
        return [
            Candidate(
                one.spec,
                score(
                    priorities.get(one.spec.queue, 0),
                    (now_ns - one.state.submitted_ns) / 1e9,
                    fair[one.spec.user],
                    self.order,
                ),
                one.number,
            )
            for one in waiting
        ]

    def busy(self, now_ns: int) -> list[Busy]:
        return [
            Busy(one.state.job, ends_s((one.state.started_ns or now_ns) / 1e9, one.spec))
            for one in self.active()
        ]

    def active(self) -> list[Entry]:
        return sorted((one for one in self.entries.values() if one.state.active), key=lambda one: one.number)

    def set_reasons(
        self, reasons: Mapping[str, str], expected_s: Mapping[str, float], scores: Mapping[str, float]
    ) -> None:
        """Set why jobs wait. The reasons are not stored: the next plan sets them again."""
        for job, reason in reasons.items():
            one = self.entries.get(job)
            if one is not None and one.state.state == WAITING:
                state = replace(
                    one.state,
                    reason=_short(reason),
                    expected_ns=int(expected_s.get(job, 0.0) * 1e9),
                    priority=scores.get(job, 0.0),
                )
                self.entries[job] = replace(one, state=state)

    # ---- events of jobs

    def begin(self, job: str, parts: tuple[Part, ...], priority: float = 0.0) -> Entry:
        """The job is about to start on these parts."""
        one = self.entries[job]
        return self._become(one, STARTING, "", parts=parts, priority=priority, expected_ns=0)

    def given(self, job: str, parts: tuple[Part, ...]) -> Entry:
        """The resource manager allocated these parts. The start order follows: from here on only the job manager knows
        whether the job was started.
        """
        one = self.entries[job]
        return self._put(replace(one, asked=True, state=replace(one.state, parts=parts)))

    def back(self, job: str, why: str) -> Entry:
        """The planned parts could not be allocated: the job waits again. Has no effect on a job that may have been
        started.
        """
        one = self.entries[job]
        if one.asked or one.state.state != STARTING:
            return one
        return self._become(one, WAITING, why, parts=())

    def refused(self, job: str, why: str) -> Entry:
        """The job manager refused the start and does not have the job: it waits again."""
        one = self.entries[job]
        if one.state.state != STARTING:
            return one
        return self._become(replace(one, asked=False), WAITING, why, parts=())

    def take_run(self, run: Run, now_ns: int) -> Entry | None:
        """Apply what the job manager reports about a job."""
        one = self.entries.get(run.job)
        if one is None or not one.state.active:
            return one
        if run.energy_j > one.energy_j:
            # Not stored by itself: each report repeats it, and the end stores it.
            one = self.entries[run.job] = replace(one, energy_j=run.energy_j)
        if run.demand_w != one.demand_w:
            one = self.entries[run.job] = replace(one, demand_w=run.demand_w)
        if run.over:
            ended = run.ended_ns or now_ns
            one = replace(one, asked=True, state=replace(one.state, signal=run.signal))
            one = replace(
                one,
                state=replace(
                    one.state,
                    exit_status=run.exit_status,
                    started_ns=one.state.started_ns or run.started_ns or ended,
                ),
            )
            if one.stop == "cancelled":
                return self._over(one, CANCELLED, one.state.reason, ended)
            if one.stop == "time":
                return self._over(one, FAILED, one.state.reason, ended)
            if run.state == ENDED and run.exit_status == 0 and not run.signal:
                return self._over(one, ENDED, "", ended)
            return self._over(one, FAILED, run.reason or _how(run), ended)
        if run.state == RUNNING and one.state.state == STARTING:
            # From here on no role starts the job, and none needs its environment.
            spec = replace(one.spec, environment=())
            return self._become(
                replace(one, asked=True), RUNNING, "", started_ns=run.started_ns or now_ns, spec=spec
            )
        return one

    def lost(self, job: str, now_ns: int) -> Entry:
        """The job manager got the order to start this job, but does not know it. It is not started again."""
        one = self.entries[job]
        if one.stop == "cancelled":
            return self._over(one, CANCELLED, one.state.reason, now_ns)
        return self._over(one, FAILED, "the job manager no longer knows it", now_ns)

    def over_time(self, now_ns: int, ran_s: Mapping[str, float]) -> list[Entry]:
        """Mark the jobs whose time is over as to be stopped.

        ran_s: how long each was seen to run, by a monotonic clock: a change of the wall clock must not end jobs.
        """
        return [
            self._stop(one, "time", f"its time limit was reached: {format_duration(one.spec.limit_s)}")
            for one in self.active()
            if one.state.state == RUNNING
            and one.spec.limit_s > 0
            and now_ns - one.state.started_ns >= one.spec.limit_s * 1e9
            and ran_s.get(one.state.job, 0.0) >= one.spec.limit_s + MARGIN_S
        ]

    def cleaned(self, job: str) -> Entry:
        """The job's resources were given back, and the job manager may forget it."""
        return self._put(replace(self.entries[job], clean=True))

    def to_clean(self) -> list[Entry]:
        return [one for one in self.entries.values() if one.state.over and not one.clean]

    def set_back(self, now_ns: int, most_s: float = math.inf) -> None:
        """If the clock was set back, move charges back too: nobody is charged for time that is still to come.

        most_s: the longest time that can have passed since the last call, by a monotonic clock.
        """
        self.usage.to(now_ns / 1e9, most_s)
        for one in self.active():
            if (one.charged_ns or one.state.started_ns) > now_ns:
                self._put(replace(one, charged_ns=now_ns))

    def charge(self, now_ns: int, nodes: Mapping[str, int], most_s: float = math.inf) -> None:
        """Charge users for their jobs' resources since the last call. nodes: cores of each; part of a node counts as
        that part.
        """
        self.set_back(now_ns, most_s)
        for one in list(self.entries.values()):
            state = one.state
            if one.charged:
                continue
            since = one.charged_ns or state.started_ns
            until = state.ended_ns if state.over else now_ns
            if until <= since and not (state.over and one.energy_j > one.charged_j):
                continue
            seconds = min(max(0, until - since) / 1e9, most_s)
            had = math.fsum(
                1.0 if part.whole or not nodes.get(part.node) else len(part.cores) / nodes[part.node]
                for part in state.parts
            )
            if one.energy_j > 0:
                energy = one.energy_j - one.charged_j
            else:
                energy = seconds * len(state.parts) * (one.spec.demand_w or one.spec.guaranteed_w)
            self.usage.add(one.spec.user, had * seconds, energy)
            self._put(replace(one, charged_ns=max(until, since), charged_j=one.energy_j))

    def forget(self, before_ns: int) -> list[str]:
        """Drop clean jobs that ended before that time. Returns their ids."""
        gone = [job for job, one in self._removable() if one.state.ended_ns < before_ns]
        self._drop(gone)
        return gone

    def forget_surplus(self) -> list[Entry]:
        """Drop jobs that are over and exceed the bounds: the oldest jobs of the user who has most. They count as
        forgotten. Returns them.
        """
        gone = self._past.surplus((one.spec.user, job, one.state.size_b) for job, one in self._oldest())
        those = [self.entries[job] for job in gone]
        self._drop(gone)
        self.forgotten += len(gone)
        return those

    def _removable(self) -> Iterable[tuple[str, Entry]]:
        return ((job, one) for job, one in self.entries.items() if one.state.over and one.clean)

    def _oldest(self) -> Iterable[tuple[str, Entry]]:
        """The jobs that need no further step, the oldest first."""
        those = [(job, one) for job, one in self._removable() if one.charged]
        yield from sorted(those, key=lambda pair: (pair[1].state.ended_ns, pair[1].number))

    def _drop(self, gone: Iterable[str]) -> None:
        for job in gone:
            self._counts(self.entries.pop(job), -1)
            self.changed.discard(job)
            self.gone.add(job)

    # ---- changes

    def _put(self, entry: Entry) -> Entry:
        job = entry.state.job
        self.next_number = max(self.next_number, entry.number + 1)
        if job in self.entries:
            self._counts(self.entries[job], -1)
        self.entries[job] = entry
        self._counts(entry, 1)
        self.changed.add(job)
        self.gone.discard(job)
        return entry

    def _become(self, one: Entry, state: str, reason: str, **more: Any) -> Entry:
        return self._put(replace(one, state=replace(one.state, state=state, reason=_short(reason), **more)))

    def _over(self, one: Entry, state: str, reason: str, at_ns: int) -> Entry:
        clean = not one.asked and not one.state.parts  # it never had any resources
        return self._become(
            replace(one, clean=clean),
            state,
            reason,
            ended_ns=at_ns,
            expected_ns=0,
            spec=one.spec.trimmed,
        )

    def _stop(self, one: Entry, why: str, reason: str) -> Entry:
        return self._become(replace(one, stop=why), STOPPING, reason)


def _short(reason: str) -> str:
    """Shorten a reason to fit its field of jobs.idl."""
    return reason.encode()[:1000].decode(errors="ignore")


def _how(run: Run) -> str:
    return f"ended by signal {run.signal}" if run.signal else f"exit status {run.exit_status}"
