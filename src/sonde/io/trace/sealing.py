"""Turn records of block files into datasets of io/1 that are traces: layout, placement, analysis."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import described
from sonde.core.described import Tables, attribute
from sonde.core.errors import DataError, Finding, Warning
from sonde.core.layout import Layout
from sonde.io.maps.layers import DIRECTIONS, KINDS
from sonde.io.trace import servers, whatif, worlds
from sonde.io.trace.clock import Clocks
from sonde.io.trace.collectives import ASKING, SYNCHRONISING, Calls, plain
from sonde.io.trace.events import (
    ENTRY_ONLY,
    FAILED,
    FLAGS,
    OWN,
    RECORD,
    THROWN,
    UNFINISHED,
    UNKNOWN,
    folded,
    pieces,
)
from sonde.io.trace.ignored_paths import BY_FILE

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile
    from sonde.core.deadline import Deadline
from sonde.io.trace.schema import (
    CHUNK,
    ENGINES,
    EVENT,
    OF_REQUEST,
    OF_SOURCE,
    OF_THREAD,
    OWN_NAME,
    RANKLESS,
    RAW,
    UNSEEN,
)

ATTRIBUTES = {**described.ROOT, "status": attribute("exit status of the program")}
_GIVEN = -3  # a copy of a standard descriptor; unknown, like the standard descriptors themselves
_STANDARD = 2  # the last standard descriptor, which every program is given
_DESCRIPTORS = 1 << 16  # handles below are descriptors, handles above are pointers
_BETWEEN_RANKS = (KINDS.index("communicate"), KINDS.index("wait"))
_OPEN = KINDS.index("open")
_NO_DESCRIPTOR = int(folded(np.array([2**64 - 1], np.uint64))[0])
_ANY_LAYER = -1  # for files opened before: any layer may have opened them, for all layers share descriptors


@dataclass
class _File:
    """One block file, as `layout` found it."""

    process: int
    first: int = 0
    events: int = 0
    first_request: int = 0
    requests: int = 0
    first_source: int = 0
    sources: int = 0
    threads: list[tuple[int, int, int]] = field(
        default_factory=list
    )  # (first event within the file, number, process)
    # If the kernel recorded the file: the images that ran under the process's number, and when each began, in ticks.
    images: list[int] = field(default_factory=list)
    began: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))

    def image_of(self, calls: np.ndarray) -> np.ndarray:
        """The index in `images` of each call's image; -1 for calls of what ran before the traced program."""
        return np.searchsorted(self.began, calls["begin"], side="right") - 1


@dataclass
class _Opened:
    """Files that a process opened, by handle, over time. key : (layer, handle)."""

    by_handle: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)  # (ticks, file)
    # Calls that open, with begin, end and file, and calls that close; in_order() merges them
    openings: dict[tuple[int, int], list[tuple[int, int, int]]] = field(default_factory=dict)
    closings: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)
    openings_traced: bool = False  # descriptors are known from their opening on,
    blind: bool = False  # but some openings were missed

    def lists(self, layer: int, handle: int) -> list[list[tuple[int, int]]]:
        """All entries about a handle. A layer that does not name files, such as system calls, uses the openings of
        other layers."""
        own = self.by_handle.get((layer, handle), [])
        if any(file >= 0 for _, file in own):
            return [own, self.by_handle.get((_ANY_LAYER, handle), [])]
        return [entries for (_, other), entries in self.by_handle.items() if other == handle]

    def add(self, layer: int, handle: int, ticks: int, file: int) -> None:
        """file: -1 if the handle is closed: after that it means a file whose opening was not traced."""
        self.by_handle.setdefault((layer, handle), []).append((ticks, file))

    def opens(self, layer: int, handle: int, call: np.void, file: int) -> None:
        self.openings.setdefault((layer, handle), []).append((int(call["begin"]), int(call["end"]), file))

    def closes(self, layer: int, handle: int, call: np.void) -> None:
        self.closings.setdefault((layer, handle), []).append((int(call["begin"]), int(call["end"])))

    def in_order(self) -> None:
        """Merge openings and closings in the order of time.

        A handle means a file from the begin of the call that opens it to the end of the call that closes it: what
        libraries do within these calls belongs to the file. But a thread may be given a handle while another thread's
        closing call is still running, or may have asked for it before that call began: then the handle was already
        free.
        """
        for key in self.openings.keys() | self.closings.keys():
            entries = self.by_handle.setdefault(key, [])
            closings = sorted(self.closings.get(key, ()))
            closed = [end for _, end in closings]
            for begin, end, file in sorted(self.openings.get(key, ())):
                # The last closing call that began before the opening call was given the handle
                k = bisect_left(closings, (end, 0)) - 1
                if k >= 0 and closings[k][1] > begin:
                    begin = max(begin, closings[k][0])
                    closed[k] = min(closed[k], begin)
                entries.append((begin, file))
            entries += [(ticks, -1) for ticks in closed]
        for entries in self.by_handle.values():
            entries.sort()
        self.openings.clear()
        self.closings.clear()


