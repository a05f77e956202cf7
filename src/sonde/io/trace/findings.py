"""Findings of a trace: what a user may want to change, with evidence and a suggestion. Pure: from /summary alone.

Each finding is a rule with its own threshold, stated next to it. No finding says what a change would gain: that needs
another run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import peers
from sonde.core.errors import Finding
from sonde.core.printable import one_line
from sonde.core.units import format_duration, format_share, format_size
from sonde.io.maps.layers import DIRECTIONS, KINDS
from sonde.io.trace import slow_servers, worlds
from sonde.io.trace.collective_io import COLLECTIVE, directions
from sonde.io.trace.verdict import BESIDE, counted

if TYPE_CHECKING:
    import xarray as xr

MATTERS = 0.1  # of the time in traced calls: smaller shares get no finding
EXCHANGE = 0.5  # of collective time
SMALL = 64 << 10  # B; requests below are small for a parallel file system
MANY = 100  # requests
SPLIT = 4.0  # requests of a layer for one of the layer above
MORE_BYTES = 1.25  # bytes moved for each byte that was requested
UNEVEN = 2.0  # ratio of the slowest rank to the mean of the others
NAMED = 3  # functions or files that a finding names
OVERHEAD = 0.05
LEAST_KNOWN = 0.9  # of collective time: the parts are reported if this share of it is known in parts
LEAST_S = 1e-3  # in traced calls: below this total time there are no findings about shares

# Other functions of MPI-IO that ranks call together, and in which few ranks do the work.
TOGETHER = re.compile(r"file_(open|close|sync|set_size|set_view|preallocate)", re.IGNORECASE)
# These functions move data through a buffer of the C library: few of their calls reach the file system.
BUFFERED = re.compile(r"_*(IO_)?(fread|fwrite|fgets|fputs|f?getc|f?putc|getdelim|getline|v?fprintf)(_\w+)?")
# The first of these layers that was called has the requests that reach the file system. Below a client library are only
# its sockets.
FILE_LAYERS = ("gfapi", "kernel", "posix")
MIDDLE = ("romio", "ompio")
# Time in these includes waiting for other ranks: a rank that spends long in them is seldom the slow one.
WAITING = ("hdf5", "mpiio", *MIDDLE, "mpi")


@dataclass
class _Trace:
    """The parts of a /summary that the rules use."""

    summary: xr.Dataset

    def __post_init__(self) -> None:
        s = self.summary
        self.layers = [str(name) for name in s["layer_name"].values]
        self.titles = [str(name) for name in s["layer_title"].values]
        self.names = [str(name) for name in s["function_name"].values]
        self.layer_of = s["function_layer"].values.astype(int)
        self.kind_of = s["function_kind"].values.astype(int)
        own = s["layer_self_time"].values.sum(axis=0)
        self.own = {name: float(own[k]) for k, name in enumerate(self.layers)}
        self.total = sum(time for name, time in self.own.items() if name not in BESIDE)
        self.self_time = s["self_time"].values.sum(axis=0)
        self.time = s["time"].values.sum(axis=0)
        self.calls = s["calls"].values.sum(axis=0)
        self.requests = s["requests"].values.sum(axis=0)  # layer, direction
        self.bytes = s["request_bytes"].values.sum(axis=0)
        self._restrict_to_files()

    def _restrict_to_files(self) -> None:
        """If MPI-IO or HDF5 worked on named files, count only those files in the layers below: programs and libraries
        read many other files while they start."""
        of_file, bytes_ = (self.summary[name].values for name in ("file_requests", "file_bytes"))
        for name in ("mpiio", "hdf5"):
            if (top := self.number(name)) is None or not len(of_file):
                continue
            shared = of_file[:, top].sum(axis=1) > 0
            if shared.any() and any(
                of_file[shared][:, k].any() for k in map(self.number, FILE_LAYERS) if k is not None
            ):
                for k in map(self.number, FILE_LAYERS):
                    if k is not None:
                        self.requests[k] = of_file[shared][:, k].sum(axis=0)
                        self.bytes[k] = bytes_[shared][:, k].sum(axis=0)
                return

    def share(self, time_s: float) -> float:
        return time_s / self.total if self.total > 0 else 0.0

    def number(self, layer: str) -> int | None:
        """The number of a layer; None if it had no calls."""
        if layer not in self.layers:
            return None
        k = self.layers.index(layer)
        return k if self.calls[self.layer_of == k].sum() else None

    @property
    def lowest(self) -> int | None:
        return next((k for layer in FILE_LAYERS if (k := self.number(layer)) is not None), None)

    def inside(self, functions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Two masks of call paths: those within or at a call of some functions, and those of these that end in the
        first such call."""
        s = self.summary
        parent, what = s["node_parent"].values.astype(int), s["node_function"].values.astype(int)
        inside, first = np.zeros(len(what), bool), np.zeros(len(what), bool)
        for k in range(len(what)):  # a path comes after the one around it
            within = parent[k] >= 0 and inside[parent[k]]
            first[k] = not within and functions[what[k]]
            inside[k] = within or functions[what[k]]
        return inside, first

    def below(self, functions: np.ndarray) -> tuple[float, dict[str, float]]:
        """Time in calls of some functions, and the time of each layer itself within them, the functions' own layer
        included.

        Nested calls of these functions count once.
        """
        s = self.summary
        inside, first = self.inside(functions)
        what = s["node_function"].values.astype(int)
        own = np.bincount(
            self.layer_of[what[inside]], s["node_self_time"].values[inside], minlength=len(self.layers)
        )
        total = float(s["node_time"].values[first].sum())
        return total, {name: float(own[k]) for k, name in enumerate(self.layers)}

    def moved_within(self, outer: np.ndarray, inner: np.ndarray) -> tuple[int, float]:
        """Bytes, and time in themselves, of calls of `inner` functions within calls of `outer` ones."""
        s = self.summary
        what = s["node_function"].values.astype(int)
        _, first = self.inside(inner)
        mine = self.inside(outer)[0] & inner[what]
        return int(s["node_bytes"].values[mine & first].sum()), float(s["node_self_time"].values[mine].sum())

    def of(self, layer: int, *kinds: str) -> np.ndarray:
        """A mask of a layer's functions of some kinds."""
        return (self.layer_of == layer) & np.isin(self.kind_of, [KINDS.index(kind) for kind in kinds])

    def collectively(self, direction: str) -> bool:
        """Whether most calls to MPI-IO that move data in this direction are collective."""
        if (top := self.number("mpiio")) is None:
            return False
        mine = self.of(top, direction)
        together = mine & np.array([bool(COLLECTIVE.search(name)) for name in self.names], bool)
        return bool(2 * self.calls[together].sum() > self.calls[mine].sum())

    @property
    def middle(self) -> str:
        """The called layer below MPI-IO; "" if there is none, as with an MPI that hides its own (MPICH)."""
        return next((name for name in MIDDLE if self.number(name) is not None), "")


