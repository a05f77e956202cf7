"""The policies from Python. What they compute is tested in C++ (tests/native/power)."""

from __future__ import annotations

import math

import pytest

from sonde.core.errors import UsageError
from sonde.power.recording.policy import Node, Policy, policies


@pytest.mark.parametrize("name", policies())
def test_a_budget_is_held_and_used_by_every_policy(name):
    nodes = [
        Node(50, 400, power_w=390, cap_w=200, job=1),
        Node(50, 100, job=1),
        Node(60, 300, power_w=70, cap_w=100),
    ]
    caps = Policy(name).share(500, nodes)
    assert sum(caps) <= 500
    assert all(node.min_w <= cap <= node.max_w for node, cap in zip(nodes, caps, strict=True))
    assert sum(caps) > 300
    assert caps[0] > caps[2] or name == "uniform"


def test_fields_reach_the_policy_under_their_own_names():
    """Each field alone changes what a policy that looks at it gives."""
    plain = [Node(50, 400), Node(50, 400)]
    for name, fields in {
        "uniform": {"min_w": 200, "max_w": 90},
        "fair": {"guaranteed_w": 250, "weight": 3, "demand_w": 60, "power_w": 60},
    }.items():
        even = Policy(name).share(300, plain)
        assert even[0] == pytest.approx(even[1])
        for field, value in fields.items():
            caps = Policy(name).share(300, [Node(**{"min_w": 50, "max_w": 400, field: value}), plain[1]])
            assert not math.isclose(caps[0], caps[1]), field
    asks = Node(50, 400, power_w=150, cap_w=150, job=1)
    idle = Node(50, 400, power_w=80, cap_w=150)
    assert Policy("greedy", margin=0.5).share(300, [asks, idle])[1] == pytest.approx(120)
    late, early = (Node(50, 400, cap_w=150, iteration_s=s, job=1) for s in (2, 1))
    caps = Policy("slack").share(300, [late, early])
    assert caps[0] > 160
    assert sum(caps) == pytest.approx(300)


def test_no_nodes_have_no_caps():
    assert Policy("fair").share(100, []) == []


@pytest.mark.parametrize(
    ("name", "budget_w", "code"),
    [("fair", 99, "power.budget_too_small"), ("far", 900, "power.unknown_policy")],
)
def test_what_cannot_be_is_refused(name, budget_w, code):
    with pytest.raises(UsageError) as caught:
        Policy(name).share(budget_w, [Node(50, 400), Node(50, 400)])
    assert caught.value.code == code
