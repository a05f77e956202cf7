"""The tables of one trace: functions, files, datasets, processes. All of it is read from /summary."""

from __future__ import annotations

import numpy as np
import xarray as xr

from sonde.core.outcome import Table
from sonde.core.printable import one_line
from sonde.core.units import format_duration, format_share, format_size
from sonde.io.trace import verdict, worlds

NUMBERS = 400


def io_time(summary: xr.Dataset) -> np.ndarray:
    """Time of each process in traced calls of its program's I/O, s."""
    return np.asarray(summary["layer_self_time"].values[:, ~verdict.beside(summary)].sum(axis=1))


def functions_table(summary: xr.Dataset) -> Table:
    """A table of all functions with all their numbers."""
    total = verdict.traced_s(summary)
    calls, failed, moved, time, own = (
        summary[name].values.sum(axis=0) for name in ("calls", "failed", "bytes", "time", "self_time")
    )
    longest = summary["longest"].values.max(axis=0, initial=0.0)
    function, library = (summary[f"function_{name}"].values for name in ("name", "library"))
    of_layer = summary["function_layer"].values
    layer, ours = summary["layer_name"].values[of_layer], verdict.beside(summary)[of_layer]
    rows = [
        (
            str(function[k]),
            str(layer[k]),
            f"{calls[k]}",
            f"{failed[k]}" if failed[k] else "",
            format_size(int(moved[k])) if moved[k] else "",
            format_duration(time[k]),
            format_duration(own[k]),
            format_share(own[k] / total) if total > 0 and not ours[k] else "–",
            format_duration(longest[k]),
            str(library[k]).rpartition("/")[2],
        )
        for k in np.argsort(-own, kind="stable")[:NUMBERS].tolist()
    ]
    return Table(
        "Functions, by their own time",
        ("function", "layer", "calls", "failed", "bytes", "time", "own time", "share", "longest", "library"),
        rows,
        right=(2, 3, 4, 5, 6, 7, 8),
        note=_more(summary.sizes["function"], NUMBERS, "functions with less time"),
    )


def file_rows(summary: xr.Dataset) -> list[tuple[str, ...]]:
    """For each file and direction: the requests to each layer. Files with most bytes in a layer come first.

    Files of the system and of code are left out, and so are datasets within files.
    """
    requests, moved, _ = _asked_of_files(summary)
    layers = np.flatnonzero(requests.any(axis=(0, 2)))
    if not layers.size:
        return []
    used = np.flatnonzero(requests.any(axis=(1, 2)))
    order = np.lexsort((-requests[used].sum(axis=(1, 2)), -moved[used].max(axis=(1, 2))))
    paths_ = summary["path"].values
    rows: list[tuple[str, ...]] = [("", *(str(summary["layer_name"].values[k]) for k in layers), "file")]
    for file in used[order].tolist():
        path = one_line(str(paths_[file]))
        for direction, verb in ((1, "written"), (0, "read")):
            if requests[file, :, direction].any():
                cells = [
                    _asked(int(requests[file, layer, direction]), int(moved[file, layer, direction]))
                    for layer in layers
                ]
                rows.append((verb, *cells, path))
    return rows


