"""Quantiles of histograms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde import _core
from sonde.core.errors import DataError, UsageError
from sonde.noise.detector.histogram import quantiles

EDGES = np.array([0.0, 1.0, 2.0, 4.0, 8.0])


def test_straight_line_within_the_class():
    assert quantiles([0, 10, 0, 30], EDGES, [0.0, 0.125, 0.25, 0.5, 1.0]).tolist() == pytest.approx(
        [1, 1.5, 2, 4 + 4 / 3, 8]
    )


def test_of_many_histograms_at_once_and_an_empty_one():
    found = quantiles([[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 2]], EDGES, [0.5])
    np.testing.assert_array_equal(found, [[0.5], [np.nan], [6.0]])


def test_without_classes_or_histograms():
    assert np.isnan(quantiles(np.zeros((2, 0)), [0.0], [0.5])).all()
    assert quantiles(np.zeros((0, 4)), EDGES, [0.1, 0.9]).shape == (0, 2)


@given(
    st.lists(st.integers(0, 1000), min_size=4, max_size=4).filter(any),
    st.lists(st.floats(0, 1), min_size=1, max_size=5),
)
def test_quantiles_rise_and_lie_in_classes_that_hold_something(count, q):
    q = sorted(q)
    found = quantiles(count, EDGES, q)
    assert (np.diff(found) >= 0).all()
    held = np.flatnonzero(count)
    assert (found >= EDGES[held[0]]).all()
    assert (found <= EDGES[held[-1] + 1]).all()
    for share, value in zip(q, found):
        upto = np.interp(value, EDGES, np.concatenate([[0], np.cumsum(count)]))
        assert upto == pytest.approx(share * sum(count), abs=1e-6 * sum(count))


def test_of_durations_counted_as_the_detector_counts_them_they_are_near_the_durations():
    edges = np.array(_core.noise_edges(), float)
    ticks = np.random.default_rng(1).lognormal(10, 1, 20_000)
    count, _ = np.histogram(ticks, edges)
    wanted = [0.5, 0.9, 0.99]
    # A class is at most 1/32 wide.
    np.testing.assert_allclose(quantiles(count, edges, wanted), np.quantile(ticks, wanted), rtol=1 / 32)


@pytest.mark.parametrize("q", [-0.1, 1.1, np.nan])
def test_an_impossible_quantile(q):
    with pytest.raises(UsageError, match="0 to 1"):
        quantiles([1], [0, 1], [q])


@pytest.mark.parametrize(
    ("count", "edges"),
    [([1, 2], [0, 1]), ([1], [1, 0]), ([-1], [0, 1]), ([np.nan], [0, 1]), ([1], [0, np.nan])],
    ids=["too few edges", "falling edges", "negative count", "count NaN", "edge NaN"],
)
def test_what_is_no_histogram(count, edges):
    with pytest.raises(DataError) as error:
        quantiles(count, edges, [0.5])
    assert error.value.code == "noise.bad_histogram"
