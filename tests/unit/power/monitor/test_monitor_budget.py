"""Whether a budget was held: by hand-made reports whose answer is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from recordings import S, report, steady

from sonde.power.monitor.budget import Step, cluster_series, gained, held, node_series
from sonde.power.stack.telemetry import ClusterSample, NodeSample


def judged(samples, ended=None):
    return held(
        node_series(s for s in samples if isinstance(s, NodeSample)),
        cluster_series(s for s in samples if isinstance(s, ClusterSample)),
        ended,
    )


def test_what_is_held_is_said_to_be():
    told = judged(steady())
    assert (told.budget_w, told.max_sum_caps_w, told.max_power_w) == (600, 500, 400)
    assert (told.violations, told.violation_s, told.unknown_s, told.over_budget_s) == (0, 0, 0, 0)
    assert (told.nodes, told.reports, told.seconds) == (2, 40, 19)
    assert told.energy_j == pytest.approx(400 * 19)
    assert math.isnan(told.failover_s)


def test_caps_that_stay_above_it_are_a_violation():
    told = judged(steady(caps=(350.0, 300.0)))
    assert told.violations == 1
    assert told.violation_s == pytest.approx(19)
    assert told.max_sum_caps_w == 650


def with_cap(samples, node, caps):
    """The same with other caps of a node, one for each of its reports."""
    left = iter(caps)
    return [
        NodeSample(s.node, s.at_ns, s.period_s, s.source, s.power_w, s.energy_j, next(left), leased=True)
        if isinstance(s, NodeSample) and s.node == node
        else s
        for s in samples
    ]


def test_a_change_between_two_reports_may_have_been_in_either_order():
    # n1 falls by 200 while n2 rises by 200, in the same second: whether the sum was 700 or 300 in between nobody knows.
    samples = with_cap(steady(caps=(300.0, 100.0), budget_w=550), "n1", [400.0] * 10 + [200.0] * 10)
    samples = with_cap(samples, "n2", [100.0] * 10 + [300.0] * 10)
    told = judged(samples)
    assert told.violations == 0
    assert told.unknown_s == pytest.approx(1)
    assert told.max_sum_caps_w == 500
    assert told.max_possible_w == 700


def test_who_says_since_when_leaves_no_doubt_about_the_order():
    # n1 falls by 200 in the middle of a second, and n2 rises by 200 a little later: both say when.
    def told_with(fell_s: float, rose_s: float):
        samples = with_cap(steady(caps=(300.0, 100.0), budget_w=550), "n1", [400.0] * 10 + [200.0] * 10)
        samples = with_cap(samples, "n2", [100.0] * 10 + [300.0] * 10)
        since = {"n1": int(fell_s * S), "n2": int(rose_s * S)}
        return judged(
            [
                replace(s, cap_since_ns=since[s.node] if s.at_ns >= 10 * S else 1)
                if isinstance(s, NodeSample)
                else s
                for s in samples
            ]
        )

    told = told_with(9.4, 9.5)
    assert (told.violations, told.unknown_s) == (0, 0)
    assert told.max_possible_w == 500
    # The other way about it was above for as long as that, which is less than reports are apart.
    told = told_with(9.5, 9.4)
    assert (told.violations, told.unknown_s) == (0, pytest.approx(0.1))
    assert told.max_possible_w == 700
    # A time that cannot be, of a clock that was set, is none.
    assert told_with(12.0, 9.5).unknown_s == pytest.approx(0.5)


def test_what_a_new_manager_does_not_know_is_distinguished_and_is_no_compliance():
    samples = [s for s in steady() if not isinstance(s, ClusterSample)]
    for k in range(20):
        new = k >= 10
        samples.append(
            report(
                k * S,
                manager="m2" if new else "m1",
                epoch=2 if new else 1,
                budget_w=600.0 if k < 12 else 550.0,
                committed_w=500.0,
                unknown_nodes=1 if 10 <= k < 14 else 0,
                unknown_w=300.0 if 10 <= k < 14 else 0.0,
            )
        )
    told = judged(samples)
    assert (told.max_committed_w, told.max_unknown_w) == (500, 300)
    assert told.violations == 0
    # Nobody knew that the lower budget was held before all nodes were known.
    assert told.comply_s == pytest.approx(2)


def test_one_report_above_it_is_not_known_and_two_are_a_violation():
    once = judged(with_cap(steady(), "n1", [250.0] * 10 + [500.0] + [250.0] * 9))
    assert (once.violations, once.unknown_s) == (0, pytest.approx(2))
    twice = judged(with_cap(steady(), "n1", [250.0] * 10 + [500.0] * 2 + [250.0] * 8))
    assert twice.violations == 1


def test_reports_that_are_rarer_than_decisions_judge_nothing():
    samples = [s if isinstance(s, NodeSample) else None for s in steady(caps=(350.0, 300.0))]
    samples = [s for s in samples if s] + [report(k * S, period_s=0.2) for k in range(20)]
    told = judged(samples)
    assert told.violations == 0
    assert told.unknown_s == pytest.approx(19)


def test_power_above_the_budget_is_counted_by_time():
    samples = steady()
    for k, one in enumerate(samples):
        if isinstance(one, NodeSample) and one.node == "n1" and 5 * S <= one.at_ns < 8 * S:
            samples[k] = NodeSample(
                "n1", one.at_ns, 1.0, "simulated", 450.0, one.energy_j, 250.0, leased=True
            )
    assert judged(samples).over_budget_s == pytest.approx(3)


def test_a_lower_budget_is_no_violation_while_what_was_lent_is_called_back():
    samples = [s for s in steady() if not isinstance(s, ClusterSample)]
    samples = with_cap(samples, "n1", [250.0] * 13 + [150.0] * 7)
    for k in range(20):
        committed = 500.0 if k < 13 else 400.0
        samples.append(report(k * S, budget_w=600.0 if k < 10 else 400.0, committed_w=committed))
    told = judged(samples)
    assert told.violations == 0
    assert told.comply_s == pytest.approx(3)
    assert told.budget_w == 400


def test_a_lower_budget_that_is_never_held_is_a_violation_of_nothing_but_said():
    samples = [s for s in steady() if not isinstance(s, ClusterSample)]
    samples += [report(k * S, budget_w=600.0 if k < 10 else 400.0, committed_w=400.0) for k in range(20)]
    told = judged(samples)  # the manager says that it has all back, and nodes say otherwise
    assert told.violations == 1
    assert told.comply_s == 0


def test_takeovers():
    samples = [report(k * S) for k in range(5)]
    samples += [report(k * S, manager="m2", epoch=2) for k in range(9, 12)]
    (one,) = judged(samples).failovers
    assert (one.before, one.after, one.epoch, one.gap_s) == ("m1", "m2", 2, 5)
    (one,) = judged(samples, {"m1": 6.5}).failovers  # it was seen to end later than it was last heard
    assert one.gap_s == 2.5


def test_who_leads_again_under_a_new_epoch_is_no_takeover():
    samples = [report(k * S) for k in range(5)] + [report(k * S, epoch=2) for k in range(5, 9)]
    assert judged(samples).failovers == ()


def test_nothing_heard_is_nothing_judged():
    told = judged([])
    assert math.isnan(told.max_sum_caps_w)
    assert told.violations == 0


def test_counters_that_begin_again():
    assert gained(np.array([5.0, 8.0, math.nan, 1.0, 3.0])) == 6
    assert math.isnan(gained(np.array([5.0])))


def test_steps():
    step = Step(np.array([1.0, 2.0]), np.array([10.0, 20.0]))
    assert step.at(np.array([0.5, 1.0, 1.9, 5.0])).tolist()[1:] == [10, 10, 20]
    assert math.isnan(step.at(np.array([0.5]))[0])


def test_a_clock_that_was_set_back_adds_no_energy():
    samples = [
        replace(s, at_ns=s.at_ns - 5 * S) if isinstance(s, NodeSample) and s.at_ns >= 12 * S else s
        for s in steady()
    ]
    assert judged(samples).energy_j == pytest.approx(400 * 19)
    assert gained(np.array([1e9, 1e9 + 3, 1e9 + 1, 1e9 + 4])) == 4
    assert gained(np.array([1e9, 1e9 + 3, 5.0, 9.0])) == 12


@pytest.mark.parametrize(
    "of", [steady(1), [replace(s, energy_j=math.nan) for s in steady() if isinstance(s, NodeSample)]]
)
def test_energy_that_nobody_told_is_not_known_and_not_none(of):
    assert math.isnan(judged(of).energy_j)


def test_a_cap_that_only_the_last_report_tells_lasted_for_no_time():
    samples = [s for s in steady() if not isinstance(s, NodeSample) or s.node == "n1"]
    samples = with_cap(samples, "n1", [250.0] * 19 + [700.0])
    told = judged(samples)
    assert (told.violations, told.max_sum_caps_w, told.max_possible_w) == (0, 250, 700)
    assert judged(samples[-3:]).max_sum_caps_w == 700  # of one report alone it is what there is
