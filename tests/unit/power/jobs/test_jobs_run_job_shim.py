"""The job keeper writes a launcher's environment, and reports launchers that did not read it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace

import pytest

from power_daemons import until
from sonde.power.jobs import run_job_shim


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):  # the test may have closed it
            os.close(end)


def test_an_environment_is_written_at_once(pipe):
    text = "X=1\n" * 50_000
    assert run_job_shim._write(pipe[1], text) is True
    got = b""
    while len(got) < len(text):
        got += os.read(pipe[0], 1 << 20)
    assert got == text.encode()


def test_an_environment_larger_than_the_pipe_is_refused(pipe):
    assert run_job_shim._write(pipe[1], "x" * (run_job_shim._PIPE + 1)) is False


def test_a_closed_pipe_is_distinguished_from_one_that_is_full(pipe):
    os.close(pipe[0])
    assert run_job_shim._write(pipe[1], "X=1\n") is None


def test_it_starts_where_only_the_standard_library_is_installed(tmp_path):
    """-S: without site-packages, as where PYTHONPATH alone leads to Sonde, which -I ignores."""
    words = [sys.executable, "-I", "-S", run_job_shim.__file__, str(tmp_path)]
    ran = subprocess.run(words, stdin=subprocess.DEVNULL, cwd="/", capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("status", "expected"), [(255, 255), (0, 127)])
def test_a_launcher_that_ends_before_its_environment_is_written(tmp_path, monkeypatch, status, expected):
    """ssh to a port where nobody listens is such a one: its status is the job's, but no success."""
    start = {"node": "n1", "folder": str(tmp_path), "output": str(tmp_path / "output"), "environment": {}}
    start |= {"words": ["/bin/sh", "-c", f"exit {status}"], "remote": True, "told": "X=1\n"}
    (tmp_path / "start.json").write_text(json.dumps({"starts": [start], "limit_s": 0, "grace_s": 0.1}))
    monkeypatch.chdir(tmp_path)  # the keeper goes where its command is to run; back after the test
    shim = run_job_shim.JobShim(tmp_path)
    monkeypatch.setattr(
        shim, "libc", SimpleNamespace(prctl=lambda *_: 0, syscall=lambda *_: 0), raising=False
    )
    write = run_job_shim._write

    def late(fd: int, text: str) -> bool | None:
        gone = select.poll()
        gone.register(fd, 0)
        gone.poll()  # until nobody can read any more
        return write(fd, text)

    monkeypatch.setattr(run_job_shim, "_write", late)
    assert shim._start(start)
    until(lambda: shim._reap() or not shim.running, "the launcher has ended")
    assert shim.first == ("n1", expected << 8)
    assert ("without reading" in shim.why) == (status == 0)
