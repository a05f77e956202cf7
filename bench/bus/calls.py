"""A hundred clients, a thousand calls each: none lost, none mismatched, no stall."""

from __future__ import annotations

from typing import Any

from bench.bus.programs import found, run
from bench.rows import row

CLIENTS, CALLS = 100, 1000
WAYS = {
    "cyclonedds": "cyclonedds/udp4",
    "fastdds": "fastdds/udp4",
    "fastdds/shm": "fastdds/shm",
    "null": "null",
}


def rows() -> list[dict[str, Any]]:
    """Rows of this bench."""
    out = []
    for asked, variant in WAYS.items():
        told = run(
            "calls", "150s", variants=asked, clients=str(CLIENTS), calls=str(CALLS), epoch_length="100000"
        )
        what = f"{variant}: {CLIENTS} clients of {CALLS} calls"
        rate, rtt = found(told, variant, "call_rate"), found(told, variant, "rtt")
        for quantity in ("lost", "mismatched", "retried"):
            got = found(told, variant, quantity)
            barred = quantity != "retried"
            note = ""
            if got and rate and rtt:
                note = f"{rate['value']:.0f} calls/s; median {rtt['value'] * 1e6:.0f} us, "
                note += f"p99 {rtt['p99'] * 1e3:.1f} ms; {got['epochs']} visits"
            value = got["mean"] if got else None
            out.append(
                row(
                    f"{what}, share {quantity}",
                    "0" if barred else "(reported)",
                    value,
                    None,
                    (lambda v: v == 0) if barred else None,
                    note,
                )
            )
    return out
