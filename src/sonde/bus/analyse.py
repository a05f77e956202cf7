"""Computes medians, intervals and ratios from samples. Pure.

Variants are compared within stretches of time. Each epoch measures all variants of a case, so effects of the machine on
all of them cancel. A ratio is the Hodges-Lehmann estimate of the log ratios, with the interval of the signed-rank test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from sonde.bus.schema import FACTS, SERIES, SUMMARY
from sonde.bus.values import SHARES as SHOWN_BY_MEAN
from sonde.bus.variants import RAW as RAW_IMPLEMENTATION
from sonde.bus.variants import raw_like, secured, without_keys
from sonde.core import stats
from sonde.core.described import variables
from sonde.core.status import NOT_MEASURED, UNDECIDED

MOST_STRETCHES = 120  # with more epochs, neighbouring epochs are merged, because they are similar
PLACES = 100  # first samples of a burst that are analysed separately
READ_AT_ONCE = 1 << 20  # values; each read of a dataset costs a millisecond, even a small one
SHARES = np.unique(
    np.concatenate([[0.0, 0.001, 0.005, 0.01], np.linspace(0.02, 0.98, 49), [0.99, 0.995, 0.999, 0.9999]])
)
COUNTED = ("1", "B")  # units of counts: their differences are not caused by the resolution of a clock


def analyse(raw: xr.Dataset) -> xr.Dataset:
    """Compute /summary from /raw.

    Parameters
    ----------
    raw : value, epoch (series, sample); n, status (series), and the facts of series, variants, cases and quantities

    Returns
    -------
    Dataset over series, variables as in `schema.SUMMARY`. A series without data has NaN, and counts of 0.
    """
    facts = {name: raw[name].values for name in FACTS}
    count = raw.sizes["series"]
    units, quantities = ([str(text) for text in facts[name]] for name in ("quantity_unit", "quantity_name"))
    out = {
        name: np.full(count, np.nan) if what.dtype == "<f8" else np.zeros(count, what.dtype.strip("<|"))
        for name, what in SUMMARY.items()
        if what.dims == SERIES and name not in FACTS
    }
    n = raw["n"].values
    out["n"][:] = n
    out["status"][:] = raw["status"].values if "status" in raw else np.where(n > 0, UNDECIDED, NOT_MEASURED)
    read = _Reader(raw)
    stretches, of_epoch = _stretches(read, n)
    quantile = np.full((count, len(SHARES)), np.nan)
    block = np.full((count, stretches), np.nan)
    early = np.full((count, PLACES), np.nan)
    for k in np.flatnonzero(n > 0):
        x, epoch = read.series(int(k), int(n[k]))
        out["absent"][k] = int(np.isnan(x).sum())
        early[k] = _early(x, epoch)
        x, epoch = x[np.isfinite(x)], epoch[np.isfinite(x)]
        if not len(x):
            continue
        quantity = int(facts["series_quantity"][k])
        counted = units[quantity] in COUNTED
        for name, value in _of_series(x, epoch, counted).items():
            out[name][k] = value
        quantile[k] = np.quantile(x, SHARES)
        in_epoch = epoch >= 0
        if in_epoch.any():
            stretch = of_epoch(epoch[in_epoch])
            middles = stats.epoch_means if quantities[quantity] in SHOWN_BY_MEAN else stats.epoch_medians
            block[k, np.unique(stretch)] = middles(x[in_epoch], stretch)
    base, raws = _bases(facts)
    out["base"][:] = base
    for name, other in (("ratio", base), ("ratio_to_raw", raws)):
        pairs = "pairs" if name == "ratio" else "pairs_raw"
        for k in np.flatnonzero(other >= 0):
            reference = _row(facts, int(k), int(other[k]))
            if reference is None:
                continue
            out[pairs][k], ratio = paired(block[reference], block[k])
            for end, value in zip(("", "_low", "_high"), ratio):
                out[f"{name}{end}"][k] = value
    data = out | {"quantile": quantile, "block": block, "early": early} | facts
    return xr.Dataset(variables(SUMMARY, data), coords=variables(SUMMARY, {"share": SHARES}))


class _Reader:
    """Reader of the series in /raw; reads neighbouring series together."""

    def __init__(self, raw: xr.Dataset) -> None:
        self._raw = raw
        self._rows = max(1, READ_AT_ONCE // max(1, raw.sizes.get("sample", 1)))
        self._first = -1
        self._values = self._epochs = np.empty((0, 0))

    def series(self, k: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Values and epochs of a series."""
        first = k - k % self._rows
        if first != self._first:
            part = slice(first, first + self._rows)
            self._values, self._epochs = (self._raw[name][part].values for name in ("value", "epoch"))
            self._first = first
        return self._values[k - first, :length].astype(float), self._epochs[k - first, :length]