def findings(summary: xr.Dataset) -> list[Finding]:
    """All findings of a trace, the largest share of time first."""
    trace = _Trace(summary)
    failed = _failed(trace)
    if trace.total < LEAST_S:
        return failed
    rules = (_exchange, _sieving, _small, _split, _syncs, _metadata, _uneven, _slow_servers, _overhead)
    found = [one for rule in rules for one in rule(trace)]
    return failed + sorted(found, key=lambda one: -float(one.evidence.get("share", 0.0)))


def _failed(trace: _Trace) -> list[Finding]:
    """Failed calls whose data is not where it should be. They are no matter of time, and come first."""
    s = trace.summary
    if "lost" not in s:  # analysed by an earlier version
        return []
    lost = s["lost"].values * ~np.isin(trace.layers, BESIDE)[trace.layer_of]
    each = lost.sum(axis=0)
    if not each.any():
        return []
    calls: dict[str, tuple[int, int]] = {}
    for k in np.flatnonzero(each):
        failed, made = calls.get(trace.names[k], (0, 0))
        calls[trace.names[k]] = failed + int(each[k]), made + int(trace.calls[k])
    by_function = sorted(calls.items(), key=lambda one: -one[1][0])
    parts = [f"{_part(failed, made)} of {name}" for name, (failed, made) in by_function[:NAMED]]
    of_file = s["file_lost"].values.sum(axis=1)
    files = [str(s["path"].values[k]) for k in np.argsort(-of_file, kind="stable") if of_file[k]]
    more = ", …" if len(files) > NAMED else ""
    ranks = np.unique(s["process_rank"].values[lost.any(axis=1)])
    evidence = {
        "failed": int(each.sum()),
        "functions": {name: failed for name, (failed, _) in by_function},
        "files": files,
        "ranks": [int(rank) for rank in ranks if rank >= 0],
    }
    where = f", on {', '.join(map(one_line, files[:NAMED]))}{more}" if files else ""
    if len(by_function) > NAMED:
        parts.append("others")
    return [
        Finding(
            "io.failed_calls",
            f"{_listed(parts)} failed{where}; they count neither as requests nor in the bytes",
            evidence,
            "check whether the file system is full or a quota is reached (df -h, quota), and whether the "
            "program checks the results of its calls",
        )
    ]


