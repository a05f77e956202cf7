"""srun of Slurm, inside an allocation or outside one (where it makes its own).

stdin goes to task 0 only (--input=0); stdout comes at once (--unbuffered); a task that fails ends the others
(--kill-on-bad-exit). Inside a job the step may share the resources of the batch step (--overlap, Slurm 20.11 and
later). SIGTERM to srun ends the step's tasks on every node; when srun is killed, slurmctld ends them at its timeout.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.core.launch import YIELD_VARIABLE, Placement, built_flavours, in_slurm_job
from sonde.core.launch.mpirun import candidates, find_mpi, share, split_slots
from sonde.core.surroundings import place_of_ranks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Srun:
    """Starts ranks as a Slurm step. `mpi`: the flavour of the probes, which decides on the PMI plug-in."""

    name = "srun"

    def __init__(self, mpi: str | None = None) -> None:
        found = shutil.which("srun")
        if found is None:
            raise EnvironmentFailure(
                "launch.no_srun", "srun is not on PATH", "load Slurm's module, or use --launcher mpirun"
            )
        self.srun = Path(found)
        self.flavour = _flavour(mpi)
        self.plugin = choose_plugin(self.flavour, _plugins(self.srun))

    def placement(self, hosts: Sequence[str], ntasks: int) -> Placement:
        cpus = job_cpus(os.environ)
        if cpus is not None and ntasks > cpus and not hosts:
            return Placement("none", True, f"{ntasks} ranks on the job's {cpus} CPUs")
        return Placement("core", False, "one rank per core, as Slurm granted them")

    def command(
        self, argv: Sequence[str], hosts: Sequence[str], ntasks: int, env: Mapping[str, str]
    ) -> list[str]:
        if ntasks < 1:
            raise UsageError("launch.ntasks", f"{ntasks} ranks were requested; allowed: 1 or more")
        placement = self.placement(hosts, ntasks)
        line = [
            str(self.srun),
            f"--ntasks={ntasks}",
            f"--mpi={self.plugin}",
            "--input=0",
            "--unbuffered",
            "--kill-on-bad-exit=1",
            "--distribution=block:block",
        ]
        if in_slurm_job():
            line.append("--overlap")
        if hosts:
            shares = share(hosts, ntasks)
            written = any(split_slots(host)[1] is not None for host in hosts)
            if written and len({slots for _, slots in shares}) > 1:
                raise UsageError(
                    "launch.srun_slots",
                    f"srun puts the same number of ranks on each host, not {', '.join(hosts)}",
                    "leave the numbers out, or use --launcher mpirun",
                )
            line += [f"--nodelist={','.join(name for name, _ in shares)}", f"--nodes={len(shares)}"]
            line.append(f"--ntasks-per-node={max(slots for _, slots in shares)}")
        variables = dict(env)
        if placement.oversubscribed:
            line += ["--overcommit", "--cpu-bind=none"]
            variables.setdefault(YIELD_VARIABLE, "1")
        else:
            line.append("--cpu-bind=cores")
        return [*line, *self._export(variables), *argv]

    def inject(self, user_command: Sequence[str], env: Mapping[str, str]) -> list[str]:
        at = next((i for i, argument in enumerate(user_command) if Path(argument).name == "srun"), None)
        if at is None:
            raise UsageError(
                "launch.no_srun_in_command",
                f"no srun in '{' '.join(user_command)}'",
                "give the whole command that starts the ranks, such as 'srun -n 4 ./program'",
            )
        before, own = list(user_command[: at + 1]), list(user_command[at + 1 :])
        if not env:
            return [*before, *own]
        inherited = "ALL"
        if (place := _own_export(own)) is not None:  # srun uses the last one of two
            first, length = place
            inherited = own[first + length - 1].removeprefix("--export=")
            del own[first : first + length]
        return [*before, *self._export(env, inherited), *own]

    def per_host(self, argv: Sequence[str], hosts: Sequence[str]) -> list[list[str]]:
        overlap = ["--overlap"] if in_slurm_job() else []
        return [
            [
                str(self.srun),
                "--nodes=1",
                "--ntasks=1",
                f"--nodelist={split_slots(host)[0]}",
                *overlap,
                "--input=0",
                *argv,
            ]
            for host in hosts
        ]

    @staticmethod
    def _export(env: Mapping[str, str], inherited: str = "ALL") -> list[str]:
        """inherited: the variables that are passed on as well, in the form of --export; for NONE and NIL nothing is
        added.
        """
        for name, value in env.items():
            if "," in value:
                raise UsageError(
                    "launch.srun_comma",
                    f"srun cannot pass on {name}='{value}': a comma ends a variable in --export",
                    "use a value without a comma, or export the variable before srun",
                )
        rest = [] if inherited.upper() in ("NONE", "NIL") else [inherited]
        pairs = ",".join([*rest, *(f"{name}={value}" for name, value in env.items())])
        return [f"--export={pairs}"] if env else []


def _flavour(wish: str | None) -> str:
    """The MPI flavour of a step's probes. A Slurm machine may have no mpirun at all; then the built probes decide."""
    wish = wish or os.environ.get("SONDE_MPI")
    if not wish and not candidates() and built_flavours():
        return built_flavours()[0]
    return find_mpi(wish).flavour


