"""What is known of a process by its number, and signals to those that were found."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from sonde.core import processes
from sonde.core.processes import Carriers, began, carriers, of_user, signal_found, signal_one, stat_fields

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


@pytest.fixture
def proc(tmp_path):
    """A stand-in for /proc: processes 11 to 15, of which 13 is read for ever."""
    for pid, environ in (
        (11, b"A=1\0MARK=x\0"),
        (12, b"MARK=y\0"),
        (13, None),
        (14, b"MARK=x.2\0"),
        (15, b"AMARK=x\0"),
    ):
        (tmp_path / str(pid)).mkdir()
        uid = 1000 if pid < 14 else 0
        (tmp_path / str(pid) / "status").write_text(
            f"Name:\tUid:\nPid:\t{pid}\nUid:\t{uid}\t0\t0\t0\nGid:\t7\n"
        )
        if environ is None:
            os.mkfifo(tmp_path / str(pid) / "environ")  # to open it waits for a writer, who never comes
        else:
            (tmp_path / str(pid) / "environ").write_bytes(environ)
    (tmp_path / "self").mkdir()
    return tmp_path


def test_processes_of_a_user_are_those_that_the_user_started(proc):
    assert sorted(of_user(1000, proc)) == [11, 12, 13]
    assert sorted(of_user(0, proc)) == [14, 15]
    assert of_user(65534, proc) == []
    assert os.getpid() in of_user(os.getuid())


def test_an_environment_that_is_never_read_to_its_end_holds_up_nobody(proc, monkeypatch):
    monkeypatch.setattr(processes, "STILL_S", 0.2)
    assert carriers("MARK=x", [11, 12, 13, 14, 15, 16], proc) == Carriers([11, 14], [13])


def test_many_of_them_end_the_search_and_are_counted(proc, monkeypatch):
    monkeypatch.setattr(processes, "STILL_S", 0.2)
    monkeypatch.setattr(processes, "ALL_S", 0.0)
    assert carriers("MARK=x", [13, 11], proc) == Carriers([], [13, 11])


def test_a_process_with_an_entry_is_found(child):
    marked = subprocess.Popen(["sleep", "1000"], env={"SONDE_TEST_MARK": "here"})
    try:
        assert carriers("SONDE_TEST_MARK=h", [child.pid, marked.pid, ENDED]).found == [marked.pid]
    finally:
        marked.kill()
        marked.wait()
