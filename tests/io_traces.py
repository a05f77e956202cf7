"""Traces of sonde io from invented calls, analysed by the real analyse(): for the tests of figures and reports.

python tests/io_traces.py OUT.html [RANKS]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

from sonde.io.maps.layers import KINDS
from sonde.io.trace import servers
from sonde.io.trace.analyse import analyse
from sonde.io.trace.schema import OWN_NAME, RAW

LAYERS = {
    "hdf5": "HDF5",
    "mpiio": "MPI-IO",
    "romio": "ROMIO (ADIO)",
    "gfapi": "GlusterFS client (libgfapi)",
    "mpi": "MPI messages",
    "posix": "POSIX and C library",
    "tracer": "Sonde's tracer",
}
FUNCTIONS = {  # name -> layer, kind
    "H5Dwrite": ("hdf5", "write"),
    "H5Dread": ("hdf5", "read"),
    "MPI_File_write_at_all": ("mpiio", "write"),
    "MPI_File_read_at_all": ("mpiio", "read"),
    "MPI_File_write_at": ("mpiio", "write"),
    "MPI_File_open": ("mpiio", "open"),
    "ADIOI_GEN_WriteStridedColl": ("romio", "write"),
    "ADIOI_GEN_ReadStridedColl": ("romio", "read"),
    "mca_common_ompio_file_write_at_all": ("ompio", "write"),
    "MPI_Init": ("mpi", "other"),
    "MPI_Barrier": ("mpi", "wait"),
    "MPI_Alltoallv": ("mpi", "communicate"),
    "MPI_Waitall": ("mpi", "wait"),
    "glfs_pwrite": ("gfapi", "write"),
    "pwrite": ("posix", "write"),
    "pwrite64": ("posix", "write"),
    "fsync": ("posix", "sync"),
    "pread": ("posix", "read"),
    "read": ("posix", "read"),
    "readv": ("posix", "read"),
    "open": ("posix", "open"),
    "lseek": ("posix", "seek"),
    OWN_NAME: ("tracer", "other"),
}
KIB, MIB = 1 << 10, 1 << 20
US = 1000  # ns


@dataclass
class Call:
    """A call, and the calls within it. begin, duration: ns."""

    name: str
    begin: int
    duration: int
    size: int = -1
    path: str = ""
    within: list[Call] = field(default_factory=list)


def events(call: Call, depth: int = 0) -> list[tuple[Call, int]]:
    """A call and those within it, each with its depth, in the order in which they end."""
    made = [event for inner in call.within for event in events(inner, depth + 1)]
    return [*made, (call, depth)]


def raw(
    threads: list[tuple[int, list[Call]]],
    ranks: list[int],
    layers: dict[str, str] | None = None,
    programs: list[str] | None = None,
) -> xr.Dataset:
    """/raw of io/1. threads: process and calls of each; ranks: MPI rank of each process, -1 none."""
    layers = LAYERS if layers is None else layers
    rows = [[event for call in calls for event in events(call)] for _, calls in threads]
    flat = [event for row in rows for event in row]
    functions = [name for name in FUNCTIONS if any(call.name == name for call, _ in flat)]
    paths = list(dict.fromkeys(call.path for call, _ in flat if call.path))
    names = list(layers)
    n = len(ranks)
    columns = {
        "begin": [call.begin for call, _ in flat],
        "duration": [call.duration for call, _ in flat],
        "size": [call.size for call, _ in flat],
        "offset": [-1] * len(flat),
        "file_index": [paths.index(call.path) if call.path else -1 for call, _ in flat],
        "function_index": [functions.index(call.name) for call, _ in flat],
        "depth": [depth for _, depth in flat],
        "flags": [0] * len(flat),
        "layer_name": names,
        "layer_title": list(layers.values()),
        "layer_watched": [sum(FUNCTIONS[f][0] == name for f in functions) for name in names],
        "function_name": functions,
        "function_library": [f"/usr/lib/lib{FUNCTIONS[f][0]}.so.1" for f in functions],
        "function_layer": [names.index(FUNCTIONS[f][0]) for f in functions],
        "function_kind": [KINDS.index(FUNCTIONS[f][1]) for f in functions],
        "function_engine": [0] * len(functions),
        "process_host": [f"n{k // 4 + 1:03d}" for k in range(n)],
        "process_pid": [1000 + k for k in range(n)],
        "process_parent": [999] * n,
        "process_rank": ranks,
        "process_program": programs or ["/home/user/bin/app"] * n,
        "process_begin": [0] * n,
        "process_dropped": [0] * n,
        "call_cost": [0.0] * n,
        "call_cost_inside": [0.0] * n,
        "clock_offset": [0.0] * n,
        "clock_drift": [0.0] * n,
        "clock_error": [0.0] * n,
        "thread_process": [process for process, _ in threads],
        "thread_number": [2000 + k for k in range(len(threads))],
        "thread_first": np.cumsum([0, *(len(row) for row in rows)])[:-1],
        "thread_events": [len(row) for row in rows],
        "path": paths,
    }
    return xr.Dataset(
        {
            name: (
                what.dims,
                np.array(columns[name], object if what.dtype == "str" else what.dtype),
                what.attrs(),
            )
            for name, what in RAW.items()
            if name in columns
        }
    )


def with_servers(data: xr.Dataset, *each: tuple[str, dict[str, list[float]]]) -> xr.Dataset:
    """/raw with writing servers: name, and for each operation its calls and mean, shortest and longest duration."""
    told = {
        "system": "GlusterFS volume vol",
        "mounts": ["/scratch"],
        "cwd": "/",
        "servers": [
            {
                "name": name,
                "answered": 1,
                "bytes": [0, int(operations.get("WRITE", [0])[0]) * KIB],
                "sizes": [[KIB, [0, int(operations.get("WRITE", [0])[0])]]],
                "operations": operations,
            }
            for name, operations in each
        ],
    }
    tables = servers.tables_of(told, data["path"].values.tolist())
    return data.assign(
        {name: (servers.RAW[name].dims, values, servers.RAW[name].attrs()) for name, values in tables.items()}
    )


def collective(ranks: int = 4, rounds: int = 3, reads: bool = True) -> xr.Dataset:
    """Ranks that write 4 MiB each in a collective call; rank 0 writes 64 KiB of it to the file system."""
    threads = []
    for rank in range(ranks):
        calls, at = [Call("open", 5 * US, 40 * US, path="/scratch/out.h5")], 100 * US
        for k in range(rounds):
            calls.append(
                _round(
                    rank,
                    ranks,
                    at,
                    ("H5Dwrite", "MPI_File_write_at_all", "ADIOI_GEN_WriteStridedColl", "pwrite"),
                )
            )
            at += 60_000 * US + 900 * k * US
        if reads:
            names = ("H5Dread", "MPI_File_read_at_all", "ADIOI_GEN_ReadStridedColl", "pread")
            calls.append(_round(rank, ranks, at, names))
        threads.append((rank, calls))
    return raw(threads, list(range(ranks)))


def _round(rank: int, ranks: int, at: int, names: tuple[str, str, str, str]) -> Call:
    library, mpiio, adio, posix = names
    path = "/scratch/out.h5"
    long = 40_000 * US
    whole = Call(library, at, long + 900 * US, 4 * MIB, path)
    file = Call(mpiio, at + 300 * US, long + 300 * US, 4 * MIB, path)
    steps = Call(adio, at + 400 * US, long + 50 * US, 4 * MIB, path)
    steps.within.append(Call("MPI_Alltoallv", at + 500 * US, (1500 + 200 * rank) * US, 4 * MIB))
    begin = at + (2500 + 200 * rank) * US
    if rank == 0:
        each = (long - 3500 * US) // (64 * ranks)
        for k in range(64 * ranks):
            late = 6 if k % 50 == 7 else 1
            steps.within.append(Call(posix, begin + k * each, min(each - US, 90 * US * late), 64 * KIB, path))
    else:
        steps.within.append(Call("MPI_Waitall", begin, at + long - 200 * US - begin))
    file.within.append(steps)
    whole.within.append(file)
    return whole


def tree(dataset: xr.Dataset, summed: bool = True, **attributes: object) -> xr.DataTree:
    """A dataset as `sonde.open` gives it. summed: with a /summary."""
    attrs = {
        "schema": "io/1",
        "command": "sonde io run -- mpirun -n 4 app",
        "traced": "mpirun -n 4 app",
        "status": 0,
        "complete": 1,
        "stop_reason": "ended",
        "hostlist": "n[001-002]",
    }
    groups = {"/": xr.Dataset(attrs=attrs | attributes), "/raw": dataset}
    if summed:
        groups["/summary"] = analyse(dataset)
    return xr.DataTree.from_dict(groups)


if __name__ == "__main__":
    from pathlib import Path

    from sonde.report import collect, publish

    made = collective(int(sys.argv[2]) if len(sys.argv) > 2 else 4)
    publish.write(collect.collect({"app.nc": tree(made)}), Path(sys.argv[1]))
