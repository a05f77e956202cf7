"""`sonde io run` on parallel programs as users have them: every stack of MPI-IO, Fortran, mpi4py, HDF5."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import io_components
from sonde.core import launch
from sonde.core.launch.mpirun import Mpi, Mpirun, find_mpi
from sonde_shell import Shell, finish
from watching import wait_for

pytestmark = pytest.mark.mpi

DATA = Path(__file__).parents[1] / "data" / "io"
KIB = 1024
# Functions there that each collective write goes through.
INSIDE = {"romio": ("ADIOI_GEN_WriteStridedColl",), "ompio": ("mca_common_ompio_file_write_at_all",), "": ()}


def stacks(mpi: Mpi) -> dict[str, tuple[str, ...]]:
    """Options of mpirun, by the layer that they put below MPI-IO."""
    if mpi.flavour != "openmpi":
        return {"": ()}
    return {"romio": ("--mca", "io", io_components.romio(mpi)), "ompio": ("--mca", "io", "ompio")}


def traced(
    shell: Shell, mpi: Mpi, ranks: int, program: list[object], told: tuple[str, ...] = (), *words: object
) -> dict[str, Any]:
    """The outcome of `sonde io run -- mpirun …`."""
    line = Mpirun(found=mpi).command(list(map(str, program)), (), ranks, {})
    line[1:1] = told
    return shell("io", "run", "--json", "-o", "a.nc", "--", *line).expect(0).json


def by_layer(told: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Calls by function, of each layer that was called."""
    found: dict[str, dict[str, int]] = {}
    for one in told["functions"]:
        found.setdefault(one["layer"], {})
        found[one["layer"]][one["function"]] = found[one["layer"]].get(one["function"], 0) + one["calls"]
    return found


def moved(told: dict[str, Any], layer: str) -> dict[str, tuple[int, int]]:
    """Requests and bytes that entered a layer, by direction."""
    (one,) = [each for each in told["layers"] if each["layer"] == layer]
    return {name: (one[name]["requests"], one[name]["bytes"]) for name in ("read", "write")}


def test_each_stack_of_mpi_io_is_seen_down_to_posix(sonde_mpi: Shell, mpi: Mpi):
    load = launch.libexec() / mpi.flavour / "sonde-ioload"
    program = [load, "-a", "MPIIO", "-c", "-t", "256k", "-b", "1m", "-s", "2", "-o", "data"]
    for below, words in stacks(mpi).items():
        told = traced(sonde_mpi, mpi, 4, program, words)
        layers = by_layer(told)
        assert {"mpiio", "posix"} <= set(layers)
        # Four ranks, two segments of a block of four transfers, written and read.
        assert moved(told, "mpiio") == {"write": (32, 32 * 256 * KIB), "read": (32, 32 * 256 * KIB)}
        assert sorted({one["rank"] for one in told["processes"] if one["rank"] >= 0}) == [0, 1, 2, 3]
        assert {"romio", "ompio"} & set(layers) == {below} - {""}
        shown = " ".join(sonde_mpi("io", "show", "a.nc").expect(0).out.split())
        assert ("hides the functions below MPI-IO" in shown) == (below == "")
        for name in INSIDE[below]:
            assert layers[below][name] == 32


# How long a rank is late is measured against how long data move to a disk, which others must not keep busy.
@pytest.mark.alone
def test_a_rank_that_is_late_is_distinguished_from_exchange(sonde_mpi: Shell, mpi: Mpi, tmp_path: Path):
    compiler = f"mpicc.{mpi.flavour}"
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not there")
    subprocess.run([compiler, "-o", tmp_path / "late", DATA / "late.c"], check=True)
    # Two ranks of OMPIO write each by itself, and wait for nobody; more of MPICH than cores wait for a core.
    ranks = {"openmpi": 4, "mpich": 2}[mpi.flavour]
    for words in stacks(mpi).values():
        told = traced(sonde_mpi, mpi, ranks, [tmp_path / "late", 1, "data"], words)
        (one,) = [found for found in told["findings"] if found["code"] == "io.collective_exchange"]
        evidence = one["evidence"]
        assert evidence["late"] > evidence["others"] + evidence["moving"]
        assert (evidence["last_rank"], evidence["last_share"] > 0.9) == (1, True)
        assert "waiting for the last rank to arrive (rank 1 in " in one["text"]


