"""Models of links: recovered from known truth, forecasts that hold, assumed models that links break."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.errors import DataError, UsageError
from sonde.net import models

SIZES = np.array([8, 64, 512, 1024, 4096, 16384, 65536, 262144, 1048576])


def summary_of(cells: np.ndarray, size=SIZES, half_width=0.01, **facts) -> xr.Dataset:
    n = cells.shape[0]
    dims = ("src", "dst", "size")
    data = {
        "median": (dims, cells),
        "median_low": (dims, cells * (1 - half_width)),
        "median_high": (dims, cells * (1 + half_width)),
        "epochs": (dims, np.full(cells.shape, 30)),
    }
    data |= {name: ("rank", values) for name, values in facts.items()}
    coords = {"src": np.arange(n), "dst": np.arange(n), "size": np.asarray(size), "rank": np.arange(n)}
    return xr.Dataset(data, coords, {"value": "rtt_half"})


def uniform(n=4, alpha=1e-6, beta=1e-10) -> np.ndarray:
    cells = np.broadcast_to(alpha + beta * SIZES, (n, n, len(SIZES))).copy()
    cells[np.arange(n), np.arange(n)] = np.nan
    return cells


def test_one_line_is_recovered():
    model = models.fit(SIZES, 1.5e-6 + SIZES / 10e9)
    assert len(model.segments) == 1
    assert model.latency_zero_s == pytest.approx(1.5e-6, rel=1e-6)
    assert 1 / model.segments[-1].beta_s_per_b == pytest.approx(10e9, rel=1e-6)
    assert model.half_size_b == pytest.approx(15000, rel=1e-6)


def test_eager_and_rendezvous_are_two_segments():
    y = np.where(SIZES <= 4096, 1e-6 + SIZES * 0.5e-9, 5e-6 + SIZES * 0.1e-9)
    model = models.fit(SIZES, y, np.full(len(SIZES), 0.005))
    assert [(s.begin, s.end) for s in model.segments] == [(8, 4096), (16384, 1048576)]
    assert model.segments[0].alpha_s == pytest.approx(1e-6, rel=0.02)
    assert model.segments[1].alpha_s == pytest.approx(5e-6, rel=0.02)
    assert model.segments[1].beta_s_per_b == pytest.approx(0.1e-9, rel=0.02)


@pytest.mark.parametrize("runs", [60, pytest.param(300, marks=pytest.mark.soak)])
def test_a_size_never_measured_is_forecast_with_an_interval_that_holds(runs):
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(runs):
        truth = 2e-6 + SIZES * 0.2e-9
        model = models.fit(SIZES, truth * np.exp(rng.normal(0, 0.03, len(SIZES))), np.full(len(SIZES), 0.03))
        value, low, high = model.predict(131072)
        assert low <= value <= high
        actual = (2e-6 + 131072 * 0.2e-9) * np.exp(rng.normal(0, 0.03))
        inside += low <= actual <= high
    # 95 % asked for; the number of segments is chosen from the data, which costs a little.
    assert inside >= runs * 0.9


def test_leaving_a_size_out_tells_the_forecast_error():
    model = models.fit(SIZES, 1e-6 + SIZES * 1e-10)
    assert np.nanmax(model.left_out) < 1e-6


def test_costs_of_all_pieces_are_those_of_their_lines():
    rng = np.random.default_rng(2)
    x = np.sort(rng.choice(100000, 12, replace=False)).astype(float)
    y = 1e-6 * rng.lognormal(0, 0.4, 12) + x * 1e-11
    cost = models._costs(x, y)
    for a in range(12):
        assert np.isinf(cost[a, : a + 1]).all()
        for b in range(a + 1, 13):
            assert cost[a, b] == pytest.approx(models._line(x[a:b], y[a:b])[2], abs=1e-9)


def test_more_sizes_than_are_looked_at_are_thinned_and_still_fit():
    size = np.arange(0, 2000)
    model = models.fit(size, 1e-6 + size * 1e-9)
    assert len(model.size) == len(model.latency_s) == models.MOST_SIZES
    assert (model.size[0], model.size[-1]) == (0, 1999)
    assert np.isfinite(model.left_out).sum() == models.MOST_LEFT_OUT
    assert model.worst_left_out < 1e-6


def test_residuals_are_measured_over_fitted():
    size = np.arange(8, 13) * 1024  # too few for a second line
    model = models.fit(size, np.where(size == 10240, 1.1e-6, 1e-6))
    assert model.residuals() == pytest.approx([-0.02, -0.02, 0.08, -0.02, -0.02], abs=0.01)
    assert models.fit(SIZES, 1e-6 + SIZES * 1e-10).residuals() == pytest.approx(np.zeros(9), abs=1e-9)


def test_loggp_takes_the_gap_for_every_byte_but_the_first():
    line = models.LogGP(2e-6, 1e-9, float("nan"))
    assert line.at(1) == 2e-6
    assert line.at(0) == 2e-6, "an empty message"
    assert line.at(1001) == pytest.approx(3e-6)


def test_size_that_costs_nothing_has_no_finite_bandwidth():
    model = models.fit(SIZES, np.full(len(SIZES), 3e-6))
    assert model.segments[-1].beta_s_per_b < 1e-15
    assert model.latency_zero_s == pytest.approx(3e-6)


def test_delays_that_fall_with_size_do_not_make_a_negative_slope():
    model = models.fit(SIZES[:4], np.array([4e-6, 3e-6, 2e-6, 1e-6]))
    assert all(s.beta_s_per_b >= 0 for s in model.segments)


def test_one_size_is_too_few():
    with pytest.raises(DataError, match="needs two sizes"):
        models.fit(np.array([8]), np.array([1e-6]))


@given(st.lists(st.floats(1e-9, 1e3), min_size=2, max_size=9))
def test_any_positive_delays_give_a_finite_model(values):
    model = models.fit(SIZES[: len(values)], np.array(values))
    assert all(np.isfinite([s.alpha_s, s.beta_s_per_b]).all() for s in model.segments)
    assert np.isfinite(model.predict(100.0)).all()


def test_each_class_gets_its_own_model():
    cells = uniform()
    label = np.zeros((4, 4), int)
    for a, b in ((0, 2), (0, 3), (1, 2), (1, 3)):
        for x, y in ((a, b), (b, a)):
            cells[x, y] *= 3
            label[x, y] = 1
    summary = summary_of(cells)
    summary["class"] = (("src", "dst"), label)
    near, far = models.class_models(summary)
    assert near.latency_zero_s == pytest.approx(1e-6, rel=1e-3)
    assert far.latency_zero_s == pytest.approx(3e-6, rel=1e-3)


def test_loggp_takes_the_gap_from_all_to_all_and_says_nan_without():
    model = models.fit(SIZES, 1e-6 + SIZES * 1e-10)
    assert np.isnan(models.loggp(model).gap_s)
    cells = np.full((5, 5, 1), np.nan)
    for dst in range(5):
        for k, src in enumerate(s for s in range(5) if s != dst):
            cells[src, dst, 0] = 1e-6 + k * 0.3e-6
    assert models.loggp(model, summary_of(cells, size=[8])).gap_s == pytest.approx(0.3e-6)


def test_a_link_that_breaks_the_assumed_model_is_found_and_others_are_not():
    cells = uniform()
    cells[0, 1] *= 1.5
    cells[1, 0] *= 1.5
    assumed = {"level": [{"name": "any", "latency_s": 1e-6, "bandwidth_b_per_s": 1e10}]}
    found = models.violations(summary_of(cells), assumed)
    assert {(f.evidence["src"], f.evidence["dst"]) for f in found} == {(0, 1), (1, 0)}
    assert found[0].evidence["ratio"] == pytest.approx(1.5, rel=0.01)
    assert models.violations(summary_of(uniform()), assumed) == []


def test_a_difference_inside_the_tolerance_is_no_violation():
    assumed = {"level": [{"name": "any", "latency_s": 1.1e-6, "bandwidth_b_per_s": 1e10}]}
    assert models.violations(summary_of(uniform()), assumed, tolerance=0.2) == []


def test_levels_follow_the_places_of_the_ranks():
    cells = uniform()
    host = np.array(["n1", "n1", "n2", "n2"], object)
    assumed = {
        "level": [
            {"name": "same host", "latency_s": 1e-6, "bandwidth_b_per_s": 1e10},
            {"name": "other host", "latency_s": 5e-6, "bandwidth_b_per_s": 1e10},
        ]
    }
    wanted = models.expected(assumed, summary_of(cells, host=host))
    assert wanted[0, 1, 0] == pytest.approx(1e-6, rel=0.01)
    assert wanted[0, 2, 0] == pytest.approx(5e-6, rel=0.01)


def places(**known: list[int]) -> xr.Dataset:
    """Four ranks on one host, with what is known of their places."""
    summary = summary_of(uniform(), host=np.array(["n1"] * 4, object))
    return summary.assign({name: ("rank", np.array(ids)) for name, ids in known.items()})


def test_a_missing_level_is_stood_in_for_by_the_next_wider_one_and_reported():
    summary = places(core=[0, 1, 2, 3], l3=[0, 0, 1, 1], numa=[0, 0, 0, 0], package=[0, 0, 0, 0])
    assumed = {"level": [{"name": "same package", "latency_s": 1e-6}, {"name": "any", "latency_s": 9e-6}]}
    wanted = models.expected(assumed, summary)
    assert wanted[0, 1, 0] == pytest.approx(1e-6)  # same L3
    assert wanted[0, 2, 0] == pytest.approx(1e-6)  # same NUMA node
    told = models.stand_ins(assumed, summary)
    assert [warning.code for warning in told] == ["net.wider_level"] * 2
    assert "no level 'same L3': its links were compared with 'same package'" in told[0].evidence
    assert "no level 'same NUMA node'" in told[1].evidence


def test_the_network_never_stands_in_for_what_stays_on_a_host():
    summary = places(core=[0, 1, 2, 3], l3=[0, 0, 0, 0])
    assumed = {"level": [{"name": "other host", "latency_s": 1e-6}]}
    assert np.isnan(models.expected(assumed, summary)).all()
    assert models.stand_ins(assumed, summary) == []


def test_a_narrower_level_does_not_stand_in_for_a_wider_one():
    summary = places()
    assumed = {"level": [{"name": "same core", "latency_s": 1e-6}]}
    assert np.isnan(models.expected(assumed, summary)).all()


def test_a_forecast_beyond_the_sizes_measured_is_reported():
    model = models.fit(SIZES, 1e-6 + SIZES * 1e-10)
    inside, outside = int(SIZES[1]), int(SIZES[-1]) + 1
    assert models.beyond([model], [int(SIZES[0]), inside, int(SIZES[-1])]) is None
    told = models.beyond([model], [inside, outside])
    assert told is not None
    assert told.code == "net.extrapolated"
    assert not model.extrapolates(inside)
    assert model.extrapolates(outside)
    assert model.extrapolates(int(SIZES[0]) - 1)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({"levle": []}, "nearest: level"),
        ({}, "neither a matrix nor a level"),
        ({"matrix": [[1.0]]}, "1x1, but there are 4 ranks"),
        ({"level": [{"name": "same hots", "latency_s": 1e-6}]}, "nearest: same host"),
        ({"level": [{"name": "any"}]}, "needs a latency_s above 0"),
        ({"level": [{"name": "any", "latency_s": 1e-6, "speed": 1}]}, "'speed' is not a key"),
    ],
)
def test_a_model_that_makes_no_sense_is_reported(model, told):
    with pytest.raises(UsageError) as error:
        models.expected(model, summary_of(uniform()))
    assert told in error.value.what


def test_a_model_that_says_nothing_about_these_links_is_reported():
    assumed = {"level": [{"name": "same core", "latency_s": 1e-6}]}
    with pytest.raises(DataError, match="does not cover any measured link"):
        models.violations(summary_of(uniform()), assumed)