def _asked_of_files(summary: xr.Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Requests and bytes of the program's own files (file, layer, direction), and a mask of the names that are
    datasets.

    HDF5 knows the datasets of its calls, but not their files: names that only HDF5 used are no files.
    """
    ours = ~verdict.beside(summary)
    requests, moved = (
        np.where(ours[:, np.newaxis], summary[name].values, 0) for name in ("file_requests", "file_bytes")
    )
    hdf5 = summary["layer_name"].values == "hdf5"
    within = np.logical_and(requests[:, hdf5].any(axis=(1, 2)), ~requests[:, ~hdf5].any(axis=(1, 2)))
    requests[within] = 0
    return requests, moved, within


def dataset_rows(summary: xr.Dataset) -> list[tuple[str, ...]]:
    """For each dataset of HDF5 and direction its requests, those with most bytes first."""
    *_, within = _asked_of_files(summary)
    hdf5 = summary["layer_name"].values == "hdf5"
    requests, moved = (summary[name].values[:, hdf5].sum(axis=1) for name in ("file_requests", "file_bytes"))
    names = np.flatnonzero(within)
    return [
        (verb, _asked(int(requests[k, d]), int(moved[k, d])), one_line(str(summary["path"].values[k])))
        for k in names[np.argsort(-moved[names].max(axis=1), kind="stable")].tolist()
        for d, verb in ((1, "written"), (0, "read"))
        if requests[k, d]
    ]


def datasets_table(rows: list[tuple[str, ...]], most: int) -> Table:
    return Table(
        "Datasets of HDF5, by name",
        ("", "requests", "dataset or attribute"),
        rows[:most],
        right=(1,),
        note=_not_all(len(rows), most),
    )


def _not_all(count: int, most: int) -> str:
    if count <= most:
        return ""
    return "All numbers, below, have more." if most < NUMBERS else _more(count, most, "rows")


def _asked(requests: int, moved: int) -> str:
    if not requests:
        return ""
    return f"{requests} × {format_size(round(moved / requests))}" if moved else f"{requests}"


def files_table(summary: xr.Dataset, rows: list[tuple[str, ...]], most: int) -> Table:
    head, *body = rows
    beside = verdict.beside(summary)
    others = int(
        (
            summary["file_requests"].values[:, beside].any(axis=(1, 2))
            & ~summary["file_requests"].values[:, ~beside].any(axis=(1, 2))
        ).sum()
    )
    parts = ["Requests × their mean size, as they entered a layer from above."]
    if others:
        are = "is" if others == 1 else "are"
        parts.append(
            f"{verdict.counted(others, 'file')} of the system or of code, such as .pyc and .so, {are} left "
            "out."
        )
    note = " ".join([*parts, _not_all(len(body), most)]).strip()
    return Table(
        "Files, layer by layer",
        head,
        body[:most],
        right=tuple(range(1, len(head) - 1)),
        note=note,
        names=tuple(range(1, len(head) - 1)),
    )


def processes_table(summary: xr.Dataset) -> Table:
    """A table of all processes: host, program, calls, and own time in each layer. Totals cover their program's I/O."""
    own = summary["layer_self_time"].values
    used = np.flatnonzero(own.any(axis=0)).tolist()
    rank = worlds.named(summary)
    host, pid, program_, dropped = (
        summary[f"process_{name}"].values for name in ("host", "pid", "program", "dropped")
    )
    ours = verdict.beside(summary)[summary["function_layer"].values]
    calls, traced = summary["calls"].values[:, ~ours].sum(axis=1), io_time(summary)
    rows = [
        (
            rank[k] or "–",
            str(host[k]),
            f"{pid[k]}",
            str(program_[k]).rpartition("/")[2],
            f"{calls[k]}",
            format_duration(traced[k]),
            *(format_duration(own[k, layer]) for layer in used),
            f"{dropped[k]}" if dropped[k] else "",
        )
        for k in range(min(NUMBERS, summary.sizes["process"]))
    ]
    names = [str(summary["layer_name"].values[layer]) for layer in used]
    return Table(
        "Processes, and their own time in each layer",
        ("rank", "host", "process", "program", "calls", "traced", *names, "lost calls"),
        rows,
        right=(0, 2, *range(4, 7 + len(used))),
        note=_more(summary.sizes["process"], NUMBERS, "processes"),
        names=tuple(range(6, 6 + len(used))),
    )


def _more(count: int, shown: int, what: str) -> str:
    """A note on the rows that a table leaves out; "" if it is complete."""
    return f"And {count - shown} more {what}: sonde data convert writes them all." if count > shown else ""
