import numpy as np
import pytest
import xarray as xr
from scipy.cluster import hierarchy

import report_demo as demo
from sonde.core.errors import DataError
from sonde.core.figure import Axis, Figure, Kind, Slider
from sonde.report import prepare
from sonde.report.prepare import curves, limits


def figure(kind, data, axes=None, controls=()):
    return Figure("f", "title", "caption", kind, data, axes or {}, controls)


def chart_of(y, group=None, **more):
    y = np.atleast_2d(y)
    variables = {"y": (("series", "x"), y), **more}
    if group is not None:
        variables["group"] = (("series", "x"), np.atleast_2d(group))
    return figure(Kind.SERIES, xr.Dataset(variables), {"x": Axis("sample"), "y": Axis("delay", "s")})


@pytest.mark.parametrize(
    ("kind", "data", "named"),
    [
        (Kind.MATRIX, xr.Dataset(), "'value' is missing"),
        (Kind.MATRIX, xr.Dataset({"value": ("row", [1.0])}), "dims ('row',)"),
        (Kind.MATRIX, xr.Dataset({"value": (("row", "col", "size"), np.ones((1, 1, 1)))}), "dims"),
        (Kind.STATUS, xr.Dataset({"value": (("row", "col"), [[1]])}), "names of its codes"),
        (Kind.SERIES, xr.Dataset({"y": ("x", [1.0])}), "dims ('x',)"),
        (Kind.SPECTROGRAM, xr.Dataset({"power": ("x", [1.0])}), "dims"),
        (Kind.CDF, xr.Dataset({"x": (("series", "point"), [[1.0]])}), "'p' is missing"),
        (Kind.SCATTER, xr.Dataset({"x": (("series", "point"), [[1.0]])}), "'y' is missing"),
        (Kind.DENDROGRAM, xr.Dataset({"merge": (("link", "part"), np.ones((2, 3)))}), "dims"),
        (Kind.BAR, xr.Dataset({"y": (("bar", "other"), [[1.0]])}), "dims ('bar', 'other')"),
        (Kind.ICICLE, xr.Dataset({"parent": ("node", [-1]), "value": ("node", [1.0])}), "'label' is missing"),
        (
            Kind.ICICLE,
            demo.icicle().data.assign(parent=("node", [-1, -1, 0, 2, 2])),
            "do not form a tree with one root",
        ),
        (
            Kind.ICICLE,
            demo.icicle().data.assign(parent=("node", [-1, 0, 3, 4, 2])),
            "do not form a tree with one root",
        ),
        (
            Kind.ICICLE,
            demo.icicle().data.assign(parent=("node", [-1, 0, 0, 2, 5])),
            "do not form a tree with one root",
        ),
        (Kind.STACK, xr.Dataset({"y": (("part", "x"), [[1.0]])}), "coordinate 'x' is missing"),
        (Kind.STACK, xr.Dataset({"y": ("x", [1.0])}, coords={"x": [0.0]}), "dims ('x',)"),
    ],
)
def test_a_figure_whose_data_does_not_fit_is_refused_by_name(kind, data, named):
    with pytest.raises(DataError) as refused:
        prepare.check(figure(kind, data))
    assert refused.value.code == "report.figure_data"
    assert named in refused.value.what
    assert "'f'" in refused.value.what
    assert "allowed:" in refused.value.what


def test_a_control_along_a_missing_dim_is_refused():
    data = xr.Dataset({"value": (("row", "col"), np.ones((2, 2)))})
    with pytest.raises(DataError, match="moves along 'size'"):
        prepare.check(figure(Kind.MATRIX, data, controls=(Slider("size", "Size"),)))


def test_a_control_along_an_empty_dim_is_refused():
    data = xr.Dataset({"value": (("row", "col", "size"), np.ones((2, 2, 0)))})
    with pytest.raises(DataError, match="empty"):
        prepare.check(figure(Kind.MATRIX, data, controls=(Slider("size", "Size"),)))


