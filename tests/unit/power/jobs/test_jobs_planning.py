"""What is in use, and which planned starts are taken back."""

from __future__ import annotations

from sonde.power.jobs.cluster_power import ClusterPower
from sonde.power.jobs.entry import Entry
from sonde.power.jobs.jobs import STARTING, WAITING, Part, Spec
from sonde.power.jobs.planning import candidates, fill, in_use, plan_starts
from sonde.power.jobs.queue import Queue
from sonde.power.jobs.resources import Held, Node, Resources
from sonde.power.jobs.schedule import Budget

S = 1_000_000_000
EMPTY = Resources([Node(f"n{k}", 100, 400, cores=4) for k in range(3)])


def job(name: str = "j", **more) -> Spec:
    return Spec(name, ("true",), "ada", **more)


def submit(queue: Queue, spec: Spec) -> Entry:
    return queue.submit(spec, S, (), EMPTY, 1000)


POWER = ClusterPower(Budget(1000.0), usable=frozenset({"n0", "n1", "n2"}))


def test_what_others_have_is_not_ours():
    queue = Queue()
    submit(queue, job("a"))
    queue.begin("a", (Part("n0"),))
    used = EMPTY.copy()
    foreign = Held("slurm-1", (Part("n0"),), 300)
    assert in_use(used, queue.active(), [foreign]) == ["a"]
    assert used.total_w == 500
    used = EMPTY.copy()
    assert in_use(used, queue.active(), []) == []
    assert used.jobs_of("n0") == ["a"]


def test_what_runs_on_a_node_that_was_taken_out_keeps_its_other_nodes():
    fewer = Resources([Node("n0", 100, 400, cores=4), Node("n2", 100, 400, cores=2)])
    both = (Part("n0"), Part("n1"))
    queue = Queue()
    submit(queue, job("ours", nodes=2, guaranteed_w=250.0))
    queue.begin("ours", both)
    used = fewer.copy()
    assert in_use(used, queue.active(), []) == ["ours"]  # not given yet: it is planned anew
    queue.given("ours", both)
    for held in ([], [Held("ours", both, 250.0)]):
        used = fewer.copy()
        assert in_use(used, queue.active(), held) == []
        assert (used.jobs_of("n0"), used.jobs_of("n2"), used.total_w) == (["ours"], [], 350)


def test_the_first_job_starts_and_the_others_get_their_reason():
    queue = Queue()
    for name in ("a", "b"):
        submit(queue, job(name, hosts=("n0",)))
    ((start, _),) = plan_starts(queue, EMPTY.copy(), POWER, 2 * S, ())
    assert (start.job, start.parts) == ("a", (Part("n0"),))
    assert "waits for" in queue.entries["b"].state.reason


def test_a_delayed_job_is_no_candidate():
    queue = Queue()
    submit(queue, job("a"))
    assert [one.spec.job for one in candidates(queue, 2 * S, ())] == ["a"]
    assert candidates(queue, 2 * S, {"a"}) == []


def test_when_the_budget_falls_the_last_start_waits_again():
    queue = Queue()
    for k in range(2):
        submit(queue, job(f"j{k}", guaranteed_w=300.0))
        queue.begin(f"j{k}", (Part(f"n{k}"),))
    assert fill(EMPTY.copy(), queue, [], 700.0, ()) == set()
    assert [queue.entries[f"j{k}"].state.state for k in range(2)] == [STARTING, STARTING]
    used = EMPTY.copy()
    assert fill(used, queue, [], 600.0, ()) == set()
    assert [queue.entries[f"j{k}"].state.state for k in range(2)] == [STARTING, WAITING]
    assert used.total_w == 500


def test_a_start_that_was_ordered_keeps_its_nodes_when_the_budget_falls():
    queue = Queue()
    submit(queue, job("a", guaranteed_w=300.0))
    queue.begin("a", (Part("n0"),))
    queue.given("a", (Part("n0"),))
    used = EMPTY.copy()
    assert fill(used, queue, [], 400.0, ()) == {"a"}
    assert used.jobs_of("n0") == ["a"]
    assert fill(EMPTY.copy(), queue, [], 400.0, {"a"}) == set()  # the job manager has it
