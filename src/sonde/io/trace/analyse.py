"""Compute /summary of io/1 from /raw: where the time went, layer by layer. Pure.

Everything comes from one pass over the calls of each thread, which `nesting` nests by their times. A node is a path of
calls: a function, called within another, called within …; the other tables are sums over calls. Two things do not
follow from nesting: which work of a server was for which call of a client, which `server_work` joins before the pass,
and the waiting of ranks in collective calls, which `collective_io` adds after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sonde.core.described import variables
from sonde.io.maps.layers import KINDS
from sonde.io.trace import ignored_paths
from sonde.io.trace.collective_io import CollectiveIo
from sonde.io.trace.collectives import plain
from sonde.io.trace.events import ASKED, ENTRY_ONLY, FAILED, THROWN, UNFINISHED
from sonde.io.trace.nesting import Nested, nested
from sonde.io.trace.schema import OWN_NAME, UNSEEN
from sonde.io.trace.server_work import Served
from sonde.io.trace.servers import CLASSES, size_class
from sonde.io.trace.summary import BINS, NAMES, SUMMARY

if TYPE_CHECKING:
    import xarray as xr

_NAMES = ("begin", "duration", "size", "file_index", "function_index", "flags")
CHUNK = 1 << 20  # calls that are processed together
READ, WRITE, COPY = KINDS.index("read"), KINDS.index("write"), KINDS.index("copy")
_DIRECTIONS = np.full(len(KINDS), -1, np.int8)
_DIRECTIONS[[READ, WRITE, COPY]] = 0, 1, 1  # the bytes that a copy reads are counted in addition
_MOVING = [KINDS.index(kind) for kind in ("read", "write", "copy", "sync")]
_WITH_BYTES = (READ, WRITE, COPY)
CLOSE, MAP = KINDS.index("close"), KINDS.index("map")


def analyse(raw: xr.Dataset) -> xr.Dataset:
    """Compute the tables of /summary (`trace.summary`). Memory: some 200 MB in addition to the tables, for any number
    of calls."""
    import xarray as xr

    served, collective = Served(raw), CollectiveIo(raw)
    walk = _Walk(raw, served, collective)
    for stretch in walk.stretches():
        walk.take(stretch)
    tables = _called({**_names(raw), **walk.tables(), **served.tables(), **collective.tables()})
    return xr.Dataset(variables(SUMMARY, tables))


def _names(raw: xr.Dataset) -> dict[str, np.ndarray]:
    """The tables of names, with each function a second time, for its calls outside the program's I/O."""
    tables = {name: raw[name].values for name in NAMES if name in raw}
    for name in tables:
        if raw[name].dims == ("function",):
            tables[name] = np.tile(tables[name], 2)
    layers, functions = raw.sizes["layer"], raw.sizes["function"]
    tables["function_layer"][functions:] = layers
    beside = {
        "layer_name": ignored_paths.LAYER,
        "layer_title": ignored_paths.TITLE,
        "layer_watched": 1,
        "layer_serves": "",
    }
    for name, value in ((name, value) for name, value in beside.items() if name in tables):
        tables[name] = np.append(tables[name], np.array([value], tables[name].dtype))
    return tables


