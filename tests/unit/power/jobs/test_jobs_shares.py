"""The shares that jobs have at the system manager."""

from __future__ import annotations

from sonde.power.jobs.entry import Entry
from sonde.power.jobs.jobs import ENDED, Part, Run, Spec
from sonde.power.jobs.queue import Queue
from sonde.power.jobs.resources import Node, Resources
from sonde.power.jobs.shares import name_of_node, shares_of

S = 1_000_000_000
EMPTY = Resources([Node(f"n{k}", 100, 400, cores=4) for k in range(3)])


def job(name: str = "j", **more) -> Spec:
    return Spec(name, ("true",), "ada", **more)


def submit(queue: Queue, spec: Spec) -> Entry:
    return queue.submit(spec, S, (), EMPTY, 1000)


def test_nodes_with_long_names_have_names_of_their_own_at_the_system_manager():
    names = {name_of_node(f"{'n' * 62}{k}") for k in range(2)} | {name_of_node("n1")}
    assert len(names) == 3
    assert "on:n1" in names
    assert max(map(len, names)) <= 64


def test_the_system_manager_is_reported_of_jobs_and_of_shared_nodes_as_such():
    queue = Queue()
    submit(queue, job("whole", guaranteed_w=150.0, weight=2.0))
    queue.begin("whole", (Part("n0"),))
    assert not shares_of(queue.active())  # nothing was given to it yet
    queue.given("whole", (Part("n0"),))
    for name in ("a", "b"):
        submit(queue, job(name, cores=2, guaranteed_w=60.0, demand_w=90.0))
        queue.begin(name, ())
        queue.given(name, (Part("n1", False, (0, 1) if name == "a" else (2, 3)),))
    told = shares_of(queue.active())
    assert set(told) == {"whole", "on:n1"}
    assert (told["whole"].nodes, told["whole"].guaranteed_w, told["whole"].weight) == (("n0",), 150, 2)
    assert (told["on:n1"].guaranteed_w, told["on:n1"].demand_w) == (120, 180)
    queue.take_run(Run("a", ENDED, exit_status=0), S)
    assert shares_of(queue.active())["on:n1"].guaranteed_w == 60
