"""Datasets of kind `source`: what layout, place, analyse and the words make of bursts that are known."""

from __future__ import annotations

import numpy as np
import pytest
from source_blocks import bursts, write

import sonde
from sonde.core import run_folder, seal
from sonde.core.errors import DataError
from sonde.noise.kinds import SCHEMA
from sonde.noise.source import verdict as source
from sonde.noise.source.schema import analyse


@pytest.fixture
def sealed(tmp_path):
    def make(files: dict[str, tuple[np.ndarray, dict]], hosts=("n1",)):
        run = tmp_path / "a.run"
        run_folder.start(
            run,
            room="noise",
            schema="noise/1",
            attrs={"seed": 1},
            plan={"kind": "source", "hosts": list(hosts)},
        )
        for name, (records, header) in files.items():
            write(run / name, records, **header)
        return seal.seal(run, tmp_path / "a.nc", SCHEMA, attrs={"stop_reason": "budget"})[0]

    return make


def summary_of(path):
    with sonde.open(path) as tree:
        return tree["summary"].to_dataset().load()


def test_a_source_that_did_as_asked(sealed):
    file = sealed({"source-here.blk": (bursts(30), {})})
    assert file.complete
    summary = summary_of(file.path)
    assert float(summary["duty_cpu"][0]) == pytest.approx(0.01)
    assert float(summary["duty_wall"][0]) == pytest.approx(0.0099)
    assert float(summary["late_quantile"].sel(quantile=0.5)[0]) == pytest.approx(20e-6, rel=1e-3)
    assert source.sentence(summary) == "requested 1 %, used 1 % of CPU time in 30 bursts; wall 0.99 %"
    assert source.warnings(summary) == []


def test_wall_time_beyond_cpu_time_names_its_cause(sealed):
    summary = summary_of(sealed({"a.blk": (bursts(30, wall=0.016), {})}).path)
    assert source.sentence(summary).endswith("wall 1.6 %: another program used the same core")


def test_a_few_microseconds_are_no_such_cause(sealed):
    few = bursts(30, cpu=1.2e-4, wall=3e-5)
    summary = summary_of(sealed({"a.blk": (few, {"level": 0.0001})}).path)
    assert "something else" not in source.sentence(summary)


def test_skipped_points_count_in_the_time_and_are_reported(sealed):
    gap = bursts(10)
    gap["planned"][5:] += 10
    gap["begin"][5:] += 10
    gap["skipped"][0], gap["skipped"][5] = 4, 10
    summary = summary_of(sealed({"a.blk": (gap, {})}).path)
    assert int(summary["skipped"][0]) == 10  # before the first burst nothing was promised
    assert float(summary["duty_cpu"][0]) == pytest.approx(0.005)
    assert "10 points of the grid skipped" in source.sentence(summary)
    (warning,) = source.warnings(summary)
    assert warning.code == "noise.duty_off"
    assert "skipped 10 points" in warning.evidence


def test_truncated_bursts_are_named_where_they_cost_duty(sealed):
    cut = bursts(10, cpu=0.005)
    cut["truncated"] = 1
    summary = summary_of(sealed({"a.blk": (cut, {})}).path)
    (warning,) = source.warnings(summary)
    assert "10 bursts did not end within their period" in warning.evidence


def test_several_hosts_of_different_length(sealed):
    file = sealed(
        {
            "source-n1.blk": (bursts(3), {"host": "n1"}),
            "source-n2.blk": (bursts(5, cpu=0.011), {"host": "n2", "core": 1}),
        },
        hosts=("n1", "n2"),
    )
    summary = summary_of(file.path)
    assert list(summary["host"].values) == ["n1", "n2"]
    assert summary["bursts"].values.tolist() == [3, 5]
    assert source.sentence(summary).startswith(
        "2 hosts: requested 1 %, used 1 to 1.1 % of CPU time in 8 bursts"
    )
    with sonde.open(file.path) as tree:
        raw = tree["raw"].to_dataset().load()
        assert np.isnan(raw["cpu"].values[0, 3:]).all()
        assert raw["core"].values.tolist() == [-1, 1]
    assert [row[0] for row in source.tables(summary)[0].rows] == ["n1", "n2"]
    assert [one["bursts"] for one in source.values(summary)["sources"]] == [3, 5]


def test_a_host_without_its_file_is_named(sealed):
    file = sealed({"source-n1.blk": (bursts(3), {})}, hosts=("n1", "n2"))
    assert not file.complete
    assert [w.code for w in file.warnings] == ["noise.source_silent"]
    assert "n2" in file.warnings[0].evidence


def test_a_source_without_bursts_is_no_division_by_zero(sealed):
    file = sealed({"a.blk": (bursts(0), {})})
    summary = summary_of(file.path)
    assert int(summary["bursts"][0]) == 0
    assert np.isnan(float(summary["duty_cpu"][0]))
    assert source.sentence(summary) == "no burst was recorded"
    assert source.warnings(summary) == []
    assert source.values(summary)["sources"][0]["duty_cpu"] is None


def test_foreign_block_files_are_refused(sealed):
    with pytest.raises(DataError, match="not written by a noise source"):
        sealed({"a.blk": (bursts(2), {"kind": "host"})})


def test_analyse_again_gives_the_same(sealed):
    path = sealed({"a.blk": (bursts(4), {})}).path
    with sonde.open(path) as tree:
        raw, summary = tree["raw"].to_dataset().load(), tree["summary"].to_dataset().load()
    again = analyse(raw)
    for name in summary.data_vars:
        np.testing.assert_array_equal(again[name].values, summary[name].values)
