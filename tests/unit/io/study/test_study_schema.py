"""What a study's runs leave becomes /raw: a row a run, a column a function, whatever the order and the end."""

from __future__ import annotations

import numpy as np
import pytest
import traces

import sonde
import studies
from sonde.core.errors import DataError
from sonde.data.cli import group as data
from sonde.io.kinds import SCHEMA

MIB = 1 << 20


def raw_of(path):
    with sonde.open(path) as tree:
        return tree["raw"].to_dataset().load()


def test_a_row_a_run_and_a_column_a_function(tmp_path):
    raw = raw_of(studies.two_stacks(tmp_path, rounds=2))
    assert raw.sizes == {"cell": 2, "run": 8, "function": 4, "layer": 6, "limit": 4}
    assert raw["cell_stack"].values.tolist() == ["romio321", "ompio"]
    assert raw["cell_size"].values.tolist() == [4 * MIB] * 2
    names = raw["function_name"].values.tolist()
    assert raw["layer_name"].values[raw["function_layer"].values].tolist() == [
        "mpiio",
        "romio",
        "ompio",
        "posix",
    ]
    run = int(np.flatnonzero((raw["run_cell"].values == 1) & (raw["run_traced"].values == 1))[0])
    assert raw["calls"].values[run].tolist() == [8, 0, 8, 8]
    assert raw["self_time"].values[run].tolist() == [0.002, 0.0, 0.03, 0.2]
    assert raw["time"].values[run, names.index("pwrite")] == pytest.approx(0.4)
    assert raw["bytes"].values[run, names.index("pwrite")] == 8 * MIB


def test_times_of_an_untraced_run_are_not_known(tmp_path):
    raw = raw_of(studies.two_stacks(tmp_path, rounds=1))
    untraced = raw["run_traced"].values == 0
    assert np.isnan(raw["self_time"].values[untraced]).all()
    assert (raw["calls"].values[untraced] == 0).all()
    assert np.isfinite(raw["run_io"].values).all()


def test_what_a_benchmark_did_not_tell_is_not_known(tmp_path):
    made = studies.Folder(tmp_path / "a.run", studies.plan()).begin()
    made.run(0, 0, write=None)
    made.run(1, 0)
    raw = raw_of(made.sealed(stop_reason="repetitions"))
    assert np.isnan(raw["run_write"].values).tolist() == [True, False]


def test_what_a_killed_study_left_is_saved(tmp_path):
    made = studies.Folder(tmp_path / "a.run", studies.plan()).begin()
    made.run(0, 0)
    (made.path / "trace.run").mkdir()  # the run under way
    (made.path / "trace.run" / "n1-100-ab-0.tail").write_text("x")
    path = made.sealed()
    assert not made.path.exists()
    with sonde.open(path) as tree:
        assert (tree.attrs["kind"], tree.attrs["stop_reason"], tree.attrs["complete"]) == (
            "study",
            "killed",
            0,
        )
        codes = tree["warnings"]["code"].values.tolist()
        assert tree["summary"]["runs"].values.tolist() == [1, 0]
    assert {"core.run_was_killed", "io.cell_without_data"} <= set(codes)


def test_a_cell_that_was_only_traced_has_no_rate_and_makes_it_incomplete(tmp_path):
    made = studies.Folder(tmp_path / "a.run", studies.plan()).begin()
    made.both(0, 0)
    made.run(1, 0, traced=True)
    with sonde.open(made.sealed(stop_reason="budget")) as tree:
        assert tree.attrs["complete"] == 0
        (evidence,) = tree["warnings"]["evidence"].values.tolist()
    assert "no rate" in evidence
    assert "ompio" in evidence


def test_a_cell_whose_runs_all_failed_makes_it_incomplete(tmp_path):
    made = studies.Folder(tmp_path / "a.run", studies.plan()).begin()
    made.run(0, 0)
    made.run(1, 0, status=1, write=None, read=None, io_s=None)
    with sonde.open(made.sealed(stop_reason="repetitions")) as tree:
        assert tree.attrs["complete"] == 0
        evidence = tree["warnings"]["evidence"].values.tolist()
    assert any("1 of 2 cells have no rate" in text and "ompio" in text for text in evidence)


def test_a_traces_file_among_a_studys_is_refused(tmp_path):
    made = studies.Folder(tmp_path / "a.run", studies.plan()).begin()
    traces.add(made.path, [traces.call(0, 1, 2)])
    with pytest.raises(DataError) as caught:
        made.sealed(stop_reason="repetitions")
    assert caught.value.code == "io.not_study_blocks"


def test_a_study_is_valid_and_one_that_lacks_a_table_is_not(tmp_path):
    path = studies.two_stacks(tmp_path, rounds=1)
    with sonde.open(path) as tree:
        assert SCHEMA.validate(tree) == []
        lacking = tree.copy()
        lacking["raw"] = lacking["raw"].to_dataset().drop_vars("run_write")
        (found,) = SCHEMA.validate(lacking)
    assert "run_write" in found.text


def test_a_study_as_a_table_is_that_of_its_cells(tmp_path):
    path = studies.two_stacks(tmp_path, rounds=1)
    with sonde.open(path) as tree:
        assert list(SCHEMA.leading_dims(tree)) == [("cell", "direction")]
    assert "convert" in data.commands
