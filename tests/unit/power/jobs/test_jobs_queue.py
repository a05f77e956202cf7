"""What may become of a job, and who may ask for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sonde.power.jobs import jobs
from sonde.power.jobs.entry import Entry, as_text
from sonde.power.jobs.jobs import (
    CANCELLED,
    ENDED,
    FAILED,
    HELD,
    RUNNING,
    STARTING,
    STOPPING,
    WAITING,
    Part,
    Run,
    Spec,
    to_plain,
)
from sonde.power.jobs.proof import of_spec
from sonde.power.jobs.queue import MARGIN_S, Queue
from sonde.power.jobs.resources import Node, Resources
from sonde.power.jobs.retention import Bounds
from sonde.power.jobs.schedule import Order, QueueRules, Usage
from sonde.power.jobs.submission import Refusal

S = 1_000_000_000
EMPTY = Resources([Node(f"n{k}", 100, 400, cores=4) for k in range(3)])
RULES = (
    QueueRules("short", 5, max_time_s=600, max_nodes=2, max_power_w=500),
    QueueRules("normal", 0, True, default_time_s=3600),
    QueueRules("own", 1, users=("ada",), groups=("wheel",)),
)


def made(**more) -> Queue:
    return Queue(RULES, Order(), Usage(1000), **more)


def job(number: str = "j", **more) -> Spec:
    return Spec(number, more.pop("command", ("true",)), "ada", **more)


def submit(queue: Queue, spec: Spec, now_ns: int = S, groups: tuple[str, ...] = ()) -> Entry:
    return queue.submit(spec, now_ns, groups, EMPTY, 1000)


def refusal(queue: Queue, spec: Spec, groups: tuple[str, ...] = ()) -> Refusal:
    with pytest.raises(Refusal) as no:
        submit(queue, spec, groups=groups)
    assert spec.job not in queue.entries or queue.entries[spec.job].digest != of_spec(spec)
    return no.value


def run_it(queue: Queue, name: str = "j", at_ns: int = 10 * S) -> None:
    queue.begin(name, (Part("n0"),))
    queue.given(name, (Part("n0"),))
    queue.take_run(Run(name, RUNNING, started_ns=at_ns), at_ns)


def state(queue: Queue, name: str = "j") -> str:
    return queue.entries[name].state.state


def test_a_job_that_is_sent_twice_is_one():
    queue = made()
    first = submit(queue, job())
    assert submit(queue, job(), 5 * S) == first
    assert len(queue.entries) == 1
    assert refusal(queue, job(nodes=2)).word == "other_job"
    run_it(queue)
    assert submit(queue, job()).state.state == RUNNING


def test_a_queue_gives_what_is_not_said():
    full = submit(made(), job()).spec
    assert (full.queue, full.limit_s, full.nodes) == ("normal", 3600, 1)
    assert full.grace_s == 10
    assert submit(made(grace_s=3.0), job()).spec.grace_s == 3
    assert submit(made(), job(queue="short")).spec.limit_s == 600
    assert submit(made(), job(hosts=("n0", "n1"))).spec.nodes == 2


def test_limits_of_queues_are_held():
    queue = made()
    nearest = refusal(queue, job(queue="shrot"))
    assert nearest.word == "no_queue"
    assert "nearest: short" in nearest.what
    for beyond in (
        job(queue="short", limit_s=601),
        job(queue="short", nodes=3),
        job(queue="short", nodes=2, guaranteed_w=251),
    ):
        assert refusal(queue, beyond).word == "above_limit"
    assert submit(queue, job(queue="short", limit_s=600, nodes=2, guaranteed_w=250))


def test_what_the_cluster_never_has_is_refused():
    queue = made()
    assert refusal(queue, job(nodes=4)).word == "above_limit"
    assert refusal(queue, job(cores=5)).word == "above_limit"
    assert refusal(queue, job(nodes=3, guaranteed_w=350)).word == "above_limit"  # 1050 W of 1000
    assert refusal(queue, job(hosts=("n9",))).word == "unknown_node"


def test_restricted_queues_are_for_whom_they_name():
    queue = made()
    other = replace(job("k", queue="own"), user="bob")
    denied = refusal(queue, other, ("users",))
    assert denied.word == "not_allowed"
    assert "members of wheel" in denied.what
    assert submit(queue, other, groups=("wheel",))
    assert submit(queue, job(queue="own"))


def test_so_many_wait_and_no_more():
    queue = made(max_waiting=2)
    submit(queue, job("a"))
    submit(queue, job("b"))
    assert refusal(queue, job("c")).word == "queue_full"
    run_it(queue, "a")
    assert submit(queue, job("c"))


def test_one_user_fills_no_queue(monkeypatch: pytest.MonkeyPatch):
    queue = made(max_waiting_user=2)
    for name in ("a", "b"):
        submit(queue, job(name))
    assert "of this user" in refusal(queue, job("c")).what
    assert submit(queue, replace(job("d"), user="bob"))
    queue = made()
    monkeypatch.setattr("sonde.power.jobs.queue.LARGEST_OF_USER", 15_000)
    monkeypatch.setattr("sonde.power.jobs.queue.LARGEST_OF_ALL", 40_000)
    large = ("X=" + "x" * 10_000,)
    submit(queue, replace(job("a"), environment=large))
    assert "ada's jobs" in refusal(queue, replace(job("b"), environment=large)).what
    many_small = replace(job("b"), environment=("X=",) * 200)
    assert refusal(queue, many_small).word == "queue_full"  # each word takes memory, also a short one
    submit(queue, replace(job("c"), user="bob", environment=large))
    assert "all jobs" in refusal(queue, replace(job("d"), user="eve", environment=large)).what
    run_it(queue, "a")  # what runs has its environment, and the scheduler needs it no more
    assert submit(queue, replace(job("d"), user="eve", environment=large))


def test_each_node_gets_a_job_s_environment():
    large = ("X=" + "x" * 100_000,)
    no = refusal(made(), job(nodes=1000, environment=large))
    assert (no.word, "copied to 1000 nodes" in no.what) == ("bad_job", True)
    assert submit(made(), job(nodes=3, environment=large))


@pytest.mark.parametrize("name", ["on:n1", "on:", "slurm-17"])
def test_no_job_is_called_as_sonde_calls_shared_nodes_or_jobs_of_slurm(name):
    no = refusal(made(), job(name))
    assert (no.word, "choose another id" in no.what) == ("bad_job", True)
    assert submit(made(), job("slurm-17a"))


def test_a_job_that_is_over_has_what_is_shown_of_it():
    queue = made()
    spec = job(environment=("SECRET=1",), command=("true", *["x" * 100] * 5000))
    first = submit(queue, spec)
    queue.cancel("j", "ada", 2 * S)
    over = queue.entries["j"]
    assert over.spec.environment == ()
    assert over.spec.command[:2] == ("true", "x" * 100)
    assert over.spec.command[-1] == "[cut: 5001 words, 500004 characters]"
    assert over.state.size_b < 10_000 < first.state.size_b
    assert submit(queue, spec) == over  # it is still the same submission
    assert refusal(queue, replace(spec, environment=())).word == "other_job"


def over_jobs(queue: Queue, user: str, count: int, at_s: int, command: str = "true") -> None:
    for k in range(count):
        submit(queue, replace(job(f"{user}{k}", command=(command,)), user=user))
        queue.cancel(f"{user}{k}", user, (at_s + k) * S)


def test_the_oldest_jobs_of_who_has_most_are_forgotten_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sonde.power.jobs.queue.OVER", Bounds(10, 16, 1 << 20, 1 << 20))
    queue = made()
    over_jobs(queue, "bob", 4, at_s=10)
    over_jobs(queue, "eve", 3, at_s=20)
    over_jobs(queue, "ada", 11, at_s=30)
    gone = queue.forget_surplus()
    assert [one.state.job for one in gone] == ["ada0", "ada1"]  # 9 are left: an eighth less than 10
    assert queue.forget_surplus() == []
    assert (queue.forgotten, queue.gone) == (2, {"ada0", "ada1"})
    over_jobs(queue, "dan", 1, at_s=60)
    assert {one.spec.user for one in queue.forget_surplus()} == {"ada"}
    assert len(queue.entries) == 14
    assert {f"bob{k}" for k in range(4)} < set(queue.entries)
    submit(queue, job("ada0"))  # the id is free again
    assert "ada0" not in queue.gone


def test_what_is_over_has_a_bound_in_bytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sonde.power.jobs.queue.OVER", Bounds(1000, 1000, 50_000, 1 << 20))
    queue = made()
    over_jobs(queue, "ada", 30, at_s=10, command="x" * 1000)
    assert queue.forget_surplus()
    assert sum(one.state.size_b for one in queue.entries.values()) <= 50_000
    assert len(queue.entries) > 5


def test_what_is_still_to_be_given_back_is_not_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sonde.power.jobs.queue.OVER", Bounds(1, 1, 1 << 20, 1 << 20))
    queue = made()
    for name in ("a", "b"):
        submit(queue, job(name))
        run_it(queue, name)
        queue.take_run(Run(name, ENDED, ended_ns=20 * S, exit_status=0), 20 * S)
    assert queue.forget_surplus() == []
    for name in ("a", "b"):
        queue.cleaned(name)
    assert queue.forget_surplus() == []  # its user is still to be charged
    queue.charge(30 * S, {})
    assert [one.state.job for one in queue.forget_surplus()] == ["a"]


def test_what_could_not_be_stored_counts_as_before(monkeypatch: pytest.MonkeyPatch):
    queue = made(max_waiting_user=2)
    submit(queue, job("a"))
    before = queue.snapshot()
    submit(queue, job("b"))
    queue.cancel("a", "ada", S)
    queue.restore(before)
    assert list(queue.entries) == ["a"]
    submit(queue, job("c"))
    assert refusal(queue, job("d")).word == "queue_full"


def test_a_queue_of_before_is_shortened_where_it_is_read():
    spec = job(environment=("SECRET=1",))
    row = as_text(submit(made(), spec))
    del row["digest"]
    row["sent"], row["state"]["state"] = to_plain(spec), CANCELLED
    one = Entry.of(row)
    assert (one.spec.environment, one.digest) == ((), of_spec(spec))


def test_a_job_runs_and_ends():
    queue = made()
    submit(queue, job())
    assert state(queue) == WAITING
    queue.begin("j", (Part("n1"),))
    assert state(queue) == STARTING
    queue.given("j", (Part("n0"),))
    queue.take_run(Run("j", STARTING), 9 * S)
    assert state(queue) == STARTING
    queue.take_run(Run("j", RUNNING, started_ns=10 * S), 11 * S)
    one = queue.entries["j"].state
    assert (one.state, one.started_ns, one.parts) == (RUNNING, 10 * S, (Part("n0"),))
    queue.take_run(Run("j", ENDED, ended_ns=20 * S, exit_status=0), 30 * S)
    assert (state(queue), queue.entries["j"].state.ended_ns) == (ENDED, 20 * S)
    assert [one.state.job for one in queue.to_clean()] == ["j"]
    queue.cleaned("j")
    assert not queue.to_clean()
    over = queue.entries["j"]
    for late in (Run("j", RUNNING), Run("j", ENDED, ended_ns=40 * S, exit_status=9)):
        queue.take_run(late, 40 * S)
        assert queue.entries["j"] == over


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (Run("j", ENDED, exit_status=3), "exit status 3"),
        (Run("j", ENDED, signal=9), "signal 9"),
        (Run("j", FAILED, "no such file"), "no such file"),
    ],
)
def test_a_job_that_fails_says_how(run, why):
    queue = made()
    submit(queue, job())
    run_it(queue)
    queue.take_run(run, 20 * S)
    assert state(queue) == FAILED
    assert why in queue.entries["j"].state.reason


def test_what_others_say_fits_its_field():
    queue = made()
    submit(queue, job())
    queue.set_reasons({"j": "ü" * 5000}, {}, {})
    assert 900 < len(queue.entries["j"].state.reason.encode()) <= 1024
    run_it(queue)
    queue.take_run(Run("j", FAILED, "ü" * 5000), 20 * S)
    assert 900 < len(queue.entries["j"].state.reason.encode()) <= 1024


def test_a_job_is_cancelled_at_once_unless_it_may_run():
    queue = made()
    submit(queue, job("a"))
    assert queue.cancel("a", "ada", 2 * S).state.state == CANCELLED
    assert queue.entries["a"].clean
    submit(queue, job("b"))
    queue.begin("b", (Part("n0"),))
    assert queue.cancel("b", "ada", 2 * S).state.state == CANCELLED
    assert not queue.entries["b"].clean  # nodes may have been given
    submit(queue, job("c"))
    run_it(queue, "c")
    assert queue.cancel("c", "ada", 2 * S).state.state == STOPPING
    queue.take_run(Run("c", RUNNING), 11 * S)
    assert state(queue, "c") == STOPPING
    queue.take_run(Run("c", ENDED, signal=15), 12 * S)
    assert state(queue, "c") == CANCELLED
    assert "cancelled by ada" in queue.entries["c"].state.reason
    assert queue.cancel("c", "ada", 20 * S).state.ended_ns == 12 * S


def test_a_job_whose_time_is_over_is_stopped_and_has_failed():
    queue = made()
    submit(queue, job(limit_s=5))
    run_it(queue, at_ns=10 * S)
    late = 5 + MARGIN_S
    assert not queue.over_time(15 * S - 1, {"j": late})  # a clock that was set back
    assert not queue.over_time(3600 * S, {"j": late - 0.1})  # and one that was set forward
    assert not queue.over_time(3600 * S, {})
    assert [one.state.job for one in queue.over_time(15 * S, {"j": late})] == ["j"]
    assert not queue.over_time(16 * S, {"j": late + 1})
    queue.take_run(Run("j", ENDED, signal=15), 17 * S)
    assert state(queue) == FAILED
    assert "time limit was reached" in queue.entries["j"].state.reason


def test_only_its_user_and_operators_may_touch_a_job():
    queue = made()
    submit(queue, job())
    for order in (queue.hold, queue.release, lambda job, user: queue.cancel(job, user, S)):
        with pytest.raises(Refusal) as no:
            order("j", "bob")
        assert no.value.word == "not_allowed"
    assert queue.hold("j", "root").state.state == HELD
    assert not queue.waiting(S)
    assert queue.hold("j", "ada").state.state == HELD
    assert queue.release("j", "ada").state.state == WAITING
    assert [one.spec.job for one in queue.waiting(S)] == ["j"]
    run_it(queue)
    for order in (queue.hold, queue.release):
        with pytest.raises(Refusal) as no:
            order("j", "ada")
        assert no.value.word == "wrong_state"
    with pytest.raises(Refusal) as no:
        queue.cancel("jj", "ada", S)
    assert no.value.word == "no_job"
    assert "nearest: j" in no.value.what


def test_what_may_have_been_started_does_not_wait_again():
    queue = made()
    submit(queue, job())
    queue.begin("j", (Part("n0"),))
    assert queue.back("j", "why").state.state == WAITING
    queue.begin("j", (Part("n0"),))
    queue.given("j", (Part("n0"),))
    assert queue.back("j", "why").state.state == STARTING
    assert queue.lost("j", 5 * S).state.state == FAILED


def test_priority_fairness_and_age_order_jobs():
    queue = made()
    queue.usage.add("ada", 1e6, 1e6)
    submit(queue, job("normal"))
    submit(queue, job("short", queue="short"))
    submit(queue, replace(job("bob"), user="bob"))
    scores = {one.spec.job: one.score for one in queue.waiting(S)}
    assert scores["short"] > scores["bob"] > scores["normal"]
    later = {one.spec.job: one.score for one in queue.waiting(S + 86400 * S)}
    assert later["bob"] > scores["bob"] + 0.9


def test_users_are_charged_once_for_what_they_had():
    queue = made()
    submit(queue, job(demand_w=200.0))
    run_it(queue, at_ns=10 * S)
    queue.charge(14 * S, {"n0": 4})
    queue.charge(14 * S, {"n0": 4})
    had = queue.usage.had["ada"]
    assert had == pytest.approx((4, 800), rel=0.02)
    queue.take_run(Run("j", ENDED, ended_ns=20 * S, exit_status=0, energy_j=5000), 30 * S)
    queue.charge(30 * S, {"n0": 4})
    queue.charge(40 * S, {"n0": 4})
    nodes, energy = queue.usage.had["ada"]
    assert 9.5 < nodes < 10
    assert 5400 < energy < 5900  # what was measured besides what was estimated until then
    part = made()
    submit(part, job("p", cores=1))
    part.begin("p", (Part("n0", False, (2,)),))
    part.given("p", (Part("n0", False, (2,)),))
    part.take_run(Run("p", RUNNING, started_ns=10 * S), 10 * S)
    part.charge(18 * S, {"n0": 4})
    assert part.usage.had["ada"][0] == pytest.approx(2)


def test_a_clock_that_was_set_back_leaves_nobody_uncharged():
    queue = made()
    submit(queue, job())
    run_it(queue, at_ns=1000 * S)
    queue.charge(1010 * S, {})
    queue.charge(400 * S, {})  # set back by 610 s, and nothing is charged twice
    assert (queue.usage.had["ada"][0], queue.usage.at_s) == (pytest.approx(10), 400)
    queue.charge(420 * S, {})
    assert queue.usage.had["ada"][0] == pytest.approx(30, rel=0.02)
    queue.take_run(Run("j", ENDED, ended_ns=430 * S, exit_status=0), 430 * S)
    queue.charge(430 * S, {})
    queue.charge(2000 * S, {})
    assert queue.usage.had["ada"][0] == pytest.approx(40 * 0.5**1.57, rel=0.02)
    late = made()  # set back before it was charged for the first time
    submit(late, job())
    run_it(late, at_ns=1000 * S)
    late.set_back(400 * S)
    late.charge(425 * S, {})
    assert late.usage.had["ada"][0] == pytest.approx(25)


def test_a_start_that_was_refused_waits_again_and_has_nothing():
    queue = made()
    submit(queue, job())
    assert queue.refused("j", "why").state.state == WAITING
    queue.begin("j", (Part("n0"),))
    queue.given("j", (Part("n0"),))
    one = queue.refused("j", "the disk is full")
    assert (one.state.state, one.state.reason, one.state.parts, one.asked) == (
        WAITING,
        "the disk is full",
        (),
        False,
    )
    run_it(queue)
    assert queue.refused("j", "late").state.state == RUNNING


def test_what_a_name_drew_before_is_foretold_and_no_guarantee():
    queue = made()
    for number, energy in enumerate((1000.0, 3000.0)):
        name = f"j{number}"
        submit(queue, job(name, name="lbm"))
        run_it(queue, name, 10 * S)
        queue.take_run(Run(name, ENDED, ended_ns=20 * S, exit_status=0, energy_j=energy), 20 * S)
    spec = submit(queue, job("next", name="lbm")).spec
    assert (spec.demand_w, spec.guaranteed_w) == (300, 0)
    assert submit(queue, job("other", name="cfd")).spec.demand_w == 0
    assert submit(queue, job("mine", name="lbm", demand_w=250.0)).spec.demand_w == 250


def test_jobs_that_are_over_are_forgotten_when_they_are_clean():
    queue = made()
    submit(queue, job())
    run_it(queue)
    queue.take_run(Run("j", ENDED, ended_ns=20 * S, exit_status=0), 20 * S)
    assert queue.forget(21 * S) == []
    queue.cleaned("j")
    assert queue.forget(20 * S) == []
    assert queue.forget(21 * S) == ["j"]
    assert not queue.entries


def test_what_is_kept_comes_back_as_it_was():
    queue = made()
    submit(queue, job(cores=1))
    run_it(queue)
    again = Queue(RULES, entries={"j": Entry.of(as_text(queue.entries["j"]))})
    assert again.entries == queue.entries
    assert again.next_number == 2


def test_states_are_those_of_the_face():
    assert set(jobs.OVER) == {ENDED, FAILED, CANCELLED}
    assert not set(jobs.OVER) & set(jobs.ACTIVE)
