"""The counters of a file system's servers during a run, next to what clients did. Pure.

Counters are not events: they contain no points in time, and count the requests of every client. So they are shown next
to the layers of a trace, and never in their sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.described import Described
from sonde.core.described import optional as _of
from sonde.core.errors import Warning, typed
from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_share, format_size
from sonde.io.maps.layers import DIRECTIONS

if TYPE_CHECKING:
    import xarray as xr

FILE = "servers.json"  # in a run's folder
CLASSES = 64  # of sizes, by powers of two

_EACH, _OPERATIONS = ("server",), ("server", "operation")
RAW: dict[str, Described] = {
    "server_name": _of(_EACH, "", "server of the file system, by its own name", "str"),
    "server_system": _of(_EACH, "", "file system and volume that it is of", "str"),
    "server_answered": _of(_EACH, "1", "whether it told its counters: 1 it did, 0 it was down", "|i1"),
    "server_bytes": _of(("server", "direction"), "B", "bytes read from and written to it", "<i8"),
    "server_sizes": _of(("server", "direction", "size_class"), "1", "those of 2^(k-1) to 2^k - 1 B", "<i8"),
    "operation_name": _of(("operation",), "", "operation of the file system's protocol", "str"),
    "server_calls": _of(_OPERATIONS, "1", "how often a server did it", "<i8"),
    "server_mean": _of(_OPERATIONS, "s", "mean duration on the server; NaN unknown"),
    "server_least": _of(_OPERATIONS, "s", "shortest duration on the server; NaN unknown"),
    "server_most": _of(_OPERATIONS, "s", "longest duration on the server; NaN unknown"),
    "file_served": _of(("file",), "1", "whether the file lies on that file system, by its path", "|i1"),
}

# The operation that moves data, by direction, in all supported file systems.
MOVES = {"read": "READ", "write": "WRITE"}
# Layers that send requests to such servers; the first with requests is the client. For a library all requests count,
# for other layers those to files on the file system.
_LIBRARIES = ("gfapi",)
_BY_PATH = ("posix", "kernel")
BRICKS_SHOWN = 16
OPERATIONS_SHOWN = 12
NOTE = (
    "From the servers' own counters, not from events: for all clients of the volume while the command ran. "
    "They are in no other sum here."
)


def is_whole(content: Any) -> bool:
    """Whether a value has the form that a run's folder stores (FILE), so that `tables_of` accepts it."""
    match content:
        case {"servers": None | []}:  # not read yet, or no servers
            return True
        case {"servers": list(found), "system": str(), "mounts": list(mounts), "cwd": str()}:
            return all(isinstance(mount, str) for mount in mounts) and all(map(_is_server, found))
    return False


def _is_server(one: Any) -> bool:
    match one:
        case {
            "name": str(),
            "answered": 0 | 1,
            "bytes": moved,
            "sizes": list(sizes),
            "operations": dict(operations),
        }:
            return (
                _are_counts(moved)
                and all(isinstance(row, list) and len(row) == 2 and _are_counts(row[1]) for row in sizes)
                and all(_is_count(size) for size, _ in sizes)
                and all(map(_is_operation, operations.values()))
            )
    return False


def _is_operation(row: Any) -> bool:
    """Whether this is a number of calls, and three durations in s, None if unknown."""
    if not isinstance(row, list) or len(row) != 4 or not _is_count(row[0]):
        return False
    return all(value is None or (type(value) in (int, float) and abs(value) < 1e18) for value in row[1:])


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _are_counts(value: Any) -> bool:
    """Whether these are counts for both directions."""
    return isinstance(value, list) and len(value) == len(MOVES) and all(map(_is_count, value))


def tables_of(content: Mapping[str, Any], paths: Sequence[str]) -> dict[str, np.ndarray]:
    """The variables of RAW from the content of FILE in a run's folder. paths: of files, as they were opened."""
    servers = content["servers"]
    operations = sorted({name for one in servers for name in one["operations"]})
    shape = (len(servers), len(operations))
    calls = np.zeros(shape, np.int64)
    durations = np.full((3, *shape), np.nan)
    moved = np.zeros((len(servers), 2), np.int64)
    sizes = np.zeros((len(servers), 2, CLASSES), np.int64)
    for k, one in enumerate(servers):
        moved[k] = one["bytes"]
        for name, (count, *seconds) in one["operations"].items():
            calls[k, operations.index(name)] = count
            durations[:, k, operations.index(name)] = [
                np.nan if value is None else value for value in seconds
            ]
        for size, counts in one["sizes"]:
            sizes[k, :, int(size).bit_length()] += np.array(counts, np.int64)
    mean, least, most = durations
    return {
        "server_name": _texts(one["name"] for one in servers),
        "server_system": _texts(content["system"] for _ in servers),
        "server_answered": np.array([one["answered"] for one in servers], np.int8),
        "server_bytes": moved,
        "server_sizes": sizes,
        "operation_name": _texts(operations),
        "server_calls": calls,
        "server_mean": mean,
        "server_least": least,
        "server_most": most,
        "file_served": np.array(
            [_within(path, content["mounts"], content["cwd"]) for path in paths], np.int8
        ),
    }


