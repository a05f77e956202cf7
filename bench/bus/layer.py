"""What the bus adds to the DDS beneath it: the same ping-pong and stream with it and without, in turn. Threads of both
sleep at once: what looking before that gains is not counted here."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from bench.bus.programs import Pair, domain, in_turn, ratio, workshop
from bench.rows import row

ROUNDS = 11
STREAMS = 5
SIZES = (64, 1024, 16384)
# Implementation, transport; how many round trips of one round.
WAYS = {("cyclonedds", "udp4"): 12_000, ("fastdds", "udp4"): 4_000, ("fastdds", "shared-memory"): 4_000}
STREAM_S = 1.5


def commands(
    folder: Path, implementation: str, transport: str, raw: bool, mode: str, at: str, size: int, amount: float
) -> list[str]:
    """One end, with the bus or without it."""
    tail = [mode, at, str(size), str(amount)]
    if not raw:
        return [str(folder / "through_bus"), implementation, transport, *tail]
    if implementation == "cyclonedds":
        return [str(folder / "raw_cyclone"), *tail]
    return [str(folder / "raw_fastdds"), transport.replace("-", "_"), *tail]


def rows() -> list[dict[str, Any]]:
    """Rows of this bench."""
    out = []
    with workshop() as folder:
        for (implementation, transport), trips in WAYS.items():
            what = f"{implementation} over {transport}"
            if not (folder / f"raw_{'cyclone' if implementation == 'cyclonedds' else 'fastdds'}").exists():
                out.append(
                    row(f"{what}: the bus against it", "<= 1.15x", None, None, None, "it is not installed")
                )
                continue
            for size in SIZES:
                out += _latency(folder, implementation, transport, size, trips, what)
            for size in (64, 16384):
                out.append(_stream(folder, implementation, transport, size, what))
    return out


def _latency(
    folder: Path, implementation: str, transport: str, size: int, trips: int, what: str
) -> list[dict]:
    with Pair() as pair:

        def trip(raw: bool) -> dict[str, float]:
            at = domain()
            ends = [
                commands(folder, implementation, transport, raw, mode, at, size, trips)
                for mode in ("pong", "ping")
            ]
            return dict(pair.talk(*ends)[0]["rtt_us"])

        got = in_turn(ROUNDS, {"bus": lambda: trip(False), "raw": lambda: trip(True)})
    out = []
    for key, bar in (("median", 1.15), ("p99", 1.5)):
        own, theirs = ([each[key] for each in got[name]] for name in ("bus", "raw"))
        value, between = ratio(own, theirs)
        note = f"{statistics.median(own):.1f} us against {statistics.median(theirs):.1f} us; "
        note += f"{ROUNDS} rounds in turn, quartiles"
        met = lambda v, bar=bar: v <= bar  # noqa: E731
        out.append(
            row(
                f"{what}, {size} B, RTT {key}: the bus against the DDS raw",
                f"<= {bar}x",
                value,
                between,
                met,
                note,
            )
        )
    return out


def _stream(folder: Path, implementation: str, transport: str, size: int, what: str) -> dict:
    with Pair() as pair:

        def stream(raw: bool) -> dict[str, float]:
            at = domain()
            ends = [
                commands(folder, implementation, transport, raw, mode, at, size, STREAM_S)
                for mode in ("drain", "flood")
            ]
            sent, drain = pair.talk(*ends)
            got = json.loads(drain.communicate(timeout=30)[0])
            return {"per_s": got["per_s"], "missing": sent["sent"] - got["got"], "sent": sent["sent"]}

        got = in_turn(STREAMS, {"bus": lambda: stream(False), "raw": lambda: stream(True)})
    rates = {name: [each["per_s"] for each in got[name]] for name in got}
    missing = {name: sum(each["missing"] for each in got[name]) for name in got}
    value, between = ratio(rates["bus"], rates["raw"])
    note = (
        f"{statistics.median(rates['bus']) / 1e3:.0f} k/s, {missing['bus']} missing, "
        f"against {statistics.median(rates['raw']) / 1e3:.0f} k/s, {missing['raw']} missing; {STREAMS} rounds in turn"
    )
    return row(
        f"{what}, {size} B, stream received: the bus against the DDS raw",
        "(reported)",
        value,
        between,
        None,
        note,
    )
