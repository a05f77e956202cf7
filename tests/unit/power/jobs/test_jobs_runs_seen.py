"""The runs that the job manager reports."""

from __future__ import annotations

import math

from sonde.power.jobs.jobs import ENDED, FAILED, RUNNING, STOPPING, Part, Run, Spec
from sonde.power.jobs.queue import MARGIN_S, Queue
from sonde.power.jobs.resources import Node, Resources
from sonde.power.jobs.runs_seen import RunsSeen

S = 1_000_000_000


def queue_of(*jobs: str, **more) -> Queue:
    queue = Queue()
    for job in jobs:
        queue.submit(Spec(job, ("true",), "ada", **more), S, (), Resources([Node("n0", 100, 400)]), 1000)
    return queue


def started(queue: Queue, job: str) -> None:
    queue.begin(job, (Part("n0"),))
    queue.given(job, (Part("n0"),))


def test_a_run_of_a_job_that_waits_is_stopped():
    runs, queue = RunsSeen(), queue_of("a")
    assert runs.take(queue, [Run("a", RUNNING)], 2 * S, 0.0, math.inf) == [("a", False)]
    assert runs.jobs == {"a"}


def test_a_run_of_a_job_that_is_over_and_clean_is_forgotten():
    runs, queue = RunsSeen(), queue_of("a")
    started(queue, "a")
    assert runs.take(queue, [Run("a", ENDED, exit_status=0)], 2 * S, 0.0, math.inf) == []
    queue.cleaned("a")
    assert runs.take(queue, [Run("a", ENDED), Run("of another", ENDED)], 3 * S, 1.0, math.inf) == [
        ("a", True)
    ]


def test_a_job_that_ran_and_is_unknown_now_is_lost():
    runs, queue = RunsSeen(), queue_of("a")
    started(queue, "a")
    runs.take(queue, [Run("a", RUNNING, started_ns=S)], 2 * S, 0.0, math.inf)
    runs.take(queue, [], 3 * S, 1.0, math.inf)
    assert queue.entries["a"].state.state == FAILED


def test_a_time_limit_counts_from_when_the_job_was_seen_to_run():
    runs, queue = RunsSeen(), queue_of("a", limit_s=30.0)
    started(queue, "a")
    run = Run("a", RUNNING, started_ns=S)
    runs.take(queue, [run], 2 * S, 0.0, math.inf)
    runs.take(queue, [run], 9000 * S, 10.0, math.inf)  # somebody set the clock forward
    assert queue.entries["a"].state.state == RUNNING
    runs.take(queue, [run], 9001 * S, 30.0 + MARGIN_S, math.inf)
    assert queue.entries["a"].state.state == STOPPING
