"""Replaying rules over whole datasets: counts, savings and errors that are known beforehand."""

import json

import numpy as np
import pytest
import xarray as xr

from sonde.core.errors import DataError, UsageError
from sonde.core.rules import rules
from sonde.net.replay import LEAST_SAMPLES, RuleResult, best, replay_all, verdict
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


def test_the_cap_is_reported_and_held():
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


def timed(
    steps: list[list[tuple[int, int, int]]], burst: int = 20, delay: float = 1.0, pause: float = 5.0
) -> xr.Dataset:
    """Steps one after the other, each of pairs (src, dst, epoch) that are measured at once, of `burst` delays."""
    ranks = 1 + max(max(src, dst) for step in steps for src, dst, _ in step)
    epochs = 1 + max(epoch for step in steps for *_, epoch in step)
    latency = np.full((ranks, ranks, 1, epochs * burst), np.nan)
    epoch = np.full(latency.shape, -1)
    t = np.full(latency.shape, np.nan)
    now = 3.0  # before the first burst something is set up
    for step in steps:
        for src, dst, at in step:
            place = (src, dst, 0, slice(at * burst, (at + 1) * burst))
            latency[place], epoch[place] = delay, at
            t[place] = now + delay * np.arange(burst)
        now += delay * burst + pause
    raw = raw_dataset((8,), latency, epoch)
    raw["t_start"] = (raw["latency"].dims, t)
    return raw


class TestSecondsOfTheRun:
    def test_pauses_and_bursts_that_are_not_needed_are_saved(self):
        raw = timed([[(0, 1, 0)], [(1, 0, 0)], [(0, 1, 1)], [(1, 0, 1)]])
        half, whole = replay_all(raw, ["fixed:20", "fixed:40"])
        assert half.recorded_s == whole.recorded_s == pytest.approx(3 + 4 * 20 + 3 * 5)
        assert whole.wall_s == whole.recorded_s
        assert half.wall_s == pytest.approx(3 + 2 * (20 + 5))

    def test_pairs_at_once_take_the_time_of_one(self):
        raw = timed([[(0, 1, 0), (2, 3, 0)], [(0, 1, 1), (2, 3, 1)]])
        assert replay_all(raw, ["fixed:20"])[0].wall_s == pytest.approx(3 + 20 + 5)
        # While one of them goes on, the step takes as long as before.
        raw["latency"][2, 3, 0, :20] = np.where(np.arange(20) % 2, 1.0, 3.0)
        result = replay_all(raw, ["ci:1%"])[0]
        assert result.wall_s == pytest.approx(result.recorded_s)

    def test_not_where_times_are_not_known_or_another_mode_took_turns(self):
        raw = timed([[(0, 1, 0)], [(0, 1, 1)]])
        assert replay_all(raw, ["fixed:20"], alone=False)[0].wall_s is None
        assert replay_all(raw.drop_vars("t_start"), ["fixed:20"])[0].wall_s is None
        assert replay_all(constant(100), ["fixed:20"])[0].recorded_s is None


class TestVerdict:
    """A winner is one in each file, and its own rows do not refute it."""

    def result(self, rule, n=100.0, error=0.001, stopped=10, cells=10, wall=None):
        nan = float("nan")
        return RuleResult(
            rule,
            cells,
            n,
            0,
            error,
            error,
            nan,
            (nan, nan),
            0.5,
            {},
            stopped,
            wall,
            None if wall is None else 60.0,
        )

    def test_one_that_errs_in_another_file_is_no_winner(self):
        first = [self.result("fixed:100", 10, 0.001), self.result("ci:1%", 500, 0.002)]
        second = [self.result("fixed:100", 10, 0.058), self.result("ci:1%", 700, 0.004)]
        assert best({"a.nc": first}) == "fixed:100"
        assert best({"a.nc": first, "b.nc": second}) == "ci:1%"
        text, holds = verdict({"a.nc": first, "b.nc": second})
        assert holds
        assert text == (
            "ci:1% needs the fewest samples for a median error up to 1% in each of 2 files: 500 + 700 a cell."
        )

    def test_the_fewest_over_files_together(self):
        first = [self.result("one", 100), self.result("two", 300)]
        second = [self.result("one", 900), self.result("two", 400)]
        assert best({"a.nc": first, "b.nc": second}) == "two"

    def test_none_that_holds_in_each_file(self):
        first = [self.result("one", 10, 0.0584), self.result("two", 20, 0.3)]
        second = [self.result("one", 10, 0.001), self.result("two", 20, 0.001)]
        text, holds = verdict({"a.nc": first, "b.nc": second})
        assert not holds
        assert text == (
            "No stopping rule limits the median error to 1% in each of 2 files. The nearest, one, is off by 5.8% in "
            "a.nc."
        )

    def test_one_that_takes_everything_is_no_winner(self):
        """Nothing is wrong with an estimate from the whole series, since that is what it is held against."""
        (whole,) = replay_all(constant(100), ["fixed:100"])
        assert (whole.error, whole.stopped, whole.decisions) == (0, 0, {"converged": 2})
        assert best({"a.nc": [whole]}) is None
        text, holds = verdict({"a.nc": [whole]})
        assert not holds
        assert "record longer" in text

    def test_seconds_of_the_run_stand_in_it(self):
        text, _ = verdict({"a.nc": [self.result("one", 10, wall=12.0)]})
        assert text.endswith("10 a cell, 12.0 s instead of 1 min.")

    def test_errors_that_are_not_known(self):
        text, holds = verdict({"a.nc": [self.result("one", error=float("nan"))]})
        assert not holds
        assert "has no known error" in text