_Rule = tuple[int, int, int, list[int] | None, int, int]


@dataclass(frozen=True)
class _Copy:
    """A second handle of a file, made by a call. begin, end: ticks of the call."""

    begin: int
    end: int
    process: int
    layer: int
    old: int
    new: int


@dataclass
class IoLayout(Layout):
    """The layout of a trace, with further data that place() needs."""

    files: dict[str, _File] = field(default_factory=dict)
    numbers: dict[str, np.ndarray] = field(
        default_factory=dict
    )  # process's prefix -> function by its own number
    requests: dict[str, np.ndarray] = field(
        default_factory=dict
    )  # functions whose records hold a request number
    sources: dict[str, np.ndarray] = field(default_factory=dict)  # functions that read a second file
    copies: dict[str, np.ndarray] = field(
        default_factory=dict
    )  # functions that make a second handle of a file
    numbered: dict[str, np.ndarray] = field(default_factory=dict)  # functions whose handles are numbers
    layer_of: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int16))
    kind_of: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int8))
    of_descriptors: list[int] = field(default_factory=list)  # layers whose handles are descriptors
    opened: list[_Opened] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    began: list[int] = field(default_factory=list)  # ticks
    clocks: Clocks = field(default_factory=Clocks)
    hosts: list[str] = field(default_factory=list)
    tables: dict[str, np.ndarray] = field(default_factory=dict)


