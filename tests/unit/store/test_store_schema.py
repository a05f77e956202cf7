"""From the probe's block file to a dataset: nothing is lost, nothing is invented."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from bench_runs import EPOCH_LENGTH, burst, made, sealed, variants, verdict, write

import sonde
from sonde.core import run_folder, seal
from sonde.core.errors import DataError
from sonde.core.status import CONVERGED, NOT_MEASURED, UNDECIDED
from sonde.store.plan import VARIANTS, Case, Plan
from sonde.store.schema import validate
from sonde.store.sealing import SCHEMA

CASES = (Case("object", "write", 4096), Case("kv", "get", 64, 1000), Case("object", "read", 64, 1, 16))


def plan(*names: str, asked: bool = False) -> Plan:
    return Plan(variants(*(names or ("raw", "tcp", "ofi-rdm"))), CASES, asked=asked)


def level(variant: int, case: int, epoch: int) -> float:
    return 1e-5 * (1 + variant) * (1 + case)


class TestSealing:
    def test_every_sample_is_where_it_belongs(self, tmp_path):
        records = made(plan(), level, epochs=3)
        file = sealed(tmp_path, plan(), records)
        assert file.complete
        assert not file.warnings
        with sonde.open(file.path) as tree:
            raw = tree["raw"].to_dataset().load()
            assert not validate(tree)
        bursts = records[records["kind"] == 0]
        assert int(raw["n"].sum()) == int(bursts["n"].sum())
        for v in range(3):
            for c in range(3):
                own = bursts[(bursts["variant"] == v) & (bursts["case"] == c)]
                n = int(raw["n"][v, c])
                assert n == len(own) * EPOCH_LENGTH
                assert np.array_equal(raw["duration"][v, c, :n], own["value"].ravel())
                assert np.array_equal(raw["epoch"][v, c, :n], np.repeat(own["epoch"], EPOCH_LENGTH))
                assert np.allclose(raw["t_start"][v, c, :n], (own["t0"][:, None] + own["offset"]).ravel())
                assert np.array_equal(raw["backend"][v, c], own["backend"], equal_nan=True)
        assert (raw["status"] == CONVERGED).all()
        assert list(raw["variant"].values) == ["raw", "tcp", "ofi-rdm"]
        assert list(raw["provider"].values) == ["", "", "shm"]
        assert list(raw["batch"].values) == [1, 1000, 1]
        assert raw["detail"].values[2] == "the way of ofi-rdm"

    def test_cells_of_unequal_length_are_padded_and_counted(self, tmp_path):
        records = np.concatenate(
            [burst(0, 0, 0, [1e-5]), *(burst(1, c, e, [1e-5] * 5) for c in range(3) for e in range(4))]
        )
        with sonde.open(sealed(tmp_path, plan("raw", "tcp"), records).path) as tree:
            raw = tree["raw"].to_dataset().load()
        assert raw["n"].values.tolist() == [[1, 0, 0], [20, 20, 20]]
        assert raw["bursts"].values.tolist() == [[1, 0, 0], [4, 4, 4]]
        assert np.isnan(raw["duration"][0, 0, 1:]).all()
        assert (raw["epoch"][0, 1] == -1).all()
        assert raw["status"].values.tolist() == [[UNDECIDED, NOT_MEASURED, NOT_MEASURED], [UNDECIDED] * 3]

    def test_a_cell_without_data_makes_the_dataset_incomplete(self, tmp_path):
        file = sealed(tmp_path, plan(), made(plan(), level, 2, skip=[(2, 1)]))
        assert not file.complete
        (warning,) = file.warnings
        assert warning.code == "store.cells_without_data"
        assert "ofi-rdm, kv.get:64:1000:1" in warning.evidence

    def test_a_case_that_a_variant_does_not_take_is_not_missed(self, tmp_path):
        few = Plan((VARIANTS["tcp"], replace(VARIANTS["plain"], clients=("object",))), CASES)
        assert sealed(tmp_path, few, made(few, level, 2, skip=[(1, 1)])).complete

    def test_a_usual_variant_that_is_absent_has_no_row(self, tmp_path):
        records = made(plan(), level, 2, skip=[(1, 0), (1, 1), (1, 2)])
        file = sealed(tmp_path, plan(), records, connected=[True, False, True])
        assert file.complete
        with sonde.open(file.path) as tree:
            raw = tree["raw"].to_dataset().load()
        assert list(raw["variant"].values) == ["raw", "ofi-rdm"]
        assert list(raw["provider"].values) == ["", "shm"]
        assert (raw["n"] == 2 * EPOCH_LENGTH).all()
        assert np.allclose(raw["duration"][1].median("sample"), [3e-5, 6e-5, 9e-5], rtol=0.01)

    def test_one_that_was_asked_for_is_missed(self, tmp_path):
        asked = plan(asked=True)
        file = sealed(
            tmp_path,
            asked,
            made(asked, level, 2, skip=[(1, 0), (1, 1), (1, 2)]),
            connected=[True, False, True],
        )
        assert not file.complete

    def test_many_samples_come_in_pieces_and_in_order(self, tmp_path):
        one = Plan(variants("tcp"), CASES[:1])
        records = np.concatenate([burst(0, 0, e, [1e-5 + e * 1e-9] * EPOCH_LENGTH) for e in range(3000)])
        with sonde.open(sealed(tmp_path, one, records).path) as tree:
            raw = tree["raw"].to_dataset().load()
        assert int(raw["n"][0, 0]) == 3000 * EPOCH_LENGTH
        assert (np.diff(raw["epoch"][0, 0].values) >= 0).all()
        assert (np.diff(raw["burst_epoch"][0, 0].values) == 1).all()

    def test_records_that_make_no_sense_are_left_out_and_counted(self, tmp_path):
        good = made(plan(), level, 2)
        bad = np.concatenate(
            [burst(9, 0, 0, [1e-5]), burst(0, 9, 0, [1e-5]), burst(0, 0, 0, [1e-5]), verdict(0, 0, 77)]
        )
        bad["n"][2] = EPOCH_LENGTH + 1
        file = sealed(tmp_path, plan(), np.concatenate([good, bad]))
        assert [w.code for w in file.warnings] == ["store.bad_record"]
        assert file.warnings[0].evidence.startswith("4 records")
        with sonde.open(file.path) as tree:
            assert (tree["raw"]["n"] == 2 * EPOCH_LENGTH).all()
            assert not validate(tree)

    def test_the_file_of_another_run_is_refused(self, tmp_path):
        with pytest.raises(DataError) as told:
            sealed(tmp_path, plan(), made(plan(), level, 1), variants=["raw", "tcp", "other"])
        assert told.value.code == "store.plan_mismatch"

    def test_so_is_a_file_of_another_room(self, tmp_path):
        from sonde import _core

        run_dir = tmp_path / "a.run"
        run_folder.start(run_dir, room="store", schema="store/1", attrs={}, plan=plan().document())
        head = json.dumps({"fields": [["kind", "<u4", []]], "schema": "net/1"})
        writer = _core.BlockWriter(str(run_dir / "rank-00000.blk"), head, 4, 8)
        writer.close()
        with pytest.raises(DataError) as told:
            seal.seal(run_dir, tmp_path / "a.nc", SCHEMA)
        assert told.value.code == "store.not_store_blocks"

    def test_two_files_are_one_too_many(self, tmp_path):
        run_dir = tmp_path / "a.run"
        run_folder.start(run_dir, room="store", schema="store/1", attrs={}, plan=plan().document())
        for name in ("rank-00000.blk", "rank-00001.blk"):
            write(run_dir / name, plan(), made(plan(), level, 1))
        with pytest.raises(DataError) as told:
            seal.seal(run_dir, tmp_path / "a.nc", SCHEMA)
        assert told.value.code == "store.plan_mismatch"

    def test_a_header_alone_is_a_dataset_without_data(self, tmp_path):
        file = sealed(tmp_path, plan(), np.zeros(0, made(plan(), level, 1).dtype))
        assert not file.complete
        with sonde.open(file.path) as tree:
            assert (tree["raw"]["n"] == 0).all()
            assert (tree["summary"]["epochs"] == 0).all()
            assert not validate(tree)


class TestSlowOnPurpose:
    CASES = (Case("object", "write", 4096), Case("object", "write", 4096, 10_000))

    def test_a_cell_without_data_leaves_the_run_complete_but_is_reported(self, tmp_path):
        few = Plan((VARIANTS["tcp"], VARIANTS["thesis"]), self.CASES)
        file = sealed(tmp_path, few, made(few, lambda v, c, e: 1e-5, 8, skip=[(1, 1)]))
        assert file.complete
        (warning,) = file.warnings
        assert (warning.code, warning.hint) == ("store.cells_left_out", "give a longer --budget")
        assert "thesis, object.write:4096:10000:1" in warning.evidence

    def test_after_an_interruption_nobody_knows_that_it_was_too_slow(self, tmp_path):
        few = Plan((VARIANTS["tcp"], VARIANTS["thesis"]), self.CASES)
        records = made(few, lambda v, c, e: 1e-5, 8, skip=[(1, 1)])
        file = sealed(tmp_path, few, records, stop_reason="interrupted")
        assert not file.complete
        (warning,) = file.warnings
        assert (warning.code, warning.hint) == ("store.cells_without_data", "run it again")
        assert warning.evidence == (
            "1 of 4 cells have no data, because the run was interrupted: thesis, object.write:4096:10000:1"
        )

    def test_one_that_was_left_out_before_is_not_missed(self, tmp_path):
        thesis = replace(VARIANTS["thesis"], without=(self.CASES[1].spec,))
        few = Plan((VARIANTS["tcp"], thesis), self.CASES)
        file = sealed(tmp_path, few, made(few, lambda v, c, e: 1e-5, 8))
        assert file.complete
        assert not file.warnings

    def test_one_of_tcp_or_of_a_variant_that_is_not_connected_is_missed(self, tmp_path):
        few = Plan((VARIANTS["tcp"], VARIANTS["thesis"]), self.CASES, asked=True)
        records = made(few, lambda v, c, e: 1e-5, 8, skip=[(0, 1)])
        assert not sealed(tmp_path, few, records).complete
        records = made(few, lambda v, c, e: 1e-5, 8, skip=[(1, 0), (1, 1)])
        assert not sealed(tmp_path, few, records, "b", connected=[True, False]).complete

    def test_alone_it_is_missed(self, tmp_path):
        few = Plan((VARIANTS["raw"], VARIANTS["thesis"]), self.CASES)
        assert not sealed(tmp_path, few, made(few, lambda v, c, e: 1e-5, 8, skip=[(1, 1)])).complete


class TestValidate:
    def test_a_duration_of_nothing_is_found(self, tmp_path):
        records = made(plan(), level, 2)
        records["value"][0, 0] = 0.0
        with sonde.open(sealed(tmp_path, plan(), records).path) as tree:
            assert [finding.code for finding in validate(tree)] == ["store.duration"]

    def test_a_missing_variable_is_found(self, tmp_path):
        with sonde.open(sealed(tmp_path, plan(), made(plan(), level, 2)).path) as tree:
            tree["raw"] = tree["raw"].to_dataset().drop_vars("epoch")
            assert [(f.code, f.evidence["variable"]) for f in validate(tree)] == [("store.missing", "epoch")]

    def test_a_dataset_without_samples_is_none_of_this_room(self, tmp_path):
        with sonde.open(sealed(tmp_path, plan(), made(plan(), level, 2)).path) as tree:
            del tree["raw"]
            assert [finding.code for finding in validate(tree)] == ["store.missing"]


class TestOtherRooms:
    @pytest.mark.parametrize("room", ["net", "noise"])
    def test_what_reads_another_room_says_whose_file_it_is(self, tmp_path, room):
        from sonde.core import dataset
        from sonde.net import figures

        file = sealed(tmp_path, plan(), made(plan(), level, epochs=3)).path
        with sonde.open(file) as tree, pytest.raises(DataError) as told:
            figures.summary_of(tree) if room == "net" else dataset.summary_of(tree, room)
        assert told.value.code == f"{room}.not_{room}"
        assert f"{file} is store/1, not {room}/1" in told.value.what
        assert told.value.hint == f"sonde store show {file}"
