"""Slices of one message size, and their spectra, as datasets and as clustbench's files."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

import numpy as np
import xarray as xr

from sonde.core.errors import UsageError
from sonde.net import clustbench_layout, schema
from sonde.net.clustbench import Header
from sonde.net.clustbench_cells import Cells
from sonde.net.export import noise, padded
from sonde.net.variables import coords, spectrum_variable

# From a series (n,) s and a window to spectra (n - window + 1, window // 2 + 1) s
Amplitude = Callable[[np.ndarray, int], np.ndarray]


def slice_raw(raw: xr.Dataset, k: int) -> xr.Dataset:
    """/raw with only one message size, still lazy, cut to its longest series."""
    one = raw.isel(size=[k])
    longest = max(1, int(one["n"].values.max(initial=0)))
    return one.isel(sample=slice(0, longest))


def write_fixed_length(tree: xr.DataTree, raw: xr.Dataset, k: int, stream: BinaryIO) -> int:
    """Write size number k of a dataset as clustbench's fixed-length file; return its repetitions."""
    mode = str(tree.attrs.get("mode", "unknown"))
    cells = Cells(raw, mode)
    repetitions = max(1, int(cells.n[:, :, k].max(initial=0)))
    header = Header(cells.ranks, mode, 0, repetitions, 1, repetitions, **noise(tree))
    data = clustbench_layout.build(stream, clustbench_layout.fixed_length(header, repetitions), 0)
    for rows, series, n in cells.blocks(k):
        own_cell = np.arange(rows.start, rows.stop)[:, None] == np.arange(cells.ranks)
        block = padded(series, n, own_cell, repetitions, xr.Dataset(), rows, k)
        data.put((0, rows.start, 0), block.transpose(2, 0, 1))
    return repetitions


def no_statistics(raw: xr.Dataset) -> xr.Dataset:
    """A /summary that contains only the coordinates of the cells."""
    return xr.Dataset(coords={name: raw[name].variable for name in schema.CELL})


def check_window(longest: int, window: int) -> None:
    """Check that a window (samples) fits a series.

    Raises
    ------
    UsageError  net.bad_window.
    """
    if not 2 <= window <= longest:
        raise UsageError(
            "net.bad_window",
            f"a window of {window} samples does not fit the longest series, {longest}",
            f"--window takes 2 to {longest}" if longest >= 2 else "measure more samples",
        )


def write_spectrum(
    tree: xr.DataTree, raw: xr.Dataset, k: int, window: int, amplitude: Amplitude, stream: BinaryIO
) -> int:
    """Write the spectra of all windows of size number k as clustbench's spectrum file, pair by pair.

    Parameters
    ----------
    amplitude : series (n,) s, window -> (n - window + 1, window // 2 + 1) s
    stream : an empty file, opened for writing in binary

    Returns
    -------
    Window positions written: n - window + 1 for the longest series (clustbench itself leaves out the last one). NaN if
    a pair has fewer, or was not measured.
    """
    cells = Cells(raw, str(tree.attrs.get("mode", "unknown")))
    longest = int(cells.n[:, :, k].max(initial=0))
    check_window(longest, window)
    positions = longest - window + 1
    data = clustbench_layout.build(stream, clustbench_layout.spectrum(cells.ranks, positions, window), 0)
    for rows, series, n in cells.blocks(k):
        for row in range(rows.start, rows.stop):
            for column in range(cells.ranks):
                count = int(n[row - rows.start, column])
                out = np.full((positions, window // 2 + 1), np.nan)
                if count >= window:
                    delays = np.ascontiguousarray(series[row - rows.start, column, :count])
                    out[: count - window + 1] = amplitude(delays, window)
                data.put((row, column, 0, 0), out)
    return positions


def spectrum_summary(raw: xr.Dataset, k: int, window: int, amplitude: Amplitude) -> xr.Dataset:
    """/summary with spectrum (src, dst, position, harmonic) of size number k; lazy, one pair at a time."""
    n = raw["n"].transpose(*schema.CELL).values[:, :, k].astype(np.int64)
    longest = int(n.max(initial=0))
    check_window(longest, window)
    latency = raw["latency"].variable.isel(size=k).transpose("src", "dst", "sample")
    last: dict[tuple[int, int], np.ndarray] = {}

    def pair(src: int, dst: int) -> np.ndarray:
        if (src, dst) not in last:
            out = np.full((longest - window + 1, window // 2 + 1), np.nan)
            count = int(n[src, dst])
            if count >= window:
                delays = np.ascontiguousarray(latency[src, dst, :count].values, np.float64)
                out[: count - window + 1] = amplitude(delays, window)
            last.clear()
            last[src, dst] = out
        return last[src, dst]

    def read(spans: tuple[slice, ...]) -> np.ndarray:
        src, dst, position, harmonic = (range(span.start, span.stop) for span in spans)
        out = np.empty((len(src), len(dst), len(position), len(harmonic)))
        for i, s in enumerate(src):
            for j, d in enumerate(dst):
                out[i, j] = pair(s, d)[spans[2], spans[3]]
        return out

    ranks = raw.sizes["src"]
    variable = spectrum_variable(ranks, longest - window + 1, window // 2 + 1, window, read)
    sizes = np.asarray([int(raw["size"].values[k])], np.int64)
    return xr.Dataset({"spectrum": variable}, coords=coords(ranks, sizes))