def test_matrix_comes_in_the_unit_of_its_data_and_in_any_order_of_dims():
    plain = prepare.matrix(demo.matrix(4))
    turned = demo.matrix(4)
    turned = Figure(
        turned.id,
        "",
        "",
        turned.kind,
        turned.data.transpose("size", "col", "row"),
        turned.axes,
        turned.controls,
    )
    other = prepare.matrix(turned)
    assert plain.value.unit == "µs"
    assert len(plain.frames) == len(demo.SIZES)
    expected = demo.medians(4, demo.SIZES)[2, 1, 3] * 1e6
    assert plain.frames[3][2, 1] == pytest.approx(expected)
    assert other.frames[3][2, 1] == pytest.approx(expected)
    assert np.isnan(plain.frames[0][1, 1])


def test_everything_else_known_of_a_cell_is_reported():
    m = prepare.matrix(demo.matrix(4))
    assert [t.label for t in m.extras] == ["95 % interval from", "to", "samples", "effective samples"]
    assert m.extras[0].unit == "s"
    assert m.rows.facts == [("host", ["n001", "n001", "n002", "n002"])]


def test_facts_that_are_empty_for_every_rank_are_not_reported():
    data = demo.dataset(4, demo.SIZES)
    data["src_host"] = ("row", ["", "", "", ""], {"long_name": "host"})
    f = demo.matrix(4)
    m = prepare.matrix(Figure(f.id, "", "", f.kind, data, f.axes, f.controls))
    assert m.rows.facts == []
    assert len(m.cols.facts) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [("median delay", "Median delay"), ("n", "n"), ("pH of it", "pH of it"), ("RTT/2", "RTT/2"), ("", "")],
)
def test_labels_begin_with_a_capital_and_symbols_stay(text, shown):
    assert prepare.capital(text) == shown


def test_a_large_matrix_becomes_blocks_that_keep_the_slow_pair(monkeypatch):
    monkeypatch.setattr(limits, "CELLS", 64 * 64)
    m = prepare.matrix(demo.matrix(128, (1024,)))
    assert m.block == 2
    assert m.frames[0].shape == (64, 64)
    worst = np.nanmax(demo.medians(128, (1024,)))
    assert np.nanmax(m.frames[0]) == pytest.approx(worst * m.value.factor)
    assert m.rows.each[3] == "6–7"
    assert m.rows.facts[0][1][3] == "n001"
    assert [t.label for t in m.extras] == ["smallest in the block", "largest in the block"]
    assert "blocks of 2 × 2" in m.notes[0]


def test_counts_of_states_are_of_cells_even_where_blocks_are_drawn(monkeypatch):
    monkeypatch.setattr(limits, "CODES", 8 * 8 * 8)
    m = prepare.matrix(demo.status(32))
    assert m.block == 4
    assert sum(m.counts[0]) == 32 * 31
    assert "rarest" in m.notes[0]


def test_codes_beyond_the_labels_are_named_by_their_number():
    data = xr.Dataset({"value": (("row", "col"), [[0, 3]])})
    m = prepare.matrix(figure(Kind.STATUS, data, {"value": Axis("state", labels=("none", "done"))}))
    assert m.words == ("none", "done", "code 2", "code 3")


def test_extras_that_are_too_many_are_left_out_and_named(monkeypatch):
    monkeypatch.setattr(limits, "EXTRAS", 2 * 4 * 4 * len(demo.SIZES))
    m = prepare.matrix(demo.matrix(4))
    assert [t.label for t in m.extras] == ["95 % interval from", "to"]
    assert "samples, effective samples" in m.notes[0]


def test_cells_at_zero_are_missing_from_a_logarithmic_scale_and_the_note_counts_them():
    data = xr.Dataset({"value": (("row", "col"), [[0.0, 1e-6], [2e-6, -1e-6]])})
    m = prepare.matrix(figure(Kind.MATRIX, data, {"value": Axis("v", "s", log=True)}))
    assert np.isnan(m.frames[0][0, 0])
    assert m.notes == ["2 cells at or below zero cannot be shown on a logarithmic scale."]


def test_a_matrix_without_a_single_value_is_drawn_empty():
    m = prepare.matrix(figure(Kind.MATRIX, xr.Dataset({"value": (("row", "col"), np.full((3, 3), np.nan))})))
    assert np.isnan(m.frames[0]).all()


