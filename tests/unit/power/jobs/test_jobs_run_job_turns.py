"""Files in which jobs report their turns: read with bounds, and one user's hold up no other's."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from power_daemons import until
from sonde.power.jobs import run_job_turns
from sonde.power.jobs.run_job_turns import Progress, TurnReader


def progress(folder: Path, *texts: str) -> Progress:
    folder.mkdir()
    for k, text in enumerate(texts):
        (folder / f"progress.{k}").write_text(text)
    return Progress(folder, len(texts))


def lines(files: Progress) -> list[int]:
    return [one.lines for one in files.turns]


def test_what_was_added_is_read_once(tmp_path: Path):
    files = progress(tmp_path / "a", "0.1\n0.2\n")
    reader = TurnReader()
    reader.look([("ada", files)], 60)
    assert (lines(files), files.turns[0].progress) == ([2], 0.2)
    with (tmp_path / "a/progress.0").open("a") as file:
        file.write("0.3\n")
    for _ in range(2):
        reader.look([("ada", files)], 60)
        assert (lines(files), files.turns[0].progress) == ([3], 0.3)


def test_a_look_reads_so_much_of_a_job_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_job_turns, "MAX_OF_FILE", 20)
    monkeypatch.setattr(run_job_turns, "MAX_OF_JOB", 50)
    files = progress(tmp_path / "a", *["0.5\n" * 10] * 4)
    seen = []
    for _ in range(4):
        files.read()
        seen.append(sum(files._offsets))
    assert seen == [50, 100, 150, 160]
    assert lines(files) == [10] * 4


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "nothing"])
def test_what_is_no_file_says_nothing(tmp_path: Path, kind: str):
    files = progress(tmp_path / "a", "")
    path = tmp_path / "a/progress.0"
    path.unlink()
    (tmp_path / "other").write_text("0.5\n")
    if kind == "link":
        path.symlink_to(tmp_path / "other")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    files.read()
    assert lines(files) == [0]


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until it is set, files in folders called `hung` do not answer, as on FUSE whose server stands still."""
    answers, real = threading.Event(), os.open

    def slow(path, flags, *more, **named):
        if Path(path).parent.name.startswith("hung"):
            answers.wait(100)
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", slow)
    yield answers
    answers.set()


def test_a_file_that_hangs_holds_up_its_user_alone(tmp_path: Path, hung: threading.Event):
    slow, beside = progress(tmp_path / "hung", "0.5\n"), progress(tmp_path / "b", "0.5\n")
    other = progress(tmp_path / "c", "0.5\n")
    reader = TurnReader()
    everything = [("eve", slow), ("eve", beside), ("ada", other)]
    reader.look(everything, 0.0)
    until(lambda: reader.busy == {"eve"}, "ada's files are read")
    assert (lines(slow), lines(beside), lines(other)) == ([0], [0], [1])
    (tmp_path / "c/progress.0").write_text("0.5\n0.6\n")
    reader.look(everything, 60)  # what hung before is not waited for
    assert lines(other) == [2]
    assert threading.active_count() < 20
    hung.set()
    until(lambda: not reader.busy, "it answers")
    assert (lines(slow), lines(beside)) == ([1], [1])


def test_no_more_users_than_places_are_read_at_a_time(
    tmp_path: Path, hung: threading.Event, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_job_turns, "MAX_READERS", 2)
    slow = progress(tmp_path / "hung", "0.5\n")
    fast = {user: progress(tmp_path / user, "0.5\n") for user in ("ada", "bob", "dan")}
    reader = TurnReader()
    reader.look([("eve", slow)], 0.0)
    for _ in range(3):
        reader.look([("eve", slow), *fast.items()], 60)
    assert [lines(one) for one in fast.values()] == [[1]] * 3
    hung.set()
    until(lambda: not reader.busy, "it answers")
