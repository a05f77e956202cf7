"""A million hostile frames before any proof: does the server live, what does it keep, what does its owner notice."""

from __future__ import annotations

import time

from bench.hostile.served import STEPPED_BACK, owner, p99, said, served, start
from bench.rows import Row, row

FRAMES = 1_000_000
STRANGERS = 2
QUIET_S, BUSY_S = 1.0, 8.0
MOST_S = 480.0
GROWTH_MIB = 16


def rows() -> list[Row]:
    """Rows of this bench."""
    quiet: list[float] = []
    busy: list[float] = []
    failed: list[str] = []
    with served() as server:
        owner(server, QUIET_S)  # memory that it takes to serve anybody
        first_kib = most_kib = server.rss_kib()
        began = time.monotonic()
        seen, connections, seed = 0, 0, 0
        before = server.counted("frames", "bad_frames")
        own = 0
        while seen < FRAMES and time.monotonic() - began < MOST_S and server.rss_kib():
            calm = owner(server, QUIET_S)
            quiet += calm["times"]
            strangers = [start("stranger", server.address, "frames", seed + k) for k in range(STRANGERS)]
            seed += STRANGERS
            for one in strangers:
                said(one)  # under way
            beset = owner(server, BUSY_S)
            most_kib = max(most_kib, server.rss_kib())
            for one in strangers:
                out, _ = one.communicate("")
                connections += max(
                    (int(line.split(":")[1].rstrip("}")) for line in out.splitlines()), default=0
                )
            busy += beset["times"]
            failed += calm["failed"] + beset["failed"]
            own += len(calm["times"]) + len(beset["times"])
            seen = server.counted("frames", "bad_frames") - before - own
        alive = server.rss_kib() > 0 and not owner(server, 0.5)["failed"]
    took = time.monotonic() - began
    how = f"{seen} frames looked at, {connections} connections of {STRANGERS} strangers, {took:.0f} s"
    missed = "" if seen >= FRAMES else f"; fewer than {FRAMES}: the time was over"
    ratio = p99(busy) / p99(quiet)
    p99s = f"{p99(quiet) * 1e6:.0f} us quiet, {p99(busy) * 1e6:.0f} us beside them; rounds in turns; {STEPPED_BACK}"
    return [
        row(
            "hostile frames that a server outlives",
            f">= {FRAMES}",
            seen if alive else 0,
            None,
            lambda v: v >= FRAMES,
            how + missed,
        ),
        row(
            "growth of its memory, MiB",
            f"<= {GROWTH_MIB}",
            (most_kib - first_kib) / 1024,
            None,
            lambda v: v <= GROWTH_MIB,
            how,
        ),
        row("owner's p99 beside strangers, times the quiet one", "<= 5", ratio, None, lambda v: v <= 5, p99s),
        row("owner's calls that failed", "0", len(failed), None, lambda v: v == 0, f"of {own}"),
    ]
