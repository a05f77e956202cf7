"""Launchers, which start a probe's ranks. A small registry with one file per launcher.

A launcher turns (what to run, where, how many) into a command line and does nothing else; `process.ProbeProcess` runs
it. To add one: write a module here with a class that has `name` and the four methods of `Launcher`, and add a line to
LAUNCHERS.
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

# Set to 1 for every rank when ranks share cores: a probe must then yield its core while it waits. Open MPI does so
# itself when its settings ask for it. MPICH's ch4 device spins until the kernel takes the core: a barrier of 4 ranks on
# 2 cores then took 10 ms instead of 16 µs (MPICH 4.0.2 and 5.0.2).
YIELD_VARIABLE = "SONDE_YIELD"


@dataclass(frozen=True)
class Placement:
    """The placement of the ranks.

    bind: "core", "hwthread" or "none". oversubscribed: whether there are more ranks than this machine can run at once,
    as far as it is known before the start. reason: one clause for a person.
    """

    bind: str
    oversubscribed: bool
    reason: str


class Launcher(Protocol):
    """The methods of every launcher. `hosts` is expanded ("n1", "n2", or "n1:4" with slots); empty: this host."""

    name: str

    def placement(self, hosts: Sequence[str], ntasks: int) -> Placement:
        """The binding of `command` with the same arguments, and whether ranks share cores."""

    def command(
        self, argv: Sequence[str], hosts: Sequence[str], ntasks: int, env: Mapping[str, str]
    ) -> list[str]:
        """The command line that starts `ntasks` ranks of `argv`, each with `env` added to the inherited environment."""

    def inject(self, user_command: Sequence[str], env: Mapping[str, str]) -> list[str]:
        """The user's own launcher line, changed so that every rank gets `env`."""

    def per_host(self, argv: Sequence[str], hosts: Sequence[str]) -> list[list[str]]:
        """One command line for each host, which runs `argv` there once."""


def names() -> tuple[str, ...]:
    """The values that --launcher accepts."""
    return ("auto", *LAUNCHERS)


def launcher(name: str = "auto", *, mpi: str | None = None) -> Launcher:
    """The launcher with this name.

    "auto" is srun inside a Slurm job, else mpirun if an MPI is found, else local. `mpi` asks for a flavour ("openmpi",
    "mpich") or a path to mpirun.

    Raises
    ------
    UsageError          no launcher has this name.
    EnvironmentFailure  mpirun was requested by name or by `mpi`, and there is none.
    """
    if name == "auto":
        return _automatic(mpi)
    if name not in LAUNCHERS:
        raise UsageError(
            "launch.unknown",
            f"there is no launcher '{name}'{nearest(name, names())}; launchers: {', '.join(names())}",
            "leave --launcher out to choose one automatically",
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
    """Whether this process runs inside a Slurm allocation."""
    return bool(os.environ.get("SLURM_JOB_ID"))


def probe(name: str, flavour: str) -> Path:
    """The native probe `name` for this MPI flavour.

    Raises EnvironmentFailure: it was not built for this flavour; the hint names the flavours that it was built for.
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
    """The folder of the native probes: next to the native module, one folder per MPI flavour."""
    return Path(cast("str", import_module("sonde._core").__file__)).parent / "libexec"


def built_flavours() -> tuple[str, ...]:
    """MPI flavours that probes were built for."""
    try:
        return tuple(sorted(entry.name for entry in libexec().iterdir() if entry.is_dir()))
    except OSError:
        return ()


def with_environment(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """`argv` run through env(1), by which a plain command gets variables on a line that can be pasted."""
    return ["env", *(f"{name}={value}" for name, value in env.items()), *argv] if env else list(argv)
