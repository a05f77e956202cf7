"""A traced run: the request, the command line to start, and the variables that load the tracer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonde.core import launch
from sonde.core.errors import EnvironmentFailure, UsageError, nearest
from sonde.core.launch.mpirun import COMMANDS
from sonde.core.launch.start import default_ntasks
from sonde.core.lines import kernel_lines
from sonde.io.maps.layers import Layer

TRACER = "libsonde-io.so"
TABLE = "table"
LAUNCHERS = (*COMMANDS, "srun")
# Programs that only start others. In the trace their own calls would look like calls of the job.
STARTERS_OF_RANKS = (
    *COMMANDS, "orterun", "orted", "prte", "prted", "prterun", "hydra_pmi_proxy", "hydra_bstrap_proxy", "srun",
    "slurmstepd",
)  # fmt: skip
_TOOLS = (
    "env", "timeout", "nice", "nohup", "time", "setsid", "stdbuf", "taskset", "numactl", "sh", "bash", "dash", "zsh",
    "ssh", "rsh",
)  # fmt: skip
STARTERS = (*STARTERS_OF_RANKS, *_TOOLS)
# The folders where a system has its tools. A program of the same name in another folder is the user's own.
_SYSTEM = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin")


@dataclass(frozen=True)
class Request:
    """A description of what to trace.

    command : the user's words; () if only `attach` is traced. layers: from the application down. out: the path of the
    dataset. most_bytes: the limit of the trace on each node; 0: no limit. launcher: "auto", or the launcher whose
    command line `command` is. ranks, hosts: how many ranks `launcher` starts of `command`, and where; 0: `command` is
    the launcher's line already. typed: the command line of Sonde itself. uprobes: also trace functions that cannot be
    interposed. attach: numbers of running processes. seconds: how long to trace if there is no command; None: until the
    processes end. spared: names of layers that are not probed in attached processes.
    starters: also trace programs that mostly start others, such as shells.
    gluster: a volume whose bricks' counters are read; "" for none.
    start: makes the line to start from the variables that its program must get; None: the line is `command`, which
    passes them on. env: more variables, which `command` already contains; with `start`, all variables. cwd: the working
    directory; None: the current one. limit_s: the time after which the command is ended; None: never.
    """

    command: Sequence[str]
    layers: Sequence[Layer]
    out: Path
    most_bytes: int
    typed: Sequence[str]
    launcher: str = "auto"
    ranks: int = 0
    hosts: Sequence[str] = ()
    uprobes: bool = False
    attach: Sequence[int] = ()
    seconds: float | None = None
    spared: Sequence[str] = ()
    gluster: str = ""
    starters: bool = False
    attrs: Mapping[str, Any] = field(default_factory=dict)
    start: Callable[[Mapping[str, str]], Sequence[str]] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    limit_s: float | None = None

    @property
    def starts_ranks(self) -> bool:
        """Whether ranks are started, by Sonde or by the typed command."""
        return bool(self.ranks) or any(Path(word).name in LAUNCHERS for word in self.command)


def library() -> Path:
    """The path of the tracer. EnvironmentFailure  io.not_built."""
    path = launch.libexec() / TRACER
    if not path.exists():
        raise EnvironmentFailure(
            "io.not_built",
            f"this build of Sonde has no tracer ({path})",
            "it is written for x86-64; 'sonde doctor' lists what is missing",
        )
    return path


def environment(folder: Path, starters: bool = False) -> dict[str, str]:
    """The environment variables that trace a program into a run's folder.

    starters : also trace shells and other programs that mostly start others
    """
    before = os.environ.get("LD_PRELOAD", "")
    return {
        "LD_PRELOAD": f"{library()}{':' if before else ''}{before}",
        "SONDE_IO_FOLDER": str(folder.resolve()),
        "SONDE_IO_TABLE": str(folder.resolve() / TABLE),
        "SONDE_IO_SKIP": ":".join([*STARTERS_OF_RANKS, *([] if starters else system_tools())]),
        "SONDE_IO_SECCOMP": _filters(),
    }


def system_tools() -> list[str]:
    """The files of the system's tools that start other programs, under the names that the kernel gives them when they
    run."""
    found = {(Path(folder) / name).resolve() for folder in _SYSTEM for name in _TOOLS}
    # Where one file is all tools (busybox), it cannot be distinguished from the tools that do I/O.
    return sorted(str(path) for path in found if path.name in _TOOLS and path.is_file())


def _filters() -> str:
    """The seccomp state of this process, as "mode:count" ("2:1" in a container). A traced program may have more
    filters, which nobody saw."""
    with suppress(OSError):
        status = dict(line.split(":", 1) for line in kernel_lines(Path("/proc/self/status")) if ":" in line)
        mode, count = (status.get(key, "0").strip() for key in ("Seccomp", "Seccomp_filters"))
        return f"{mode}:{count}"
    return "0:0"


def line(request: Request, folder: Path) -> list[str]:
    """The command line to start: the user's own; an mpirun or srun line gets options that pass the tracer's variables
    on.

    Raises
    ------
    UsageError  io.no_program. EnvironmentFailure  io.not_built. Errors of `Launcher.inject`.
    """
    command = list(request.command)
    if not command:
        return []
    if shutil.which(command[0]) is None:
        raise _no_program(command[0])
    return with_variables(request, environment(folder, request.starters))


def _no_program(name: str) -> UsageError:
    """The error for a command that cannot be started, with the name of a program that was perhaps meant."""
    path = Path(name)
    if path.exists():
        problem = "is a folder" if path.is_dir() else "is not executable"
        return UsageError("io.no_program", f"'{name}' {problem}", "give a program and its arguments after --")
    names = {entry.name for entry in path.parent.iterdir()} if path.parent.is_dir() and "/" in name else ()
    return UsageError(
        "io.no_program",
        f"no program '{name}' was found{nearest(path.name, tuple(names))}",
        "give a program and its arguments after --, as you would start it",
    )


def ranks_of(command: Sequence[str], launcher: str, ntasks: int | None, hosts: Sequence[str]) -> int:
    """How many ranks of a command Sonde starts through `launcher`; 0 if the command runs as it is.

    Raises
    ------
    UsageError  io.two_launchers: ranks were requested, but the command starts its own; io.no_program: no command given.
    """
    own = next((word for word in command if Path(word).name in LAUNCHERS), "")
    if ntasks is None and not hosts:
        return default_ntasks() if launcher in ("mpirun", "srun") and command and not own else 0
    if not command:
        raise UsageError("io.no_program", "--ntasks and --hosts need a program to start", "give one after --")
    if own:
        raise UsageError(
            "io.two_launchers",
            f"--ntasks and --hosts are for a program whose ranks Sonde starts, but '{own}' starts its own "
            "ranks",
            f"leave these options out, or leave out {own}",
        )
    return default_ntasks() if ntasks is None else ntasks


def with_variables(request: Request, env: Mapping[str, str]) -> list[str]:
    """The line to start; an mpirun or srun line gets options that pass `env` on.

    Errors of `launch.launcher`, `Launcher.command` and `Launcher.inject`.
    """
    command = list(request.command)
    if request.ranks:
        return launch.launcher(request.launcher).command(command, request.hosts, request.ranks, env)
    name = Path(command[0]).name
    how = request.launcher
    if how == "auto":
        how = "mpirun" if name in COMMANDS else "srun" if name == "srun" else "local"
    if how == "local" or not env:
        return command
    return launch.launcher(how).inject(command, env)
