"""What a trace says of descriptors that no traced call opened."""

from __future__ import annotations

import pytest
import traces
from traces import OPEN, PREAD, PWRITE, call, note

import sonde
from sonde.io.trace import not_seen
from sonde.io.trace.events import ASKED, CLOSED
from sonde.io.trace.schema import OPENED_UNSEEN, UNSEEN

SOCKET = 4
FUNCTIONS = traces.FUNCTIONS + "4\t4\tsocket\tlibc.so\n"
PLAN = {"rules": [*traces.RULES, [1, 0, 0, None, 0, 1, 1]]}


@pytest.fixture
def run(tmp_path):
    return traces.run(tmp_path / "a.run", PLAN)


def add(run, records, given=""):
    name = traces.add(run, records, FUNCTIONS)
    (run / f"{name}.descriptors").write_text(given)


def files(run):
    """The file of each call, and what is said."""
    with sonde.open(traces.sealed(run)) as tree:
        raw, summary = tree["raw"].to_dataset().load(), tree["summary"].to_dataset().load()
    paths = raw["path"].values.tolist()
    found = [paths[k] if k >= 0 else k for k in raw["file_index"].values.tolist()]
    return found, not_seen.warnings(summary)


def test_a_descriptor_of_which_nothing_is_known_is_a_file_of_its_own(run):
    add(run, [call(PWRITE, 10, 20, file=9, size=100), call(PREAD, 30, 40, file=9, size=28)])
    found, said = files(run)
    assert found == [OPENED_UNSEEN] * 2
    (one,) = said
    assert (one.code, one.evidence.split(" through")[0]) == ("io.not_seen", "2 calls moved 128 B")


def test_failed_calls_on_what_is_no_descriptor_are_no_file(run):
    add(run, [call(PREAD, 10, 20, file=9, size=0, flags=1)])
    assert files(run) == ([UNSEEN], [])


def test_a_socket_is_no_file(run):
    add(run, [call(SOCKET, 10, 20, file=9), call(PWRITE, 30, 40, file=9, size=100)])
    assert files(run) == ([UNSEEN, UNSEEN], [])


def test_what_the_program_began_with_is_known(run):
    add(run, [call(PWRITE, 10, 20, file=fd, size=1) for fd in (7, 8)], "7\t/tmp/a%20file\n8\t\n")
    assert files(run) == (["/tmp/a file", UNSEEN], [])


def test_a_descriptor_that_a_system_call_closed_is_not_known_any_more(run):
    opened = [note(10, 9, "a"), call(OPEN, 10, 20, file=9)]
    closed = call(CLOSED, 40, 40, file=9)
    writes = [call(PWRITE, begin, begin + 5, file=9, size=1) for begin in (30, 50)]
    add(run, [*opened, writes[0], closed, writes[1]])
    found, _ = files(run)
    assert [found[1], found[3]] == ["a", OPENED_UNSEEN]


def test_bytes_that_were_asked_for_are_said_and_have_no_rate(run):
    opened = [note(10, 9, "a"), call(OPEN, 10, 20, file=9)]
    add(run, [*opened, call(PREAD, 30, 40, file=9, size=100, flags=ASKED), call(PREAD, 50, 60, file=9)])
    with sonde.open(traces.sealed(run)) as tree:
        summary = tree["summary"].to_dataset().load()
    assert [one.evidence.split(":")[0] for one in not_seen.warnings(summary)] == [
        "the bytes of 1 call are unknown, and count as none",
        "the bytes of 1 call are those that were asked for, because what came is not known when the call ends",
    ]
    posix = summary["layer_name"].values.tolist().index("posix")
    assert [not_seen.bytes_known(summary, posix, direction) for direction in (0, 1)] == [False, True]


def test_one_name_in_two_folders_is_two_files(run):
    def opening(begin, whole):
        named = note(begin, 9, f"x\0{whole}")
        return [
            named,
            call(OPEN, begin, begin + 5, file=9),
            call(PWRITE, begin + 6, begin + 7, file=9, size=1),
        ]

    add(run, [*opening(10, "/a/x"), *opening(20, "/b/x"), *opening(30, "/a/x")])
    found, _ = files(run)
    assert found == ["/a/x"] * 2 + ["/b/x"] * 2 + ["/a/x"] * 2
