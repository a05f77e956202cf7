"""Run programs without MPI, one on each host, with one run folder, and seal their records."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sonde.core import hostlist, provenance, run_folder, seal
from sonde.core.deadline import Deadline
from sonde.core.errors import (
    EnvironmentFailure,
    SondeError,
    UsageError,
    Warning,
    typed,
)
from sonde.core.events import Event, Progress
from sonde.core.interrupt import signals
from sonde.core.launch import libexec, session
from sonde.core.launch.process import Ending, ProbeProcess, without_log
from sonde.core.layout import RoomSchema, SealedFile
from sonde.core.owned_files import make_folder

POLL_S = 2.0  # Sonde's own wake-ups are noise, too; output and end of programs are noticed without polling
OFF_LIMIT_S = (
    15.0  # a program counts as stuck this long after its budget; start-up and writing take some time
)


@dataclass(frozen=True)
class Program:
    """One program to run. label: its host, "" for this host."""

    label: str


@dataclass(frozen=True)
class Request:
    """The programs to run, and their dataset.

    schema: of their records. plan: for the schema, at least `kind`. attrs: root attributes besides those of every
    dataset. command: the user's command line. duration_s: how long the programs work; None: until interrupted.
    deadline: the end of everything.
    """

    schema: RoomSchema
    programs: tuple[Program, ...]
    out: Path
    plan: Mapping[str, Any]
    attrs: Mapping[str, Any]
    command: tuple[str, ...]
    seed: int
    hosts: tuple[str, ...]
    duration_s: float | None
    warnings: tuple[Warning, ...] = ()
    deadline: Deadline = field(default_factory=Deadline)


@dataclass
class Measured:
    """The result of a run: its dataset, its stop reason, whether the user interrupted it, and its error."""

    file: SealedFile
    stop_reason: str
    interrupted: bool
    error: SondeError | None
    ends: dict[str, Event] = field(default_factory=dict)  # by label


def program(name: str) -> Path:
    """The path of a program of this room that needs no MPI.

    Raises
    ------
    EnvironmentFailure  noise.no_program: it was not built.
    """
    path = libexec() / name
    if not os.access(path, os.X_OK):
        raise EnvironmentFailure(
            "noise.no_program",
            f"there is no {name} in {path.parent}",
            "install Sonde again, with a C++ compiler",
        )
    return path


def cluster() -> str:
    """The name of the cluster for new datasets: Slurm's name, else the name of this host."""
    return os.environ.get("SLURM_CLUSTER_NAME") or socket.gethostname()


def output_path(output: Path | None) -> Path:
    """The path of the dataset: the user's, or a new name in the current folder.

    Raises
    ------
    EnvironmentFailure  core.cannot_write: its folder does not exist. UsageError  noise.bad_output: it is a
    folder.
    """
    if output is None:
        return Path(run_folder.dataset_name("noise", cluster()))
    if output.is_dir():
        raise UsageError(
            "noise.bad_output",
            f"--output {output} is a folder",
            f"name the dataset: {typed('-o', output / 'noise.nc')}",
        )
    if not output.parent.is_dir():
        raise EnvironmentFailure(
            "core.cannot_write",
            f"cannot write {output}: there is no folder {output.parent}",
            "make it, or choose another with --output",
        )
    return output if output.suffix == ".nc" else output.with_name(output.name + ".nc")


def measure(
    request: Request,
    command_of: Callable[[Path, Program], Sequence[str]],
    progress: Progress,
    after: Callable[[Sequence[Event]], Mapping[str, Any]] | None = None,
) -> Measured:
    """Run all programs until they end or are interrupted, and seal their records, also after a failure.

    command_of : gives the whole command line of a program; called with the run's folder
    progress : shows the events of the first program
    after : gives the root attributes that are known at the end; called with the events that only these programs have

    Raises
    ------
    EnvironmentFailure  nothing was recorded or nothing can be written. Interrupted  before any record.
    """
    run_dir = run_folder.folder_of(request.out)
    commands = [
        command_of(run_dir, one) for one in request.programs
    ]  # may raise, so it comes before the folder
    attrs = provenance.attrs(
        command=request.command,
        seed=request.seed,
        hostlist=hostlist.listed(
            [host.partition(":")[0] for host in request.hosts] or [socket.gethostname()]
        ),
    )
    begin = partial(
        run_folder.start,
        run_dir,
        room="noise",
        schema=f"{request.schema.room}/{request.schema.version}",
        attrs={**attrs, **request.attrs},
        plan=request.plan,
        warnings=request.warnings,
    )
    team = _Team(progress, request.programs[0].label)
    with session.unless_interrupted(run_dir, "noise", begin) as made, run_folder.hold(run_dir, made) as held:
        _run(request, commands, run_dir, team)
        error = team.error()
        known = dict(after(team.events)) if after else {}
        if session.nothing_in(run_dir):
            session.forget(run_dir)
            if error is not None:
                raise without_log(error)
            raise (session.interrupted("noise") if team.interrupted else _nothing(team.warnings))
        if isinstance(error, EnvironmentFailure) and len(team.endings) > 1:
            team.warnings.append(Warning(error.code, error.what, error.hint))
        stop_reason = team.stop_reason()
        with session.saving(run_dir, "noise") as asked:
            files = seal.seal(
                run_dir,
                request.out,
                request.schema,
                attrs={"stop_reason": stop_reason, **known},
                warnings=team.warnings,
                held=held,
                progress=asked.leave,
                deadline=request.deadline,
            )
        if error is not None and not Path(error.log).is_file():
            without_log(error)  # the folder was removed when the dataset was complete
    return Measured(files[0], stop_reason, team.interrupted or asked.came, error, team.ends)


