"""Policy steps in simulated worlds where messages are lost, repeated, late and out of order, and where all are killed.

The worlds are those of the C++ tests (tests/native/power), with more seeds than there, and others each time.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path

from bench.rows import Row, row

PROGRAMS = Path("build/Release/bin")
STEPS = 10_000
# What is simulated, the program and the name of its test, how many worlds.
WORLDS = {
    "ledgers, policies and leases": ("sonde-test-power", "ten thousand policy steps with loss*", 1000),
    "whole system managers, disks and standbys": (
        "sonde-test-powerd",
        "ten thousand steps of system managers*",
        400,
    ),
}


def rows() -> list[Row]:
    """Rows of this bench."""
    out = []
    for what, (program, name, worlds) in WORLDS.items():
        tests = PROGRAMS / program
        full = f"{what}: sum of caps, share of the budget, at most at any instant"
        bar = f"<= 1 in >= {STEPS} random steps"
        if not os.access(tests, os.X_OK):
            out.append(row(full, bar, None, None, None, "the C++ tests are not built here: make test"))
            continue
        first = random.randint(1000, 1_000_000_000)
        ran = subprocess.run(
            [str(tests), f"-tc={name}"],
            env=os.environ | {"SONDE_POWER_SEEDS": f"{first}-{first + worlds - 1}"},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        told = next((json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")), None)
        if ran.returncode or told is None:
            said = next((line.strip() for line in ran.stdout.splitlines() if "add up to" in line), "")
            note = (
                f"NOT HELD in a world of seeds {first} to {first + worlds - 1}: {said or ran.stdout[-300:]}"
            )
            out.append(row(full, bar, float("inf"), None, lambda v: v <= 1, note))
            continue
        killed = f"{told['kills']} kills" if "kills" in told else f"{told['refused']} orders refused"
        note = (
            f"{told['steps']} steps in {worlds} worlds (seeds from {first}), {told['takeovers']} takeovers, "
        )
        note += (
            f"{killed}, {told['above_safe']} grants above safe caps; loss 2 % to 50 %, copies, delays to 40 s"
        )
        met = told["steps"] >= STEPS
        out.append(row(full, bar, told["most_share"], None, lambda v, met=met: met and v <= 1 + 1e-9, note))
    return out
