"""What a killed launcher leaves: noted while it runs, and removed only where it is surely the run's own."""

from __future__ import annotations

import mmap
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sonde.core.launch import remains


@pytest.fixture
def segment() -> Iterator[Path]:
    """A file in shared memory that nobody has mapped."""
    path = Path(remains.SHARED_MEMORY) / f"sonde-test-{uuid.uuid4().hex}"
    path.write_bytes(bytes(4096))
    yield path
    with suppress(FileNotFoundError):
        path.unlink()


@contextmanager
def mapped(path: Path) -> Iterator[None]:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        yield


def noted(run_dir: Path, began: float, **environment: str) -> str:
    remains.note(run_dir, os.getpid(), [os.getpid()], environment, began)
    path = remains.note_path(run_dir)
    return path.read_text() if path.exists() else ""


def note(run_dir: Path, lines: str) -> str:
    """The text of a note of a run's folder."""
    return f"{run_dir.stat().st_ino}\n{lines}"


def test_mapped_segments_are_noted_and_removed_once_nobody_has_them(tmp_path, segment):
    with mapped(segment):
        assert noted(tmp_path, time.time()) == note(tmp_path, f"{segment.stat().st_ino} {segment}\n")
    assert remains.clear(tmp_path) == [segment]
    assert not segment.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_segment_that_is_still_mapped_stays(tmp_path, segment):
    with mapped(segment):
        noted(tmp_path, time.time())
        assert remains.clear(tmp_path) == []
    assert segment.exists()


def test_a_segment_older_than_the_run_is_not_the_runs(tmp_path, segment):
    with mapped(segment):
        assert noted(tmp_path, time.time() + 60) == ""


def test_an_unlinked_segment_leaves_nothing_to_note(tmp_path, segment):
    with mapped(segment):
        segment.unlink()
        assert str(segment) not in noted(tmp_path, time.time())


def test_another_file_under_a_noted_name_stays(tmp_path, segment):
    remains.note_path(tmp_path).write_text(note(tmp_path, f"{segment.stat().st_ino + 1} {segment}\n"))
    assert remains.clear(tmp_path) == []
    assert segment.exists()


def test_a_note_that_names_anything_else_removes_nothing(tmp_path):
    letter = tmp_path / "letter"
    letter.write_text("dear aunt")
    dots = f"{remains.SHARED_MEMORY}..{letter}"
    inode = letter.stat().st_ino
    text = note(tmp_path, f"{inode} {letter}\n{inode} {dots}\nnonsense\n")
    remains.note_path(tmp_path).write_text(text)
    assert remains.clear(tmp_path) == []
    assert letter.exists()


def test_a_note_of_another_host_is_left_alone(tmp_path, segment):
    (tmp_path / "remains-elsewhere").write_text(note(tmp_path, f"{segment.stat().st_ino} {segment}\n"))
    assert remains.clear(tmp_path) == []
    assert segment.exists()


@pytest.mark.parametrize("name", ["ompi.host.0/pid.{pid}", "prte.host.{pid}.0", "prterun.host.{pid}.0"])
def test_session_folders_go_with_all_they_hold(tmp_path, name):
    run_dir, scratch = tmp_path / "a.run", tmp_path / "tmp"
    folder = scratch / name.format(pid=os.getpid())
    (folder / "0" / "1").mkdir(parents=True)
    other = scratch / name.format(pid=1)
    other.mkdir()
    run_dir.mkdir()
    assert str(folder) in noted(run_dir, time.time(), TMPDIR=str(scratch))
    assert folder in remains.clear(run_dir)
    assert not folder.exists()
    assert other.exists()


def test_a_note_in_a_copy_of_its_folder_removes_nothing(tmp_path, segment):
    first, second = tmp_path / "a.run", tmp_path / "b.run"
    first.mkdir()
    text = note(first, f"{segment.stat().st_ino} {segment}\n")
    remains.note_path(first).write_text(text)
    first.rename(tmp_path / "moved.run")  # is the same folder
    second.mkdir()
    remains.note_path(second).write_text(text)
    assert remains.clear(second) == []
    assert segment.exists()
    assert remains.clear(tmp_path / "moved.run") == [segment]


def test_no_note_nothing_to_do(tmp_path):
    assert remains.clear(tmp_path) == []
    assert remains.clear(tmp_path / "nowhere") == []
