"""What is settled before ranks start: launcher, MPI and program, how many ranks, and where they and the data go."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sonde.core import hostlist, seal
from sonde.core.errors import EnvironmentFailure, UsageError, Warning, typed
from sonde.core.launch import Launcher, launcher, libexec, probe
from sonde.core.launch.cpus import available
from sonde.core.launch.mpirun import RESOURCE_MANAGER, Mpi, Mpirun
from sonde.core.survey_entry import Call

MPI_PREFIXES = ("OMPI_MCA_", "PRTE_MCA_", "MPIR_CVAR_", "MPICH_", "I_MPI_", "UCX_", "FI_", "HYDRA_")
TRANSPORT_VARIABLES = (
    "OMPI_MCA_pml",
    "OMPI_MCA_btl",
    "OMPI_MCA_mtl",
    "UCX_TLS",
    "UCX_NET_DEVICES",
    "FI_PROVIDER",
    "MPIR_CVAR_CH4_NETMOD",
)


@dataclass(frozen=True)
class Start:
    """How the ranks are started. hosts: as the launcher takes them; empty: here. program: the room's probe.

    mpi: None for a probe that needs none, one process on this machine.
    """

    launcher: Launcher
    hosts: tuple[str, ...]
    program: Path
    mpi: Mpi | None

    def line(self, words: Sequence[str], ntasks: int, env: Mapping[str, str]) -> list[str]:
        """The command line that starts `ntasks` ranks of the probe with `words`, each with `env` on top."""
        return self.launcher.command([str(self.program), *words], self.hosts, ntasks, env)

    @property
    def only_here(self) -> bool:
        """Whether it is certain that all ranks run on this machine; a resource manager may know others."""
        if self.hosts or self.launcher.name not in ("local", "mpirun"):
            return False
        return self.launcher.name == "local" or not any(map(os.environ.get, RESOURCE_MANAGER))

    @property
    def hostlist(self) -> str:
        """The hosts without their slots, folded: "n[1-4]"; this host's name when none was asked for."""
        return hostlist.listed([host.partition(":")[0] for host in self.hosts] or [socket.gethostname()])


def prepare(room: str, program: str, name: str, hosts: Sequence[str]) -> Start:
    """Finds launcher, MPI and a room's probe.

    program: "sonde-net". name: of a launcher, or "auto". hosts: expanded.

    Raises
    ------
    EnvironmentFailure  <room>.no_mpi, <room>.no_probe. UsageError  launch.unknown.
    """
    try:
        chosen = launcher(name)
        if chosen.name == "local":
            chosen = launcher("mpirun")  # raises what is missing: what is measured needs ranks
        mpi = chosen.mpi if isinstance(chosen, Mpirun) else Mpirun().mpi
        return Start(chosen, tuple(hosts), probe(program, mpi.flavour), mpi)
    except EnvironmentFailure as error:
        if error.code in ("net.no_mpi", "net.no_probe"):  # net was there first
            error.code = f"{room}.{error.code.partition('.')[2]}"
        raise


def prepare_alone(room: str, program: str) -> Start:
    """A room's probe that needs no MPI: one process here. program: "sonde-storebench".

    Raises
    ------
    EnvironmentFailure  <room>.no_probe: it was not built.
    """
    path = libexec() / program
    if not os.access(path, os.X_OK):
        raise EnvironmentFailure(
            f"{room}.no_probe",
            f"there is no {program} in {path.parent}",
            "'sonde doctor' says what to install; then 'make setup' builds it",
        )
    return Start(launcher("local"), (), path, None)


def default_ntasks() -> int:
    """Ranks when nobody says: what Slurm gave, else a rank a core, two at least."""
    given = os.environ.get("SLURM_NTASKS", "")
    return max(2, int(given) if given.isdigit() else available().cores)


def cluster() -> str:
    """Name of the cluster for new datasets: Slurm's word, else this host's."""
    return os.environ.get("SLURM_CLUSTER_NAME") or socket.gethostname()


def output_path(room: str, output: Path | None) -> Path:
    """Where a room's dataset goes: as asked, or a new name here.

    Raises
    ------
    EnvironmentFailure  core.cannot_write: its folder is not there. UsageError  <room>.bad_output: it is a
    folder.
    """
    if output is None:
        return Path(seal.dataset_name(room, cluster()))
    if output.is_dir():
        raise UsageError(
            f"{room}.bad_output",
            f"--output {output} is a folder",
            f"name the dataset: {typed('-o', output / f'{room}.nc')}",
        )
    if not output.parent.is_dir():
        raise EnvironmentFailure(
            "core.cannot_write",
            f"cannot write {output}: there is no folder {output.parent}",
            "make it, or choose another with --output",
        )
    return output if output.suffix == ".nc" else output.with_name(output.name + ".nc")


def replaced(out: Path, parts: Sequence[str] = ("",)) -> list[Warning]:
    """What is said of datasets that a run replaces; asked before it, as they are there no longer after it.

    out, parts: as `seal.targets` takes them.
    """
    there = [path for _, path in seal.targets(seal.run_folder(out), out, parts) if path.exists()]
    if not there:
        return []
    names = ", ".join(map(str, there))
    return [
        Warning("core.replaced", f"replaces {names}, there before", "to keep both, give another name with -o")
    ]


def transport(environment: Mapping[str, str]) -> str:
    """What the user told the MPI about its transport; "default" when nothing. What it then took is its secret."""
    told = [f"{name}={environment[name]}" for name in TRANSPORT_VARIABLES if environment.get(name)]
    return " ".join(told) or "default"


def mpi_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What of the environment steers MPIs and their transports; nothing else of it is anybody's business."""
    return {name: value for name, value in environment.items() if name.startswith(MPI_PREFIXES)}


def start_for(call: Call, program: str) -> Start:
    """How a survey's ranks of a room are started.

    Raises
    ------
    EnvironmentFailure  <room>.no_mpi, <room>.no_probe.
    """
    hosts = hostlist.expand(call.hosts) if call.hosts else ()
    return prepare(call.room, program, call.launcher, hosts)


def ranks_for(call: Call) -> int:
    """Ranks that a survey was asked for, or as many as there are by default."""
    return default_ntasks() if call.ntasks is None else call.ntasks
