"""From /raw to /summary, figures and section: on whole networks and on what is barely a dataset."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from fake_clock import FakeClock
from sonde.core import stats
from sonde.core.deadline import Deadline, LeftOut
from sonde.core.errors import DataError
from sonde.net import cells, figures, models, schema
from sonde.net.analyse import analyse, structure
from sonde.net.synthetic import Network, raw_dataset
from sonde.report import prepare


def tree_of(raw: xr.Dataset | None, summary: xr.Dataset) -> xr.DataTree:
    groups = {"/": xr.Dataset(attrs={"schema": "net/1", "mode": "one_to_one"}), "/summary": summary}
    if raw is not None:
        groups["/raw"] = raw
    return xr.DataTree.from_dict(groups)


def checked_section(raw, summary):
    section = figures.section(tree_of(raw, summary))
    assert section.verdict.endswith(".")
    for figure in section.figures:
        prepare.check(figure)
        assert figure.caption
    assert len({figure.id for figure in section.figures}) == len(section.figures)
    return section


@pytest.fixture(scope="module")
def run():
    raw = Network(ranks=12, sizes=(8, 1024), slow_links={(3, 9): 1.4}).raw(20, 15, seed=1)
    return raw, analyse(raw)


@pytest.fixture(scope="module")
def small():
    """/raw of fewer ranks, for tests that analyse it anew."""
    return Network(ranks=6, sizes=(8, 1024)).raw(20, 15, seed=1)


def test_cells_say_what_the_statistics_of_core_say(run):
    raw, summary = run
    x = raw["latency"].values[2, 7, 1]
    told = summary.isel(src=2, dst=7, size=1)
    assert float(told["median"]) == stats.summarise(x).median
    assert float(told["sd"]) == pytest.approx(np.std(x, ddof=1))
    interval = stats.epoch_median_ci(x, raw["epoch"].values[2, 7, 1])
    assert (float(told["median_low"]), float(told["median_high"])) == tuple(interval)
    assert int(told["n"]) == 300
    assert int(told["epochs"]) == 20


def test_same_raw_gives_the_same_summary(small):
    xr.testing.assert_identical(analyse(small), analyse(small.copy(deep=True)))


def test_section_names_the_slow_link(run):
    section = checked_section(*run)
    assert [f.code for f in section.findings] == ["net.slow_link"]
    assert "3–9" in section.verdict
    assert {"net-median", "net-ratio", "net-tree", "net-status"} <= {f.id for f in section.figures}


def test_summary_survives_a_file(run, tmp_path):
    _, summary = run
    summary.to_netcdf(tmp_path / "s.nc", engine="netcdf4")
    with xr.open_dataset(tmp_path / "s.nc", engine="netcdf4") as back:
        assert "3–9" in figures.section(tree_of(None, back)).verdict


def test_two_ranks_one_size():
    raw = Network(ranks=2, sizes=(8,), ranks_per_host=1).raw(8, 5)
    section = checked_section(raw, analyse(raw))
    assert section.findings == []
    assert "too few" in section.warnings[0].evidence


def test_a_single_sample_a_cell():
    latency = np.full((3, 3, 1, 1), 1e-6)
    latency[range(3), range(3)] = np.nan
    raw = raw_dataset((8,), latency, np.where(np.isfinite(latency), 0, -1))
    summary = analyse(raw)
    assert float(summary["median"][0, 1, 0]) == 1e-6
    assert np.isnan(summary["sd"].values).all()
    assert np.isnan(summary["median_low"].values).all()
    checked_section(raw, summary)


def test_no_sample_at_all():
    raw = raw_dataset((8, 16), np.full((3, 3, 2, 4), np.nan), np.full((3, 3, 2, 4), -1))
    section = checked_section(raw, analyse(raw))
    assert section.verdict == "No delay was measured."


def test_one_epoch_has_no_interval_but_a_median():
    raw = Network(ranks=4, sizes=(8,)).raw(1, 200)
    summary = analyse(raw)
    assert np.isfinite(summary["median"].values).sum() == 12
    assert np.isnan(summary["median_low"].values).all()
    assert np.isfinite(summary["drift_p"].values).sum() == 12
    checked_section(raw, summary)


def test_missing_cells_and_ragged_series(small):
    raw = small.copy(deep=True)
    raw["latency"][2, 3] = np.nan
    raw["epoch"][2, 3] = -1
    raw["latency"][4, 5, 0, 40:] = np.nan
    raw["epoch"][4, 5, 0, 40:] = -1
    summary = analyse(raw)
    assert np.isnan(float(summary["median"][2, 3, 0]))
    assert int(summary["n"][2, 3, 0]) == 0
    assert int(summary["n"][4, 5, 0]) == 40
    checked_section(raw, summary)


def test_no_topology_and_no_times(small):
    raw = small.drop_vars(["host", "t_start", "status"])
    section = checked_section(raw, analyse(raw))
    assert "net-status" not in {f.id for f in section.figures}


def test_statistics_only():
    full = Network(ranks=8, sizes=(8, 64)).summary(20, np.random.default_rng(1))
    only = full[["median"]].drop_attrs()
    section = checked_section(None, only)
    assert "net-median" in {f.id for f in section.figures}
    mean_only = full[["median"]].rename(median="mean").drop_attrs()
    assert "net-median" in {f.id for f in checked_section(None, mean_only).figures}


def test_foreign_summary_is_refused():
    with pytest.raises(DataError, match="median"):
        structure(xr.Dataset({"x": ("y", [1.0])}))


def test_foreign_raw_is_refused():
    with pytest.raises(DataError, match="latency"):
        analyse(xr.Dataset({"x": ("y", [1.0])}))


def test_infinite_delay_is_refused(run):
    raw = run[0].copy(deep=True)
    raw["latency"][1, 2, 0, 3] = np.inf
    with pytest.raises(DataError, match="infinite"):
        analyse(raw)


@pytest.mark.parametrize("chunks", [(1, 12, 1, 300), (12, 1, 1, 300), (1, 3, 1, 100), None])
@pytest.mark.parametrize("most_bytes", [1, 10_000, 100_000, 1 << 30])
def test_pieces_cover_raw_once_and_stay_small(run, chunks, most_bytes):
    raw = run[0].copy()
    if chunks:
        raw["latency"].encoding["chunksizes"] = chunks
    seen = np.zeros((12, 12, 2), int)
    for box in cells.pieces(raw, most_bytes):
        seen[box] += 1
        size = np.prod([part.stop - part.start for part in box])
        assert size == 1 or size * 300 * 20 <= most_bytes
    assert (seen == 1).all()


def test_raw_is_read_in_pieces(run, monkeypatch):
    monkeypatch.setattr(cells, "PIECE_BYTES", 50_000)
    small = {name: values for name, values in cells.measure(run[0]).items()}
    for name, values in small.items():
        np.testing.assert_array_equal(values, run[1][name].values)


def test_figures_show_series_spectra_and_laws(run):
    section = checked_section(*run)
    ids = [figure.id for figure in section.figures]
    for wanted in ("net-series", "net-spectrogram", "net-cdf", "net-size", "net-spread", "net-known"):
        assert wanted in ids
    by_id = {figure.id: figure for figure in section.figures}
    assert "fastest" in str(by_id["net-series"].data["series"].values[0])
    assert any("lognormal" in str(name) for name in by_id["net-cdf"].data["series"].values)


def test_a_rank_with_itself_is_a_hole_in_the_status_matrix_and_no_state(run):
    summary = run[1]
    status = np.ones((12, 12, 2), np.int8)
    status[range(12), range(12)] = 0
    status[3, 5] = 0
    summary = summary.assign(status=(("src", "dst", "size"), status))
    drawn = prepare.matrix(figures.status_matrix(summary))
    assert np.isnan(drawn.frames[0][range(12), range(12)]).all()
    assert drawn.frames[0][3, 5] == 0, "a pair that should have been measured keeps its state"
    assert drawn.counts[0][:2] == [1, 131]


def test_nothing_converged_is_a_doubt_of_the_section(run):
    summary = run[1].assign(status=(("src", "dst", "size"), np.full((12, 12, 2), 4, np.int8)))
    assert figures.section(tree_of(None, summary)).doubt == "Nothing converged"
    assert figures.section(tree_of(None, run[1])).doubt == ""


def test_facts_are_of_both_ends_of_the_sizes(run):
    summary = run[1].assign_attrs(rule="ci:1%")
    status = np.ones((12, 12, 2), np.int8)
    status[range(12), range(12)] = 0
    told = figures.facts(summary.assign(status=(("src", "dst", "size"), status)))
    assert [fact.name for fact in told] == [
        "median delay at 8 B",
        "median delay at 1 KiB",
        "precision",
        "converged",
    ]
    assert told[3].value == "264 of 264"
    assert told[3].note == "cells, by ci:1%"
    assert "132 cells" in told[0].note


def test_facts_of_medians_alone_and_of_nothing(run):
    assert [f.name.split(" at")[0] for f in figures.facts(run[1][["median"]])] == ["median delay"] * 2
    assert figures.facts(run[1][["median"]] * np.nan) == []


def test_colours_of_delays_span_what_medians_of_their_size_are_not_known_to(run):
    def least(summary):
        return list(figures.median_matrix(summary).data["least"].values)

    vague = run[1].copy()
    wide = np.array([0.2, 0.01])
    vague["median_low"], vague["median_high"] = run[1]["median"] * (1 - wide), run[1]["median"] * (1 + wide)
    assert least(vague) == pytest.approx([0.2, figures.LEAST])
    assert least(run[1][["median"]]) == [figures.LEAST] * 2
    ends = [prepare.matrix_ends(m.value, np.log10(m.frames[0]), m.least[0]) for m in
            (prepare.matrix(figures.median_matrix(s)) for s in (vague, run[1][["median"]]))]  # fmt: skip
    assert ends[0].high - ends[0].low >= ends[1].high - ends[1].low


def test_the_tree_is_cut_into_its_classes_in_their_colours():
    summary = structure(Network(ranks=8, sizes=(8, 1024)).summary(12, np.random.default_rng(3)))
    assert summary.sizes["link_class"] == 2
    figure = figures.dendrogram(summary)
    tree = prepare.dendrogram(figure)
    (names, branches), cut = tree.frames[0], tree.threshold
    hue = dict(zip(summary["leaf_name"].values.astype(str), summary["leaf_class"].values))
    for along, height, branch_class in branches:
        if height.max() > cut:
            assert branch_class == 0
        else:
            leaves = {hue[names[round(a)]] + 1 for a, h in zip(along, height) if h == 0}
            assert leaves <= {branch_class}


def test_a_tree_whose_classes_no_height_gives_is_not_cut():
    summary = structure(Network(ranks=8, sizes=(8, 1024)).summary(12, np.random.default_rng(3)))
    mixed = summary.copy()
    mixed["leaf_class"] = ("leaf", np.arange(summary.sizes["leaf"]) % 2)
    assert "threshold" not in figures.dendrogram(mixed).data
    one = summary.copy()
    one["leaf_class"] = ("leaf", np.zeros(summary.sizes["leaf"], int))
    assert "threshold" not in figures.dendrogram(one).data


def test_a_ratio_that_is_1_everywhere_is_no_figure(run):
    raw = Network(ranks=2, sizes=(8, 1024), ranks_per_host=1).raw(8, 5)
    assert figures.ratio_matrix(analyse(raw)) is None
    assert figures.ratio_matrix(run[1]).axes["value"].centre == 1


def test_shared_cores_make_a_warning_of_a_slow_link(run):
    raw = run[0].assign_attrs(oversubscribed=1)
    section = checked_section(raw, analyse(raw))
    assert section.findings == []
    assert "net.slow_or_shared" in {w.code for w in section.warnings}


def test_few_cells_are_all_fitted_and_many_are_sampled(run, monkeypatch):
    few = analyse(run[0].isel(src=slice(0, 6), dst=slice(0, 6), rank=slice(0, 6)))
    assert np.isfinite(few["lognormal_ks"].values).sum() == few.attrs["measured_cells"] == 60
    monkeypatch.setattr(cells, "MAX_FITTED", 10)
    summary = analyse(run[0])
    assert 10 <= np.isfinite(summary["lognormal_ks"].values).sum() <= 14
    assert "net.sampled_cells" in {w.code for w in checked_section(run[0], summary).warnings}


def test_a_dataset_may_ask_for_fewer_fits_but_not_for_more(small, monkeypatch):
    monkeypatch.setattr(cells, "MAX_FITTED", 30)
    for asked, fitted in ((10, 10), (1000, 30)):
        summary = analyse(small.assign_attrs(fitted_at_most=asked))
        assert fitted <= summary.attrs["fitted_cells"] <= fitted + 4  # the cells shown besides
        assert summary.attrs["measured_cells"] == (small["n"].values > 0).sum()


def timed(monkeypatch, clock: FakeClock, cell_s: float) -> None:
    """Has each cell that is fitted take so long on a clock."""
    read = cells.series_of

    def slow(*words):
        clock.move(cell_s)
        return read(*words)

    monkeypatch.setattr(cells, "series_of", slow)


def spots_of(raw: xr.Dataset, count: int) -> list[cells.Spot]:
    there = np.argwhere(raw["n"].transpose(*schema.CELL).values > 0)
    return [tuple(int(v) for v in at) for at in there[:count]]


@pytest.mark.parametrize(("budget_s", "done"), [(0.0, 0), (0.9, 1), (3.5, 3), (5.0, 5), (60.0, 6)])
def test_fits_end_by_a_deadline_with_the_cells_that_they_have(small, monkeypatch, budget_s, done):
    """A cell takes a second. The first is begun while any time is left; each other only where it ends in time."""
    spots = spots_of(small, 6)
    whole, _ = cells.fit(small, spots)
    clock = FakeClock()
    timed(monkeypatch, clock, 1.0)
    deadline = Deadline(clock.now + budget_s, clock)
    fitted, count = cells.fit(small, spots, deadline=deadline)
    assert count == done
    for name in schema.FITTED:
        for k, spot in enumerate(spots):
            expected = whole[name][spot] if k < done else 0 if name == "regimes" else np.nan
            np.testing.assert_equal(fitted[name][spot], expected)
    left = [] if done == 6 else [LeftOut("laws and cycles of cells", done, 6)]
    assert deadline.left_out == left


def test_an_analysis_whose_fits_had_no_time_says_of_how_many_cells_they_are(small, monkeypatch):
    clock = FakeClock()
    timed(monkeypatch, clock, 1.0)
    deadline = Deadline(clock.now + 2.5, clock)
    summary = analyse(small, deadline)
    measured = int((summary["n"].values > 0).sum())
    assert (summary.attrs["fitted_cells"], summary.attrs["measured_cells"]) == (2, measured)
    assert int(np.isfinite(summary["lognormal_mu"].values).sum()) == 2
    assert np.isfinite(summary["median"].values).sum() == measured  # the verdict has all of them
    assert LeftOut("laws and cycles of cells", 2, measured) in deadline.left_out


def test_machine_event_is_reported():
    raw = Network(ranks=6, sizes=(8,), event_epoch=12, event_ratio=1.4, regime_share=0.0).raw(24, 10)
    summary = analyse(raw)
    assert list(summary["event_epoch"].values) == [12]
    assert "net.machine_event" in {w.code for w in checked_section(raw, summary).warnings}


def test_eager_limit_is_reported_as_a_jump():
    raw = Network(ranks=6, sizes=tuple(range(0, 800, 80)), eager_limit=400).raw(12, 10)
    summary = analyse(raw)
    common = summary["jump_src"].values == -1
    assert 480 in summary["jump_size_high"].values[common]
    section = checked_section(raw, summary)
    assert "mark" in next(f for f in section.figures if f.id == "net-size").data


def test_every_tenth_delay_slow_in_one_burst_is_a_period_in_samples():
    raw = Network(ranks=3, sizes=(8,)).raw(1, 400)
    raw = raw.drop_vars("t_start")
    raw["latency"][0, 1, 0, 4::10] *= 6
    summary = analyse(raw)
    assert float(summary["outlier_samples"][0, 1, 0]) == pytest.approx(10, rel=0.01)
    assert np.isnan(float(summary["outlier_period"][0, 1, 0]))


class TestModelAgainstMeasurement:
    def figure(self, sizes, **kinds):
        summary = structure(Network(ranks=4, sizes=sizes, **kinds).summary(12, np.random.default_rng(3)))
        return figures.over_size(summary), summary

    def curves(self, figure):
        """Of every series, in B and s."""
        chart = prepare.chart(figure)
        (curves,) = chart.frames
        return [replace(c, x=c.x / chart.x.factor, y=c.y / chart.y.factor) for c in curves]

    def test_points_and_both_models_are_drawn_solid_only_where_something_was_measured(self):
        figure, _ = self.figure((8, 64, 512, 4096, 32768))
        prepare.check(figure)
        drawn = self.curves(figure)
        assert {c.style for c in drawn} == {"points", "line", "dashed"}
        assert {c.key for c in drawn} == {"", "Hockney", "LogGP", "beyond the measured sizes"}
        for curve in drawn:
            if curve.style == "line":
                assert (curve.x.min(), curve.x.max()) == pytest.approx((8, 32768))
            if curve.style == "dashed":
                assert curve.x.max() <= 8 * 1.001 or curve.x.min() >= 32768 * 0.999
        assert any(c.x.max() > 32768 for c in drawn if c.style == "dashed")

    def test_curves_of_a_class_share_its_colour(self):
        figure, summary = self.figure((8, 512, 32768))
        classes = summary.sizes["link_class"]
        assert classes == 2
        drawn = self.curves(figure)
        assert {c.colour for c in drawn if c.style == "points"} == set(range(classes))
        for k in range(classes):
            assert {c.key for c in drawn if c.colour == k} >= {"", "Hockney", "LogGP"}

    def test_hockney_line_is_the_model_that_net_model_tells(self):
        figure, summary = self.figure((8, 512, 4096, 32768))
        fits = models.class_models(summary)
        for curve in self.curves(figure):
            if curve.key == "Hockney":
                told = [fits[curve.colour].segment(s).at(s) for s in curve.x]
                assert curve.y == pytest.approx(told, rel=1e-9)

    def test_residuals_are_reported_in_words_one_paragraph_a_class(self):
        figure, summary = self.figure((8, 512, 4096, 32768))
        general, *said = figure.caption.split("\n")
        assert "Hockney" in general
        assert len(said) == summary.sizes["link_class"]
        for text in said:
            assert "at most" in text
            assert "L + 2o = " in text

    def test_size_zero_among_decades_keeps_a_logarithmic_axis(self):
        assert self.figure((0, 8, 512, 32768))[0].axes["x"].log
        assert not self.figure(tuple(range(0, 1000, 100)))[0].axes["x"].log

    def test_one_size_has_no_figure_and_two_have_a_line(self):
        assert self.figure((8,))[0] is None
        assert {c.key for c in self.curves(self.figure((8, 64))[0])} >= {"Hockney", "LogGP"}
