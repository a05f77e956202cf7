"""Convert a trace to the formats of other tools, event by event and in bounded memory. Pure: it yields the text.

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

from sonde.core.printable import one_line
from sonde.io.trace.events import FAILED, THROWN, UNFINISHED
from sonde.io.trace.schema import ENGINES

if TYPE_CHECKING:
    import xarray as xr

PIECE = 1 << 16  # events
COLUMNS = {
    "rank": "1", "host": "", "process": "1", "thread": "1", "layer": "", "function": "", "engine": "", "begin": "ns",
    "duration": "ns", "size": "B", "offset": "B", "request": "", "path": "", "failed": "1", "unfinished": "1",
}  # fmt: skip
"""Columns of a table of events, and their units. Unknown numbers are -1; request numbers are hexadecimal."""


def rows(raw: xr.Dataset) -> Iterator[dict[str, np.ndarray]]:
    """The events as columns, piece by piece; each piece is from one thread."""
    tables = {
        name: raw[name].values
        for name in (
            "function_name", "function_layer", "function_engine", "layer_name", "path", "process_host", "process_pid",
            "process_rank", "thread_process", "thread_number", "thread_first", "thread_events",
        )
    }  # fmt: skip
    requests = _Requests(raw)
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
                "request": requests.named(here.start, n),
                "path": _named(tables["path"], path),
                "failed": ((flags & (FAILED | THROWN)) != 0).astype(int),
                "unfinished": ((flags & UNFINISHED) != 0).astype(int),
            }
            yield {name: columns[name] for name in COLUMNS}


class _Requests:
    """The events with a request number, in order."""

    def __init__(self, raw: xr.Dataset) -> None:
        self.events, self.numbers = np.zeros(0, np.int64), np.zeros(0, np.int64)
        if "request_event" in raw:
            events, numbers = raw["request_event"].values, raw["request_number"].values
            order = np.argsort(events)
            self.events, self.numbers = events[order], numbers[order]

    def within(self, first: int, count: int) -> slice:
        return slice(*np.searchsorted(self.events, (first, first + count)).tolist())

    def named(self, first: int, count: int) -> np.ndarray:
        """The request numbers of events from `first` on; "" for events without one."""
        out = np.full(count, "", dtype=object)
        mine = self.within(first, count)
        out[self.events[mine] - first] = [_hex(number) for number in self.numbers[mine].tolist()]
        return out


def _hex(number: int) -> str:
    """A request number as text: it has 64 bits, more than a number in JSON."""
    return f"{number & 0xFFFFFFFFFFFFFFFF:x}"


def _named(paths: np.ndarray, index: np.ndarray) -> np.ndarray:
    if not len(paths):
        return np.full(len(index), "", dtype=object)
    return np.where(index >= 0, paths[np.maximum(index, 0)], "")


def csv_text(raw: xr.Dataset) -> Iterator[bytes]:
    """The events as comma-separated text, with units in the heads and a line for each call. Characters that would end a
    line or control a terminal are escaped."""
    heads = [f"{name} ({unit})" if unit not in ("", "1") else name for name, unit in COLUMNS.items()]
    yield _lines([heads])
    for columns in rows(raw):
        yield _lines(zip(*(_escaped(values.tolist()) for values in columns.values())))


def _escaped(values: list[Any]) -> list[Any]:
    return [one_line(value) if isinstance(value, str) else value for value in values]


def _lines(records: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(records)
    return text.getvalue().encode()


def chrome_text(raw: xr.Dataset) -> Iterator[bytes]:
    """The events in Chrome's trace format, for Perfetto: a process for each rank, a track for each thread, and an arrow
    from each call for a request to the next, from a client to its server and back."""
    yield b'{"displayTimeUnit":"ns","traceEvents":[\n'
    yield b",\n".join(_encoded(one) for one in _names(raw)) or _encoded(
        {"ph": "M", "name": "empty", "pid": 0}
    )
    for columns in rows(raw):
        pieces = []
        numbers = [
            columns[name].tolist() for name in ("process", "thread", "begin", "duration", "size", "offset")
        ]
        words = [columns[name].tolist() for name in ("layer", "function", "path", "failed", "request")]
        for pid, tid, begin, duration, size, offset, layer, function, path, failed, request in zip(
            *numbers, *words
        ):
            args = {
                "size": size,
                "offset": offset,
                "path": path or -1,
                "failed": failed or -1,
                "request": request or -1,
            }
            known_args = {key: value for key, value in args.items() if value != -1}
            event = {
                "ph": "X",
                "name": function,
                "cat": layer,
                "pid": pid,
                "tid": tid,
                "ts": begin / 1e3,
                "dur": duration / 1e3,
            }
            pieces.append(_encoded(event | ({"args": known_args} if known_args else {})))
        yield b",\n" + b",\n".join(pieces)
    for pieces in _arrows(raw):
        yield b",\n" + b",\n".join(pieces)
    yield b"\n]}\n"


def _arrows(raw: xr.Dataset) -> Iterator[list[bytes]]:
    """Flow events: the first call for a request begins a flow, the last one ends it, the others are steps."""
    requests = _Requests(raw)
    begin = np.zeros(len(requests.events), np.int64)
    for at in range(0, raw.sizes["event"], PIECE) if len(begin) else ():
        mine = requests.within(at, PIECE)
        begin[mine] = raw["begin"][at : at + PIECE].values[requests.events[mine] - at]
    first, thread = raw["thread_first"].values, raw["thread_process"].values
    order = np.lexsort((begin, requests.numbers))
    new = np.diff(requests.numbers[order], prepend=0, append=0) != 0
    if len(order):
        new[[0, -1]] = True
    by_first = np.lexsort((raw["thread_events"].values, first))
    entries = by_first[np.searchsorted(first[by_first], requests.events[order], side="right") - 1]
    pids, tids = raw["process_pid"].values[thread[entries]], raw["thread_number"].values[entries]
    for at in range(0, len(order), PIECE):
        here = slice(at, min(at + PIECE, len(order)))
        columns = (
            requests.numbers[order][here],
            begin[order][here],
            pids[here],
            tids[here],
            new[:-1][here],
            new[1:][here],
        )
        made = [
            _encoded(
                {
                    "ph": "s" if opens else "f" if closes else "t",
                    "id": _hex(number),
                    "name": "request",
                    "cat": "request",
                }
                | {"pid": pid, "tid": tid, "ts": ns / 1e3}
                | ({"bp": "e"} if closes else {})
            )
            for number, ns, pid, tid, opens, closes in zip(*(column.tolist() for column in columns))
            if not (opens and closes)
        ]
        if made:
            yield made


def _names(raw: xr.Dataset) -> Iterator[dict[str, Any]]:
    """Events that name processes, and order the ranks."""
    facts = zip(*(raw[f"process_{name}"].values.tolist() for name in ("pid", "rank", "host", "program")))
    for k, (pid, rank, host, program) in enumerate(facts):
        called = f"rank {rank}" if rank >= 0 else str(program).rpartition("/")[2]
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"{called} on {host}"}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": k}}


def _encoded(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()
