"""One client with the token at its worst: what another one notices.

giant: batches of 100,000 keys, and objects of 64 MiB. slow: asks for 64 MiB at once and reads nothing for half of the
time. query: queries that a matcher of texts does not end, over and over. Each by four connections at once.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time

from bench.hostile.served import STEPPED_BACK, over, owner, p99, said, served, start
from bench.rows import Row, row

WAYS = ("giant", "slow", "query")
ROUNDS = 4
ROUND_S = 3.0
PAUSE_S = 0.25


def rows() -> list[Row]:
    """Rows of this bench."""
    return [_beside(way) for way in WAYS]


def _beside(way: str) -> Row:
    quiet: list[float] = []
    busy: list[float] = []
    failed: list[str] = []
    begun = ended = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        served("--backend", f"db=sqlite,path={folder}/tables") as server,
    ):
        for _ in range(ROUNDS):
            calm = owner(server, ROUND_S)
            peer = start("greedy", server.address, server.token, way)
            said(peer)
            over_now = threading.Event()
            pausing = threading.Thread(target=_pause, args=(peer.pid, over_now))
            try:
                if way == "slow":
                    pausing.start()
                beset = owner(server, ROUND_S)
            finally:
                over_now.set()
                if way == "slow":
                    pausing.join()
                os.kill(peer.pid, signal.SIGCONT)
                over(peer)
            acts = said(peer)
            begun, ended = begun + acts["begun"], ended + acts["ended"]
            quiet += calm["times"]
            busy += beset["times"]
            failed += calm["failed"] + beset["failed"]
        alive = server.rss_kib() > 0
    p99s = f"{p99(quiet) * 1e6:.0f} us alone, {p99(busy) * 1e6:.0f} us beside it"
    acted = f"it began {begun} times and was answered {ended} times"
    note = f"{p99s}; {ROUNDS} rounds in turns, {acted}, {len(failed)} calls failed; {STEPPED_BACK}"
    # Beside one that had no core to act on nothing was measured. No query ends within a round.
    at_work = begun if way == "query" else ended
    value = p99(busy) / p99(quiet) if alive and at_work and not failed else None
    return row(
        f"p99 beside a client at its worst ({way}), times that alone",
        "<= 10",
        value,
        None,
        lambda v: v <= 10,
        note,
    )


def _pause(pid: int, ended: threading.Event) -> None:
    while not ended.wait(PAUSE_S):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(PAUSE_S)
        os.kill(pid, signal.SIGCONT)
