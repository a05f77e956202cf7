"""From the probe's block file to a dataset: nothing is lost, nothing is invented."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from probe_runs import K, decision, made, near, planned, sealed, visit, write

import sonde
from sonde.bus.analyse import _bases, analyse
from sonde.bus.cases import MOST_DATAGRAM, Case
from sonde.bus.schema import FACTS, validate
from sonde.bus.sealing import SCHEMA
from sonde.bus.values import Values
from sonde.bus.variants import read_variant, variant_of
from sonde.core import dataset, run_folder, seal
from sonde.core.errors import DataError
from sonde.core.status import CONVERGED, UNDECIDED

CYCLONE, FAST, SHM, RAW_UDP = (
    variant_of("cyclonedds", "udp4"),
    variant_of("fastdds", "udp4"),
    variant_of("fastdds", "shm"),
    variant_of("raw", "udp4"),
)
CASES = (Case("latency", 64), Case("fanout", 64, 8))
PLAN = planned(CASES, CYCLONE, FAST, SHM)


def level(variant, case, epoch, rng):
    base = 1e-5 * (1 + PLAN.variants.index(variant)) if variant in PLAN.variants else 1e-5
    if case.test == "latency":
        return {"rtt": near(rng, base), "publish": near(rng, base / 3), "lost": 0.0}
    return {"last": near(rng, 5 * base, 3), "publish": near(rng, base, 3)}


class TestSealing:
    def test_every_sample_is_where_it_belongs(self, tmp_path):
        records = made(PLAN, level, epochs=3)
        file = sealed(tmp_path, PLAN, records)
        assert file.complete
        assert not file.warnings
        with sonde.open(file.path) as tree:
            raw = tree["raw"].to_dataset().load()
            assert not validate(tree)
        assert not dataset.validate(file.path)
        samples = records[records["kind"] == 0]
        assert int(raw["n"].sum()) == int(samples["n"].sum())
        assert raw.sizes["series"] == 3 * 5
        for k in range(raw.sizes["series"]):
            v, c, q = (int(raw[f"series_{dim}"][k]) for dim in ("variant", "case", "quantity"))
            own = samples[(samples["variant"] == v) & (samples["case"] == c) & (samples["quantity"] == q)]
            n = int(raw["n"][k])
            assert n == int(own["n"].sum())
            told = np.concatenate([r["value"][: r["n"]] for r in own])
            assert np.array_equal(raw["value"][k, :n], told)
            assert np.array_equal(raw["epoch"][k, :n], np.repeat(own["epoch"], own["n"]))
            starts = np.concatenate([r["t0"] + r["offset"][: r["n"]] for r in own])
            assert np.allclose(raw["t_start"][k, :n], starts)
            assert np.isnan(raw["value"][k, n:]).all()
        assert list(raw["variant_name"].values) == ["cyclonedds/udp4", "fastdds/udp4", "fastdds/shm"]
        assert list(raw["transport"].values) == ["udp4", "udp4", "shared-memory"]
        assert list(raw["subscribers"].values) == [-1, 8]
        assert list(raw["test"].values) == ["latency", "fanout"]

    def test_what_the_machine_could_not_count_is_reported(self, tmp_path):
        with sonde.open(sealed(tmp_path, PLAN, made(PLAN, level, 2)).path) as tree:
            assert tree.attrs["cycles_per_s"] == 2.5e9
            assert "no counters" in tree.attrs["instructions"]
            assert list(tree.attrs["load"]) == [0.5, 0.4, 0.3]

    def test_over_how_many_programs_a_case_was_spread_is_reported(self, tmp_path):
        with sonde.open(sealed(tmp_path, PLAN, made(PLAN, level, 2)).path) as tree:
            assert list(tree.attrs["processes"]) == [-1, 8]

    def test_a_profile_is_what_the_probe_found_it_to_be(self, tmp_path):
        mine = read_variant("mine=fastdds,profile=bus.xml#shm")
        assert mine.transport == ""
        plan = planned(CASES, CYCLONE, mine, RAW_UDP, variant_of("raw", "shm"))
        file = sealed(
            tmp_path,
            plan,
            made(plan, lambda variant, case, epoch, rng: level(CYCLONE, case, epoch, rng), 6),
            transports=["udp4", "shared-memory", "udp4", "shared-memory"],
            discoveries=["simple", "server", "", ""],
        )
        with sonde.open(file.path) as tree:
            raw = tree["raw"].to_dataset().load()
            assert tree.attrs["transport"] == "udp4, shared-memory"
        told = Values(analyse(raw))
        _, way, *_ = told.ways
        assert (way.transport, way.discovery) == ("shared-memory", "server")
        assert way.options == "profile=bus.xml#shm,discovery=server"
        assert [other.discovery for other in told.ways[:1]] == ["simple"]
        # It is held against bare shared memory, as the other against bare UDP.
        _, raws = _bases({name: raw[name].values for name in FACTS})
        mine_rows = raw["series_variant"].values == 1
        assert set(raws[mine_rows]) == {3}
        assert set(raws[raw["series_variant"].values == 0]) == {2}

    def test_of_an_older_probe_the_plan_knows_the_transport(self, tmp_path):
        plan = planned(CASES, variant_of("cyclonedds", "multicast"))
        records = made(plan, lambda variant, case, epoch, rng: level(CYCLONE, case, epoch, rng), 2)
        file = sealed(tmp_path, plan, records, transports=["udp4"], discoveries=[])
        with sonde.open(file.path) as tree:
            assert list(tree["raw/transport"].values) == ["udp4-multicast"]

    def test_what_is_recorded_alongside_has_the_status_of_what_decides(self, tmp_path):
        with sonde.open(sealed(tmp_path, PLAN, made(PLAN, level, 2)).path) as tree:
            assert (tree["raw/status"].values == CONVERGED).all()

    def test_without_a_decision_a_series_is_undecided(self, tmp_path):
        records = made(PLAN, level, 2)
        records = records[~((records["kind"] == 1) & (records["variant"] == 0))]
        with sonde.open(sealed(tmp_path, PLAN, records).path) as tree:
            raw = tree["raw"].to_dataset().load()
        undecided = raw["status"].values == UNDECIDED
        assert np.array_equal(undecided, raw["series_variant"].values == 0)

    def test_a_case_without_data_makes_the_dataset_incomplete(self, tmp_path):
        def without(variant, case, epoch, rng):
            return {} if (variant, case) == (FAST, CASES[1]) else level(variant, case, epoch, rng)

        file = sealed(tmp_path, PLAN, made(PLAN, without, 2))
        assert not file.complete
        (warning,) = file.warnings
        assert warning.code == "bus.cells_without_data"
        assert "1 of 6 cells" in warning.evidence
        assert "fastdds/udp4, fanout:subscribers=8,size=64" in warning.evidence

    def test_a_test_that_a_variant_does_not_take_is_not_missed(self, tmp_path):
        few = planned(CASES, CYCLONE, replace(FAST, tests=("latency",)))
        assert sealed(tmp_path, few, made(few, level, 2)).complete

    def test_a_case_that_a_variant_does_not_take_is_not_missed(self, tmp_path):
        large = planned([*CASES, Case("latency", MOST_DATAGRAM + 1)], CYCLONE, RAW_UDP)

        def some(variant, case, epoch, rng):
            return level(CYCLONE, case, epoch, rng) if variant.takes(case) else {}

        assert sealed(tmp_path, large, made(large, some, 2)).complete

    def test_a_usual_variant_that_is_absent_has_no_row(self, tmp_path):
        records = made(PLAN, level, 2)
        records = records[records["variant"] != 1]
        file = sealed(tmp_path, PLAN, records, present=[True, False, True])
        assert file.complete
        with sonde.open(file.path) as tree:
            raw = tree["raw"].to_dataset().load()
            assert not validate(tree)
        assert list(raw["variant_name"].values) == ["cyclonedds/udp4", "fastdds/shm"]
        shm = raw["series_variant"].values == 1
        assert np.nanmedian(raw["value"].values[shm & (raw["series_quantity"].values == 0)]) == pytest.approx(
            3e-5, rel=0.01
        )

    def test_one_that_was_asked_for_is_missed(self, tmp_path):
        asked = planned(CASES, CYCLONE, replace(FAST, asked=True))
        records = made(asked, level, 2)
        records = records[records["variant"] == 0]
        assert not sealed(tmp_path, asked, records, present=[True, False]).complete

    def test_many_samples_come_in_pieces_and_in_order(self, tmp_path):
        one = planned(CASES[:1], CYCLONE)
        records = np.concatenate([visit(0, 0, "rtt", e, [1e-5 + e * 1e-9] * K) for e in range(3000)])
        with sonde.open(sealed(tmp_path, one, records).path) as tree:
            raw = tree["raw"].to_dataset().load()
        assert int(raw["n"][0]) == 3000 * K
        assert (np.diff(raw["epoch"][0].values) >= 0).all()
        assert np.allclose(raw["value"][0], 1e-5 + 1e-9 * np.repeat(np.arange(3000), K))

    def test_a_message_that_never_came_is_preserved_as_such(self, tmp_path):
        one = planned(CASES[1:], CYCLONE)
        records = np.concatenate([visit(0, 0, "last", e, [1e-4, np.nan, 1e-4]) for e in range(7)])
        with sonde.open(sealed(tmp_path, one, records).path) as tree:
            assert not validate(tree)
            assert int(tree["raw/n"][0]) == 21
            assert int(tree["summary/absent"][0]) == 7
            assert float(tree["summary/median"][0]) == pytest.approx(1e-4)

    def test_records_that_make_no_sense_are_left_out_and_counted(self, tmp_path):
        good = made(PLAN, level, 2)
        bad = np.concatenate(
            [
                visit(9, 0, "rtt", 0, 1.0),
                visit(0, 9, "rtt", 0, 1.0),
                visit(0, 0, "rtt", 0, 1.0),
                visit(0, 0, "rtt", 0, 1.0),
                decision(0, 0, "rtt", 77),
            ]
        )
        bad["n"][2] = K + 1
        bad["quantity"][3] = 999
        file = sealed(tmp_path, PLAN, np.concatenate([good, bad]))
        assert [w.code for w in file.warnings] == ["bus.bad_record"]
        assert file.warnings[0].evidence.startswith("5 records")
        with sonde.open(file.path) as tree:
            assert not validate(tree)
            assert float(tree["raw/value"].max()) < 1e-3


class TestRefusal:
    def test_no_file(self):
        with pytest.raises(DataError) as caught:
            SCHEMA.layout(PLAN.document(), [], "")
        assert caught.value.code == "bus.no_blocks"

    def test_another_plan(self, tmp_path):
        from sonde.core.blocks import BlockFile

        write(tmp_path / "rank-00000.blk", PLAN, made(PLAN, level, 1), cases=["latency:size=1", "x"])
        with pytest.raises(DataError) as caught:
            SCHEMA.layout(PLAN.document(), [BlockFile(tmp_path / "rank-00000.blk")], "")
        assert caught.value.code == "bus.plan_mismatch"

    def test_two_files(self, tmp_path):
        from sonde.core.blocks import BlockFile

        for name in ("rank-00000.blk", "rank-00001.blk"):
            write(tmp_path / name, PLAN, made(PLAN, level, 1))
        files = [BlockFile(path) for path in sorted(tmp_path.glob("*.blk"))]
        with pytest.raises(DataError) as caught:
            SCHEMA.layout(PLAN.document(), files, "")
        assert caught.value.code == "bus.plan_mismatch"

    def test_a_broken_dataset_is_noticed(self, tmp_path):
        with sonde.open(sealed(tmp_path, PLAN, made(PLAN, level, 2)).path) as tree:
            raw = tree["raw"].to_dataset().load()
        import xarray as xr

        broken = raw.copy(deep=True)
        broken["value"][0, 0] = -1.0
        broken["epoch"][1, 0] = -1
        codes = {f.code for f in validate(xr.DataTree.from_dict({"raw": broken}))}
        assert codes == {"bus.value", "bus.epoch"}
        lost = raw.drop_vars("series_case")
        assert {f.code for f in validate(xr.DataTree.from_dict({"raw": lost}))} == {"bus.missing"}
        wrong = raw.copy(deep=True)
        wrong["series_variant"][0] = 7
        assert {f.code for f in validate(xr.DataTree.from_dict({"raw": wrong}))} == {"bus.index"}


def test_a_killed_run_is_recovered(tmp_path):
    run_dir = tmp_path / "bus.run"
    run_folder.start(
        run_dir,
        room="bus",
        schema="bus/1",
        attrs={"command": "x", "seed": 1, "hostlist": "here"},
        plan=PLAN.document(),
    )
    write(run_dir / "rank-00000.blk", PLAN, made(PLAN, level, 2))
    (file,) = seal.seal(run_dir, tmp_path / "bus.nc", SCHEMA)
    with sonde.open(file.path) as tree:
        assert tree.attrs["stop_reason"] == "killed"
        assert int(tree["raw/n"].sum()) > 0
