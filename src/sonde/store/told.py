"""What servers say of themselves, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sonde.core.errors import SondeError, Warning
from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_size

if TYPE_CHECKING:
    from sonde.store.client import ServerStatus

HOLDS = {"data": "objects", "kv": "keys", "db": "tables"}


def verdict(servers: Sequence[ServerStatus], asked: int | None = None) -> str:
    """One sentence on all that answered. asked: how many were; those that answered when None."""
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
    """One for each server that did not answer. servers: why, by address."""
    return [
        Warning(
            error.code,
            error.what if address in error.what else f"{address} does not answer: {error.what}",
            error.hint,
        )
        for address, error in servers.items()
    ]


def as_json(address: str, said: ServerStatus | SondeError) -> dict[str, Any]:
    """One server in the JSON of `status`: what it said, or `error` with why it did not."""
    if isinstance(said, SondeError):
        host = address.rpartition("@")[2]  # without the role that it was asked for
        return {"address": host, "error": {"code": said.code, "what": said.what, "hint": said.hint}}
    return asdict(said)


def troubled(server: ServerStatus) -> bool:
    """Whether a backend of it can no longer keep what it is told to keep."""
    return any(role.get("broken") for role in server.report.get("roles", ()))


def tables(server: ServerStatus) -> list[Table]:
    """One server: what serves its roles, how long that takes, and what it counted."""
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
        ("what", "messages", "waits", "99 %", "backend", "99 %", "sync", "99 %"),
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
        note="Half of the messages, and 99 % of them, took no longer; rounded up to a power of two.",
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
    """What a reader must know of them."""
    found = []
    for server in servers:
        for role in server.report.get("roles", ()):
            if broken := role.get("broken"):
                what = HOLDS.get(role["role"], role["role"])
                found.append(
                    Warning(
                        "store.broken",
                        f"{server.address} can no longer promise to keep {what}: {broken}",
                        "make good what it says, then restart it",
                    )
                )
        if bad := int(server.report.get("bad_frames", 0)):
            found.append(
                Warning(
                    "store.bad_frames",
                    f"{server.address} was sent {bad} malformed or damaged frame{'s' * (bad != 1)}",
                    "something else than a client talks to it, or the network damages data",
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