def _called(tables: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tables without functions that have no call, and without the last layer (outside the program's I/O) if it is
    empty."""
    called = np.flatnonzero(tables["calls"].any(axis=0))
    place = np.full(tables["calls"].shape[1], -1, np.int64)
    place[called] = np.arange(len(called))
    layers = len(tables["layer_name"])
    beside = bool((tables["function_layer"][called] == layers - 1).any())
    out = {}
    for name, values in tables.items():
        for axis, dim in enumerate(SUMMARY[name].dims):
            if dim == "function":
                values = values.take(called, axis)
            elif dim == "layer" and not beside:
                values = values.take(np.arange(layers - 1), axis)
        out[name] = values
    for name in ("node_function", "join_function", "join_root", "under_way_function", "peer_function"):
        out[name] = np.where(tables[name] >= 0, place[tables[name]], -1)
    return out


def _threads(raw: xr.Dataset) -> list[list[int]]:
    """Entries of `thread` that are the same thread, recorded by several engines."""
    processes, numbers = raw["thread_process"].values.tolist(), raw["thread_number"].values.tolist()
    found: dict[tuple[int, int], list[int]] = {}
    for entry, key in enumerate(zip(processes, numbers)):
        found.setdefault(key, []).append(entry)
    return list(found.values())


def _merged(raw: xr.Dataset, entries: list[int]) -> Iterator[dict[str, np.ndarray]]:
    """Yield the calls of one thread as recorded by all engines, cut at moments when no call was under way."""
    sources = {entry: _stretches(raw, entry) for entry in entries}
    if len(sources) == 1:
        yield from sources[entries[0]]
        return
    known = dict.fromkeys(entries, -1)  # every earlier call of an entry has been taken
    held: dict[str, np.ndarray] | None = None
    while sources:
        behind = min(sources, key=known.__getitem__)
        more = next(sources[behind], None)
        if more is None:
            del sources[behind]
        else:
            known[behind] = max(known[behind], int((more["begin"] + more["duration"]).max()))
            held = more if held is None else _joined([held, more])
        if held is not None and sources:
            done, held = _cut(held, min(known[entry] for entry in sources))
            if done is not None:
                yield done
    if held is not None:
        yield held


def _cut(
    calls: dict[str, np.ndarray], until: int
) -> tuple[dict[str, np.ndarray] | None, dict[str, np.ndarray] | None]:
    """The calls before the last moment up to `until`, ns, at which no call was under way, and the other calls."""
    order = np.argsort(calls["begin"], kind="stable")
    begin, end = calls["begin"][order], (calls["begin"] + calls["duration"])[order]
    ends = np.maximum.accumulate(end)
    gaps = np.flatnonzero((begin[1:] > ends[:-1]) & (ends[:-1] < until))
    first = int(gaps[-1]) + 1 if gaps.size else (len(order) if ends[-1] < until else 0)
    done, rest = order[:first], order[first:]
    return (
        {name: values[done] for name, values in calls.items()} if len(done) else None,
        {name: values[rest] for name, values in calls.items()} if len(rest) else None,
    )


def _joined(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _stretches(raw: xr.Dataset, thread: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield a thread's calls, cut at moments when no call was under way: events have the order in which they ended."""
    at = int(raw["thread_first"][thread])
    end = at + int(raw["thread_events"][thread])
    while at < end:
        length = CHUNK
        while True:
            stop = min(at + length, end)
            depth = raw["depth"][at:stop].values
            outer = np.flatnonzero(depth == 0)
            if stop == end or outer.size:
                break
            length *= 2
        if stop < end:
            stop = at + int(outer[-1]) + 1
        yield {
            "event": np.arange(at, stop),
            "depth": depth[: stop - at],
            **{name: raw[name][at:stop].values for name in _NAMES},
        }
        at = stop


@dataclass(frozen=True)
class Stretch:
    """Calls of one thread, in the order in which they began; none is within a call that is not in the stretch.

    thread : number of the thread, as in `thread` of /raw. tree : the nesting of the calls
    calls : as recorded, by name. function, layer : with each function twice, as in `Reader`
    own_ns : time in each call itself, minus the cost of tracing there
    """

    thread: int
    process: int
    tree: Nested
    calls: dict[str, np.ndarray]
    function: np.ndarray
    layer: np.ndarray
    own_ns: np.ndarray


class Reader:
    """All calls of a trace, nested, without what the tracer itself did in the kernel.

    Each function has two numbers: one for the program's I/O, and one for calls outside it, which form the last layer.
    """

    def __init__(self, raw: xr.Dataset) -> None:
        self.raw = raw
        self.known, self.layers = raw.sizes["function"], raw.sizes["layer"] + 1
        self.functions = 2 * self.known
        of_layer = raw["function_layer"].values.astype(np.int64)
        self.layer_of = np.append(of_layer, np.full(self.known, self.layers - 1))
        self.own = np.tile(raw["function_name"].values == OWN_NAME, 2)
        self.engine = np.tile(raw["function_engine"].values, 2)
        self.kind_of = np.tile(raw["function_kind"].values.astype(np.int64), 2)
        self.starting = np.array(
            [plain(str(name)) in ignored_paths.STARTING for name in raw["function_name"].values], bool
        )
        by_file = np.flatnonzero(np.isin(raw["layer_name"].values.astype(str), ignored_paths.BY_FILE))
        self.by_file = np.isin(of_layer, by_file)
        names = raw["layer_name"].values.astype(str)
        self.of_library = ~self.by_file & ~np.isin(of_layer, np.flatnonzero(names == "mpi"))
        # While MPI waits within its own I/O, it polls the sockets of its ranks. A socket has no offsets.
        self.of_ranks = np.isin(of_layer, np.flatnonzero(np.isin(names, ignored_paths.BETWEEN_RANKS)))
        placed = [bool(ignored_paths.AT_OFFSET.match(str(name))) for name in raw["function_name"].values]
        self.streaming = (
            self.by_file & np.isin(raw["function_kind"].values, (READ, WRITE)) & ~np.array(placed, bool)
        )
        written = _written(raw, self.by_file)
        self.beside = np.array(
            [ignored_paths.is_beside(str(path), wrote) for path, wrote in zip(raw["path"].values, written)],
            bool,
        )
        self.process_of = raw["thread_process"].values.astype(np.int64)
        self.cost = raw["call_cost"].values, raw["call_cost_inside"].values
        self.tracing = np.zeros(raw.sizes["process"])
        has_sources = "source_event" in raw
        self.source_event = raw["source_event"].values if has_sources else np.zeros(0, np.int64)
        self.source_file = raw["source_file"].values if has_sources else np.zeros(0, np.int32)

    def stretches(self) -> Iterator[Stretch]:
        """Yield the stretches of all threads, each thread in the order of time."""
        for entries in _threads(self.raw):
            for calls in _merged(self.raw, entries):
                if (found := self._stretch(entries[0], calls)) is not None:
                    yield found

    def _stretch(self, thread: int, calls: dict[str, np.ndarray]) -> Stretch | None:
        process = int(self.process_of[thread])
        known = calls["function_index"] >= 0
        if not known.all():
            calls = {name: values[known] for name, values in calls.items()}
        if not len(calls["begin"]):
            return None
        tree = nested(calls["begin"], calls["duration"], calls["depth"])
        if (alien := self._alien(tree, calls)) is not None:
            calls = {name: values[~alien] for name, values in calls.items()}
            tree = nested(calls["begin"], calls["duration"], calls["depth"])
        calls = {name: values[tree.order] for name, values in calls.items()}
        function = calls["function_index"].astype(np.int64)
        # A copy from a file to a socket belongs to the file.
        source = self.sources(calls["event"])
        file = np.where((calls["file_index"] == UNSEEN) & (source >= 0), source, calls["file_index"])
        function += self.known * self._is_beside(tree, function, file)
        own_ns = self._own_ns(process, tree, function, calls["flags"])
        return Stretch(thread, process, tree, calls, function, self.layer_of[function], own_ns)

    def sources(self, event: np.ndarray) -> np.ndarray:
        """The second file that each event reads; -1 if there is none or it is unknown."""
        found = np.full(len(event), -1, np.int64)
        if len(self.source_event):
            at = np.minimum(np.searchsorted(self.source_event, event), len(self.source_event) - 1)
            mine = self.source_event[at] == event
            found[mine] = self.source_file[at[mine]]
        return found

    def _is_beside(self, tree: Nested, function: np.ndarray, file: np.ndarray) -> np.ndarray:
        """A mask of calls outside the program's I/O, with all calls within them: `sonde.io.trace.ignored_paths`."""
        # If a library is traced for its I/O, its reads count as I/O, whoever opened the file.
        above, between = (
            np.where(tree.parent >= 0, of[function[tree.parent]], False)
            for of in (self.of_library, self.of_ranks)
        )
        found = self.by_file[function] & (file == UNSEEN) & (~above | (between & self.streaming[function]))
        named = file >= 0
        found[named] |= self.by_file[function[named]] & self.beside[file[named]]
        found |= self.starting[function]
        for level in range(1, int(tree.level.max()) + 1):
            mine = np.flatnonzero((tree.level == level) & (tree.parent >= 0))
            found[mine] |= found[tree.parent[mine]]
        return found & ~self.own[function]

    def _own_ns(self, process: int, tree: Nested, function: np.ndarray, flags: np.ndarray) -> np.ndarray:
        """Time in each call itself, minus the cost of tracing: the inner part of the call's own cost, the outer part of
        calls within."""
        own_ns = tree.self_ns.astype(np.float64)
        inside = float(self.cost[1][process])
        around = float(self.cost[0][process]) - inside
        interposed = (self.engine[function] == 0) & ~self.own[function] & ((flags & ENTRY_ONLY) == 0)
        took = np.where(interposed, inside, 0.0)
        within = interposed & (tree.parent >= 0)
        np.add.at(took, tree.parent[within], around)
        took = np.minimum(took, own_ns)
        self.tracing[process] += took.sum()
        return own_ns - took

    def _alien(self, tree: Nested, calls: dict[str, np.ndarray]) -> np.ndarray | None:
        """A mask of calls that belong to the tracer's own work, as the kernel sees its writes. None if there are
        none."""
        own = self.own[calls["function_index"][tree.order]]
        if not own.any():
            return None
        within = np.zeros(len(own), bool)
        # A signal handler that runs meanwhile is the program's: its calls are seen in libraries above the kernel.
        seen_by_kernel = self.engine[calls["function_index"][tree.order]] != 0
        for level in range(1, int(tree.level.max()) + 1):
            mine = np.flatnonzero((tree.level == level) & (tree.parent >= 0) & seen_by_kernel)
            within[mine] = (own | within)[tree.parent[mine]]
        if not within.any():
            return None
        found = np.zeros(len(own), bool)
        found[tree.order] = within
        return found


class _Walk(Reader):
    """Sums over all calls."""

    def __init__(self, raw: xr.Dataset, served: Served, collective: CollectiveIo) -> None:
        super().__init__(raw)
        self.served, self.collective = served, collective
        self.processes, self.files = raw.sizes["process"], raw.sizes["file"]
        begins = [int(raw["begin"][:1].values[0])] if raw.sizes["event"] else [0]
        self.begin, self.end = _span(raw, begins)
        self.edges = np.linspace(self.begin, max(self.end, self.begin + 1), BINS + 1)
        self.nodes: dict[tuple[int, int], int] = {}
        self.node_sums = np.zeros((0, 5))
        shape = (self.processes, self.functions)
        self.calls, self.failed = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.bytes, self.unknown = np.zeros(shape), np.zeros(shape, np.int64)
        self.time, self.self_time = np.zeros(shape), np.zeros(shape)
        self.longest = np.zeros(shape)
        self.durations = np.zeros((self.functions, CLASSES), np.int64)
        self.entered = np.zeros((self.processes, self.layers, 2, 3))  # calls, bytes, time
        self.layer_time = np.zeros((self.processes, self.layers))
        self.requests = np.zeros((self.layers, 2, CLASSES, 2))  # calls, bytes
        self.of_file = np.zeros((self.files, self.layers, 2, 3))
        self.mapped = np.zeros(self.files)
        self.lost_of_file = np.zeros((self.files, self.layers), np.int64)
        self.lost = np.zeros(shape, np.int64)
        self.unsized, self.asked = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.entered_asked = np.zeros((self.processes, self.layers, 2), np.int64)
        self.busy = np.zeros((self.processes, self.layers + 1, BINS))
        self.traced = np.zeros(self.processes)
        self.numbers = raw["thread_number"].values.astype(np.int64)
        self.under_way: list[tuple[int, int, int, int, float]] = []

    def take(self, stretch: Stretch) -> None:
        """Add the calls of a stretch."""
        process, tree, calls = stretch.process, stretch.tree, stretch.calls
        function, layer, self_ns = stretch.function, stretch.layer, stretch.own_ns
        duration = calls["duration"].astype(np.float64)
        # A failed call has moved none of the bytes that it was asked for.
        failed = (calls["flags"] & (FAILED | THROWN)) != 0
        size = np.where(failed, 0.0, np.maximum(calls["size"], 0))
        self._by_function(process, function, calls, duration, self_ns, size)
        self._by_node(tree, function, duration, self_ns, size)
        for k in np.flatnonzero(calls["flags"] & UNFINISHED).tolist():
            file, begin = int(calls["file_index"][k]), float(calls["begin"][k])
            self.under_way.append((process, int(self.numbers[stretch.thread]), int(function[k]), file, begin))
        entering = outermost(tree, layer)
        kind, files = self.kind_of[function], calls["file_index"]
        self._by_layer(process, layer, kind, entering, calls, duration, size, failed)
        copied = np.flatnonzero((kind == COPY) & entering & ~failed)
        if len(copied):
            one = {name: values[copied] for name, values in calls.items()}
            one["file_index"] = self.sources(one["event"])
            reading = np.zeros(len(copied), np.int8)
            self._moved(process, layer[copied], reading, one, duration[copied], size[copied])
        self._lost(process, function, kind, layer, entering, files, failed)
        self._unknown(process, function, kind, calls, entering & ~failed)
        mapped = (kind == MAP) & entering & (files >= 0) & (layer != self.layers - 1)
        np.add.at(self.mapped, files[mapped], size[mapped])
        above = np.where(tree.parent >= 0, layer[tree.parent], self.layers)
        self._by_time(process, layer, above, calls["begin"], calls["duration"])
        self.served.add(calls["event"], tree, function, layer, self_ns)
        beside = function >= self.known
        self.collective.take(process, calls, tree, function - self.known * beside, beside)
        self.traced[process] += duration[tree.level == 0].sum()

    def _by_function(
        self,
        process: int,
        function: np.ndarray,
        calls: dict[str, np.ndarray],
        duration: np.ndarray,
        self_ns: np.ndarray,
        size: np.ndarray,
    ) -> None:
        def summed(values: np.ndarray | None = None) -> np.ndarray:
            return np.bincount(function, values, minlength=self.functions)

        self.calls[process] += summed().astype(np.int64)
        self.failed[process] += summed((calls["flags"] & (FAILED | THROWN)) != 0).astype(np.int64)
        self.unknown[process] += summed((calls["flags"] & (ENTRY_ONLY | UNFINISHED)) != 0).astype(np.int64)
        self.bytes[process] += summed(size)
        self.time[process] += summed(duration)
        self.self_time[process] += summed(self_ns)
        np.maximum.at(self.longest[process], function, duration)
        np.add.at(self.durations, (function, size_class(calls["duration"])), 1)

    def _by_node(
        self, tree: Nested, function: np.ndarray, duration: np.ndarray, self_ns: np.ndarray, size: np.ndarray
    ) -> None:
        node = np.full(len(function), -1, np.int64)
        for level in range(int(tree.level.max()) + 1):
            mine = np.flatnonzero(tree.level == level)
            parent = tree.parent[mine]
            above = np.where(parent >= 0, node[parent], -1)
            pairs, place = np.unique(np.stack([above, function[mine]]), axis=1, return_inverse=True)
            ids = [
                self.nodes.setdefault((int(up), int(what)), len(self.nodes))
                for up, what in zip(pairs[0], pairs[1])
            ]
            node[mine] = np.array(ids, np.int64)[place.reshape(-1)]
        if len(self.nodes) > len(self.node_sums):
            more = np.zeros((len(self.nodes) - len(self.node_sums), 5))
            self.node_sums = np.concatenate([self.node_sums, more])
        for k, values in enumerate((None, size, duration, self_ns)):
            self.node_sums[:, k] += np.bincount(node, values, minlength=len(self.nodes))

    def _by_layer(
        self,
        process: int,
        layer: np.ndarray,
        kind: np.ndarray,
        outermost: np.ndarray,
        calls: dict[str, np.ndarray],
        duration: np.ndarray,
        size: np.ndarray,
        failed: np.ndarray,
    ) -> None:
        self.layer_time[process] += np.bincount(layer[outermost], duration[outermost], minlength=self.layers)
        direction = _DIRECTIONS[kind]
        moved = outermost & (direction >= 0) & ~failed
        those = {name: values[moved] for name, values in calls.items()}
        self._moved(process, layer[moved], direction[moved], those, duration[moved], size[moved])

    def _moved(
        self,
        process: int,
        layer: np.ndarray,
        direction: np.ndarray,
        calls: dict[str, np.ndarray],
        duration: np.ndarray,
        size: np.ndarray,
    ) -> None:
        """Add requests that entered a layer."""
        place = (layer, direction)
        for k, values in enumerate((np.ones(len(size)), size, duration)):
            np.add.at(self.entered[process, :, :, k], place, values)
        np.add.at(self.entered_asked[process], place, (calls["flags"] & ASKED) != 0)
        sized = calls["size"] >= 0
        place3 = (layer[sized], direction[sized], size_class(calls["size"][sized]))
        np.add.at(self.requests[..., 0], place3, 1)
        np.add.at(self.requests[..., 1], place3, size[sized])
        named = calls["file_index"] >= 0
        place_file = (calls["file_index"][named], layer[named], direction[named])
        for k, values in enumerate((np.ones(int(named.sum())), size[named], duration[named])):
            np.add.at(self.of_file[..., k], place_file, values)

    def _lost(
        self,
        process: int,
        function: np.ndarray,
        kind: np.ndarray,
        layer: np.ndarray,
        outermost: np.ndarray,
        file: np.ndarray,
        failed: np.ndarray,
    ) -> None:
        """Count failed calls that should have moved data. Closes count only for files: many programs close handles that
        they do not have."""
        # A server that polls reads from its connections until a read fails with EAGAIN. If a descriptor may be a
        # connection, as in an attached process, a stream's failed read counts as no loss.
        polled = (file < 0) & (kind == READ) & self.streaming[function % self.known]
        lost = (
            failed & (file != UNSEEN) & ~polled & (np.isin(kind, _MOVING) | ((kind == CLOSE) & (file >= 0)))
        )
        self.lost[process] += np.bincount(function[lost], minlength=self.functions)
        of_file = lost & outermost & (file >= 0)
        np.add.at(self.lost_of_file, (file[of_file], layer[of_file]), 1)

    def _unknown(
        self,
        process: int,
        function: np.ndarray,
        kind: np.ndarray,
        calls: dict[str, np.ndarray],
        whole: np.ndarray,
    ) -> None:
        """Count calls that moved data, of which the bytes that came are not known: neither, or only what was asked."""
        asked = (calls["flags"] & ASKED) != 0
        whole = whole & ((calls["flags"] & (ENTRY_ONLY | UNFINISHED)) == 0)
        for to, mine in (
            (self.unsized, (asked | np.isin(kind, _WITH_BYTES)) & (calls["size"] < 0)),
            (self.asked, asked & (calls["size"] >= 0)),
        ):
            to[process] += np.bincount(function[mine & whole], minlength=self.functions)

    def _by_time(
        self, process: int, layer: np.ndarray, above: np.ndarray, begin: np.ndarray, duration: np.ndarray
    ) -> None:
        """Add each layer's own time over time: a call adds to its layer, and subtracts from the layer around it."""
        self._cover(process, layer, begin, duration, 1.0)
        self._cover(process, above, begin, duration, -1.0)

    def _cover(
        self, process: int, row: np.ndarray, begin: np.ndarray, duration: np.ndarray, sign: float
    ) -> None:
        width = self.edges[1] - self.edges[0]
        first = np.clip(((begin - self.begin) / width).astype(np.int64), 0, BINS - 1)
        last = np.clip(((begin + duration - self.begin) / width).astype(np.int64), 0, BINS - 1)
        busy = self.busy[process].reshape(-1)
        base = row * BINS
        short = first == last
        busy += sign * np.bincount(base[short] + first[short], duration[short], minlength=busy.size)
        if short.all():
            return
        first, last, base = first[~short], last[~short], base[~short]
        begin, end = begin[~short], begin[~short] + duration[~short]
        head = self.edges[first + 1] - begin
        tail = end - self.edges[last]
        busy += sign * np.bincount(base + first, head, minlength=busy.size)
        busy += sign * np.bincount(base + last, tail, minlength=busy.size)
        whole = np.zeros((self.layers + 1, BINS + 1)).reshape(-1)
        wide = row[~short] * (BINS + 1)
        whole += np.bincount(wide + first + 1, minlength=whole.size)
        whole -= np.bincount(wide + last, minlength=whole.size)
        covered = np.cumsum(whole.reshape(-1, BINS + 1), axis=1)[:, :BINS]
        busy += sign * width * covered.reshape(-1)

    def tables(self) -> dict[str, np.ndarray]:
        if self.own.any():  # this time belongs to no layer of the program, and must not get lost
            self.self_time[:, np.flatnonzero(self.own)[0]] += self.tracing
        parents = np.array([up for up, _ in self.nodes], np.int64)
        nodes = np.array([what for _, what in self.nodes], np.int64)
        ns = 1e-9
        under_way = np.array(self.under_way, np.float64).reshape(-1, 5).T
        return {
            "calls": self.calls,
            "failed": self.failed,
            "lost": self.lost,
            "unsized": self.unsized,
            "asked": self.asked,
            "unfinished": self.unknown,
            "bytes": self.bytes.astype(np.int64),
            "time": self.time * ns,
            "self_time": self.self_time * ns,
            "longest": self.longest * ns,
            "durations": self.durations,
            "layer_time": self.layer_time * ns,
            "layer_self_time": np.stack(
                [self.self_time[:, self.layer_of == layer].sum(axis=1) for layer in range(self.layers)],
                axis=1,
            )
            * ns
            if self.layers
            else np.zeros((self.processes, 0)),
            "requests": self.entered[..., 0].astype(np.int64),
            "request_bytes": self.entered[..., 1].astype(np.int64),
            "request_time": self.entered[..., 2] * ns,
            "request_asked": self.entered_asked,
            "request_sizes": self.requests[..., 0].astype(np.int64),
            "request_size_bytes": self.requests[..., 1].astype(np.int64),
            "file_requests": self.of_file[..., 0].astype(np.int64),
            "file_bytes": self.of_file[..., 1].astype(np.int64),
            "file_time": self.of_file[..., 2] * ns,
            "file_lost": self.lost_of_file,
            "file_mapped": self.mapped.astype(np.int64),
            "node_parent": parents,
            "node_function": nodes,
            "node_calls": self.node_sums[:, 0].astype(np.int64),
            "node_bytes": self.node_sums[:, 1].astype(np.int64),
            "node_time": self.node_sums[:, 2] * ns,
            "node_self_time": self.node_sums[:, 3] * ns,
            "busy": np.maximum(self.busy[:, : self.layers], 0) * ns,
            "bin_begin": (self.edges[:-1]) * ns,
            **{
                f"under_way_{name}": values.astype(np.int64)
                for name, values in zip(("process", "thread", "function", "file"), under_way)
            },
            "under_way_begin": under_way[4] * ns,
            "tracing_time": self.tracing * ns,
            "traced_time": self.traced * ns,
        }


def _written(raw: xr.Dataset, by_file: np.ndarray) -> list[bool]:
    """For each file whether functions that work on files wrote to it."""
    writes = by_file & np.isin(raw["function_kind"].values, (WRITE, COPY))
    found = np.zeros(raw.sizes["file"], bool)
    for at in range(0, raw.sizes["event"], CHUNK):
        function, file, size = (
            raw[name][at : at + CHUNK].values for name in ("function_index", "file_index", "size")
        )
        mine = (function >= 0) & (file >= 0) & (size != 0)
        found[file[mine][writes[function[mine]]]] = True
    return [bool(one) for one in found]


def _span(raw: xr.Dataset, begins: list[int]) -> tuple[int, int]:
    """The first begin and the last end, ns."""
    first, last = begins[0], begins[0]
    for at in range(0, raw.sizes["event"], CHUNK):
        begin = raw["begin"][at : at + CHUNK].values
        end = begin + raw["duration"][at : at + CHUNK].values
        first, last = min(first, int(begin.min())), max(last, int(end.max()))
    return first, last


def outermost(tree: Nested, layer: np.ndarray) -> np.ndarray:
    """A mask of calls without a call of their own layer at any level around them: they enter the layer from above."""
    inside = np.zeros(len(layer), np.int64)  # bits of the layers around a call
    outermost = np.ones(len(layer), bool)
    for level in range(1, int(tree.level.max()) + 1):
        mine = np.flatnonzero((tree.level == level) & (tree.parent >= 0))
        parent = tree.parent[mine]
        inside[mine] = inside[parent] | (np.int64(1) << layer[parent])
        outermost[mine] = (inside[mine] >> layer[mine]) & 1 == 0
    return outermost
