"""Cycles, homogeneity, periodic outliers: injected ones are found with their truth, noise raises few false
alarms.
"""

import numpy as np
import pytest
from scipy.signal import lfilter, lombscargle

from sonde.net import periodicity
from sonde.net.periodicity import (
    MOST_WINDOWS,
    _paid,
    _sine_share,
    burst_cyclicity,
    cyclicity,
    homogeneity,
    outliers_of,
    periodic_outliers,
)


def red(rng: np.random.Generator, n: int, keeps: float) -> np.ndarray:
    return lfilter([1], [1, -keeps], rng.standard_normal(n + 500))[500:]


def regimes(rng: np.random.Generator, n: int, length: int) -> np.ndarray:
    switched = np.cumsum(rng.random(n) < 1 / length) % 2
    return switched + 0.3 * rng.standard_normal(n)


NOISE = {
    "white": lambda rng, n: rng.standard_normal(n),
    "lognormal": lambda rng, n: rng.lognormal(0, 1, n),
    "red": lambda rng, n: red(rng, n, 0.9),
    "redder": lambda rng, n: red(rng, n, 0.99),
    "red_and_white": lambda rng, n: red(rng, n, 0.9) + 2 * rng.standard_normal(n),
    "regimes": lambda rng, n: regimes(rng, n, 30),
    "walk": lambda rng, n: np.cumsum(rng.standard_normal(n)),
}


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("n", [60, 600])
def test_noise_is_seldom_called_cyclic(noise, n):
    rng = np.random.default_rng(n)
    p = np.array([cyclicity(NOISE[noise](rng, n)).p for _ in range(100)])
    assert np.mean(p <= 0.01) <= 0.08
    assert np.mean(p <= 0.05) <= 0.16


@pytest.mark.parametrize("noise", ["white", "lognormal", "regimes"])
def test_noise_at_uneven_times_is_seldom_called_cyclic(noise):
    rng = np.random.default_rng(5)
    p = [cyclicity(NOISE[noise](rng, 60), np.sort(rng.uniform(0, 100, 60))).p for _ in range(100)]
    assert np.mean(np.array(p) <= 0.01) <= 0.08


def test_cycle_in_red_noise_is_found_with_its_period():
    rng = np.random.default_rng(6)
    n = 500
    found = cyclicity(red(rng, n, 0.8) * 0.6 + np.sin(2 * np.pi * np.arange(n) / 9))
    assert found.p < 1e-4
    assert found.period == pytest.approx(9, rel=0.03)
    assert 0.1 < found.share < 0.9


def test_cycle_at_uneven_times_is_found_in_seconds():
    rng = np.random.default_rng(7)
    t = np.sort(rng.uniform(0, 60, 120))
    found = cyclicity(np.exp(0.1 * (rng.standard_normal(120) + 1.5 * np.sin(2 * np.pi * t / 3.7))), t)
    assert found.p < 1e-4
    assert found.period == pytest.approx(3.7, rel=0.05)


@pytest.mark.parametrize("n", [24, 61, 600])
def test_what_a_sine_explains_is_as_scipy_finds_it(n):
    rng = np.random.default_rng(n)
    t = np.sort(rng.uniform(0, 60, n))
    y = rng.standard_normal(n)
    y -= y.mean()
    count = 2 * n
    period = 4 * np.ptp(t)
    direct = lombscargle(t, y, 2 * np.pi * np.arange(1, count) / period, normalize=True, floating_mean=True)
    # Below one cycle a sine and a constant are nearly alike, and both ways lose digits.
    assert _sine_share(t - t[0], y, period, count)[4:] == pytest.approx(direct[3:], abs=1e-3)


def test_a_weak_fast_cycle_in_very_many_epochs_is_found():
    rng = np.random.default_rng(21)
    t = np.sort(rng.uniform(0, 600, 30_000))
    x = rng.standard_normal(len(t)) + 0.5 * red(rng, len(t), 0.9)
    assert cyclicity(x, t).p > 0.01
    found = cyclicity(x + 0.1 * np.sin(2 * np.pi * t / 0.07), t)
    assert found.p < 1e-4
    assert found.period == pytest.approx(0.07, rel=1e-3)


def test_a_background_in_groups_of_ordinates_is_that_of_single_ones(monkeypatch):
    rng = np.random.default_rng(22)
    series = [regimes(rng, 4000, 30) for _ in range(20)]
    single = np.array([cyclicity(x).p for x in series])
    monkeypatch.setattr(periodicity, "SINGLE_ORDINATES", 200)
    monkeypatch.setattr(periodicity, "GROUPED_ORDINATES", 100)
    periodicity._shapes.cache_clear()
    try:
        grouped = np.array([cyclicity(x).p for x in series])
    finally:
        periodicity._shapes.cache_clear()
    assert np.all(grouped != single)
    assert np.abs(np.log10(grouped / single)).max() < 0.5
    assert np.mean(grouped <= 0.05) <= 0.2


def test_outliers_make_no_cycle():
    rng = np.random.default_rng(8)
    x = rng.lognormal(0, 0.1, 400)
    x[rng.choice(400, 4)] *= 1000
    assert cyclicity(x).p > 0.01


def test_cycle_within_bursts():
    rng = np.random.default_rng(9)
    phase = rng.uniform(0, 6, 12)[:, None]
    bursts = rng.lognormal(0, 0.2, (12, 64)) * np.exp(0.2 * np.sin(2 * np.pi * np.arange(64) / 8 + phase))
    found = burst_cyclicity(bursts)
    assert found.p < 1e-6
    assert found.period == pytest.approx(8)


