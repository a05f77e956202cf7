"""Ninety-six participants: what it takes until all have matched, by simple discovery, by peers, by a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.bus.programs import found, run
from bench.rows import row

N = 96
OVER = {"cyclonedds": ("peers",), "fastdds": ("peers", "server")}


def in_every_visit(matched: Mapping[str, Any] | None) -> bool:
    """Whether all had found all in each visit: a median passes over one in which they had not."""
    return bool(matched and matched["mean"] == 1)


def rows() -> list[dict[str, Any]]:
    """Rows of this bench."""
    out = []
    for implementation, others in OVER.items():
        ways = [implementation, *(f"{implementation}/udp4/{way}" for way in others)]
        told = run("discovery", "300s", participants=str(N), variants=",".join(ways))
        simple = found(told, f"{implementation}/udp4", "datagrams", n=N)
        for way in others:
            variant = f"{implementation}/udp4/{way}"
            own, time_s, matched = (
                found(told, variant, quantity, n=N) for quantity in ("datagrams", "time_to_match", "matched")
            )
            value = own["value"] / simple["value"] if own and simple else None
            note = f"{own['value']:.0f} datagrams against {simple['value']:.0f}" if own and simple else ""
            out.append(
                row(
                    f"{variant}, {N} participants: datagrams against simple discovery",
                    "<= 1/50",
                    value,
                    None,
                    lambda v: v <= 1 / 50,
                    note,
                )
            )
            note = f"matched {matched['mean']:.1%}" if matched else ""
            all_of = in_every_visit(matched)
            met = lambda v, all_of=all_of: v < 10 and all_of  # noqa: E731
            out.append(
                row(
                    f"{variant}, {N} participants: s to all matched",
                    "< 10 s",
                    time_s["value"] if time_s else None,
                    None,
                    met,
                    note,
                )
            )
    return out
