"""The layout of a trace: what the block files of its processes contain, and the small tables of /raw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.errors import DataError
from sonde.core.layout import Layout, Variable
from sonde.io.maps.layers import DIRECTIONS, KINDS
from sonde.io.trace import servers, whatif, worlds
from sonde.io.trace.clock import Clocks
from sonde.io.trace.collectives import Calls
from sonde.io.trace.events import CLOSED, ENTRY_ONLY, FAILED, FLAGS, RECORD, UNKNOWN, Note, Piece, pieces
from sonde.io.trace.functions import Functions, OwnNumbers, texts
from sonde.io.trace.ignored_paths import BY_FILE
from sonde.io.trace.opened_files import (
    ANY_LAYER,
    DESCRIPTORS,
    STANDARD,
    Copy,
    OpenedFiles,
    ProcessFiles,
)
from sonde.io.trace.schema import (
    CHUNK,
    ENGINES,
    EVENT,
    OF_REQUEST,
    OF_SOURCE,
    OF_THREAD,
    OPENED_UNSEEN,
    RANKLESS,
    RAW,
    UNSEEN,
)

if TYPE_CHECKING:
    from sonde.core.blocks import BlockFile

_DELETED = " (deleted)"  # the kernel appends it to a name
_MOVING = ("read", "write", "copy", "sync")
_Headers = Mapping[str, Mapping[str, Any]]  # of a process's files, by their prefix


@dataclass
class TraceFile:
    """One block file: what it contains, and its first event, request and source in the dataset.

    threads: (first event within the file, number, process). images: if the kernel recorded the file, the programs that
    ran under the process's number. began: when each of these began, ticks.
    """

    process: int
    first: int = 0
    events: int = 0
    first_request: int = 0
    requests: int = 0
    first_source: int = 0
    sources: int = 0
    threads: list[tuple[int, int, int]] = field(default_factory=list)
    images: list[int] = field(default_factory=list)
    began: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))

    def by_image(self, calls: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """The calls by the process that made them, in order, without calls of what ran before the traced program."""
        if not len(calls):
            return
        if not self.images:
            yield self.process, calls
            return
        image = np.maximum.accumulate(np.searchsorted(self.began, calls["begin"], side="right") - 1)
        for k in np.unique(image[image >= 0]).tolist():
            yield self.images[k], calls[image == k]

    def follow(self, before: TraceFile) -> None:
        """Place its records behind those of another file."""
        self.first = before.first + before.events
        self.first_request = before.first_request + before.requests
        self.first_source = before.first_source + before.sources


@dataclass
class IoLayout(Layout):
    """The layout of a trace, with further data that placing needs.

    files: by name. own: the functions of each process, by its prefix. layer_of, kind_of: the layer and the kind of each
    function of the dataset. of_descriptors: layers whose handles are descriptors; descriptors: the one that knows what
    each of them is. hosts: the host of each process.
    tables: variables that need no records.
    """

    files: dict[str, TraceFile] = field(default_factory=dict)
    own: dict[str, OwnNumbers] = field(default_factory=dict)
    layer_of: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int16))
    kind_of: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int8))
    of_descriptors: list[int] = field(default_factory=list)
    descriptors: int | None = None
    opened: OpenedFiles = field(default_factory=lambda: OpenedFiles([], [], []))
    clocks: Clocks = field(default_factory=Clocks)
    hosts: list[str] = field(default_factory=list)
    tables: dict[str, np.ndarray] = field(default_factory=dict)


def layout_of(plan: Mapping[str, Any], files: Sequence[BlockFile]) -> IoLayout:
    """The layout of a trace; as `TraceSchema.layout`.

    Raises
    ------
    DataError  io.not_io_blocks.
    """
    for file in files:
        if file.dtype != RECORD or not {"host", "pid", "ticks", "began_ticks"} <= set(file.header):
            raise DataError(
                "io.not_io_blocks",
                f"{file.path.name} was not written by the tracer",
                "keep only the files of one run in its folder",
            )
    scan = _Scan(plan, {prefix(file): file.header for file in files})
    scan.read(files)
    return scan.layout()


class _Scan:
    """One pass over all records, and what it counts."""

    def __init__(self, plan: Mapping[str, Any], headers: _Headers) -> None:
        self.plan, self.headers = plan, headers
        self.images = {name: _images(headers, name) for name in headers}
        traced = (name for name in headers if not self.images[name])
        self.order = sorted(traced, key=lambda name: _of_process(headers[name]))
        self.number = {name: k for k, name in enumerate(self.order)}
        self.functions = Functions(plan, headers)
        self.clocks = self._clocks()
        self.opened = [ProcessFiles() for _ in self.order]
        self.paths: dict[str, int] = {}
        self._open_before()
        self.number |= {name: self.number[found[0]] for name, found in self.images.items() if found}
        self.files: dict[str, TraceFile] = {}
        self.dropped = np.zeros(len(self.order), np.int64)
        self.copies: list[Copy] = []
        self.whole: dict[str, str] = {}  # name -> the whole name of the first file under it
        self.several_files: set[str] = set()  # names of several files
        self.bare: set[str] = set()  # names of files whose folders are not known
        self.used: set[tuple[int, int, int]] = set()  # process, descriptor, ticks
        self.collectives: dict[str, Calls] = {}
        self.several = len({header["host"] for header in headers.values()}) > 1
        self.layer_names = [layer["name"] for layer in plan["layers"]]
        # The layer whose handles are the kernel's descriptors
        self.descriptors = self.layer_names.index("posix") if "posix" in self.layer_names else None

    def _clocks(self) -> Clocks:
        clocks = Clocks()
        for host, ticks, ns in self.plan.get("clocks", []):
            clocks.add(str(host), int(ticks), int(ns))
        for name, header in self.headers.items():
            utc_ns = header["began_utc_ns"] if name in self.number else None
            clocks.add(header["host"], header["began_ticks"], header["began_ns"], utc_ns)
        return clocks

    def _open_before(self) -> None:
        """Handles that were open when tracing attached to their processes."""
        for host, pid, handle, path in self.plan.get("open", []):
            for name, k in self.number.items():
                if (self.headers[name]["host"], self.headers[name]["pid"]) == (host, pid):
                    # A socket or a pipe counts as unseen, like everything that a traced program was not seen to open.
                    self.opened[k].add(ANY_LAYER, int(handle), 0, self._path(str(path)) if path else UNSEEN)

    def _given(self) -> dict[int, list[tuple[int, int]]]:
        """Descriptors that programs were given at their start. Only the posix layer knows their sockets and pipes."""
        if self.descriptors is None:
            return {}
        return {
            self.number[name]: [(int(fd), self._path(str(path)) if path else UNSEEN) for fd, path in given]
            for name, given in self.plan.get("given", {}).items()
            if name in self.number
        }

    def _path(self, path: str) -> int:
        return self.paths.setdefault(path, len(self.paths))

    def _opened_path(self, note: Note, layer: int) -> int:
        """The file of a name. A name that means files in several folders stands for the first of them, and the others
        have their whole name; a layer that may give names to other things than files has the names as they are."""
        if layer != self.descriptors or not note.whole or note.whole.endswith(_DELETED):
            self.bare.add(note.name)
            return self._path(note.name)
        if self.whole.setdefault(note.name, note.whole) == note.whole:
            return self._path(note.name)
        self.several_files.add(note.name)
        return self._path(note.whole)

    def _shown_paths(self) -> list[str]:
        """The names of all files. The first file of a name that also others have is shown by its whole name, too."""
        return [
            self.whole[path] if path in self.several_files and path not in self.bare else path
            for path in self.paths
        ]

    def read(self, files: Sequence[BlockFile]) -> None:
        """Read all records, in the order of the processes and of their threads."""
        before = None
        by_process = sorted(files, key=lambda file: (self.number[prefix(file)], _number(file)))
        for file in by_process:
            name = prefix(file)
            one = self.files[file.path.name] = TraceFile(self.number[name])
            if self.images[name]:
                self._read_images(one, name, file)
            else:
                self._read(one, name, file)
            self.dropped[one.process] += file.dropped
            if before is not None:
                one.follow(before)
            before = one

    def _read(self, one: TraceFile, name: str, file: BlockFile) -> None:
        """Read the file of a traced process's thread."""
        opened = self.opened[one.process]
        nameless = self.functions.nameless(name, self.descriptors)
        for piece in pieces(file):
            calls = piece.calls
            self.functions.count(name, calls)
            if self.several:
                heard = self.collectives.setdefault(name, Calls(file.header["host"]))
                self.functions.hear(name, calls, heard)
            for clock in piece.clocks:
                self.clocks.add(file.header["host"], clock.ticks, clock.ns)
                if clock.thread:
                    one.threads.append((one.events + clock.call, clock.thread, one.process))
            self._handles(opened, name, piece, nameless)
            self.copies += self.functions.copied(name, one.process, calls)
            self._use(one.process, name, calls)
            if not file.header.get("watched"):  # the kernel's events contain no names
                self._openings_seen(opened, name, calls)
            self._count(one, name, calls)
            one.events += len(calls)
        # Calls that did not fit into the trace may have opened files.
        opened.blind |= file.dropped > 0

    def _handles(self, opened: ProcessFiles, name: str, piece: Piece, nameless: Mapping[int, str]) -> None:
        """Collect the calls that open and close."""
        calls, functions = piece.calls, self.functions
        for note in piece.notes:
            if note.call < len(calls):
                call = calls[note.call]
                layer = functions.layer(name, int(call["function"]))
                opened.opens(layer, note.handle, call, self._opened_path(note, layer))
        for own, shown_name in nameless.items():
            for call in calls[(calls["function"] == own) & ((calls["flags"] & FAILED) == 0)]:
                opened.opens(functions.layer(name, own), int(call["file"]), call, self._path(shown_name))
        a_handle = (calls["file"] != 0) | functions.numbered(name)[calls["function"]]
        made = (calls["flags"] & (FAILED | ENTRY_ONLY)) == 0
        for call in calls[functions.streams(name)[calls["function"]] & made]:
            layer = functions.layer(name, int(call["function"]))
            opened.opens(layer, int(call["file"]), call, UNSEEN)
            if functions.copies(name)[call["function"]] and call["size"] != UNKNOWN:
                opened.opens(layer, int(call["size"]), call, UNSEEN)
        for call in calls[calls["function"] == CLOSED]:
            opened.closes(ANY_LAYER, int(call["file"]), call)
        for call in calls[functions.of_name(name, "close_range", "closefrom")[calls["function"]] & made]:
            for layer, handle in {*opened.by_handle, *opened.openings}:
                if int(call["offset"]) <= handle < DESCRIPTORS:
                    opened.closes(layer, handle, call)
        for call in calls[functions.of_kind(name, "close")[calls["function"]] & a_handle]:
            opened.closes(functions.layer(name, int(call["function"])), int(call["file"]), call)

    def _use(self, process: int, name: str, calls: np.ndarray) -> None:
        """Note when descriptors moved data: the first and the last time of each."""
        moves = np.any([self.functions.of_kind(name, kind) for kind in _MOVING], axis=0)[calls["function"]]
        of_descriptors = self.functions.of_layer(name, self.descriptors)[calls["function"]]
        mine = calls[moves & of_descriptors & ((calls["flags"] & FAILED) == 0)]
        mine = mine[(mine["file"] > STANDARD) & (mine["file"] < DESCRIPTORS)]
        for times in (mine, mine[::-1]):
            handles, first = np.unique(times["file"], return_index=True)
            self.used.update(zip([process] * len(handles), handles.tolist(), times["begin"][first].tolist()))

    def _openings_seen(self, opened: ProcessFiles, name: str, calls: np.ndarray) -> None:
        opens = calls[self.functions.of_kind(name, "open")[calls["function"]]]
        opened.blind |= bool((opens["flags"] & ENTRY_ONLY).any())
        opened.openings_traced |= any(
            self.functions.layer(name, int(number)) == self.descriptors
            for number in np.unique(opens["function"])
        )

    def _read_images(self, one: TraceFile, name: str, file: BlockFile) -> None:
        """Distribute the calls of a thread that the kernel recorded over the images of its process."""
        one.images = [self.number[image] for image in self.images[name]]
        ready = (self.headers[image] for image in self.images[name])
        one.began = np.array(
            [header.get("ready_ticks", header["began_ticks"]) for header in ready], np.uint64
        )
        counts = np.zeros(len(one.images), np.int64)
        for piece in pieces(file):
            for process, calls in one.by_image(piece.calls):
                self.functions.count(name, calls)
                self._count(one, name, calls)
                counts[one.images.index(process)] += len(calls)
        for process, count in zip(one.images, counts.tolist()):
            if count:
                one.threads.append((one.events, _number(file), process))
                one.events += count

    def _count(self, one: TraceFile, name: str, calls: np.ndarray) -> None:
        one.requests += int(of_requests(self.functions.requests(name), calls).sum())
        one.sources += int(of_requests(self.functions.sources(name), calls).sum())

    def layout(self) -> IoLayout:
        """The layout, after all files were read."""
        self.clocks.settle([self.headers[name]["host"] for name in self.order])
        self.clocks.align(_of_ranks(self.headers, self.order, self.collectives))
        opened = OpenedFiles(
            self.opened,
            _parents(self.order, self.headers, self.number),
            [int(self.headers[name]["began_ticks"]) for name in self.order],
        )
        given = self._given()
        for process in given:
            self.opened[process].given = True
        opened.settle(self.copies, given)
        if given and any(
            opened.all_given(process)
            and opened.file_at(process, int(self.descriptors or 0), handle, ticks) == -1
            for process, handle, ticks in self.used
        ):
            opened.opened_unseen = self._path(OPENED_UNSEEN)
        layout = IoLayout(
            dims={},
            coords={},
            variables={},
            files=self.files,
            own=self.functions.settled(),
            layer_of=self.functions.layers(),
            kind_of=self.functions.kinds(),
            of_descriptors=[k for k, layer in enumerate(self.layer_names) if layer in BY_FILE],
            descriptors=self.descriptors,
            opened=opened,
            clocks=self.clocks,
            hosts=[self.headers[name]["host"] for name in self.order],
        )
        layout.tables = self._tables(layout.hosts)
        asked = self.plan.get("servers")
        if asked:
            layout.tables |= servers.tables_of(asked, self._shown_paths())
            layout.dims |= {
                "server": len(asked["servers"]),
                "operation": len(layout.tables["operation_name"]),
                "direction": len(DIRECTIONS),
                "size_class": servers.CLASSES,
            }
        layout.dims |= self._dims(layout.tables)
        layout.variables = _variables(bool(asked))
        layout.attrs = {"began_utc_ns": self.clocks.zero_utc_ns}
        layout.warnings = list(self.clocks.warnings)
        return layout

    def _dims(self, tables: Mapping[str, np.ndarray]) -> dict[str, int]:
        return {
            "event": sum(one.events for one in self.files.values()),
            "request": sum(one.requests for one in self.files.values()),
            "source": sum(one.sources for one in self.files.values()),
            "layer": len(tables["layer_name"]),
            "function": len(tables["function_name"]),
            "process": len(tables["process_pid"]),
            "thread": len(tables["thread_number"]),
            "file": len(tables["path"]),
        }

    def _tables(self, hosts: Sequence[str]) -> dict[str, np.ndarray]:
        layers = self.plan["layers"]
        return {
            **self.functions.columns(),
            "layer_name": texts(layer["name"] for layer in layers),
            "layer_title": texts(layer["title"] for layer in layers),
            "layer_watched": self.functions.watched(),
            "layer_serves": texts(layer.get("serves", "") for layer in layers),
            **self._processes(hosts),
            **dict(zip(OF_THREAD, np.array(self._threads(), np.int64).reshape(-1, 4).T)),
            "path": texts(self._shown_paths()),
        }

    def _processes(self, hosts: Sequence[str]) -> dict[str, np.ndarray]:
        clocks = self.clocks
        headers = [self.headers[name] for name in self.order]
        began = [clocks.ns(header["host"], header["began_ticks"]) for header in headers]
        return {
            "process_host": texts(hosts),
            "process_pid": np.array([header["pid"] for header in headers], np.int32),
            "process_parent": np.array([header["parent"] for header in headers], np.int32),
            "process_rank": np.array([header["rank"] for header in headers], np.int32),
            "process_world": np.array(worlds.of_headers(headers), np.int32),
            "process_program": texts(header["program"] for header in headers),
            "process_begin": np.array(began, np.float64).round().astype(np.int64),
            "process_dropped": self.dropped,
            "call_cost": np.array([_cost_ns(header, clocks, "cost_ticks") for header in headers]),
            "call_cost_inside": np.array(
                [_cost_ns(header, clocks, "cost_inside_ticks") for header in headers]
            ),
            "clock_offset": np.array([clocks.offset_s(host) for host in hosts]),
            "clock_drift": np.array([clocks.drift(host) for host in hosts]),
            "clock_error": np.array([clocks.error_s(host) for host in hosts]),
        }

    def _threads(self) -> list[tuple[int, int, int, int]]:
        """Process, number, first event and number of events of each thread."""
        found = []
        for one in self.files.values():
            ends = [*(first for first, _, _ in one.threads[1:]), one.events]
            for (first, number, process), end in zip(one.threads, ends):
                found.append((process, number, one.first + first, end - first))
        return found


