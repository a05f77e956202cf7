"""Which layers are seen below an MPI program's MPI-IO, with each MPI and each of Open MPI's two implementations."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.io.programs import load, row
from sonde.core.errors import SondeError
from sonde.core.launch.mpirun import Mpirun, find_mpi

# (MPI, what it is told, layers that are to be seen, layers that it keeps to itself)
CASES = (
    ("openmpi", ("--mca", "io", "romio321"), {"mpiio", "romio", "mpi", "posix", "kernel"}, ()),
    ("openmpi", ("--mca", "io", "ompio"), {"mpiio", "ompio", "posix", "kernel"}, ()),
    ("mpich", (), {"mpiio", "posix", "kernel"}, ("romio",)),
)


def rows() -> list[dict]:
    """A row a stack: the layers with calls in them."""
    return [_row(*case) for case in CASES]


def _row(flavour: str, told: tuple[str, ...], wanted: set[str], hidden: tuple[str, ...]) -> dict:
    what = f"layers seen of {' '.join((flavour, *told[2:]))}: collective writes by 2 ranks"
    bar = f"{len(wanted)}: {', '.join(sorted(wanted))}" + ("; hidden ones told" if hidden else "")
    try:
        mpi = find_mpi(flavour)
    except SondeError as error:
        return row(what, bar, None, None, str(error))
    with tempfile.TemporaryDirectory(prefix="sonde-bench-") as name:
        work = [load(flavour), "-a", "MPIIO", "-c", "-t", "256k", "-b", "1m", "-o", Path(name) / "data"]
        line = Mpirun(found=mpi).command(list(map(str, work)), (), 2, {})
        line[1:1] = told
        sonde = [
            Path(sys.executable).with_name("sonde"),
            "io",
            "run",
            "--kernel",
            "--json",
            "-o",
            Path(name) / "a.nc",
            "--",
        ]
        ran = subprocess.run([*map(str, sonde), *line], capture_output=True, text=True, timeout=300)
        if ran.returncode:
            return row(what, bar, None, None, ran.stderr.strip().splitlines()[-1])
        found = json.loads(ran.stdout)
        shown = subprocess.run(
            [*map(str, sonde[:1]), "io", "show", str(Path(name) / "a.nc")],
            capture_output=True,
            text=True,
            check=True,
        )
    seen = {layer["layer"] for layer in found["layers"] if layer["calls"] and layer["layer"] != "tracer"}
    is_told = "to itself" in " ".join(shown.stdout.split())
    met = wanted <= seen and not seen & set(hidden) and is_told == bool(hidden)
    hiding = f"; that {', '.join(hidden)} is hidden is {'told' if is_told else 'not told'}" if hidden else ""
    return row(what, bar, float(len(seen)), met, f"{', '.join(sorted(seen))}{hiding}")
