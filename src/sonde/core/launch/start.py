"""The settings before ranks start: launcher, MPI and program, the number of ranks, and the places of ranks and data."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sonde.core import hostlist, run_folder, seal
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
    """How the ranks are started. hosts: in the launcher's form; empty: this host. program: the room's probe.

    mpi: None for a probe without MPI, one process on this machine.
    """

    launcher: Launcher
    hosts: tuple[str, ...]
    program: Path
    mpi: Mpi | None

    def line(self, arguments: Sequence[str], ntasks: int, env: Mapping[str, str]) -> list[str]:
        """The command line that starts `ntasks` ranks of the probe with `arguments`, each with `env` added."""
        return self.launcher.command([str(self.program), *arguments], self.hosts, ntasks, env)

    @property
    def only_here(self) -> bool:
        """Whether all ranks certainly run on this machine; a resource manager may have other hosts."""
        if self.hosts or self.launcher.name not in ("local", "mpirun"):
            return False
        return self.launcher.name == "local" or not any(map(os.environ.get, RESOURCE_MANAGER))

    @property
    def hostlist(self) -> str:
        """The hosts without their slots, folded: "n[1-4]"; this host's name if none was given."""
        return hostlist.listed([host.partition(":")[0] for host in self.hosts] or [socket.gethostname()])


def prepare(room: str, program: str, name: str, hosts: Sequence[str]) -> Start:
    """Find the launcher, the MPI and a room's probe.

    program: "sonde-net". name: of a launcher, or "auto". hosts: expanded.

    Raises
    ------
    EnvironmentFailure  <room>.no_mpi, <room>.no_probe. UsageError  launch.unknown.
    """
    try:
        chosen = launcher(name)
        if chosen.name == "local":
            chosen = launcher(
                "mpirun"
            )  # raises an error about the missing part: this measurement needs ranks
        mpi = chosen.mpi if isinstance(chosen, Mpirun) else Mpirun().mpi
        return Start(chosen, tuple(hosts), probe(program, mpi.flavour), mpi)
    except EnvironmentFailure as error:
        if error.code in ("net.no_mpi", "net.no_probe"):  # net had these codes first
            error.code = f"{room}.{error.code.partition('.')[2]}"
        raise


def prepare_alone(room: str, program: str) -> Start:
    """A room's probe without MPI: one process here. program: "sonde-storebench".

    Raises
    ------
    EnvironmentFailure  <room>.no_probe: it was not built.
    """
    path = libexec() / program
    if not os.access(path, os.X_OK):
        raise EnvironmentFailure(
            f"{room}.no_probe",
            f"there is no {program} in {path.parent}",
            "'sonde doctor' shows what to install; then 'make setup' builds it",
        )
    return Start(launcher("local"), (), path, None)


def default_ntasks() -> int:
    """The default number of ranks: Slurm's number, else one rank per core, at least two."""
    given = os.environ.get("SLURM_NTASKS", "")
    return max(2, int(given) if given.isdigit() else available().cores)


def cluster() -> str:
    """The name of the cluster for new datasets: Slurm's name, else this host's."""
    return os.environ.get("SLURM_CLUSTER_NAME") or socket.gethostname()


def output_path(room: str, output: Path | None) -> Path:
    """The path of a room's dataset: as given, or a new name here.

    Raises
    ------
    EnvironmentFailure  core.cannot_write: its folder does not exist. UsageError  <room>.bad_output: it is a folder.
    """
    if output is None:
        return Path(run_folder.dataset_name(room, cluster()))
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
            "create it, or choose another with --output",
        )
    return output if output.suffix == ".nc" else output.with_name(output.name + ".nc")


def replaced(out: Path, parts: Sequence[str] = ("",)) -> list[Warning]:
    """A warning about datasets that a run replaces. Call it before the run, because they no longer exist after it.

    out, parts: as for `seal.targets`.
    """
    existing = [path for _, path in seal.targets(run_folder.folder_of(out), out, parts) if path.exists()]
    if not existing:
        return []
    names = ", ".join(map(str, existing))
    return [
        Warning("core.replaced", f"replaces the earlier {names}", "to keep both, give another name with -o")
    ]


def transport(environment: Mapping[str, str]) -> str:
    """The user's settings of the MPI's transport; "default" without any. The MPI does not report the transport that it
    uses.
    """
    chosen = [f"{name}={environment[name]}" for name in TRANSPORT_VARIABLES if environment.get(name)]
    return " ".join(chosen) or "default"


def mpi_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the environment that control MPIs and their transports; all others stay private."""
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
    """The number of ranks that a survey requests, or the default."""
    return default_ntasks() if call.ntasks is None else call.ntasks
