"""Rows of pairs: directions, topology, errors."""

import numpy as np
import pytest
import xarray as xr

from sonde.core.errors import DataError
from sonde.net.pairs import centre, log_errors, pair_levels, pairs_of, shrunk_errors
from sonde.net.synthetic import Network, summary_of_medians


def small() -> xr.Dataset:
    return Network(ranks=4, sizes=(8, 64)).summary(20, np.random.default_rng(0))


def test_half_round_trips_are_one_row_a_pair_and_one_way_delays_two():
    summary = small()
    both = pairs_of(summary)
    assert len(both) == 6
    assert both.ways.shape == (6, 2, 2)
    assert both.name(0) == "0–1"
    one_way = pairs_of(summary.assign_attrs(value="one_way"))
    assert len(one_way) == 12
    assert one_way.name(0) == "0→1"
    expected = (np.log(summary["median"][0, 1]) + np.log(summary["median"][1, 0])) / 2
    np.testing.assert_allclose(both.log_latency[0], expected)


def test_a_missing_direction_leaves_the_other():
    summary = small()
    summary["median"][0, 1] = np.nan
    pairs = pairs_of(summary)
    np.testing.assert_allclose(pairs.log_latency[0], np.log(summary["median"][1, 0]))
    summary["median"][1, 0] = np.nan
    assert len(pairs_of(summary)) == 5


def test_a_rank_with_itself_is_no_link():
    summary = small()
    summary["median"][2, 2] = 1e-9
    assert not any(pairs_of(summary).src == pairs_of(summary).dst)


def test_matrix_fills_both_directions_of_an_undirected_row():
    pairs = pairs_of(small())
    matrix = pairs.matrix(np.arange(6.0))
    np.testing.assert_array_equal(matrix, matrix.T)
    assert matrix[2, 3] == 5
    assert np.isnan(np.diag(matrix)).all()
    directed = pairs_of(small().assign_attrs(value="one_way"))
    assert (directed.matrix(np.arange(12), -1) != directed.matrix(np.arange(12), -1).T).any()


def test_means_stand_in_for_medians():
    summary = small().rename(median="mean")[["mean"]]
    assert centre(summary).shape == (4, 4, 2)
    with pytest.raises(DataError, match="none of median, mean, min"):
        centre(summary.rename(mean="other"))


def places(**facts: list) -> np.ndarray:
    summary = small()
    for name, values in facts.items():
        summary[name] = ("rank", np.array(values, object if name == "host" else int))
    return pair_levels(summary.drop_vars("host") if "host" not in facts else summary)


def test_the_nearest_shared_place_is_the_level():
    level = places(
        host=["a", "a", "a", "b"], package=[0, 0, 1, 0], numa=[0, 0, 1, 0], core=[0, 1, 2, 0], l3=[0, 0, 1, 0]
    )
    assert level[0, 1] == 1  # L3
    assert level[0, 2] == 4  # host
    assert level[0, 3] == 5  # another host, though its numbers are the same
    np.testing.assert_array_equal(level, level.T)


def test_unknown_places_are_shared_by_nobody():
    assert (places(core=[-1, -1, -1, -1]) == -1).all()
    assert (places(host=["", "", "", ""]) == -1).all()
    assert (places(host=["a", "", "b", "b"]) == -1).all()
    assert places(host=["a", "a", "b", "b"], core=[0, -1, 0, 1])[0, 1] == 4


def test_errors_match_the_intervals_they_come_from():
    rng = np.random.default_rng(1)
    for epochs in (4, 20, 60):
        medians = np.exp(rng.normal(0, 0.1, (30, 30, 1, epochs))) * 1e-6
        error, degrees = log_errors(summary_of_medians((8,), medians))
        # The median of normal values is known to 1.25 sd / sqrt(n), their mean to sd / sqrt(n).
        usual = 0.1 / np.sqrt(epochs)
        assert 0.75 * usual < np.sqrt(np.mean(error**2)) < 1.6 * usual
        assert (degrees > 0).all()


def test_no_interval_is_no_error():
    error, degrees = log_errors(small()[["median"]])
    assert np.isnan(error).all()
    assert (degrees == 0).all()
    assert np.isnan(shrunk_errors(error, degrees)[0]).all()


