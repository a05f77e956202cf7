"""sonde data recover: what a killed run left becomes a dataset, never over another one."""

from __future__ import annotations

import json
from pathlib import Path

import fakeroom
import numpy as np
import pytest
from fakeroom import make_run

from sonde import _core
from sonde.core import dataset, run_folder, seal
from sonde.core.errors import DataError, EnvironmentFailure, UsageError
from sonde.core.layout import SealedFile
from sonde.data.recover import default_target, recover


def test_a_killed_run_becomes_the_dataset_it_would_have_been(tmp_path):
    run = make_run(tmp_path / "lab-alpha.run", ended=False)
    victim = run / "rank-00002.blk"
    victim.write_bytes(victim.read_bytes()[:-100])
    (file,) = recover(run)
    assert file.path == tmp_path / "lab-alpha.nc"
    assert [warning.code for warning in file.warnings] == ["core.truncated_block", "core.run_was_killed"]
    assert not run.exists()
    assert dataset.validate(file.path) == []
    with dataset.open(file.path) as tree:
        assert (tree.attrs["complete"], tree.attrs["stop_reason"]) == (0, "killed")
        np.testing.assert_array_equal(tree["raw/delay"][0].values, fakeroom.expected(0, 2, 5))
        np.testing.assert_array_equal(tree["raw/delay"][2, :, :16].values, fakeroom.expected(2, 2, 4))


def test_a_run_that_had_ended_is_complete(tmp_path):
    (file,) = recover(make_run(tmp_path / "a.run"))
    assert file.complete


def test_it_goes_elsewhere_when_asked(tmp_path):
    (tmp_path / "other").mkdir()
    (file,) = recover(make_run(tmp_path / "a.run"), tmp_path / "other")
    assert file.path == tmp_path / "other" / "a.nc"
    (file,) = recover(make_run(tmp_path / "a.run"), tmp_path / "b.nc")
    assert file.path == tmp_path / "b.nc"


def test_another_runs_dataset_is_not_replaced(tmp_path):
    for there in (b"something else", None):
        run = make_run(tmp_path / "a.run", attrs={"run_id": "2"})
        if there is None:
            seal.seal(make_run(tmp_path / "c.run", attrs={"run_id": "1"}), tmp_path / "a.nc", fakeroom.SCHEMA)
        else:
            (tmp_path / "a.nc").write_bytes(there)
        before = (tmp_path / "a.nc").read_bytes()
        with pytest.raises(UsageError, match="exists already, and belongs to another run") as raised:
            recover(run)
        assert raised.value.hint == f"choose another name: sonde data recover {run} -o ELSEWHERE.nc"
        assert (tmp_path / "a.nc").read_bytes() == before
        recover(run, tmp_path / "b.nc")
        (tmp_path / "b.nc").unlink()


def test_its_own_dataset_is_made_again(tmp_path):
    run = make_run(tmp_path / "a.run", parts=("ping", "pong"))
    seal.seal(run, tmp_path / "a.nc", fakeroom.SCHEMA, keep=True)
    files = recover(run)
    assert [file.path.name for file in files] == ["a-ping.nc", "a-pong.nc"]


def test_a_folder_whose_removal_was_cut_short_is_finished(tmp_path):
    run = make_run(tmp_path / "a.run")
    seal.seal(run, tmp_path / "a.nc", fakeroom.SCHEMA, keep=True)
    (run / "sealed.json").write_text(json.dumps({"datasets": [str(tmp_path / "a.nc")]}))
    (run / "run.json").unlink()
    (run / "rank-00001.blk").unlink()
    before = (tmp_path / "a.nc").read_bytes()
    (file,) = recover(run)
    assert file == SealedFile(tmp_path / "a.nc", True, [])
    assert (tmp_path / "a.nc").read_bytes() == before
    assert not run.exists()


def test_a_run_of_a_room_that_is_not_here_stays(tmp_path):
    run = make_run(tmp_path / "a.run")
    said = json.loads((run / "run.json").read_text()) | {"room": "attic", "schema": "attic/1"}
    (run / "run.json").write_text(json.dumps(said))
    with pytest.raises(DataError, match="the room 'attic', which this Sonde does not have"):
        recover(run)
    assert run.exists()


def test_a_run_that_still_goes_on_is_left_alone(tmp_path):
    run = make_run(tmp_path / "a.run")
    with run_folder.hold(run), pytest.raises(EnvironmentFailure, match="is in use"):
        recover(run)
    assert not (tmp_path / "a.nc").exists()


def test_a_rank_that_still_writes_is_waited_for(tmp_path):
    run = make_run(tmp_path / "a.run")
    header = json.dumps({"fields": fakeroom.FIELDS, "rank": 2, "host": "n003"})
    writer = _core.BlockWriter(str(run / "rank-00002.blk"), header, fakeroom.RECORD.itemsize, 8)
    with pytest.raises(EnvironmentFailure, match=r"rank-00002\.blk is still being written") as raised:
        recover(run)
    assert raised.value.code == "core.busy"
    assert not (tmp_path / "a.nc").exists()
    writer.close()
    (file,) = recover(run)
    assert not file.complete  # rank 2 began its file anew and recorded nothing


def test_names_of_datasets_follow_their_folders(tmp_path):
    assert default_target(tmp_path / "a.run") == tmp_path / "a.nc"
    assert (
        default_target(tmp_path / "net-x-20261120T214757Z-3f9a.run").name == "net-x-20261120T214757Z-3f9a.nc"
    )
    assert default_target(tmp_path / "copied") == tmp_path / "copied.nc"
    assert default_target(Path("a.run")) == Path("a.nc")