def test_epochs_alternate_in_tone_and_are_not_joined():
    c = prepare.chart(chart_of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0, 0, 1, 1, 2, 2]))
    even, odd, _ = c.frames[0]
    assert (even.tone, odd.tone) == (0, 1)
    np.testing.assert_array_equal(even.x, [0, 1, np.nan, 4, 5])
    np.testing.assert_array_equal(odd.y, [3, 4])


def test_each_epoch_shows_its_median_where_it_lies():
    y = [1.0, 2.0, 9.0, 4.0, 5.0, 7.0, 8.0]
    middle = prepare.chart(chart_of(y, [0, 0, 0, -1, 1, 1, 1])).frames[0][-1]
    assert (middle.style, middle.key) == ("middle", curves.MIDDLE)
    np.testing.assert_array_equal(middle.x, [1, 5])
    np.testing.assert_array_equal(middle.y, [2, 7])


def test_one_epoch_and_very_many_have_no_medians():
    assert prepare.chart(chart_of([1.0, 2.0], [0, 0])).frames[0][-1].x.size == 0
    n = limits.MIDDLES + 1
    assert prepare.chart(chart_of(np.ones(n), np.arange(n))).frames[0][-1].x.size == 0


def test_samples_of_no_epoch_are_not_drawn():
    c = prepare.chart(chart_of([1.0, 2.0, 3.0], [0, -1, 1]))
    assert 2.0 not in np.concatenate([k.y for k in c.frames[0]])


def test_a_long_series_is_thinned_keeps_its_extremes_and_says_so():
    y, group = demo.delays(100_000)
    c = prepare.chart(chart_of(y, group))
    drawn = np.concatenate([k.y for k in c.frames[0]])
    drawn = drawn[np.isfinite(drawn)]
    assert drawn.size < 2 * limits.POINTS
    assert drawn.max() == pytest.approx(y.max() * c.y.factor)
    assert drawn.min() == pytest.approx(y.min() * c.y.factor)
    assert "smallest and the largest of every 50 samples" in c.notes[0]


def test_many_frames_share_one_budget_of_points():
    y = np.random.default_rng(0).lognormal(size=(1, 20_000, 300))
    f = figure(
        Kind.SERIES, xr.Dataset({"y": (("series", "x", "pair"), y)}), controls=(Slider("pair", "Pair"),)
    )
    c = prepare.chart(f)
    assert len(c.frames) == 300
    assert sum(k.x.size for frame in c.frames for k in frame) <= 2 * limits.ALL_POINTS


def test_the_bulk_is_of_all_samples_not_of_the_drawn_ones():
    y, _ = demo.delays(100_000)
    c = prepare.chart(chart_of(y))
    assert c.frames[0][0].bulk == pytest.approx(np.quantile(y, 0.99) * c.y.factor)


def test_a_series_may_have_an_x_of_its_own():
    data = xr.Dataset({"y": (("series", "x"), [[1.0, 2.0]])}, coords={"x": ("x", [0.5, 1.5], {})})
    c = prepare.chart(figure(Kind.SERIES, data, {"x": Axis("time", "s"), "y": Axis("y")}))
    np.testing.assert_array_equal(c.frames[0][0].x * (1 / c.x.factor), [0.5, 1.5])


def test_each_series_may_have_its_own_x():
    data = xr.Dataset(
        {"y": (("series", "x"), np.ones((2, 3)))},
        coords={"x": (("series", "x"), [[0.0, 1, 2], [10.0, 20, 30]])},
    )
    first, second = prepare.chart(figure(Kind.SERIES, data)).frames[0]
    assert first.x.tolist() == [0, 1, 2]
    assert second.x.tolist() == [10, 20, 30]


def test_a_series_of_no_samples_is_drawn_empty():
    c = prepare.chart(chart_of(np.empty((1, 0))))
    assert c.frames[0][0].x.size == 0


def test_points_at_zero_have_no_place_on_a_logarithmic_axis_and_are_counted():
    data = xr.Dataset({"x": (("series", "point"), [[0.0, 8.0]]), "y": (("series", "point"), [[1.0, 2.0]])})
    c = prepare.chart(figure(Kind.SCATTER, data, {"x": Axis("size", "B", log=True), "y": Axis("t", "s")}))
    assert c.frames[0][0].x.size == 1
    assert c.notes == ["1 points at or below zero cannot be shown on the logarithmic axis."]


