"""Ranks on hosts whose clocks differ: one trace, one time.

The second node's clocks are made wrong by libfaketime, which the tracer's own readings go through as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sonde.cluster import Cluster, run
from sonde.cluster import mpi as across
from sonde.core.launch.mpirun import Mpi
from sonde_shell import PROGRAM, Shell

pytestmark = [pytest.mark.root, pytest.mark.mpi]

if missing := [name for name in run.PROGRAMS if not shutil.which(name, path=run.program_path(os.environ))]:
    pytest.skip(f"{', '.join(missing)}: not there; install iproute2 and util-linux", allow_module_level=True)
if not shutil.which("faketime"):
    pytest.skip("libfaketime is not there; install faketime", allow_module_level=True)

DATA = Path(__file__).parents[1] / "data" / "io"
COMPILERS = {"openmpi": "mpicc.openmpi", "mpich": "mpicc.mpich"}
AHEAD_S, FASTER = 3.0, 1e-4
WRONG = f"""#!/bin/sh
case $(LD_PRELOAD= hostname) in
*-1) export FAKETIME="+{AHEAD_S:g}s x{1 + FASTER}" FAKETIME_DONT_FAKE_MONOTONIC=0
     export LD_PRELOAD="$LD_PRELOAD:$1" ;;
esac
shift
exec "$@"
"""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster.up(f"io{os.getpid()}", 2) as cluster:
        yield cluster


def fake_library() -> str:
    """Beside the program `faketime`, which knows where it is."""
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/aarch64-linux-gnu"):
        if (path := Path(folder) / "faketime/libfaketime.so.1").exists():
            return str(path)
    pytest.fail("faketime is there, and its library is not")


def test_times_of_two_hosts_are_one_though_their_clocks_differ(
    sonde: Shell, default_mpi: Mpi, nodes: Cluster, tmp_path: Path
):
    wrong, program = tmp_path / "wrong", tmp_path / "rounds"
    wrong.write_text(WRONG)
    wrong.chmod(0o755)
    subprocess.run([COMPILERS[default_mpi.flavour], "-o", program, DATA / "rounds.c"], check=True)
    hosts = [f"{nodes.name}-{k}" for k in range(2)]
    line = across.line(
        default_mpi, [str(wrong), fake_library(), str(program), str(tmp_path / "data"), "200"], hosts, 2
    )
    ran = sonde(
        *("cluster", "exec", "--name", nodes.name, "--"),
        *(PROGRAM, "io", "run", "--layers", "mpi,posix", "-o", tmp_path / "a.nc", "--", *line),
    ).expect(0)
    assert "clocks of 2 hosts, up to 3.00 s apart, were aligned by the collective calls" in " ".join(
        ran.err.split()
    )
    with xr.open_dataset(tmp_path / "a.nc", group="raw", engine="netcdf4") as raw:
        rank = raw["process_rank"].values
        program_of = raw["process_program"].values.astype(str)
        loads = [np.flatnonzero((rank == k) & (program_of == str(program)))[0] for k in range(2)]
        assert [str(raw["process_host"].values[k]) for k in loads] == hosts
        error = float(raw["clock_error"].values[loads[1]])
        assert 0 < error < 0.01
        assert float(raw["clock_error"].values[loads[0]]) == 0
        assert float(raw["clock_offset"].values[loads[1]]) == pytest.approx(
            AHEAD_S, abs=error + 0.01
        )  # since it began
        entries, exits = zip(*(barriers(raw, k) for k in loads))
    # Nobody left a barrier before the other had come; by the clocks of the day it seems to be so by three seconds.
    assert len(entries[0]) == 400  # with those of its own
    entries, exits = (entries[0][::2], entries[1]), (exits[0][::2], exits[1])
    assert len(entries[1]) == 200
    for here, there in ((0, 1), (1, 0)):
        assert (exits[here] - entries[there]).min() > -(error * 1e9 + 1000)


def barriers(raw: xr.Dataset, process: int) -> tuple[np.ndarray, np.ndarray]:
    """Begin and end of a process's barriers, ns."""
    threads = np.flatnonzero(raw["thread_process"].values == process)
    first, count = raw["thread_first"].values[threads], raw["thread_events"].values[threads]
    mine = np.concatenate([np.arange(a, a + n) for a, n in zip(first, count)])
    is_barrier = raw["function_name"].values.astype(str) == "MPI_Barrier"
    mine = mine[is_barrier[raw["function_index"].values[mine]]]
    begin = np.sort(raw["begin"].values[mine])
    return begin, np.sort(raw["begin"].values[mine] + raw["duration"].values[mine])
