"""The folder of a run: what it says about itself, and what is removed from it."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from fakeroom import make_run

from sonde.core import run_folder
from sonde.core.errors import EnvironmentFailure, Warning
from sonde.core.owned_files import Folder


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_names_of_datasets():
    when = datetime(2026, 11, 20, 21, 47, 57, tzinfo=UTC)
    name = run_folder.dataset_name("net", "alpha", when)
    assert name.startswith("net-alpha-20261120T214757Z-")
    assert len(name) == len("net-alpha-20261120T214757Z-3f9a.nc")
    assert run_folder.dataset_name("net", "my cluster/7", when).startswith("net-my_cluster_7-2026")
    assert run_folder.dataset_name("net", "../..", when).startswith("net-local-2026")
    assert run_folder.dataset_name("net", "", when).startswith("net-local-2026")
    assert len({run_folder.dataset_name("net", "a", when) for _ in range(50)}) > 40
    assert run_folder.folder_of("here/a.nc") == Path("here/a.run")


def test_a_run_is_not_started_in_a_folder_that_is_there(tmp_path):
    run = make_run(tmp_path / "a.run")
    with pytest.raises(EnvironmentFailure, match="exists already") as raised:
        make_run(run)
    assert f"sonde data recover {run}" in raised.value.hint
    with pytest.raises(EnvironmentFailure) as raised:
        make_run(tmp_path / "none" / "a.run")
    assert raised.value.code == "core.cannot_write"


def test_what_a_run_says_about_itself_comes_back(tmp_path):
    hot = Warning("lab.hot", "it was hot", "cool it")
    run_folder.start(
        tmp_path / "a.run",
        room="lab",
        schema="lab/1",
        attrs={"seed": np.int64(3)},
        plan={"sizes": np.arange(3)},
        env={"A": "b"},
        warnings=[hot],
    )
    run = run_folder.read(tmp_path / "a.run")
    assert run == run_folder.Run("lab", "lab/1", {"seed": 3}, {"sizes": [0, 1, 2]}, {"A": "b"}, [hot])
    run_folder.end(tmp_path / "a.run", {"stop_reason": "budget"}, [hot])
    run = run_folder.read(tmp_path / "a.run")
    assert run.attrs == {"seed": 3, "stop_reason": "budget"}
    assert run.warnings == [hot, hot]
    assert listing(tmp_path / "a.run") == ["run.json"]


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (errno.ENOSPC, "core.disk_full", "no space left"),
        (errno.EDQUOT, "core.disk_full", "your quota is used up"),
        (errno.EACCES, "core.cannot_write", "you have no permission to write there"),
        (errno.EROFS, "core.cannot_write", "the file system there is read-only"),
        (errno.ENOENT, "core.cannot_write", "the folder does not exist, or nothing can be created in it"),
        (errno.EBUSY, "core.cannot_write", "device or resource busy"),
    ],
)
def test_a_run_folder_that_cannot_be_made_tells_the_true_reason(tmp_path, monkeypatch, number, code, said):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(EnvironmentFailure) as raised:
        run_folder.start(tmp_path / "a.run", room="lab", schema="lab/1", attrs={}, plan={})
    assert (raised.value.code, raised.value.what) == (code, f"cannot write {tmp_path / 'a.run'}: {said}")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_file_system_without_blocks_is_not_called_full():
    with pytest.raises(EnvironmentFailure, match=r"nothing can be created in it|permission") as raised:
        run_folder.start("/proc/a.run", room="lab", schema="lab/1", attrs={}, plan={})
    assert raised.value.code == "core.cannot_write"


CREATED = (
    "log",
    "rank-00000.blk",
    "remains-n1",
    "n1-100-ab-0.tail",
    "hints",
    "run-00001.part",
    "trace.run/n1-100-ab-0.functions",
    "program-00001/log",
    "server-0/sonde-store",
    "server-0/data.mdb",
    "server-0/objects/3f/k+name%20of",
    "server-0/objects/a-long-name~/its-end",
    "server-1/db/000007.sst",
    "server-1/db/LOG.old.1",
)


FOREIGN = (
    "notes.txt",
    "my.run/log",
    "program-1/log",
    "trace.run/notes.txt",
    "server-0/n1-100-ab-0.tail",
    "server-0/log",
    "server-0/thesis/k+name",
    "server-0/objects/name",
    "server-0/objects/a-long-name~/deeper/name",
)


def test_only_files_that_sonde_creates_are_removed(tmp_path):
    run = make_run(tmp_path / "a.run")
    for name in (*CREATED, *FOREIGN):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("x")
    with Folder(run) as files:
        left = run_folder.clear(files)
    assert sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()) == sorted(FOREIGN)
    assert {"notes.txt", "my.run/", "trace.run/notes.txt", "server-0/thesis/"} <= set(left)
    assert not (run / "server-1").exists()
    assert not (run / "program-00001").exists()


def test_a_folder_with_only_files_of_sonde_is_forgotten(tmp_path):
    run = make_run(tmp_path / "a.run")
    for name in CREATED:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("x")
    run_folder.forget(run)
    assert listing(tmp_path) == []
