"""Statistics of single cells (src, dst, size), read from /raw a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr

from sonde.core import stats
from sonde.core.errors import DataError

# What one piece of /raw may take in memory, all its variables together.
PIECE_BYTES = 64 << 20
# A series without epochs is cut into so many blocks where something is asked of its course.
BLOCKS = 20

SERIES = ("src", "dst", "size", "sample")
Spot = tuple[int, int, int]

# name -> unit, long_name, method
CHEAP: dict[str, tuple[str, str, str]] = {
    "mean": ("s", "mean", "arithmetic mean of all samples"),
    "sd": ("s", "standard deviation", "of the sample, n - 1 in the denominator"),
    "min": ("s", "smallest delay", "smallest sample"),
    "max": ("s", "largest delay", "largest sample"),
    "median": ("s", "median", "middle of all samples"),
    "q05": ("s", "5 % quantile", "linear between order statistics"),
    "q25": ("s", "25 % quantile", "linear between order statistics"),
    "q75": ("s", "75 % quantile", "linear between order statistics"),
    "q95": ("s", "95 % quantile", "linear between order statistics"),
    "q99": ("s", "99 % quantile", "linear between order statistics"),
    "median_low": (
        "s",
        "lower end of the 95 % interval of the median",
        "from epoch medians, Hettmansperger & Sheather 1986; none with fewer than two epochs",
    ),
    "median_high": (
        "s",
        "upper end of the 95 % interval of the median",
        "from epoch medians, Hettmansperger & Sheather 1986; none with fewer than two epochs",
    ),
    "ess": ("1", "effective sample size", "variance of one sample over that of the mean, from epochs"),
    "epochs": ("1", "epochs with samples", "counted"),
    "n": ("1", "samples", "counted"),
    "drift_p": (
        "1",
        "p of no drift",
        f"Pettitt 1979 on epoch medians; on medians of {BLOCKS} blocks with one epoch",
    ),
}
INTEGERS = ("epochs", "n")


@dataclass(frozen=True)
class Series:
    """The samples of one cell in order of measurement.

    latency : (n,) s; epoch : (n,) int; t : (n,) s since the run began, or None where not known
    """

    latency: np.ndarray
    epoch: np.ndarray
    t: np.ndarray | None

    def __len__(self) -> int:
        return len(self.latency)

    @property
    def epochs(self) -> int:
        """How many epochs there are; 1 where none are told."""
        return len(np.unique(self.epoch)) if len(self.epoch) else 0


def pieces(raw: xr.Dataset, most_bytes: int = PIECE_BYTES) -> Iterator[tuple[slice, slice, slice]]:
    """Boxes of (src, dst, size) that cover /raw, each small enough to load and along whole chunks of the
    file.

    Reading against the grain of the chunks would unpack every one of them many times.
    """
    shape = tuple(raw.sizes[d] for d in SERIES)
    chunks = raw["latency"].encoding.get("chunksizes") or (1, shape[1], 1, shape[3])
    order = [raw["latency"].dims.index(d) for d in SERIES]
    chunk = [min(max(int(chunks[k]), 1), n) for k, n in zip(order, shape)]
    cells = max(1, most_bytes // (max(shape[3], 1) * (8 + 4 + 8)))
    box = chunk[:3]
    if np.prod(box) > cells:
        box = [1, 1, 1] if cells < 1 else _cut_to(box, cells)
    # Grow along the longest chunk side first: that is how one rank's row lies in the file.
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
    """Every cell of a box that has samples, with where it is in /raw."""
    names = [name for name in ("latency", "epoch", "t_start") if name in raw]
    part = raw[names].isel(src=box[0], dst=box[1], size=box[2])
    latency = _values(part, "latency")
    epoch = _values(part, "epoch") if "epoch" in part else None
    t = _values(part, "t_start") if "t_start" in part else None
    if np.isinf(latency).any():
        raise DataError(
            "net.infinite_latency", "/raw/latency holds an infinite delay", "sonde data validate FILE"
        )
    kept = ~np.isnan(latency)
    whole = kept.all(axis=-1)
    for i, j, k in np.argwhere(kept.any(axis=-1)):
        x, here = latency[i, j, k], kept[i, j, k]
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
    """The samples of one cell; an empty series where there are none."""
    box = tuple(slice(int(at), int(at) + 1) for at in spot)
    for _, series in series_in(raw, (box[0], box[1], box[2])):
        return series
    return Series(np.zeros(0), np.zeros(0, np.int32), None)


def epoch_medians(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """Median of every epoch and its time: (E,) s, (E,) s since the run began.

    With one epoch: medians of BLOCKS blocks. Where times are not known: epoch or block numbers.
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
    """Raises DataError net.no_latency where there is no latency(src, dst, size, sample)."""
    if "latency" not in raw or set(raw["latency"].dims) != set(SERIES):
        raise DataError(
            "net.no_latency",
            "/raw has no variable latency(src, dst, size, sample)",
            "is this a dataset of `sonde net`? look with: sonde data validate FILE",
        )


def measure(raw: xr.Dataset) -> dict[str, np.ndarray]:
    """The statistics of CHEAP for every cell.

    Parameters
    ----------
    raw : /raw of net/1, opened lazily; read once, PIECE_BYTES at a time

    Returns
    -------
    Arrays (src, dst, size) by name: NaN, or 0 for counts, in a cell without samples. A single sample has no
    sd; a single epoch no interval.

    Raises
    ------
    DataError  net.no_latency, net.infinite_latency.
    """
    check(raw)
    shape = tuple(raw.sizes[d] for d in SERIES[:3])
    out = {name: np.zeros(shape, np.int32) if name in INTEGERS else np.full(shape, np.nan) for name in CHEAP}
    for box in pieces(raw):
        for spot, series in series_in(raw, box):
            x = series.latency
            s = stats.summarise(x)
            for name in ("mean", "sd", "min", "max", "median", "q05", "q25", "q75", "q95", "q99"):
                out[name][spot] = getattr(s, name)
            epochs = series.epochs
            out["n"][spot], out["epochs"][spot] = len(x), epochs
            medians, _ = epoch_medians(series)
            if epochs >= 2:
                out["median_low"][spot], out["median_high"][spot] = stats.epoch_median_ci(medians)
                out["ess"][spot] = stats.effective_samples(x, series.epoch)
            else:
                out["ess"][spot] = stats.effective_samples(x)
            if len(medians) >= 4:
                out["drift_p"][spot] = stats.pettitt(medians).p
    return out


def _values(part: xr.Dataset, name: str) -> np.ndarray:
    return np.asarray(part[name].transpose(*SERIES).values)


def _series(x: np.ndarray, epoch: np.ndarray | None, t: np.ndarray | None) -> Series:
    if epoch is None:
        number = np.zeros(len(x), np.int32)
    else:
        number = np.nan_to_num(epoch, nan=-1).astype(np.int32)
        # Samples that belong to no epoch are one of their own rather than lost.
        if (number < 0).any():
            number = np.where(number < 0, number.max() + 1 if len(number) else 0, number).astype(np.int32)
    if t is not None and not np.isfinite(t).all():
        t = None
    return Series(np.ascontiguousarray(x, np.float64), number, t)


def _cut_to(box: list[int], cells: int) -> list[int]:
    """A box no larger than `cells`, cut along its longest side first."""
    box = list(box)
    while int(np.prod(box)) > cells and max(box) > 1:
        axis = int(np.argmax(box))
        box[axis] = max(1, min(box[axis] - 1, cells // max(1, int(np.prod(box)) // box[axis])))
    return box
