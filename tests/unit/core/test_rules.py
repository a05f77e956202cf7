"""Stopping rules from Python: the registry, a replay's promises, and how often a stopped interval holds the truth."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sonde.core.errors import DataError, UsageError
from sonde.core.rules import DECISIONS, Replay, check_rule, replay, rule_with, rules
from sonde.core.stats import median

NAMES = [rule.name for rule in rules()]
MEDIAN_S = 2e-6
PAGE = Path(__file__).parents[3] / "docs/explain/stopping-rules.md"


def delays(seed: int, n: int = 20000, spread: float = 0.2) -> np.ndarray:
    return MEDIAN_S * np.exp(np.random.default_rng(seed).normal(0, spread, n))


def in_epochs(n: int, length: int = 50) -> np.ndarray:
    return np.arange(n, dtype=np.int32) // length


# ---- what there is


def test_names_are_unique_and_every_option_says_what_it_is():
    assert len(set(NAMES)) == len(NAMES) >= 7
    for rule in rules():
        assert rule.text
        assert rule.source
        for option in rule.options:
            assert option.kind in ("int", "float", "share")
            assert option.text
            assert option.least <= option.default <= option.most
            check_rule(f"{rule.name}:{option.name}={option.shown}")


def test_every_option_stands_on_the_page_with_its_default():
    text = PAGE.read_text()
    for rule in rules():
        head = "clustbench-fft" if rule.name.startswith("clustbench") else rule.name
        part = re.split(r"\n##+ ", text.split(f"\n### `{head}`", 1)[1])[0]
        for option in rule.options:
            assert f"`{option.name}={option.shown}`" in part, (rule.name, option.name, option.shown)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("fixd:50", r"nearest: fixed"),
        ("spectrl", r"nearest: spectral"),
        ("ci:precison=1%", r"nearest: precision"),
        ("ci:precision=0", r"must be from 0\.0001% to 100%"),
        ("ci:level=100%", r"must be from 50% to 99\.99%"),
        ("entropy:peeks=1", r"must be from 2 to 100"),
        ("fixed:many", r"not a whole number"),
        ("", r"there are fixed, ci, spectral"),
    ],
)
def test_a_rule_not_understood(spec, said):
    with pytest.raises(UsageError, match=said) as told:
        check_rule(spec)
    assert told.value.code == "core.bad_rule"
    assert told.value.hint
    with pytest.raises(UsageError, match=said):
        replay(delays(1, 100), None, spec)


@given(st.text(max_size=40))
def test_no_specification_crashes(spec):
    with suppress(UsageError):
        check_rule(spec)


# ---- what every replay promises


def same(one: Replay, other: Replay) -> bool:
    """Equal, where no interval is equal to no interval."""
    return repr(one) == repr(other)


finite = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1e-5, 1e-5),
    st.sampled_from([0.0, 1e-6, 2e-6, -1e-7]),
)
series = arrays(np.float64, st.integers(0, 400), elements=finite)


@settings(max_examples=150, deadline=None)
@given(series, st.sampled_from(NAMES), st.integers(1, 60), st.integers(1, 500), st.integers(0, 300))
def test_any_finite_series_is_decided_within_what_was_given(x, name, burst, cap, least):
    said = replay(x, None, name, cap=cap, least=least, burst=burst)
    assert said.decision in DECISIONS
    assert said.skipped <= said.n <= min(len(x), cap)
    if said.decision == "cap":
        assert said.n == cap or name.startswith("clustbench")
    elif said.decision != "proceed":
        assert said.n >= min(least, cap)
    if said.n:
        assert x.min() <= said.estimate <= x.max()
    if not np.isnan(said.low):
        assert said.low <= said.estimate <= said.high
    assert same(said, replay(x, None, name, cap=cap, least=least, burst=burst))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), st.integers(0, 10**6), st.integers(100, 3000))
def test_what_comes_after_a_decision_changes_nothing(name, seed, more):
    x = delays(seed, 4000)
    e = in_epochs(len(x))
    whole = replay(x, e, name)
    if whole.decision == "proceed":
        return
    end = -(-whole.n // 50) * 50
    assert same(replay(x[:end], e[:end], name), whole)
    assert same(replay(np.r_[x[:end], np.full(more, 1.0)], in_epochs(end + more), name), whole)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["fixed:300", "ci:2%", "spectral", "entropy"]),
    st.sampled_from([2.0**-20, 0.5, 4.0, 2.0**20]),
)
def test_the_unit_of_time_does_not_matter(name, factor):
    x = delays(3, 6000)
    one, other = replay(x, None, name), replay(x * factor, None, name)
    if name != "entropy":  # its bins lie elsewhere
        assert (other.decision, other.n) == (one.decision, one.n)
    assert other.estimate == pytest.approx(one.estimate * factor, rel=0.02)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_at_all(name):
    said = replay(np.array([]), None, name)
    assert (said.decision, said.n, said.epochs) == ("proceed", 0, 0)
    assert np.isnan(said.estimate)


@pytest.mark.parametrize("name", NAMES)
def test_samples_of_no_epoch_are_no_samples(name):
    x, e = delays(4, 3000), in_epochs(3000)
    holes = np.insert(x, 500, [9.0] * 40), np.insert(e, 500, [-1] * 40)
    assert same(replay(*holes, name), replay(x, e, name))


def test_epochs_must_fit_the_series():
    with pytest.raises(DataError) as told:
        replay(np.ones(10), np.zeros(9, np.int32), "fixed:5")
    assert told.value.code == "core.unequal_lengths"


def test_the_estimate_is_of_the_samples_used_alone():
    x = delays(5, 2000)
    x[730:] *= 10
    said = replay(x, in_epochs(2000), "fixed:730")
    assert said.n == 730
    assert said.epochs == 15
    assert said.estimate == pytest.approx(median(x[:730]), rel=1e-3)


# ---- ci


def stopped(spec: str, make, runs: int = 150) -> list[Replay]:
    return [replay(make(k), None, spec, cap=60000, seed=k) for k in range(runs)]


def test_ci_holds_the_truth_as_often_as_it_says():
    said = stopped("ci:2%", delays, 300)
    assert {r.decision for r in said} == {"converged"}
    held = sum(r.low <= MEDIAN_S <= r.high for r in said)
    # 285 of 300 are expected; 271 or fewer have a probability below 1 in 1000.
    assert held > 271
    assert np.quantile([abs(r.estimate / MEDIAN_S - 1) for r in said], 0.95) <= 0.02


def test_ci_asks_four_times_the_samples_for_half_the_width():
    wide, narrow = (np.median([r.n for r in stopped(spec, delays, 40)]) for spec in ("ci:1%", "ci:0.5%"))
    assert 3 < narrow / wide < 6


def test_ci_leaves_a_warm_up_out_of_the_estimate():
    def make(seed):
        k = np.arange(20000)
        return delays(seed) * (1 + 2 * np.exp(-k / 75))

    said = stopped("ci:2%", make, 60)
    assert all(r.decision == "converged" for r in said)
    assert np.mean([r.skipped > 0 for r in said]) > 0.9
    assert abs(np.mean([r.estimate for r in said]) / MEDIAN_S - 1) < 0.005


def test_ci_calls_a_climb_drift_and_a_steady_level_not():
    climb = 1 + np.arange(20000) / 1000
    assert {r.decision for r in stopped("ci:1%", lambda k: delays(k) * climb, 30)} == {"drift"}
    assert "drift" not in {r.decision for r in stopped("ci:1%", delays, 60)}


def test_ci_on_two_values_says_which_only_when_it_knows():
    pick = np.random.default_rng(6).random(20000)
    sure = replay(np.where(pick < 0.9, 1e-6, 1.1e-6), None, "ci:1%")
    assert (sure.decision, sure.estimate) == ("converged", 1e-6)
    assert replay(np.where(pick < 0.5, 1e-6, 1.1e-6), None, "ci:1%", cap=2000).decision == "cap"


# ---- the others, by what they do not claim


def test_a_wider_law_takes_more_samples():
    for name in ("spectral:level=2%", "lognormal"):
        few = np.median([r.n for r in stopped(name, lambda k: delays(k, 30000, 0.05), 8)])
        many = np.median([r.n for r in stopped(name, lambda k: delays(k, 30000, 0.6), 8)])
        assert few < many


def test_clustbench_stops_in_the_first_burst_because_means_are_alike():
    said = stopped("clustbench-fft", delays, 60)
    assert np.mean([r.n <= 50 for r in said]) > 0.9
    modified = stopped("clustbench-modified", delays, 60)
    assert np.mean([r.decision == "cap" for r in modified]) > 0.9
    assert all(r.n == 1000 for r in modified if r.decision == "cap")


# ---- --rule and --precision


@pytest.mark.parametrize(
    ("precision", "rule", "expected"),
    [
        (None, None, "ci:1%"),
        (None, "fixed:100", "fixed:100"),
        (0.05, None, "ci:0.05"),
        (0.05, "ci", "ci:0.05"),
        (0.05, "ci:0.05", "ci:0.05"),
    ],
)
def test_a_rule_and_a_precision_either_or_both_alike(precision, rule, expected):
    assert rule_with(precision, rule, "ci:1%", "net") == expected
    check_rule(expected)


@pytest.mark.parametrize("rule", ["fixed:100", "ci:1%", "ci:0.05,level=0.9", "cix"])
def test_a_rule_that_says_otherwise_than_the_precision_is_not_passed_over(rule):
    with pytest.raises(UsageError, match=f"--rule asks for {rule}") as told:
        rule_with(0.05, rule, "ci:1%", "store")
    assert told.value.code == "store.rule_twice"
