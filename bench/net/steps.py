"""Sequential steps in which N ranks meet, counted on the pairing that the probe uses."""

from __future__ import annotations

from sonde.net.modes import modes
from sonde.net.plan import Plan

N = 64


def rows() -> list[dict]:
    """The number of steps of one epoch and one message length, for 64 ranks."""
    plan = Plan(modes=(modes()["one_to_one"],), sizes=(8,), ntasks=N)
    steps = plan.steps(parallel=True)
    return [
        {
            "what": f"sequential steps for N = {N}",
            "bar": f"{N - 1}, against {N * N} in clustbench",
            "value": steps,
            "ci": None,
            "met": steps == N - 1,
            "note": "rounds of disjoint pairs; both directions within a step. tests/native/core/test_pairing.cpp holds "
            "that every pair meets once",
        }
    ]
