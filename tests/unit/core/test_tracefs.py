"""Whose an instance of tracefs is, without a kernel: a folder that looks like it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sonde.core import tracefs


@pytest.fixture
def tracing(tmp_path) -> Path:
    (tmp_path / "osnoise").mkdir()
    (tmp_path / "instances").mkdir()
    (tmp_path / "osnoise" / "options").write_text("OSNOISE_WORKLOAD\n")
    return tmp_path


@pytest.fixture(autouse=True)
def as_the_kernel(monkeypatch):
    """The files of an instance go with their folder."""
    rmdir = Path.rmdir

    def empty(path: Path) -> None:
        for file in path.iterdir():
            file.unlink()
        rmdir(path)

    monkeypatch.setattr(Path, "rmdir", empty)


def option(tracing: Path) -> str:
    return (tracing / "osnoise" / "options").read_text().strip()


@pytest.mark.parametrize("mark", ["", "nobody", "1", "x_1", "1_x", "1_1-other", "-1_1"])
def test_what_is_no_mark_is_nobody_s_and_stays(mark):
    assert not tracefs.is_over(mark)


def test_a_mark_is_over_with_its_process():
    mine = tracefs.mark()
    assert not tracefs.is_over(mine)
    assert not tracefs.is_over(f"{mine}-osnoise-workload")
    assert tracefs.is_over(f"{os.getpid()}_1")  # of a process that had this one's number
    assert tracefs.is_over(f"{os.getpid()}_1-osnoise")


def test_the_option_is_set_again(tracing):
    made = tracefs.make_osnoise(tracing)
    assert (made.name, option(tracing)) == (
        f"sonde-{tracefs.mark()}-osnoise-workload",
        "NO_OSNOISE_WORKLOAD",
    )
    tracefs.remove_osnoise(tracing, made.name)
    assert (option(tracing), tracefs.instances(tracing)) == ("OSNOISE_WORKLOAD", [])


def test_an_option_that_was_off_stays_off(tracing):
    (tracing / "osnoise" / "options").write_text("NO_OSNOISE_WORKLOAD\n")
    made = tracefs.make_osnoise(tracing)
    assert made.name == f"sonde-{tracefs.mark()}-osnoise"
    tracefs.remove_osnoise(tracing, made.name)
    assert option(tracing) == "NO_OSNOISE_WORKLOAD"


def test_who_ends_last_sets_it_again(tracing):
    """The second one finds it off, and the first one is gone when it ends."""
    first = tracing / "instances" / "sonde-1_1-osnoise-workload"
    first.mkdir()
    (tracing / "osnoise" / "options").write_text("NO_OSNOISE_WORKLOAD\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracefs, "is_over", lambda mark: False)
        second = tracefs.make_osnoise(tracing)
        tracefs.remove_osnoise(tracing, first.name)
        assert (second.name.endswith("-workload"), option(tracing)) == (True, "NO_OSNOISE_WORKLOAD")
        tracefs.remove_osnoise(tracing, second.name)
    assert option(tracing) == "OSNOISE_WORKLOAD"


def test_an_instance_that_cannot_be_made_changes_nothing(tracing):
    (tracing / "osnoise" / "options").unlink()
    (tracing / "osnoise" / "options").mkdir()
    with pytest.raises(IsADirectoryError):
        tracefs.make_osnoise(tracing)
    assert tracefs.instances(tracing) == []
