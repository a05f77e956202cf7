"""mpirun of Open MPI (4 and 5) and of MPICH and related MPIs: how it is found, and its options.

Binding is always explicit, because the MPIs' defaults differ: one rank per core while there are enough cores, one rank
per hardware thread while there are enough threads, otherwise no binding. Ranks fill one host before the next.

The ranks when mpirun ends:
  SIGTERM, SIGINT   both MPIs end their ranks, here and on other hosts, then themselves.
  SIGKILL           nothing is passed on. Open MPI's ranks die at their next MPI call; MPICH's proxies notice the
                    closed socket and end theirs. `process.ProbeProcess` does not rely on either.
stdin goes to rank 0 only; the others read end of file (Open MPI) or nothing (MPICH).
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sonde.core import distribution
from sonde.core.errors import EnvironmentFailure, UsageError, nearest
from sonde.core.launch import YIELD_VARIABLE, Placement, built_flavours
from sonde.core.launch.cpus import available
from sonde.core.surroundings import place_of_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FLAVOURS = ("openmpi", "mpich")

# Names of programs by which a user's own command line may start its ranks.
COMMANDS = (
    "mpirun",
    "mpiexec",
    "mpirun.openmpi",
    "mpiexec.openmpi",
    "orterun",
    "prterun",
    "mpirun.mpich",
    "mpiexec.mpich",
    "mpiexec.hydra",
)

# Folders in which distributions install an MPI whose environment module is not loaded.
_UNLOADED = (
    "/usr/lib64/openmpi/bin",
    "/usr/lib64/mpich/bin",
    "/usr/lib64/mpi/gcc/openmpi5/bin",
    "/usr/lib64/mpi/gcc/openmpi4/bin",
    "/usr/lib64/mpi/gcc/mpich/bin",
)

# A resource manager that sets one of these variables gives mpirun the hosts and their slots.
RESOURCE_MANAGER = (
    "SLURM_JOB_ID",
    "PBS_NODEFILE",
    "LSB_HOSTS",
    "PE_HOSTFILE",
    "OAR_NODEFILE",
    "COBALT_NODEFILE",
)
BINDING_POLICIES = ("OMPI_MCA_hwloc_base_binding_policy", "PRTE_MCA_hwloc_default_binding_policy")


@dataclass(frozen=True)
class Mpi:
    """One MPI that can start ranks. flavour: "openmpi" or "mpich"; probes are built for a flavour."""

    flavour: str
    name: str  # as its developers write it: "Open MPI", "MPICH", "Intel MPI"
    version: str
    mpirun: Path

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def parse_version(text: str) -> tuple[str, str, str] | None:
    """(flavour, name, version) from the output of `mpirun --version`; None for an MPI that Sonde does not know.

    Intel MPI starts ranks like MPICH, with MPICH's options except those for binding, by its own manual.
    """
    if found := re.search(r"\((?:OpenRTE|Open MPI|PRRTE)\)\s+v?(\d+(?:\.\d+)+\w*)", text):
        return "openmpi", "Open MPI", found[1]
    if found := re.search(r"Intel\(R\) MPI Library.*?Version\s+(\d+(?:\.\d+)*)", text, re.S):
        return "mpich", "Intel MPI", found[1]
    if found := re.search(r"HYDRA build details:.*?Version:\s+(\d+(?:\.\d+)+\w*)", text, re.S):
        return "mpich", "MPICH", found[1]
    return None


def identify(mpirun: Path) -> Mpi | None:
    """The MPI of this mpirun; None if it does not run or is unknown.

    The folder must be its own and no link: Open MPI derives its prefix from it. On many machines /bin is a link to
    /usr/bin; from /bin the prefix is "/", which Open MPI refuses.
    """
    try:
        mpirun = mpirun.parent.resolve() / mpirun.name
        stamp = mpirun.stat().st_mtime_ns
    except OSError:
        return None
    return _identify(mpirun, stamp)


@lru_cache(maxsize=32)
def _identify(mpirun: Path, stamp: int) -> Mpi | None:
    try:
        ran = subprocess.run(
            [mpirun, "--version"],
            cwd=place_of_ranks(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    parsed = parse_version(ran.stdout + ran.stderr)
    return Mpi(*parsed, mpirun) if parsed else None


def _places() -> Iterator[Path]:
    if home := os.environ.get("MPI_HOME"):
        yield Path(home) / "bin" / "mpirun"
        yield Path(home) / "bin" / "mpiexec"
    if sys.prefix != sys.base_prefix:  # an MPI in the virtual environment was installed there on purpose
        yield Path(sys.prefix) / "bin" / "mpirun"
    for name in ("mpirun", "mpiexec", "mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra"):
        if found := shutil.which(name):
            yield Path(found)
    for folder in _UNLOADED:
        yield Path(folder) / "mpirun"


def candidates() -> list[Mpi]:
    """All MPIs of this machine, the first of each flavour, in the order of preference."""
    seen: dict[str, Mpi] = {}
    for place in _places():
        mpi = identify(place) if os.access(place, os.X_OK) else None
        if mpi:
            seen.setdefault(mpi.flavour, mpi)
    return list(seen.values())


def find_mpi(prefer: str | None = None) -> Mpi:
    """The MPI to start ranks with.

    `prefer`, else $SONDE_MPI, is a flavour ("openmpi", "mpich") or a path to mpirun or to an MPI's folder. Without
    either: $MPI_HOME, the virtual environment, PATH, and then the folders of Fedora and SUSE; an MPI with built probes
    comes before one without.

    Raises
    ------
    EnvironmentFailure  net.no_mpi: no MPI fits.
    UsageError          launch.unknown_mpi: `prefer` is neither a flavour nor a path.
    """
    wish = prefer or os.environ.get("SONDE_MPI") or ""
    if "/" in wish:
        return _at(Path(wish))
    if wish and wish not in FLAVOURS:
        raise UsageError(
            "launch.unknown_mpi",
            f"there is no MPI flavour '{wish}'{nearest(wish, FLAVOURS)}; flavours: {', '.join(FLAVOURS)}",
            "or give the path of an mpirun",
        )
    home = os.environ.get("MPI_HOME")
    if home and not wish and not any(identify(Path(home) / "bin" / name) for name in ("mpirun", "mpiexec")):
        raise EnvironmentFailure(
            "net.no_mpi",
            f"MPI_HOME is '{home}', but there is no mpirun of Open MPI or MPICH in {home}/bin",
            "correct MPI_HOME, or unset it to search PATH",
        )
    found = [mpi for mpi in candidates() if not wish or mpi.flavour == wish]
    if not found:
        raise no_mpi(wish)
    built = built_flavours()
    return next((mpi for mpi in found if mpi.flavour in built), found[0])


def _at(place: Path) -> Mpi:
    place = place.absolute()  # ranks may be started elsewhere
    for path in (place, place / "bin" / "mpirun", place / "mpirun"):
        if path.is_file() and (mpi := identify(path)):
            return mpi
    raise EnvironmentFailure(
        "net.no_mpi",
        f"'{place}' is not an mpirun of Open MPI or MPICH, nor a folder that contains one",
        "give the path of an mpirun, or 'openmpi' or 'mpich'",
    )


def no_mpi(flavour: str = "") -> EnvironmentFailure:
    """The error for a machine without (this) MPI."""
    what = {"openmpi": "Open MPI", "mpich": "MPICH", "": "Open MPI nor MPICH"}[flavour]
    looked = "$MPI_HOME, the virtual environment or PATH"
    return EnvironmentFailure(
        "net.no_mpi",
        f"no {what} was found in {looked}" if flavour else f"neither {what} was found in {looked}",
        f"install it ({distribution.install(flavour or 'openmpi')}), load its module, or set MPI_HOME; "
        "then run 'make setup' again",
    )


class Mpirun:
    """Starts ranks with the mpirun that `find_mpi` finds. `mpi`: a flavour or a path, as for `find_mpi`."""

    name = "mpirun"

    def __init__(self, mpi: str | None = None, found: Mpi | None = None) -> None:
        self.mpi = found or find_mpi(mpi)

    def placement(self, hosts: Sequence[str], ntasks: int) -> Placement:
        if not _only_here(hosts):
            if variable := _unbound():
                return Placement("none", False, f"ranks are not bound: {variable}=none")
            return Placement("core", False, "one rank per core; hosts are assumed to have enough cores")
        cpus = available()
        if ntasks > cpus.at_once:
            return Placement("none", True, f"{ntasks} ranks on {_count(cpus.at_once, 'CPU')}")
        if ntasks > cpus.cores:
            return Placement(
                "hwthread", False, f"{ntasks} ranks on {_count(cpus.cores, 'core')}: one hardware thread each"
            )
        return Placement("core", False, "a rank a core")

    def command(
        self, argv: Sequence[str], hosts: Sequence[str], ntasks: int, env: Mapping[str, str]
    ) -> list[str]:
        if ntasks < 1:
            raise UsageError("launch.ntasks", f"{ntasks} ranks were requested; allowed: 1 or more")
        placement = self.placement(hosts, ntasks)
        variables = dict(env)
        if placement.oversubscribed:
            variables.setdefault(YIELD_VARIABLE, "1")
        make = self._openmpi if self.mpi.flavour == "openmpi" else self._mpich
        return [str(self.mpi.mpirun), *make(hosts, ntasks, placement), *self._forward(variables), *argv]

    def _openmpi(self, hosts: Sequence[str], ntasks: int, placement: Placement) -> list[str]:
        line = self._openmpi_always(hosts)
        if hosts:
            line += ["--host", ",".join(f"{host}:{slots}" for host, slots in share(hosts, ntasks))]
        if placement.oversubscribed:
            # The same options for 4 and 5: --oversubscribe is an old name that 5 may drop.
            line += [
                "--map-by",
                "slot:OVERSUBSCRIBE",
                "--bind-to",
                "none",
                "--mca",
                "mpi_yield_when_idle",
                "1",
            ]
        elif placement.bind == "hwthread":
            line += ["--use-hwthread-cpus", "--map-by", "slot", "--bind-to", "hwthread"]
        elif placement.bind == "none":
            line += ["--map-by", "slot", "--bind-to", "none"]
        elif _only_here(hosts):
            line += ["--map-by", "slot", "--bind-to", "core"]
        else:
            line += ["--map-by", "slot", "--bind-to", "core:overload-allowed"]
        return [*line, "-n", str(ntasks)]

    def _openmpi_always(self, hosts: Sequence[str]) -> list[str]:
        line = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        remote = (
            shutil.which("ssh") or shutil.which("rsh") or any(os.environ.get(v) for v in RESOURCE_MANAGER)
        )
        if self.mpi.major < 5 and _only_here(hosts) and not remote:
            line += ["--mca", "plm", "isolated"]  # without ssh, version 4 refuses to start even local ranks
        return line

    def _mpich(self, hosts: Sequence[str], ntasks: int, placement: Placement) -> list[str]:
        line: list[str] = []
        if hosts and self.mpi.name == "Intel MPI":
            shares = share(hosts, ntasks)
            line += ["-hosts", ",".join(host for host, _ in shares), "-ppn", str(max(n for _, n in shares))]
        elif hosts:
            line += ["-hosts", ",".join(f"{host}:{slots}" for host, slots in share(hosts, ntasks))]
        if self.mpi.name != "Intel MPI":  # Intel MPI binds by itself (I_MPI_PIN) and has no -bind-to
            line += ["-bind-to", placement.bind]
        return [*line, "-n", str(ntasks)]

    def _forward(self, env: Mapping[str, str]) -> list[str]:
        """The options that give every rank `env`, on this host and on others."""
        if self.mpi.flavour == "openmpi":
            return [option for name, value in env.items() for option in ("-x", f"{name}={value}")]
        return [option for name, value in env.items() for option in ("-genv", name, value)]

    def inject(self, user_command: Sequence[str], env: Mapping[str, str]) -> list[str]:
        at = next((i for i, argument in enumerate(user_command) if Path(argument).name in COMMANDS), None)
        if at is None:
            raise UsageError(
                "launch.no_mpirun_in_command",
                f"no mpirun or mpiexec in '{' '.join(user_command)}'",
                "give the whole command that starts the ranks, such as 'mpirun -n 4 ./program'",
            )
        found = shutil.which(user_command[at])
        mpi = identify(Path(found)) if found else None
        if mpi is None:
            raise EnvironmentFailure(
                "net.no_mpi",
                f"'{user_command[at]}' is not an mpirun of Open MPI or MPICH",
                "give its full path",
            )
        return [*user_command[: at + 1], *Mpirun(found=mpi)._forward(env), *user_command[at + 1 :]]

    def per_host(self, argv: Sequence[str], hosts: Sequence[str]) -> list[list[str]]:
        lines = []
        for host in hosts:
            name = split_slots(host)[0]
            if self.mpi.flavour == "openmpi":
                flags = [*self._openmpi_always([name]), "--host", f"{name}:1", "--bind-to", "none"]
            elif self.mpi.name == "Intel MPI":
                flags = ["-hosts", name]
            else:
                flags = ["-hosts", name, "-bind-to", "none"]
            lines.append([str(self.mpi.mpirun), *flags, "-n", "1", *argv])
        return lines


def split_slots(host: str) -> tuple[str, int | None]:
    """("n1", 4) for "n1:4", ("n1", None) for "n1"; an IPv6 address in brackets keeps its colons."""
    name, colon, slots = host.rpartition(":")
    if colon and re.fullmatch(r"[0-9]{1,9}", slots) and (name.count(":") == 0 or name.endswith("]")):
        return name, int(slots)
    return host, None


def share(hosts: Sequence[str], ntasks: int) -> list[tuple[str, int]]:
    """The number of ranks on each host: its own number if it has one, otherwise an even share of the rest.

    Raises UsageError: the given numbers do not add up to `ntasks` ranks, and every host has a number.
    """
    parts = [split_slots(host) for host in hosts]
    fixed = sum(slots for _, slots in parts if slots is not None)
    open_hosts = sum(slots is None for _, slots in parts)
    left = max(0, ntasks - fixed)
    if left and not open_hosts:
        raise UsageError(
            "launch.slots",
            f"{ntasks} ranks were requested, but {', '.join(hosts)} together have {fixed} slots",
            f"use --ntasks {fixed}, or raise the number after the colon",
        )
    each = -(-left // open_hosts) if open_hosts else 0
    return [(name, slots if slots is not None else each) for name, slots in parts if slots or each]


def _only_here(hosts: Sequence[str]) -> bool:
    """Whether all ranks run on this machine, and no resource manager can place them elsewhere."""
    if not hosts:
        return not any(os.environ.get(variable) for variable in RESOURCE_MANAGER)
    here = {"localhost", "127.0.0.1", socket.gethostname(), socket.gethostname().partition(".")[0]}
    return all(split_slots(host)[0] in here for host in hosts)


def _unbound() -> str:
    """The variable that asks Open MPI not to bind ranks; "" if none does.

    A virtual cluster sets one, because its nodes share this machine's cores: with binding, the first rank of each node
    would be on the same core. MPICH's ranks are then not bound either.
    """
    return next((name for name in BINDING_POLICIES if os.environ.get(name, "").lower() == "none"), "")


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
