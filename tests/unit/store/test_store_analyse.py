"""Rates, intervals and ratios of runs whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from bench_runs import burst, made, summary_of, variants

from sonde.store.analyse import MAX_PAIRS, paired
from sonde.store.plan import Case, Plan

CASES = (
    Case("object", "write", 4096),
    Case("object", "write", 4096, 100),
    Case("object", "write", 4096, 1, 4),
)
NAMES = ("raw", "tcp", "plain", "ofi-rdm")
FACTOR = (0.5, 1.0, 40.0, 0.8)  # duration against tcp


def plan() -> Plan:
    return Plan(variants(*NAMES), CASES)


def machine(epoch: int) -> float:
    """What the machine does to all variants of an epoch: regimes that change the level by up to 3."""
    return 1.0 + 2.0 * ((epoch // 7) % 2)


def level(variant: int, case: int, epoch: int) -> float:
    return 1e-4 * FACTOR[variant] * machine(epoch)


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    return summary_of(tmp_path_factory.mktemp("runs"), plan(), made(plan(), level, 42))


def test_rates_are_operations_over_the_median(summary):
    operations = np.array([1, 100, 4])
    assert np.allclose(summary["rate"] * summary["median"], np.tile(operations, (4, 1)))
    assert np.allclose(summary["throughput"] * summary["median"], np.tile(4096 * operations, (4, 1)))


def test_the_mean_rate_counts_all_operations_over_all_time(summary):
    assert np.allclose(summary["mean_rate"].values[1], np.array([1, 100, 4]) / 2e-4, rtol=0.01)


def test_ratios_are_those_of_an_epoch_whatever_the_machine_does(summary):
    ratio = summary["ratio_to_tcp"].values
    assert np.isnan(ratio[1]).all()  # tcp itself
    for v in (0, 2, 3):
        assert np.allclose(ratio[v], 1 / FACTOR[v], rtol=0.005)
        assert (summary["ratio_to_tcp_low"].values[v] <= 1.003 / FACTOR[v]).all()
        assert (summary["ratio_to_tcp_high"].values[v] >= 0.997 / FACTOR[v]).all()
        width = summary["ratio_to_tcp_high"].values[v] / summary["ratio_to_tcp_low"].values[v]
        assert (width < 1.01).all()  # though each median alone is known to a factor of 3 only
    assert (summary["pairs_tcp"].values[[0, 2, 3]] == 42).all()
    assert np.allclose(summary["ratio_to_raw"].values[1], 0.5, rtol=0.005)


def test_the_median_alone_is_as_uncertain_as_the_regimes_make_it(summary):
    assert (summary["median_high"] / summary["median_low"] > 1.5).all()


def test_ends_of_an_interval_are_in_order(summary):
    for name in ("median", "rate", "throughput", "p99"):
        low, middle, high = (summary[f"{name}{end}"].values for end in ("_low", "", "_high"))
        known = np.isfinite(low) & np.isfinite(high)
        assert known.all() or name == "p99"  # of which 336 samples do not tell
        assert (low[known] <= middle[known]).all()
        assert (middle[known] <= high[known]).all()


def test_stages_are_known_of_the_store_and_not_of_a_socket(summary):
    assert np.isnan(summary["backend_time"].values[0]).all()
    assert np.allclose(summary["backend_time"].values[1, :2], 3e-6)
    parts = sum(summary[f"{name}_time"] for name in ("serialise", "wait", "backend", "wire"))
    assert np.allclose(parts.values[1, :2], summary["median"].values[1, :2])


def test_with_several_batches_under_way_no_share_is_any_stages(summary):
    assert np.isnan(summary["wire_time"].values[:, 2]).all()


def test_quantiles_grow(summary):
    assert (np.diff(summary["quantile"].values, axis=2) >= 0).all()


class TestDegenerate:
    def test_a_cell_without_data_is_nan_and_counts_zero(self, tmp_path):
        found = summary_of(tmp_path, plan(), made(plan(), level, 3, skip=[(3, 1)]))
        assert found["n"].values[3, 1] == found["epochs"].values[3, 1] == 0
        for name in ("median", "rate", "ratio_to_tcp", "p99", "wire_time"):
            assert np.isnan(found[name].values[3, 1])

    def test_without_tcp_there_is_no_ratio_to_it(self, tmp_path):
        few = Plan(variants("raw", "plain"), CASES[:1])
        found = summary_of(tmp_path, few, made(few, level, 8))
        assert np.isnan(found["ratio_to_tcp"]).all()
        assert np.isfinite(found["ratio_to_raw"].values[1, 0])

    def test_one_sample_has_a_rate_and_no_interval(self, tmp_path):
        few = Plan(variants("raw", "tcp"), CASES[:1])
        records = np.concatenate([burst(0, 0, 0, [5e-5], (np.nan,) * 3), burst(1, 0, 0, [1e-4])])
        found = summary_of(tmp_path, few, records)
        assert found["rate"].values[1, 0] == pytest.approx(1e4)
        assert found["ratio_to_raw"].values[1, 0] == pytest.approx(0.5)
        for name in ("median_low", "ratio_to_raw_low"):
            assert np.isnan(found[name].values[1, 0])

    def test_five_epochs_give_a_ratio_without_an_interval_six_one(self, tmp_path):
        few = Plan(variants("raw", "tcp"), CASES[:1])
        for epochs, known in ((5, False), (6, True)):
            found = summary_of(tmp_path, few, made(few, level, epochs), f"e{epochs}")
            assert np.isfinite(found["ratio_to_raw"].values[1, 0])
            assert np.isfinite(found["ratio_to_raw_low"].values[1, 0]) == known


class TestPaired:
    def test_only_common_epochs_count(self):
        base = np.array([0, 2, 4, 6]), np.array([1.0, 2.0, 3.0, 4.0])
        other = np.array([1, 2, 6]), np.array([9.0, 1.0, 2.0])
        pairs, (ratio, low, high) = paired(base, other)
        assert pairs == 2
        assert ratio == pytest.approx(2.0)
        assert np.isnan(low)
        assert np.isnan(high)

    def test_no_common_epoch_is_no_ratio(self):
        pairs, ratio = paired((np.array([0]), np.array([1.0])), (np.array([1]), np.array([1.0])))
        assert pairs == 0
        assert np.isnan(ratio).all()

    def test_very_many_epochs_are_averaged_and_keep_the_truth(self):
        rng = np.random.default_rng(3)
        epochs = np.arange(40 * MAX_PAIRS)
        base = np.exp(0.1 * rng.standard_normal(len(epochs)))
        pairs, (ratio, low, high) = paired(
            (epochs, base), (epochs, base / 1.3 * np.exp(0.02 * rng.standard_normal(len(epochs))))
        )
        assert pairs == len(epochs)
        assert low < 1.3 < high
        assert ratio == pytest.approx(1.3, rel=0.002)

    def test_the_interval_covers_as_often_as_it_says(self):
        rng = np.random.default_rng(11)
        inside = 0
        for _ in range(400):
            epochs = np.arange(12)
            base = np.exp(rng.standard_normal(12))
            _, (_, low, high) = paired(
                (epochs, base), (epochs, base / 2 * np.exp(0.1 * rng.standard_normal(12)))
            )
            inside += low <= 2 <= high
        assert inside >= 0.92 * 400
