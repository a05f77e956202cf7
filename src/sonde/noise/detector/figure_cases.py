"""The names of a run's cases in figures."""

from __future__ import annotations

import xarray as xr

from sonde.core.figure import Slider

CLEAN = "nothing on"
VARIANT = Slider("variant", "what was on")


def case_names(summary: xr.Dataset) -> list[str]:
    """The names of all cases; the first is the case without an agent."""
    if str(summary.attrs.get("agent")) == "none":
        return [CLEAN, *["labelled on, nothing on" for _ in summary["case"].values[1:]]]
    return [CLEAN, *(str(name) for name in summary["case"].values[1:])]


def is_single(summary: xr.Dataset) -> bool:
    return summary.sizes.get("variant", 0) == 1
