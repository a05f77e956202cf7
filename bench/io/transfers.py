"""1 MiB transfers by four ranks with all layers traced, beside the same without a tracer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bench.io.programs import every, load, row, traced, workshop
from sonde.core import launch, stats

ROUNDS = 24
RANKS = 4
WORK = ("-t", "1m", "-b", "128m", "-s", "2", "-w", "-r")


def rows() -> list[dict]:
    """Ratios of bandwidths, interleaved, by what the ranks call."""
    out = []
    with workshop() as shop:
        for api, what in (("POSIX", "POSIX"), ("MPIIO", "MPI-IO")):
            ratios: list[float] = []
            for number in range(ROUNDS):
                found: dict[str, float] = {}
                for kind in ("plain", "traced") if number % 2 else ("traced", "plain"):
                    if kind == "plain":
                        found[kind] = took_s(shop, api, {})
                    else:
                        with traced(every(), shop) as env:
                            found[kind] = took_s(shop, api, env)
                ratios.append(found["traced"] / found["plain"])
            value, ci = stats.median(np.array(ratios)), stats.median_ci(np.array(ratios))
            out.append(
                row(
                    f"1 MiB transfers by {RANKS} ranks through {what} to tmpfs, all layers, against untraced",
                    "<= 1.01 times",
                    value,
                    value <= 1.01,
                    f"median and 95 % interval of {ROUNDS} interleaved rounds of 2 GiB; the ranks share two cores",
                    [ci.low, ci.high],
                )
            )
    return out


def took_s(shop: Path, api: str, env: Mapping[str, str]) -> float:
    """Writing and reading, by the program's own clock, without its start."""
    result = shop / "result.json"
    work = [load("openmpi"), "-a", api, *WORK, "-o", shop / "data", "--json", result]
    # The tracer's variables go to the ranks alone: mpirun is not part of what is measured.
    ours = {name: value for name, value in env.items() if name.startswith(("SONDE_IO_", "LD_PRELOAD"))}
    line = launch.launcher("mpirun", mpi="openmpi").command(list(map(str, work)), (), RANKS, ours)
    subprocess.run(line, check=True, capture_output=True, timeout=300)
    told = json.loads(result.read_text())
    return float(sum(phase["total_s"] for phase in told["iterations"]))
