"""Files as clustbench writes them, made with netCDF4 alone, to hold Sonde's reader and writer against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

GOLDEN = Path(__file__).parents[2] / "data" / "clustbench"
PREFIX = "delays-MSK-2024-05-16"
KINDS = ("average", "median", "deviation", "min", "all", "measurements_amount")


def golden(kind: str) -> Path:
    return GOLDEN / f"{PREFIX}_{kind}.nc"


def write(
    folder: Path, prefix: str, kind: str, data: np.ndarray, version: int = 1, mode: Any = None, **header: int
) -> Path:
    """One file of a set. data: (n, x, y) or (n, x, y, z), row x is what process x measured.

    header: begin, end, step, repeats, noise, extra (variables that clustbench's plug-ins add), and any other
    scalar by its name in the file.
    """
    path = folder / f"{prefix}_{kind}.nc"
    count, ranks = data.shape[:2]
    begin, step = header.pop("begin", 0), header.pop("step", 100)
    end, repeats = header.pop("end", begin + step * count), header.pop("repeats", 10)
    noise, extra = header.pop("noise", 0), header.pop("extra", None)
    mode = mode if mode is not None else (1 if version == 1 else "one_to_one")
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as nc:
        nc.set_fill_off()
        nc.createDimension("x", ranks)
        nc.createDimension("y", data.shape[2])
        if data.ndim == 4:
            nc.createDimension("z", data.shape[3])
        nc.createDimension("n", None)
        nc.createDimension("strings", 101 if version == 1 else len(mode) + 1)
        scalars = {"proc_num": ranks, "test_type": mode, "data_type": KINDS.index(kind) + 1}
        scalars |= {"begin_mes_length": begin, "end_mes_length": end, "step_length": step}
        if version == 1:
            scalars |= {"noise_mes_length": noise, "num_noise_mes": noise, "num_noise_proc": noise}
        scalars |= {"num_repeates": repeats}
        scalars |= header
        late = {"random_option_1": extra} if extra is not None else {}
        for name, value in scalars.items():
            if isinstance(value, str):
                nc.createVariable(name, "S1", ("strings",))
            else:
                nc.createVariable(name, "i4")
        nc.createVariable("data", "f8", ("n", "x", "y", "z")[: data.ndim])
        for name in late:
            nc.createVariable(name, "i4")
        for name, value in (scalars | late).items():
            nc[name][...] = np.frombuffer(value.encode() + b"\0", "S1") if isinstance(value, str) else value
        nc["data"][:] = data
    return path


def matrices(ranks: int = 3, count: int = 2, scale: float = 1e-6) -> np.ndarray:
    """(n, x, y) s: in units of `scale`, 213 is row 1, column 0 of matrix 2. The diagonal is 0."""
    k, row, column = np.ogrid[:count, :ranks, :ranks]
    data = (100 * (row + 1) + 10 * (column + 1) + k + 1) * scale
    data[:, np.arange(ranks), np.arange(ranks)] = 0
    return data


def series(ranks: int = 3, count: int = 2, repeats: int = 8, seed: int = 1) -> np.ndarray:
    """(n, x, y, z) of random delays of different lengths, -1 behind them, diagonal 0."""
    rng = np.random.default_rng(seed)
    data = matrices(ranks, count)[..., None] + rng.exponential(1e-7, (count, ranks, ranks, repeats))
    for k, row, column in np.ndindex(count, ranks, ranks):
        data[k, row, column, repeats - (row + column + k) % 3 :] = -1
    data[:, np.arange(ranks), np.arange(ranks)] = 0
    return data


def read(path: Path) -> np.ndarray:
    """The values of `data`, unmasked."""
    with netCDF4.Dataset(path) as nc:
        nc.set_auto_maskandscale(False)
        return nc["data"][:]