def _part(some: int, of: int) -> str:
    if of == 1:
        return "the one call"
    return f"all {of} calls" if some == of else f"{some} of {of} calls"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _exchange(trace: _Trace) -> list[Finding]:
    """Collective calls whose time is spent between ranks and not in the file system: waiting for each other, or for
    data."""
    mpiio = trace.number("mpiio")
    if mpiio is None:
        return []
    found = []
    of_function = directions(np.array(trace.names), trace.layer_of == mpiio)
    for d, direction in enumerate(DIRECTIONS):
        functions = of_function == d
        time_s, own = trace.below(functions)
        # With an MPI that hides everything below MPI-IO, as MPICH does, that time is in MPI-IO's own.
        exchange = own.get("mpi", 0.0) + sum(own.get(name, 0.0) for name in MIDDLE)
        exchange += 0.0 if trace.middle else own.get("mpiio", 0.0)
        files = own.get("posix", 0.0) + own.get("kernel", 0.0)
        parts = _waiting(trace.summary, d)
        # Waiting counts in whichever function it occurs: an MPI that hides its ROMIO waits within MPI-IO itself.
        between = max(exchange, time_s * (parts["late"] + parts["others"]) if parts else 0.0)
        if trace.share(time_s) < MATTERS or between < EXCHANGE * time_s:
            continue
        evidence = {
            "share": trace.share(time_s),
            "time_s": time_s,
            "exchange": between / time_s,
            "files": files / time_s,
            "direction": direction,
            "functions": sorted(np.array(trace.names)[functions & (trace.calls > 0)].tolist()),
        }
        what, hint = "exchange between ranks, or waiting for them; this trace cannot separate the two", _FEWER
        if parts:
            moving = max(0.0, between / time_s - parts["late"] - parts["others"])
            evidence |= parts | {"moving": moving}
            what, hint = _between(parts, moving, direction)
        found.append(
            Finding(
                "io.collective_exchange",
                f"{format_share(between / time_s)} of the time of collective {direction}s is {what}; "
                f"{format_share(files / time_s)} is in the file system",
                evidence,
                hint.format(direction=direction),
            )
        )
    return found


_FEWER = (
    "try fewer aggregators or none: the hints cb_nodes, cb_buffer_size, romio_cb_{direction}=disable; "
    "OMPIO: --mca fcoll individual"
)
_FASTER = (
    "try more aggregators (cb_nodes) or none (romio_cb_{direction}=disable; OMPIO: --mca fcoll "
    "individual), stripes over more servers, or a faster file system: ranks wait for the aggregators, and "
    "these for the file system"
)
_LATE = (
    "try to let the last ranks arrive earlier: see what they do before, and balance it; without "
    "aggregators no rank waits in the call: romio_cb_{direction}=disable; OMPIO: --mca fcoll individual"
)


