"""Requests in a /summary of io/1, and the servers that worked for them, as data and as tables. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.figure import Axis, Figure, Kind
from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_share, format_size

if TYPE_CHECKING:
    import xarray as xr


SHOWN, DRAWN = 4, 8  # of the requests with most time
LEAST = 0.01  # of a request's time: smaller parts are left out


def values(summary: xr.Dataset) -> list[dict[str, Any]]:
    """One entry for each layer of servers: the joined share, and for each call of a client where its time was spent."""
    if "join_layer" not in summary:
        return []  # a dataset of an earlier version
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
    """The values of one client call within calls of one function; rows: one for each server."""
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
    """A table for each layer of servers that requests of clients were, or should have been, joined to. every: show all
    rows."""
    return [_table(summary, one, every) for one in values(summary) if one["requests"]]


def _longest(operations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(operations, key=lambda operation: -operation["time_s"])


def request(operation: dict[str, Any]) -> str:
    """The program's call, and the client's call within it."""
    within, function = operation["within"], operation["function"]
    return function if within == function else f"{within} › {function}"


def parts(summary: xr.Dataset, operation: dict[str, Any]) -> dict[str, float]:
    """The parts of a joined request's time, by description, s: in transit, waiting, and in each layer of the server."""
    titles = dict(zip(summary["layer_name"].values.tolist(), summary["layer_title"].values.tolist()))
    there = {f"there in {titles[layer]}": time for layer, time in operation["layers"].items()}
    return {"under way": operation["away_s"], "waiting there": operation["waiting_s"], **there}


def figure(summary: xr.Dataset) -> Figure | None:
    """A figure of the parts of a request's time, by the call with which it began."""
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
        "Mean time of a client's request, by the call with which it began. Under way: before the server "
        "had it, and after: in the client or in the network. Waiting there: the server had it but did not "
        "work on it, because of other requests, because its rest had not arrived, or for a shared sync. "
        "There: work on it, by layer. The figure shows the requests with the most time in total. "
        + " ".join(_joined(one) for one in every),
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
        f"{format_share(one['share'])} of the requests of {one['client_title']} were joined, by {how}, to "
        f"the work of {one['server_title']}."
    )


def sentence(one: dict[str, Any]) -> str:
    """A sentence about one of `values`: how much was joined, and how to read the rest."""
    text = _joined(one)
    if not one["joined"]:
        return text + " No server was traced: start the servers under the tracer, too."
    text += (
        " Time is from a request's first call to its last, separately for each if several were under way "
        "at once. Under way: before the server had it, and after. Waiting there: for other requests, for "
        "its rest, or for a shared sync."
    )
    if one["strays"]:
        text += f" {one['strays']} more came from clients that were not traced."
    return text
