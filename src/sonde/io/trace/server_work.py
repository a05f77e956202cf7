"""The work of servers for their clients, summed up: tables of /summary of io/1. Pure.

A row is a call of the client's layer, the outermost call around it, and the server that worked for it;
`sonde.io.trace.join` finds that server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sonde.io.maps.layers import KINDS
from sonde.io.trace import join, slow_servers
from sonde.io.trace.nesting import Nested

if TYPE_CHECKING:
    import xarray as xr

CHUNK = 1 << 20  # calls that are processed together
_MOVING = [KINDS.index("read"), KINDS.index("write")]
_FIELDS = ("begin", "duration", "function_index", "size", "offset", "file_index")


class Served:
    """Joins the requests when it is created; `add` then takes the calls of all threads, and `tables` returns the sums.

    Memory: some 150 B a request.
    """

    def __init__(self, raw: xr.Dataset) -> None:
        self.layers = raw.sizes["layer"] + 1  # one more for calls outside the program's I/O, as in the walk
        self.strays = np.zeros(self.layers, np.int64)
        # Layer of servers; whether joined by number; requests; host of the client of each, as a number.
        self.found: list[tuple[int, bool, join.Requests, np.ndarray]] = []
        host = np.unique(raw["process_host"].values.astype(str), return_inverse=True)[1]
        begun, served, of_call = [_NONE], [_NONE], [_NONE]
        count = 0
        names = raw["layer_name"].values.tolist()
        for layer, client in enumerate(raw["layer_serves"].values.tolist() if "layer_serves" in raw else []):
            if client not in names or (sides := _sides(raw, layer, names.index(client))) is None:
                continue
            by_number, ours, theirs, found = sides
            self.found.append((layer, by_number, found, host[ours.calls.process[found.call]]))
            self.strays[layer] = found.strays
            known = found.of_call >= 0
            begun.append(ours.events[found.call])
            served.append(theirs.events[known])
            of_call.append(found.of_call[known] + count)
            count += len(found.call)
        # The calls with which requests began, and the calls of servers for them, with the request of each.
        self.begun = _Places(np.concatenate(begun), np.arange(count))
        self.served = _Places(np.concatenate(served), np.concatenate(of_call))
        self.root, self.function = np.full((2, count), -1, np.int64)  # numbered as in the walk
        self.layer_time = np.zeros((count, self.layers), np.float32)

    def add(
        self, events: np.ndarray, tree: Nested, function: np.ndarray, layer: np.ndarray, self_ns: np.ndarray
    ) -> None:
        """Add the calls of a thread. events : their indices among all events; all arrays have the order of `tree`."""
        if not len(self.root):
            return
        begun, request = self.begun.of(events), self.served.of(events)
        if (begun < 0).all() and (request < 0).all():
            return
        outermost = np.arange(len(events))
        for level in range(1, int(tree.level.max()) + 1):
            mine = np.flatnonzero((tree.level == level) & (tree.parent >= 0))
            outermost[mine] = outermost[tree.parent[mine]]
            mine = mine[request[mine] < 0]
            request[mine] = request[
                tree.parent[mine]
            ]  # a call within a call for a request is also for that request
        self.root[begun[begun >= 0]] = function[outermost[begun >= 0]]
        self.function[begun[begun >= 0]] = function[begun >= 0]
        known = request >= 0
        np.add.at(self.layer_time, (request[known], layer[known]), self_ns[known])

    def tables(self) -> dict[str, np.ndarray]:
        """The tables for `sonde.io.trace.summary`."""
        columns: dict[str, list[np.ndarray]] = {name: [_NONE] for name in _COLUMNS}
        layer_time: list[np.ndarray] = [np.zeros((0, self.layers))]
        at = 0
        each = []
        for layer, by_number, found, host in self.found:
            mine = slice(at, at := at + len(found.call))
            each.append((layer, found, self.function[mine], host))
            keys = np.stack([self.root[mine], self.function[mine], found.server_process])
            rows, row = np.unique(keys, axis=1, return_inverse=True)
            n, row = rows.shape[1], row.reshape(-1)
            time, server_time = found.end - found.begin, found.server_end - found.server_begin
            away = np.where(found.server_process >= 0, np.maximum(time - server_time, 0), 0)
            values = (
                np.full(n, layer), np.full(n, by_number), *rows, np.bincount(row, minlength=n),
                np.bincount(row, np.maximum(found.size, 0), n).astype(np.int64),
                *(np.bincount(row, ns, n) * 1e-9 for ns in (time, server_time, away)),
            )  # fmt: skip
            for name, column in zip(_COLUMNS, values):
                columns[name].append(column)
            times = [np.bincount(row, self.layer_time[mine, k], n) for k in range(self.layers)]
            layer_time.append(np.stack(times, axis=1) * 1e-9)
        return {
            **{name: np.concatenate(parts).astype(_COLUMNS[name]) for name, parts in columns.items()},
            "join_layer_time": np.concatenate(layer_time),
            "join_strays": self.strays,
            **slow_servers.tables(each),
        }


_NONE = np.zeros(0, np.int64)
_COLUMNS = {
    "join_layer": np.int64, "join_by_number": np.int64, "join_root": np.int64, "join_function": np.int64,
    "join_process": np.int64, "join_requests": np.int64, "join_bytes": np.int64, "join_time": np.float64,
    "join_server_time": np.float64, "join_away_time": np.float64,
}  # fmt: skip


class _Places:
    """A map of events to numbers. events: in any order, each once."""

    def __init__(self, events: np.ndarray, numbers: np.ndarray) -> None:
        order = np.argsort(events)
        self.events, self.numbers = events[order], numbers[order]

    def of(self, events: np.ndarray) -> np.ndarray:
        """The number of each event; -1 for events that are not in the map."""
        if not len(self.events):
            return np.full(len(events), -1, np.int64)
        at = np.minimum(np.searchsorted(self.events, events), len(self.events) - 1)
        return np.where(self.events[at] == events, self.numbers[at], -1)


def _sides(raw: xr.Dataset, layer: int, client: int) -> tuple[bool, _Side, _Side, join.Requests] | None:
    """Whether the sides were joined by number, the calls of client and server, and the result; None if they cannot be
    joined."""
    layer_of = raw["function_layer"].values
    numbered = _Numbered(raw)
    theirs, ours = (numbered.of(layer_of == one) for one in (layer, client))
    if len(theirs.events) or len(ours.events):
        return True, ours, theirs, join.by_number(ours.calls, ours.numbers, theirs.calls, theirs.numbers)
    moving = np.isin(raw["function_kind"].values, _MOVING)
    if not (moving & (layer_of == layer)).any():
        return None  # no server was traced, so it is unknown which calls went to one
    theirs, ours = (_all_of(raw, moving & (layer_of == one)) for one in (layer, client))
    error_ns = 1e9 * float(np.nan_to_num(raw["clock_error"].values).max(initial=0.0))
    return False, ours, theirs, join.by_likeness(ours.calls, theirs.calls, int(error_ns))


@dataclass(frozen=True)
class _Side:
    """events : sorted indices among all events; numbers : of their requests, if they have any."""

    events: np.ndarray
    numbers: np.ndarray
    calls: join.Calls


class _Numbered:
    """Calls whose records hold the number of their request."""

    def __init__(self, raw: xr.Dataset) -> None:
        self.raw = raw
        self.events, self.numbers = np.zeros(0, np.int64), np.zeros(0, np.int64)
        if "request_event" in raw:
            events, numbers = raw["request_event"].values, raw["request_number"].values
            order = np.argsort(events, kind="stable")
            self.events, self.numbers = events[order], numbers[order]

    def of(self, functions: np.ndarray) -> _Side:
        """The calls of some functions. functions : a mask by function."""
        parts, chosen = [], []
        for at, values in _chunks(self.raw) if len(self.events) and functions.any() else ():
            first, last = np.searchsorted(self.events, (at, at + len(values["begin"])))
            mine = self.events[first:last] - at
            function = values["function_index"][mine]
            chosen_function = (function >= 0) & functions[function]
            chosen.append(first + np.flatnonzero(chosen_function))
            parts.append({name: column[mine[chosen_function]] for name, column in values.items()})
        places = np.concatenate([np.zeros(0, np.int64), *chosen])
        events = self.events[places]
        return _Side(events, self.numbers[places], _calls(self.raw, events, parts))


def _all_of(raw: xr.Dataset, functions: np.ndarray) -> _Side:
    parts, chosen = [], []
    for at, values in _chunks(raw):
        mine = (values["function_index"] >= 0) & functions[values["function_index"]]
        chosen.append(at + np.flatnonzero(mine))
        parts.append({name: column[mine] for name, column in values.items()})
    events = np.concatenate([np.zeros(0, np.int64), *chosen])
    return _Side(events, np.zeros(len(events), np.int64), _calls(raw, events, parts))


def _chunks(raw: xr.Dataset) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    for at in range(0, raw.sizes["event"], CHUNK):
        yield at, {name: raw[name][at : at + CHUNK].values for name in _FIELDS}


def _calls(raw: xr.Dataset, events: np.ndarray, parts: list[dict[str, np.ndarray]]) -> join.Calls:
    columns = {
        name: np.concatenate([np.zeros(0, np.int64), *(part[name] for part in parts)]) for name in _FIELDS
    }
    names = [str(path).rpartition("/")[2] for path in raw["path"].values]
    first = {name: k for k, name in reversed(list(enumerate(names)))}
    same = np.array([*(first[name] for name in names), -1], np.int64)
    return join.Calls(
        begin=columns["begin"],
        end=columns["begin"] + columns["duration"],
        function=columns["function_index"],
        process=_process_of(raw, events),
        size=columns["size"],
        offset=columns["offset"],
        kind=raw["function_kind"].values.astype(np.int64)[columns["function_index"]],
        file=same[
            np.maximum(columns["file_index"], -1)
        ],  # no file, or a descriptor whose opening was not traced: -1
    )


def _process_of(raw: xr.Dataset, events: np.ndarray) -> np.ndarray:
    first, count = raw["thread_first"].values, raw["thread_events"].values
    order = np.lexsort((count, first))  # of threads without events and the next one, that comes last
    entry = order[np.searchsorted(first[order], events, side="right") - 1] if len(first) else events
    return raw["thread_process"].values.astype(np.int64)[entry] if len(first) else events
