"""Answers to those who ask for jobs and queues."""

from __future__ import annotations

from sonde.power.jobs.jobs import Part, Spec
from sonde.power.jobs.listing import jobs_shown, queues_shown, shown
from sonde.power.jobs.queue import DEFAULT, Queue
from sonde.power.jobs.resources import Node, Resources

S = 1_000_000_000
ALL = {"user": "", "queue": "", "over": False}


def queue_of(**users: str) -> Queue:
    queue, empty = Queue(), Resources([Node("n0", 100, 400)])
    for job, user in users.items():
        queue.submit(Spec(job, ("true", "x"), user, environment=("SECRET=1",)), S, (), empty, 1000)
    return queue


def test_nobody_sees_an_environment():
    (entry,) = queue_of(a="ada").entries.values()
    assert shown(entry)["spec"]["environment"] == []
    assert shown(entry)["spec"]["command"] == ["true", "x"]
    assert shown(entry, brief=True)["spec"]["command"] == ["true"]


def test_jobs_are_those_asked_for_and_jobs_with_resources_come_first():
    queue = queue_of(a="ada", b="bob", c="ada")
    queue.begin("c", (Part("n0"),))
    queue.cancel("b", "bob", 2 * S)

    def ids(**asked: object) -> list[str]:
        return [one["spec"]["job"] for one in jobs_shown(queue.entries.values(), {**ALL, **asked})]

    assert ids() == ["c", "a"]
    assert ids(over=True) == ["b", "c", "a"]
    assert ids(user="bob", over=True) == ["b"]
    assert ids(queue="other") == []


def test_a_queue_counts_its_jobs():
    queue = queue_of(a="ada", b="bob")
    queue.begin("a", (Part("n0"),))
    (one,) = queues_shown(queue.rules, DEFAULT, queue.entries.values())
    assert (one["name"], one["is_default"], one["waiting"], one["running"]) == ("default", True, 1, 1)