WAITS = """
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
  char name[32];
  sprintf(name, "data.%d", getpid());
  int file = open(name, O_RDWR | O_CREAT, 0600);
  write(file, "x", 1);
  for (;;) pause();
}
"""


@pytest.mark.parametrize("to_all", [True, False], ids=["group", "sonde"])
def test_ctrl_c_of_ranks(sonde_mpi: Shell, mpi: Mpi, to_all: bool):
    """With a terminal all of its foreground has the signal; a launcher that has it twice leaves its ranks alone."""
    line = ["cc", "-w", "-o", "waits", "-x", "c", "-"]
    subprocess.run(line, cwd=sonde_mpi.cwd, input=WAITS, text=True, check=True)
    started = Mpirun(found=mpi).command(["./waits"], (), 2, {})
    process = sonde_mpi.start("io", "run", "--json", "-o", "a.nc", "--", *started)
    assert wait_for(lambda: sum(one.stat().st_size for one in sonde_mpi.cwd.glob("data.*")) == 2)
    (os.killpg if to_all else os.kill)(process.pid, signal.SIGINT)
    told = finish(process)
    # MPICH's mpiexec may end with 0 where its ranks were interrupted.
    assert told.code == 130 or (mpi.flavour == "mpich" and told.code == 0)
    assert told.json["stop_reason"] == ("interrupted" if told.code else "ended")
    assert sum(one["calls"] for one in told.json["functions"] if one["function"] == "write") == 2
    assert sonde_mpi.left() == []


