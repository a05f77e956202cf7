"""Signatures of jobs whose course is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sonde.power.recording.signature import period, records, signature
from sonde.power.stack.telemetry import JobSample


def test_a_steady_job():
    told = signature(range(20), [400.0] * 20, 2)
    assert (told.mean_w, told.p10_w, told.p90_w, told.spread, told.jump) == (200, 200, 200, 0, 0)
    assert math.isnan(told.period_s)
    assert (told.nodes, told.samples, told.duration_s) == (2, 20, 19)
    assert np.isfinite(told.vector()).all()


def test_a_rhythm_is_found_and_chance_is_not():
    t = np.arange(128.0)
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 5, 128)
    assert signature(t, 300 + 60 * np.sin(2 * np.pi * t / 16) + noise, 1).period_s == pytest.approx(
        16, rel=0.01
    )
    chance = sum(math.isfinite(period(rng.normal(300, 5, 128), 1.0)) for _ in range(200))
    assert chance <= 8  # 1 % of 200 are 2


def test_a_ramp_is_a_trend_and_no_rhythm():
    told = signature(np.arange(64.0), np.linspace(100, 300, 64), 1)
    assert math.isnan(told.period_s)
    assert told.trend == pytest.approx(1, rel=0.01)
    assert told.mean_w == pytest.approx(200)


def test_uneven_reports_do_not_tilt_the_mean():
    t = [0.0, 10.0, *np.linspace(10.1, 11, 50)]
    power = [100.0, 100.0, *[300.0] * 50]
    assert signature(t, power, 1).mean_w == pytest.approx((10 * 100 + 1 * 300) / 11, rel=0.02)


def test_too_little_is_no_signature():
    assert signature([0, 1, 2], [1.0, 1.0, 1.0], 1) is None
    assert signature(range(10), [math.nan] * 10, 1) is None


def test_records_hold_each_job_in_order():
    said = [JobSample("a", 2_000_000_000, "u", "x", ("n1", "n2"), 20.0, 40.0, state="running")]
    said += [JobSample("b", 1, "u", "y", ("n3",), 5.0, state="ended")]
    said += [JobSample("a", 0, "u", "x", ("n1",), 10.0, 0.0, state="running")]
    first, second = records(said)
    assert (first.job, first.times_s, first.power_w, first.energy_j) == ("a", (0.0, 2.0), (10.0, 20.0), 40.0)
    assert first.nodes == ("n1", "n2")
    assert (second.job, second.state, second.times_s) == ("b", "ended", ())
    assert second.head(10.0) is None
