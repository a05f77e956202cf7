"""`sonde io run`: the user's command under the tracer, as it is, and what it left made into a dataset."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from sonde.core import launch, provenance, seal
from sonde.core.errors import EnvironmentFailure, UsageError, Warning, nearest, reason_not_written, typed
from sonde.core.interrupt import signals
from sonde.core.launch import session
from sonde.core.launch.mpirun import COMMANDS
from sonde.io import run_watch
from sonde.io.layers import KINDS, Layer
from sonde.io.run_elf import Program, why_not
from sonde.io.schema import NAME, SCHEMA
from sonde.io.table import compiled, rule_names

TRACER = "libsonde-io.so"
TABLE = "table"
# Programs that only start others: their own calls would stand in the trace as if they were the job's.
STARTERS = (
    *COMMANDS, "orterun", "orted", "prte", "prted", "prterun", "hydra_pmi_proxy", "hydra_bstrap_proxy", "srun",
    "slurmstepd", "env", "timeout", "nice", "nohup", "time", "setsid", "stdbuf", "taskset", "numactl", "sh", "bash",
    "dash", "zsh", "ssh", "rsh",
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """What is to be traced.

    command : the user's, word by word. layers: from the application down. out: the dataset. most_bytes: of the trace
    on each node; 0 for no limit. launcher: "auto" or the one whose line `command` is. typed: what was typed to Sonde.
    """

    command: Sequence[str]
    layers: Sequence[Layer]
    out: Path
    most_bytes: int
    typed: Sequence[str]
    launcher: str = "auto"
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Traced:
    """How it went. status: the command's, as a shell tells it (128 and more: by a signal)."""

    file: seal.SealedFile
    status: int
    interrupted: bool


def library() -> Path:
    """The tracer. EnvironmentFailure  io.not_built."""
    path = launch.libexec() / TRACER
    if not path.exists():
        raise EnvironmentFailure(
            "io.not_built",
            f"this build of Sonde has no tracer ({path})",
            "it is written for x86-64; 'sonde doctor' says what is missing",
        )
    return path


def environment(folder: Path) -> dict[str, str]:
    """What a program must find in its environment to be traced into a run's folder."""
    before = os.environ.get("LD_PRELOAD", "")
    return {
        "LD_PRELOAD": f"{library()}{':' if before else ''}{before}",
        "SONDE_IO_FOLDER": str(folder.resolve()),
        "SONDE_IO_TABLE": str(folder.resolve() / TABLE),
        "SONDE_IO_SKIP": ":".join(STARTERS),
    }


def line(request: Request, folder: Path) -> list[str]:
    """The command line that is started: the user's own; of an mpirun or srun, told to pass the tracer's variables on.

    Raises
    ------
    UsageError  io.no_program. EnvironmentFailure  io.not_built. Errors of `Launcher.inject`.
    """
    command = list(request.command)
    found = shutil.which(command[0])
    if found is None:
        there = Path(command[0])
        if there.exists():
            what = "is a folder" if there.is_dir() else "is not executable"
            raise UsageError(
                "io.no_program", f"'{command[0]}' {what}", "give a program and its arguments after --"
            )
        names = (
            {entry.name for entry in there.parent.iterdir()}
            if there.parent.is_dir() and "/" in command[0]
            else ()
        )
        raise UsageError(
            "io.no_program",
            f"there is no program '{command[0]}'{nearest(there.name, tuple(names))}",
            "give a program and its arguments after --, as you would start it",
        )
    name = Path(command[0]).name
    how = request.launcher
    if how == "auto":
        how = "mpirun" if name in COMMANDS else "srun" if name == "srun" else "local"
    if how == "local":
        return command
    return launch.launcher(how).inject(command, environment(folder))


def trace(request: Request, output: IO[Any] | None = None) -> Traced:
    """Runs the command to its end, and makes its trace a dataset, however it ended.

    Standard input and error are the command's; so is standard output, unless `output` is given instead. Ctrl-C is the
    command's, too: it ends, or does not, and its trace is kept. When this process is killed the command goes on, and
    `sonde data recover` makes the dataset.

    Raises
    ------
    UsageError  io.no_program. EnvironmentFailure  io.nothing_traced, io.not_built, core.cannot_write, core.disk_full.
    """
    run_dir = seal.run_folder(request.out)
    words = line(request, run_dir)  # may refuse: before anything is made
    env = os.environ | environment(run_dir)
    host = socket.gethostname()
    clocks = [_clock(host)]
    plan = {
        "layers": [
            *({"name": layer.name, "title": layer.title} for layer in request.layers),
            {"name": "tracer", "title": "Sonde's tracer"},
        ],
        "own": len(request.layers),
        "rules": [
            [number, KINDS.index(function.kind)] for number, function, _, _ in rule_names(request.layers)
        ],
        "clocks": clocks,
    }
    begin = partial(
        seal.start_run,
        run_dir,
        room="io",
        schema=NAME,
        attrs={
            **provenance.attrs(command=request.typed, seed=0, hostlist=host),
            "kernel": int(run_watch.asked(request.layers)),
            "run_id": secrets.token_hex(8),
            "traced": " ".join(request.command),
            "max_trace": request.most_bytes,
            **request.attrs,
        },
        plan=plan,
        env=session.mpi_environment(os.environ),
    )
    with session.unless_interrupted(run_dir, "io", begin, forget=_forget), seal.hold(run_dir) as held:
        try:
            (run_dir / TABLE).write_bytes(compiled(request.layers, request.most_bytes))
        except OSError as error:
            _forget(run_dir)
            raise EnvironmentFailure(
                "core.cannot_write",
                f"cannot write into {run_dir}: {reason_not_written(error)}",
                "choose another --output",
            ) from None
        try:
            with _watching(request, run_dir, host) as watched:
                status, asked = _run(words, env, output)
        except (UsageError, EnvironmentFailure):  # it was never started
            _forget(run_dir)
            raise
        clocks.append(_clock(host))
        interrupted = asked and status in (130, 143, 128 + signal.SIGHUP)
        stop_reason = "interrupted" if interrupted else "ended"
        warnings = [
            *watched.warnings,
            *_of_status(status, request.command, interrupted),
            *_not_exported(request, run_dir),
        ]
        if not any(run_dir.glob("*.blk")):
            _forget(run_dir)
            raise _nothing(request, status)
        with session.saving(run_dir, "io") as leaving:
            files = seal.seal(
                run_dir,
                request.out,
                SCHEMA,
                attrs={"stop_reason": stop_reason, "status": status},
                warnings=warnings,
                held=held,
                progress=leaving.leave,
            )
    return Traced(files[0], status, interrupted)