class _Team:
    """The events and errors of the programs of one run. One thread for each program fills it."""

    def __init__(self, progress: Progress, shown: str) -> None:
        self.progress, self.shown = progress, shown
        self.interrupted = False
        self.warnings: list[Warning] = []
        self.ends: dict[str, Event] = {}
        self.events: list[Event] = []  # those that only these programs have
        self.endings: dict[str, Ending] = {}
        self.failures: list[SondeError] = []
        self._lock = threading.Lock()

    def take(self, label: str, event: Event) -> None:
        with self._lock:
            if label == self.shown:
                self.progress.show(event)
            match event["event"]:
                case "warning":
                    self.warnings.append(Warning(event["code"], event["evidence"], event["hint"]))
                case "end":
                    self.ends[label] = event
                case "start" | "progress" | "error":
                    pass
                case _:
                    self.events.append(event)

    def ended(self, label: str, ending: Ending) -> None:
        with self._lock:
            self.endings[label] = ending

    def failed(self, error: SondeError) -> None:
        with self._lock:
            self.failures.append(error)

    def error(self) -> SondeError | None:
        """The first error."""
        reported = [ending.error for ending in self.endings.values() if ending.error is not None]
        return next(iter([*self.failures, *reported]), None)

    def stop_reason(self) -> str:
        if self.interrupted:
            return "interrupted"
        if self.error() is not None:
            return "failed"
        reasons = {str(end["stop_reason"]) for end in self.ends.values()}
        return reasons.pop() if len(reasons) == 1 else "failed" if not reasons else "interrupted"


def _run(request: Request, commands: Sequence[Sequence[str]], run_dir: Path, team: _Team) -> None:
    """Start all programs, and return when all have ended."""
    processes: list[ProbeProcess] = []
    for number, one in enumerate(request.programs):
        folder = run_dir
        if len(request.programs) > 1:  # each needs its own log
            folder = run_dir / f"program-{number:05d}"
            make_folder(folder, 0o700)
        take = _taker(team, one.label)
        processes.append(ProbeProcess(commands[number], folder, take, room="noise", poll_s=POLL_S))

    limit = None if request.duration_s is None else request.duration_s + OFF_LIMIT_S

    def follow(one: Program, process: ProbeProcess) -> None:
        # The same thread starts the child and waits for it, because the kernel ends the child with that thread.
        try:
            with process:
                team.ended(one.label, process.wait(limit))
        except SondeError as error:
            team.failed(error)

    def ask(_signal: int, _frame: Any) -> None:
        again, team.interrupted = team.interrupted, True
        for process in processes:
            process.interrupt(again)

    threads = [
        threading.Thread(target=follow, args=pair, daemon=True) for pair in zip(request.programs, processes)
    ]
    with signals(ask), team.progress:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()  # signals are handled while it waits


def _taker(team: _Team, label: str) -> Callable[[Event], None]:
    return lambda event: team.take(label, event)


def _nothing(warnings: Sequence[Warning]) -> EnvironmentFailure:
    """The reason why a run that was not interrupted has no record: a program's warning, else too short a time."""
    if warnings:
        return EnvironmentFailure(warnings[0].code, warnings[0].evidence, warnings[0].hint)
    return EnvironmentFailure(
        "noise.nothing_recorded",
        "the time was over before anything was recorded; no file was stored",
        "give it more time, at least two periods of a source",
    )
