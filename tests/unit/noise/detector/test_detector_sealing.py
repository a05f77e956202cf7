"""Datasets of kind `run`: from block files to /raw."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from run_blocks import BEGAN_S, CALIBRATION, TICK_S, RunFile, placed, plan, source_file

import noise_runs
from sonde import _core
from sonde.core import dataset, run_folder, seal
from sonde.core.blocks import BlockFile
from sonde.core.errors import DataError
from sonde.noise import kinds
from sonde.noise.detector import schema
from sonde.noise.detector.layout import is_complete
from sonde.noise.detector.sealing import SCHEMA
from sonde.noise.source.schema import BURST

SUMMARY = xr.Dataset(
    {"p": (("variant",), [0.5], {"units": "1", "long_name": "p"})},
    {"variant": ("variant", ["one"], {"long_name": "variant"})},
)


FOUR = [(0, 0), (0, 1), (1, 0), (1, 1)]  # segment, variant of blocks


def codes(layout):
    return [warning.code for warning in layout.warnings]


def run(folder, p, labels=((0, 0), (0, 1)), skip=(), **more):
    """Files of a run: blocks (segment, variant) of 0.25 s every 0.3 s; skip: (rank, block) that are not written."""
    files = []
    for rank in range(p["ranks"]):
        file = RunFile(folder, rank, p["ranks"])
        file.values(4, CALIBRATION)
        for number, (segment, variant) in enumerate(labels):
            if (rank, number) not in skip:
                file.block(number, segment, variant, 1 + 0.3 * number + 0.001 * rank, **more)
        files.append(file.close())
    return files


def test_one_dataset():
    assert SCHEMA.parts(plan()) == [""]
    assert kinds.schema_of({"kind": "run"}) is SCHEMA


def test_a_block_lands_in_its_place(tmp_path):
    p = plan()
    files = []
    for rank in range(2):
        file = RunFile(tmp_path, rank)
        file.values(4, CALIBRATION)
        for number in range(2):
            file.block(
                number,
                variant=number,
                t_begin=1 + number,
                count={7: 10 + rank, 863: 1},
                length=0.25 + rank,
                excluded=0.01,
                run_delay=0.02,
                cpu=0.2,
                involuntary=3,
                iterations=11,
                resumed=0.5 + number if number else np.nan,
            )
        files.append(file.close())
    layout, raw = placed(SCHEMA, p, files)
    assert layout.complete
    assert layout.warnings == []
    assert {d: layout.dims[d] for d in ("rank", "block", "class", "edge")} == {
        "rank": 2, "block": 2, "class": 864, "edge": 865,
    }  # fmt: skip
    assert raw["count"][1, 0, [6, 7, 863]].tolist() == [0, 11, 1]
    assert raw["count"].sum() == 2 * 11 + 2 * 12
    assert raw["segment"].tolist() == [0, 0]
    assert raw["variant"].tolist() == [0, 1]
    assert raw["status"].tolist() == [1, 1]
    assert raw["t_begin"].tolist() == [[1, 2], [1, 2]]
    assert raw["length"].tolist() == [[0.25, 0.25], [1.25, 1.25]]
    assert raw["cpu_time"][0, 0] == 0.2
    assert raw["cpu"].tolist() == [0, 1]
    assert raw["involuntary"][1, 1] == 3
    assert raw["iterations"][1, 1] == 11
    np.testing.assert_array_equal(raw["resumed"], [[np.nan, 1.5]] * 2)
    assert raw["n_stalls"].tolist() == [0, 0]
    assert raw["variant_name"].tolist() == ["off", "agent"]
    assert raw["host"].tolist() == ["n000", "n000"]
    assert layout.attrs["block_s"] == 0.25
    assert (layout.attrs["blocks_planned"], layout.attrs["blocks_measured"]) == (2, 2)


def test_calibration_gives_the_edges_of_classes_in_seconds(tmp_path):
    files = []
    for rank in range(2):
        file = RunFile(tmp_path, rank)
        file.values(4, (TICK_S * (rank + 1), *CALIBRATION[1:]))
        file.block(0)
        files.append(file.close())
    _, raw = placed(SCHEMA, plan(), files)
    np.testing.assert_allclose(raw["class_edge"][1], 2e-9 * np.array(_core.noise_edges()))
    assert raw["tick"].tolist() == [1e-9, 2e-9]
    assert raw["steady"].tolist() == [1, 1]
    assert raw["stamp_every"].tolist() == [1, 1]
    assert raw["room"].tolist() == [100_000] * 2
    assert raw["keeping_high"][0] == 0.008


def test_stalls_of_ranks_are_ragged_and_reported_in_the_time_of_the_run(tmp_path):
    first, second = RunFile(tmp_path, 0), RunFile(tmp_path, 1)
    for file in (first, second):
        file.values(4, CALIBRATION)
    # More than one record holds, and a block without any between.
    first.block(0, t_begin=10, stalls=[(k * 0.0005, 1e-3, np.nan, 2e-4) for k in range(300)])
    first.block(1, variant=1, t_begin=11)
    second.block(0, t_begin=10)
    second.block(1, variant=1, t_begin=11, stalls=[(0.125, 2e-3, 1e-3, np.nan)])
    layout, raw = placed(SCHEMA, plan(), [first.close(), second.close()])
    assert layout.dims["stall"] == 300
    assert raw["n_stalls"].tolist() == [300, 1]
    assert (raw["stall_block"][0] == 0).all()
    assert raw["stall_block"][1, :2].tolist() == [1, -1]
    np.testing.assert_allclose(raw["stall_t"][0], 10 + np.arange(300) * 0.0005, rtol=1e-7)
    assert raw["stall_t"][1, 0] == 11.125
    assert raw["stall_length"][1, 0] == pytest.approx(2e-3)
    assert raw["stall_delay"][1, 0] == pytest.approx(1e-3)
    assert np.isnan(raw["stall_delay"][0]).all()
    assert np.isnan(raw["stall_gap"][1]).all()
    assert np.isnan(raw["stall_length"][1, 1:]).all()


def test_every_iteration_is_there_when_it_was_kept(tmp_path):
    file = RunFile(tmp_path, 0, 1)
    file.values(4, CALIBRATION)
    for number, readings in enumerate((2500, 1024)):
        file.block(number, variant=number)
        file.iterations(number, np.arange(1, readings + 1) + number)
    layout, raw = placed(SCHEMA, plan(1), [file.close()])
    assert layout.dims["reading"] == 2500
    assert raw["n_readings"].tolist() == [[2500, 1024]]
    assert raw["iteration"][0, 0].tolist() == list(range(1, 2501))
    assert raw["iteration"][0, 1, :1024].tolist() == list(range(2, 1026))
    assert (raw["iteration"][0, 1, 1024:] == 0).all()


def test_without_iterations_agents_looks_or_sources_there_are_no_variables_for_them(tmp_path):
    layout, raw = placed(SCHEMA, plan(), run(tmp_path, plan()))
    for group in (schema.ITERATION, schema.USE, schema.NODE, schema.LOOKS, schema.SOURCES):
        assert not set(group) & set(raw)
    assert not {"reading", "node", "look", "source", "burst"} & set(layout.dims)


def test_what_the_agent_used_is_reported_by_node(tmp_path):
    p, files = plan(ranks=4), []
    for rank in range(4):
        file = RunFile(tmp_path, rank, 4)
        file.values(4, CALIBRATION)
        file.block(0)
        file.block(1, variant=1)
        if rank % 2 == 0:
            file.values(3, (0.5 + rank, 0.25, 0.125, 7, 1, 3, 4096, 2, 1), block=1)
        files.append(file.close())
    _, raw = placed(SCHEMA, p, files)
    assert raw["node_rank"].tolist() == [0, 2]
    assert raw["node_host"].tolist() == ["n000", "n001"]
    np.testing.assert_array_equal(raw["agent_cpu"], [[np.nan, 0.5], [np.nan, 2.5]])
    assert raw["agent_wakeups"].tolist() == [[-1, 7]] * 2
    assert raw["agent_rss"].tolist() == [[-1, 4096]] * 2
    assert raw["agent_drives_failed"].tolist() == [[-1, 1]] * 2


def test_use_of_an_older_agent_keeper_leaves_unknown_what_it_did_not_tell(tmp_path):
    file = RunFile(tmp_path, 0, 1)
    file.block(0)
    file.values(3, (0.5, 0.25), block=0)
    _, raw = placed(SCHEMA, plan(1), [file.close()])
    assert raw["keeper_cpu"][0, 0] == 0.25
    assert np.isnan(raw["agent_drive"][0, 0])
    assert raw["agent_threads"][0, 0] == -1


def test_looks_of_the_judge(tmp_path):
    file = RunFile(tmp_path, 0, 1)
    file.values(4, CALIBRATION)
    file.block(0)
    file.block(1, variant=1)
    file.values(5, (0, 2, 1.5, 0.4, 0.3, 0.9, 2.5, 0.1, 1.0, 0.25, 1, 4, 0.8, 0.01))
    file.values(5, (1, 4, 3.0, 0.001, 0.001, 0.9, 5.5, 0.1, 1.0, 0.25, 0, 22, 0.002, 0.02, 250))
    layout, raw = placed(SCHEMA, plan(1), [file.close()])
    assert layout.coords["look"][0].tolist() == [0, 1]
    assert raw["look_blocks"].tolist() == [2, 4]
    assert raw["look_elapsed"].tolist() == [1.5, 3.0]
    assert raw["look_p"].tolist() == [0.4, 0.001]
    assert raw["look_from_resume"].tolist() == [1, 0]
    assert raw["look_feature"].tolist() == [4, 22]
    assert raw["look_p_so_far"].tolist() == [0.8, 0.002]
    assert raw["look_cost"].tolist() == [0.01, 0.02]
    assert raw["look_permutations"].tolist() == [-1, 250], "an earlier detector did not know of them"


def test_blocks_that_a_rank_lacks_at_the_end_are_left_out(tmp_path):
    p = plan(blocks=FOUR)
    files = run(tmp_path, p, FOUR, skip={(1, 3)}, stalls=[(0.1, 1e-3, 0, np.nan)])
    layout, raw = placed(SCHEMA, p, files)
    assert layout.dims["block"] == 3
    assert raw["status"].tolist() == [1, 1, 1]
    assert raw["n_stalls"].tolist() == [3, 3]
    assert codes(layout) == ["noise.blocks_dropped"]
    assert "1 blocks" in layout.warnings[0].evidence
    assert layout.complete  # segment 0 is whole
    assert (layout.attrs["blocks_planned"], layout.attrs["blocks_measured"]) == (4, 3)


def test_a_block_that_a_rank_lacks_in_the_middle_keeps_its_place_without_data(tmp_path):
    p = plan(blocks=FOUR)
    layout, raw = placed(SCHEMA, p, run(tmp_path, p, FOUR, skip={(1, 1)}, stalls=[(0.1, 1e-3, 0, 0)]))
    assert raw["status"].tolist() == [1, 0, 1, 1]
    assert raw["variant"].tolist() == [0, 1, 0, 1]
    assert np.isnan(raw["t_begin"][:, 1]).all()
    assert raw["count"][:, 1].sum() == 0
    assert raw["stall_block"][0].tolist() == [0, 2, 3]
    assert layout.complete


def test_a_rank_without_any_block_does_not_cost_the_others_theirs(tmp_path):
    p = plan(ranks=3)
    layout, raw = placed(SCHEMA, p, run(tmp_path, p)[:2])
    assert raw["status"].tolist() == [1, 1]
    assert np.isnan(raw["t_begin"][2]).all()
    assert (raw["iterations"][2] == -1).all()
    assert raw["host"][2] == ""
    assert codes(layout) == ["noise.rank_missing"]
    assert layout.warnings[0].evidence.endswith(": 2")


def test_a_torn_file_keeps_the_blocks_before_the_tear(tmp_path):
    p = plan(blocks=FOUR)
    run(tmp_path, p, FOUR[:3])
    path = tmp_path / "rank-00001.blk"
    path.write_bytes(path.read_bytes()[:-100])
    layout, raw = placed(SCHEMA, p, [blocks_file(tmp_path, rank) for rank in range(2)])
    assert raw["status"].tolist() == [1, 1]
    assert codes(layout) == ["noise.blocks_dropped"]


def blocks_file(folder, rank):
    return BlockFile(folder / f"rank-{rank:05d}.blk")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=3))
def test_whatever_ranks_lack_a_block_counts_when_all_that_have_any_have_it(tmp_path_factory, has):
    """has: rank, block."""
    p = plan(ranks=len(has), blocks=FOUR)
    skip = {(rank, block) for rank, row in enumerate(has) for block in range(4) if not row[block]}
    files = run(tmp_path_factory.mktemp("run"), p, FOUR, skip=skip, stalls=[(0.1, 1e-3, 0, 0)])
    layout, raw = placed(SCHEMA, p, files)
    table = np.array([row for row in has if any(row)]).reshape(-1, 4)
    whole = table.all(axis=0) if len(table) else np.zeros(4, bool)
    last = int(np.flatnonzero(whole).max(initial=0))
    assert raw["status"].astype(bool).tolist() == whole[: last + 1].tolist()
    present = np.isfinite(raw["t_begin"]).any(axis=1)
    assert present.tolist() == [any(row) and bool(whole.any()) for row in has]
    assert (raw["n_stalls"] == np.where(present, whole.sum(), 0)).all()
    assert ("noise.blocks_dropped" in codes(layout)) == bool((table.any(axis=0) & ~whole).any())
    assert layout.complete == bool(whole[:2].all() or whole[2:].all())


def test_no_whole_block_is_a_dataset_all_the_same(tmp_path):
    p = plan()
    layout, raw = placed(SCHEMA, p, run(tmp_path, p, skip={(0, 0), (0, 1), (1, 0), (1, 1)}))
    assert layout.dims["block"] == 1
    assert raw["status"].tolist() == [0]
    assert not layout.complete
    assert codes(layout) == ["noise.rank_missing", "noise.no_whole_segment"]
    assert layout.attrs["blocks_measured"] == 0


def test_stalls_lost_and_a_lost_calibration_are_reported(tmp_path):
    file = RunFile(tmp_path, 0, 1)
    file.block(0, stalls_lost=5)
    file.block(1, variant=1, stalls_lost=2)
    layout, raw = placed(SCHEMA, plan(1), [file.close()])
    assert codes(layout) == ["noise.stalls_lost", "noise.not_calibrated"]
    assert layout.warnings[0].evidence.startswith("7 stalls")
    assert raw["stalls_lost"].tolist() == [[5, 2]]
    assert np.isnan(raw["class_edge"]).all()
    assert raw["stamp_every"].tolist() == [-1]


def test_records_gone_wrong_are_left_out_and_reported(tmp_path):
    file = RunFile(tmp_path, 0, 1)
    file.values(4, CALIBRATION)
    file.block(0, count={3: 1})
    file.block(0, count={3: 9})  # twice
    file.block(1, variant=1)
    file.raw(kind=9)
    file.raw(kind=0, block=1 << 31, complete=1)
    file.raw(kind=1, block=1, n=257)  # more stalls than a record holds
    layout, raw = placed(SCHEMA, plan(1), [file.close()])
    assert codes(layout) == ["noise.bad_record"]
    assert layout.warnings[0].evidence.startswith("4 records")
    assert raw["count"][0, 0, 3] == 1
    assert raw["status"].tolist() == [1, 1]


def test_a_block_that_was_cut_short_does_not_count(tmp_path):
    file = RunFile(tmp_path, 0, 1)
    file.values(4, CALIBRATION)
    file.block(0)
    file.block(1, variant=1, complete=0)
    layout, raw = placed(SCHEMA, plan(1), [file.close()])
    assert raw["status"].tolist() == [1]
    assert not layout.complete


@pytest.mark.parametrize(
    ("measured", "complete"),
    [([0, 1, 2, 3], True), ([0, 1], True), ([0, 2], False), ([1, 2, 3], True), ([0], False), ([], False)],
    ids=["all", "first segment", "halves of two", "second segment", "off only", "nothing"],
)
def test_complete_is_one_whole_segment_of_both_kinds(measured, complete):
    kept = np.isin(np.arange(4), measured)
    segment, variant = np.array(FOUR).T
    assert is_complete(plan(blocks=FOUR), segment, variant, kept) is complete


def test_a_segment_of_several_rounds_is_whole_only_with_all_of_them():
    segment, variant = np.zeros(4, int), np.array([0, 1, 1, 0])
    p = plan(blocks=list(zip(segment.tolist(), variant.tolist())))
    some = np.array([True, True, True, False])
    assert is_complete(p, segment, variant, np.ones(4, bool))
    assert not is_complete(p, segment, variant, some)
    # A plan that does not tell its blocks asks for every variant only.
    assert is_complete({"variants": ["off", "agent"]}, segment, variant, some)


def test_a_segment_may_lack_the_last_of_more_rounds_than_a_verdict_needs():
    segment, variant = np.zeros(20, int), np.arange(20) % 2
    p = plan(blocks=list(zip(segment.tolist(), variant.tolist())))
    assert is_complete(p, segment, variant, np.arange(20) < 19)
    assert is_complete(p, segment, variant, np.arange(20) < 18)
    assert not is_complete(p, segment, variant, np.arange(20) < 17)


def test_complete_with_one_variant_needs_one_segment():
    p = plan(blocks=[(0, 0), (0, 0)], variants=["off"])
    both = np.zeros(2, int)
    assert is_complete(p, both, both, np.array([True, True]))
    assert not is_complete(p, both, both, np.array([True, False]))
    assert not is_complete({"variants": ["off", "agent"]}, both, both, np.array([True, True]))


def test_bursts_of_a_source_are_reported_in_the_time_of_the_run(tmp_path):
    p = plan()
    bursts = [
        {"planned": BEGAN_S + k, "begin": BEGAN_S + k + 1e-4, "wall_s": 0.01, "words": 9} for k in (1, 2, 3)
    ]
    keys = {name: key for name, (key, *_) in BURST.items()}
    bursts = [{keys.get(k.removesuffix("_s"), k): v for k, v in burst.items()} for burst in bursts]
    files = [*run(tmp_path, p), source_file(tmp_path, "agent-n000.blk", bursts)]
    layout, raw = placed(SCHEMA, p, files)
    assert layout.warnings == []
    np.testing.assert_allclose(raw["burst_planned"], [[1, 2, 3]])
    np.testing.assert_allclose(raw["burst_begin"], [[1.0001, 2.0001, 3.0001]])
    assert raw["burst_words"].tolist() == [[9, 9, 9]]
    assert raw["n_bursts"].tolist() == [3]
    assert raw["source_host"].tolist() == ["n000"]
    assert raw["source_level"].tolist() == [0.01]


def test_sources_elsewhere_without_bursts_and_unreadable_ones(tmp_path):
    p = plan()
    good = source_file(tmp_path, "agent-a.blk", [{"planned": BEGAN_S}], host="elsewhere")
    empty = source_file(tmp_path, "agent-b.blk", [])
    other = _core.BlockWriter(
        str(tmp_path / "agent-c.blk"), '{"fields": [["x", "<f8", []]], "kind": "source"}', 8, 1
    )
    other.close()
    files = [*run(tmp_path, p), good, empty, BlockFile(tmp_path / "agent-c.blk")]
    layout, raw = placed(SCHEMA, p, files)
    assert sorted(codes(layout)) == ["noise.agent_file_unreadable", "noise.source_elsewhere"]
    assert layout.dims["source"] == 2
    assert np.isnan(raw["burst_planned"]).all()
    assert raw["n_bursts"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ({"rank": 7}, "noise.plan_mismatch"),
        ({"ranks": 3}, "noise.plan_mismatch"),
        ({"classes": 900}, "noise.plan_mismatch"),
        ({"kind": "host"}, "noise.not_run_blocks"),
    ],
)
def test_files_of_other_runs_are_refused(tmp_path, header, code):
    files = [RunFile(tmp_path, **{"rank": 0, "ranks": 2} | header).close()]
    with pytest.raises(DataError) as error:
        SCHEMA.layout(plan(), files, "")
    assert error.value.code == code


def test_no_file_of_a_rank_and_a_rank_twice_are_refused(tmp_path):
    with pytest.raises(DataError, match="no block file"):
        SCHEMA.layout(plan(), [source_file(tmp_path, "agent-a.blk", [])], "")
    (tmp_path / "b").mkdir()
    twice = [RunFile(tmp_path, 1).close(), RunFile(tmp_path / "b", 1).close()]
    with pytest.raises(DataError, match="rank 1"):
        SCHEMA.layout(plan(), twice, "")


def test_analysis_is_handed_on(monkeypatch):
    fake = SimpleNamespace(analyse=lambda raw, deadline: raw.assign(done=1))
    monkeypatch.setitem(sys.modules, "sonde.noise.detector.analyse", fake)
    raw = xr.Dataset(attrs={"kind": "run"})
    assert kinds.SCHEMA.analyse(raw)["done"] == 1


def test_a_sealed_run_is_a_valid_dataset(tmp_path, monkeypatch):
    seen = []
    fake = SimpleNamespace(analyse=lambda raw, deadline: seen.append(dict(raw.attrs)) or SUMMARY)
    monkeypatch.setitem(sys.modules, "sonde.noise.detector.analyse", fake)
    folder = tmp_path / "noise.run"
    p = plan(blocks=FOUR)
    run_folder.start(folder, room="noise", schema="noise/1", attrs={"seed": 1}, plan=p)
    for file in run(folder, p, FOUR, stalls=[(0.1, 1e-3, 0, 0)]):
        assert file.records == 9
    (sealed,) = seal.seal(folder, tmp_path, kinds.SCHEMA, attrs={"stop_reason": "converged"})
    assert sealed.complete
    assert dataset.validate(sealed.path) == []
    assert seen[0]["kind"] == "run"
    assert seen[0]["settle_s"] == 0.05
    with dataset.open(sealed.path) as tree:
        raw = tree["raw"].to_dataset()
        assert raw["count"].dims == ("rank", "block", "class")
        assert raw["count"].sum() == 8000
        for name in raw.data_vars:
            assert raw[name].attrs["long_name"]
            assert "units" in raw[name].attrs or raw[name].dtype.kind in "OUT"


def test_place_streams_what_does_not_fit(tmp_path):
    """No piece is larger than what was read at once, however many iterations a file holds."""
    file = RunFile(tmp_path, 0, 1)
    file.values(4, CALIBRATION)
    for number in range(3):
        file.block(number, variant=number % 2)
        file.iterations(number, np.full(40_000, 5))
    read = file.close()
    layout = SCHEMA.layout(plan(1), [read], "")
    pieces = [
        values.nbytes for name, _, values in SCHEMA.place(plan(1), layout, read, "") if name == "iteration"
    ]
    assert len(pieces) > 3
    assert sum(pieces) == 3 * 40_000 * 4
    assert max(pieces) < 3 * 40_000 * 4


class TestValidate:
    @pytest.fixture
    def run(self):
        return noise_runs.tree(noise_runs.run([0.01], pairs=6))

    def codes(self, tree: xr.DataTree) -> list[str]:
        return [finding.code for finding in SCHEMA.validate(tree)]

    def test_a_sound_run(self, run):
        assert SCHEMA.validate(run) == []
        assert SCHEMA.validate(noise_runs.tree(noise_runs.run([], pairs=6))) == []

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            (lambda raw: raw.drop_vars("count"), "noise.missing"),
            (lambda raw: raw.drop_vars("rank"), "noise.coordinate"),
            (lambda raw: raw.assign(stall_t=raw["stall_t"].assign_attrs(units="ms")), "noise.units"),
            (lambda raw: raw.assign(length=raw["length"].transpose()), "noise.dims"),
            (lambda raw: raw.assign(status=raw["status"] * 0 + 7), "noise.status"),
            (lambda raw: raw.assign(variant=raw["variant"] + 5), "noise.variant"),
            (lambda raw: raw.assign(segment=raw["segment"] - np.arange(raw.sizes["block"])), "noise.segment"),
            (lambda raw: raw.assign(t_begin=-raw["t_begin"]), "noise.time"),
            (lambda raw: raw.assign(length=raw["length"] * 0), "noise.length"),
            (lambda raw: raw.assign(n_stalls=raw["n_stalls"] - 1), "noise.count"),
            (lambda raw: raw.assign(stall_length=-raw["stall_length"]), "noise.stall"),
        ],
    )
    def test_what_is_wrong_is_named(self, run, change, code):
        with xr.set_options(keep_attrs=True):
            raw = change(run["raw"].to_dataset())
        broken = xr.DataTree.from_dict(
            {"/": run.to_dataset(), "/raw": raw, "/summary": run["summary"].to_dataset()}
        )
        found = self.codes(broken)
        assert code in found
        assert len(found) == 1 or code == "noise.status"  # no block counts then

    def test_a_summary_in_another_unit(self, run):
        summary = run["summary"].to_dataset()
        summary = summary.assign(wake_lost=summary["wake_lost"].assign_attrs(units="ms"))
        tree = xr.DataTree.from_dict(
            {"/": run.to_dataset(), "/raw": run["raw"].to_dataset(), "/summary": summary}
        )
        assert self.codes(tree) == ["noise.units"]

    def test_a_kind_that_is_not_known(self):
        from sonde.noise.kinds import SCHEMA as ROOM

        tree = xr.DataTree(xr.Dataset(attrs={"kind": "opera"}))
        assert [finding.code for finding in ROOM.validate(tree)] == ["noise.unknown_kind"]


def test_two_runs_are_compared_and_two_kinds_are_not():
    from sonde.data import diff

    slow, fast, host = (noise_runs.tree(noise_runs.run([burst], pairs=12)) for burst in (0.02, 0.005, 0.005))
    found = diff.compare(fast, slow)
    (finding,) = [
        f for f in diff.findings(found, ("a.nc", "b.nc"), "noise") if f.evidence["variable"] == "slowdown"
    ]
    assert "variant agent 1" in finding.text
    assert finding.next == "sonde noise show a.nc b.nc"
    assert found.machine == []
    host.attrs["kind"] = "host"
    with pytest.raises(DataError) as told:
        diff.compare(fast, host)
    assert told.value.code == "data.other_kind"
