"""4,096 connections of strangers who send nothing, or a byte a second: does an owner's client still get in."""

from __future__ import annotations

from bench.hostile.served import STEPPED_BACK, over, owner, said, served, start
from bench.rows import Row, row

COUNT = 4096
SECONDS = 40.0  # longer than the server waits for a proof: those that it ended have come again


def rows() -> list[Row]:
    """Rows of this bench."""
    with served() as server:
        quiet = owner(server, 3, "anew")
        stranger = start("stranger", server.address, "crowd", COUNT)
        try:
            arriving = owner(server, 3, "anew")
            stood = said(stranger)
            beset = owner(server, SECONDS, "anew")
            alive = server.rss_kib() > 0
        finally:
            over(stranger)
    times = arriving["times"] + beset["times"]
    failed = len(arriving["failed"]) + len(beset["failed"])
    note = (
        f"{stood['standing']} stood, {stood['refused']} refused; {len(times)} times connect, put, get of 4 KiB; quiet "
        f"the longest took {max(quiet['times']) * 1e3:.1f} ms; {STEPPED_BACK}"
    )
    longest = max(times) if alive else None
    return [
        row(
            f"longest until an owner's client has worked beside {COUNT} strangers, s",
            "<= 1",
            longest,
            None,
            lambda v: v <= 1,
            note,
        ),
        row("owner's clients that failed", "0", failed, None, lambda v: v == 0, f"of {len(times)}"),
    ]
