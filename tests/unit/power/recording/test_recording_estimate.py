"""The estimator, held against jobs whose power is known: each foretold by the others."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sonde.core.errors import DataError
from sonde.power.recording.estimate import LEAST, METHODS, MOST_TESTED, Estimator, learn
from sonde.power.recording.signature import JobRecord, signature


def job(rng, k, seconds=300, step=5.0):
    """A job of one of three kinds: its beginning tells of the rest, with noise and a slow change of its own."""
    kind = k % 3
    level = (180.0, 260.0, 340.0)[kind] + rng.normal(0, 12)
    t = np.arange(0, seconds, step)
    drift = rng.normal(0, 8) * t / seconds
    wave = (0, 25, 10)[kind] * np.sin(2 * np.pi * t / 30 + rng.uniform(0, 6))
    power = level + drift + wave + rng.normal(0, 3, len(t))
    return JobRecord(str(k), "ada", "x", ("n1",), tuple(t), tuple(power), math.nan, "ended")


def test_it_foretells_generated_jobs_better_than_their_mean():
    rng = np.random.default_rng(5)
    tested = learn([job(rng, k) for k in range(36)], 60.0).tested()
    assert tested.jobs == 36
    assert tested.error < 0.03
    assert tested.error < tested.baseline / 4
    assert tested.coverage >= 0.8  # what jackknife+ promises of 90 %


def test_intervals_hold_for_jobs_it_never_saw():
    rng = np.random.default_rng(6)
    estimator = learn([job(rng, k) for k in range(30)], 60.0)
    inside = []
    for k in range(40):
        one = job(rng, k)
        told = estimator.estimate(one.head(60.0))
        assert told.low_w < told.power_w < told.high_w
        inside.append(told.low_w <= one.whole().mean_w <= told.high_w)
    assert np.mean(inside) >= 0.75


def test_few_jobs_give_no_interval_and_fewer_nothing():
    rng = np.random.default_rng(7)
    known = [job(rng, k) for k in range(LEAST)]
    told = learn(known, 60.0).estimate(known[0].head(60.0))
    assert math.isnan(told.low_w)
    assert told.jobs == LEAST
    with pytest.raises(DataError) as refused:
        learn(known[:-1], 60.0)
    assert refused.value.code == "power.too_few_jobs"


def test_a_job_that_ended_within_its_beginning_teaches_nothing():
    rng = np.random.default_rng(8)
    with pytest.raises(DataError):
        learn([job(rng, k, seconds=50) for k in range(20)], 60.0)


def test_noise_alone_is_not_foretold():
    """Beginnings that say nothing of the rest: intervals are as wide as the jobs differ."""
    rng = np.random.default_rng(9)
    heads = [signature(np.arange(20.0), 200 + rng.normal(0, 5, 20), 1) for _ in range(30)]
    means = rng.uniform(100, 300, 30)
    estimator = Estimator(heads, means)
    told = estimator.estimate(heads[0])
    assert told.high_w - told.low_w > 120
    assert estimator.tested().error > 0.1


def test_it_foretells_what_was_really_measured():
    """Real telemetry: CPU time that this process takes, which stands for power where nothing measures it."""
    import time

    known = []
    for k in range(8):
        busy = 0.2 + 0.1 * k
        t, used = [], []
        begin, last = time.monotonic(), time.process_time()
        for n in range(12):
            end = time.process_time() + 0.004 * busy
            while time.process_time() < end:
                pass
            now = time.process_time()
            t.append(float(n))
            used.append(1e5 * (now - last))
            last = now
        assert time.monotonic() > begin
        known.append(JobRecord(str(k), "", "", ("here",), tuple(t), tuple(used), math.nan, "ended"))
    tested = learn(known, 5.0).tested()
    assert tested.method in METHODS
    assert tested.error < tested.baseline


def test_a_job_that_drew_nothing_yet_is_not_foretold():
    rng = np.random.default_rng(10)
    estimator = learn([job(rng, k) for k in range(12)], 60.0)
    idle = signature(range(10), [0.0] * 10, 1)
    assert idle is not None
    assert estimator.estimate(idle) is None


def test_of_many_jobs_intervals_are_tested_on_some(monkeypatch):
    rng = np.random.default_rng(11)
    estimator = learn([job(rng, k, seconds=120) for k in range(60)], 60.0)
    asked, interval = [], estimator._interval
    monkeypatch.setattr(estimator, "_interval", lambda *of: asked.append(of) or interval(*of))
    told = estimator.tested()
    assert len(asked) == MOST_TESTED
    assert told.jobs == 60
    assert told.coverage >= 0.8