def _waiting(s: xr.Dataset, direction: int) -> dict[str, Any]:
    """Shares of the time of collective calls in which ranks waited, and the rank that was last most often; {} if
    unknown."""
    if "collective_time" not in s:
        return {}  # a dataset of an earlier version
    known_s, unknown_s, late, others = (
        float(s[f"collective_{name}"].values[:, direction].sum())
        for name in ("time", "untold", "late", "others")
    )
    if known_s <= 0 or known_s < LEAST_KNOWN * (known_s + unknown_s):
        return {}
    last = s["collective_last"].values[:, direction]
    rank = int(s["process_rank"].values[last.argmax()])
    return {
        "late": late / known_s,
        "others": others / known_s,
        "last_rank": rank,
        "last_share": float(last.max() / last.sum()),
    }


def _between(parts: dict[str, Any], moving: float, direction: str) -> tuple[str, str]:
    """A description of the time between ranks, the largest part first, and a suggestion for that part."""
    late, others = parts["late"], parts["others"]
    who = ""
    if parts["last_share"] > 0.5:
        who = f" (rank {parts['last_rank']} in {format_share(parts['last_share'])} of the calls)"
    parts_of_time = [
        (late, f"waiting for the last rank to arrive{who}", _LATE),
        (others, f"waiting while others {direction}", _FASTER),
        (moving, "moving data", _FEWER),
    ]
    parts_of_time.sort(key=lambda one: -one[0])
    texts = [f"{format_share(share)} {text}" for share, text, _ in parts_of_time if share >= 0.01]
    return f"between ranks: {', '.join(texts)}", parts_of_time[0][2]


def _sieving(trace: _Trace) -> list[Finding]:
    """More bytes read than requested, or bytes read only to write them back."""
    top, low = trace.number("mpiio"), trace.lowest
    if top is None or low is None:
        return []
    found = []
    asked_read, asked_write = (int(n) for n in trace.bytes[top])
    # Only reads within calls that read or write count: MPI_File_preallocate reads, too, and so may the program. If
    # nothing was to be read, reads while waiting for a call serve writing.
    late = () if asked_read else ("wait",)
    writing = trace.of(top, "write", *late)
    for k in [k for layer in ("mpi",) if late and (k := trace.number(layer)) is not None]:
        writing |= trace.of(k, "wait")
    reads = trace.of(low, "read")
    read, time_s = trace.moved_within(writing, reads)
    if asked_write and read > (MORE_BYTES - 1) * asked_write:
        collective = trace.collectively("write")
        found.append(
            Finding(
                "io.read_to_write",
                f"{format_size(read)} were read without a request, in addition to "
                f"{format_size(asked_write)} written: data sieving reads the gaps between pieces and writes "
                "them back",
                {
                    "share": trace.share(time_s),
                    "read": read,
                    "asked": asked_read,
                    "written": int(trace.bytes[low, 1]),
                },
                "try the hint romio_ds_write=disable" + ("" if collective else ", or collective writes"),
            )
        )
    read, time_s = trace.moved_within(trace.of(top, "read"), reads)
    if asked_read and read > MORE_BYTES * asked_read:
        collective = trace.collectively("read")
        found.append(
            Finding(
                "io.read_more",
                f"{format_size(read)} were read for {format_size(asked_read)} requested: data sieving, or "
                "read-ahead",
                {"share": trace.share(time_s), "read": read, "asked": asked_read},
                "try the hint romio_ds_read=disable" + ("" if collective else ", or collective reads"),
            )
        )
    return found


def _to_gather(trace: _Trace, direction: str) -> str:
    """A suggestion that makes requests larger and does not use collective calls."""
    if trace.middle == "ompio":
        return "another implementation of MPI-IO, as ROMIO: --mca io ^ompio"
    return f"collective buffering: the hints romio_cb_{direction}=enable, and a larger cb_buffer_size"


def _share_of(trace: _Trace, layer: int, direction: str) -> float:
    return trace.share(float(trace.self_time[trace.of(layer, direction)].sum()))


