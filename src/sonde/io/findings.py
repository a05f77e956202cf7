"""What a trace shows that somebody may want to change, with its evidence and what to try. Pure: from /summary alone.

Each finding is a rule with a threshold of its own, told beside it. None says what would be gained: that takes another
run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.errors import Finding
from sonde.core.units import format_duration, format_share, format_size
from sonde.io import servers
from sonde.io.collective_io import directions
from sonde.io.layers import DIRECTIONS, KINDS
from sonde.io.words import BESIDE, beside_s

if TYPE_CHECKING:
    import xarray as xr

MATTERS = 0.1  # of the time in traced calls: what takes less is not worth a word
EXCHANGE = 0.5  # of collective time
SMALL = 64 << 10  # B; requests below are small for a parallel file system
MANY = 100  # requests
SPLIT = 4.0  # requests of a layer for one of the layer above
MORE_BYTES = 1.25  # bytes moved for one that was asked for
UNEVEN = 1.5  # of the slowest rank over the mean of all
OVERHEAD = 0.05
TOLD = 0.9  # of collective time: where as much of it is known in parts, the parts are told
LEAST_S = 1e-3  # in traced calls: shares of less are nobody's trouble
SLOW_SERVER = 3.0  # times the median of the other servers

# The first of these that is there has the requests that reach the file system. Below a client library are its sockets.
FILE_LAYERS = ("gfapi", "kernel", "posix")
MIDDLE = ("romio", "ompio")


@dataclass
class _Trace:
    """The parts of a /summary that rules ask for."""

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
        self._keep_to_the_files()

    def _keep_to_the_files(self) -> None:
        """Where MPI-IO or HDF5 worked on named files, the layers below count in those alone: programs and libraries
        read much else while they start."""
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
        """The layer's, if it had calls."""
        if layer not in self.layers:
            return None
        k = self.layers.index(layer)
        return k if self.calls[self.layer_of == k].sum() else None

    @property
    def lowest(self) -> int | None:
        return next((k for layer in FILE_LAYERS if (k := self.number(layer)) is not None), None)

    def below(self, functions: np.ndarray) -> tuple[float, dict[str, float]]:
        """Time in calls of some functions, and of it what each layer took itself, the functions' own layer included.

        Calls of them within one another count once.
        """
        s = self.summary
        parent, what = s["node_parent"].values.astype(int), s["node_function"].values.astype(int)
        inside = np.zeros(len(what), bool)
        total = 0.0
        for k in range(len(what)):  # a path comes after the one that it is within
            within = parent[k] >= 0 and inside[parent[k]]
            if not within and functions[what[k]]:
                total += float(s["node_time"].values[k])
            inside[k] = within or functions[what[k]]
        own = np.bincount(
            self.layer_of[what[inside]], s["node_self_time"].values[inside], minlength=len(self.layers)
        )
        return total, {name: float(own[k]) for k, name in enumerate(self.layers)}


def findings(summary: xr.Dataset) -> list[Finding]:
    """All that is to be said of a trace, the largest share of time first."""
    trace = _Trace(summary)
    if trace.total < LEAST_S:
        return []
    rules = (_exchange, _sieving, _small, _split, _syncs, _metadata, _uneven, _slow_server, _overhead)
    found = [one for rule in rules for one in rule(trace)]
    return sorted(found, key=lambda one: -float(one.evidence.get("share", 0.0)))


