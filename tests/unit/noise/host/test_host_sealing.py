"""Datasets of kind `host`: from the files of sonde-detour to /raw and /summary."""

from __future__ import annotations

import numpy as np
import pytest
from host_blocks import SEEN, cpu_files
from noise_blocks import write_blocks

import sonde
from sonde.core import run_folder, seal
from sonde.core.errors import DataError
from sonde.noise.kinds import SCHEMA


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "a.run"
    run_folder.start(folder, room="noise", schema="noise/1", attrs={}, plan={"kind": "host", "cpus": [0, 3]})
    return folder


def sealed(run, tmp_path):
    return seal.seal(run, tmp_path / "a.nc", SCHEMA, attrs={"stop_reason": "budget", "processes": "[]"})[0]


def test_cpus_keep_their_numbers_and_their_own_lengths(run, tmp_path):
    cpu_files(run, 3, 7)
    cpu_files(run, 0, 4)
    file = sealed(run, tmp_path)
    assert file.complete
    with sonde.open(file.path) as tree:
        raw, summary = tree["raw"].to_dataset().load(), tree["summary"].to_dataset().load()
        assert tree.attrs["kind"] == "host"
    assert raw["cpu"].values.tolist() == [0, 3]
    assert raw["detour_n"].values.tolist() == [4, 7]
    assert np.isnan(raw["detour_length"].values[0, 4:]).all()
    assert raw["fwq_n"].values.tolist() == [0, 0]
    assert raw["window_n"].values.tolist() == [2, 2]
    assert raw["counters"].sel(counter="soft TIMER").values.tolist() == [[1, 3], [1, 3]]
    assert summary["rate"].values == pytest.approx([20, 35])
    assert float(summary["gap_share"][0]) == pytest.approx(1 / 3)


def test_counters_that_only_one_cpu_has_are_zero_on_the_other(run, tmp_path):
    cpu_files(run, 0, 1, ("LOC",))
    cpu_files(run, 3, 1, ("NMI", "LOC"))
    with sonde.open(sealed(run, tmp_path).path) as tree:
        counters = tree["raw"]["counters"].load()
    assert counters.sel(counter="LOC").values.tolist() == [[0, 1], [1, 3]]
    assert counters.sel(counter="NMI").values.tolist() == [[0, 0], [0, 2]]


def test_a_cpu_without_windows_makes_it_incomplete(run, tmp_path):
    cpu_files(run, 0, 2)
    file = sealed(run, tmp_path)
    assert not file.complete
    assert [warning.code for warning in file.warnings] == ["noise.cpu_silent"]
    assert "CPU 3" in file.warnings[0].evidence


def test_files_without_records_are_no_error(run, tmp_path):
    cpu_files(run, 0, 0)
    cpu_files(run, 3, 0)
    with sonde.open(sealed(run, tmp_path).path) as tree:
        assert tree["summary"]["share"].values.tolist() == [0, 0]


def test_foreign_block_files_are_refused(run, tmp_path):
    write_blocks(run / "x.blk", np.zeros(1, SEEN), {"kind": "source"})
    with pytest.raises(DataError, match="not written by sonde-detour"):
        sealed(run, tmp_path)