def _small(trace: _Trace) -> list[Finding]:
    """Many small requests that reach the file system."""
    low = trace.lowest
    if low is None:
        return []
    found = []
    for d, direction in enumerate(("read", "write")):
        requests, moved = int(trace.requests[low, d]), int(trace.bytes[low, d])
        share = _share_of(trace, low, direction)
        if requests < MANY or moved >= SMALL * requests or share < MATTERS:
            continue
        above = next((name for name in ("hdf5", "mpiio") if trace.number(name) is not None), "")
        collective = above == "mpiio" and trace.collectively(direction)
        hint = {
            "hdf5": "larger chunks or a larger chunk cache; collective transfers; H5Pset_alignment",
            "mpiio": _to_gather(trace, direction)
            if collective
            else "collective calls, or a file view in which pieces are contiguous",
            "": "larger buffers, or writing several records at once",
        }[above]
        size = format_size(round(moved / requests))
        text = f"{requests} {direction}s of {size} on average reach {trace.titles[low]}"
        if buffered := _buffered(trace, low, direction):
            text = (
                f"{requests} {direction}s of {size} on average go through the C library's buffer ({buffered})"
            )
            hint = "moving more with each call: the buffer gathers the data, but every call has a cost"
        found.append(
            Finding(
                "io.small_requests",
                f"{text} and take {format_share(share)} of the time",
                {
                    "share": share,
                    "requests": requests,
                    "bytes": moved,
                    "layer": trace.layers[low],
                    "direction": direction,
                    "collective": collective,
                },
                f"try {hint}",
            )
        )
    return found


def _split(trace: _Trace) -> list[Finding]:
    """Large requests that a layer splits."""
    top, low = trace.number("mpiio"), trace.lowest
    if top is None or low is None:
        return []
    found = []
    for d, direction in enumerate(("read", "write")):
        above, below = int(trace.requests[top, d]), int(trace.requests[low, d])
        share = _share_of(trace, low, direction)
        if not above or below < max(MANY, SPLIT * above) or share < MATTERS or not trace.bytes[low, d]:
            continue
        sizes = [format_size(round(int(trace.bytes[k, d]) / n)) for k, n in ((top, above), (low, below))]
        collective = trace.collectively(direction)
        found.append(
            Finding(
                "io.split_requests",
                f"each {direction} of {sizes[0]} at MPI-IO becomes {below / above:.3g} of {sizes[1]} at "
                f"{trace.titles[low]}",
                {
                    "share": share,
                    "above": above,
                    "below": below,
                    "direction": direction,
                    "collective": collective,
                },
                f"try {_to_gather(trace, direction)}, or a datatype with fewer holes"
                if collective
                else "try collective calls, or a datatype with fewer holes",
            )
        )
    return found


def _buffered(trace: _Trace, layer: int, direction: str) -> str:
    """The most called function that uses a buffer of the C library, if most of a layer's calls do; else ""."""
    mine = np.flatnonzero(trace.of(layer, direction))
    through = [k for k in mine if BUFFERED.fullmatch(trace.names[k])]
    if not through or 2 * trace.calls[through].sum() <= trace.calls[mine].sum():
        return ""
    return trace.names[max(through, key=lambda k: trace.calls[k])]


def _syncs(trace: _Trace) -> list[Finding]:
    """Waiting until written data reaches the disk."""
    low = trace.lowest
    time_s, calls, mine = _of_kind(trace, ("sync",))
    share = trace.share(time_s)
    if low is None or share < MATTERS:
        return []
    written = int((trace.summary["file_requests"].values[:, low, 1] > 0).sum())
    once = int(trace.summary["calls"].values[:, mine].sum(axis=1).max()) <= max(1, written)
    many = calls > 1
    return [
        Finding(
            "io.sync",
            f"{counted(calls, 'call')} that {'wait' if many else 'waits'} for the disk {'take' if many else 'takes'} "
            f"{format_share(share)} of the time, {format_duration(time_s / max(1, calls))}{' each' if many else ''}",
            {"share": share, "calls": calls, "time_s": time_s, "files": written},
            "each file is synced once, so the storage needs this long for the data written before. Write "
            "to faster storage, or leave the sync out if the data may be lost in a crash"
            if once
            else "sync once at the end, or at checkpoints that must survive a crash",
        )
    ]


