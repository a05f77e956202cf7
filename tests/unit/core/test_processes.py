"""What is known of a process by its number, and signals to those that were found."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from sonde.core import processes
from sonde.core.processes import began, signal_found, signal_one, stat_fields

ENDED = 2**22 + 1  # above the largest number that Linux gives


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "1000"])
    yield child
    child.kill()
    child.wait()


def test_a_process_is_known_by_when_it_began(child):
    assert began(child.pid) >= began(os.getpid()) > 0
    assert stat_fields(child.pid)[1] == str(os.getpid())
    assert (began(ENDED), stat_fields(ENDED)) == (0, [])


def test_one_that_has_ended_and_was_not_waited_for_is_gone(child):
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert stat_fields(child.pid)[0] == "Z"
    assert began(child.pid) == 0


def without_pidfds(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "none in Python":
        monkeypatch.delattr(os, "pidfd_open")
    elif how == "none in the kernel":
        monkeypatch.setattr(os, "pidfd_open", lambda pid: (_ for _ in ()).throw(OSError(38, "no such call")))


@pytest.mark.parametrize("how", ["pidfds", "none in Python", "none in the kernel"])
class TestSignals:
    def test_only_what_a_second_look_finds_is_signalled(self, child, monkeypatch, how):
        without_pidfds(monkeypatch, how)
        signal_found([child.pid, ENDED], signal.SIGKILL, list)
        signal_one(child.pid, signal.SIGKILL, lambda: False)
        assert child.poll() is None
        signal_found([child.pid, ENDED], signal.SIGKILL, lambda: [child.pid, ENDED])
        assert child.wait(30) == -signal.SIGKILL
        signal_one(child.pid, signal.SIGKILL, lambda: True)  # there is none any more: nothing happens

    def test_nothing_is_looked_for_where_there_is_nothing_to_signal(self, monkeypatch, how):
        without_pidfds(monkeypatch, how)
        signal_found([], signal.SIGKILL, lambda: pytest.fail("it looked"))

    def test_more_than_are_held_at_a_time_are_signalled_in_turns(self, monkeypatch, how):
        without_pidfds(monkeypatch, how)
        monkeypatch.setattr(processes, "_BATCH", 2)
        before = len(os.listdir("/proc/self/fd"))
        children = [subprocess.Popen(["sleep", "1000"]) for _ in range(5)]
        signal_found([one.pid for one in children], signal.SIGKILL, lambda: [one.pid for one in children])
        assert {one.wait(30) for one in children} == {-signal.SIGKILL}
        assert len(os.listdir("/proc/self/fd")) == before
