"""What keeping every iteration adds to a loop of 1 KiB Alltoall: kept and bare in turns, by the detector itself."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from sonde.core import stats
from sonde.core.events import NullProgress
from sonde.core.launch.start import prepare
from sonde.noise.detector import run as runs
from sonde.noise.detector.plan import OFF, Design, Plan, Variant

STARTS = 12


def rows() -> list[dict]:
    out = []
    for every, text in (
        (0, "one rank keeps every iteration, the others every sixteenth where that is dear (the default)"),
        (1, "every rank keeps every iteration"),
    ):
        shares, readers = [], []
        for seed in range(STARTS):
            share, finest = _once(every, seed)
            shares.append(share)
            readers.append(finest)
        interval = stats.median_ci(shares)
        middle = float(np.median(shares))
        out.append(
            {
                "what": f"cost of keeping iterations: {text}",
                "bar": "<= 1 % of a 1 KiB Alltoall loop" if every == 0 else "reported",
                "value": middle,
                "ci": list(interval),
                "met": middle <= 0.01 if every == 0 else None,
                "note": f"{STARTS} starts, kept and bare stretches of a few ms in turns, the first drawn; "
                f"some rank kept every single iteration in {sum(f == 1 for f in readers)} of them",
            }
        )
    return out


def _once(every: int, seed: int) -> tuple[float, int]:
    """Cost as the detector states it, and the finest rank's iterations a reading."""
    import sonde

    with tempfile.TemporaryDirectory(prefix="sonde-bench-") as scratch:
        out = Path(scratch) / "keeping.nc"
        plan = Plan(
            (OFF, Variant("nothing")), Design((1,), (1.0,), 0.05, 0.0, (1.0,)), 2, seed=seed, every=every
        )
        start = prepare("noise", "sonde-noise", "auto", ())
        measured = runs.measure(runs.Request(plan, start, out, ("bench",), None, 0.0), NullProgress())
        with sonde.open(measured.paths[0]) as tree:
            raw = tree["raw"]
            return float(np.nanmedian(raw["keeping_share"].values)), int(raw["stamp_every"].values.min())
