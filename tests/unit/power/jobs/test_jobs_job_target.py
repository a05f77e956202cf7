"""Meters, turns, and how a target leads to a demand."""

from __future__ import annotations

import math
import random

import pytest

from sonde.power.jobs.job_target import Meter, Steering, Turns, of_job, shares, steering_for
from sonde.power.jobs.jobs import Spec, Target
from sonde.power.stack.config import NodeLimits


def test_turns_are_counted_and_timed_from_line_to_line():
    turns = Turns()
    turns.take(b"\n", 100.0)
    assert math.isnan(turns.iteration_s)  # when the first began is not known
    turns.take(b"0.25\n0.5\n", 104.0)
    assert (turns.lines, turns.iteration_s, turns.progress) == (3, 2.0, 0.5)
    turns.take(b"0.7", 105.0)  # not a whole line yet
    assert turns.lines == 3
    turns.take(b"5\n", 106.0)
    assert (turns.lines, turns.iteration_s, turns.progress) == (4, 2.0, 0.75)


def test_a_node_may_say_how_long_it_worked_in_a_turn():
    turns = Turns()
    turns.take(b"0.1 1.5\n0.2 2.5\n", 100.0)
    assert (turns.progress, turns.own_s) == (0.2, 2.0)
    turns.take(b"0.3\n0.4 -1\n0.5 inf\n0.6 x\n0.7 1 1\n", 101.0)  # not said, or no time
    assert (turns.lines, turns.progress, turns.own_s) == (7, 0.5, 2.0)
    turns.take(b"0.9 4\n", 102.0)
    assert turns.own_s == 4.0


def test_what_is_no_share_is_a_turn_all_the_same():
    turns = Turns()
    turns.take(b"turn 1 done\n7\n-1\nnan\n", 1.0)
    assert turns.lines == 4
    assert math.isnan(turns.progress)


def test_a_file_without_line_ends_does_not_fill_the_memory():
    turns = Turns()
    for _ in range(100):
        turns.take(b"x" * 1000, 1.0)
    assert len(turns._rest) <= 1256


def test_the_slowest_node_tells():
    assert of_job([Turns(2, 1, 0.5, 2.0), Turns(2, 1, 0.4, 3.0)]) == (3.0, 0.4)
    assert all(math.isnan(value) for value in of_job([Turns()]))


def test_energy_is_what_counters_grew_by_and_a_counter_that_began_anew_takes_nothing_back():
    meter = Meter()
    meter.take("n1", 1000.0, 100.0, 1.0)
    assert (meter.energy_j, meter.power(["n1"])) == (0.0, 100.0)
    meter.take("n1", 1500.0, 120.0, 1.0)
    meter.take("n1", 20.0, 120.0, 1.0)  # its node manager was started anew
    meter.take("n1", 50.0, 120.0, 0.5)
    assert meter.energy_j == 500.0 + 15.0
    assert math.isnan(meter.power(["n1", "n2"]))
    meter.take("n2", math.nan, 80.0, 1.0)
    assert meter.power(["n1", "n2"]) == 140.0


def test_before_a_node_was_heard_first_it_drew_what_it_draws_then():
    meter = Meter()
    meter.take("n1", 5000.0, 100.0, 0.5, 2.0)
    assert meter.energy_j == 100.0
    meter.take("n1", 5100.0, 100.0, 0.5, 3.0)
    assert meter.energy_j == 150.0


def test_a_node_is_split_by_cores():
    assert shares({"n1": {"a": 3, "b": 1}, "n2": {"a": 0}}) == {
        "n1": {"a": 0.75, "b": 0.25},
        "n2": {"a": 1.0},
    }
    for node in shares({"n": {"a": 5, "b": 2, "c": 1}}).values():
        assert sum(node.values()) == pytest.approx(1.0)


def time_at(power_w: float, needs_w: float, dice: random.Random) -> float:
    """A loop that is held up by power below what it needs, and not helped by more."""
    return max(1.0, needs_w / power_w) * (1 + 0.002 * dice.gauss(0, 1))


@pytest.mark.parametrize("seed", range(40))
def test_power_is_given_back_and_the_time_stays_within_what_is_allowed(seed):
    dice = random.Random(seed)
    needs = dice.uniform(120, 380)
    slowdown = dice.choice([0.03, 0.05, 0.1, 0.2])
    steering, target = Steering(100.0, 400.0), Target(slowdown=slowdown)
    times, powers = [], []
    for _ in range(200):
        power = steering.demand_w
        assert 100.0 <= power <= 400.0
        times.append(time_at(power, needs, dice))
        powers.append(steering.look(target, times[-1]))
    late = times[100:]
    # A step down may go too far once; it is mended at the next look.
    assert sum(late) / len(late) <= (1 + slowdown) * 1.02
    least = needs / (1 + slowdown)
    assert least * 0.9 <= sum(powers[100:]) / 100 <= max(needs, least) + 0.1 * 300


def test_without_a_target_or_a_time_nothing_changes():
    steering = Steering(100.0, 400.0)
    assert steering.look(Target(), 1.0) == 400.0
    assert steering.look(Target(slowdown=0.1), math.nan) == 400.0


def test_steering_is_within_what_the_job_and_its_nodes_allow():
    limits = [NodeLimits("n1", 60, 400, 100), NodeLimits("n2", 80, 300, 100)]
    assert steering_for(Spec("a"), Target(), limits) is None
    assert steering_for(Spec("a"), Target(energy_j=5), []) is None  # none of its nodes is configured
    steering = steering_for(Spec("a"), Target(energy_j=5), limits)
    assert (steering.least_w, steering.most_w, steering.demand_w) == (80, 300, 300)
    steering = steering_for(Spec("a", guaranteed_w=150.0, demand_w=120.0), Target(slowdown=0.1), limits)
    assert (steering.least_w, steering.most_w) == (120, 120)


def test_a_time_that_is_to_be_kept_raises_what_is_too_low():
    steering = Steering(100.0, 400.0, demand_w=100.0)
    for _ in range(30):
        steering.look(Target(iteration_s=1.0), 300.0 / steering.demand_w)
    assert 300.0 / steering.demand_w <= 1.0


def test_energy_beyond_its_goal_lowers():
    steering, target = Steering(100.0, 400.0), Target(energy_j=1000.0)
    assert steering.look(target, math.nan, 600.0, 0.5) < 400.0  # 1200 J in the end
    before = steering.demand_w
    assert steering.look(target, math.nan, 400.0, 0.5) == before


def test_times_that_no_turn_has_are_not_added_up():
    """Each is a number, and their sum is none."""
    turns = Turns()
    turns.take(b"0.5 1.7e308\n0.5 1.7e308\n0.5 3\n", 1.0)
    assert (turns.lines, turns.own_s) == (3, 3.0)


def test_of_much_that_came_at_once_all_lines_are_counted_and_the_last_are_read():
    turns = Turns()
    turns.take(b"0.1\n", 1.0)
    turns.take(b"0.2 100\n" * 100_000 + b"0.3 1\n" * 10_000, 111_001.0)
    assert turns.lines == 110_001
    assert turns.iteration_s == pytest.approx(111_000 / 110_000)
    assert (turns.progress, turns.own_s) == (0.3, 1.0)
