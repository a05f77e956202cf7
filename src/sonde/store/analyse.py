"""From durations to rates, intervals and ratios. Pure.

Two variants are compared epoch by epoch. Both were measured in the same fraction of a second, so disturbances that
affect all variants cancel out. The ratio is the Hodges-Lehmann shift of the logs of the ratios of epoch medians, with
the interval of the signed-rank test.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from sonde.core import stats
from sonde.core.described import variables
from sonde.core.status import NOT_MEASURED, UNDECIDED
from sonde.store.plan import RAW as RAW_VARIANT
from sonde.store.plan import RAW_OFI, TCP
from sonde.store.schema import CELL, OF_CASE, OF_VARIANT, STAGES, SUMMARY

MAX_PAIRS = 120  # epochs; when there are more, neighbouring epochs, which are similar, are averaged
READ_AT_ONCE = 1 << 20  # values; one read from a dataset costs a millisecond, however small it is
SHARES = np.unique(
    np.concatenate([[0.001, 0.005, 0.01], np.linspace(0.02, 0.98, 49), [0.99, 0.995, 0.999, 0.9999]])
)


def analyse(raw: xr.Dataset) -> xr.Dataset:
    """/summary, computed from /raw.

    Parameters
    ----------
    raw : duration, epoch (variant, case, sample); serialise, wait, backend (variant, case, burst); n, bursts, status
        (variant, case), and the facts of variants and cases

    Returns
    -------
    Dataset over variant and case, variables as in `schema.SUMMARY`. A cell without data has NaN, and counts of 0.
    """
    variants, cases = [str(v) for v in raw["variant"].values], raw.sizes["case"]
    shape = (len(variants), cases)
    out = {
        name: np.full(shape, np.nan) if what.dtype == "<f8" else np.zeros(shape, what.dtype.strip("<|"))
        for name, what in SUMMARY.items()
        if what.dims == CELL
    }
    quantile = np.full((*shape, len(SHARES)), np.nan)
    n, bursts = raw["n"].values, raw["bursts"].values
    out["n"][:] = n
    out["status"][:] = raw["status"].values if "status" in raw else np.where(n > 0, UNDECIDED, NOT_MEASURED)
    operations = (raw["batch"] * raw["depth"]).values
    moved = operations * raw["size"].values
    medians: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
    series = {name: _Series(raw[name]) for name in ("duration", "epoch", *STAGES)}
    for v, c in np.argwhere(n > 0):
        x = series["duration"].of(v, c, n[v, c]).astype(float)
        epoch = series["epoch"].of(v, c, n[v, c])
        for name, value in _of_cell(x, epoch, int(operations[c]), int(moved[c])).items():
            out[name][v, c] = value
        quantile[v, c] = np.quantile(x, SHARES)
        medians[v, c] = (np.unique(epoch[epoch >= 0]), stats.epoch_medians(x, epoch))
        stages = {stage: series[stage].of(v, c, bursts[v, c]) for stage in STAGES}
        for name, value in _stages(stages, float(out["median"][v, c]), int(raw["depth"].values[c])).items():
            out[name][v, c] = value
    for against, name in (("tcp", TCP), ("raw", RAW_VARIANT), ("raw_ofi", RAW_OFI)):
        if name not in variants:
            continue
        base = variants.index(name)
        for (v, c), own in medians.items():
            if v == base or (base, c) not in medians:
                continue
            pairs, ratio = paired(medians[base, c], own)
            out[f"pairs_{against}"][v, c] = pairs
            for end, value in zip(("", "_low", "_high"), ratio):
                out[f"ratio_to_{against}{end}"][v, c] = value
    copied = {name: raw[name].values for name in (*OF_VARIANT, *OF_CASE) if name in raw}
    coords = {"variant": raw["variant"].values, "case": raw["case"].values, "share": SHARES}
    data = out | {"quantile": quantile} | copied
    return xr.Dataset(variables(SUMMARY, data), coords=variables(SUMMARY, coords))


class _Series:
    """The series of cells in a variable over variant, case and a third dimension; neighbours are read together."""

    def __init__(self, variable: xr.DataArray) -> None:
        self._variable = variable
        self._cases = max(1, READ_AT_ONCE // max(1, variable.shape[2]))
        self._at: tuple[int, int] | None = None
        self._values = np.empty((0, 0))

    def of(self, variant: int, case: int, length: int) -> np.ndarray:
        """The first `length` values of a cell."""
        first = case - case % self._cases
        if self._at != (variant, first):
            self._values = self._variable[variant, first : first + self._cases].values
            self._at = (variant, first)
        return self._values[case - first, :length]


def _of_cell(x: np.ndarray, epoch: np.ndarray, operations: int, moved: int) -> Mapping[str, float]:
    """The numbers of one cell. x: s, (n,). operations, moved: operations and bytes of an iteration."""
    middle = stats.steady_median(x, epoch)
    tail = stats.epoch_quantile_ci(x, epoch, 0.99)
    total = float(x.sum())
    return {
        "epochs": len(np.unique(epoch[epoch >= 0])),
        "steady": int(middle.steady),
        "median": middle.median,
        "median_low": middle.low,
        "median_high": middle.high,
        "p99": stats.quantile(x, 0.99),
        "p99_low": tail.low,
        "p99_high": tail.high,
        "mean": total / len(x),
        "min": float(x.min()),
        "rate": operations / middle.median,
        "rate_low": operations / middle.high,
        "rate_high": operations / middle.low,
        "throughput": moved / middle.median,
        "throughput_low": moved / middle.high,
        "throughput_high": moved / middle.low,
        "mean_rate": operations * len(x) / total,
    }


def _stages(stages: Mapping[str, np.ndarray], median_s: float, depth: int) -> Mapping[str, float]:
    """The median time of each stage, and the rest of an iteration: the wire.

    With several batches in flight the stages overlap, and their shares of an iteration are undefined.
    """
    if depth > 1:
        return {}
    known = {stage: values[np.isfinite(values)] for stage, values in stages.items()}
    if any(len(values) == 0 for values in known.values()):
        return {}
    out = {f"{stage}_time": stats.median(values) for stage, values in known.items()}
    return out | {"wire_time": max(0.0, median_s - sum(out.values()))}


def paired(
    base: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]
) -> tuple[int, tuple[float, float, float]]:
    """The number of common epochs, and how much faster `other` is: estimate, low, high.

    base, other: epoch numbers, ascending, and the median of each, s. Without a common epoch all are NaN; with fewer
    than six there is no interval.
    """
    _, a, b = np.intersect1d(base[0], other[0], assume_unique=True, return_indices=True)
    if not len(a):
        return 0, (float("nan"),) * 3
    logs = np.log(base[1][a]) - np.log(other[1][b])
    if len(logs) > MAX_PAIRS:
        logs = np.array([part.mean() for part in np.array_split(logs, MAX_PAIRS)])
    shift = stats.hodges_lehmann(logs)
    return len(a), (float(np.exp(shift.estimate)), float(np.exp(shift.low)), float(np.exp(shift.high)))