def _texts(words: Any) -> np.ndarray:
    return np.array(list(words), dtype=object)


def _within(path: str, mounts: Sequence[str], cwd: str) -> bool:
    """Whether a path is below one of `mounts`; relative paths start at the folder where the command began."""
    full = PurePosixPath(cwd, path)
    parts: list[str] = []
    for part in full.parts:
        if part == "..":
            parts = parts[: max(1, len(parts) - 1)]
        else:
            parts.append(part)
    return any(PurePosixPath(*parts).is_relative_to(mount) for mount in mounts)


def size_class(values: np.ndarray) -> np.ndarray:
    """0 for 0, else one more than the whole part of log2: class k holds 2^(k-1) up to 2^k - 1."""
    _, exponent = np.frexp(np.maximum(values, 0).astype(np.float64))
    return np.minimum(exponent, CLASSES - 1)


# ---- results ----


def values(summary: xr.Dataset) -> dict[str, Any] | None:
    """The counters as data; None if no servers were read."""
    if "server_name" not in summary:
        return None
    calls = summary["server_calls"].values
    names = summary["operation_name"].values
    found = []
    for k, name in enumerate(summary["server_name"].values):
        found.append(
            {
                "name": str(name),
                "answered": bool(summary["server_answered"].values[k]),
                **{
                    direction: {
                        "requests": _requests(summary, k, direction),
                        "bytes": int(summary["server_bytes"].values[k, d]),
                    }
                    for d, direction in enumerate(DIRECTIONS)
                },
                "operations": {
                    str(names[j]): {
                        "calls": int(calls[k, j]),
                        **{
                            f"{word}_s": _number(summary[f"server_{word}"].values[k, j])
                            for word in ("mean", "least", "most")
                        },
                    }
                    for j in np.flatnonzero(calls[k]).tolist()
                },
            }
        )
    return {"system": _system(summary), "servers": found, "against_clients": against_clients(summary)}


def tables(summary: xr.Dataset, every: bool = False) -> list[Table]:
    """Tables of servers, their operations, and their requests against those of the client; [] if no servers were
    read."""
    if "server_name" not in summary:
        return []
    found = [_servers_table(summary, every), _operations_table(summary, every)]
    if compared := against_clients(summary):
        found.insert(0, _against_table(compared))
    return found


def against_clients(summary: xr.Dataset) -> list[dict[str, Any]]:
    """For each direction: the requests of the lowest layer on the clients' side, and the requests that the servers got.

    For a client library all requests count; for POSIX those to files whose path is on the file system.
    """
    found = []
    time = times(summary)
    names = summary["operation_name"].values.tolist()
    for d, direction in enumerate(DIRECTIONS):
        client = _client(summary, d)
        operation = MOVES[direction]
        got = (
            int(summary["server_calls"].values[:, names.index(operation)].sum()) if operation in names else 0
        )
        if client is None or not got:
            continue
        layer, requests, asked, waited_s = client
        moved = int(summary["server_bytes"].values[:, d].sum())
        spent_s = float(time[:, names.index(operation)].sum())
        found.append(
            {
                "direction": direction,
                "client": layer,
                "client_requests": requests,
                "client_bytes": asked,
                "client_s": waited_s,
                "server_requests": got,
                "server_bytes": moved,
                "server_s": _number(spent_s),
                "requests_ratio": got / requests,
                "bytes_ratio": moved / asked if asked else None,
                "time_ratio": spent_s / waited_s if waited_s > 0 and np.isfinite(spent_s) else None,
            }
        )
    return found


def _client(summary: xr.Dataset, direction: int) -> tuple[str, int, int, float] | None:
    """Title, requests, bytes and time of the client's side."""
    layers = summary["layer_name"].values.tolist()
    titles = summary["layer_title"].values
    parts = ("requests", "request_bytes", "request_time")
    for name in _LIBRARIES:
        if name in layers:
            k = layers.index(name)
            requests, moved, time = (summary[part].values[:, k, direction].sum() for part in parts)
            if requests:
                return str(titles[k]), int(requests), int(moved), float(time)
    served = summary["file_served"].values > 0
    for name in _BY_PATH:
        if name in layers and served.any():
            k = layers.index(name)
            of_files = ("file_requests", "file_bytes", "file_time")
            requests, moved, time = (summary[part].values[served, k, direction].sum() for part in of_files)
            if requests:
                return str(titles[k]), int(requests), int(moved), float(time)
    return None


def _system(summary: xr.Dataset) -> str:
    return str(summary["server_system"].values[0]) if summary.sizes["server"] else ""


def hosts(summary: xr.Dataset) -> list[str]:
    """Short names of servers: their hosts, if each host has one server."""
    names = [str(name) for name in summary["server_name"].values]
    short = [name.partition(":")[0] for name in names]
    return short if len(set(short)) == len(names) else names


