"""Find servers that are slower than the others of their kind, or whose network path is. Pure.

There are two sources. Requests that were joined to the server's calls (`trace.join`) are compared one by one: the
server's own time, and the rest of the client's, which is the way there and back. Counters of a file system
(`sonde.io.trace.servers`) have only the mean and the extremes of the server's own time: they do not show a slow link.

`sonde.core.peers` has the tests. `tables` puts the comparisons of requests into /summary; `verdict` judges them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import peers
from sonde.core.allowed import COUNT, NUMBERED, codes, index
from sonde.core.described import optional as _of
from sonde.core.units import format_size
from sonde.io.maps.layers import DIRECTIONS
from sonde.io.trace import join, servers, worlds

if TYPE_CHECKING:
    import xarray as xr

_PEER = ("peer",)
SUMMARY = {
    "peer_layer": _of(_PEER, "1", "layer of the servers that were compared", "<i8", allowed=index("layer")),
    "peer_process": _of(
        _PEER, "1", "server that was compared with the others", "<i8", allowed=index("process")
    ),
    "peer_way": _of(
        _PEER,
        "1",
        "what was compared: time of the server (0), of the way there and back (1)",
        "<i8",
        allowed=codes(0, 1),
    ),
    "peer_function": _of(
        _PEER,
        "1",
        "client's call that these requests began with; -1 any",
        "<i8",
        allowed=index("function", -1),
    ),
    "peer_class": _of(
        _PEER, "1", "size class k of requests of 2^(k-1) to 2^k - 1 B; -1 any", "<i8", allowed=NUMBERED
    ),
    "peer_requests": _of(_PEER, "1", "requests of that server", "<i8", allowed=COUNT),
    "peer_time": _of(_PEER, "s", "their time at the server, or on the way"),
    "peer_total": _of(_PEER, "s", "time of all its joined requests, as the clients saw it"),
    "peer_ratio": _of(_PEER, "1", "typical time over the median of the other servers; NaN not compared"),
    "peer_low": _of(_PEER, "1", "lower end of the 95 % interval of that"),
    "peer_high": _of(_PEER, "1", "upper end of it"),
    "peer_p": _of(_PEER, "1", "one-sided p of a server that is slower; NaN not compared"),
    "peer_error": _of(_PEER, "1", "relative standard error of the ratio; NaN not compared"),
}
SERVER, WAY = 0, 1
CLASSES = servers.CLASSES
ALIKE = 1.5  # larger ratios of mean request sizes mean unequal operations
MATTERS = 0.1  # of the time of a server: smaller losses are not reported
SHOWN = 3  # operations that a finding names
_MIN_NS = 1.0  # short times may read as 0 because of the clock's tick


@dataclass(frozen=True)
class Slow:
    """A server that is slower than the others, or the way to which is.

    by : "requests" or "counters". operations : those in which it is slower; every : whether these are all compared
    ones. ratio, low, high, mean_s, others_s : of them together, or of the clearest. share : its loss, of its time in
    requests. detectable : the smallest detectable ratio
    """

    by: str
    server: str
    way: int
    operations: tuple[str, ...]
    every: bool
    ratio: float
    low: float
    high: float
    q: float
    requests: int
    share: float
    mean_s: float
    others_s: float
    detectable: float


@dataclass(frozen=True)
class Power:
    """The result of comparing servers in one operation.

    servers, compared : how many had it, and how many were compared. detectable : the ratio that is detected in the
    median server with 80 % power, infinite if none is; None if nothing was compared, for the reason in `reason`.
    requests : of the server with the fewest
    """

    by: str
    operation: str
    way: int
    servers: int
    compared: int
    requests: int
    detectable: float | None
    reason: str


@dataclass(frozen=True)
class Verdict:
    slow: list[Slow]
    power: list[Power]


def tables(found: list[tuple[int, join.Requests, np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
    """The variables of SUMMARY.

    found : for each layer of servers its number, its requests, and for each request the function and the client's host,
    both as numbers
    """
    columns: list[list[np.ndarray]] = [[np.zeros(0)] for _ in SUMMARY]
    for layer, requests, function, client in found:
        joined = np.flatnonzero((requests.server_process >= 0) & (function >= 0))
        processes, member = np.unique(requests.server_process[joined], return_inverse=True)
        if len(processes) < peers.MIN_MEMBERS:
            continue
        client_ns = (requests.end - requests.begin)[joined].astype(np.float64)
        server_ns = (requests.server_end - requests.server_begin)[joined].astype(np.float64)
        total = np.bincount(member, client_ns, len(processes)) * 1e-9
        classes = servers.size_class(requests.size[joined])
        block = function[joined] * CLASSES + classes
        for way, ns in ((SERVER, server_ns), (WAY, client_ns - server_ns)):
            ns = np.maximum(ns, _MIN_NS)
            begin = requests.begin[joined]
            one = peers.by_epoch(ns * 1e-9, begin, member, block, len(processes), client[joined])
            any_ = one.block == peers.ALL
            spent = {key: float(ns[mine].sum()) * 1e-9 for key, mine in _cells(member, block).items()}
            spent |= {(k, peers.ALL): float(ns[member == k].sum()) * 1e-9 for k in range(len(processes))}
            rows = (
                np.full(len(any_), layer), processes[one.member], np.full(len(any_), way),
                np.where(any_, -1, one.block // CLASSES), np.where(any_, -1, one.block % CLASSES),
                one.operations, np.array([spent[key] for key in zip(one.member.tolist(), one.block.tolist())]),
                total[one.member], one.ratio, one.low, one.high, one.p, one.own_error,
            )  # fmt: skip
            for column, values in zip(columns, rows):
                column.append(values)
    return {
        name: np.concatenate(parts).astype(what.dtype)
        for (name, what), parts in zip(SUMMARY.items(), columns)
    }


def _cells(member: np.ndarray, block: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
    """Positions of the requests of each server in each block."""
    pairs, place = np.unique(np.stack([member, block]), axis=1, return_inverse=True)
    order = np.argsort(place.reshape(-1), kind="stable")
    counts = np.bincount(place.reshape(-1), minlength=pairs.shape[1])
    parts = np.split(order, np.cumsum(counts)[:-1])
    return {(int(k), int(b)): mine for (k, b), mine in zip(pairs.T, parts)}


def verdict(summary: xr.Dataset) -> Verdict:
    """Slower servers, the clearest first, and the power of each comparison."""
    slow, power = [], []
    for found in (_of_requests(summary), _of_counters(summary)):
        slow += found.slow
        power += found.power
    return Verdict(sorted(slow, key=lambda one: -one.share), power)


# ---- single requests ----


def _of_requests(summary: xr.Dataset) -> Verdict:
    if "peer_ratio" not in summary or not summary.sizes["peer"]:
        return Verdict([], [])
    column = {name: summary[name].values for name in SUMMARY}
    judged = peers.judged(
        column["peer_ratio"], column["peer_p"], column["peer_error"], np.zeros(summary.sizes["peer"])
    )
    # Medians cannot be summed: the loss of a server follows from the time of its slower requests.
    loss_s = column["peer_time"] * (1 - 1 / np.maximum(column["peer_ratio"], 1.0))
    names = _process_names(summary, np.unique(column["peer_process"]))
    slow, power = [], []
    for layer in np.unique(column["peer_layer"]).tolist():
        for way in (SERVER, WAY):
            mine = (column["peer_layer"] == layer) & (column["peer_way"] == way)
            for process in np.unique(column["peer_process"][mine]).tolist():
                rows = np.flatnonzero(mine & (column["peer_process"] == process))
                if one := _slow(summary, column, judged, rows, loss_s, names[process]):
                    slow.append(one)
            power += _power(summary, column, judged, np.flatnonzero(mine))
    return Verdict(slow, power)


def _slow(
    summary: xr.Dataset,
    column: dict[str, np.ndarray],
    judged: peers.Judged,
    rows: np.ndarray,
    loss_s: np.ndarray,
    server: str,
) -> Slow | None:
    """The finding about a server, or the way to it; None if it is not slower. rows : its comparisons."""
    found = rows[judged.slower[rows]]
    whole = found[column["peer_function"][found] < 0]
    single = found[column["peer_function"][found] >= 0]
    compared = rows[(column["peer_function"][rows] >= 0) & np.isfinite(column["peer_p"][rows])]
    if not len(found):
        return None
    # If it is slower in all operations, the ratio is that of all together, otherwise that of the costliest operation.
    every = len(single) == len(compared)
    main = (
        int(whole[0]) if len(whole) and (every or not len(single)) else int(single[loss_s[single].argmax()])
    )
    lost = float(loss_s[main] if column["peer_function"][main] < 0 else loss_s[single].sum())
    share = lost / float(column["peer_total"][main])
    if share < MATTERS:
        return None
    mean_s = float(column["peer_time"][main] / column["peer_requests"][main])
    ratio = float(column["peer_ratio"][main])
    order = single[np.argsort(-loss_s[single], kind="stable")]
    return Slow(
        "requests",
        server,
        int(column["peer_way"][main]),
        tuple(_operation(summary, column, int(k)) for k in order),
        every or not len(single),
        ratio,
        float(column["peer_low"][main]),
        float(column["peer_high"][main]),
        float(judged.q[main]),
        int(column["peer_requests"][main]),
        share,
        mean_s,
        mean_s / ratio,
        float(judged.detectable[main]),
    )


def _power(
    summary: xr.Dataset, column: dict[str, np.ndarray], judged: peers.Judged, rows: np.ndarray
) -> list[Power]:
    """The results of one layer's comparisons, operation by operation."""
    found = []
    rows = rows[column["peer_function"][rows] >= 0]
    keys = np.stack([column["peer_function"][rows], column["peer_class"][rows]])
    for key in np.unique(keys, axis=1).T:
        mine = rows[(keys == key[:, None]).all(axis=0)]
        known = np.isfinite(column["peer_p"][mine])
        fewest = int(column["peer_requests"][mine].min())
        detectable = float(np.median(judged.detectable[mine][known])) if known.any() else None
        found.append(
            Power(
                "requests",
                _operation(summary, column, int(mine[0])),
                int(column["peer_way"][mine[0]]),
                len(mine),
                int(known.sum()),
                fewest,
                detectable,
                "" if known.any() else _too_few(len(mine), fewest, "request"),
            )
        )
    return found