def test_warm_up_and_regimes_of_bursts_are_no_cycle():
    rng = np.random.default_rng(10)
    false = 0
    for _ in range(100):
        bursts = rng.lognormal(0, 0.2, (12, 64)) * rng.lognormal(0, 0.3, (12, 1))
        bursts *= 1 + np.exp(-np.arange(64) / 3)
        false += burst_cyclicity(bursts).p <= 0.01
    assert false <= 5


@pytest.mark.parametrize("x", [np.ones(100), np.arange(10.0), np.zeros(0)])
def test_constant_or_short_series_say_nothing(x):
    assert np.isnan(cyclicity(x).p)
    assert np.isnan(cyclicity(x).period)


def test_times_without_span_say_nothing():
    assert np.isnan(cyclicity(np.random.default_rng(0).random(50), np.zeros(50)).p)


def test_few_or_short_bursts_say_nothing():
    assert np.isnan(burst_cyclicity(np.random.default_rng(0).random((2, 64))).p)
    assert np.isnan(burst_cyclicity(np.random.default_rng(0).random((20, 4))).p)


def test_like_windows_are_homogeneous():
    rng = np.random.default_rng(11)
    p = np.array([homogeneity(rng.lognormal(0, 0.3, (16, 32)), seed=k).p for k in range(100)])
    assert np.mean(p <= 0.05) <= 0.12


def test_a_change_of_level_and_a_change_of_spectrum_are_distinguished():
    rng = np.random.default_rng(12)
    shifted = rng.lognormal(0, 0.3, (20, 64))
    shifted[10:] *= 1.5
    found = homogeneity(shifted)
    assert found.level_p < 0.01
    swinging = rng.lognormal(0, 0.3, (20, 64))
    swinging[10:] *= np.exp(0.5 * np.sin(2 * np.pi * np.arange(64) / 4))
    found = homogeneity(swinging)
    assert found.shape_p < 0.01
    assert found.level_p > 0.01


def test_very_many_windows_are_compared_in_groups():
    """All with all, twelve thousand would need gigabytes."""
    rng = np.random.default_rng(23)
    alike = rng.lognormal(0, 0.3, (12_000, 16))
    found = homogeneity(alike, permutations=99)
    assert found.windows == MOST_WINDOWS
    assert found.p > 0.01
    alike[8000:] *= 1.1
    assert homogeneity(alike, permutations=99).level_p == 0.01


def test_too_few_windows_say_nothing():
    found = homogeneity(np.random.default_rng(0).random((3, 64)))
    assert np.isnan(found.p)
    assert found.windows == 3


def bursty(rng: np.random.Generator, bursts: int = 60, width: int = 50):
    """Delays in bursts at random times over 100 s, 10 ms a sample; epoch and time of each."""
    start = np.sort(rng.uniform(0, 100, bursts))
    t = (start[:, None] + 0.01 * np.arange(width)).ravel()
    return rng.lognormal(0, 0.1, bursts * width), np.repeat(np.arange(bursts), width), t


def test_periodic_outliers_are_found_with_period_and_phase():
    rng = np.random.default_rng(13)
    x, epoch, t = bursty(rng)
    x[((t - 0.3) % 1.25) < 0.02] *= 5
    found = periodic_outliers(x, epoch, t)
    assert found.p < 1e-3
    assert found.period == pytest.approx(1.25, rel=0.01)
    assert found.phase == pytest.approx(0.31, abs=0.06)
    assert found.in_phase > 0.9
    assert found.share == pytest.approx(np.mean(((t - 0.3) % 1.25) < 0.02), abs=0.005)


def test_every_tenth_sample_without_times():
    rng = np.random.default_rng(14)
    x = rng.lognormal(0, 0.1, 600)
    x[3::10] *= 4
    found = periodic_outliers(x, np.zeros(600, int))
    assert found.p < 1e-6
    assert found.period == pytest.approx(10, rel=0.01)
    assert found.phase == pytest.approx(3, abs=0.2)


@pytest.mark.parametrize("kind", ["random", "bunched", "none"])
@pytest.mark.parametrize("runs", [15, pytest.param(60, marks=pytest.mark.soak)])
def test_outliers_without_a_period_raise_few_alarms(kind, runs):
    rng = np.random.default_rng(15)
    false = 0
    for _ in range(runs):
        x, epoch, t = bursty(rng)
        if kind == "random":
            x[rng.random(len(x)) < 0.02] *= 5
        elif kind == "bunched":
            x[np.isin(epoch, rng.choice(60, 5)) & (rng.random(len(x)) < 0.3)] *= 5
        false += periodic_outliers(x, epoch, t).p <= 0.01
    assert false <= runs / 15


def test_a_regime_is_no_outlier():
    x = np.concatenate([np.full(300, 1.0), np.full(300, 3.0)]) * np.random.default_rng(16).lognormal(
        0, 0.05, 600
    )
    assert outliers_of(x, np.zeros(600, int)).sum() <= 2
    assert outliers_of(x, np.repeat(np.arange(12), 50)).sum() <= 2


@pytest.mark.parametrize("x", [np.ones(100), np.ones(3), np.zeros(0)])
def test_no_outliers_have_no_period(x):
    found = periodic_outliers(x, np.zeros(len(x), int))
    assert len(found.index) == 0
    assert np.isnan(found.p)
    assert np.isnan(found.period)


@pytest.mark.filterwarnings("error")
def test_p_of_the_highest_ordinate_at_either_end_and_without_a_warning():
    assert [_paid(ratio, 1000) for ratio in (0.0, 1e-300, 1e-17)] == [1, 1, 1]
    assert _paid(40, 1000) == pytest.approx(1000 * np.exp(-40))
    assert 0 <= _paid(5000, 1000) < 1e-290
