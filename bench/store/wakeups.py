"""What slow wake-ups cost: 80 us added to each, by a library preloaded into server and client.

Two who answer each other sleep for longer than they would look only because the other has to be woken first. A client
that may not look at all (spin=0) shows what both would fall to.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from bench.rows import row
from bench.store.runs import cell, run

ROUNDS = 5
SIZE = 4096
SOURCE = Path(__file__).with_name("late_wakeups.c")
VARIANTS = ("adaptive=tcp", "sleeps=tcp,spin=0")


def rows() -> list[dict]:
    """Rows of this bench."""
    rates: dict[tuple[str, bool], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        shim = Path(folder) / "late_wakeups.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(shim), str(SOURCE), "-ldl"], check=True)
        for _ in range(ROUNDS):
            for late in (False, True):
                environment = os.environ | ({"LD_PRELOAD": str(shim)} if late else {})
                results = run(
                    "5s",
                    environment=environment,
                    ops="object.read",
                    sizes=str(SIZE),
                    batch="1",
                    depth="1",
                    variant=VARIANTS,
                )
                for variant in VARIANTS:
                    name = variant.partition("=")[0]
                    found = cell(results, name, "object.read", SIZE)
                    if found is not None:
                        rates.setdefault((name, late), []).append(found["ops_s"])
    out = []
    for name, what in (("adaptive", "waiting as it pays"), ("sleeps", "client that only sleeps")):
        usual, slow = (rates.get((name, late), []) for late in (False, True))
        value = statistics.median(b / a for a, b in zip(usual, slow)) if usual and slow else None
        note = (
            f"{statistics.median(usual):.0f}/s as it is, {statistics.median(slow):.0f}/s so, {len(slow)} rounds"
            if value is not None
            else "not measured"
        )
        out.append(row(f"4 KiB over tcp, wake-ups 80 us later: {what}", "(no bar)", value, None, None, note))
    return out
