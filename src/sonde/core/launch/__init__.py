"""Launchers: how a probe's ranks are started. A small registry; one file a launcher.

A launcher turns (what to run, where, how many) into a command line and nothing else; `process.ProbeProcess`
runs it. To add one: a module here with a class that has `name` and the four methods of `Launcher`, and a
line in LAUNCHERS.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from sonde.core import distribution
from sonde.core.errors import EnvironmentFailure, UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LAUNCHERS = {
    "local": "sonde.core.launch.local:Local",
    "mpirun": "sonde.core.launch.mpirun:Mpirun",
    "srun": "sonde.core.launch.srun:Srun",
}

# Set to 1 for every rank when ranks share cores: a probe must then give its core away while it waits. Open
# MPI does so by itself when told; MPICH's ch4 device spins until the kernel takes the core, which was
# measured to cost 10 ms instead of 16 µs for a barrier of 4 ranks on 2 cores (MPICH 4.0.2 and 5.0.2).
YIELD_VARIABLE = "SONDE_YIELD"


@dataclass(frozen=True)
class Placement:
    """Where ranks will sit.

    bind: "core", "hwthread" or "none". oversubscribed: more ranks than this machine can run at once, as far
    as it is known before the start. reason: one clause for a person.
    """

    bind: str
    oversubscribed: bool
    reason: str


class Launcher(Protocol):
    """What every launcher can do. `hosts` is expanded ("n1", "n2", or "n1:4" with slots); empty: here."""

    name: str

    def placement(self, hosts: Sequence[str], ntasks: int) -> Placement:
        """How `command` with the same arguments will bind, and whether ranks share cores."""

    def command(
        self, argv: Sequence[str], hosts: Sequence[str], ntasks: int, env: Mapping[str, str]
    ) -> list[str]:
        """The command line that starts `ntasks` ranks of `argv`, each with `env` on top of what it
        inherits.
        """

    def inject(self, user_command: Sequence[str], env: Mapping[str, str]) -> list[str]:
        """The user's own launcher line, changed so that every rank gets `env`."""

    def per_host(self, argv: Sequence[str], hosts: Sequence[str]) -> list[list[str]]:
        """One command line a host, each of which runs `argv` there once."""


def names() -> tuple[str, ...]:
    """What --launcher takes."""
    return ("auto", *LAUNCHERS)


def launcher(name: str = "auto", *, mpi: str | None = None) -> Launcher:
    """The launcher called `name`.

    "auto" is srun inside a Slurm job, else mpirun where an MPI is found, else local. `mpi` asks for a flavour
    ("openmpi", "mpich") or a path to mpirun.

    Raises
    ------
    UsageError          no launcher has this name.
    EnvironmentFailure  mpirun is asked for by name or by `mpi`, and there is none.
    """
    if name == "auto":
        return _automatic(mpi)
    if name not in LAUNCHERS:
        raise UsageError(
            "launch.unknown",
            f"there is no launcher '{name}'{nearest(name, names())}; there are: {', '.join(names())}",
            "leave --launcher out to have one chosen",
        )
    module, _, kind = LAUNCHERS[name].partition(":")
    return cast("Launcher", getattr(import_module(module), kind)(mpi=mpi))


def _automatic(mpi: str | None) -> Launcher:
    if in_slurm_job() and shutil.which("srun"):
        return launcher("srun", mpi=mpi)
    if mpi or os.environ.get("SONDE_MPI") or os.environ.get("MPI_HOME") or _mpi_on_path():
        return launcher("mpirun", mpi=mpi)
    return launcher("local")


def _mpi_on_path() -> bool:
    module, _, _ = LAUNCHERS["mpirun"].partition(":")
    return bool(import_module(module).candidates())


def in_slurm_job() -> bool:
    """Is this process inside a Slurm allocation?"""
    return bool(os.environ.get("SLURM_JOB_ID"))


def probe(name: str, flavour: str) -> Path:
    """The native probe `name` built for this MPI flavour.

    Raises EnvironmentFailure: it was not built for this flavour; the hint says for which it was.
    """
    path = libexec() / flavour / name
    if not os.access(path, os.X_OK):
        raise _missing_probe(name, flavour)
    return path


def _missing_probe(name: str, flavour: str) -> EnvironmentFailure:
    """The error for a probe that was not built for this MPI."""
    built = built_flavours()
    others = f"it was built for {' and '.join(built)}" if built else "no probe was built here"
    if built:
        hint = (
            f"install {flavour}'s compiler wrapper ({distribution.install(flavour)}) and run 'make setup', "
        )
        hint += f"or set SONDE_MPI={built[0]}"
    else:
        hint = f"install an MPI ({distribution.install('openmpi')}) and run 'make setup'"
    return EnvironmentFailure("net.no_probe", f"{name} was not built for {flavour}; {others}", hint)


def libexec() -> Path:
    """Where the native probes are: beside the native module, one folder an MPI flavour."""
    return Path(cast("str", import_module("sonde._core").__file__)).parent / "libexec"


def built_flavours() -> tuple[str, ...]:
    """MPI flavours that probes were built for."""
    try:
        return tuple(sorted(entry.name for entry in libexec().iterdir() if entry.is_dir()))
    except OSError:
        return ()


def with_environment(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """`argv` run through env(1), which is how a plain command gets variables on a line that can be pasted."""
    return ["env", *(f"{name}={value}" for name, value in env.items()), *argv] if env else list(argv)