class TraceSchema:
    """RoomSchema of a trace (`sonde.core.seal`). Plan keys: docs of `layout`."""

    room = "io"
    version = 1

    def close(self, folder: Path, ended: bool) -> tuple[dict[str, Any], list[Warning]]:
        """Complete the tracer's files before they are read: `sonde.io.trace.run_close.close`."""
        from sonde.io.trace.run_close import close

        return close(folder, ended)

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        """One dataset for all processes."""
        return [""]

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> IoLayout:
        """Count the contents of the files.

        Parameters
        ----------
        plan : layers [{name, title, serves}] from the application down; rules [[layer, kind, request, copies, named,
               numbered]] as the tracer numbers them, request: the offset of a record is a request number; copies: the
               size of a record is a second handle of the file if the offset is one of these values ([] for always, null
               for never); named: a file that it opens has a name; numbered: its handles are numbers, and 0 is a valid
               one; own, the layer of the tracer's own work, if there is one; tables, table_of, servers
               (`run_close.close`); clocks [[host, ticks, ns]] read where the run was started; open [[host, pid, handle,
               path]], the open handles of processes when tracing attached to them, with the path "" for sockets, pipes
               and the like
        files : one block file for each thread

        Raises
        ------
        DataError  io.not_io_blocks.
        """
        names = [_prefix(file) for file in files]
        for file in files:
            if file.dtype != RECORD or not {"host", "pid", "ticks", "began_ticks"} <= set(file.header):
                raise DataError(
                    "io.not_io_blocks",
                    f"{file.path.name} was not written by the tracer",
                    "keep only the files of one run in its folder",
                )
        headers = {name: file.header for name, file in zip(names, files)}
        images = {name: _images(headers, name) for name in headers}
        order = sorted(
            (name for name in headers if not images[name]), key=lambda name: _of_process(headers[name])
        )
        number = {name: k for k, name in enumerate(order)}
        functions = _Functions(plan, headers)
        clocks = Clocks()
        for host, ticks, ns in plan.get("clocks", []):
            clocks.add(str(host), int(ticks), int(ns))
        for name in headers:
            header = headers[name]
            utc_ns = header["began_utc_ns"] if name in number else None
            clocks.add(header["host"], header["began_ticks"], header["began_ns"], utc_ns)
        opened = [_Opened() for _ in order]
        paths: dict[str, int] = {}
        for host, pid, handle, path in plan.get("open", []):
            for name, k in number.items():
                if (headers[name]["host"], headers[name]["pid"]) == (host, pid):
                    # A socket or a pipe counts as unseen, like everything that a traced program was not seen to open.
                    what = paths.setdefault(str(path), len(paths)) if path else UNSEEN
                    opened[k].add(_ANY_LAYER, int(handle), 0, what)
        made: dict[str, _File] = {}
        dropped = np.zeros(len(order), np.int64)
        copies: list[_Copy] = []
        collectives: dict[str, Calls] = {}
        several = len({header["host"] for header in headers.values()}) > 1
        names_of_layers = [layer["name"] for layer in plan["layers"]]
        descriptors = names_of_layers.index("posix") if "posix" in names_of_layers else None
        for name in headers:
            if images[name]:
                number[name] = number[images[name][0]]
        by_process = sorted(zip(names, files), key=lambda pair: (number[pair[0]], _number(pair[1])))
        for name, file in by_process:
            made[file.path.name] = one = _File(number[name])
            if images[name]:
                one.images = [number[image] for image in images[name]]
                ready = [
                    headers[image].get("ready_ticks", headers[image]["began_ticks"]) for image in images[name]
                ]
                one.began = np.array(ready, np.uint64)
                _count_images(one, functions, name, file)
                dropped[one.process] += file.dropped
                continue
            nameless = functions.nameless(name, descriptors)
            for piece in pieces(file):
                functions.count(name, piece.calls)
                if several:
                    functions.hear(
                        name, piece.calls, collectives.setdefault(name, Calls(file.header["host"]))
                    )
                for clock in piece.clocks:
                    clocks.add(file.header["host"], clock.ticks, clock.ns)
                    if clock.thread:
                        one.threads.append((one.events + clock.call, clock.thread, one.process))
                for note in piece.notes:
                    if note.call < len(piece.calls):
                        call = piece.calls[note.call]
                        layer = functions.layer(name, int(call["function"]))
                        path = paths.setdefault(note.name, len(paths))
                        opened[one.process].opens(layer, note.handle, call, path)
                for own, shown_name in nameless.items():
                    for call in piece.calls[
                        (piece.calls["function"] == own) & ((piece.calls["flags"] & FAILED) == 0)
                    ]:
                        path = paths.setdefault(shown_name, len(paths))
                        opened[one.process].opens(functions.layer(name, own), int(call["file"]), call, path)
                for call in piece.calls[
                    functions.of_kind(name, "close")[piece.calls["function"]]
                    & ((piece.calls["file"] != 0) | functions.numbered(name)[piece.calls["function"]])
                ]:
                    layer = functions.layer(name, int(call["function"]))
                    opened[one.process].closes(layer, int(call["file"]), call)
                copies += functions.copied(name, one.process, piece.calls)
                if not file.header.get("watched"):  # the kernel's events contain no names
                    opens = piece.calls[functions.of_kind(name, "open")[piece.calls["function"]]]
                    opened[one.process].blind |= bool((opens["flags"] & ENTRY_ONLY).any())
                    opened[one.process].openings_traced |= any(
                        functions.layer(name, int(number)) == descriptors
                        for number in np.unique(opens["function"])
                    )
                one.events += len(piece.calls)
                one.requests += int(_of_requests(functions.requests(name), piece.calls).sum())
                one.sources += int(_of_requests(functions.of_kind(name, "copy"), piece.calls).sum())
            dropped[one.process] += file.dropped
            # Calls that did not fit into the trace may have opened files.
            opened[one.process].blind |= file.dropped > 0
        events = requests = sources = 0
        for one in made.values():
            one.first, one.first_request, one.first_source = events, requests, sources
            events, requests = events + one.events, requests + one.requests
            sources += one.sources
        clocks.settle([headers[name]["host"] for name in order])
        clocks.align(_of_ranks(headers, order, collectives))
        layout = IoLayout(
            dims={},
            coords={},
            variables={},
            files=made,
            numbers=functions.settled(),
            requests={name: functions.requests(name) for name in headers},
            sources={name: functions.of_kind(name, "copy") for name in headers},
            copies={name: functions.copies(name) for name in headers},
            numbered={name: functions.numbered(name) for name in headers},
            layer_of=functions.layers(),
            kind_of=functions.kinds(),
            of_descriptors=[k for k, layer in enumerate(names_of_layers) if layer in BY_FILE],
            opened=opened,
            parents=_parents(order, headers, number),
            began=[int(headers[name]["began_ticks"]) for name in order],
            clocks=clocks,
            hosts=[headers[name]["host"] for name in order],
        )
        _follow(copies, layout)
        threads = [
            (process, tid, one.first + first, _next(one, k) - first)
            for one in made.values()
            for k, (first, tid, process) in enumerate(one.threads)
        ]
        began = [clocks.ns(headers[name]["host"], headers[name]["began_ticks"]) for name in order]
        layout.tables = {
            **functions.columns(),
            "layer_name": _texts(layer["name"] for layer in plan["layers"]),
            "layer_title": _texts(layer["title"] for layer in plan["layers"]),
            "layer_watched": functions.watched(),
            "layer_serves": _texts(layer.get("serves", "") for layer in plan["layers"]),
            "process_host": _texts(layout.hosts),
            "process_pid": np.array([headers[name]["pid"] for name in order], np.int32),
            "process_parent": np.array([headers[name]["parent"] for name in order], np.int32),
            "process_rank": np.array([headers[name]["rank"] for name in order], np.int32),
            "process_world": np.array(worlds.of_headers([headers[name] for name in order]), np.int32),
            "process_program": _texts(headers[name]["program"] for name in order),
            "process_begin": np.array(began, np.float64).round().astype(np.int64),
            "process_dropped": dropped,
            **{
                name: np.array([_cost_ns(headers[process], clocks, key) for process in order])
                for name, key in (("call_cost", "cost_ticks"), ("call_cost_inside", "cost_inside_ticks"))
            },
            "clock_offset": np.array([clocks.offset_s(host) for host in layout.hosts]),
            "clock_drift": np.array([clocks.drift(host) for host in layout.hosts]),
            "clock_error": np.array([clocks.error_s(host) for host in layout.hosts]),
            **dict(zip(OF_THREAD, np.array(threads, np.int64).reshape(-1, 4).T)),
            "path": _texts(paths),
        }
        asked = plan.get("servers")
        if asked:
            layout.tables |= servers.tables_of(asked, list(paths))
            layout.dims |= {
                "server": len(asked["servers"]),
                "operation": len(layout.tables["operation_name"]),
            }
            layout.dims |= {"direction": len(DIRECTIONS), "size_class": servers.CLASSES}
        layout.dims |= {
            "event": events,
            "request": requests,
            "source": sources,
            **{
                dim: len(layout.tables[name])
                for dim, name in (
                    ("layer", "layer_name"),
                    ("function", "function_name"),
                    ("process", "process_pid"),
                    ("thread", "thread_number"),
                    ("file", "path"),
                )
            },
        }
        flags = {
            "flag_masks": np.array(list(FLAGS), np.uint8),
            "flag_meanings": " ".join(shown_name.replace(" ", "_") for shown_name in FLAGS.values()),
        }
        kinds = {"flag_values": np.arange(len(KINDS), dtype=np.int8), "flag_meanings": " ".join(KINDS)}
        engines = {"flag_values": np.arange(len(ENGINES), dtype=np.int8), "flag_meanings": " ".join(ENGINES)}
        special = {"flags": flags, "function_kind": kinds, "function_engine": engines}
        layout.variables = {
            name: what.variable(
                chunks=(CHUNK,) if name in (*EVENT, *OF_REQUEST, *OF_SOURCE) else None,
                attrs=special.get(name),
            )
            for name, what in RAW.items()
            if name not in whatif.RAW and (asked or name not in servers.RAW)
        }
        layout.attrs = {"began_utc_ns": clocks.zero_utc_ns}
        layout.warnings = [*clocks.warnings, *functions.warnings]
        return layout

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        """Yield pieces of /raw from one file; the small tables come with the first file."""
        assert isinstance(layout, IoLayout)
        one = layout.files[file.path.name]
        if file.path.name == next(iter(layout.files)):
            for name, values in layout.tables.items():
                if values.size:
                    yield name, tuple(slice(0, length) for length in values.shape), values
        at, at_request, at_source = one.first, one.first_request, one.first_source
        host, functions = layout.hosts[one.process], layout.numbers[_prefix(file)]
        of_requests, of_sources = layout.requests[_prefix(file)], layout.sources[_prefix(file)]
        for piece in pieces(file):
            for process, calls in _by_image(one, piece.calls):
                if len(found := np.flatnonzero(_of_requests(of_requests, calls))):
                    into = (slice(at_request, at_request := at_request + len(found)),)
                    yield "request_event", into, at + found
                    yield "request_number", into, calls["offset"][found].view(np.int64)
                if len(found := np.flatnonzero(_of_requests(of_sources, calls))):
                    into = (slice(at_source, at_source := at_source + len(found)),)
                    others = calls[found]
                    others["file"] = folded(others["offset"])
                    yield "source_event", into, at + found
                    yield (
                        "source_file",
                        into,
                        _paths(
                            layout, process, others, functions[others["function"]], np.ones(len(others), bool)
                        ),
                    )
                where = (slice(at, at := at + len(calls)),)
                numbered = layout.numbered[_prefix(file)][calls["function"]]
                columns = _columns(layout, process, host, functions, calls, numbered)
                columns["offset"][(of_requests | of_sources)[calls["function"]]] = -1
                of_copies = layout.copies[_prefix(file)][calls["function"]]
                columns["size"][of_copies] = columns["offset"][of_copies] = -1
                for name, values in columns.items():
                    yield name, where, values

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        """/raw to /summary: `sonde.io.trace.analyse.analyse`."""
        from sonde.io.trace.analyse import analyse

        return analyse(raw)

    def tables(self, tree: xr.DataTree) -> Tables:
        """The declared variables and root attributes, which `dataset.open` checks a file against."""
        from sonde.io.trace.summary import SUMMARY

        return {"raw": RAW, "summary": SUMMARY, "": ATTRIBUTES}

    def validate(self, tree: xr.DataTree) -> list[Finding]:
        """The errors in a dataset; [] for a valid one."""
        return described.check("io", "/raw", tree["raw"].to_dataset(), RAW) if "raw" in tree.children else []


