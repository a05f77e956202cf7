"""Run sonde-agent, the noise source, in the foreground: on this host, or once on each of several hosts."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sonde.core.deadline import left_of, within
from sonde.core.errors import EnvironmentFailure, from_code
from sonde.core.events import Event, Progress, Reader
from sonde.core.launch import Launcher, launcher
from sonde.core.surroundings import place_of_ranks
from sonde.noise.run_programs import Measured, Program, Request, measure, program
from sonde.noise.source.schema import SCHEMA


@dataclass(frozen=True)
class Source:
    """The settings of a noise source. core: None: any core. phase_s: None: a random phase for each host."""

    level: float
    period_s: float
    words: int
    core: int | None
    phase_s: float | None
    seed: int

    def argv(self) -> list[str]:
        """The options of sonde-agent for these settings."""
        out = ["--level", repr(self.level), "--period-s", repr(self.period_s), "--words", str(self.words)]
        out += ["--seed", str(self.seed)]
        if self.core is not None:
            out += ["--core", str(self.core)]
        return out + (["--unsync"] if self.phase_s is None else ["--phase-s", repr(self.phase_s)])


def check(source: Source, here: bool) -> None:
    """Check that a source can do this. here: it will run on this machine, so its core is checked, too.

    Raises
    ------
    UsageError  noise.bad_level, noise.level_too_low, noise.bad_period, noise.bad_words, noise.no_such_core;
    EnvironmentFailure  noise.no_program.
    """
    checked = source if here else Source(**{**source.__dict__, "core": None})
    done = subprocess.run(
        [str(program("sonde-agent")), *checked.argv(), "--check"],
        cwd=place_of_ranks(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    error: Event | None = next(
        (e for e in Reader().events(done.stdout.splitlines()) if e["event"] == "error"), None
    )
    if error is not None:
        hint = str(error["hint"]).replace("--period-s", "--period")
        raise from_code(str(error["code"]), str(error["what"]), hint)
    if done.returncode != 0:
        raise EnvironmentFailure(
            "noise.no_program",
            f"sonde-agent --check ends with status {done.returncode}",
            "install Sonde again",
        )


def prepare(name: str, hosts: Sequence[str]) -> Launcher:
    """The launcher that starts the source on its hosts; without hosts, the local one."""
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
    """How long the source works, s: the user's duration, limited by the budget. None: until interrupted."""
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
    """Run the source on every host until its time is over or until Ctrl-C, and save its bursts.

    words: the user's command line. began: time.monotonic() at the begin of the budget; now by default.

    Raises
    ------
    As `run_programs.measure`.
    """
    import socket

    since = time.monotonic() if began is None else began
    works_s = duration(budget_s, duration_s, since)
    names = [host.partition(":")[0] for host in hosts]
    request = Request(
        schema=SCHEMA,
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
