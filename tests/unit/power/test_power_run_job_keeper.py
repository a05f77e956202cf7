"""What a launcher that reads its environment, and one that does not, come to."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

from sonde.power import run_job_keeper


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):  # the test may have closed it
            os.close(end)


def test_what_is_told_goes_into_the_pipe_at_once(pipe):
    told = "X=1\n" * 50_000
    assert run_job_keeper._write(pipe[1], told)
    got = b""
    while len(got) < len(told):
        got += os.read(pipe[0], 1 << 20)
    assert got == told.encode()


def test_more_than_a_pipe_takes_is_not_written(pipe):
    assert not run_job_keeper._write(pipe[1], "x" * (run_job_keeper._PIPE + 1))


def test_who_ended_before_it_was_told_tells_by_its_own_end_why(pipe):
    """ssh to a port where nobody listens has ended with 255 before its environment is written."""
    os.close(pipe[0])
    assert run_job_keeper._write(pipe[1], "X=1\n")
