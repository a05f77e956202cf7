"""A Sonde that is killed while the osnoise tracer is on: the next one restores the kernel's settings.

It once left an instance that every Sonde shared, and an option that applies to the whole kernel.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from sonde.core import tracefs
from sonde.io.record import run_tracefs
from sonde.noise.host.run_osnoise import EVENTS, Osnoise


@pytest.fixture
def tracing(tmp_path) -> Path:
    """The parts of tracefs that are used, as files."""
    (tmp_path / "available_tracers").write_text("hwlat osnoise function nop\n")
    (tmp_path / "osnoise").mkdir()
    (tmp_path / "instances").mkdir()
    (tmp_path / "uprobe_events").write_text("")
    (tmp_path / "osnoise" / "options").write_text("OSNOISE_WORKLOAD\n")
    return tmp_path


@pytest.fixture(autouse=True)
def as_the_kernel(monkeypatch):
    """An instance gets its files when it is made, and is removed with them."""
    mkdir, rmdir = Path.mkdir, Path.rmdir

    def fill(path: Path, *words: object, **named: object) -> None:
        mkdir(path, *words, **named)  # type: ignore[arg-type]
        if path.parent.name == "instances":
            (path / "trace").write_text("")
            for event in EVENTS:
                (path / "events" / "osnoise" / event).mkdir(parents=True)

    def empty(path: Path) -> None:
        for below in sorted(path.rglob("*"), reverse=True):
            rmdir(below) if below.is_dir() else below.unlink()
        rmdir(path)

    monkeypatch.setattr(Path, "mkdir", fill)
    monkeypatch.setattr(Path, "rmdir", empty)


def killed(tracing: Path) -> None:
    """A Sonde that traces and is killed by SIGKILL."""
    here, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        Osnoise(tracing).start()
        os.write(there, b"1")
        signal.pause()
    assert os.read(here, 1) == b"1"
    os.close(here)
    os.close(there)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def state(tracing: Path) -> tuple[str, list[str]]:
    names = sorted(path.name for path in (tracing / "instances").iterdir())
    return (tracing / "osnoise" / "options").read_text().strip(), names


def test_the_next_measurement_sets_the_kernel_back(tracing):
    killed(tracing)
    assert state(tracing)[0] == "NO_OSNOISE_WORKLOAD"
    assert len(state(tracing)[1]) == 1
    tracer = Osnoise(tracing)
    assert tracer.start()
    assert state(tracing) == ("NO_OSNOISE_WORKLOAD", [f"sonde-{tracefs.mark()}-osnoise-workload"])
    tracer.stop([0])
    assert state(tracing) == ("OSNOISE_WORKLOAD", [])


def test_a_trace_of_io_sets_it_back_as_well_and_doctor_tells(tracing):
    killed(tracing)
    killed(tracing)
    assert run_tracefs.left_over(tracing) == state(tracing)[1]
    run_tracefs.remove_left(tracing)
    assert state(tracing) == ("OSNOISE_WORKLOAD", [])


def test_two_at_a_time_do_not_share_an_instance(tracing):
    """The end of the second one once switched off the first one's tracer."""
    first = Osnoise(tracing)
    assert first.start()
    pid = os.fork()
    if pid == 0:
        second = Osnoise(tracing)
        status = 0 if second.start() and second.instance != first.instance else 1
        second.stop([0])
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert first.instance is not None
    assert (first.instance / "tracing_on").read_text() == "1"
    assert state(tracing)[0] == "NO_OSNOISE_WORKLOAD"
    first.stop([0])
    assert state(tracing) == ("OSNOISE_WORKLOAD", [])
