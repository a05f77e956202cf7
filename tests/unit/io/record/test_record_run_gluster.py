"""Counters around a command, by a `gluster` that says what a test wants; the real one is in tests/system."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.io.record import run_gluster
from sonde.io.trace import servers

INFO = (
    "<volInfo><volumes><volume><name>vol</name><status>{status}</status><typeStr>Distribute</typeStr>"
    "<bricks><brick>a:/b<name>a:/b</name></brick></bricks></volume></volumes></volInfo>"
)
PROFILE = (
    "<volProfile><brick><brickName>a:/b</brickName><intervalStats><fopStats><fop><name>WRITE</name><hits>3</hits>"
    "<avgLatency>2000</avgLatency><minLatency>1000</minLatency><maxLatency>4000</maxLatency></fop></fopStats>"
    "<totalRead>0</totalRead><totalWrite>12288</totalWrite></intervalStats></brick></volProfile>"
)


def said(inside: str = "", why: str = "") -> str:
    return f"<cliOutput><opRet>{-1 if why else 0}</opRet><opErrstr>{why}</opErrstr>{inside}</cliOutput>"


@pytest.fixture
def gluster(tmp_path, monkeypatch):
    """A `gluster`: answers[words] is what it prints, or a script; `asked` is what it was asked for so far."""
    answers = {
        "volume info vol": said(INFO.format(status=1)),
        "volume list": said("<volList><volume>vol</volume></volList>"),
        "volume profile vol start": said(),
        "volume profile vol stop": said(),
        "volume profile vol info incremental": said(PROFILE),
        "volume profile vol info incremental peek": " 1.0  2000.00 ns  1000.00 ns  4000.00 ns  3  WRITE\n",
    }
    folder = tmp_path / "answers"
    folder.mkdir()
    program = tmp_path / "bin" / "gluster"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nshift\n[ "$1" != --xml ] || shift\necho "$*" >> {tmp_path}/asked\ncat "{folder}/$*"\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(run_gluster, "_path", lambda: f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    (tmp_path / "run").mkdir()

    class Gluster:
        run = tmp_path / "run"

        def says(self, words: str, text: str) -> None:
            answers[words] = text
            self.ready()

        def ready(self) -> None:
            for name, text in answers.items():
                (folder / name).write_text(text)

        @property
        def asked(self) -> list[str]:
            path = tmp_path / "asked"
            return path.read_text().splitlines() if path.exists() else []

    made = Gluster()
    made.ready()
    return made


def kept(folder: Path) -> dict[str, object]:
    return json.loads((folder / servers.FILE).read_text())


def test_profiling_is_on_meanwhile_and_off_after(gluster):
    with run_gluster.counting("vol", gluster.run) as told:
        assert gluster.asked[-2:] == ["volume profile vol start", "volume profile vol info incremental"]
        assert kept(gluster.run) == {"volume": "vol", "profiling": "ours", "servers": None}
    assert gluster.asked[-1] == "volume profile vol stop"
    assert told.warnings == []
    (brick,) = kept(gluster.run)["servers"]
    assert brick["operations"]["WRITE"] == pytest.approx([3, 2e-6, 1e-6, 4e-6])


def test_a_command_that_cannot_be_started_leaves_profiling_off(gluster):
    with pytest.raises(UsageError), run_gluster.counting("vol", gluster.run):
        raise UsageError("io.no_program", "cannot start it")
    assert gluster.asked[-1] == "volume profile vol stop"


def test_what_fails_after_the_command_is_a_warning_for_there_is_a_trace(gluster):
    with run_gluster.counting("vol", gluster.run) as told:
        gluster.says("volume profile vol info incremental", said(why="Locking failed on b"))
        gluster.says(
            "volume profile vol stop", "Connection failed. Please check if gluster daemon is operational."
        )
    assert [one.code for one in told.warnings] == ["io.no_server_counters", "io.gluster_left_on"]
    assert "Locking failed on b" in told.warnings[0].evidence
    assert kept(gluster.run)["servers"] == []


def test_a_gluster_that_hangs_costs_no_trace(gluster, monkeypatch):
    with run_gluster.counting("vol", gluster.run) as told:
        program = Path(os.environ["PATH"].partition(":")[0]) / "gluster"
        program.write_text("#!/bin/sh\nexec sleep 60\n")
        monkeypatch.setattr(run_gluster, "COMMAND_S", 0.2)
    assert [one.code for one in told.warnings] == ["io.no_server_counters", "io.gluster_left_on"]
    assert "no answer for 0.2 s" in told.warnings[1].evidence


@pytest.mark.parametrize(
    ("words", "text", "code", "part"),
    [
        ("volume info vol", said(why="Volume vol does not exist"), "io.no_volume", "volumes here: vol"),
        ("volume info vol", said(INFO.format(status=2)), "io.volume_stopped", "is not started"),
        ("volume info vol", "Connection failed.", "io.gluster_failed", "'gluster volume info vol' failed"),
        ("volume profile vol start", said(why="no"), "io.gluster_failed", "failed: no"),
        ("volume profile vol info incremental", said(why="no"), "io.gluster_failed", "failed: no"),
    ],
)
def test_what_cannot_be_is_an_error_before_the_command(gluster, words, text, code, part):
    gluster.says(words, text)
    with pytest.raises((UsageError, EnvironmentFailure)) as caught, run_gluster.counting("vol", gluster.run):
        pytest.fail("the command would run")
    assert caught.value.code == code
    assert part in caught.value.what
    started = "volume profile vol start" in gluster.asked and "start" not in words
    assert (gluster.asked[-1] == "volume profile vol stop") == started


def test_without_gluster_one_line_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(run_gluster, "_path", lambda: str(tmp_path))
    with pytest.raises(EnvironmentFailure) as caught, run_gluster.counting("vol", tmp_path):
        pytest.fail("the command would run")
    assert caught.value.code == "io.no_gluster"
