"""Runs sonde-agent, the noise source, in the foreground: on this host, or once on each of several."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sonde.core.deadline import left_of, within
from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.core.events import Event, Progress, Reader
from sonde.core.launch import Launcher, launcher
from sonde.noise.run_programs import Measured, Program, Request, measure, program


@dataclass(frozen=True)
class Source:
    """A noise source as asked for. core: None leaves it free. phase_s: None draws one for each host."""

    level: float
    period_s: float
    words: int
    core: int | None
    phase_s: float | None
    seed: int

    def argv(self) -> list[str]:
        """Options of sonde-agent that say what it does."""
        out = ["--level", repr(self.level), "--period-s", repr(self.period_s), "--words", str(self.words)]
        out += ["--seed", str(self.seed)]
        if self.core is not None:
            out += ["--core", str(self.core)]
        return out + (["--unsync"] if self.phase_s is None else ["--phase-s", repr(self.phase_s)])


def check(source: Source, here: bool) -> None:
    """Whether a source can do this; `here`: it will run on this machine, whose cores are then looked at.

    Raises
    ------
    UsageError  noise.bad_level, noise.level_too_low, noise.bad_period, noise.bad_words, noise.no_such_core;
    EnvironmentFailure  noise.no_program.
    """
    asked = source if here else Source(**{**source.__dict__, "core": None})
    told = subprocess.run(
        [str(program("sonde-agent")), *asked.argv(), "--check"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    error: Event | None = next(
        (e for e in Reader().events(told.stdout.splitlines()) if e["event"] == "error"), None
    )
    if error is not None:
        hint = str(error["hint"]).replace("--period-s", "--period")
        raise UsageError(str(error["code"]), str(error["what"]), hint)
    if told.returncode != 0:
        raise EnvironmentFailure(
            "noise.no_program",
            f"sonde-agent ends with status {told.returncode} when asked what it can do",
            "install Sonde again",
        )


def prepare(name: str, hosts: Sequence[str]) -> Launcher:
    """What starts the source on its hosts; without hosts, this machine itself."""
    return launcher(name if hosts else "local")


def command(source: Source, start: Launcher, host: str, run_dir: Path, duration_s: float | None) -> list[str]:
    """The whole command line of one host's source. host: "" for this machine."""
    name = host.partition(":")[0]
    argv = [str(program("sonde-agent")), *source.argv(), "--until-eof"]
    argv += ["--record", str(run_dir.resolve() / f"source-{name or 'here'}.blk")]
    if name:
        argv += ["--host", name]
    if duration_s is not None:
        argv += ["--duration-s", f"{duration_s:.3f}"]
    return start.per_host(argv, [host] if host else [])[0]


def duration(budget_s: float | None, duration_s: float | None, began: float) -> float | None:
    """How long the source works, s: as asked, and no longer than the budget leaves. None: until interrupted."""
    if budget_s is None:
        return duration_s
    left = left_of(budget_s, began)
    return left if duration_s is None else min(left, duration_s)


def run(
    source: Source,
    start: Launcher,
    hosts: Sequence[str],
    out: Path,
    words: tuple[str, ...],
    budget_s: float | None,
    duration_s: float | None,
    progress: Progress,
    began: float | None = None,
) -> Measured:
    """Runs the source on every host until its time is over or Ctrl-C, and saves its bursts.

    words: what the user typed. began: time.monotonic() from which the budget counts; now by default.

    Raises
    ------
    As `run_programs.measure`.
    """
    import socket

    since = time.monotonic() if began is None else began
    works_s = duration(budget_s, duration_s, since)
    names = [host.partition(":")[0] for host in hosts]
    request = Request(
        programs=tuple(Program(host) for host in hosts) or (Program(""),),
        out=out,
        plan={
            "kind": "source",
            "hosts": names or [socket.gethostname()],
            "level": source.level,
            "period_s": source.period_s,
            "words": source.words,
        },
        attrs={
            "kind": "source",
            "launcher": start.name,
            "level": source.level,
            "period_s": source.period_s,
            "words": source.words,
            "phase": "random" if source.phase_s is None else f"{source.phase_s:g} s",
        },
        command=words,
        seed=source.seed,
        hosts=tuple(hosts),
        duration_s=works_s,
        deadline=within(budget_s, since),
    )
    return measure(
        request, lambda run_dir, one: command(source, start, one.label, run_dir, works_s), progress
    )