def test_error_bars_come_in_the_shown_unit():
    c = prepare.chart(demo.model())
    points = c.frames[0][0]
    assert points.low is not None
    assert points.low[0] == pytest.approx(points.y[0] * 0.96)
    assert c.frames[0][1].low is None


def test_series_of_one_hue_share_a_colour_and_else_have_their_own():
    data = demo.model().data
    assert [c.colour for c in prepare.chart(demo.model()).frames[0]] == [0, 1]
    dressed = data.assign(hue=("series", [2, 2]), tone=("series", [0, 1]), key=("series", ["", "fit"]))
    f = demo.model()
    points, line = prepare.chart(Figure(f.id, "", "", f.kind, dressed, f.axes)).frames[0]
    assert (points.colour, points.tone, points.key) == (2, 0, "")
    assert (line.colour, line.tone, line.key) == (2, 1, "fit")


@pytest.mark.parametrize(("largest", "unit"), [(900.0, "B"), (4000.0, "B"), (40000.0, "KiB")])
def test_a_linear_axis_of_sizes_counts_whole_bytes_up_to_8_kib(largest, unit):
    data = xr.Dataset({v: (("series", "point"), [[0.0, largest]]) for v in "xy"})
    c = prepare.chart(figure(Kind.SCATTER, data, {"x": Axis("size", "B"), "y": Axis("t", "s")}))
    assert c.x.unit == unit


def shaded(*bands):
    """A scatter over ms with shaded ground. bands: (begin, end) in s."""
    data = xr.Dataset(
        {
            "x": (("series", "point"), [[0.001, 0.002, 0.004]]),
            "y": (("series", "point"), [[1.0, 2.0, 3.0]]),
            "band": (("band", "end"), np.array(bands, float).reshape(-1, 2)),
            "band_name": "agent on",
        }
    )
    return figure(Kind.SCATTER, data, {"x": Axis("time", "s"), "y": Axis("share")})


def test_bands_come_in_the_shown_unit_in_order_and_joined_where_they_touch():
    c = prepare.chart(shaded((0.003, 0.004), (0.001, 0.002), (0.002, 0.0025)))
    np.testing.assert_allclose(c.bands, [(1.0, 2.5), (3.0, 4.0)])
    assert (c.x.unit, c.band_name) == ("ms", "agent on")


def test_a_band_that_is_none_is_left_out():
    assert prepare.chart(shaded((0.002, 0.002), (np.nan, 0.004), (0.004, 0.003))).bands == []
    assert prepare.chart(shaded()).bands == []


def test_a_chart_without_bands_has_none():
    c = prepare.chart(chart_of([[1.0, 2.0]]))
    assert (c.bands, c.band_name) == ([], "")


def test_marks_and_levels_come_with_their_names():
    data = demo.model().data.assign(level=("level", [2e-6]), level_name=("level", ["limit"]))
    f = demo.model()
    c = prepare.chart(Figure(f.id, "", "", f.kind, data, f.axes))
    assert c.marks == [(16384.0 * c.x.factor, "rendezvous")]
    assert c.levels == [(pytest.approx(2e-6 * c.y.factor), "limit")]


def test_a_distribution_keeps_its_style_and_its_order():
    c = prepare.chart(demo.cdf())
    measured, fitted = c.frames[0]
    assert (measured.style, fitted.style) == ("steps", "line")
    assert (np.diff(measured.y) >= 0).all()
    assert measured.x.size <= limits.STEPS


def test_leaves_that_stand_for_several_things_are_drawn():
    merge = np.array([[0, 1, 0.1, 20], [2, 3, 0.4, 31.0]])
    data = xr.Dataset({"merge": (("link", "part"), merge), "leaf": ("leaf", ["a", "b", "c"])})
    names, branches = prepare.dendrogram(figure(Kind.DENDROGRAM, data)).frames[0]
    assert sorted(names) == ["a", "b", "c"]
    assert len(branches) == 2


