"""Replays through the live policies, of courses whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from sonde.core.errors import DataError, UsageError
from sonde.power.monitor.budget import NodeSeries
from sonde.power.recording.policy import policies
from sonde.power.recording.replay import replay
from sonde.power.stack.config import NodeLimits
from sonde.power.stack.telemetry import STALE_S

LIMITS = [NodeLimits("n1", 100, 400, 150), NodeLimits("n2", 100, 400, 150)]


def series(power: float, cap: float, seconds: int = 60) -> NodeSeries:
    t = np.arange(float(seconds))
    full = np.full(seconds, 1.0)
    return NodeSeries(t, power * full, cap * full, power * t, full)


def test_a_busy_and_an_idle_node_under_every_policy():
    nodes = {"n1": series(300, 400), "n2": series(110, 400)}
    told = {name: replay(nodes, LIMITS, 500.0, 1.0, name) for name in policies()}
    for name, one in told.items():
        assert one.max_sum_caps_w <= 500 * (1 + 1e-9), name
        assert one.node_s == pytest.approx(2 * 59)
    assert told["uniform"].short_s == pytest.approx(59)  # 250 W each: n1 lacks 50
    assert told["uniform"].short_j == pytest.approx(59 * 50)
    assert told["fair"].short_j == 0
    assert all(one.unsure_s == 0 for one in told.values())


def test_as_it_was_is_reported_beside():
    nodes = {"n1": series(249, 250), "n2": series(110, 250)}
    was = replay(nodes, LIMITS, 500.0, 1.0)
    assert (was.policy, was.max_sum_caps_w, was.short_s) == ("as it was", 500, 0)
    assert was.unsure_s == pytest.approx(59)  # n1 was at its cap: how much more it wanted nobody knows


def test_less_than_a_node_used_is_surely_too_little():
    nodes = {"n1": series(300, 300), "n2": series(110, 200)}
    told = replay(nodes, LIMITS, 400.0, 1.0, "uniform")
    assert told.short_j == pytest.approx(59 * 100)
    assert told.unsure_s == 0


def test_what_cannot_be_replayed():
    with pytest.raises(DataError) as refused:
        replay({"x": series(1, 1)}, LIMITS, 500.0, 1.0, "fair")
    assert refused.value.code == "power.nothing_to_replay"
    with pytest.raises(DataError):
        replay({"n1": series(1, 1, seconds=2)}, LIMITS, 500.0, 5.0, "fair")
    with pytest.raises(UsageError):
        replay({"n1": series(300, 400)}, LIMITS, 500.0, 1.0, "generous")


def part(of: NodeSeries, begin: int, end: int) -> NodeSeries:
    return NodeSeries(*(piece[begin:end] for piece in (of.t, of.power_w, of.cap_w, of.energy_j, of.leased)))


def test_a_node_that_went_wants_nothing_any_more():
    nodes = {"n1": series(300, 400, 1000), "n2": part(series(300, 400, 1000), 0, 100)}
    told = replay(nodes, LIMITS, 500.0, 1.0, "fair")
    assert told.node_s == pytest.approx(999 + 100, abs=STALE_S + 1)
    assert 0 < told.short_s < 2 * (100 + STALE_S + 10)  # 250 W each, while both want 300
    assert told.max_sum_caps_w <= 500 * (1 + 1e-9)


def test_a_node_that_came_late_does_not_hide_what_was_before():
    nodes = {"n1": series(300, 400, 1000), "n2": part(series(300, 400, 1000), 900, 1000)}
    told = replay(nodes, LIMITS, 500.0, 1.0, "fair")
    assert told.node_s == pytest.approx(999 + 99)
    assert told.short_s == pytest.approx(2 * 99, abs=10)
    was = replay(nodes, LIMITS, 500.0, 1.0)
    assert was.mean_lent_w == pytest.approx(440, abs=1)


def test_rare_reports_are_no_silence():
    rare = {
        name: NodeSeries(*(piece[::300] for piece in (s.t, s.power_w, s.cap_w, s.energy_j, s.leased)))
        for name, s in (("n1", series(300, 400, 3000)), ("n2", series(110, 400, 3000)))
    }
    assert replay(rare, LIMITS, 500.0, 10.0, "fair").node_s == pytest.approx(2 * 2700)
