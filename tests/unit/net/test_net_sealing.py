"""From block files to /raw of net/1: every sample in its cell, whatever order and however many files."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from net_blocks import MODE, file_of, placed, plan, whole_run

from sonde import _core
from sonde.core import dataset, run_folder, seal
from sonde.core.deadline import Deadline
from sonde.core.errors import DataError
from sonde.core.status import CAP, CONVERGED, DRIFT, NOT_MEASURED, UNDECIDED
from sonde.net import schema, sealing
from sonde.net.sealing import SCHEMA


def test_one_dataset_for_each_mode():
    assert SCHEMA.parts(plan(modes=["one_to_one", "all_to_all"])) == ["one_to_one", "all_to_all"]


@pytest.mark.parametrize("measured_by", ["src", "dst"])
def test_every_sample_lands_in_its_cell(measured_by):
    p = plan(measured_by=measured_by)
    layout, arrays = placed(SCHEMA, p, whole_run(p), MODE)
    assert layout.dims["sample"] == 6
    assert layout.complete
    assert layout.warnings == []
    expected = [210e-6, 210.001e-6, 210.002e-6, 210.1e-6, 210.101e-6, 210.102e-6]
    np.testing.assert_allclose(arrays["latency"][2, 1, 0], expected)
    assert arrays["epoch"][2, 1, 0].tolist() == [0, 0, 0, 1, 1, 1]
    assert arrays["t_start"][2, 1, 0].tolist() == [0, 0.5, 1, 10, 10.5, 11]
    assert arrays["n"][2, 1, 0] == 6
    assert np.isnan(arrays["latency"][1, 1]).all()
    assert (arrays["epoch"][1, 1] == -1).all()


def test_samples_are_in_order_of_epochs_even_when_the_file_is_not():
    p = plan(ranks=2, sizes=[8])
    files = [file_of(p, 0), file_of(p, 1)]
    files[1].burst(0, 0, 1, 0, epoch=5, values=[5.0, 5.1])
    files[1].burst(0, 0, 1, 0, epoch=2, values=[2.0])
    files[1].burst(0, 0, 1, 0, epoch=5, values=[5.2])
    _, arrays = placed(SCHEMA, p, files, MODE)
    assert arrays["latency"][0, 1, 0].tolist() == [2.0, 5.0, 5.1, 5.2]
    assert arrays["epoch"][0, 1, 0].tolist() == [2, 5, 5, 5]


def test_series_of_different_lengths_are_padded_with_nan():
    p = plan(ranks=2, sizes=[8, 64])
    files = [file_of(p, 0), file_of(p, 1)]
    files[1].burst(0, 0, 1, 0, 0, [1.0, 2.0, 3.0])
    files[1].burst(0, 0, 1, 1, 0, [4.0])
    layout, arrays = placed(SCHEMA, p, files, MODE)
    assert layout.dims["sample"] == 3
    np.testing.assert_array_equal(arrays["latency"][0, 1], [[1, 2, 3], [4, np.nan, np.nan]])
    np.testing.assert_array_equal(arrays["epoch"][0, 1], [[0, 0, 0], [0, -1, -1]])
    assert arrays["n"][0, 1].tolist() == [3, 1]


def test_modes_measured_together_do_not_mix():
    p = plan(modes=["one_to_one", "put"])
    files = whole_run(p)
    _, first = placed(SCHEMA, p, files, "one_to_one")
    layout, second = placed(SCHEMA, p, files, "put")
    assert layout.attrs["mode"] == "put"
    np.testing.assert_allclose(second["latency"], first["latency"] + 1)


def test_a_file_may_number_the_modes_its_own_way():
    p = plan(ranks=2, sizes=[8], modes=["one_to_one", "put"])
    files = [file_of(p, 0), file_of(p, 1, modes=["put", "one_to_one"])]
    files[1].burst(0, 0, 1, 0, 0, [7.0])
    _, arrays = placed(SCHEMA, p, files, "put")
    assert arrays["latency"][0, 1, 0].tolist() == [7.0]


@pytest.mark.parametrize("measured_by", ["src", "dst"])
def test_placing_in_small_batches_gives_the_same(monkeypatch, measured_by):
    p = plan(ranks=5, sizes=[8, 64, 512], measured_by=measured_by)
    _, expected = placed(SCHEMA, p, whole_run(p), MODE)
    files = whole_run(p)
    monkeypatch.setattr(sealing, "BATCH_BYTES", 1)  # one unit at a time
    monkeypatch.setattr(schema, "CHUNK_BYTES", 2 * 6 * 8)  # two peers to a chunk
    layout = SCHEMA.layout(p, files, MODE)
    pieces = list(SCHEMA.place(p, layout, files[1], MODE))
    series = [values for name, _, values in pieces if name == "latency"]
    assert max(values.size for values in series) <= 2 * 6
    assert files[1].passes == 2 + 3 * 3  # layout, index, and each of 3 sizes x 3 blocks of peers
    _, arrays = placed(SCHEMA, p, files, MODE)
    for name in expected:
        np.testing.assert_array_equal(arrays[name], expected[name], err_msg=name)


def test_verdicts_become_status_wherever_they_were_written():
    p = plan(ranks=3, sizes=[8])
    files = whole_run(p)
    for (s, d), code in {(0, 1): 1, (0, 2): 2, (1, 0): 3, (1, 2): 0}.items():
        files[0].verdict(0, s, d, 0, code)
    _, arrays = placed(SCHEMA, p, files, MODE)
    assert arrays["status"][..., 0].tolist() == [
        [NOT_MEASURED, CONVERGED, CAP],
        [DRIFT, NOT_MEASURED, UNDECIDED],
        [UNDECIDED, UNDECIDED, NOT_MEASURED],
    ]


def test_a_verdict_without_samples_is_not_measured():
    p = plan(ranks=2, sizes=[8])
    files = [file_of(p, 0), file_of(p, 1)]
    files[0].verdict(0, 0, 1, 0, 1)
    _, arrays = placed(SCHEMA, p, files, MODE)
    assert arrays["status"][0, 1, 0] == NOT_MEASURED


def test_the_last_clock_record_of_a_rank_counts():
    p = plan(ranks=2, sizes=[8])
    files = whole_run(p)
    files[0].clock(1, 3.0, 5e-5, 1e-7, t0=20.0)
    files[0].clock(1, 2.0, 4e-5, 1e-6, t0=1.0)
    _, arrays = placed(SCHEMA, p, files, MODE)
    assert arrays["clock_offset"][1] == 3.0
    assert arrays["clock_drift"][1] == 5e-5
    assert arrays["clock_error"][1] == 1e-7
    assert np.isnan(arrays["clock_offset"][0])


def test_without_clock_records_there_are_no_clock_variables():
    p = plan(ranks=2, sizes=[8])
    assert "clock_offset" not in SCHEMA.layout(p, whole_run(p), MODE).variables


def test_where_ranks_ran_comes_from_headers():
    p = plan(ranks=4, sizes=[8])
    _, arrays = placed(SCHEMA, p, whole_run(p), MODE)
    assert arrays["host"].tolist() == ["n000", "n000", "n001", "n001"]
    assert arrays["cpu"].tolist() == [0, 1, 2, 3]


def test_a_missing_file_leaves_its_rank_unknown_and_its_cells_named():
    p = plan(ranks=3, sizes=[8, 64])
    files = whole_run(p)[:2]
    layout, arrays = placed(SCHEMA, p, files, MODE)
    assert not layout.complete
    warning = layout.warnings[-1]
    assert warning.code == "net.cells_without_data"
    assert "4 requested cells of one_to_one" in warning.evidence
    assert "0→2 at 8 B" in warning.evidence
    assert arrays["host"].tolist() == ["n000", "n000", ""]
    assert arrays["cpu"].tolist() == [0, 1, -1]
    assert (arrays["n"][:, 2] == 0).all()
    assert (arrays["status"][:, 2] == NOT_MEASURED).all()


def test_only_requested_pairs_must_have_data():
    p = plan(ranks=3, sizes=[8], pairs=[[0, 1], [1, 0]])
    missing = {(s, d, 0) for s in range(3) for d in range(3) if 2 in (s, d)}
    assert SCHEMA.layout(p, whole_run(p, skip=missing), MODE).complete


def test_a_cell_that_was_asked_for_and_not_measured_is_named():
    p = plan(ranks=3, sizes=[8, 64])
    layout = SCHEMA.layout(p, whole_run(p, skip={(2, 0, 1)}), MODE)
    assert not layout.complete
    assert layout.warnings[0].evidence == "1 requested cells of one_to_one have no data: 2→0 at 64 B"


def test_a_cell_in_two_files_is_taken_once_and_reported():
    p = plan(ranks=3, sizes=[8])
    files = whole_run(p)
    files[2].burst(0, 0, 1, 0, 0, [9.0] * 4)
    files[2].burst(0, 0, 1, 0, 1, [9.0] * 4)
    layout, arrays = placed(SCHEMA, p, files, MODE)
    assert [warning.code for warning in layout.warnings] == ["net.cell_twice"]
    assert layout.dims["sample"] == 6
    assert arrays["n"][0, 1, 0] == 6
    assert arrays["latency"][0, 1, 0].max() < 1


def test_two_files_may_share_a_row():
    p = plan(ranks=4, sizes=[8])
    files = [file_of(p, rank) for rank in range(4)]
    for s, writer in ((0, 3), (1, 2), (2, 3)):  # all measured by rank 3, but rank 2 forwarded one
        files[writer].burst(0, s, 3, 0, 0, [float(s + 1)])
    _, arrays = placed(SCHEMA, p, files, MODE)
    assert arrays["latency"][:3, 3, 0, 0].tolist() == [1, 2, 3]


def test_records_that_name_what_is_not_there_are_left_out_and_counted():
    p = plan(ranks=2, sizes=[8])
    files = whole_run(p)
    files[1].burst(0, 7, 1, 0, 0, [1.0])
    files[1].burst(0, 0, 1, 9, 0, [1.0])
    files[1]._add(kind=0, mode=0, src=0, dst=1, size=0, epoch=0, n=99)
    files[1]._add(kind=8)
    files[1].verdict(0, 0, 1, 0, 77)
    layout, arrays = placed(SCHEMA, p, files, MODE)
    assert [warning.code for warning in layout.warnings] == ["net.bad_record"]
    assert layout.warnings[0].evidence.startswith("5 records of rank 1 ")
    assert arrays["n"][0, 1, 0] == 6


def test_no_samples_at_all_still_makes_a_layout():
    p = plan(ranks=2, sizes=[8])
    layout, arrays = placed(SCHEMA, p, [file_of(p, 0), file_of(p, 1)], MODE)
    assert layout.dims["sample"] == 1
    assert not layout.complete
    assert np.isnan(arrays["latency"]).all()


def test_root_attributes_come_from_the_plan():
    p = plan(rule="ci:1%", pairing="serial", oversubscribed=True, run_id="3f9a")
    attrs = SCHEMA.layout(p, whole_run(p), MODE).attrs
    assert attrs == {
        "mode": MODE, "epoch_length": 4, "rule": "ci:1%", "pairing": "serial", "oversubscribed": 1,
        "run_id": "3f9a",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sizes": [8, 65]}, "sizes = [8, 65]"),
        ({"ranks": 4}, "ranks = 4"),
        ({"rank": 3}, "written by rank 3"),
        ({"rank": None}, "written by rank None"),
        ({"rank": 0}, "two block files were written by rank 0"),
    ],
)
def test_a_file_of_another_run_is_refused(change, says):
    p = plan()
    files = whole_run(p)
    files[2].header.update(change)
    with pytest.raises(DataError) as caught:
        SCHEMA.layout(p, files, MODE)
    assert caught.value.code == "net.plan_mismatch"
    assert says in caught.value.what


def test_no_files_at_all():
    with pytest.raises(DataError) as caught:
        SCHEMA.layout(plan(), [], MODE)
    assert caught.value.code == "net.no_blocks"


def test_blocks_of_another_room_are_refused():
    p = plan()
    file = file_of(p, 0)
    file.dtype = np.dtype([("kind", "<u4"), ("watt", "<f8")])
    with pytest.raises(DataError) as caught:
        SCHEMA.layout(p, [file], MODE)
    assert caught.value.code == "net.not_net_blocks"
    assert "no field 'mode'" in caught.value.what


def test_analyse_is_the_room_s(monkeypatch):
    monkeypatch.setitem(
        sys.modules, "sonde.net.analyse", SimpleNamespace(analyse=lambda raw, limit: (raw, limit))
    )
    raw = xr.Dataset()
    limit = Deadline()
    assert SCHEMA.analyse(raw, limit) == (raw, limit)


def test_a_run_of_two_modes_is_sealed_into_two_datasets(tmp_path):
    """Through the probes' own writer and seal: what place() says is what the file holds."""
    p = plan(modes=["one_to_one", "put"], rule="fixed:6")
    folder = tmp_path / "a.run"
    run_folder.start(folder, room="net", schema="net/1", attrs={"seed": 3}, plan=p)
    for file in whole_run(p):
        file.verdict(0, 0, file.header["rank"], 0, 1)
        fields = [
            [name, file.dtype[name].base.str, list(file.dtype[name].shape)] for name in file.dtype.names
        ]
        path = folder / f"rank-{file.header['rank']:05d}.blk"
        header = json.dumps({"fields": fields, **file.header})
        writer = _core.BlockWriter(str(path), header, file.dtype.itemsize, 8)
        for records in file:
            writer.append(records)
            writer.flush()
        writer.close()
    sealed = seal.seal(folder, tmp_path / "a.nc", SCHEMA, attrs={"stop_reason": "epochs"})
    assert [made.path.name for made in sealed] == ["a-one_to_one.nc", "a-put.nc"]
    assert all(made.complete for made in sealed)
    for number, made in enumerate(sealed):
        _, arrays = placed(SCHEMA, p, whole_run(p), p["modes"][number])
        with dataset.open(made.path) as tree:
            assert SCHEMA.validate(tree) == []
            assert tree.attrs["mode"] == p["modes"][number]
            assert tree.attrs["rule"] == "fixed:6"
            for name in ("latency", "epoch", "t_start", "n", "host", "cpu"):
                np.testing.assert_array_equal(tree["raw"][name].values, arrays[name], err_msg=name)
            assert tree["raw"]["status"].values[0, 1, 0] == (CONVERGED, UNDECIDED)[number]


