"""What a /summary of io/1 says of requests and the servers that worked for them, as data and as tables. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.figure import Axis, Figure, Kind
from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_share, format_size

if TYPE_CHECKING:
    import xarray as xr


SHOWN, DRAWN = 4, 8  # of the requests with most time
LEAST = 0.01  # of a request's time: parts below are not told of


def values(summary: xr.Dataset) -> list[dict[str, Any]]:
    """One for each layer of servers: joined share, and for each call of a client where its time was."""
    if "join_layer" not in summary:
        return []  # of a dataset that an earlier version made
    layers = summary["join_layer"].values
    strays = summary["join_strays"].values
    found = []
    for layer in sorted({*layers.tolist(), *np.flatnonzero(strays).tolist()}):
        mine = np.flatnonzero(layers == layer)
        requests = int(summary["join_requests"].values[mine].sum())
        joined = int(summary["join_requests"].values[mine[summary["join_process"].values[mine] >= 0]].sum())
        functions = summary["join_function"].values[mine]
        ways = list(zip(summary["join_root"].values[mine].tolist(), functions.tolist()))
        found.append(
            {
                "server": str(summary["layer_name"].values[layer]),
                "server_title": str(summary["layer_title"].values[layer]),
                "client_title": _client_title(summary, functions),
                "by": "number" if summary["join_by_number"].values[mine].all() else "likeness",
                "requests": requests,
                "joined": joined,
                "share": joined / requests if requests else None,
                "strays": int(strays[layer]),
                "operations": [
                    _operation(summary, mine[[way == one for one in ways]]) for way in dict.fromkeys(ways)
                ],
            }
        )
    return found


def _client_title(summary: xr.Dataset, functions: np.ndarray) -> str:
    if not len(functions):
        return ""
    return str(summary["layer_title"].values[summary["function_layer"].values[functions[0]]])


def _operation(summary: xr.Dataset, rows: np.ndarray) -> dict[str, Any]:
    """Rows of one call of a client, made in calls of one function, one for each server."""
    process = summary["join_process"].values
    joined = rows[process[rows] >= 0]
    within = summary["join_layer_time"].values[joined].sum(axis=0)

    def total(name: str, which: np.ndarray) -> float:
        return float(summary[name].values[which].sum())

    return {
        "within": str(summary["function_name"].values[summary["join_root"].values[rows[0]]]),
        "function": str(summary["function_name"].values[summary["join_function"].values[rows[0]]]),
        "requests": int(total("join_requests", rows)),
        "joined": int(total("join_requests", joined)),
        "bytes": int(total("join_bytes", rows)),
        "time_s": total("join_time", rows),
        "joined_time_s": total("join_time", joined),
        "away_s": total("join_away_time", joined),
        "server_s": total("join_server_time", joined),
        "waiting_s": max(0.0, round(total("join_server_time", joined) - float(within.sum()), 12)),
        "layers": {
            str(summary["layer_name"].values[k]): float(within[k]) for k in np.flatnonzero(within).tolist()
        },
        "servers": [
            {
                "host": str(summary["process_host"].values[process[row]]),
                "pid": int(summary["process_pid"].values[process[row]]),
                "requests": int(summary["join_requests"].values[row]),
                "server_s": float(summary["join_server_time"].values[row]),
            }
            for row in joined.tolist()
        ],
    }


def tables(summary: xr.Dataset, every: bool = False) -> list[Table]:
    """For each layer of servers that clients' requests were joined to, or should have been. every: all rows of it."""
    return [_table(summary, one, every) for one in values(summary) if one["requests"]]


def _longest(operations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(operations, key=lambda operation: -operation["time_s"])


def request(operation: dict[str, Any]) -> str:
    """In which call of the program the client's call was made, and that."""
    within, function = operation["within"], operation["function"]
    return function if within == function else f"{within} › {function}"


def parts(summary: xr.Dataset, operation: dict[str, Any]) -> dict[str, float]:
    """Where a joined request's time was, in words, s: on its way, waiting, and in each layer of the server."""
    titles = dict(zip(summary["layer_name"].values.tolist(), summary["layer_title"].values.tolist()))
    there = {f"there in {titles[layer]}": time for layer, time in operation["layers"].items()}
    return {"under way": operation["away_s"], "waiting there": operation["waiting_s"], **there}


def figure(summary: xr.Dataset) -> Figure | None:
    """What a request's time is made of, by the call that it began with."""
    import xarray as xr

    found = [operation for one in values(summary) for operation in one["operations"] if operation["joined"]]
    if not found:
        return None
    found = _longest(found)[:DRAWN]
    shares = [parts(summary, operation) for operation in found]
    names = list(dict.fromkeys(name for part in shares for name in part))
    mean = [
        [part.get(name, 0.0) / operation["joined"] for part, operation in zip(shares, found)]
        for name in names
    ]
    every = [one for one in values(summary) if one["requests"]]
    return Figure(
        "io-requests",
        "What a request to a server waits for",
        "Mean time of a client's request, by the call that it began with. Under way: the server did not have it: "
        "the client built or took in, or the network had it. Waiting there: the server had it and was not at work for "
        "it: others had their turn, the rest of it was to come, or a sync that many share. There: work for it, by "
        "layer. Drawn are those that took most time in all. " + " ".join(_joined(one) for one in every),
        Kind.STACK,
        xr.Dataset(
            {"y": (("part", "x"), np.array(mean))}, {"part": names, "x": [request(one) for one in found]}
        ),
        {"x": Axis("request"), "y": Axis("time of one", "s")},
    )


def _table(summary: xr.Dataset, one: dict[str, Any], every: bool) -> Table:
    rows = []
    operations = _longest(one["operations"])
    shown = operations if every else operations[:SHOWN]
    for operation in shown:
        count, size = operation["requests"], round(operation["bytes"] / operation["requests"])
        number = f"{count} × {format_size(size)}" if size else f"{count}"
        name, whole = request(operation), operation["time_s"]
        lost = whole - operation["joined_time_s"]
        for where, time in {"in all": whole, "not joined": lost, **parts(summary, operation)}.items():
            if time > (0 if every else LEAST * whole):
                share = format_share(time / whole)
                rows.append((name, number, where, format_duration(time), share))
                name = number = ""
    return Table(
        f"Requests to {one['server_title']}",
        ("request", "number", "where", "time", "share"),
        rows,
        right=(1, 3, 4),
        note=(f"{left} more with less time: --all. " if (left := len(operations) - len(shown)) else "")
        + sentence(one),
    )


def _joined(one: dict[str, Any]) -> str:
    how = "their number" if one["by"] == "number" else "kind, size, offset and time"
    return (
        f"{format_share(one['share'])} of the requests of {one['client_title']} were joined, by {how}, to what "
        f"{one['server_title']} did for them."
    )


def sentence(one: dict[str, Any]) -> str:
    """One of `values`: how much was joined, and how to read the rest."""
    text = _joined(one)
    if not one["joined"]:
        return text + " No server of theirs was traced: start it under the tracer, too."
    text += (
        " Time is from a request's first call to its last, of several that were under way at once that of each; under "
        "way: before the server had it, and after; waiting there: its turn, the rest of it, a sync that many share."
    )
    if one["strays"]:
        text += f" {one['strays']} more came from clients that were not traced."
    return text
