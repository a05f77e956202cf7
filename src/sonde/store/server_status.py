"""The status reports of servers: their check, and their verdict, tables and warnings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sonde.core.errors import SondeError, Warning
from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_size
from sonde.store.errors import StoreError

HOLDS = {"data": "objects", "kv": "keys", "db": "tables"}
_NUMBERS = ("up_s", "bytes_in", "bytes_out", "connections", "connections_ever", "refused", "bad_frames")
_LAST = ("last_error", "last_refused")
_TIMES = {
    "messages": ("wait", "backend"),
    "syncs": ("sync",),
}  # stages of a role; present when its counter is not 0


@dataclass(frozen=True)
class ServerStatus:
    """The status of one server.

    address: "host:port". roles: some of data, kv, db. transport, provider, detail: how this client is connected.
    report: the server's own report: roles with latencies (s), operations and outcomes by name, connections, bytes_in,
    bytes_out, last_error, last_refused.
    """

    address: str
    roles: list[str]
    transport: str
    provider: str
    detail: str
    report: Mapping[str, Any]


def report_of(text: bytes, address: str) -> dict[str, Any]:
    """The report of a server, checked so that the functions here can rely on it. b"" gives an empty report.

    Raises
    ------
    StoreError  store.bad_report.
    """
    try:
        report = json.loads(text.decode("utf-8", "replace") or "{}")
        if not isinstance(report, dict):
            raise TypeError("it is not an object")
        _check(report)
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreError(
            "store.bad_report",
            f"{address} reported a status that this version cannot read: {str(error)[:200]}",
            "run the same version of Sonde on both sides",
        ) from None
    return report


def _check(report: Mapping[str, Any]) -> None:
    """Raises TypeError when a part of a report has the wrong type."""
    for name in _NUMBERS:
        if name in report:
            _number(report, name)
    for name in _LAST:
        if report.get(name):
            _text(report, name)
            _number(report, f"{name}_s_ago")
    for name in ("operations", "outcomes"):
        counts = report.get(name) or {}
        if not isinstance(counts, dict):
            raise TypeError(f"'{name}' is not an object")
        for one in counts:
            _number(counts, one)
    roles = report.get("roles", [])
    if not isinstance(roles, list) or not all(isinstance(role, dict) for role in roles):
        raise TypeError("'roles' is not a list of objects")
    for role in roles:
        for name in ("role", "backend", "detail", *(("broken",) if role.get("broken") else ())):
            _text(role, name)
        _number(role, "messages")
        for count, stages in _TIMES.items():
            if role.get(count):
                for stage in stages:
                    _number(role, f"{stage}_p50_s")
                    _number(role, f"{stage}_p99_s")


def _number(part: Mapping[str, Any], name: str) -> None:
    value = part.get(name)
    if not isinstance(value, int | float) or not 0 <= value < 1 << 64:  # false for NaN
        raise TypeError(f"'{name}' is not a number in the allowed range")


def _text(part: Mapping[str, Any], name: str) -> None:
    if not isinstance(part.get(name), str):
        raise TypeError(f"'{name}' is not a text")


def verdict(servers: Sequence[ServerStatus], asked: int | None = None) -> str:
    """One sentence on the servers that answered. asked: how many were asked; None: those that answered."""
    n = len(servers)
    done = sum(_count(server.report.get("operations")) for server in servers)
    if asked is not None and asked > n:
        if n == 0:
            return f"none of {asked} servers answers"
        what = f"{n} of {asked} servers answer{'s' * (n == 1)}"
    else:
        what = "1 server answers" if n == 1 else f"{n} servers answer"
    return f"{what}; {done} operation{'s' * (done != 1)} so far"


def silent(servers: Mapping[str, SondeError]) -> list[Warning]:
    """One warning for each server that did not answer. servers: the errors, by address."""
    return [
        Warning(
            error.code,
            error.what if address in error.what else f"{address} does not answer: {error.what}",
            error.hint,
        )
        for address, error in servers.items()
    ]


def as_json(address: str, answer: ServerStatus | SondeError) -> dict[str, Any]:
    """One server in the JSON of `status`: its status, or `error` when it did not answer."""
    if isinstance(answer, SondeError):
        host = address.rpartition("@")[2]  # without the role
        return {"address": host, "error": {"code": answer.code, "what": answer.what, "hint": answer.hint}}
    return asdict(answer)


def troubled(server: ServerStatus) -> bool:
    """Whether a backend of the server can no longer store data durably."""
    return any(role.get("broken") for role in server.report.get("roles", ()))


def tables(server: ServerStatus) -> list[Table]:
    """The tables of one server: its backends, their latencies, and its counters."""
    report = server.report
    roles = report.get("roles", ())
    link = " ".join(word for word in (server.transport, server.provider) if word)
    up = format_duration(float(report.get("up_s", 0)))
    serves = Table(
        f"{server.address}: up {up}, over {link}, auth {report.get('auth', '?')}",
        ("what", "backend", "detail"),
        [(HOLDS.get(role["role"], role["role"]), role["backend"], role["detail"]) for role in roles],
    )
    times = Table(
        "",
        ("what", "messages", "wait", "99 %", "backend", "99 %", "sync", "99 %"),
        [
            (
                HOLDS.get(role["role"], role["role"]),
                str(role["messages"]),
                *(_time(role, key, "messages") for key in ("wait_p50_s", "wait_p99_s")),
                *(_time(role, key, "messages") for key in ("backend_p50_s", "backend_p99_s")),
                *(_time(role, key, "syncs") for key in ("sync_p50_s", "sync_p99_s")),
            )
            for role in roles
        ],
        right=range(1, 8),
        note="Median, and 99 % quantile, of the time of a message, rounded up to a power of two.",
    )
    rows = [
        ("operations", _counts(report.get("operations"))),
        ("outcomes", _counts(report.get("outcomes"))),
        (
            "data",
            f"{format_size(int(report.get('bytes_in', 0)))} in, {format_size(int(report.get('bytes_out', 0)))} out",
        ),
        ("connections", _connections(report)),
        ("last error", _last(report, "last_error")),
        ("last refused", _last(report, "last_refused")),
    ]
    return [serves, times, Table("", ("", ""), rows)]


def warnings(servers: Sequence[ServerStatus]) -> list[Warning]:
    """The warnings that follow from the reports of servers."""
    found = []
    for server in servers:
        for role in server.report.get("roles", ()):
            if broken := role.get("broken"):
                what = HOLDS.get(role["role"], role["role"])
                found.append(
                    Warning(
                        "store.broken",
                        f"{server.address} can no longer store {what} durably: {broken}",
                        "remove this cause, then restart the server",
                    )
                )
        if bad := int(server.report.get("bad_frames", 0)):
            found.append(
                Warning(
                    "store.bad_frames",
                    f"{server.address} received {bad} malformed or damaged frame{'s' * (bad != 1)}",
                    "a program that is not a Sonde client connects to it, or the network damages data",
                )
            )
    return found


def _time(role: Mapping[str, Any], key: str, number: str) -> str:
    return format_duration(float(role[key])) if role.get(number) else "–"


def _counts(counts: Mapping[str, int] | None) -> str:
    return ", ".join(f"{n} {name}" for name, n in (counts or {}).items()) or "none"


def _count(counts: Mapping[str, int] | None) -> int:
    return sum((counts or {}).values())


def _connections(report: Mapping[str, Any]) -> str:
    refused = int(report.get("refused", 0))
    return f"{report.get('connections', 0)} open, {report.get('connections_ever', 0)} so far" + (
        f", {refused} refused" if refused else ""
    )


def _last(report: Mapping[str, Any], what: str) -> str:
    if not report.get(what):
        return "none"
    return f"{report[what]} ({format_duration(float(report[f'{what}_s_ago']))} ago)"
