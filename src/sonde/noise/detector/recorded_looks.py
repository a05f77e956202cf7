"""The looks that the run itself recorded."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import xarray as xr

from sonde.noise.detector import judge
from sonde.noise.detector.block_numbers import Numbers


def recorded_looks(raw: xr.Dataset, ends: list[int], permutations: int, *, again: bool) -> list[judge.Look]:
    """The recorded looks of the run, from the first, that need not be repeated. ends: numbers of blocks.

    again: whether to repeat the looks that had all their permutations. The judge is the same code and gives the same
    result. A look that the run had to end early is not repeated, because it had only the time that was left.
    """
    if "look_blocks" not in raw or not is_sequential(raw.attrs):
        return []
    column = {f.name: np.atleast_1d(raw[f"look_{f.name.removesuffix('_s')}"].values)
              for f in fields(judge.Look) if f.name != "permutations"}  # fmt: skip
    drawn = np.atleast_1d(raw["look_permutations"].values) if "look_permutations" in raw else np.full(0, -1)
    out: list[judge.Look] = []
    whole = 0
    for k, end in enumerate(ends[: column["blocks"].size]):
        if int(column["blocks"][k]) != end or not np.isfinite(column["p_so_far"][k]):
            break
        count = int(drawn[k]) if k < drawn.size and drawn[k] > 0 else permutations
        values = {name: values[k].item() for name, values in column.items()}
        out.append(judge.Look(**values, permutations=count))
        if count < permutations:
            whole = k + 1
    return out[:whole] if again else out


def look_costs_s(raw: xr.Dataset) -> float:
    """The time that all looks took during the run, s: the same work on the same machine."""
    return float(np.nansum(raw["look_cost"].values)) if "look_cost" in raw else 0.0


def found_at_s(raw: xr.Dataset) -> float:
    """The time at which the run itself detected its agent, s since it began; NaN: it did not.

    It is taken from the looks, which a killed run has recorded, too.
    """
    if "look_p_so_far" not in raw:
        return float(raw.attrs.get("detected_s", math.nan))
    found = np.asarray(raw["look_p_so_far"].values) <= float(raw.attrs["alpha"])
    return float(np.asarray(raw["look_elapsed"].values)[found].min()) if found.any() else math.nan


def is_sequential(attrs: dict[str, Any]) -> bool:
    return len(np.atleast_1d(attrs["shares"])) == 2


def end_times(numbers: Numbers, planned: np.ndarray, ends: list[int]) -> list[float]:
    """The time of each look, s since the run began: the end of its last block."""
    return [float(numbers.begin[planned[end - 1]] + numbers.length[planned[end - 1]]) for end in ends]