def of_requests(functions: np.ndarray, calls: np.ndarray) -> np.ndarray:
    """A mask of calls whose records hold a request number, or a source. functions: a mask by function number."""
    found: np.ndarray = functions[calls["function"]] & (calls["offset"] != UNKNOWN)
    return found


def prefix(file: BlockFile) -> str:
    """The common prefix of all files of a process: "<host>-<pid>-<hex>" for "<host>-<pid>-<hex>-<number>.blk"."""
    return file.path.stem.rpartition("-")[0]


def _variables(with_servers: bool) -> dict[str, Variable]:
    flags = {
        "flag_masks": np.array(list(FLAGS), np.uint8),
        "flag_meanings": " ".join(shown_name.replace(" ", "_") for shown_name in FLAGS.values()),
    }
    kinds = {"flag_values": np.arange(len(KINDS), dtype=np.int8), "flag_meanings": " ".join(KINDS)}
    engines = {"flag_values": np.arange(len(ENGINES), dtype=np.int8), "flag_meanings": " ".join(ENGINES)}
    special = {"flags": flags, "function_kind": kinds, "function_engine": engines}
    return {
        name: what.variable(
            chunks=(CHUNK,) if name in (*EVENT, *OF_REQUEST, *OF_SOURCE) else None, attrs=special.get(name)
        )
        for name, what in RAW.items()
        if name not in whatif.RAW and (with_servers or name not in servers.RAW)
    }


