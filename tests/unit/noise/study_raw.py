"""/raw of small studies, made up: what is on stalls the loop at one phase of each second, everything else is noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from run_blocks import BEGAN_S, CALIBRATION, RunFile, placed, source_file

from sonde import _core
from sonde.noise.detector.plan import OFF, Design, Plan, Variant
from sonde.noise.detector.sealing import SCHEMA

PITCH_S = 1.07
SEED = 5


def study_plan(
    study: str,
    levels: Sequence[float] = (),
    *,
    names: Sequence[str] = (),
    share: int = 1,
    rounds: Sequence[int] = (7, 3),
    spend: Sequence[float] = (0.5, 0.5),
) -> Plan:
    named = names or [f"{100 * level:g} %" for level in levels]
    variants = [Variant(OFF.name, share=share)]
    variants += [Variant(name, None, (), level, period_s=1.0) for name, level in zip(named, levels)]
    design = Design(tuple(rounds), tuple(spend), 1.0, periods_s=(1.0,))
    return Plan(tuple(variants), design, 2, seed=SEED, study=study, period_s=1.0)


def study_raw(
    folder: Path,
    plan: Plan,
    stalls_s: Sequence[float] = (),
    *,
    blocks: int | None = None,
    drift: float = 0.0,
    iterations: int = 50_000,
    bursts: bool = False,
    duty: float = 1.0,
) -> xr.Dataset:
    """stalls_s: of each variant besides off, how long its stall is; 0: none. blocks: how many were measured.

    drift: by how much of a mean the loop is slower at the end. bursts: with a source's own record, which used `duty`
    of what it was asked for.
    """
    document = plan.document()
    document["attrs"] = {**document["attrs"], "permutations": 999, "settle_s": 0.05}
    order = [(int(s), int(v)) for s, v in _core.noise_plan(plan.shares, plan.design.rounds, plan.seed)][
        :blocks
    ]
    random = np.random.default_rng(1)
    files = [RunFile(folder, rank, 2, variants=[v.name for v in plan.variants]) for rank in range(2)]
    burst_rows: dict[int, list[dict[str, float]]] = {}
    for file in files:
        file.values(4, CALIBRATION)
    for number, (segment, variant) in enumerate(order):
        begin = 2.0 + PITCH_S * number
        stall = stalls_s[variant - 1] if variant and stalls_s else 0.0
        at = math.ceil(begin - 0.3) + 0.3 - begin  # at 0.3 s of each second of the run
        table = [
            (float(t), float(random.exponential(1e-4)) + 1e-4, 0.0, math.nan)
            for t in np.sort(random.random(20))
        ]
        if stall:
            table = sorted([*table, (at, stall, 0.0, math.nan)])
        slower = 1 + drift * number / len(order) + random.normal(0, 1e-3) + stall
        for file in files:
            file.block(
                number,
                segment,
                variant,
                begin,
                stalls=table,
                count={100: iterations},
                length=1.0,
                excluded=0.0,
                iterations=round(iterations / slower),
                resumed=begin - 0.05 if variant else math.nan,
            )
        if variant and bursts:
            level = plan.variants[variant].level
            burst_rows.setdefault(variant, []).append(
                {
                    "begin": BEGAN_S + begin + at,
                    "planned": BEGAN_S + begin + at,
                    "cpu": duty * level,
                    "wall": level,
                }
            )
            # One that came while the agent was let go, before the block: not of the block.
            burst_rows[variant].append({"begin": BEGAN_S + begin - 0.02, "planned": BEGAN_S, "cpu": 0.5})
    closed = [file.close() for file in files]
    for variant, rows in burst_rows.items():
        rows.sort(key=lambda row: row["begin"])
        closed.append(source_file(folder, f"agent-{variant}.blk", rows, level=plan.variants[variant].level))
    layout, arrays = placed(SCHEMA, document, closed)
    data: dict[str, Any] = {name: (layout.variables[name].dims, array) for name, array in arrays.items()}
    return xr.Dataset(data, attrs={**layout.attrs, "seed": SEED})
