"""Every command with a --budget passes a deadline to its saving and analysis. The commands are found by search, not
from a list of names.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from sonde.cli import commands
from sonde.core import seal
from sonde.core.deadline import Deadline
from sonde.core.errors import EnvironmentFailure
from sonde.core.launch import session, start
from sonde.core.launch.mpirun import Mpi, Mpirun

BUDGET_S = 200.0  # so that a survey has time for each of its rooms

# Arguments that a command needs in addition to a budget; a command that is not listed here needs none.
WORDS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("net", "run"): ("--ntasks", "2"),
    ("net", "retest"): ("a.nc",),
    ("noise", "run"): ("--ntasks", "2", "--level", "1%"),
    ("noise", "sensitivity"): ("--ntasks", "2",),
    ("noise", "stability"): ("--ntasks", "2"),
    ("noise", "source"): ("--level", "1%"),
    ("io", "study"): ("--ntasks", "2", "--size", "2MiB"),
    ("store", "run"): ("--servers", "1"),
    ("power", "run"): ("--config", "power.toml"),
}  # fmt: skip


def with_a_budget() -> list[tuple[str, ...]]:
    """The words of every command that has a --budget."""
    found: list[tuple[str, ...]] = []

    def walk(words: tuple[str, ...], command: click.Command) -> None:
        if any(param.name == "budget_s" for param in command.params):
            found.append(words)
        for name, child in getattr(command, "commands", {}).items():
            walk((*words, name), child)

    for name in list(commands.COMMANDS):
        try:
            walk((name,), commands.load(name))
        except EnvironmentFailure:
            continue
    return found


class Handed(list[Deadline]):
    """The deadlines that a command passed on; the functions that received them stop there."""

    def stop(self, deadline: Deadline | None) -> None:
        assert deadline is not None, "no deadline was handed on"
        self.append(deadline)
        raise EnvironmentFailure("test.stopped", "this is as far as the test goes", "")


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> Handed:
    """Nothing is started: each measurement counts as complete at once, and is about to be saved."""
    seen = Handed()
    mpi = Mpi("openmpi", "Open MPI", "4.1.4", Path("/opt/openmpi/bin/mpirun"))
    prepared = start.Start(Mpirun(found=mpi), (), Path("/libexec/openmpi/sonde-net"), mpi)
    alone = start.Start(SimpleNamespace(name="local"), (), Path("/libexec/sonde-storebench"), None)
    monkeypatch.setattr(start, "prepare", lambda *_: prepared)
    monkeypatch.setattr(session, "run", lambda job, _: seen.stop(job.deadline))
    monkeypatch.setattr(seal, "seal", lambda *_, deadline=None, **__: seen.stop(deadline))
    monkeypatch.setattr(session, "nothing_in", lambda *_: False)

    from sonde.bus import run_probe as bus
    from sonde.io.study import run as study_run
    from sonde.io.study import run_limits
    from sonde.net import run as net
    from sonde.noise import run_programs
    from sonde.noise.host import run as run_host
    from sonde.noise.source import run as run_source
    from sonde.power.demo import run as demo
    from sonde.power.recording import run_record
    from sonde.power.stack import run_bus
    from sonde.store import run_bench as store

    for module in (bus, store):
        monkeypatch.setattr(module, "prepare_alone", lambda *_: alone)
    monkeypatch.setattr(bus, "require", lambda _: None)
    monkeypatch.setattr(run_programs, "_run", lambda *_: None)
    monkeypatch.setattr(run_source, "check", lambda *_, **__: None)
    monkeypatch.setattr(run_host, "check", lambda _: None)
    suspects = net.Suspects(((0, 1),), [(0, 1)], 2, (8,), "one_to_one")
    monkeypatch.setattr(net, "suspects_in", lambda *_: suspects)
    done = SimpleNamespace(good=1, warnings=[], interrupted=False, ask=lambda *_: None, run=lambda: "budget")
    monkeypatch.setattr(study_run, "_Study", lambda *_: done)
    monkeypatch.setattr(run_limits, "sweep", lambda _: None)
    monkeypatch.setattr(run_bus, "load", lambda _: SimpleNamespace(cluster="here", nodes=[]))
    for module in (run_record, demo):
        monkeypatch.setattr(module, "measure", lambda request, *_: seen.stop(request.deadline))
    return seen


@pytest.mark.parametrize("words", with_a_budget(), ids=" ".join)
def test_a_deadline_within_the_budget_is_handed_on(words, sonde: Callable, handed: Handed):
    before = time.monotonic()
    ran = sonde(*words, *WORDS.get(words, ()), "--budget", f"{BUDGET_S:g}s")
    assert handed, f"nothing was about to be saved: {ran.out}{ran.err}"
    latest = time.monotonic() + BUDGET_S
    for deadline in handed:
        assert before < deadline.end_s <= latest


def test_there_are_such_commands():
    assert len(with_a_budget()) >= 10
