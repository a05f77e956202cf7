"""The numbers of each block of a run that are compared, and their differences in pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import xarray as xr

from sonde.noise.detector import judge
from sonde.noise.detector.histogram import quantiles


@dataclass(frozen=True)
class Numbers:
    """The numbers of each block that are compared; ranks are merged. All (block,)."""

    variant: np.ndarray
    segment: np.ndarray
    begin: np.ndarray
    length: np.ndarray
    mean: np.ndarray  # s, of an iteration
    median: np.ndarray  # s
    lost: np.ndarray  # share of the block that stalls took beyond the time of an ordinary iteration


def reader(raw: xr.Dataset) -> int:
    """The rank that recorded iterations most finely. Its histogram and lengths represent the loop."""
    return judge.reader(raw)


def counts_of(raw: xr.Dataset) -> np.ndarray:
    return np.asarray(raw["count"].isel(rank=reader(raw)).values, dtype=np.float64)


def numbers_of(raw: xr.Dataset) -> Numbers:
    """The numbers that are compared, of the blocks that all ranks completed. Other blocks have variant -1."""
    rank = reader(raw)
    at = {
        name: np.asarray(raw[name].isel(rank=rank).values, dtype=np.float64)
        for name in ("t_begin", "length", "excluded", "iterations")
    }
    status = np.asarray(raw["status"].values) == 1
    counts, edges = counts_of(raw), np.asarray(raw["class_edge"].values)[rank]
    median = quantiles(counts, edges, (0.5,))[:, 0]
    busy = at["length"] - at["excluded"]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = busy / at["iterations"]
    variant = np.where(status, np.asarray(raw["variant"].values), -1)
    every = float(np.asarray(raw["stamp_every"].values)[rank])
    lost = np.zeros(variant.size)
    block = np.asarray(raw["stall_block"].isel(rank=rank).values)
    length = np.asarray(raw["stall_length"].isel(rank=rank).values, dtype=np.float64)
    present = block >= 0
    excess = np.maximum(length[present] - every * median[block[present]], 0)
    np.add.at(lost, block[present], excess)
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = lost / busy
    begin = np.nanmin(np.asarray(raw["t_begin"].values, dtype=np.float64), axis=0)
    return Numbers(variant, np.asarray(raw["segment"].values), begin, at["length"], mean, median, lost)


def finite_median(x: np.ndarray) -> float:
    x = x[np.isfinite(x)]
    return float(np.median(x)) if x.size else math.nan


def pairs_in(numbers: Numbers, blocks: np.ndarray, variant: int) -> int:
    on = np.count_nonzero(numbers.variant[blocks] == variant)
    return int(min(on, np.count_nonzero(numbers.variant[blocks] == 0)))


def differences(numbers: Numbers, blocks: np.ndarray, variant: int, y: np.ndarray) -> np.ndarray:
    """On minus off for each pair: the k-th block of each kind within a segment.

    Labels were drawn at random, so this pairing is fair.
    """
    out: list[float] = []
    for segment in np.unique(numbers.segment[blocks]):
        here = blocks[numbers.segment[blocks] == segment]
        on, off = (y[here[numbers.variant[here] == kind]] for kind in (variant, 0))
        count = min(on.size, off.size)
        out += (on[:count] - off[:count]).tolist()
    found = np.array(out)
    return found[np.isfinite(found)]
