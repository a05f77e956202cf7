"""The decisions of a scheduler's turn: which jobs start, and which ones must wait again. Pure.

The caller stores the queue before any other role gets an order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sonde.power.jobs import schedule
from sonde.power.jobs.cluster_power import ClusterPower
from sonde.power.jobs.entry import Entry
from sonde.power.jobs.jobs import STARTING
from sonde.power.jobs.queue import Queue
from sonde.power.jobs.resources import Conflict, Held, Resources
from sonde.power.jobs.schedule import Candidate


def candidates(queue: Queue, now_ns: int, delayed: Collection[str]) -> list[Candidate]:
    """Jobs that may start now. A delayed job delays no other."""
    return [one for one in queue.waiting(now_ns) if one.spec.job not in delayed]


def fill(
    used: Resources, queue: Queue, held: Iterable[Held], budget_w: float, runs: Collection[str]
) -> set[str]:
    """Add to `used` what is allocated and what jobs are about to get. Jobs that are about to start wait again if their
    nodes went to others, or if the budget has fallen. Returns the jobs that keep their resources, but whose start must
    not be ordered again yet.

    held: the resource manager's allocations. runs: jobs that the job manager has.
    """
    for job in in_use(used, queue.active(), held):
        if job in queue.entries:
            queue.back(job, "waits: its nodes went to another job, or are gone")
    return _beyond(used, queue, budget_w, runs)


def _beyond(used: Resources, queue: Queue, budget_w: float, runs: Collection[str]) -> set[str]:
    """Handle jobs that were about to start before the budget fell: the last ones wait again. A job whose start
    order the job manager may have keeps its resources, and the order is not repeated until the job fits.
    """
    deferred = []
    for one in reversed(queue.active()):
        job, before = one.state.job, used.total_w
        if one.state.state != STARTING or job in runs or not before > budget_w:
            continue
        had = used.held.get(job)  # allocated by the resource manager, whose answer may have been lost
        if had is None:
            continue
        used.give_back(job)
        if used.total_w < before and not one.asked:
            queue.back(job, "waits: the budget has fallen")
        elif used.total_w < before:
            deferred.append(had)
        else:
            used.take(job, had.parts, had.guaranteed_w)
    for had in deferred:
        used.take(had.job, had.parts, had.guaranteed_w)
    return {had.job for had in deferred}


def plan_starts(
    queue: Queue, used: Resources, power: ClusterPower, now_ns: int, delayed: Collection[str]
) -> list[tuple[schedule.Start, float]]:
    """The jobs that start now, each with its score, in this order; the others get the reason why they wait."""
    # The resources of jobs in used.held must still be given back, because the last attempt got no answer.
    waiting = [one for one in candidates(queue, now_ns, delayed) if one.spec.job not in used.held]
    plan = schedule.plan(waiting, queue.busy(now_ns), used, power.budget, now_ns / 1e9, power.usable)
    scores = {one.spec.job: one.score for one in waiting}
    queue.set_reasons(plan.reasons, plan.expected_s, scores)
    return [(start, scores[start.job]) for start in plan.starts]


def in_use(empty: Resources, entries: Iterable[Entry], held: Iterable[Held]) -> list[str]:
    """Add what jobs use to `empty`: the resource manager's allocations, and what own jobs are about to get.

    Nodes that were removed from the configuration do not count; a job's other nodes do. Returns own jobs whose parts
    belong to another job; a job that is still to get its parts is also returned if one of its nodes is gone.
    """
    conflicts = []
    for one in held:
        try:
            empty.take(one.job, empty.present(one.parts), one.guaranteed_w)
        except Conflict:
            conflicts.append(one.job)
    for entry in entries:
        state = entry.state
        if state.active and state.parts and state.job not in empty.held:
            parts = empty.present(state.parts) if entry.asked else state.parts
            try:
                empty.take(state.job, parts, entry.spec.guaranteed_w)
            except Conflict:
                conflicts.append(state.job)
    return conflicts