def test_leaves_choose_the_colour_of_their_branch():
    merge = np.array([[0, 1, 0.1, 2], [2, 3, 0.1, 2], [4, 5, 0.9, 4]])
    data = xr.Dataset(
        {
            "merge": (("link", "part"), merge),
            "leaf": ("leaf", ["a", "b", "c", "d"]),
            "hue": ("leaf", [5, 5, 2, 2]),
            "threshold": 0.5,
        }
    )
    _, branches = prepare.dendrogram(figure(Kind.DENDROGRAM, data)).frames[0]
    assert sorted(branch_class for *_, branch_class in branches) == [0, 3, 6]


def test_dendrogram_leaves_and_classes():
    tree = prepare.dendrogram(demo.dendrogram(32))
    names, branches = tree.frames[0]
    assert sorted(names) == sorted(f"{r}  {h}" for r, h in enumerate(demo.hosts(32)))
    assert len(branches) == 31
    assert {of for *_, of in branches} == {0, 1, 2, 3, 4}
    assert tree.threshold == pytest.approx(0.8e-6 * tree.height.factor)


def test_a_dendrogram_of_thousands_of_leaves_shows_its_upper_branches():
    links = hierarchy.linkage(np.random.default_rng(0).normal(size=(3000, 1)), "single")
    tree = prepare.dendrogram(figure(Kind.DENDROGRAM, xr.Dataset({"merge": (("link", "part"), links)})))
    names, branches = tree.frames[0]
    assert len(names) == limits.LEAVES
    assert len(branches) == limits.LEAVES - 1
    assert tree.notes == ["3000 leaves: only the uppermost 60 branches are drawn."]


def test_a_dendrogram_of_one_leaf_has_no_branches():
    f = figure(
        Kind.DENDROGRAM, xr.Dataset({"merge": (("link", "part"), np.empty((0, 4))), "leaf": ("leaf", ["n1"])})
    )
    assert prepare.dendrogram(f).frames == [(["n1"], [])]


def test_bars_on_a_logarithmic_axis_are_points():
    data = xr.Dataset({"y": ("bar", [1e-6, 1e-3])})
    b = prepare.bars(figure(Kind.BAR, data, {"y": Axis("t", "s", log=True)}))
    assert b.frames[0][0].style == "points"
    assert "cannot start at zero" in b.notes[0]


def test_bars_of_several_series():
    data = xr.Dataset({"y": (("series", "bar"), [[1.0, 2.0], [3.0, 4.0]])}, coords={"series": ["a", "b"]})
    b = prepare.bars(figure(Kind.BAR, data))
    assert [c.name for c in b.frames[0]] == ["a", "b"]
    np.testing.assert_array_equal(b.frames[0][1].y, [3, 4])


def test_a_spectrogram_is_thinned_to_tiles_that_say_so():
    power = np.random.default_rng(0).exponential(size=(5000, 513))
    data = xr.Dataset({"power": (("x", "frequency"), power)})
    f = prepare.spectrogram(figure(Kind.SPECTROGRAM, data, {"power": Axis("power", log=True)}))
    assert f.frames[0].shape[0] <= limits.TILES[0]
    assert f.frames[0].shape[1] <= limits.TILES[1]
    assert f.frames[0].shape == (f.xs.size, f.ys.size)
    assert np.nanmax(f.frames[0]) == power.max()
    assert "each tile shows its largest" in f.notes[0]


def test_colours_end_where_one_outlier_would_hide_the_rest():
    z = np.append(np.linspace(1, 2, 999), 50.0)
    ends = prepare.colour_ends(z)
    assert ends.above
    assert not ends.below
    assert ends.high < 2.01


@pytest.mark.parametrize(
    ("z", "ends"),
    [
        (np.array([]), (0.0, 1.0)),
        (np.array([np.nan]), (0.0, 1.0)),
        (np.array([1.0, 9.0]), (1.0, 9.0)),
    ],
)
def test_colours_of_few_values_are_those_values(z, ends):
    got = prepare.colour_ends(z)
    assert (got.low, got.high) == ends
    assert not got.above


def test_colours_of_equal_values_still_have_two_ends():
    got = prepare.colour_ends(np.full(200, 3.0))
    assert got.low < got.high