def _metadata(trace: _Trace) -> list[Finding]:
    """Calls that open, close or query files."""
    time_s, calls, mine = _of_kind(trace, ("open", "close", "meta", "seek"))
    share = trace.share(time_s)
    if share < 2 * MATTERS or calls < MANY:
        return []
    # Functions of one name in several libraries count as one function here.
    of_name: dict[str, list[float]] = {}
    for k in np.flatnonzero(mine):
        one = of_name.setdefault(trace.names[k], [0.0, 0.0])
        one[0] += float(trace.self_time[k])
        one[1] += float(trace.calls[k])
    name, (longest_s, its_calls) = max(of_name.items(), key=lambda one: one[1][0])
    few = longest_s > time_s / 2 and its_calls < MANY / 10
    return [
        Finding(
            "io.metadata",
            f"{calls} calls that open, close, remove, seek or query files take {format_share(share)} of the "
            f"time; {format_share(longest_s / time_s)} of it is in {counted(int(its_calls), 'call')} of "
            f"{name}",
            {
                "share": share,
                "calls": calls,
                "time_s": time_s,
                "function": name,
                "function_calls": int(its_calls),
                "function_s": longest_s,
            },
            f"a few calls of {name} are long: see which files they work on; removing, truncating or closing "
            "a large file takes the file system time"
            if few
            else "keep files open; let one rank query and broadcast the result; use fewer, larger files",
        )
    ]


def _of_kind(trace: _Trace, kinds: tuple[str, ...]) -> tuple[float, int, np.ndarray]:
    """Time of functions of the lowest layer themselves, the number of their calls, and a mask of these functions."""
    low = trace.lowest
    mine = trace.of(-1 if low is None else low, *kinds)
    return float(trace.self_time[mine].sum()), int(trace.calls[mine].sum()), mine


def _uneven(trace: _Trace) -> list[Finding]:
    """The findings of `_uneven_of` for each MPI program: ranks of different programs need not be alike."""
    world = worlds.of(trace.summary)
    return [one for which in np.unique(world[world >= 0]) for one in _uneven_of(trace, world == which)]


def _uneven_of(trace: _Trace, of_program: np.ndarray) -> list[Finding]:
    """A rank whose reads, writes and syncs take longer than those of the other ranks of its program.

    Not where few ranks do the work of all by design, as aggregators do in collective calls, and not in layers whose
    time includes waiting for other ranks: there the rank with the longest time arrived first.
    """
    s = trace.summary
    of_process = np.where(of_program, s["process_rank"].values, worlds.NONE)
    called = dict(zip(of_process.tolist(), worlds.named(s)))
    ranks = np.unique(of_process[of_process >= 0])  # a rank may have run several programs, one after another
    if len(ranks) < 2:
        return []
    together = np.array(
        [
            layer == trace.number("mpiio") and bool(COLLECTIVE.search(name) or TOGETHER.search(name))
            for layer, name in zip(trace.layer_of, trace.names)
        ],
        bool,
    )
    found = []
    for k, layer in enumerate(trace.layers):
        if layer in (*BESIDE, *WAITING) or (layer in FILE_LAYERS and k != trace.lowest):
            continue
        mine = trace.of(k, "read", "write", "copy", "sync")
        own, moved = s["self_time"].values[:, mine].sum(axis=1), s["request_bytes"].values[:, k].sum(axis=1)
        time, size = (
            np.array([values[of_process == rank].sum() for rank in ranks]) for values in (own, moved)
        )
        if trace.moved_within(together, mine)[1] > EXCHANGE * time.sum():
            continue
        most = int(time.argmax())
        others, theirs = (np.delete(values, most).mean() for values in (time, size))
        if time[most] < UNEVEN * others or time[most] - time.mean() < MATTERS * trace.total / len(ranks):
            continue
        more = size[most] >= UNEVEN * theirs and size[most] > 0
        data = (
            f"; it moves {format_size(int(size[most]))} there, the others {format_size(round(theirs))} on average"
            if size[most] or theirs
            else ""
        )
        found.append(
            Finding(
                "io.uneven",
                f"rank {called[int(ranks[most])]} spends {format_duration(time[most])} in reads and writes "
                f"of {trace.titles[k]}, the others {format_duration(others)} on average{data}",
                {
                    "share": trace.share(float(time[most] - time.mean())),
                    "rank": int(ranks[most]),
                    "layer": layer,
                    "ratio": float(time[most] / others) if others > 0 else None,
                    "bytes": int(size[most]),
                    "bytes_of_others": float(theirs),
                },
                "distribute the data evenly, or let all ranks write their parts in collective calls"
                if more
                else "check whether that rank's host, or the storage that it writes to, is slower",
            )
        )
    return found


