"""Replaying rules over whole datasets: counts, savings and errors that are known beforehand."""

import json

import numpy as np
import pytest
import xarray as xr

from sonde.core.errors import DataError, UsageError
from sonde.core.rules import rules
from sonde.net.replay import LEAST_SAMPLES, replay_all
from sonde.net.synthetic import Network, raw_dataset

ALL = [rule.name for rule in rules()]


def constant(samples: int, value: float = 1e-6, burst: int = 10) -> xr.Dataset:
    """Two ranks, one size, every delay the same."""
    latency = np.full((2, 2, 1, samples), value)
    latency[[0, 1], [0, 1]] = np.nan
    epoch = np.broadcast_to(np.arange(samples) // burst, latency.shape)
    return raw_dataset((8,), latency, np.where(np.isfinite(latency), epoch, -1))


@pytest.fixture(scope="module")
def network() -> xr.Dataset:
    return Network(ranks=4, sizes=(8, 1024)).raw(40, 10, seed=3)


def test_fixed_takes_what_it_says_and_saves_the_rest():
    (said,) = replay_all(constant(400), ["fixed:100"])
    assert said.rule == "fixed:100"
    assert said.cells == 2
    assert said.n == 100
    assert said.n_total == 200
    assert said.time_saved == pytest.approx(0.75)
    assert said.error == 0
    assert said.error_p95 == 0
    assert said.decisions == {"converged": 2}


def test_a_series_shorter_than_the_rule_asks_saves_nothing():
    (said,) = replay_all(constant(50), ["fixed:1000"])
    assert said.n == 50
    assert said.time_saved == pytest.approx(0.0)
    assert said.decisions == {"proceed": 2}


def test_the_cap_is_told_and_held():
    (said,) = replay_all(constant(400), ["fixed:1000"], cap=100)
    assert said.n == 100
    assert said.decisions == {"cap": 2}


def test_error_is_against_the_median_of_the_whole_series():
    raw = constant(400)
    raw["latency"][..., 200:] *= np.where(np.isfinite(raw["latency"][..., 200:]), 3.0, 1.0)
    raw["latency"][0, 1, 0, 190:] = 3e-6
    (said,) = replay_all(raw.isel(dst=[1], src=[0]), ["fixed:100"])
    assert said.error == pytest.approx(2 / 3)
    assert said.coverage == 0.0


def test_every_rule_has_one_row_in_the_order_asked(network):
    told = replay_all(network, ALL)
    assert [said.rule for said in told] == ALL
    for said in told:
        assert said.cells == 12 * 2
        assert sum(said.decisions.values()) == said.cells
        assert 0 < said.n <= 400
        assert 0 <= said.time_saved < 1
        assert 0 <= said.error <= said.error_p95
        assert np.isnan(said.coverage) or said.coverage_ci[0] <= said.coverage <= said.coverage_ci[1]


def test_more_samples_never_save_more(network):
    few, many = replay_all(network, ["fixed:50", "fixed:300"])
    assert few.n < many.n
    assert few.time_saved > many.time_saved


def test_same_seed_says_the_same(network):
    assert replay_all(network, ALL[:2], seed=5) == replay_all(network, ALL[:2], seed=5)


def test_json_holds_what_the_contract_names(network):
    (said,) = replay_all(network, ["fixed:100"])
    keys = set(json.loads(json.dumps(said.as_json())))
    assert {"rule", "n", "error", "coverage", "time_saved"} <= keys


def test_series_of_a_tool_that_knows_no_bursts():
    raw = constant(400)
    raw["epoch"][:] = np.where(raw["epoch"] >= 0, 0, -1)
    (said,) = replay_all(raw, ["fixed:100"])
    assert said.n == 100


def test_short_series_are_left_out():
    raw = constant(LEAST_SAMPLES)
    raw["latency"][0, 1, 0, -1] = np.nan
    raw["epoch"][0, 1, 0, -1] = -1
    (said,) = replay_all(raw, ["fixed:10"])
    assert said.cells == 1


@pytest.mark.parametrize("raw", [constant(LEAST_SAMPLES - 1), constant(0), xr.Dataset()])
def test_nothing_to_replay(raw):
    with pytest.raises(DataError) as told:
        replay_all(raw, ["ci:1%"])
    assert told.value.code == "net.no_series"


def test_delays_that_are_all_zero():
    (said,) = replay_all(constant(100, value=0.0), ["fixed:50"])
    assert said.n == 50
    assert np.isnan(said.error)
    assert said.time_saved == 0.0


def test_unknown_rule():
    with pytest.raises(UsageError) as told:
        replay_all(constant(100), ["fixd:50"])
    assert told.value.code == "core.bad_rule"
