"""Pairs of ranks as rows: the form in which links are clustered, modelled and tested.

A summary contains medians as (src, dst, size). If a sample is half a round trip, src→dst and dst→src are the same path
measured twice, and one row represents both; if it is one-way, they are two rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from scipy import stats as sps
from scipy.optimize import brentq
from scipy.special import digamma, polygamma

from sonde.core.comparison import LEAST_ERROR
from sonde.core.errors import DataError

# Finest first. A pair's topological class is the first of these that its two ranks share.
LEVELS = ("core", "l3", "numa", "package", "host")
LEVEL_NAMES = ("same core", "same L3", "same NUMA node", "same package", "same host", "other host")

# A rank's effect needs this many links; with fewer it is 0.
LEAST_LINKS_OF_RANK = 3
# With fewer ranks than this a slow rank cannot be distinguished from others.
LEAST_RANKS = 4


@dataclass(frozen=True)
class Pairs:
    """Links between ranks with their latency over sizes.

    src, dst : (P,) int; directed False means that both directions are in the row and src < dst
    size : (S,) int, B
    log_latency : (P, S), natural log of the median in s; NaN if not measured
    log_error : (P, S), standard error of log_latency from the differences between epochs; NaN if unknown
    degrees : (P, S), degrees of freedom behind log_error; 0 if unknown
    ways : (P, W, S), log of the medians of each direction in the row, W = 1 or 2; NaN if not measured
    low : (P, W, S), log of the 5 % quantiles, which slow spells hardly change; NaN if unknown
    ranks : number of ranks
    level : (P,) int, position in LEVEL_NAMES; -1 if the topology is unknown
    host : (N,) str, "" if unknown
    """

    src: np.ndarray
    dst: np.ndarray
    size: np.ndarray
    log_latency: np.ndarray
    log_error: np.ndarray
    degrees: np.ndarray
    ways: np.ndarray
    low: np.ndarray
    ranks: int
    directed: bool
    level: np.ndarray
    host: np.ndarray

    def __len__(self) -> int:
        return len(self.src)

    def take(self, rows: np.ndarray) -> Pairs:
        """The same with only these rows (indices or a mask)."""
        return replace(
            self,
            src=self.src[rows],
            dst=self.dst[rows],
            log_latency=self.log_latency[rows],
            log_error=self.log_error[rows],
            degrees=self.degrees[rows],
            ways=self.ways[rows],
            low=self.low[rows],
            level=self.level[rows],
        )

    def at_sizes(self, columns: np.ndarray) -> Pairs:
        """The same with only these sizes (indices or a mask)."""
        return replace(
            self,
            size=self.size[columns],
            log_latency=self.log_latency[:, columns],
            log_error=self.log_error[:, columns],
            degrees=self.degrees[:, columns],
            ways=self.ways[:, :, columns],
            low=self.low[:, :, columns],
        )

    def name(self, row: int) -> str:
        """ "3→7" or, for both directions, "3–7"."""
        return f"{self.src[row]}{'→' if self.directed else '–'}{self.dst[row]}"

    def matrix(self, values: np.ndarray, fill: float = np.nan) -> np.ndarray:
        """(P, …) spread over (N, N, …); an undirected row fills both directions."""
        dtype = values.dtype if np.issubdtype(values.dtype, np.integer) else np.float64
        out = np.full((self.ranks, self.ranks, *values.shape[1:]), fill, dtype)
        out[self.src, self.dst] = values
        if not self.directed:
            out[self.dst, self.src] = values
        return out


def pairs_of(summary: xr.Dataset) -> Pairs:
    """Rows from a summary.

    Parameters
    ----------
    summary : median(src, dst, size), s; optional median_low, median_high, epochs, and host, core, l3, numa,
              package over rank. Attribute `value` is the meaning of a sample; "rtt_half" makes rows undirected.

    Returns
    -------
    Pairs. A pair without any positive median, and a rank with itself, has no row; two ranks give one row.

    Raises
    ------
    DataError  net.no_median, as `centre`.
    """
    median = centre(summary)
    ranks = median.shape[0]
    shift, unsure = clock_shift(summary, median)
    median = median - shift
    positive = np.where(median > 0, median, np.nan)
    positive[np.arange(ranks), np.arange(ranks)] = np.nan
    log_latency = np.log(positive)
    log_error, degrees = log_errors(summary)
    log_error = np.sqrt(log_error**2 + (np.nan_to_num(unsure) / positive) ** 2)
    # The 5 % quantile; for files without quantiles, the smallest delay.
    lower = next((name for name in ("q05", "min") if name in summary), None)
    low = _cells(summary, lower) - shift if lower else np.full(median.shape, np.nan)
    log_low = np.log(np.where(low > 0, low, np.nan))
    directed = summary.attrs.get("value", "rtt_half") != "rtt_half"
    measured = ~np.isnan(log_latency).all(axis=2)
    src, dst = np.nonzero(measured if directed else np.triu(measured | measured.T))
    forth, back = (src, dst), (dst, src)
    roads = (forth,) if directed else (forth, back)

    def ways(cells: np.ndarray) -> np.ndarray:
        return np.stack([cells[road] for road in roads], axis=1)

    y, e, d = _mean_way(ways(log_latency), ways(log_error), ways(degrees))
    level = pair_levels(summary)[src, dst]
    host = summary["host"].values.astype(str) if "host" in summary else np.full(ranks, "")
    size = summary["size"].values.astype(np.int64)
    return Pairs(src, dst, size, y, e, d, ways(log_latency), ways(log_low), ranks, directed, level, host)


def clock_shift(summary: xr.Dataset, median: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The part of one-way delays that errors of clocks can explain.

    A clock error adds to one direction what it takes from the other: the mean of both is free of it. Only the part of
    their difference that exceeds the error of both clocks counts.

    Parameters
    ----------
    summary : optional clock_error over rank, s; attribute `value`
    median : (N, N, S), s

    Returns
    -------
    (shift, unsure), each (N, N, S), s. unsure: the error of both clocks if only one direction was measured, so that
    nothing can be subtracted; otherwise 0. All 0 if delays are not one-way, or if no clock error is known.
    """
    none = np.zeros(median.shape)
    if summary.attrs.get("value") != "one_way" or "clock_error" not in summary:
        return none, none
    error = np.abs(np.nan_to_num(summary["clock_error"].values.astype(float)))
    both = np.broadcast_to((error[:, None] + error)[..., None], median.shape)
    half = (median - median.transpose(1, 0, 2)) / 2
    alone = np.isnan(half)
    return np.where(alone, 0.0, np.sign(half) * np.minimum(np.abs(half), both)), np.where(alone, both, 0.0)