def _watching(request: Request, run_dir: Path, host: str) -> AbstractContextManager[run_watch.Watched]:
    if not run_watch.asked(request.layers):
        return nullcontext(run_watch.Watched())
    return run_watch.watching(request.layers, run_dir, host, request.most_bytes, STARTERS)


def _clock(host: str) -> list[Any]:
    from sonde._core import clock_pair

    ns, ticks = clock_pair()
    return [host, ticks, ns]


def _run(words: Sequence[str], env: Mapping[str, str], output: IO[Any] | None) -> tuple[int, bool]:
    """The command's status, and whether this process was told to end meanwhile."""
    came: list[int] = []
    child: list[subprocess.Popen[bytes]] = []

    def told(number: int, _frame: object) -> None:
        came.append(number)
        # A terminal tells all of its foreground at once; who told this process alone meant the command.
        if child and not (number == signal.SIGINT and _in_foreground()):
            child[0].send_signal(number)

    with signals(told, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
        try:
            child.append(subprocess.Popen(list(words), env=dict(env), stdout=output))
        except OSError as error:
            raise UsageError(
                "io.no_program",
                f"cannot start '{words[0]}': {error.strerror or error}",
                "give a program that this machine can run; of a script, its first line says with what",
            ) from None
        if came:
            child[0].send_signal(came[0])
        code = child[0].wait()
    return (128 - code if code < 0 else code), bool(came)


def _in_foreground() -> bool:
    for stream in (sys.stdin, sys.stderr):
        try:
            return os.tcgetpgrp(stream.fileno()) == os.getpgrp()
        except (OSError, ValueError, AttributeError):
            continue
    return False


def _of_status(status: int, command: Sequence[str], interrupted: bool) -> list[Warning]:
    if status == 0 or interrupted:
        return []
    how = f"with exit status {status}"
    if status > 128:
        with suppress(ValueError):
            how = f"by signal {status - 128} ({signal.Signals(status - 128).name})"
    return [
        Warning(
            "io.command_failed",
            f"'{Path(command[0]).name}' ended {how}; this is what it did until then",
            "its own words, above, say why",
        )
    ]


def _not_exported(request: Request, run_dir: Path) -> list[Warning]:
    """Functions that a map of the user's names, and that no library of the traced processes which it is for exports."""
    own = [layer for layer in request.layers if not layer.shipped]
    if not own:
        return []
    from sonde.io import run_exports

    seen = {
        Path(line.rstrip("\n").split("\t")[3])
        for table in run_dir.glob("*.functions")
        for line in table.read_text("utf-8", "replace").splitlines()
        if line.count("\t") == 3
    }
    lost = run_exports.nowhere(run_exports.found_in(own, sorted(path for path in seen if path.exists())))
    return [
        Warning(
            "io.not_exported",
            f"no library of the traced programs exports '{name}'{near}, which a layer map names",
            "correct the map, or delete the name",
        )
        for name, near in lost.items()
    ]


def _nothing(request: Request, status: int) -> EnvironmentFailure:
    """Why there is no trace: the first program of the line that the tracer cannot enter, or that it called nothing."""
    for word in request.command:
        found = shutil.which(word)
        reason = why_not(Program.read(Path(found))) if found and Path(found).name not in STARTERS else ""
        if reason:
            return EnvironmentFailure(
                "io.nothing_traced",
                f"nothing was traced (exit status {status}): {found} {reason}",
                "'strace -f' and uprobes can see into such a program; its libraries cannot be interposed",
            )
    return EnvironmentFailure(
        "io.nothing_traced",
        f"nothing was traced (exit status {status}): no traced process called a function of "
        f"{', '.join(layer.name for layer in request.layers)}",
        f"{typed('sonde', 'io', 'layers', 'check', request.command[0])} tells what can be seen of it",
    )


def _forget(run_dir: Path) -> None:
    """Removes the folder of a run that traced nothing; a file that is not the tracer's stays, and so it does."""
    for pattern in (TABLE, "*.tail", "*.functions", "*.shared", "*.refused", "watch.spec"):
        for path in run_dir.glob(pattern):
            path.unlink(missing_ok=True)
    session.forget(run_dir)