def _cost_ns(header: Mapping[str, Any], clocks: Clocks, key: str) -> float:
    """The cost of a call that the process measured at its start, ns; 0 if it measured none."""
    calls = int(header.get("cost_calls", 0))
    return float(header.get(key, 0)) * clocks.ns_per_tick(header["host"]) / calls if calls else 0.0


def _of_ranks(
    headers: Mapping[str, Mapping[str, Any]], order: Sequence[str], collectives: Mapping[str, Calls]
) -> list[Calls]:
    """The collective calls of all ranks, in order, of the MPI program with the most ranks; [] if there are none, a rank
    is missing, or two ranks have the same number."""
    of_world: dict[int, dict[str, int]] = {}
    for name, world in zip(order, worlds.of_headers([headers[name] for name in order])):
        if name in collectives and collectives[name].begin and world != worlds.NONE:
            of_world.setdefault(world, {})[name] = int(headers[name]["rank"])
    whole = [ranks for ranks in of_world.values() if sorted(ranks.values()) == list(range(len(ranks)))]
    return [collectives[name] for name in max(whole, key=len, default={})]


def _count_images(one: _File, functions: _Functions, name: str, file: BlockFile) -> None:
    """Distribute the calls of a thread that the kernel recorded over the images of its process."""
    counts = np.zeros(len(one.images), np.int64)
    for piece in pieces(file):
        for process, calls in _by_image(one, piece.calls):
            functions.count(name, calls)
            one.requests += int(_of_requests(functions.requests(name), calls).sum())
            one.sources += int(_of_requests(functions.of_kind(name, "copy"), calls).sum())
            counts[one.images.index(process)] += len(calls)
    for process, count in zip(one.images, counts.tolist()):
        if count:
            one.threads.append((one.events, _number(file), process))
            one.events += count