def _slow_servers(trace: _Trace) -> list[Finding]:
    """Servers that are slower than the others of their kind, or whose network path is:
    `sonde.io.trace.slow_servers`."""
    return [
        slow_way(one) if one.way else _slow_server(one) for one in slow_servers.verdict(trace.summary).slow
    ]


def _slow_server(one: slow_servers.Slow) -> Finding:
    return Finding(
        "io.slow_server",
        f"{one.server} takes {one.ratio:.3g} times as long as the median of the other servers for "
        f"{_operations(one)} ({_interval(one)}): {format_duration(one.mean_s)} on average",
        _evidence(one),
        "check whether its disks or its host are slower, or whether it stores a file that all ranks write to",
    )


def slow_way(one: slow_servers.Slow) -> Finding:
    """The finding about a server with a slow network path."""
    return Finding(
        "io.slow_server_link",
        f"requests spend {one.ratio:.3g} times as long on the way to {one.server} and back as for the "
        f"median of the other servers, in {_operations(one)} ({_interval(one)}): "
        f"{format_duration(one.mean_s)} on average",
        _evidence(one),
        "measure the links of its host, sonde net run --hosts …, and check whether its host or its receive "
        "queue is busy",
    )


def _interval(one: slow_servers.Slow) -> str:
    return (
        f"95 % confidence interval {one.low:.3g} to {one.high:.3g}, significant at "
        f"{format_share(peers.LEVEL, trim=True)}"
    )


def _operations(one: slow_servers.Slow) -> str:
    if one.every:
        return "all requests"
    shown = list(one.operations[: slow_servers.SHOWN])
    return _listed([*shown, "others"] if len(one.operations) > len(shown) else shown)


def _evidence(one: slow_servers.Slow) -> dict[str, Any]:
    return {
        "share": one.share,
        "by": one.by,
        "server": one.server,
        "operations": list(one.operations),
        "ratio": one.ratio,
        "low": one.low,
        "high": one.high,
        "q": one.q,
        "mean_s": one.mean_s,
        "others_s": one.others_s,
        "calls": one.requests,
        "detectable_ratio": one.detectable if np.isfinite(one.detectable) else None,
    }


def _overhead(trace: _Trace) -> list[Finding]:
    """The tracer's own work between a process's first and last call of I/O. Before that it inspects the program's
    libraries, which disturbs nothing that is reported here."""
    s = trace.summary
    if "tracer" not in trace.layers or trace.total <= 0:
        return []
    busy, program = s["busy"].values, ~np.isin(trace.layers, BESIDE)
    own = float(s["tracing_time"].values.sum())  # at each call
    for of_process in busy:
        bins = np.flatnonzero(of_process[program].any(axis=0))
        if len(bins):
            own += float(of_process[trace.layers.index("tracer"), bins[0] : bins[-1] + 1].sum())
    if own < OVERHEAD * trace.total:
        return []
    return [
        Finding(
            "io.tracer_overhead",
            f"during the program's I/O, the tracer's own work took {format_duration(own)}, "
            f"{format_share(own / trace.total)} of the time in traced calls",
            {"share": own / trace.total, "time_s": own},
            "trace fewer layers with --layers, or write the trace to memory: -o /dev/shm/…",
        )
    ]
