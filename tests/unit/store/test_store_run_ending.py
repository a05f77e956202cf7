"""How `sonde store serve` ends the server that it started, when that does not end by itself."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sonde.store import run

DEAF = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(300)"
)
SLOW = "import time; print(flush=True); time.sleep(300)"
GOOD = "import sys; print(flush=True); sys.stdin.read()"


@contextmanager
def child(code: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)
    try:
        assert process.stdout
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(run, "SOON_S", 0.0)


def test_one_that_ends_when_its_input_does_is_sent_no_signal():
    said: list[str] = []
    with child(GOOD) as process:
        assert not run._end(process, [signal.SIGINT], said.append)
        assert process.returncode == 0
    assert not [line for line in said if "SIGTERM" in line]


def test_a_second_ctrl_c_ends_it_by_sigterm():
    came, said = [int(signal.SIGINT)], []

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 1:
            came.append(signal.SIGINT)

    with child(SLOW) as process:
        assert not run._end(process, came, say)
        assert process.returncode == -signal.SIGTERM
        assert f"(process {process.pid})" in said[0]
    assert "Ctrl-C again ends it" in said[0]
    assert "by SIGTERM" in said[1]


def test_a_third_ctrl_c_kills_it(monkeypatch):
    monkeypatch.setattr(run, "GRACE_S", 1e9)
    came = [int(signal.SIGINT)]
    with child(DEAF) as process:
        assert run._end(process, came, lambda line: came.append(signal.SIGINT))
        assert process.returncode == -signal.SIGKILL


def test_one_that_ignores_everything_is_killed_without_any_ctrl_c(monkeypatch):
    monkeypatch.setattr(run, "END_S", 0.0)
    monkeypatch.setattr(run, "GRACE_S", 0.0)
    with child(DEAF) as process:
        assert run._end(process, [], lambda line: None)
        assert process.returncode == -signal.SIGKILL


def test_one_that_is_stopped_is_reported_of_and_woken():
    came, said = [int(signal.SIGINT)], []

    def say(line: str) -> None:
        said.append(line)
        came.append(signal.SIGINT) if len(said) == 1 else None

    with child(SLOW) as process:
        process.send_signal(signal.SIGSTOP)
        assert not run._end(process, came, say)
        assert process.returncode == -signal.SIGTERM
    assert "which is stopped" in said[0]