def _too_few(count: int, fewest: int, what: str) -> str:
    if count < peers.MIN_MEMBERS:
        return f"{count} servers had it, but a comparison needs {peers.MIN_MEMBERS}"
    return f"too few operations: a server had {fewest} {what}{'' if fewest == 1 else 's'}"


def _operation(summary: xr.Dataset, column: dict[str, np.ndarray], row: int) -> str:
    name = str(summary["function_name"].values[column["peer_function"][row]])
    k = int(column["peer_class"][row])
    return f"{name} of {format_size(1 << (k - 1), exact=True)} or more" if k > 0 else name


def _process_names(summary: xr.Dataset, processes: np.ndarray) -> dict[int, str]:
    """Names of servers that are processes: their host, with their number if a host has several."""
    hosts_, pids = summary["process_host"].values, summary["process_pid"].values
    of = [str(hosts_[k]) for k in processes]
    return {
        int(k): host if of.count(host) == 1 else f"{host} (process {int(pids[k])})"
        for k, host in zip(processes.tolist(), of)
    }


# ---- counters ----

# Operations that are judged separately. All others, such as LOOKUP, count together with these.
_SINGLE = (*servers.MOVES.values(), "FSYNC")
TOGETHER = "all operations"


def _of_counters(summary: xr.Dataset) -> Verdict:
    if "server_name" not in summary:
        return Verdict([], [])
    names = summary["operation_name"].values.tolist()
    parts, reasons = [], []
    for j in range(len(names)):
        part, reason = _operation_of_counters(summary, j)
        parts.append(part)
        reasons.append(reason)
    if not parts:
        return Verdict([], [])
    blocks = [names.index(name) for name in _SINGLE if name in names]
    one = peers.joined([*(parts[j] for j in blocks), peers.over_blocks(parts)])
    judged = peers.judged(one.ratio, one.p, one.own_error, one.others_error)
    slow = []
    for server, host in enumerate(servers.hosts(summary)):
        for row, operations, every, share, mean_s in _slow_counter(summary, one, judged, server):
            columns = (one.ratio, one.low, one.high, judged.q)
            ratio, low, high, q = (float(column[row]) for column in columns)
            count, found = int(one.operations[row]), float(judged.detectable[row])
            times = (mean_s, mean_s / ratio)
            slow.append(
                Slow(
                    "counters",
                    host,
                    SERVER,
                    operations,
                    every,
                    ratio,
                    low,
                    high,
                    q,
                    count,
                    share,
                    *times,
                    found,
                )
            )
    power = []
    for block in [*blocks, peers.ALL]:
        mine = np.flatnonzero(one.block == block)
        known = np.isfinite(one.p[mine])
        if len(mine):
            fewest = int(one.operations[mine].min())
            name = TOGETHER if block == peers.ALL else names[block]
            detectable = float(np.median(judged.detectable[mine][known])) if known.any() else None
            reason = "" if known.any() else reasons[block] or _too_few(len(mine), fewest, "call")
            power.append(
                Power("counters", name, SERVER, len(mine), int(known.sum()), fewest, detectable, reason)
            )
    return Verdict(slow, power)


