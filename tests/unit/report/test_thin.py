import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.report import thin


def test_envelope_keeps_everything_of_a_short_series():
    assert thin.envelope(np.arange(5.0), 10).tolist() == [0, 1, 2, 3, 4]


@given(st.integers(0, 10_000), st.integers(200, 5000))
def test_envelope_never_loses_an_extreme(seed, n):
    y = np.random.default_rng(seed).standard_t(2, n)
    kept = thin.envelope(y, 100)
    assert y[kept].max() == y.max()
    assert y[kept].min() == y.min()
    assert kept.size <= 110
    assert (np.diff(kept) > 0).all()


def test_envelope_keeps_both_extremes_of_every_epoch():
    y = np.random.default_rng(1).normal(size=1000)
    group = np.repeat(np.arange(10), 100)
    kept = thin.envelope(y, 200, group)
    for k in range(10):
        mine = y[kept[group[kept] == k]]
        assert mine.max() == y[group == k].max()
        assert mine.min() == y[group == k].min()


def test_envelope_is_bounded_when_there_are_more_epochs_than_points():
    y = np.random.default_rng(1).normal(size=10_000)
    assert thin.envelope(y, 100, np.arange(10_000)).size <= 110


def test_envelope_passes_over_holes():
    y = np.ones(1000)
    y[::2] = np.nan
    y[501] = 9.0
    assert 9.0 in y[thin.envelope(y, 20)]


def test_envelope_of_nothing_is_nothing():
    assert thin.envelope(np.empty(0), 10).size == 0


def test_steps_keep_both_tails_in_full():
    kept = thin.steps(np.linspace(0, 1, 50_000), 1000)
    assert kept.size <= 1000
    assert kept[:100].tolist() == list(range(100))
    assert kept[-100:].tolist() == list(range(49_900, 50_000))


@pytest.mark.parametrize(
    ("rows", "values", "budget", "block"),
    [(4, 10, 1000, 1), (32, 1, 1024, 1), (33, 1, 1024, 2), (1024, 10, 10**6, 4)],
)
def test_block_size_is_the_smallest_power_of_two_within_the_budget(rows, values, budget, block):
    assert thin.block_size(rows, rows, values, budget) == block


def test_block_size_ends_though_the_budget_cannot_be_met():
    assert thin.block_size(4, 4, 100, 10) == 4


def test_one_slow_pair_survives_its_block():
    a = np.ones((64, 64))
    a[17, 40] = 5.0
    drawn, low, high = thin.unusual(a, 8)
    assert drawn.shape == (8, 8)
    assert drawn[2, 5] == 5.0
    assert (low[2, 5], high[2, 5]) == (1.0, 5.0)
    assert np.count_nonzero(drawn != 1.0) == 1


def test_one_fast_pair_survives_its_block_too():
    a = np.full((16, 16), 4.0)
    a[3, 3] = 1.0
    assert thin.unusual(a, 4, log=True)[0][0, 0] == 1.0


def test_a_block_without_values_stays_a_hole_and_edges_are_not_padded_with_values():
    a = np.full((5, 5), 2.0)
    a[4, 4] = np.nan
    drawn, low, _ = thin.unusual(a, 4)
    assert np.isnan(drawn[1, 1])
    assert low[0, 1] == 2.0


def test_a_matrix_of_holes_is_a_matrix_of_holes():
    assert np.isnan(thin.unusual(np.full((8, 8), np.nan), 4)[0]).all()


def test_the_rarest_state_stands_for_its_block():
    codes = np.ones((8, 8), dtype=int)
    codes[0, 0] = 3
    codes[0, 1:4] = 2
    codes[4:, 4:] = -1
    drawn = thin.rarest(codes, 4)
    assert drawn[0, 0] == 3
    assert drawn[0, 1] == drawn[1, 0] == 1
    assert np.isnan(drawn[1, 1])


def test_tiles_show_their_largest_power():
    a = np.zeros((1000, 90))
    a[777, 33] = 8.0
    tiles, rows, cols = thin.maxima(a, 100, 30)
    assert (rows, cols) == (10, 3)
    assert tiles.shape == (100, 30)
    assert tiles[77, 11] == 8.0
    assert np.count_nonzero(tiles) == 1


def test_tiles_of_holes_are_holes():
    assert np.isnan(thin.maxima(np.full((10, 10), np.nan), 5, 5)[0]).all()