def _own_export(arguments: Sequence[str]) -> tuple[int, int] | None:
    """The index of srun's own --export among its arguments, and the number of arguments that it takes.

    An argument after an option may be its value, or the program: only srun knows. Two arguments without a dash are the
    program.
    """
    for at, argument in enumerate(arguments):
        if argument.startswith("--export="):
            return at, 1
        if argument == "--export" and at + 1 < len(arguments):
            return at, 2
        if argument == "--" or (
            not argument.startswith("-")
            and (at == 0 or "=" in arguments[at - 1] or not arguments[at - 1].startswith("-"))
        ):
            return None
    return None


def choose_plugin(flavour: str, plugins: Sequence[str]) -> str:
    """The --mpi plug-in of srun for this MPI: Open MPI uses PMIx, MPICH uses PMI, which pmi2 provides.

    Raises EnvironmentFailure: Slurm has no suitable plug-in.
    """
    wanted = {"openmpi": ("pmix", "pmi2"), "mpich": ("pmi2", "cray_shasta", "pmix")}[flavour]
    for name in wanted:
        if name in plugins:
            return name
        versions = sorted(plugin for plugin in plugins if plugin.startswith(f"{name}_v"))
        if versions:
            return versions[-1]
    raise EnvironmentFailure(
        "launch.no_pmi",
        f"srun has the plug-ins {', '.join(plugins) or 'none'}; {flavour} needs {' or '.join(wanted)}",
        "use --launcher mpirun inside the job",
    )


@lru_cache(maxsize=4)
def _plugins(srun: Path) -> tuple[str, ...]:
    try:
        ran = subprocess.run(
            [srun, "--mpi=list"],
            cwd=place_of_ranks(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFailure(
            "launch.no_srun", f"'{srun} --mpi=list' did not answer: {error}", "use --launcher mpirun"
        ) from error
    return parse_plugins(ran.stdout + ran.stderr)


def parse_plugins(text: str) -> tuple[str, ...]:
    """Names from the output of `srun --mpi=list`, whose form differs between versions of Slurm.

    "srun: pmi2" on each line until 20.x, "MPI plugin types are..." and lines with a tab from 21.08 on, with the
    additional line "specific pmix plugin versions available: pmix_v4".
    """
    names: list[str] = []
    for line in text.splitlines():
        entry = line.replace("srun:", " ").strip()
        if entry.lower().startswith("specific pmix plugin versions available:"):
            names += [name.strip() for name in entry.partition(":")[2].split(",")]
        elif re.fullmatch(r"[a-z][a-z0-9_]*", entry):
            names.append(entry)
    return tuple(dict.fromkeys(names))


def job_cpus(env: Mapping[str, str]) -> int | None:
    """CPUs of the whole job from SLURM_JOB_CPUS_PER_NODE ("16(x2),8" is 40); None outside a job."""
    text = env.get("SLURM_JOB_CPUS_PER_NODE", "")
    if not re.fullmatch(r"\d{1,9}(\(x\d{1,9}\))?(,\d{1,9}(\(x\d{1,9}\))?)*", text):
        return None
    return sum(int(n) * int(times or 1) for n, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text))