def _operation_of_counters(summary: xr.Dataset, j: int) -> tuple[peers.Compared, str]:
    """The comparison of servers in one operation, and the reason if they cannot be compared."""
    name = str(summary["operation_name"].values[j])
    calls, means = summary["server_calls"].values[:, j], summary["server_mean"].values[:, j].copy()
    least, longest = (summary[f"server_{word}"].values[:, j] for word in ("least", "most"))
    reason = ""
    if not np.isfinite(least[calls > 0]).all():
        reason = "the shortest and longest times are unknown, so the means have no error"
    # Each client waits for one operation at a time, if requests are not split.
    together = float(max(1, len(np.unique(worlds.members(summary)))))
    for direction, operation in servers.MOVES.items():
        if operation == name:
            moved = summary["server_bytes"].values[:, DIRECTIONS.index(direction)]
            if (unlike := _unlike(moved, calls)).any():
                means[unlike] = np.nan
                reason = "the servers' requests have different sizes"
            cut = [
                one["requests_ratio"]
                for one in servers.against_clients(summary)
                if one["direction"] == direction
            ]
            together = cut[0] if cut else together
    return peers.by_mean(calls, means, least, longest, together, j), reason


def _slow_counter(
    summary: xr.Dataset, one: peers.Compared, judged: peers.Judged, server: int
) -> Iterator[tuple[int, tuple[str, ...], bool, float, float]]:
    """The finding about a server, if any: row of `one`, operations, whether these are all, share lost, mean time, s."""
    spent, mean_s = servers.times(summary)[server], summary["server_mean"].values[server]
    names = summary["operation_name"].values.tolist()
    mine = np.flatnonzero((one.member == server) & judged.slower)
    loss_s = one.expected_s * (one.ratio - 1)
    for row in mine[np.argsort(-loss_s[mine], kind="stable")][:1].tolist():
        share = float(loss_s[row] / np.nansum(spent))
        if share < MATTERS:
            continue
        every = int(one.block[row]) == peers.ALL
        single = tuple(names[block] for block in one.block[mine].tolist() if block != peers.ALL)
        own = one.expected_s[row] * one.ratio[row] / one.operations[row] if every else mean_s[one.block[row]]
        yield row, single, every, share, float(own)


