"""The resources that the agent used, and the load of noise sources."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from sonde.noise.detector.block_numbers import Numbers


def use(raw: xr.Dataset, numbers: Numbers, variant: int) -> dict[str, float]:
    """The use of the agent while it was on, and its CPU time while it should be paused; means over nodes."""
    names = ("agent_cpu", "agent_paused", "agent_wakeups", "keeper_cpu", "drives", "drives_failed")
    if "agent_cpu" not in raw:
        return dict.fromkeys(names, math.nan)
    settle_s = float(raw.attrs.get("settle_s", 0))

    def total(name: str, kind: int) -> float:
        used = np.asarray(raw[name].values, dtype=np.float64)[:, numbers.variant == kind]
        return float(np.nansum(used)) / max(1, raw.sizes["node"])

    def share(name: str, kind: int) -> float:
        lengths = numbers.length[numbers.variant == kind]
        time = float(np.sum(lengths)) + settle_s * lengths.size
        return total(name, kind) / time if time > 0 else math.nan

    if not (numbers.variant == variant).any():
        return dict.fromkeys(names, math.nan)
    return {
        "agent_cpu": share("agent_cpu", variant),
        "agent_paused": share("agent_cpu", 0),
        "agent_wakeups": share("agent_wakeups", variant),
        "keeper_cpu": share("keeper_cpu", variant),
        "drives": total("agent_drives", variant),
        "drives_failed": total("agent_drives_failed", variant),
    }


def duty(raw: xr.Dataset, numbers: Numbers, variant: int) -> dict[str, float]:
    """The load of the noise sources in the blocks of a variant, for each node.

    It comes from the recorded bursts that began in these blocks.
    """
    requested = math.nan
    levels = np.atleast_1d(raw.attrs.get("levels", []))
    if variant < levels.size:
        counts = np.atleast_1d(raw.attrs.get("variant_sources", np.ones(levels.size)))
        requested = float(levels[variant]) * float(counts[variant])
    out = {"duty": math.nan, "duty_asked": requested, "duty_bursts": math.nan}
    blocks = np.flatnonzero(numbers.variant == variant)
    if "burst_cpu" not in raw or not blocks.size or not np.isfinite(requested):
        return out
    nodes = len({str(host) for host in raw["source_host"].values})
    ends = numbers.begin + numbers.length
    used, bursts = 0.0, 0
    for source in range(raw.sizes["source"]):
        count = int(raw["n_bursts"].values[source])
        begin = np.asarray(raw["burst_begin"].isel(source=source).values, dtype=np.float64)[:count]
        cpu = np.asarray(raw["burst_cpu"].isel(source=source).values, dtype=np.float64)[:count]
        at = np.clip(np.searchsorted(numbers.begin, begin, side="right") - 1, 0, None)
        inside = (begin >= numbers.begin[at]) & (begin < ends[at]) & (numbers.variant[at] == variant)
        used += float(cpu[inside].sum())
        bursts += int(np.count_nonzero(inside))
    seconds = float(numbers.length[blocks].sum()) * nodes
    return out | {"duty": used / seconds, "duty_bursts": bursts / seconds}