def test_slider_positions_are_texts_that_differ():
    (control,) = prepare.controls(demo.matrix(4))
    assert control.positions[3].replace("\u00a0", " ") == "1 KiB"
    assert len(set(control.positions)) == len(demo.SIZES)
    assert control.numeric


@pytest.mark.parametrize("asked", ["1KiB", "1 KiB", "1024"])
def test_a_position_can_be_asked_for_in_words_or_as_a_number(asked):
    assert prepare.start_frame(prepare.at(demo.matrix(4), {"size": asked})) == demo.SIZES.index(1024)


def test_a_position_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(DataError, match=r"no size '3KiB'; allowed: 8 B, 64 B") as refused:
        prepare.at(demo.matrix(4), {"size": "3KiB"})
    assert refused.value.code == "report.no_such_position"


def test_frames_run_with_the_last_control_fastest():
    value = np.arange(2 * 2 * 2 * 3, dtype=float).reshape(2, 2, 2, 3)
    data = xr.Dataset({"value": (("row", "col", "a", "b"), value)})
    f = figure(Kind.MATRIX, data, controls=(Slider("a", "A", start=1), Slider("b", "B", start=2)))
    m = prepare.matrix(f)
    assert len(m.frames) == 6
    assert m.frames[1][0, 0] == value[0, 0, 0, 1]
    assert prepare.start_frame(f) == 5


def test_small_figures_are_reported_as_numbers_too():
    table = prepare.numbers(demo.matrix(4))
    assert table is not None
    assert list(table.columns) == ["Sender (rank) \\ Receiver (rank)", "0", "1", "2", "3"]
    assert table.rows[0][1] == "–"
    assert float(table.rows[1][1]) == pytest.approx(demo.medians(4, demo.SIZES)[1, 0, 3] * 1e6, rel=1e-3)
    assert prepare.numbers(demo.matrix(32)) is None
    assert prepare.numbers(demo.series()) is None
    bars = prepare.numbers(demo.rules())
    assert bars is not None
    assert list(bars.rows[0]) == ["fixed:1000", "2.1 [1.47, 3.15]"]
    points = prepare.numbers(demo.model())
    assert points is not None
    assert len(points.rows) == 1 + len(demo.SIZES)


def quantity(**more):
    return prepare.Quantity("delay", "s", "µs", 1e6, **more)


@pytest.mark.parametrize(
    ("z", "low", "high", "widened"),
    [
        ([1.0, 1.001], 0.9505, 1.0505, True),
        ([1.0, 1.0, 2.0], 0.95, 2.0, False),
        ([0.5, 1.0, 2.0], 0.5, 2.0, False),
        ([3.0], 2.85, 3.15, True),
        ([-1.0, -1.001], -1.0505, -0.9505, True),
    ],
)
def test_colours_span_a_least_share_about_the_median(z, low, high, widened):
    ends = prepare.matrix_ends(quantity(least=0.05), np.array(z))
    assert (ends.low, ends.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))
    assert ends.widened is widened


def test_the_least_share_is_a_factor_where_colours_are_logarithmic():
    ends = prepare.matrix_ends(quantity(least=0.05, log=True), np.log10([1.0, 1.001]))
    assert 10**ends.high == pytest.approx(1.0005 * 1.05, rel=1e-3)
    assert 10**ends.low == pytest.approx(1.0005 / 1.05, rel=1e-3)


def test_colours_about_a_centre_reach_as_far_to_either_side():
    ends = prepare.matrix_ends(quantity(least=0.05, centre=1.0), np.array([0.9, 1.0, 1.6]))
    assert (ends.low, ends.high) == (pytest.approx(0.4), pytest.approx(1.6))
    even = prepare.matrix_ends(quantity(least=0.05, centre=1.0), np.ones(4))
    assert (even.low, even.high) == (pytest.approx(0.95), pytest.approx(1.05))


def test_colours_of_nothing_and_of_zeros_have_a_range():
    assert prepare.matrix_ends(quantity(least=0.05), np.full(3, np.nan)) == prepare.Ends(0.0, 1.0)
    zeros = prepare.matrix_ends(quantity(least=0.05), np.zeros(3))
    assert zeros.high > zeros.low