def _exchange(trace: _Trace) -> list[Finding]:
    """Collective calls whose time is spent between ranks, not at the file system: waiting for each other, or data."""
    mpiio = trace.number("mpiio")
    if mpiio is None:
        return []
    found = []
    of_function = directions(np.array(trace.names), trace.layer_of == mpiio)
    for d, direction in enumerate(DIRECTIONS):
        functions = of_function == d
        time_s, own = trace.below(functions)
        exchange = own.get("mpi", 0.0) + sum(own.get(name, 0.0) for name in MIDDLE)
        files = own.get("posix", 0.0) + own.get("kernel", 0.0)
        parts = _waiting(trace.summary, d)
        # Waiting is that in whichever function: an MPI that hides its ROMIO waits within MPI-IO itself.
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
        what, hint = "exchange between ranks, or waiting for them, which this trace cannot tell apart", _FEWER
        if parts:
            moving = max(0.0, between / time_s - parts["late"] - parts["others"])
            evidence |= parts | {"moving": moving}
            what, hint = _between(parts, moving, direction)
        found.append(
            Finding(
                "io.collective_exchange",
                f"{format_share(between / time_s)} of the time of collective {direction}s is {what}; "
                f"{format_share(files / time_s)} is the file system",
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
    "try more aggregators (cb_nodes) or none (romio_cb_{direction}=disable; OMPIO: --mca fcoll individual), stripes "
    "over more servers, or a faster file system: ranks wait for the aggregators, and these for the file system"
)
_LATE = (
    "try to have the last ranks come earlier: see what they do before, and share it out; without aggregators nobody "
    "waits in the call: romio_cb_{direction}=disable; OMPIO: --mca fcoll individual"
)


def _waiting(s: xr.Dataset, direction: int) -> dict[str, Any]:
    """Shares of the time of collective calls that ranks waited, and who came last most often; {} if that is unknown."""
    if "collective_time" not in s:
        return {}  # of a dataset that an earlier version made
    told, untold, late, others = (
        float(s[f"collective_{name}"].values[:, direction].sum())
        for name in ("time", "untold", "late", "others")
    )
    if told <= 0 or told < TOLD * (told + untold):
        return {}
    last = s["collective_last"].values[:, direction]
    rank = int(s["process_rank"].values[last.argmax()])
    return {
        "late": late / told,
        "others": others / told,
        "last_rank": rank,
        "last_share": float(last.max() / last.sum()),
    }


def _between(parts: dict[str, Any], moving: float, direction: str) -> tuple[str, str]:
    """What time between ranks is, the most of it first, and what to do about that."""
    late, others = parts["late"], parts["others"]
    who = ""
    if parts["last_share"] > 0.5:
        who = f" (rank {parts['last_rank']} in {format_share(parts['last_share'])} of the calls)"
    told = [
        (late, f"waiting for the last rank to come{who}", _LATE),
        (others, f"waiting while others {direction}", _FASTER),
        (moving, "moving data", _FEWER),
    ]
    told.sort(key=lambda one: -one[0])
    words = [f"{format_share(share)} {text}" for share, text, _ in told if share >= 0.01]
    return f"between ranks: {', '.join(words)}", told[0][2]


def _sieving(trace: _Trace) -> list[Finding]:
    """More bytes than were asked for, or bytes read to be written back."""
    top, low = trace.number("mpiio"), trace.lowest
    if top is None or low is None:
        return []
    found = []
    asked_read, asked_write = (int(n) for n in trace.bytes[top])
    moved_read, moved_write = (int(n) for n in trace.bytes[low])
    extra = moved_read - asked_read
    if asked_write and extra > (MORE_BYTES - 1) * asked_write and asked_read < moved_read / MORE_BYTES:
        found.append(
            Finding(
                "io.read_to_write",
                f"{format_size(extra)} were read that nobody asked for, beside {format_size(asked_write)} written: "
                "data sieving reads what lies between pieces to write it back",
                {
                    "share": _share_of(trace, low, "read"),
                    "read": moved_read,
                    "asked": asked_read,
                    "written": moved_write,
                },
                "try the hint romio_ds_write=disable, or collective writes",
            )
        )
    elif asked_read and moved_read > MORE_BYTES * asked_read:
        found.append(
            Finding(
                "io.read_more",
                f"{format_size(moved_read)} were read for {format_size(asked_read)} asked for: "
                "data sieving, or reading ahead",
                {"share": _share_of(trace, low, "read"), "read": moved_read, "asked": asked_read},
                "try the hint romio_ds_read=disable, or collective reads",
            )
        )
    return found


def _share_of(trace: _Trace, layer: int, direction: str) -> float:
    mine = (trace.layer_of == layer) & (trace.kind_of == KINDS.index(direction))
    return trace.share(float(trace.self_time[mine].sum()))


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
        hint = {
            "hdf5": "larger chunks or a larger chunk cache; collective transfers; H5Pset_alignment",
            "mpiio": "collective calls, or a file view that makes pieces lie together",
            "": "larger buffers: setvbuf, or writing records together",
        }[above]
        found.append(
            Finding(
                "io.small_requests",
                f"{requests} {direction}s of {format_size(round(moved / requests))} on average reach "
                f"{trace.titles[low]} and take {format_share(share)} of the time",
                {"share": share, "requests": requests, "bytes": moved, "layer": trace.layers[low]},
                f"try {hint}",
            )
        )
    return found


def _split(trace: _Trace) -> list[Finding]:
    """Large requests that a layer takes apart."""
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
        found.append(
            Finding(
                "io.split_requests",
                f"a {direction} of {sizes[0]} at MPI-IO becomes {below / above:.3g} of {sizes[1]} at "
                f"{trace.titles[low]}",
                {"share": share, "above": above, "below": below},
                "try collective calls, a larger cb_buffer_size or ind_wr_buffer_size, or a datatype with fewer holes",
            )
        )
    return found


def _syncs(trace: _Trace) -> list[Finding]:
    """Waiting for what was written to reach the disk."""
    time_s, calls = _of_kind(trace, ("sync",))
    share = trace.share(time_s)
    if share < MATTERS:
        return []
    return [
        Finding(
            "io.sync",
            f"{calls} calls that wait for the disk take {format_share(share)} of the time, "
            f"{format_duration(time_s / max(1, calls))} each",
            {"share": share, "calls": calls, "time_s": time_s},
            "sync once at the end, or at checkpoints that must survive a crash",
        )
    ]


def _metadata(trace: _Trace) -> list[Finding]:
    """Opening, closing, asking about files."""
    time_s, calls = _of_kind(trace, ("open", "close", "meta", "seek"))
    share = trace.share(time_s)
    if share < 2 * MATTERS or calls < MANY:
        return []
    return [
        Finding(
            "io.metadata",
            f"{calls} calls that open, close, seek or ask about files take {format_share(share)} of the time",
            {"share": share, "calls": calls, "time_s": time_s},
            "keep files open; one rank may ask and tell the others; fewer, larger files",
        )
    ]


def _of_kind(trace: _Trace, kinds: tuple[str, ...]) -> tuple[float, int]:
    """Time of functions of the lowest layer themselves, and of how many calls."""
    low = trace.lowest
    mine = np.isin(trace.kind_of, [KINDS.index(kind) for kind in kinds]) & (trace.layer_of == low)
    return float(trace.self_time[mine].sum()), int(trace.calls[mine].sum())


def _uneven(trace: _Trace) -> list[Finding]:
    """Ranks that spend more time in a layer than others."""
    s = trace.summary
    of_process = s["process_rank"].values
    ranks = np.unique(of_process[of_process >= 0])  # one may have run several programs, one after another
    if len(ranks) < 2:
        return []
    found = []
    for k, layer in enumerate(trace.layers):
        own = s["layer_self_time"].values[:, k]
        of_rank = np.array([own[of_process == rank].sum() for rank in ranks])
        mean, most = float(of_rank.mean()), float(of_rank.max())
        if layer in BESIDE or trace.share(float(of_rank.sum())) < MATTERS or most < UNEVEN * mean:
            continue
        rank = int(ranks[of_rank.argmax()])
        found.append(
            Finding(
                "io.uneven",
                f"rank {rank} spends {most / mean:.3g} times the mean of all ranks in {trace.titles[k]}: "
                f"{format_duration(most)} against {format_duration(mean)}",
                {
                    "share": trace.share(float(of_rank.sum())),
                    "rank": rank,
                    "layer": layer,
                    "ratio": most / mean,
                },
                "share the data out evenly, or see whether that rank's host or file server is slower",
            )
        )
    return found


def _slow_server(trace: _Trace) -> list[Finding]:
    """A server that takes longer than the others for what moves data or is waited for, by its own counters."""
    s = trace.summary
    if "server_name" not in s:
        return []
    calls, mean = s["server_calls"].values, s["server_mean"].values
    time = np.where((calls > 0) & np.isfinite(mean), calls * mean, 0.0)
    names, hosts = s["operation_name"].values.tolist(), servers.hosts(s)
    found = []
    for operation in (*servers.MOVES.values(), "FSYNC"):
        if operation not in names:
            continue
        j = names.index(operation)
        busy = np.flatnonzero((calls[:, j] >= MANY) & np.isfinite(mean[:, j]))
        if len(busy) < 3:  # of two, neither is the odd one
            continue
        slow = int(busy[mean[busy, j].argmax()])
        others = float(np.median(mean[busy[busy != slow], j]))
        share = float(time[slow, j] / time.sum())
        if mean[slow, j] < SLOW_SERVER * others or share < MATTERS:
            continue
        found.append(
            Finding(
                "io.slow_server",
                f"{hosts[slow]} takes {format_duration(mean[slow, j])} for a {operation}, "
                f"{mean[slow, j] / others:.3g} times the median of the other servers",
                {
                    "share": share,
                    "server": str(s["server_name"].values[slow]),
                    "operation": operation,
                    "mean_s": float(mean[slow, j]),
                    "others_s": others,
                    "calls": int(calls[slow, j]),
                },
                "see whether its disks or its host are slower, or whether it has a file that all ranks write to",
            )
        )
    return found


def _overhead(trace: _Trace) -> list[Finding]:
    """The tracer's own work."""
    own = trace.own.get("tracer", 0.0)
    everything = trace.total + beside_s(
        trace.summary
    )  # much of it goes into finding what is loaded at start-up
    share = own / everything if everything > 0 else 0.0
    if share < OVERHEAD:
        return []
    return [
        Finding(
            "io.tracer_overhead",
            f"the tracer's own work took {format_share(share)} as long as the traced calls",
            {"share": share, "time_s": own},
            "trace fewer layers, --layers, or write the trace to memory: -o /dev/shm/…",
        )
    ]