def test_a_program_in_fortran(sonde_mpi: Shell, mpi: Mpi, tmp_path: Path):
    compiler = f"mpifort.{mpi.flavour}"
    if not shutil.which(compiler) or not shutil.which("gfortran"):
        pytest.skip(f"{compiler} is not there: install gfortran")
    built = subprocess.run(
        [compiler, "-o", tmp_path / "write", DATA / "write.f90"], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    told = traced(sonde_mpi, mpi, 2, [tmp_path / "write", "data"])
    assert moved(told, "mpiio") == {"write": (4, 4 * 8 * KIB), "read": (2, 2 * 8 * KIB)}
    # Open MPI's Fortran library calls the C functions by names of its own; MPICH's by theirs.
    called = by_layer(told)["mpiio"]
    for name in ("open", "write_at_all", "write", "read_at", "close"):
        assert called.get(f"mpi_file_{name}_", called.get(f"MPI_File_{name}")) == 2, called
    assert by_layer(told)["mpi"]["mpi_barrier_"] == 2
    assert Path(sonde_mpi.cwd / "data").stat().st_size == 2 * 8 * KIB
    of_file = {one["layer"]: one for one in told["files"] if one["path"] == "data"}
    assert of_file["mpiio"]["write"] == {"requests": 4, "bytes": 4 * 8 * KIB}


def test_a_program_in_python_with_mpi4py(sonde: Shell, tmp_path: Path):
    """Debian's mpi4py is for its Open MPI."""
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import mpi4py"], capture_output=True, check=False).returncode:
        pytest.skip("mpi4py is not there: install python3-mpi4py")
    program = tmp_path / "write.py"
    program.write_text(
        "from mpi4py import MPI\n"
        "import array\n"
        "comm = MPI.COMM_WORLD\n"
        "file = MPI.File.Open(comm, 'data', MPI.MODE_CREATE | MPI.MODE_WRONLY)\n"
        "block = array.array('d', [comm.rank] * 512)\n"
        "for k in range(10): file.Write_at(8 * 512 * (comm.size * k + comm.rank), block)\n"
        "file.Close()\n"
    )
    told = traced(sonde, find_mpi("openmpi"), 2, [python, program])
    assert moved(told, "mpiio")["write"] == (20, 20 * 4 * KIB)
    assert by_layer(told)["mpiio"]["MPI_File_write_at"] == 20


def test_a_program_in_python_with_h5py(sonde: Shell, tmp_path: Path):
    program = tmp_path / "write.py"
    program.write_text(
        "import h5py, numpy as np\n"
        "with h5py.File('data.h5', 'w') as f:\n"
        "    d = f.create_dataset('x', (8, 4096), 'f8')\n"
        "    for k in range(8): d[k] = np.full(4096, k, 'f8')\n"
        "with h5py.File('data.h5') as f:\n"
        "    assert f['x'][3].sum() == 3 * 4096\n"
    )
    told = sonde("io", "run", "--json", "-o", "a.nc", "--", sys.executable, program).expect(0).json
    assert moved(told, "hdf5") == {"write": (8, 8 * 32 * KIB), "read": (1, 32 * KIB)}
    called = by_layer(told)["hdf5"]
    assert called["H5Dwrite"] == 8
    assert called["H5Dread"] == 1
    assert {one["layer"] for one in told["files"] if one["path"] == "data.h5"} >= {"posix"}


def test_parallel_hdf5_down_to_posix(sonde_mpi: Shell, mpi: Mpi):
    load = launch.libexec() / mpi.flavour / "sonde-ioload"
    if (
        "without HDF5"
        in subprocess.run([load, "--version"], capture_output=True, text=True, check=True).stdout
    ):
        pytest.skip(f"no parallel HDF5 for {mpi.flavour} was there when Sonde was built")
    program = [load, "-a", "HDF5", "-c", "-t", "256k", "-b", "512k", "-w", "-o", "data.h5"]
    told = traced(sonde_mpi, mpi, 2, program)
    assert moved(told, "hdf5")["write"] == (4, 4 * 256 * KIB)
    # HDF5 writes its own records as well, and the data through MPI-IO, in whose time all below stands.
    requests, size = moved(told, "mpiio")["write"]
    assert requests >= 4
    assert size >= 4 * 256 * KIB
    assert moved(told, "posix")["write"][1] >= 4 * 256 * KIB


TWO = """
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int n, char** words) {
  MPI_Init(&n, &words);
  MPI_Comm parent, children;
  MPI_Comm_get_parent(&parent);
  if (n > 3 && parent == MPI_COMM_NULL)
    MPI_Comm_spawn(words[0], (char*[]){"b", "60", 0}, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children,
                     MPI_ERRCODES_IGNORE);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  char name[64];
  sprintf(name, "%s-%d", words[1], rank);
  int file = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644);
  char* bytes = calloc(1, 1 << 20);
  for (int k = 0; k < atoi(words[2]); ++k) write(file, bytes, 1 << 20);
  close(file);
  unlink(name);
  MPI_Finalize();
  return 0;
}
"""


def test_two_mpi_programs_of_a_script_are_two(sonde_mpi: Shell, mpi: Mpi):
    """Each has a rank 0, and what one of them writes says nothing of the other's."""
    compiler = f"mpicc.{mpi.flavour}"
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    words = [compiler, "-w", "-o", "two", "-x", "c", "-"]
    subprocess.run(words, cwd=sonde_mpi.cwd, input=TWO, text=True, check=True)
    lines = [
        Mpirun(found=mpi).command(["./two", name, megabytes], (), ranks, {})
        for name, megabytes, ranks in (("a", "10", 4), ("b", "60", 1))
    ]
    script = "; ".join(shlex.join(line) for line in lines)
    told = sonde_mpi("io", "run", "--json", "-o", "a.nc", "--", "sh", "-c", script).expect(0).json
    ranks = sorted((one["world"], one["rank"]) for one in told["processes"] if one["rank"] >= 0)
    assert ranks == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
    # The second program has one rank: whatever a busy machine does, it stands out from nobody.
    assert not any("rank 2:0" in one["text"] for one in told["findings"])
