"""A trace in other tools' forms, event by event and in bounded memory. Pure: what is written goes to whoever asked.

Chrome's trace format is a JSON object with "traceEvents"; Perfetto (ui.perfetto.dev) and chrome://tracing read it:
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. A complete event has ph "X", ts and dur
in µs, pid, tid, name, cat, args.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.io.events import FAILED, THROWN, UNFINISHED
from sonde.io.schema import ENGINES

if TYPE_CHECKING:
    import xarray as xr

PIECE = 1 << 16  # events
COLUMNS = {
    "rank": "1", "host": "", "process": "1", "thread": "1", "layer": "", "function": "", "engine": "", "begin": "ns",
    "duration": "ns", "size": "B", "offset": "B", "path": "", "failed": "1", "unfinished": "1",
}  # fmt: skip
"""Columns of a table of events, and their units. -1 where a number is not known."""


def rows(raw: xr.Dataset) -> Iterator[dict[str, np.ndarray]]:
    """The events as columns, piece by piece; each piece is of one thread."""
    tables = {
        name: raw[name].values
        for name in (
            "function_name", "function_layer", "function_engine", "layer_name", "path", "process_host", "process_pid",
            "process_rank", "thread_process", "thread_number", "thread_first", "thread_events",
        )
    }  # fmt: skip
    for k in range(raw.sizes["thread"]):
        process, first = int(tables["thread_process"][k]), int(tables["thread_first"][k])
        end = first + int(tables["thread_events"][k])
        for at in range(first, end, PIECE):
            here = slice(at, min(at + PIECE, end))
            function = raw["function_index"][here].values
            known = function >= 0
            names, path = np.array(function, int), raw["file_index"][here].values
            n = len(function)
            flags = raw["flags"][here].values
            columns: dict[str, np.ndarray] = {
                "rank": np.full(n, tables["process_rank"][process]),
                "host": np.full(n, tables["process_host"][process], dtype=object),
                "process": np.full(n, tables["process_pid"][process]),
                "thread": np.full(n, tables["thread_number"][k]),
                "layer": np.where(known, tables["layer_name"][tables["function_layer"][names]], "?"),
                "function": np.where(known, tables["function_name"][names], "?"),
                "engine": np.where(known, np.array(ENGINES, object)[tables["function_engine"][names]], "?"),
                **{name: raw[name][here].values for name in ("begin", "duration", "size", "offset")},
                "path": _named(tables["path"], path),
                "failed": ((flags & (FAILED | THROWN)) != 0).astype(int),
                "unfinished": ((flags & UNFINISHED) != 0).astype(int),
            }
            yield {name: columns[name] for name in COLUMNS}


def _named(paths: np.ndarray, index: np.ndarray) -> np.ndarray:
    if not len(paths):
        return np.full(len(index), "", dtype=object)
    return np.where(index >= 0, paths[np.maximum(index, 0)], "")


def csv_text(raw: xr.Dataset) -> Iterator[bytes]:
    """Comma-separated, units in the heads."""
    heads = [f"{name} ({unit})" if unit not in ("", "1") else name for name, unit in COLUMNS.items()]
    yield _lines([heads])
    for columns in rows(raw):
        yield _lines(zip(*(values.tolist() for values in columns.values())))


def _lines(records: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(records)
    return text.getvalue().encode()


def chrome_text(raw: xr.Dataset) -> Iterator[bytes]:
    """Chrome's trace format, for Perfetto: a process a rank, a track a thread."""
    yield b'{"displayTimeUnit":"ns","traceEvents":[\n'
    yield b",\n".join(_encoded(one) for one in _names(raw)) or _encoded(
        {"ph": "M", "name": "empty", "pid": 0}
    )
    for columns in rows(raw):
        pieces = []
        numbers = [
            columns[name].tolist() for name in ("process", "thread", "begin", "duration", "size", "offset")
        ]
        words = [columns[name].tolist() for name in ("layer", "function", "path", "failed")]
        for pid, tid, begin, duration, size, offset, layer, function, path, failed in zip(*numbers, *words):
            args = {"size": size, "offset": offset, "path": path or -1, "failed": failed or -1}
            kept = {key: value for key, value in args.items() if value != -1}
            event = {
                "ph": "X",
                "name": function,
                "cat": layer,
                "pid": pid,
                "tid": tid,
                "ts": begin / 1e3,
                "dur": duration / 1e3,
            }
            pieces.append(_encoded(event | ({"args": kept} if kept else {})))
        yield b",\n" + b",\n".join(pieces)
    yield b"\n]}\n"


def _names(raw: xr.Dataset) -> Iterator[dict[str, Any]]:
    """Events that name processes, and put ranks in order."""
    facts = zip(*(raw[f"process_{name}"].values.tolist() for name in ("pid", "rank", "host", "program")))
    for k, (pid, rank, host, program) in enumerate(facts):
        called = f"rank {rank}" if rank >= 0 else str(program).rpartition("/")[2]
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"{called} on {host}"}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": k}}


def _encoded(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()