bursts = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1), st.integers(0, 5), st.integers(0, 4)),
    max_size=40,
)


@given(bursts=bursts, per_block=st.integers(1, 7), batch=st.sampled_from([1, 300, 1 << 20]))
@settings(max_examples=80, deadline=None)
def test_placing_is_a_stable_sort_by_epoch(bursts, per_block, batch):
    p = plan(ranks=3)
    files = [file_of(p, rank) for rank in range(3)]
    expected: dict = {}
    for number, (s, d, k, epoch, n) in enumerate(bursts):
        values = [number + i / 10 for i in range(n)]
        files[d].burst(0, s, d, k, epoch, values)
        expected.setdefault((s, d, k), []).append((epoch, values))
    for file in files:
        file.per_block = per_block
    before = sealing.BATCH_BYTES
    sealing.BATCH_BYTES = batch
    try:
        _, arrays = placed(SCHEMA, p, files, MODE)
    finally:
        sealing.BATCH_BYTES = before
    for cell in np.ndindex(3, 3, 2):
        ordered = sorted(expected.get(cell, []), key=lambda item: item[0])
        series = [value for _, values in ordered for value in values]
        assert arrays["n"][cell] == len(series)
        got = arrays["latency"][cell]
        assert got[: len(series)].tolist() == series
        assert np.isnan(got[len(series) :]).all()