def centre(summary: xr.Dataset) -> np.ndarray:
    """The delay of every cell: (src, dst, size), s. Medians; in a file without medians means, or smallest delays.

    Raises
    ------
    DataError  net.no_median: the summary has none of them over src, dst, size.
    """
    for name in ("median", "mean", "min"):
        if name in summary and set(summary[name].dims) == {"src", "dst", "size"}:
            return _cells(summary, name)
    raise DataError(
        "net.no_median",
        "the summary has none of median, mean, min over (src, dst, size)",
        "is this a dataset of `sonde net`? check it with: sonde data validate FILE",
    )


def log_errors(summary: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors of log medians from their 95 % intervals, and the degrees of freedom behind them.

    Returns
    -------
    (errors, degrees), each (N, N, S); NaN and 0 without an interval.

    With fewer than 6 epochs the interval is Student's (core/stats: epoch_median_ci), with more a sign-test's.
    """
    shape = tuple(summary.sizes[d] for d in ("src", "dst", "size"))
    if not {"median_low", "median_high", "epochs"} <= set(summary.variables):
        return np.full(shape, np.nan), np.zeros(shape)
    low, high = _cells(summary, "median_low"), _cells(summary, "median_high")
    epochs = np.nan_to_num(_cells(summary, "epochs"))
    known = (low > 0) & (high >= low) & (epochs >= 2)
    # Two order statistics estimate a spread about a third as precisely as all epochs together.
    degrees = np.where(known, np.where(epochs < 6, epochs - 1, np.maximum((epochs - 1) / 3, 1)), 0.0)
    student = sps.t.ppf(0.975, np.clip(np.arange(6) - 1, 1, None))
    half_width = np.where(epochs < 6, student[np.clip(epochs, 0, 5).astype(int)], sps.norm.ppf(0.975))
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.where(known, (np.log(high) - np.log(low)) / (2 * half_width), np.nan)
    return error, degrees


def pair_levels(summary: xr.Dataset) -> np.ndarray:
    """The topological class of each ordered pair: (N, N) int, position in LEVEL_NAMES; -1 if unknown.

    Two ranks on different hosts are "other host" whatever else is known. Without a host list, ranks count as being on
    one host only if some finer place is known. Unknown places (-1) are shared by no ranks.
    """
    ranks = summary.sizes["src"]
    unknown = np.full((ranks, ranks), -1)
    facts = {
        name: summary[name].values for name in LEVELS if name in summary and summary[name].dims == ("rank",)
    }
    host = facts.pop("host", None)
    if host is not None and not all(str(h) for h in host):
        host = None
    known = {n: v.astype(np.int64) for n, v in facts.items() if (v.astype(np.int64) >= 0).all()}
    if not known and host is None:
        return unknown
    same_host = host[:, None] == host[None, :] if host is not None else np.ones((ranks, ranks), bool)
    out = np.where(same_host, LEVELS.index("host"), len(LEVELS))
    for position in range(len(LEVELS) - 2, -1, -1):
        place = known.get(LEVELS[position])
        if place is not None:
            out = np.where(same_host & (place[:, None] == place[None, :]), position, out)
    return out


def shrunk_errors(error: np.ndarray, degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors shrunk towards their common value, so that a small one by luck does not make a finding.

    Parameters
    ----------
    error, degrees : (P,) or (P, S), of one kind of link; NaN or 0 if unknown

    Returns
    -------
    (errors, degrees), same shape, without NaN; all NaN and 0 if no error is known.

    Source: empirical Bayes variances with a scaled inverse chi-square prior fitted by moments of log
    variances, Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004, article 3, section
    6.2.
    """
    known = np.isfinite(error) & (degrees > 0)
    if not known.any():
        return np.full(error.shape, np.nan), np.zeros(error.shape)
    variance = np.maximum(np.where(known, error, 1.0) ** 2, LEAST_ERROR**2)
    d = np.where(known, degrees, 1.0)
    half = d[known] / 2
    e = np.log(variance[known]) - digamma(half) + np.log(half)
    excess = e.var(ddof=1) - polygamma(1, half).mean() if known.sum() > 1 else 0.0
    if excess > 0:
        prior_degrees = 2 * _trigamma_inverse(excess)
        prior = float(np.exp(e.mean() + digamma(prior_degrees / 2) - np.log(prior_degrees / 2)))
    else:
        prior_degrees = 1e6
        prior = float(np.exp(e.mean()))
    total = prior_degrees + np.where(known, degrees, 0.0)
    shrunk = (prior_degrees * prior + np.where(known, degrees * variance, 0.0)) / total
    return np.sqrt(shrunk), total


def _cells(summary: xr.Dataset, name: str) -> np.ndarray:
    return summary[name].transpose("src", "dst", "size").values.astype(np.float64)


def _mean_way(y: np.ndarray, e: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over directions, (P, W, S) each; a single direction if the other is missing."""
    present = np.isfinite(y)
    count = np.maximum(present.sum(axis=1), 1)
    mean = np.where(present.any(axis=1), np.where(present, y, 0).sum(axis=1) / count, np.nan)
    error = np.where(present.any(axis=1), np.sqrt(np.where(present, e**2, 0.0).sum(axis=1)) / count, np.nan)
    return mean, error, np.where(present & np.isfinite(e), d, 0.0).sum(axis=1)


def _trigamma_inverse(y: float) -> float:
    return float(np.exp(brentq(lambda log_x: float(polygamma(1, np.exp(log_x))) - y, -15.0, 25.0)))
