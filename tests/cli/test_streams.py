"""Standard streams that are closed, full, without a reader, or slow; the current folder removed."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import fork_server
from fork_server import PROGRAM
from sonde.cli import streams
from sonde_shell import Ran, environment, finish

CLOSED, FULL, UNREAD = "", "/dev/full", "|"
DONE, USAGE, ENVIRONMENT = 0, 2, 3
MODES = ("net", "modes", "--json")
MISSING = ("data", "validate", "none.nc")
WRONG = ("nonsense",)
CASES = [
    (MODES, {0: CLOSED}, DONE),
    (MODES, {1: CLOSED}, DONE),
    (MODES, {2: CLOSED}, DONE),
    (MODES, {0: CLOSED, 1: CLOSED, 2: CLOSED}, DONE),
    (MODES, {1: FULL}, ENVIRONMENT),
    (MODES, {1: FULL, 2: FULL}, ENVIRONMENT),
    (MODES, {1: UNREAD}, DONE),
    (MODES, {1: UNREAD, 2: UNREAD}, DONE),
    (MISSING, {1: CLOSED}, ENVIRONMENT),
    (MISSING, {2: CLOSED}, ENVIRONMENT),
    (MISSING, {0: CLOSED, 1: CLOSED, 2: CLOSED}, ENVIRONMENT),
    (MISSING, {1: UNREAD}, ENVIRONMENT),
    (MISSING, {2: FULL}, ENVIRONMENT),
    ((*MISSING, "--json"), {1: UNREAD}, ENVIRONMENT),
    (WRONG, {1: CLOSED, 2: CLOSED}, USAGE),
    (WRONG, {2: FULL}, USAGE),
    (WRONG, {2: UNREAD}, USAGE),
    ((*WRONG, "--json"), {1: CLOSED}, USAGE),
    ((*WRONG, "--json"), {1: UNREAD}, USAGE),
    ((*WRONG, "--json"), {1: FULL}, USAGE),
    ((), {2: CLOSED}, USAGE),
    (("--version",), {1: CLOSED}, DONE),
    (("--version",), {1: FULL}, ENVIRONMENT),
    (("--help",), {1: UNREAD}, DONE),
    (("store", "put", "kv:a/b", "-"), {0: CLOSED}, ENVIRONMENT),
]


def ran(words: tuple[str, ...], folder: Path, redirected: dict[int, str], removed: bool = False) -> Ran:
    started = fork_server.start(words, folder, environment(None, "streams"), None, redirected, removed)
    assert started is not None
    return finish(started)


@pytest.mark.parametrize(("words", "redirected", "code"), CASES)
def test_the_exit_code_is_the_same_whatever_becomes_of_the_output(
    tmp_path: Path, words: tuple[str, ...], redirected: dict[int, str], code: int
):
    came = ran(words, tmp_path, redirected).expect(code)
    if redirected.keys() <= {0, 2} and words == MODES:
        assert len(json.loads(came.out)["modes"]) > 3
    if redirected == {1: FULL}:
        assert came.err.startswith("error: ")


def test_a_program_of_its_own_starts_with_all_streams_closed(tmp_path: Path):
    """Not forked: only then Python itself has no streams."""
    for line, code in ((f"'{PROGRAM}' nonsense <&- >&- 2>&-", USAGE), (f"'{PROGRAM}' --version >&-", DONE)):
        ran_alone = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True)
        assert (ran_alone.returncode, ran_alone.stdout, ran_alone.stderr) == (code, "", "")


def test_a_file_never_gets_the_number_of_a_stream():
    """Otherwise a print to the closed stream would write into the file."""
    code = (
        "import os, subprocess, sys\nfrom sonde.cli import streams\nstreams.secure()\n"
        "opened = os.open('/dev/null', os.O_RDONLY)\nprint('lost')\nprint('lost', file=sys.stderr)\n"
        "closed = subprocess.run(['sh', '-c', 'ls /proc/self/fd']).returncode\n"
        "sys.exit(opened * 10 + (closed != 0))"
    )
    line = f'exec "{sys.executable}" -c "$0" <&- >&- 2>&-'
    ran_alone = subprocess.run(["sh", "-c", line, code], capture_output=True)
    assert ran_alone.returncode == 31  # 3, and the program that it started found its stdout closed
    assert ran_alone.stdout + ran_alone.stderr == b""


def test_a_closed_input_is_not_taken_for_an_empty_one():
    code = "from sonde.cli import streams\nstreams.secure()\nimport sys\nsys.stdin.buffer.read()"
    line = f'exec "{sys.executable}" -c "$0" <&-'
    ran_alone = subprocess.run(["sh", "-c", line, code], capture_output=True, text=True)
    assert ran_alone.returncode == 1
    assert os.strerror(errno.EBADF) in ran_alone.stderr


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for number in (read, write):
        with suppress(OSError):  # the test closed it
            os.close(number)


def test_a_write_waits_where_the_descriptor_does_not(pipe):
    read, write = pipe
    fcntl.fcntl(write, fcntl.F_SETFL, os.O_NONBLOCK)
    full = os.write(write, b"x" * (1 << 20))  # as much as a pipe can store
    got = bytearray()

    def slow() -> None:
        while piece := os.read(read, 4096):
            got.extend(piece)

    reader = threading.Thread(target=slow)
    reader.start()
    with io.BufferedWriter(streams.Descriptor(write, must_arrive=True)) as stream:
        stream.write(b"y" * (1 << 20))
    os.close(write)
    reader.join()
    assert got == b"x" * full + b"y" * (1 << 20)


@pytest.mark.parametrize("must_arrive", [True, False])
def test_a_reader_that_has_gone_is_met_once(pipe, must_arrive: bool):
    read, write = pipe
    os.close(read)
    stream = streams.Descriptor(write, must_arrive)
    if must_arrive:
        with pytest.raises(streams.ReaderGone, match=streams.STDOUT):
            stream.write(b"a")
    else:
        assert stream.write(b"abc") == 3
    assert stream.write(b"b") == 1
    assert os.readlink(f"/proc/self/fd/{write}") == os.devnull


def test_a_full_device_is_named(pipe):
    _, write = pipe
    fork_server.redirect(write, FULL)
    with pytest.raises(OSError, match=streams.STDOUT) as caught:
        streams.Descriptor(write, must_arrive=True).write(b"a")
    assert caught.value.errno == errno.ENOSPC


class TestPlaces:
    """The current folder is removed before a command runs."""

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (MODES, DONE),
            (("io", "run", "-o", "a.nc", "--", "true"), ENVIRONMENT),
            (("io", "run", "--", "true"), ENVIRONMENT),
            (("net", "run", "--ntasks", "2"), ENVIRONMENT),
            (("noise", "host"), ENVIRONMENT),
            (("data", "validate", "a.nc"), ENVIRONMENT),
            (("data", "recover", "a.run"), ENVIRONMENT),
            (("report", "a.nc"), ENVIRONMENT),
            (("store", "run", "--budget", "5s"), ENVIRONMENT),
            (("bus", "run", "--budget", "5s"), ENVIRONMENT),
        ],
    )
    def test_a_folder_that_was_removed_is_named_or_not_needed(
        self, tmp_path: Path, words: tuple[str, ...], code: int
    ):
        folder = tmp_path / "removed"
        folder.mkdir()
        came = ran(words, folder, {}, removed=True)
        assert "Traceback" not in came.err + came.out
        assert "internal" not in came.err
        assert came.code == code, came
        assert code == DONE or "error: " in came.err or "core.no_such_file" in came.out
