"""Medians, intervals, ratios and loss of runs whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from probe_runs import made, near, planned, summary_of, values_of

from sonde.bus.analyse import MOST_STRETCHES, paired
from sonde.bus.cases import Case
from sonde.bus.variants import variant_of

CYCLONE, FAST, RAW = (
    variant_of("cyclonedds", "udp4"),
    variant_of("fastdds", "udp4"),
    variant_of("raw", "udp4"),
)
MULTICAST = variant_of("cyclonedds", "multicast")
LATENCY = Case("latency", 64)
LEVELS = {"cyclonedds/udp4": 30e-6, "fastdds/udp4": 60e-6, "raw/udp4": 10e-6, "cyclonedds/multicast": 33e-6}


def steady(variant, case, epoch, rng):
    return {"rtt": near(rng, LEVELS[variant.name])}


def restless(variant, case, epoch, rng):
    """The machine is up to three times as slow for whole epochs, for all variants alike."""
    slow = 1 + 2 * ((epoch * 7919) % 13) / 13
    return {"rtt": near(rng, slow * LEVELS[variant.name])}


class TestRatios:
    PLAN = planned([LATENCY], CYCLONE, FAST, RAW, MULTICAST)

    def test_medians_and_intervals_hold_the_truth(self, tmp_path):
        told = values_of(tmp_path, self.PLAN, steady)
        for value in told.find("latency"):
            truth = LEVELS[value.way.name]
            assert value.low < value.median < value.high
            assert value.median == pytest.approx(truth, rel=0.002)
            assert value.low < truth * 1.001
            assert value.high > truth * 0.999

    def test_what_moves_the_machine_falls_out_of_ratios(self, tmp_path):
        told = values_of(tmp_path, self.PLAN, restless, epochs=26)
        fast = next(v for v in told.find("latency") if v.way.name == "fastdds/udp4")
        assert fast.high / fast.low > 1.2  # the median itself is not known so well
        ratio, low, high = fast.ratio
        assert (ratio, low, high) == pytest.approx((2, 2, 2), rel=0.01)
        assert told.ways[fast.base].name == "cyclonedds/udp4"
        assert fast.ratio_to_raw == pytest.approx((6, 6, 6), rel=0.01)

    def test_multicast_is_held_against_the_bare_socket(self, tmp_path):
        told = values_of(tmp_path, self.PLAN, steady)
        value = next(v for v in told.find("latency") if v.way.name == "cyclonedds/multicast")
        assert value.ratio_to_raw[0] == pytest.approx(3.3, rel=0.01)
        assert value.ratio[0] == pytest.approx(1.1, rel=0.01)

    def test_the_base_has_no_ratio_to_itself(self, tmp_path):
        told = values_of(tmp_path, self.PLAN, steady)
        base = next(v for v in told.find("latency") if v.way.name == "cyclonedds/udp4")
        assert base.base == -1
        assert np.isnan(base.ratio[0])
        raw = next(v for v in told.find("latency") if v.way.name == "raw/udp4")
        assert np.isnan(raw.ratio_to_raw[0])

    def test_few_epochs_have_no_interval(self, tmp_path):
        told = values_of(tmp_path, self.PLAN, steady, epochs=4)
        fast = next(v for v in told.find("latency") if v.way.name == "fastdds/udp4")
        assert fast.ratio[0] == pytest.approx(2, rel=0.01)
        assert np.isnan(fast.ratio[1])

    def test_many_epochs_are_taken_together(self, tmp_path):
        plan = planned([LATENCY], CYCLONE)
        summary = summary_of(tmp_path, plan, made(plan, steady, epochs=400))
        assert summary.sizes["stretch"] == MOST_STRETCHES
        assert np.isfinite(summary["block"].values).all()
        assert int(summary["epochs"][0]) == 400


class TestLoss:
    CASE = Case("throughput", 1024, 2, treatment="best-effort")

    def test_loss_is_the_mean_of_what_most_bursts_do_not_lose(self, tmp_path):
        def level(variant, case, epoch, rng):
            lost = 0.4 if epoch % 4 == 0 else 0.0
            return {"message_rate": near(rng, 1e5, 2), "lost": [lost, lost]}

        told = values_of(tmp_path, planned([self.CASE], CYCLONE), level)
        (rate,) = told.find("throughput")
        assert told.lost(rate) == pytest.approx(0.1)
        (lost,) = told.find("throughput", "lost")
        assert lost.median == 0
        assert lost.blocks.tolist() == pytest.approx([0.4, 0, 0, 0] * 3)

    def test_a_stretch_of_epochs_has_the_mean_of_what_few_of_them_lose(self, tmp_path):
        def level(variant, case, epoch, rng):
            return {"message_rate": near(rng, 1e5, 2), "lost": [0.0, 0.4 * (epoch % 4 == 0)]}

        told = values_of(tmp_path, planned([self.CASE], CYCLONE), level, epochs=4 * MOST_STRETCHES)
        (lost,) = told.find("throughput", "lost")
        assert lost.blocks == pytest.approx(np.full(MOST_STRETCHES, 0.05))

    def test_no_loss_at_all_is_known_to_be_none(self, tmp_path):
        def level(variant, case, epoch, rng):
            return {"message_rate": near(rng, 1e5, 2), "lost": [0.0, 0.0]}

        told = values_of(tmp_path, planned([self.CASE], CYCLONE), level)
        (lost,) = told.find("throughput", "lost")
        assert (lost.median, lost.low, lost.high) == (0, 0, 0)

    def test_where_nobody_counted_it_is_not_known(self, tmp_path):
        told = values_of(tmp_path, planned([LATENCY], CYCLONE), steady)
        assert np.isnan(told.lost(told.find("latency")[0]))

    def test_answers_that_never_came_count(self, tmp_path):
        def level(variant, case, epoch, rng):
            return {"rtt": [1e-5, 1e-5, np.nan, 1e-5]}

        told = values_of(tmp_path, planned([LATENCY], CYCLONE), level)
        assert told.lost(told.find("latency")[0]) == pytest.approx(0.25)


def test_the_first_samples_of_a_burst_are_reported_by_their_place(tmp_path):
    def level(variant, case, epoch, rng):
        values = near(rng, 1e-5)
        values[0] *= 9
        return {"rtt": values}

    plan = planned([LATENCY], CYCLONE)
    early = summary_of(tmp_path, plan, made(plan, level))["early"].values[0]
    assert early[0] == pytest.approx(9e-5, rel=0.01)
    assert early[1:8] == pytest.approx([1e-5] * 7, rel=0.01)
    assert np.isnan(early[8:]).all()


def test_a_first_sample_that_never_came_does_not_make_the_second_the_first(tmp_path):
    def level(variant, case, epoch, rng):
        values = near(rng, 1e-5)
        values[0] *= 9
        values[:2] = (np.nan, values[1]) if epoch % 3 == 0 else values[:2]
        values[5] = np.nan if epoch % 3 else values[5]
        return {"rtt": values}

    plan = planned([LATENCY], CYCLONE)
    early = summary_of(tmp_path, plan, made(plan, level))["early"].values[0]
    assert early[0] == pytest.approx(9e-5, rel=0.01)
    assert early[[1, 2, 3, 4, 6, 7]] == pytest.approx([1e-5] * 6, rel=0.01)
    assert np.isnan(early[5])  # most bursts have none


def test_an_interval_holds_its_median_whatever_is_counted(tmp_path):
    def level(variant, case, epoch, rng):
        return {
            "rtt": near(rng, 1e-5),
            "cycles": np.round(rng.lognormal(8, 1, 5)),
            "lost": rng.random(3) ** 9,
        }

    told = values_of(tmp_path, planned([LATENCY], CYCLONE), level, epochs=9)
    assert {value.quantity for value in told.all} == {"rtt", "cycles", "lost"}
    assert all(value.low <= value.median <= value.high for value in told.all)


def test_paired():
    base = np.array([1.0, 1, 1, 1, 1, 1, np.nan])
    assert paired(base, 3 * base)[0] == 6
    assert paired(base, 3 * base)[1] == pytest.approx((3, 3, 3))
    assert paired(base, np.full(7, np.nan))[0] == 0
