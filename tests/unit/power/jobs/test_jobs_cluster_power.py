"""What the system manager reports of the cluster's power."""

from __future__ import annotations

import math
from typing import Any

from sonde.power.jobs.cluster_power import ClusterPower

CLUSTER = {
    "budget_w": 800.0,
    "restored_w": math.nan,
    "shed_left_s": 0.0,
    "committed_w": 600.0,
    "manager": "m",
    "epoch": 3,
    "state": "active",
}
NODES = [
    {"node": "n0", "heard": True, "trouble": "", "committed_w": 100.0, "job": "a"},
    {"node": "n1", "heard": True, "trouble": "above its lease", "committed_w": 300.0, "job": ""},
    {"node": "n2", "heard": False, "trouble": "", "committed_w": 400.0, "job": ""},
]


def answer(**cluster: Any) -> dict[str, Any]:
    return {"cluster": {**CLUSTER, **cluster}, "nodes": NODES}


def test_nodes_that_may_draw_more_than_they_should_count_at_the_most():
    power = ClusterPower.of(answer(), 50.0)
    assert power.usable == {"n0", "n1"}
    assert power.at_least_w == {"n1": 300.0, "n2": 400.0}
    assert power.managed == {"n0", "n1", "n2"}
    assert power.shares == {"a"}
    assert (power.budget.now_w, power.budget.later_s, power.manager) == (800.0, math.inf, "m#3#active")


def test_power_that_is_shed_comes_back():
    budget = ClusterPower.of(answer(restored_w=1000.0, shed_left_s=20.0), 50.0).budget
    assert (budget.at(60.0), budget.at(70.0)) == (800.0, 1000.0)


def test_a_manager_that_observes_has_no_shares_to_end():
    power = ClusterPower.of(answer(state="observing"), 50.0)
    assert (power.observes, power.shares) == (True, frozenset())


def test_without_an_answer_nothing_may_start():
    power = ClusterPower.of(answer(), 50.0).unanswered()
    assert math.isnan(power.budget.now_w)
    assert power.usable == frozenset()
    assert power.managed == {"n0", "n1", "n2"}
