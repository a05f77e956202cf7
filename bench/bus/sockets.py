"""Cyclone DDS through the bus, and Fast DDS, beside a bare socket and bare shared memory."""

from __future__ import annotations

from typing import Any

from bench.bus.programs import found, run
from bench.rows import row


def rows() -> list[dict[str, Any]]:
    """Rows of this bench."""
    never = "sleeps=cyclonedds,spin=never"
    ways = ["cyclonedds", "fastdds", "fastdds/shm", "raw/udp4", "raw/shm"]
    told = run("latency", "40s", sizes="64", variants=[",".join(ways), never])
    out = []
    for variant in ("cyclonedds/udp4", "sleeps", "fastdds/udp4", "fastdds/shm"):
        own = found(told, variant, "rtt", size=64)
        raw = "raw/shm" if variant.endswith("shm") else "raw/udp4"
        bare = found(told, raw, "rtt", size=64)
        barred = variant == "cyclonedds/udp4"
        note = ""
        if own and bare:
            note = f"{own['value'] * 1e6:.1f} us against {bare['value'] * 1e6:.1f} us; "
            note += f"{own['epochs']} epochs, lost {own['lost']:.2%}"
            note += "; a thread that waits sleeps at once, as those of the socket do" * (variant == "sleeps")
        out.append(
            row(
                f"{'cyclonedds/udp4, spin=never,' if variant == 'sleeps' else variant} through the bus "
                f"against {raw}, 64 B, RTT",
                "<= 4x" if barred else "(reported)",
                own["ratio_to_raw"] if own else None,
                own["ratio_to_raw_ci"] if own else None,
                (lambda v: v <= 4) if barred else None,
                note,
            )
        )
    return out