def _stretches(read: _Reader, n: np.ndarray) -> tuple[int, Any]:
    """The number of stretches of time, and a function that maps epochs to stretches."""
    last = max((int(read.series(int(k), int(n[k]))[1].max()) for k in np.flatnonzero(n > 0)), default=0)
    count = min(last + 1, MOST_STRETCHES)

    def of_epoch(epoch: np.ndarray) -> np.ndarray:
        return np.asarray(epoch.astype(np.int64) * count // (last + 1), np.int32)

    return count, of_epoch


def _of_series(x: np.ndarray, epoch: np.ndarray, counted: bool) -> Mapping[str, float]:
    """The numbers of one series."""
    epochs = np.unique(epoch[epoch >= 0])
    if counted or len(x) <= len(
        epochs
    ):  # counts have no clock resolution, and one value per epoch has no warm-up
        middle = stats.median(x)
        low, high = stats.epoch_median_ci(x) if len(x) <= len(epochs) else stats.epoch_median_ci(x, epoch)
        low, high = min(low, middle), max(high, middle)
        if len(epochs) > 1 and (x == x[0]).all():  # for example no loss at all
            low = high = middle
        steady = True
    else:
        found = stats.steady_median(x, epoch)
        middle, low, high, steady = found.median, found.low, found.high, found.steady
    tail = stats.epoch_quantile_ci(x, epoch, 0.99) if len(epochs) > 1 else stats.Interval(np.nan, np.nan)
    high_tail = stats.quantile(x, 0.99)
    return {
        "epochs": len(epochs),
        "steady": int(steady),
        "median": middle,
        "median_low": low,
        "median_high": high,
        "p99": high_tail,
        "p99_low": min(tail.low, high_tail),
        "p99_high": max(tail.high, high_tail),
        "mean": float(x.mean()),
        "min": float(x.min()),
        "max": float(x.max()),
    }


def _early(x: np.ndarray, epoch: np.ndarray) -> np.ndarray:
    """The median over bursts of the first, second, … sample of a burst, without lost messages; NaN if fewer than half
    of the bursts have this sample.
    """
    out = np.full(PLACES, np.nan)
    starts = np.flatnonzero(np.r_[True, epoch[1:] != epoch[:-1]])
    ends = np.r_[starts[1:], len(epoch)]
    for place in range(min(PLACES, int((ends - starts).max()))):
        has = starts[ends - starts > place]
        if 2 * len(has) < len(starts):
            break
        received = x[has + place]
        received = received[np.isfinite(received)]
        if 2 * len(received) >= len(starts):
            out[place] = np.median(received)
    return out


def _bases(facts: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """For each series, the variant that it is compared with, and the raw transport of the same kind; -1: not measured.

    A series is compared with the first variant, raw transports excluded, that has data of the same case and quantity. A
    variant with keys is compared with the same variant without keys, if that was measured.
    """
    of, case, quantity = (facts[f"series_{dim}"] for dim in ("variant", "case", "quantity"))
    implementation, transport, options = (
        [str(x) for x in facts[name]] for name in ("implementation", "transport", "options")
    )
    bare = [(one, way, without_keys(more)) for one, way, more in zip(implementation, transport, options)]
    base, raw = (np.full(len(of), -1, np.int32) for _ in range(2))
    measured: dict[tuple[int, int], list[int]] = {}
    for v, c, q in zip(of, case, quantity):
        measured.setdefault((int(c), int(q)), []).append(int(v))
    for k, (v, c, q) in enumerate(zip(of, case, quantity)):
        others = sorted(measured[int(c), int(q)])
        real = [other for other in others if implementation[other] != RAW_IMPLEMENTATION]
        if secured(options[v]):
            real = [o for o in real if bare[o] == bare[v] and not secured(options[o])] or real
        if real and real[0] != v:
            base[k] = real[0]
        wanted = raw_like(transport[v])
        if implementation[v] != RAW_IMPLEMENTATION:
            like = [o for o in others if implementation[o] == RAW_IMPLEMENTATION and transport[o] == wanted]
            raw[k] = like[0] if like else -1
    return base, raw


def _row(facts: Mapping[str, np.ndarray], k: int, variant: int) -> int | None:
    """The series of another variant, of the same case and quantity."""
    same = (
        (facts["series_variant"] == variant)
        & (facts["series_case"] == facts["series_case"][k])
        & (facts["series_quantity"] == facts["series_quantity"][k])
    )
    found = np.flatnonzero(same)
    return int(found[0]) if len(found) else None


def paired(base: np.ndarray, other: np.ndarray) -> tuple[int, tuple[float, float, float]]:
    """The number of stretches in which both are above 0, and the ratio of other to base: estimate, low, high.

    Without a common stretch all are NaN; with fewer than six there is no interval.
    """
    with np.errstate(invalid="ignore"):
        both = (base > 0) & (other > 0)
    if not both.any():
        return 0, (float("nan"),) * 3
    shift = stats.hodges_lehmann(np.log(other[both]) - np.log(base[both]))
    estimate, low, high = (float(np.exp(value)) for value in shift)
    return int(both.sum()), (estimate, low, high)
