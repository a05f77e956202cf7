"""Statistics of single cells (src, dst, size), read from /raw a piece at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from sonde.core import lognormal, stats
from sonde.core.deadline import Deadline
from sonde.core.described import Described
from sonde.core.errors import DataError
from sonde.net import periodicity
from sonde.net.periodicity import Cycle
from sonde.net.schema import BLOCKS, CELL, FITTED, MEASURED, SERIES

# The largest memory of one piece of /raw, all its variables together.
PIECE_BYTES = 16 << 20

Spot = tuple[int, int, int]


@dataclass(frozen=True)
class Series:
    """The samples of one cell in order of measurement.

    latency : (n,) s; epoch : (n,) int; t : (n,) s since the run began, or None if unknown
    """

    latency: np.ndarray
    epoch: np.ndarray
    t: np.ndarray | None

    def __len__(self) -> int:
        return len(self.latency)

    @property
    def epochs(self) -> int:
        """The number of epochs; 1 if the series has no epoch numbers."""
        return len(np.unique(self.epoch)) if len(self.epoch) else 0


def pieces(raw: xr.Dataset, most_bytes: int = PIECE_BYTES) -> Iterator[tuple[slice, slice, slice]]:
    """Boxes of (src, dst, size) that cover /raw, each small enough to load and along whole chunks of the file.

    Reading across the chunks would unpack every chunk many times.
    """
    shape = tuple(raw.sizes[d] for d in SERIES)
    chunks = raw["latency"].encoding.get("chunksizes") or (1, shape[1], 1, shape[3])
    order = [raw["latency"].dims.index(d) for d in SERIES]
    chunk = [min(max(int(chunks[k]), 1), n) for k, n in zip(order, shape)]
    cells = max(1, most_bytes // (max(shape[3], 1) * (8 + 4 + 8)))
    box = chunk[:3]
    if np.prod(box) > cells:
        box = [1, 1, 1] if cells < 1 else _cut_to(box, cells)
    # Grow along the longest chunk side first: one rank's row lies in the file in this direction.
    for axis in sorted(range(3), key=lambda a: -chunk[a]):
        rest = int(np.prod(box)) // box[axis]
        most = max(1, cells // rest)
        step = chunk[axis] if box[axis] == chunk[axis] else 1
        box[axis] = min(shape[axis], max(box[axis], most // step * step))
    for s in range(0, shape[0], box[0]):
        for d in range(0, shape[1], box[1]):
            for z in range(0, shape[2], box[2]):
                yield (
                    slice(s, min(s + box[0], shape[0])),
                    slice(d, min(d + box[1], shape[1])),
                    slice(z, min(z + box[2], shape[2])),
                )


def series_in(raw: xr.Dataset, box: tuple[slice, slice, slice]) -> Iterator[tuple[Spot, Series]]:
    """Every cell of a box that has samples, with its position in /raw."""
    latency = _values(raw, "latency", box)
    epoch = _values(raw, "epoch", box) if "epoch" in raw else None
    t = _values(raw, "t_start", box) if "t_start" in raw else None
    if np.isinf(latency).any():
        raise DataError(
            "net.infinite_latency", "/raw/latency holds an infinite delay", "sonde data validate FILE"
        )
    present = ~np.isnan(latency)
    whole = present.all(axis=-1)
    for i, j, k in np.argwhere(present.any(axis=-1)):
        x, here = latency[i, j, k], present[i, j, k]
        e = None if epoch is None else epoch[i, j, k]
        when = None if t is None else t[i, j, k]
        if not whole[i, j, k]:
            x = x[here]
            e = None if e is None else e[here]
            when = None if when is None else when[here]
        yield (
            (box[0].start + int(i), box[1].start + int(j), box[2].start + int(k)),
            _series(x, e, when),
        )


def series_of(raw: xr.Dataset, spot: Spot) -> Series:
    """The samples of one cell; an empty series if there are none."""
    box = tuple(slice(int(at), int(at) + 1) for at in spot)
    for _, series in series_in(raw, (box[0], box[1], box[2])):
        return series
    return Series(np.zeros(0), np.zeros(0, np.int32), None)


def epoch_levels(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """Median of every epoch and its time: (E,) s, (E,) s since the run began.

    With one epoch: medians of BLOCKS blocks. If times are unknown: epoch or block numbers.
    """
    n = len(series)
    if series.epochs >= 2:
        medians = stats.epoch_medians(series.latency, series.epoch)
        if series.t is None:
            return medians, np.unique(series.epoch).astype(float)
        return medians, stats.epoch_medians(series.t, series.epoch)
    block = max(1, n // BLOCKS)
    medians = stats.block_medians(series.latency, block)
    if series.t is None:
        return medians, np.arange(len(medians), dtype=float)
    return medians, stats.block_medians(series.t, block)


def check(raw: xr.Dataset) -> None:
    """Raise DataError net.no_latency if there is no latency(src, dst, size, sample)."""
    if "latency" not in raw or set(raw["latency"].dims) != set(SERIES):
        raise DataError(
            "net.no_latency",
            "/raw has no variable latency(src, dst, size, sample)",
            "is this a dataset of `sonde net`? check it with: sonde data validate FILE",
        )


def measure(raw: xr.Dataset) -> dict[str, np.ndarray]:
    """The statistics of `schema.MEASURED` for every cell.

    Parameters
    ----------
    raw : /raw of net/1, opened lazily; read once, PIECE_BYTES at a time

    Returns
    -------
    Arrays (src, dst, size) by name: NaN, or 0 for counts, in a cell without samples. A single sample has no sd; a
    single epoch has no interval.

    Raises
    ------
    DataError  net.no_latency, net.infinite_latency.
    """
    check(raw)
    out = _blank(raw, MEASURED)
    for box in pieces(raw):
        for spot, series in series_in(raw, box):
            x = series.latency
            s = stats.summarise(x)
            for name in ("mean", "sd", "min", "max", "q05", "q25", "q75", "q95", "q99"):
                out[name][spot] = getattr(s, name)
            epochs = series.epochs
            out["n"][spot], out["epochs"][spot] = len(x), epochs
            medians, _ = epoch_levels(series)
            level = stats.steady_median(x, series.epoch)
            out["median"][spot], out["warmup"][spot] = level.median, level.skipped
            if epochs >= 2:
                out["median_low"][spot], out["median_high"][spot] = level.low, level.high
                out["ess"][spot] = stats.effective_samples(x, series.epoch)
            else:
                out["ess"][spot] = stats.effective_samples(x)
            if len(medians) >= 4:
                out["drift_p"][spot] = stats.pettitt(medians).p
    return out


# At most this number of cells gets laws and cycles: each costs milliseconds.
MAX_FITTED = 120
# Larger cells are thinned to this number of samples before a law is fitted.
MOST_SAMPLES_FITTED = 1000
LEVEL = 0.01


def fit(
    raw: xr.Dataset, spots: Sequence[Spot], with_p: Collection[Spot] = (), deadline: Deadline | None = None
) -> tuple[dict[str, np.ndarray], int]:
    """The statistics of `schema.FITTED` for chosen cells, NaN (0 for regimes) elsewhere.

    Parameters
    ----------
    raw : /raw of net/1; spots : cells to analyse, in this order; with_p : cells whose lognormal also gets a p
    deadline : its end, with the cells that are done by then

    Returns
    -------
    Arrays (src, dst, size) by name, and the number of analysed cells. A period is in s, or in samples if the cell's
    samples have no times.
    """
    out = _blank(raw, FITTED)
    limit = deadline or Deadline()
    pieces = limit.pieces()
    for done, spot in enumerate(spots):
        if not pieces.fits():
            limit.leave_out("laws and cycles of cells", done, len(spots))
            return out, done
        series = series_of(raw, spot)
        if len(series) < 2:
            continue
        law = series.latency[:: max(1, len(series) // MOST_SAMPLES_FITTED)]
        fitted = lognormal.fit_lognormal3(law)
        for name, value in zip(("shift", "mu", "sigma", "ks"), (*fitted[:3], fitted.ks)):
            out[f"lognormal_{name}"][spot] = value
        if spot in with_p and fitted.converged:
            out["lognormal_p"][spot] = lognormal.ks_p(law, fitted, replicates=99)
        cycle = strongest_cycle(series)
        out["cyclic_p"][spot] = cycle.p
        unit = "period" if series.t is not None else "samples"
        out[f"cyclic_{unit}"][spot] = cycle.period if cycle.p <= LEVEL else np.nan
        found = periodicity.periodic_outliers(series.latency, series.epoch, series.t, LEVEL)
        out["outlier_share"][spot], out["outlier_p"][spot] = found.share, found.p
        out[f"outlier_{unit}"][spot] = found.period
        medians, _ = epoch_levels(series)
        out["regimes"][spot] = 1 + len(stats.change_points(medians, LEVEL, 3)) if len(medians) >= 6 else 0
        out["homogeneous_p"][spot] = periodicity.homogeneity(windows(series), permutations=199).p
    return out, len(spots)


def strongest_cycle(series: Series) -> Cycle:
    """The stronger of the cycles within bursts and between them (p doubled), period in s or in samples."""
    bursts = windows(series) if series.epochs >= 2 else np.zeros((0, 0))
    medians, when = epoch_levels(series)
    if series.epochs < 2:
        return periodicity.cyclicity(series.latency)
    within = periodicity.burst_cyclicity(bursts)
    if series.t is not None and np.isfinite(within.period):
        within = replace(within, period=within.period * float(np.median(np.diff(series.t))))
    between = periodicity.cyclicity(medians, when if series.t is not None else None)
    known = [c for c in (within, between) if np.isfinite(c.p)]
    if not known:
        return periodicity.NO_CYCLE
    best = min(known, key=lambda c: c.p)
    return replace(best, p=min(1.0, len(known) * best.p))


def windows(series: Series) -> np.ndarray:
    """Bursts as rows, cut to the shortest usual length; a single burst is cut into BLOCKS windows. (W, m)."""
    n = len(series)
    if series.epochs < 2:
        width = n // BLOCKS
        return series.latency[: width * BLOCKS].reshape(BLOCKS, width) if width else np.zeros((0, 0))
    _, begin, count = np.unique(series.epoch, return_index=True, return_counts=True)
    width = int(np.quantile(count, 0.25))
    long = begin[count >= width]
    return series.latency[long[:, None] + np.arange(width)] if width else np.zeros((0, 0))


def _blank(raw: xr.Dataset, table: Mapping[str, Described]) -> dict[str, np.ndarray]:
    """Arrays (src, dst, size) for the statistics of a table: NaN, or 0 for counts."""
    shape = tuple(raw.sizes[d] for d in CELL)
    return {
        name: np.full(shape, np.nan) if what.dtype == "<f8" else np.zeros(shape, what.dtype)
        for name, what in table.items()
    }


def _values(raw: xr.Dataset, name: str, box: tuple[slice, slice, slice]) -> np.ndarray:
    # Only the variable: xarray would also cut its coordinates, for each cell.
    part = raw.variables[name].isel(src=box[0], dst=box[1], size=box[2])
    return np.asarray(part.transpose(*SERIES).values)


def _series(x: np.ndarray, epoch: np.ndarray | None, t: np.ndarray | None) -> Series:
    if epoch is None:
        number = np.zeros(len(x), np.int32)
    else:
        number = np.nan_to_num(epoch, nan=-1).astype(np.int32)
        # Samples without an epoch form an epoch of their own, so they are not lost.
        if (number < 0).any():
            number = np.where(number < 0, number.max() + 1 if len(number) else 0, number).astype(np.int32)
    if t is not None and not np.isfinite(t).all():
        t = None
    return Series(np.ascontiguousarray(x, np.float64), number, t)


def _cut_to(box: list[int], cells: int) -> list[int]:
    """A box of at most `cells` cells, cut along its longest side first."""
    box = list(box)
    while int(np.prod(box)) > cells and max(box) > 1:
        axis = int(np.argmax(box))
        box[axis] = max(1, min(box[axis] - 1, cells // max(1, int(np.prod(box)) // box[axis])))
    return box
