"""What starts next: order, power, fairness, and backfill that delays nobody."""

from __future__ import annotations

import math
import random

import pytest

from sonde.power.jobs.jobs import Part, Spec
from sonde.power.jobs.resources import Node, Resources
from sonde.power.jobs.schedule import (
    Budget,
    Busy,
    Candidate,
    Order,
    QueueRules,
    Usage,
    ends_s,
    never,
    plan,
    score,
)


def cluster(nodes: int = 4) -> Resources:
    return Resources([Node(f"n{k}", 100, 400, cores=4) for k in range(nodes)])


def spec(job: str, nodes: int = 1, limit_s: float = 100, guaranteed_w: float = 0, **more) -> Spec:
    return Spec(job, nodes=nodes, limit_s=limit_s, guaranteed_w=guaranteed_w, **more)


def candidates(*specs: Spec) -> list[Candidate]:
    """In this order."""
    return [Candidate(one, 0.0, number) for number, one in enumerate(specs)]


def started(made) -> list[str]:
    return [start.job for start in made.starts]


RICH = Budget(1e6)


def test_the_higher_score_starts_first_and_of_equal_ones_who_came_first():
    waiting = [Candidate(spec("late"), 1, 2), Candidate(spec("early"), 1, 1), Candidate(spec("high"), 2, 3)]
    made = plan(waiting, [], cluster(2), RICH, 0)
    assert started(made) == ["high", "early"]
    assert "late" in made.reasons


def test_a_job_waits_for_power_and_starts_when_there_is_some():
    waiting = candidates(spec("a", guaranteed_w=300))
    made = plan(waiting, [], cluster(), Budget(599), 0)
    assert not made.starts
    assert made.reasons["a"] == "waits for power: it needs 200 W, 199 W of 599 W are left"
    assert started(plan(waiting, [], cluster(), Budget(600), 0)) == ["a"]


def test_two_jobs_of_one_plan_do_not_have_the_same_power_or_node():
    made = plan(candidates(spec("a", 1, 100, 300), spec("b", 1, 100, 300)), [], cluster(), Budget(600), 0)
    assert started(made) == ["a"]
    made = plan(candidates(spec("a", 3), spec("b", 3)), [], cluster(), RICH, 0)
    assert started(made) == ["a"]


def running(resources: Resources, *those: tuple[Spec, tuple[str, ...], float]) -> list[Busy]:
    for one, nodes, _ in those:
        resources.take(one.job, tuple(Part(node) for node in nodes), one.guaranteed_w)
    return [Busy(one.job, ends) for one, _, ends in those]


def test_a_short_job_starts_before_a_blocked_one_and_a_long_one_does_not():
    here = cluster()
    busy = running(here, (spec("r"), ("n0", "n1"), 50))
    made = plan(
        candidates(spec("big", 4, 100), spec("long", 1, 60), spec("short", 1, 50)), busy, here, RICH, 0
    )
    assert started(made) == ["short"]
    assert made.expected_s["big"] == 50
    assert "big, which comes first" in made.reasons["long"]


def test_a_long_job_starts_where_it_leaves_the_blocked_one_its_nodes():
    here = cluster()
    busy = running(here, (spec("r"), ("n0", "n1"), 50))
    made = plan(
        candidates(spec("big", 3, 100), spec("long", 1, 1000), spec("other", 1, 1000)), busy, here, RICH, 0
    )
    assert started(made) == ["long"]  # the second one would take what the blocked one needs


def test_a_long_job_starts_where_it_leaves_the_blocked_one_its_power():
    here = cluster()
    busy = running(here, (spec("r", guaranteed_w=300), ("n0",), 50))
    waiting = candidates(spec("big", 1, 100, 400), spec("hungry", 1, 1000, 200), spec("modest", 1, 1000, 100))
    made = plan(waiting, busy, here, Budget(700), 0)
    assert started(made) == ["modest"]
    assert made.reasons["big"].startswith("waits for power")
    assert "big" in made.reasons["hungry"]


def test_a_job_without_limit_is_no_filler_unless_it_leaves_room():
    here = cluster()
    busy = running(here, (spec("r", limit_s=0), ("n0", "n1"), math.inf))
    waiting = candidates(spec("big", 4), spec("endless", 1, 0), spec("short", 1, 10))
    made = plan(waiting, busy, here, RICH, 0)
    assert started(made) == ["short"]
    assert "big" not in made.expected_s


def test_who_can_never_start_at_this_budget_blocks_nobody():
    made = plan(candidates(spec("huge", 4, 100, 400), spec("small")), [], cluster(), Budget(800), 0)
    assert started(made) == ["small"]
    assert made.reasons["huge"].startswith("waits for power")


def test_what_was_shed_comes_back_and_is_counted_on():
    shed = Budget(500, 1600, 60)
    made = plan(
        candidates(spec("big", 1, 100, 400), spec("long", 4, 100), spec("short", 4, 50)),
        [],
        cluster(),
        shed,
        0,
    )
    assert started(made) == ["short"]
    assert made.expected_s["big"] == 60
    assert (shed.at(59), shed.at(60), Budget(500).at(1e9)) == (500, 1600, 500)