def times(summary: xr.Dataset) -> np.ndarray:
    """Time that each server spent in each operation; NaN if its mean is unknown."""
    calls = summary["server_calls"].values
    return np.where(calls > 0, calls * summary["server_mean"].values, 0.0)


def _requests(summary: xr.Dataset, server: int, direction: str) -> int:
    names = summary["operation_name"].values.tolist()
    operation = MOVES[direction]
    return int(summary["server_calls"].values[server, names.index(operation)]) if operation in names else 0


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _moved(requests: int, moved: int) -> str:
    return f"{requests} × {format_size(round(moved / requests))}" if requests else ""


def _duration(value: float | None) -> str:
    return "–" if value is None or not np.isfinite(value) else format_duration(value)


def _against_table(compared: list[dict[str, Any]]) -> Table:
    rows = [
        (
            {"read": "read", "write": "written"}[one["direction"]],
            _moved(one["client_requests"], one["client_bytes"]),
            _moved(one["server_requests"], one["server_bytes"]),
            f"{one['requests_ratio']:.3g}",
            format_share(one["bytes_ratio"]) if one["bytes_ratio"] is not None else "–",
            _duration(one["client_s"]),
            _duration(one["server_s"]),
            format_share(one["time_ratio"]) if one["time_ratio"] is not None else "–",
        )
        for one in compared
    ]
    return Table(
        f"Requests of {compared[0]['client']}, and what servers got",
        ("", "client", "servers", "for one", "bytes", "time client", "time servers", "share"),
        rows,
        right=tuple(range(1, 8)),
        note="for one: requests at the servers for one request of the client. More: it was split, by FUSE "
        "at 128 KiB, or by sharding where a shard ends. Less: write-behind, or a client's cache, "
        "merged some. With write-behind a write returns before the servers have it, so their time may "
        "exceed the client's.",
    )


def _servers_table(summary: xr.Dataset, every: bool) -> Table:
    time = np.nansum(times(summary), axis=1)
    rows = []
    for k in range(summary.sizes["server"])[: None if every else BRICKS_SHOWN]:
        moved = summary["server_bytes"].values[k]
        rows.append(
            (
                str(summary["server_name"].values[k]),
                *(_moved(_requests(summary, k, way), int(moved[d])) for d, way in enumerate(DIRECTIONS)),
                f"{int(summary['server_calls'].values[k].sum())}",
                _duration(time[k]),
            )
            if summary["server_answered"].values[k]
            else (str(summary["server_name"].values[k]), "down", "", "", "")
        )
    more = summary.sizes["server"] - len(rows)
    return Table(
        f"Servers: {_system(summary)}",
        ("server", "read", "written", "operations", "time in them"),
        rows,
        right=(1, 2, 3, 4),
        note=NOTE + (f" And {more} more: --all" if more > 0 else ""),
    )


def _operations_table(summary: xr.Dataset, every: bool) -> Table:
    calls = summary["server_calls"].values
    time = times(summary)
    short = hosts(summary)
    counts, sums = calls.sum(axis=0), np.nansum(time, axis=0)
    order = np.lexsort((-counts, -sums))
    order = order[counts[order] > 0]
    total = float(sums.sum())
    rows = []
    for j in order.tolist()[: None if every else OPERATIONS_SHOWN]:
        known = (calls[:, j] > 0) & np.isfinite(summary["server_mean"].values[:, j])
        means = np.where(known, summary["server_mean"].values[:, j], np.nan)
        timed = int(calls[known, j].sum())
        spread = [
            _extreme(summary[name].values[calls[:, j] > 0, j], of)
            for name, of in (("server_least", np.min), ("server_most", np.max))
        ]
        slowest = short[int(np.nanargmax(means))] if known.sum() > 1 else ""
        rows.append(
            (
                str(summary["operation_name"].values[j]),
                f"{counts[j]}",
                _duration(sums[j] / timed if timed else np.nan),
                _duration(spread[0]),
                _duration(spread[1]),
                format_share(sums[j] / total) if total > 0 else "–",
                slowest,
            )
        )
    more = len(order) - len(rows)
    return Table(
        "Operations of the servers, by the time in them",
        ("operation", "calls", "mean", "shortest", "longest", "share", "longest mean on"),
        rows,
        right=(1, 2, 3, 4, 5),
        note=f"And {more} more with less time: --all" if more > 0 else "",
    )


def _extreme(values: np.ndarray, of: Any) -> float:
    """The minimum or maximum over all servers; NaN if one is unknown."""
    return float(of(values)) if values.size and np.isfinite(values).all() else float("nan")


def killed(state: Mapping[str, Any]) -> Warning:
    """The warning for a run whose Sonde was killed before it read the counters."""
    name = str(state.get("volume", "?"))
    on = state.get("profiling") == "ours"
    return Warning(
        "io.no_server_counters",
        "the dataset has no server counters: Sonde was killed before it read them"
        + (f"; profiling of the volume {name} may be on" if on else ""),
        typed("gluster", "volume", "profile", name, "stop") if on else "",
    )