def _by_image(one: _File, calls: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The calls by the process that made them, in order."""
    if not len(calls):
        return
    if not one.images:
        yield one.process, calls
        return
    image = np.maximum.accumulate(one.image_of(calls))
    for k in np.unique(image[image >= 0]).tolist():
        yield one.images[k], calls[image == k]


def _images(headers: Mapping[str, Mapping[str, Any]], name: str) -> list[str]:
    """The traced programs that ran under a process number which the kernel recorded, one after another."""
    header = headers[name]
    if not header.get("watched"):
        return []
    same = [
        (theirs.get("watched"), other, theirs)
        for other, theirs in headers.items()
        if (theirs["host"], theirs["pid"]) == (header["host"], header["pid"])
    ]
    # Each program that the process became has its own file.
    begin = int(header.get("image_ticks", 0))
    later = [int(theirs.get("image_ticks", 0)) for watched, _, theirs in same if watched]
    end = min((ticks for ticks in later if ticks > begin), default=1 << 64)
    began = {other: int(theirs["began_ticks"]) for watched, other, theirs in same if not watched}
    return sorted((other for other, ticks in began.items() if begin <= ticks < end), key=began.__getitem__)


def _columns(
    layout: IoLayout,
    process: int,
    host: str,
    functions: np.ndarray,
    calls: np.ndarray,
    numbered: np.ndarray,
) -> dict[str, np.ndarray]:
    begin = layout.clocks.ns(host, calls["begin"])
    end = layout.clocks.ns(host, calls["end"])
    unfinished = (calls["flags"] & UNFINISHED) != 0
    if unfinished.any():  # up to the last known moment of its process
        end[unfinished] = layout.clocks.ns(host, max(int(calls["end"].max()), int(calls["begin"].max())))
    end[(calls["flags"] & ENTRY_ONLY) != 0] = begin[(calls["flags"] & ENTRY_ONLY) != 0]
    begin_ns = begin.round().astype(np.int64)
    found = functions[calls["function"]]
    return {
        "begin": begin_ns,
        "duration": np.maximum(end.round().astype(np.int64) - begin_ns, 0),
        "size": _known(calls["size"]),
        "offset": _known(calls["offset"]),
        "file_index": _paths(layout, process, calls, found, numbered),
        "function_index": found,
        "depth": calls["depth"],
        "flags": calls["flags"],
    }


def _of_requests(functions: np.ndarray, calls: np.ndarray) -> np.ndarray:
    """A mask of calls whose records hold a request number, or a source. functions: a mask by function number."""
    return functions[calls["function"]] & (calls["offset"] != UNKNOWN)


def _known(values: np.ndarray) -> np.ndarray:
    """The values, with -1 for unknown and impossible sizes."""
    signed = values.astype(np.int64)
    return np.where((values == UNKNOWN) | (signed < 0), np.int64(-1), signed)


def _paths(
    layout: IoLayout, process: int, calls: np.ndarray, functions: np.ndarray, numbered: np.ndarray
) -> np.ndarray:
    """The file of each call: the last that was opened under its handle before the call began, in its layer or another,
    by its process or one that it was forked from. Messages between ranks have communicators as handles."""
    found = np.full(len(calls), -1, np.int32)
    keys = layout.layer_of[functions].astype(np.int64) << 32 | calls["file"].astype(np.int64)
    of_file = ((calls["file"] != 0) | numbered) & ~np.isin(layout.kind_of[functions], _BETWEEN_RANKS)
    # An opening call has its handle at its end: at its begin the handle may still have belonged to another thread.
    opens = (layout.kind_of[functions] == _OPEN) & (calls["end"] > calls["begin"])
    when = np.where(opens, calls["end"], calls["begin"])
    for key in np.unique(keys[of_file]).tolist():
        mine = np.flatnonzero((keys == key) & of_file)
        openings = _openings(layout, process, int(key >> 32), int(key & 0xFFFFFFFF))
        if not openings:
            continue
        ticks = np.array([tick for tick, _ in openings], np.uint64)
        files = np.array([-1, *(file for _, file in openings)], np.int32)
        found[mine] = files[np.searchsorted(ticks, when[mine], side="right")]
    # No descriptor: memory without a file, or calls on a file that the program could not open.
    given = np.isin(layout.layer_of[functions], layout.of_descriptors) & (layout.kind_of[functions] != _OPEN)
    found[given & (calls["file"] == _NO_DESCRIPTOR)] = UNSEEN
    # Above the standard descriptors: sockets, pipes, and everything else whose opening was not traced.
    if _all_openings_traced(layout, process):
        mine = of_file & (found == -1) & (calls["file"] > _STANDARD) & (calls["file"] < _DESCRIPTORS)
        found[mine] = UNSEEN
    found[found == _GIVEN] = -1
    return found


def _all_openings_traced(layout: IoLayout, process: int) -> bool:
    """Whether the trace has all openings of a process's files, by it or by processes that it was forked from."""
    seen: list[int] = []
    while process >= 0 and process not in seen:
        seen.append(process)
        process = layout.parents[process]
    return any(layout.opened[k].openings_traced for k in seen) and not any(
        layout.opened[k].blind for k in seen
    )


def _follow(copies: Iterable[_Copy], layout: IoLayout) -> None:
    """Make each copy of a handle mean, from its call on, what the original means then."""
    for process in layout.opened:
        process.in_order()
    for copy in sorted(copies, key=lambda copy: copy.end):
        file = _file_at(layout, copy.process, copy.layer, copy.old, copy.begin)
        if file == -1 and copy.old <= _STANDARD:
            file = _GIVEN
        known = layout.opened[copy.process].by_handle
        old = known.setdefault((copy.layer, copy.old), [])
        new = known.setdefault((copy.layer, copy.new), [])
        insort(new, (copy.end, file))
        if (copy.old < _DESCRIPTORS) != (
            copy.new < _DESCRIPTORS
        ):  # a copy by fileno or fdopen: both handles are closed together
            for one, other in ((old, new), (new, old)):
                k = bisect_left(one, (copy.end + 1, _GIVEN))
                if k < len(one) and one[k][1] == -1:
                    insort(other, one[k])


def _file_at(layout: IoLayout, process: int, layer: int, handle: int, ticks: int) -> int:
    """The file of a handle at a time, -1 if unknown. Every list must be in the order of time."""
    for known, until in _known_to(layout, process):
        last = [
            entries[k - 1]
            for entries in layout.opened[known].lists(layer, handle)
            if (k := bisect_left(entries, (min(ticks, until), _GIVEN)))
        ]
        if last:
            return max(last)[1]
    return -1


def _openings(layout: IoLayout, process: int, layer: int, handle: int) -> list[tuple[int, int]]:
    """All entries about a handle, in the order of time."""
    return sorted(
        (ticks, file)
        for known, until in _known_to(layout, process)
        for entries in layout.opened[known].lists(layer, handle)
        for ticks, file in entries
        if ticks < until
    )


def _known_to(layout: IoLayout, process: int) -> Iterator[tuple[int, int]]:
    """Yield a process and those that it was forked from, each with the ticks until which it inherits their openings."""
    seen: set[int] = set()
    until = 1 << 64
    while process >= 0 and process not in seen:
        seen.add(process)
        yield process, until
        until = min(until, layout.began[process])
        process = layout.parents[process]


class _Functions:
    """The functions of all processes under one numbering: by layer, then in the order in which they were found."""

    def __init__(self, plan: Mapping[str, Any], headers: Mapping[str, Mapping[str, Any]]) -> None:
        # Earlier versions stored shorter rules: first without names and numbers, before that without copies, before
        # that without requests.
        rules = ((*rule, *(0, None, 1, 0)[len(rule) - 2 :])[:6] for rule in plan["rules"])
        self.rules: list[_Rule] = [*rules, (plan.get("own", 0), 0, 0, None, 1, 0)]
        self.layer_count = len(plan["layers"])
        self.warnings: list[Warning] = []
        self.tables: dict[str, list[tuple[int, int, str, str]]] = {}
        self.watched_by_kernel = {name for name in headers if headers[name].get("watched")}
        self.called: dict[str, np.ndarray] = {}
        for name in headers:
            self.tables[name] = [*self._table(plan, headers, name), (OWN, len(self.rules) - 1, OWN_NAME, "")]
            self.called[name] = np.zeros(1 << 16, bool)
        self._order: list[tuple[int, int, str, str, int]] = []  # layer, kind, symbol, library, engine
        self._of_kind: dict[tuple[str, str], np.ndarray] = {}
        self._synchronising: dict[str, np.ndarray] = {}
        self._requests: dict[str, np.ndarray] = {}
        self._copies: dict[str, np.ndarray] = {}
        self._numbers: dict[str, np.ndarray] = {}

    def _table(
        self, plan: Mapping[str, Any], headers: Mapping[str, Mapping[str, Any]], name: str
    ) -> list[tuple[int, int, str, str]]:
        """The meaning of a process's numbers: its own, after those that it inherited from the process it was forked
        from."""
        if headers[name].get("watched"):
            return _numbered(plan, "watch")
        parent, count = headers[name].get("inherits", ""), int(headers[name].get("inherited", 0))
        own = _numbered(plan, name)
        if parent and parent != name:
            theirs = self._table(plan, headers, parent) if parent in headers else _numbered(plan, parent)
            return [entry for entry in theirs if entry[0] < count] + own
        return own

    def count(self, name: str, calls: np.ndarray) -> None:
        self.called[name][calls["function"]] = True

    def hear(self, name: str, calls: np.ndarray, to: Calls) -> None:
        """Collect a process's collective calls, which align the clocks of hosts."""
        if name not in self._synchronising:
            found = np.full(1 << 16, -1, np.int8)
            for own, _, symbol, _ in self.tables[name]:
                plain_name = plain(symbol)
                if plain_name in SYNCHRONISING:
                    found[own] = SYNCHRONISING.index(plain_name)
                elif plain_name == ASKING:
                    found[own] = len(SYNCHRONISING)
            self._synchronising[name] = found
        which = self._synchronising[name][calls["function"]]
        ended = (calls["flags"] & (FAILED | THROWN | ENTRY_ONLY | UNFINISHED)) == 0
        asked = calls[(which == len(SYNCHRONISING)) & ended]
        to.ranks.update(zip(asked["offset"].tolist(), asked["file"].tolist()))
        mine = (which >= 0) & (which < len(SYNCHRONISING)) & ended & (calls["size"] != 0)
        if mine.any():
            to.add(calls[mine], which[mine])

    def of_kind(self, name: str, kind: str) -> np.ndarray:
        """A mask of a process's function numbers, for functions of a kind such as "open" or "close"."""
        if (name, kind) not in self._of_kind:
            self._of_kind[name, kind] = self._where(name, lambda rule: rule[1] == KINDS.index(kind))
        return self._of_kind[name, kind]

    def requests(self, name: str) -> np.ndarray:
        """A mask of a process's function numbers, for functions that record a request number in place of an offset."""
        if name not in self._requests:
            self._requests[name] = self._where(name, lambda rule: bool(rule[2]))
        return self._requests[name]

    def copies(self, name: str) -> np.ndarray:
        """A mask of a process's function numbers, for functions that record a second handle in place of a size."""
        if name not in self._copies:
            self._copies[name] = self._where(name, lambda rule: rule[3] is not None)
        return self._copies[name]

    def numbered(self, name: str) -> np.ndarray:
        """A mask of a process's function numbers, for functions whose handles are numbers, with 0 as a valid one."""
        if name not in self._numbers:
            self._numbers[name] = self._where(name, lambda rule: bool(rule[5]))
        return self._numbers[name]

    def copied(self, name: str, process: int, calls: np.ndarray) -> list[_Copy]:
        """The second handles that calls made."""
        made = (calls["flags"] & (FAILED | THROWN | ENTRY_ONLY | UNFINISHED)) == 0
        calls = calls[self.copies(name)[calls["function"]] & made & (calls["size"] != UNKNOWN)]
        if not len(calls):
            return []
        of_number = {number: rule for number, rule, _, _ in self.tables[name]}
        columns = (calls[key].tolist() for key in ("begin", "end", "file", "function", "offset"))
        return [
            _Copy(begin, end, process, layer, old, new)
            for begin, end, old, number, asked, new in zip(*columns, folded(calls["size"]).tolist())
            for layer, _, _, only, *_ in (self.rules[of_number[number]],)
            if not only or asked in only
        ]

    def nameless(self, name: str, layer: int | None) -> dict[int, str]:
        """Functions of a layer, by a process's numbers, that open a file without a name -> the name that is shown
        instead."""
        opens = KINDS.index("open")
        return {
            number: f"({symbol})"
            for number, rule, symbol, _ in self.tables[name]
            if rule < len(self.rules) and self.rules[rule][:2] == (layer, opens) and not self.rules[rule][4]
        }

    def _where(self, name: str, holds: Callable[[_Rule], bool]) -> np.ndarray:
        found = np.zeros(1 << 16, bool)
        for number, rule, _, _ in self.tables[name]:
            found[number] = rule < len(self.rules) and holds(self.rules[rule])
        return found

    def layer(self, name: str, number: int) -> int:
        for own, rule, _, _ in self.tables[name]:
            if own == number and rule < len(self.rules):
                return self.rules[rule][0]
        return -1

    def settled(self) -> dict[str, np.ndarray]:
        """For each process, its own numbers -> those of the dataset; -1 for functions that were never called."""
        found: dict[tuple[int, int, str, str, int], None] = {}
        for name, table in self.tables.items():
            for number, rule, symbol, library in table:
                if self.called[name][number] and rule < len(self.rules):
                    layer, kind, *_ = self.rules[rule]
                    found.setdefault((layer, kind, symbol, library, self._engine(name, library)))
        self._order = sorted(found, key=lambda entry: entry[0])
        place = {entry: k for k, entry in enumerate(self._order)}
        numbers = {}
        for name, table in self.tables.items():
            mine = np.full(1 << 16, -1, np.int16)
            for number, rule, symbol, library in table:
                if rule < len(self.rules):
                    layer, kind, *_ = self.rules[rule]
                    mine[number] = place.get((layer, kind, symbol, library, self._engine(name, library)), -1)
            numbers[name] = mine
        return numbers

    def layers(self) -> np.ndarray:
        return np.array([entry[0] for entry in self._order], np.int16)

    def _engine(self, name: str, library: str) -> int:
        """The engine that recorded the calls of a function of a process."""
        if name not in self.watched_by_kernel:
            return ENGINES.index("interposition")
        return ENGINES.index("tracepoint" if library == "kernel" else "uprobe")

    def kinds(self) -> np.ndarray:
        return np.array([entry[1] for entry in self._order], np.int8)

    def columns(self) -> dict[str, np.ndarray]:
        return {
            "function_name": _texts(entry[2] for entry in self._order),
            "function_library": _texts(entry[3] for entry in self._order),
            "function_layer": self.layers(),
            "function_kind": self.kinds(),
            "function_engine": np.array([entry[4] for entry in self._order], np.int8),
        }

    def watched(self) -> np.ndarray:
        """The number of functions of each layer that were found in any process."""
        found = {
            (self.rules[rule][0], symbol, library)
            for table in self.tables.values()
            for own, rule, symbol, library in table
            if rule < len(self.rules) and own != OWN
        }
        return np.bincount([layer for layer, _, _ in found], minlength=self.layer_count).astype(np.int32)


def _numbered(plan: Mapping[str, Any], name: str) -> list[tuple[int, int, str, str]]:
    table = plan.get("table_of", {}).get(name)
    if table is None:
        return []
    return [(int(own), int(rule), symbol, library) for own, rule, symbol, library in plan["tables"][table]]


def _parents(
    order: Sequence[str], headers: Mapping[str, Mapping[str, Any]], number: Mapping[str, int]
) -> list[int]:
    """For each process the one that it was forked from, or that started its program; -1 if that was not traced."""
    by_pid = {(headers[name]["host"], headers[name]["pid"]): number[name] for name in order}
    found = []
    for name in order:
        header = headers[name]
        parent = number.get(header.get("inherits", ""), by_pid.get((header["host"], header["parent"]), -1))
        found.append(parent if parent != number[name] else -1)
    return found


def _next(one: _File, k: int) -> int:
    return one.threads[k + 1][0] if k + 1 < len(one.threads) else one.events


def _of_process(header: Mapping[str, Any]) -> tuple[Any, ...]:
    """A sort key: ranks first, in order; then the others by host and time."""
    rank = int(header["rank"])
    return (rank == RANKLESS, rank, str(header["host"]), int(header["began_ns"]), int(header["pid"]))


def _prefix(file: BlockFile) -> str:
    """The common prefix of all files of a process: "<host>-<pid>-<hex>" for "<host>-<pid>-<hex>-<number>.blk"."""
    return file.path.stem.rpartition("-")[0]


def _number(file: BlockFile) -> int:
    return int(file.header.get("number", 0))


def _texts(words: Any) -> np.ndarray:
    return np.array(list(words), dtype=object)