def test_running_jobs_keep_what_they_have_when_the_budget_falls_and_no_new_one_starts():
    here = cluster()
    busy = running(here, (spec("r", guaranteed_w=400), ("n0",), 50))
    made = plan(candidates(spec("a", 1, 10, 150), spec("free", 1, 10)), busy, here, Budget(500), 0)
    assert started(made) == ["free"]  # at its safe cap it costs nothing
    assert "0 W of 500 W" in made.reasons["a"]
    assert here.total_w == 700  # nothing of it was changed


def test_a_job_whose_time_is_over_is_expected_to_end_now():
    here = cluster(1)
    busy = running(here, (spec("r"), ("n0",), 50))
    made = plan(candidates(spec("a")), busy, here, RICH, 80)
    assert made.expected_s["a"] == 80


def test_grace_counts():
    assert ends_s(5, spec("a", limit_s=10, grace_s=3)) == 18
    assert ends_s(5, spec("a", limit_s=0)) == math.inf


def test_age_has_no_end_so_that_nobody_waits_for_ever():
    order = Order(fairness=1, age_s=100)
    assert score(5, 0, 1.0, order) == 6
    assert score(0, 601, 0.0, order) > score(5, 0, 1.0, order) > score(0, 599, 0.0, order)


def test_who_had_more_of_either_comes_later_and_it_is_forgotten_by_half():
    usage = Usage(1000)
    usage.add("ada", 100, 1e3)
    usage.add("bob", 10, 9e3)
    usage.add("eve", 10, 1e3)
    factors = {user: usage.factor(user, {}) for user in ("ada", "bob", "eve", "new")}
    assert factors["new"] == 1.0
    assert factors["eve"] > factors["ada"]
    assert factors["eve"] > factors["bob"]
    assert usage.factor("ada", {"ada": 10.0}) > factors["ada"]
    usage.to(1000)
    assert usage.had["ada"] == (50, 500)
    usage.to(500)  # a clock that was set back changes nothing, and time goes on from there
    assert usage.had["ada"] == (50, 500)
    usage.to(1500)
    assert usage.had["ada"] == (25, 250)
    usage.to(1e6)
    assert not usage.had


def test_queues_are_for_whom_they_name():
    assert QueueRules("q").allows("ada", ())
    named = QueueRules("q", users=("ada",), groups=("wheel",))
    assert named.allows("ada", ())
    assert named.allows("bob", ["x", "wheel"])
    assert not named.allows("bob", ["x"])


def test_what_can_never_be_is_reported_at_once():
    here = cluster()
    assert never(spec("a", 4, guaranteed_w=400), here, 1600) == ""
    assert "budget of 1.599 kW" in never(spec("a", 4, guaranteed_w=400), here, 1599)
    assert "5 nodes are requested, but only 4" in never(spec("a", 5), here, 1e6)
    assert "a node draws at most 400 W" in never(spec("a", guaranteed_w=401), here, 1e6)
    assert "no node n9" in never(spec("a", hosts=("n9",)), here, 1e6)
    racked = Resources([Node("n0", 100, 400, "r")], {"r": 200})
    assert "racks can never" in never(spec("a", guaranteed_w=300), racked, 1e6)


@pytest.mark.parametrize("seed", range(8))
def test_who_is_first_starts_no_later_than_was_foretold(seed):
    """Jobs come, run for at most their time, and go. Each reservation holds while its job stays the first."""
    chance = random.Random(seed)
    here, budget, now = cluster(6), Budget(1500), 0.0
    waiting: list[Candidate] = []
    ends: dict[str, tuple[float, float]] = {}  # at latest, in truth
    promised: tuple[str, float] | None = None
    number = filled = kept = 0
    begun: dict[str, float] = {}
    came: dict[str, float] = {}
    while now < 4000:
        while len(waiting) < 8:
            number += 1
            one = spec(
                f"j{number}",
                chance.choice((1, 1, 2, 3, 6)),
                chance.randint(5, 60),
                chance.choice((0, 120, 200, 350)) if number % 7 else 0,
                cores=chance.choice((0, 0, 2)),
            )
            if never(one, cluster(6), 1500):
                continue
            came[one.job] = now
            waiting.append(Candidate(one, -number, number))
        made = plan(waiting, [Busy(job, at) for job, (at, _) in ends.items()], here, budget, now)
        for start in made.starts:
            one = next(one.spec for one in waiting if one.spec.job == start.job)
            here.take(start.job, start.parts, one.guaranteed_w)
            assert here.total_w <= 1500 + 1e-6
            ends[start.job] = now + one.limit_s, now + chance.uniform(0.1, 1.0) * one.limit_s
            begun[start.job] = now
            if promised and start.job != promised[0]:
                filled += 1
        for job in started(made):
            if promised and job == promised[0]:
                assert now <= promised[1] + 1e-6
                promised, kept = None, kept + 1
        waiting = [one for one in waiting if one.spec.job not in begun]
        first = min(waiting, key=lambda one: one.number).spec.job
        if first in made.expected_s:
            if promised and promised[0] == first:
                assert made.expected_s[first] <= promised[1] + 1e-6
            promised = first, made.expected_s[first]
        now = min(at for _, at in ends.values())
        for job in [job for job, (_, at) in ends.items() if at <= now]:
            here.give_back(job)
            del ends[job]
    assert kept > 20
    assert filled > 20
    assert max(begun[job] - came[job] for job in begun) < 1000  # nobody starves
