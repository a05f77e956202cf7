"""How lines of several nodes are printed, and what commands are told when somebody interrupts."""

from __future__ import annotations

import os
import signal

import pytest

from sonde.cluster import run_exec
from sonde.cluster.run_exec import Ending, _Lines, _status


@pytest.fixture
def printed(tmp_path):
    """A descriptor to print to, and what was printed."""
    path = tmp_path / "printed"
    into = os.open(path, os.O_WRONLY | os.O_CREAT)
    yield into, path.read_text
    os.close(into)


def test_every_line_has_its_hosts_name(printed):
    into, read = printed
    lines = _Lines(into, b"n0 | ")
    for piece in (b"on", b"e\ntwo\n", b"\nthree", b""):
        lines.take(piece)
    assert read() == "n0 | one\nn0 | two\nn0 | \nn0 | three\n"


def test_a_line_without_end_is_printed_in_pieces(printed):
    into, read = printed
    lines = _Lines(into, b"")
    lines.take(b"x" * (run_exec._LINE_BYTES + 1))
    assert read() == "x" * (run_exec._LINE_BYTES + 1) + "\n"


@pytest.mark.parametrize(("code", "status"), [(0, 0), (7, 7), (-2, 130), (-9, 137)])
def test_a_status_is_reported_as_a_shell_does(code, status):
    assert _status(code) == status


class Told:
    """A process that remembers its signals."""

    def __init__(self) -> None:
        self.signals: list[int] = []

    def send_signal(self, number: int) -> None:
        self.signals.append(number)


@pytest.mark.parametrize(
    ("came", "told"),
    [
        ([signal.SIGINT], [signal.SIGINT]),
        ([signal.SIGINT] * 2, [signal.SIGINT, signal.SIGTERM]),
        ([signal.SIGINT] * 4, [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGKILL]),
        ([signal.SIGTERM], [signal.SIGTERM]),
        ([signal.SIGTERM] * 2, [signal.SIGTERM, signal.SIGKILL]),
        ([signal.SIGHUP, signal.SIGTERM], [signal.SIGHUP, signal.SIGKILL]),
    ],
)
def test_each_next_signal_is_reported_more_firmly(came, told):
    said: list[str] = []
    ending, process = Ending(said.append), Told()
    for number in came:
        ending.note(number, None)
        ending.pass_on([process])
    assert process.signals == told
    assert len(said) == (came[0] == signal.SIGINT)


def test_a_command_that_does_not_end_by_sigterm_is_killed_after_the_grace(monkeypatch):
    monkeypatch.setattr(run_exec, "_GRACE_S", -1.0)
    ending, process = Ending(lambda text: None), Told()
    ending.pass_on([process])
    assert process.signals == []
    ending.note(signal.SIGTERM, None)
    ending.pass_on([process])
    assert process.signals == [signal.SIGTERM, signal.SIGKILL]