def _unlike(moved: np.ndarray, calls: np.ndarray) -> np.ndarray:
    """Servers whose mean request size differs from the median server's: their times are for other operations."""
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.where(calls > 0, moved / calls, np.nan)
        apart = size / (np.nanmedian(size) if np.isfinite(size).any() else np.nan)
        return np.asarray((apart > ALIKE) | (apart < 1 / ALIKE))


# ---- as text and data ----


def values(found: Verdict) -> list[dict[str, Any]]:
    """The results of the comparisons, for JSON: `detectable_ratio` is null if no slowdown was detectable."""
    return [
        {
            "by": one.by,
            "operation": one.operation,
            "part": ("server", "way")[one.way],
            "servers": one.servers,
            "compared": one.compared,
            "detectable_ratio": one.detectable
            if one.detectable is not None and np.isfinite(one.detectable)
            else None,
            "reason": one.reason,
        }
        for one in found.power
    ]


def note(found: Verdict, by: str) -> str:
    """A note on the smallest detectable slowdown; "" if nothing could be compared."""
    lines = []
    for one in found.power:
        if one.by != by or (by == "requests" and one.way == WAY):
            continue
        if one.detectable is None:
            lines.append(f"{one.operation}: not compared, {one.reason}")
        elif np.isfinite(one.detectable):
            lines.append(f"{one.operation}: {one.detectable:.3g} times or more")
        else:
            lines.append(f"{one.operation}: none, its times vary too much for this number of operations")
    return f"Smallest detectable slowdown of a server: {'; '.join(lines)}." if lines else ""