def test_shrinking_draws_errors_together_and_fills_unknown_ones():
    rng = np.random.default_rng(2)
    degrees = np.full(500, 5.0)
    error = 0.1 * np.sqrt(rng.chisquare(5, 500) / 5)
    error[7] = np.nan
    shrunk, total = shrunk_errors(error, degrees)
    known = np.isfinite(error)
    assert np.std(shrunk[known]) < 0.5 * np.std(error[known])
    assert shrunk[7] == pytest.approx(0.1, rel=0.1)
    assert (total[known] >= 5).all()


def test_shrinking_one_value_keeps_it():
    shrunk, _ = shrunk_errors(np.array([0.05]), np.array([4.0]))
    assert shrunk[0] == pytest.approx(0.05, rel=0.2)


def one_way(offset_s, error_s) -> xr.Dataset:
    """Four ranks on equal links, whose clocks are off by offset_s and known to ±error_s."""
    net = Network(
        ranks=4,
        ranks_per_host=1,
        sizes=(8, 64),
        link_spread=0,
        rank_spread=0,
        epoch_spread=1e-3,
        regime_share=0,
    )
    summary = net.summary(20, np.random.default_rng(0)).assign_attrs(value="one_way")
    offset = np.asarray(offset_s, float)
    between = (offset - offset[:, None])[..., None]
    for name in ("median", "median_low", "median_high", "q05"):
        summary[name].values[...] += between
    summary["clock_error"] = ("rank", np.asarray(error_s, float))
    return summary


def test_the_error_of_clocks_makes_no_direction_slow():
    true = one_way([0, 0, 0, 0], [0, 0, 0, 0])
    delay = float(np.nanmedian(true["median"].sel(size=8)))
    wrong = one_way([0, 0.6 * delay, -0.4 * delay, 0.1 * delay], [0.0, delay, delay, delay])
    pairs, expected = pairs_of(wrong), pairs_of(true)
    assert len(pairs) == 12
    np.testing.assert_allclose(pairs.log_latency, expected.log_latency, atol=0.01)
    np.testing.assert_allclose(pairs.low, expected.low, atol=0.01)
    # Clocks further off than the delay is long: the faster direction is negative, and its link is still there.
    beyond = pairs_of(one_way([0, 1.5 * delay, 0, 0], [0, 2 * delay, 0, 0]))
    np.testing.assert_allclose(beyond.log_latency, expected.log_latency, atol=0.01)


def test_what_clocks_cannot_explain_stays_a_difference_of_directions():
    true = one_way([0, 0, 0, 0], [0, 0, 0, 0])
    delay = float(np.nanmedian(true["median"].sel(size=8)))
    summary = one_way([0, 0, 0, 0], [0, 0, 0.1 * delay, 0.1 * delay])
    summary["median"].values[2, 3] += 4 * delay
    pairs = pairs_of(summary)
    row = {(int(a), int(b)): k for k, (a, b) in enumerate(zip(pairs.src, pairs.dst))}
    there, back = (float(np.exp(pairs.log_latency[row[pair], 0])) for pair in ((2, 3), (3, 2)))
    assert there - back == pytest.approx(4 * delay - 2 * 0.2 * delay, rel=0.02)


def test_one_direction_alone_is_as_unsure_as_its_clocks():
    true = one_way([0, 0, 0, 0], [0, 0, 0, 0])
    delay = float(np.nanmedian(true["median"].sel(size=8)))
    summary = one_way([0, 0, 0, 0], [0, 0.5 * delay, 0, 0])
    summary["median"].values[1, 0] = np.nan
    pairs = pairs_of(summary)
    row = {(int(a), int(b)): k for k, (a, b) in enumerate(zip(pairs.src, pairs.dst))}
    assert pairs.log_error[row[0, 1], 0] == pytest.approx(0.5, rel=0.05)
    assert pairs.log_error[row[0, 2], 0] < 0.05


def test_half_round_trips_need_no_clocks():
    summary = one_way([0, 1e-6, 0, 0], [0, 1e-3, 0, 0])
    with_clocks = pairs_of(summary.assign_attrs(value="rtt_half"))
    without = pairs_of(summary.drop_vars("clock_error").assign_attrs(value="rtt_half"))
    np.testing.assert_array_equal(with_clocks.ways, without.ways)
