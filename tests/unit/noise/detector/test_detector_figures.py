"""A noise dataset's section: which figures there are, and that they show what is in the data."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import noise_runs
from sonde.core.errors import DataError
from sonde.core.figure import Figure
from sonde.noise.detector import figures, figures_of_effect, figures_over_time
from sonde.noise.detector.figures_over_time import merged_stalls, stretches
from sonde.noise.detector.wake import CELLS
from sonde.noise.kinds import section as section_of
from sonde.report import prepare, render_html, render_static
from sonde.report.collect import collect

BURST_S = 0.01
OF_ONE = ["noise-blocks", "noise-stalls", "noise-fold", "noise-shift", "noise-late", "noise-cost"]


@pytest.fixture(scope="module")
def one():
    return noise_runs.tree(noise_runs.run([BURST_S], pairs=12, shift=0.002))


@pytest.fixture(scope="module")
def levels():
    levels = (0.01, 0.003, 0.001)
    names = [f"{100 * level:g} %" for level in levels]
    raw = noise_runs.run(levels, pairs=8, names=names, study="sensitivity", levels=[np.nan, *levels])
    return noise_runs.tree(raw)


@pytest.fixture(scope="module")
def null():
    return noise_runs.tree(noise_runs.run([0.0], pairs=7, machine_per_s=20))


def by_id(tree: xr.DataTree) -> dict[str, Figure]:
    return {figure.id: figure for figure in section_of(tree, "a.nc").figures}


class TestSection:
    def test_of_one_agent(self, one):
        section = section_of(one, "a.nc")
        assert [figure.id for figure in section.figures] == OF_ONE
        assert section.title == "Noise source during alltoall of 1 KiB"
        assert [fact.name for fact in section.facts] == [
            *("slowdown", "p-value", "smallest detectable cost", "late rank", "lost with nothing on")
        ]
        assert section.facts[3].value == "rank 1"
        assert section.findings[0].next == ""  # the source is no agent that could be placed elsewhere
        assert {method.name for method in section.method} >= {"Permutation test", "Size of the effect"}
        assert section.runs["agent on CPU"] == "1"
        assert section.doubt == ""

    def test_of_nothing_found_there_is_nothing_to_blame_or_scale(self, null):
        section = section_of(null, "a.nc")
        assert [figure.id for figure in section.figures] == [
            "noise-blocks",
            "noise-stalls",
            "noise-fold",
            "noise-shift",
        ]
        assert section.findings == []
        assert "late rank" not in [fact.name for fact in section.facts]

    def test_of_a_clean_run(self):
        section = section_of(noise_runs.tree(noise_runs.run([], agent="none")), "a.nc")
        assert [figure.id for figure in section.figures] == ["noise-blocks", "noise-stalls"]
        assert section.method == []
        assert section.title == "Clean run of alltoall of 1 KiB"

    def test_without_raw(self, one):
        bare = xr.DataTree.from_dict({"/": one.to_dataset(), "/summary": one["summary"].to_dataset()})
        made = by_id(bare)
        assert "noise-stalls" not in made
        assert made["noise-shift"].data.sizes["series"] == 1  # no counts, no shuffling

    def test_without_summary(self, one):
        bare = xr.DataTree.from_dict({"/": one.to_dataset(), "/raw": one["raw"].to_dataset()})
        with pytest.raises(DataError) as told:
            section_of(bare, "a.nc")
        assert told.value.code == "core.no_summary"
        assert "a.nc" in told.value.hint

    def test_of_a_survey(self):
        raw = noise_runs.run([BURST_S], study="survey", matters=0.01)
        section = section_of(noise_runs.tree(raw), "noise.nc")
        assert section.title == "Sensitivity to noise of alltoall of 1 KiB"
        assert "noise-cost" not in [figure.id for figure in section.figures]
        assert (section.findings, section.runs) == ([], {})
        assert section.verdict.startswith("Self-test: a 1.0 % disturbance was detected after")

    @pytest.mark.parametrize("which", ["one", "levels", "null"])
    def test_all_can_be_drawn(self, which, request, tmp_path):
        section = section_of(request.getfixturevalue(which), "a.nc")
        for figure in section.figures:
            prepare.check(figure)
            assert render_html.draw(figure).spec["traces"]
            assert figure.caption.endswith(".")
        drawn = render_static.save_all(section.figures, tmp_path, "svg")
        assert len(drawn) == len(section.figures)

    def test_the_report_does_not_take_the_plan_for_the_machine(self, one):
        report = collect({"a.nc": one})
        assert {"Hosts", "Oversubscribed"} == set(report.machine)
        assert report.runs[0]["loop"] == "alltoall of 1 KiB, 2 ranks"
        assert report.title == "Noise of n000"


class TestBlocks:
    def test_every_block_once_in_the_colour_of_what_was_on(self, one):
        data = by_id(one)["noise-blocks"].data
        summary = one["summary"]
        points = data["y"].values[:2]
        assert np.isfinite(points).sum() == summary.sizes["block"]
        for case in (0, 1):
            mine = summary["block_variant"].values == case
            np.testing.assert_array_equal(np.isfinite(points[case]), mine)
            assert data["y"].values[2 + case, 0] == np.median(summary["block_mean"].values[mine])
        assert data["hue"].values.tolist() == [0, 1, 0, 1]

    def test_when_it_was_found_is_marked(self, one, null):
        assert by_id(one)["noise-blocks"].data["mark"].values == one["summary"]["detected_s"].values
        assert "mark" not in by_id(null)["noise-blocks"].data


class TestStalls:
    def test_the_agents_are_where_the_ground_is_shaded(self, one):
        data = by_id(one)["noise-stalls"].data
        x, y = data["x"].values[1], data["y"].values[1]
        long = x[y > BURST_S / 2]
        bands = data["band"].values
        assert len(long) == np.count_nonzero(one["summary"]["block_variant"].values == 1)
        assert ((long[:, None] >= bands[:, 0]) & (long[:, None] <= bands[:, 1])).any(axis=1).all()
        assert not (data["y"].values[0] > BURST_S / 2).any()

    def test_blocks_one_after_the_other_are_one_stretch(self, one):
        summary = one["summary"].to_dataset()
        on = summary["block_variant"].values == 1
        bands = stretches(summary, 1)
        assert len(bands) == np.count_nonzero(np.diff(on.astype(int), prepend=0) == 1)
        assert (bands[1:, 0] > bands[:-1, 1]).all()
        assert stretches(summary, 7).shape == (0, 2)

    def test_the_longest_are_drawn_and_how_many_is_reported(self, one, monkeypatch):
        monkeypatch.setattr(figures_over_time, "MAX_STALLS", 20)
        figure = by_id(one)["noise-stalls"]
        shown = figure.data["y"].values
        shown = np.sort(shown[np.isfinite(shown)])
        all_ = np.sort(merged_stalls(one["raw"].to_dataset())[2])
        np.testing.assert_array_equal(shown, all_[-20:])
        assert f"Only the 20 longest of {all_.size} stalls are drawn" in figure.caption
        assert figure.caption.endswith("or more; a stall of several ranks is drawn once.")

    def test_stalls_that_one_rank_alone_saw_are_drawn(self, one):
        raw = one["raw"].to_dataset().copy(deep=True)
        kept = np.flatnonzero(raw["stall_block"].values[0] >= 0)
        raw["stall_block"].values[0, kept[1:]] = -1  # rank 0 kept a single one
        before, _, lengths = merged_stalls(one["raw"].to_dataset())
        after, _, others = merged_stalls(raw)
        assert before.size > 10
        np.testing.assert_array_equal(after, before)
        np.testing.assert_array_equal(others, lengths)

    def test_stalls_that_overlap_are_one_and_as_long_as_the_longest(self):
        raw = xr.Dataset(
            {
                "stall_block": (("rank", "stall"), [[0, 0, 0, 1], [0, 0, 1, -1]]),
                "stall_t": (("rank", "stall"), [[1.0, 1.5, 3.0, 3.2], [1.25, 2.0, 3.25, np.nan]]),
                "stall_length": (("rank", "stall"), [[0.5, 0.25, 1.0, 0.125], [0.5, 0.25, 0.25, np.nan]]),
            }
        )
        block, time, length = merged_stalls(raw)
        # 1.0 to 1.5, 1.25 to 1.75 and 1.5 to 1.75 are one chain; a block of its own is a moment of its own.
        assert block.tolist() == [0, 0, 0, 1]
        assert time.tolist() == [1.0, 2.0, 3.0, 3.2]
        assert length.tolist() == [0.5, 0.25, 1.0, 0.25]

    def test_none_at_all(self):
        tree = noise_runs.tree(noise_runs.run([0.0], machine_per_s=0.0))
        assert "noise-stalls" not in by_id(tree)


def test_nothing_that_was_switched_on_is_not_called_an_agent():
    tree = noise_runs.tree(noise_runs.run([0.0], agent="none", names=["nothing"]))
    data = by_id(tree)["noise-stalls"].data
    assert data["series"].values.tolist() == ["nothing on", "labelled on, nothing on"]
    assert str(data["band_name"].values) == "labelled on, nothing on"


class TestFold:
    def test_the_wake_up_lies_in_the_window(self, one):
        data = by_id(one)["noise-fold"].data
        x, y = data["x"].values[1], data["y"].values[1]
        low, high = data["band"].values[0]
        assert low < x[np.argmax(y)] < high
        assert y.max() == pytest.approx(100)
        assert x.size == 2 * CELLS
        assert (x[0], x[-1]) == (-0.5, 0.5)

    def test_without_a_wake_up_there_is_no_window(self, null):
        figure = by_id(null)["noise-fold"]
        assert "band" not in figure.data
        assert "over a whole period of the run" in figure.caption


class TestShift:
    def test_a_shift_of_all_is_seen_at_the_typical_iteration(self, one):
        data = by_id(one)["noise-shift"].data
        at = np.argmin(np.abs(data["x"].values[0] - 2))
        assert data["y"].values[0, at] == pytest.approx(1.002, abs=0.001)

    def test_bursts_are_seen_in_the_tail_alone(self, one):
        data = by_id(one)["noise-shift"].data
        ratio, _, high = data["y"].values
        assert ratio[data["x"].values[0] < 1000].max() < 1.1
        assert ratio[-1] > 10
        assert ratio[-1] > high[-1]

    def test_what_is_not_there_lies_between_shuffled_labels(self, null):
        ratio, low, high = by_id(null)["noise-shift"].data["y"].values
        assert np.mean((low <= ratio) & (ratio <= high)) > 0.7

    def test_too_few_blocks_to_shuffle(self, one):
        few = noise_runs.run([BURST_S], pairs=figures_of_effect.MIN_COUNT - 1)
        assert by_id(noise_runs.tree(few))["noise-shift"].data.sizes["series"] == 1

    def test_readings_of_several_iterations_are_reported(self, one):
        raw = one["raw"].to_dataset()
        figure = figures_of_effect.shift(
            one["summary"].to_dataset(), raw.assign(stamp_every=("rank", [4, 4]))
        )
        assert "4 iterations" in figure.caption


def test_who_was_late(one):
    data = by_id(one)["noise-late"].data
    assert data["bar"].values.tolist() == [0, 1]
    assert data["y"].values.tolist() == [0.0, 100.0]


def test_of_many_ranks_the_latest_are_shown(one, monkeypatch):
    monkeypatch.setattr(figures_of_effect, "MAX_RANKS", 1)
    figure = by_id(one)["noise-late"]
    assert figure.data["bar"].values.tolist() == [noise_runs.LATE_RANK]
    assert "1 ranks with lower bars are left out" in figure.caption


def test_the_model_is_called_one(one):
    figure = by_id(one)["noise-cost"]
    assert figure.caption.startswith("A model, not a measurement")
    assert "modelled" in figure.axes["y"].label
    np.testing.assert_allclose(figure.data["y"].values[0], 100 * one["summary"]["cost"].values[0])


class TestSeveral:
    def test_levels_have_their_curve(self, levels):
        made = by_id(levels)
        assert "noise-variants" not in made
        data = made["noise-sensitivity"].data
        summary = levels["summary"]
        points = np.nansum(data["y"].values[:-1], axis=0)
        np.testing.assert_allclose(points, 100 * summary["slowdown"].values)
        found = [name for name in data["series"].values if name.startswith("detected")]
        shown = data.sel(series=found)["y"].values
        assert np.isfinite(shown).sum() == summary["detected"].values.sum()
        marks = dict(zip(data["mark_name"].values.tolist(), data["mark"].values.tolist()))
        assert marks["floor, Sonde"] == pytest.approx(0.1)

    def test_each_can_be_picked(self, levels):
        for name in ("noise-fold", "noise-shift"):
            figure = by_id(levels)[name]
            assert [slider.dim for slider in figure.controls] == ["variant"]
            assert prepare.controls(figure)[0].positions == ("1 %", "0.3 %", "0.1 %")

    def test_placements_have_bars_with_intervals(self):
        raw = noise_runs.run([BURST_S, 0.0], pairs=7, names=["pinned", "free"], levels=[np.nan, 0.01, 0.01])
        tree = noise_runs.tree(raw)
        made = by_id(tree)
        assert "noise-sensitivity" not in made
        data = made["noise-variants"].data
        assert data["bar"].values.tolist() == ["pinned", "free"]
        assert (data["low"] <= data["y"]).all()
        assert (data["y"] <= data["high"]).all()
        assert section_of(tree).title == "Placements of noise source during alltoall of 1 KiB"
        assert section_of(tree).method[-1] is figures.SEVERAL

    def test_what_is_no_level_has_no_curve(self, one):
        assert figures_of_effect.sensitivity(one["summary"].to_dataset()) is None
