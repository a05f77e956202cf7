"""Jumps over sizes and over time: found where they were put, and nowhere else."""

import numpy as np
import pytest

from sonde.net.jumps import breaks, machine_events, pair_jumps, size_jumps
from sonde.net.pairs import pairs_of
from sonde.net.synthetic import Network

SIZES = tuple(range(0, 1000, 50))


def delays(jump_at: int | None = None, height: float = 0.5e-6, slope_after: float = 1e-9, seed: int = 0):
    size = np.array(SIZES)
    truth = 1e-6 + 1e-9 * size
    if jump_at is not None:
        truth = np.where(size >= jump_at, truth + height + (slope_after - 1e-9) * (size - jump_at), truth)
    noise = np.random.default_rng(seed).normal(1, 0.01, len(size))
    return size, truth * noise, 0.015 * truth


def test_a_jump_is_found_at_its_size():
    assert breaks(*delays(500)) == [10]


def test_a_change_of_slope_is_found_near_its_size():
    found = breaks(*delays(500, height=0.0, slope_after=6e-9))
    assert len(found) == 1
    assert abs(found[0] - 10) <= 1


def test_a_straight_line_has_no_break():
    false = sum(bool(breaks(*delays(None, seed=k))) for k in range(200))
    assert false <= 6


def test_one_odd_size_is_no_break():
    size, delay, error = delays(None)
    delay[7] *= 1.5
    error[7] *= 20
    assert breaks(size, delay, error) == []


@pytest.mark.parametrize("count", [0, 1, 4])
def test_few_sizes_have_no_break(count):
    assert breaks(np.arange(count), np.ones(count), np.ones(count)) == []


def test_sizes_over_many_decades():
    size = 2 ** np.arange(24)
    delay = 1e-6 + 1e-10 * size + 2e-6 * (size > 65536)
    assert breaks(size, delay, 0.02 * delay) == [17]


def test_eager_limit_of_all_pairs_is_the_networks():
    net = Network(ranks=12, sizes=SIZES, eager_limit=475)
    pairs = pairs_of(net.summary(20, np.random.default_rng(1)))
    found = size_jumps(pairs, np.zeros(len(pairs), int))
    assert [(j.size_low, j.size_high) for j in found] == [(450, 500)]
    assert found[0].share > 0.9
    assert found[0].height == pytest.approx(1e-6, rel=0.3)
    assert found[0].p < 1e-6


def test_no_jump_in_a_plain_network():
    rng = np.random.default_rng(2)
    false = 0
    for _ in range(20):
        pairs = pairs_of(Network(ranks=8, sizes=SIZES).summary(20, rng))
        false += bool(size_jumps(pairs, np.zeros(len(pairs), int)))
    assert false <= 1


def test_a_jump_of_one_pair_is_reported_with_the_pair():
    summary = Network(ranks=8, sizes=SIZES, regime_share=0.0).summary(20, np.random.default_rng(3))
    for name in ("median", "median_low", "median_high"):
        summary[name][2, 6, 12:] *= 1.6
        summary[name][6, 2, 12:] *= 1.6
    pairs = pairs_of(summary)
    classes = np.zeros(len(pairs), int)
    assert size_jumps(pairs, classes) == []
    found = pair_jumps(pairs, np.arange(len(pairs)), [], classes)
    assert {(j.src, j.dst, j.size_high) for j in found} == {(2, 6, 600)}


def test_missing_sizes_are_left_out():
    summary = Network(ranks=6, sizes=SIZES, eager_limit=475).summary(20, np.random.default_rng(4))
    summary["median"][:, :, 3] = np.nan
    summary["median"][1, 2] = np.nan
    pairs = pairs_of(summary)
    found = size_jumps(pairs, np.zeros(len(pairs), int))
    assert [j.size_high for j in found] == [500]


def test_all_sizes_missing_but_few():
    summary = Network(ranks=6, sizes=SIZES).summary(20, np.random.default_rng(4))
    summary["median"][:, :, 4:] = np.nan
    pairs = pairs_of(summary)
    assert size_jumps(pairs, np.zeros(len(pairs), int)) == []


def levels(event: int | None, cells: int = 40, epochs: int = 30, seed: int = 0):
    rng = np.random.default_rng(seed)
    level = rng.normal(0, 0.05, (cells, epochs)) + rng.normal(-13, 1, (cells, 1))
    if event is not None:
        level[:, event:] += np.log(1.3)
    t = np.arange(epochs) * 2.0 + rng.uniform(0, 2, (cells, epochs))
    return level, t


def test_an_event_of_the_whole_machine_is_found_with_its_time():
    found = machine_events(*levels(12))
    assert [e.epoch for e in found] == [12]
    assert found[0].t == pytest.approx(25, abs=2)
    assert found[0].ratio == pytest.approx(1.3, rel=0.05)
    assert found[0].share > 0.9


def test_a_change_in_a_few_cells_is_no_event():
    level, t = levels(None)
    level[:10, 12:] += np.log(3)
    assert machine_events(level, t) == []


def test_quiet_machines_have_no_event():
    assert sum(bool(machine_events(*levels(None, seed=k))) for k in range(100)) == 0


def test_events_with_missing_epochs_and_few_epochs():
    level, t = levels(12)
    level[3, :20] = np.nan
    level[:, 5] = np.nan
    t[:, 5] = np.nan
    assert [e.epoch for e in machine_events(level, t)] == [12]
    assert machine_events(level[:, :6], t[:, :6]) == []
    assert machine_events(level[:1], t[:1]) == []