def test_an_icicle_comes_parents_first_and_knows_what_is_in_a_node_itself():
    tree = prepare.icicle(demo.icicle())
    assert tree.labels == ["all calls", "write", "pwrite", "read", "fsync"]
    assert tree.parents == [-1, 0, 1, 0, 1]
    assert (tree.levels, tree.depth) == ([0, 1, 2, 1, 2], 3)
    np.testing.assert_allclose(tree.own(0), [0, 0.125, 0.5, 0.25, 0.125])
    assert [extra.label for extra in tree.extras] == ["calls", "bytes"]
    assert tree.extras[0].unit == "", "1 is udunits' name for none"


def test_an_icicle_of_very_many_nodes_shows_its_largest_and_says_so(monkeypatch):
    monkeypatch.setattr(limits, "NODES", 3)
    tree = prepare.icicle(demo.icicle())
    assert tree.labels == ["all calls", "write", "pwrite"]
    assert tree.notes == ["5 nodes: the largest 3 are drawn."]
    np.testing.assert_allclose(tree.own(0), [0.25, 0.25, 0.5])


def test_an_icicle_whose_parts_are_a_little_more_than_the_whole_is_drawn():
    data = demo.icicle().data.assign(value=("node", [1.0, 0.25, 0.75 + 1e-9, 0.7, 0.125]))
    assert (prepare.icicle(figure(Kind.ICICLE, data)).own(0) >= 0).all()


def test_a_deep_icicle_is_no_circle():
    n = 300
    data = xr.Dataset(
        {
            "parent": ("node", np.arange(n) - 1),
            "value": ("node", np.full(n, 2.0)),
            "label": ("node", [str(k) for k in range(n)]),
        }
    )
    assert prepare.icicle(figure(Kind.ICICLE, data)).depth == n


def test_stretches_of_an_area_hold_until_the_next_and_the_last_as_long_as_the_one_before():
    s = prepare.stack(demo.areas(5))
    np.testing.assert_allclose(s.edges, [0, 2, 4, 6, 8, 10])
    assert s.x.unit == "ms"
    assert (s.names, s.apart, s.hues, len(s.frames)) == ([], False, [7, 0], 3)


def test_a_long_area_becomes_means_that_keep_its_sum(monkeypatch):
    monkeypatch.setattr(limits, "STRETCHES", 50)
    long = demo.areas(1010)
    s = prepare.stack(long)
    assert s.edges is not None
    assert s.edges.size - 1 == s.frames[0].shape[1] <= 50
    total = (s.frames[1] * np.diff(s.edges)).sum(axis=1) / s.x.factor
    np.testing.assert_allclose(total, long.data["y"].values[:, :, 1].sum(axis=1) * 0.002, rtol=1e-9)
    assert s.notes == ["Drawn as means of 21 stretches each; all are in the dataset."]


def test_of_very_many_bars_the_highest_neighbours_are_drawn():
    many = demo.columns(1000)
    many.data["y"].values[1, 437] = 5.0
    s = prepare.stack(many)
    assert len(s.names) == 125
    assert "437" in s.names
    assert s.notes == ["Only the highest of every 8 neighbouring bars is drawn; all are in the dataset."]
    assert s.frames[0].shape == (2, 125)


def test_stacks_and_icicles_are_reported_as_numbers_where_they_are_small():
    table = prepare.numbers(demo.columns())
    assert table is not None
    assert table.columns == ["Rank", "system, ms", "library, ms"]
    assert table.rows[3] == ["3", "4", "2"]
    assert prepare.numbers(demo.areas()) is None
    assert prepare.numbers(demo.columns(101)) is None
    table = prepare.numbers(demo.icicle())
    assert table is not None
    assert [row[0] for row in table.rows] == [
        "all calls",
        "\u2003write",
        "\u2003\u2003pwrite",
        "\u2003\u2003fsync",
        "\u2003read",
    ]
    assert table.columns == ["", "", "Time", "Calls", "Bytes"]
    assert table.rows[2][1:] == ["system", "500\u00a0ms", "2", "8\u00a0KiB"]
    assert table.rows[3][3] == "–"
