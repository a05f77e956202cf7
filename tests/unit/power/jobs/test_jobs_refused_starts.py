"""Starts that were refused: pauses that grow, and jobs that fail in the end."""

from __future__ import annotations

import math

from sonde.power.jobs.jobs import FAILED, WAITING, Part, Spec
from sonde.power.jobs.queue import Queue
from sonde.power.jobs.refused_starts import AGAIN_S, GIVE_UP_S, LONGEST_S, RefusedStarts
from sonde.power.jobs.resources import Node, Resources

S = 1_000_000_000


def starting(job: str = "a") -> Queue:
    queue = Queue()
    queue.submit(Spec(job, ("true",), "ada"), S, (), Resources([Node("n0", 100, 400)]), 1000)
    queue.begin(job, (Part("n0"),))
    queue.given(job, (Part("n0"),))
    return queue


def test_a_job_waits_longer_after_each_refusal():
    refused, pauses = RefusedStarts(), []
    for k in range(10):
        refused.add("a", "why", float(k))
        pauses.append(refused.by_job["a"].pause_s)
    assert pauses[:3] == [AGAIN_S, 2 * AGAIN_S, 4 * AGAIN_S]
    assert pauses[-1] == LONGEST_S
    assert refused.trouble == "a: why"


def test_a_job_that_the_job_manager_does_not_have_waits_again():
    queue, refused = starting(), RefusedStarts()
    refused.add("a", "the disk is full", 10.0)
    refused.put_back(queue, {"a"}, S, 11.0)
    assert refused.delayed(12.0) == {"a"}
    assert queue.entries["a"].state.state != WAITING  # the job manager has it
    refused.put_back(queue, (), S, 12.0)
    assert queue.entries["a"].state.reason == "the start is tried again: the disk is full"
    assert refused.delayed(12.0 + AGAIN_S - 1) == {"a"}
    assert refused.delayed(12.0 + AGAIN_S) == set()


def test_a_released_job_is_tried_at_once():
    refused = RefusedStarts()
    refused.add("a", "why", 10.0)
    refused.retry_now("a")
    refused.retry_now("unknown")
    assert refused.delayed(-math.inf) == set()


def test_a_job_fails_if_only_its_own_starts_are_refused():
    for others, state in ((True, FAILED), (False, WAITING)):
        queue, refused = starting(), RefusedStarts()
        refused.add("a", "why", 0.0)
        if others:
            refused.accepted_s = 5.0
        refused.add("a", "why", GIVE_UP_S)
        refused.put_back(queue, (), S, GIVE_UP_S + 1)
        assert queue.entries["a"].state.state == state
        assert bool(refused) == (not others)


def test_a_job_that_is_gone_is_forgotten():
    refused = RefusedStarts()
    refused.add("a", "why", 0.0)
    refused.put_back(Queue(), (), S, 1.0)
    assert not refused
    assert refused.trouble == ""