def _cost_ns(header: Mapping[str, Any], clocks: Clocks, key: str) -> float:
    """The cost of a call that the process measured at its start, ns; 0 if it measured none."""
    calls = int(header.get("cost_calls", 0))
    return float(header.get(key, 0)) * clocks.ns_per_tick(header["host"]) / calls if calls else 0.0


def _of_ranks(headers: _Headers, order: Sequence[str], collectives: Mapping[str, Calls]) -> list[Calls]:
    """The collective calls of all ranks, in order, of the MPI program with the most ranks; [] if there are none, a rank
    is missing, or two ranks have the same number."""
    of_world: dict[int, dict[str, int]] = {}
    for name, world in zip(order, worlds.of_headers([headers[name] for name in order])):
        if name in collectives and collectives[name].begin and world != worlds.NONE:
            of_world.setdefault(world, {})[name] = int(headers[name]["rank"])
    whole = [ranks for ranks in of_world.values() if sorted(ranks.values()) == list(range(len(ranks)))]
    return [collectives[name] for name in max(whole, key=len, default={})]


def _images(headers: _Headers, name: str) -> list[str]:
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


def _parents(order: Sequence[str], headers: _Headers, number: Mapping[str, int]) -> list[int]:
    """For each process the one that it was forked from, or that started its program; -1 if that was not traced."""
    by_pid = {(headers[name]["host"], headers[name]["pid"]): number[name] for name in order}
    found = []
    for name in order:
        header = headers[name]
        parent = number.get(header.get("inherits", ""), by_pid.get((header["host"], header["parent"]), -1))
        found.append(parent if parent != number[name] else -1)
    return found


def _of_process(header: Mapping[str, Any]) -> tuple[Any, ...]:
    """A sort key: ranks first, in order; then the others by host and time."""
    rank = int(header["rank"])
    return (rank == RANKLESS, rank, str(header["host"]), int(header["began_ns"]), int(header["pid"]))


def _number(file: BlockFile) -> int:
    return int(file.header.get("number", 0))
