"""Networks with known truth to test the analysis on, because the slow links of a real network are unknown.

The law is that of real traces: a link's delay depends on its class, its ranks and itself; over time it is in regimes
that outlast a burst; within a burst delays are lognormal above a minimum, with rare outliers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from sonde.core import stats
from sonde.core.described import variables
from sonde.net.schema import RAW, SUMMARY, coordinates

Factor = float | tuple[float, ...]  # for all sizes, or one for each
# From this number of epochs on, the interval of a median is between two of them, whatever their values are.
SIGN_TEST_EPOCHS = 6


@dataclass(frozen=True)
class Network:
    """An invented machine.

    ranks, ranks_per_host, hosts_per_switch : ranks fill hosts, hosts fill switches
    sizes : B
    start_up_s : latency at 0 B within a host, within a switch, across switches
    bandwidth : B/s, same order
    link_spread, rank_spread : sd of the log of a link's and a rank's own factor, constant over a run
    regime_share, regime_ratio : share of time in which a link is in its slow regime, and its delay there over that
    outside
    regime_epochs : mean length of a slow regime, in epochs
    epoch_spread : sd of the log of other differences between epochs
    jitter : sigma of the lognormal part within a burst, as a share of the delay
    outlier_share, outlier_ratio : frequency and size of outliers
    slow_links, slow_ranks, slow_hosts : factor by (src, dst) (both directions), by rank (all its links) and by host
    (its links to other hosts, as with a slow adapter); one for all sizes, or one for each
    eager_limit, rendezvous_s : above this size a handshake of this length is added
    event_epoch, event_ratio : from this epoch on the whole machine is slower by this factor
    """

    ranks: int = 64
    ranks_per_host: int = 2
    hosts_per_switch: int = 8
    sizes: tuple[int, ...] = (8, 1024, 65536)
    start_up_s: tuple[float, float, float] = (0.4e-6, 1.3e-6, 1.8e-6)
    bandwidth: tuple[float, float, float] = (8e9, 11e9, 10e9)
    link_spread: float = 0.015
    rank_spread: float = 0.015
    regime_share: float = 0.2
    regime_ratio: float = 1.25
    regime_epochs: float = 3.0
    epoch_spread: float = 0.03
    jitter: float = 0.08
    outlier_share: float = 0.005
    outlier_ratio: float = 10.0
    slow_links: Mapping[tuple[int, int], Factor] = field(default_factory=dict)
    slow_ranks: Mapping[int, Factor] = field(default_factory=dict)
    slow_hosts: Mapping[int, Factor] = field(default_factory=dict)
    eager_limit: int | None = None
    rendezvous_s: float = 1.0e-6
    event_epoch: int | None = None
    event_ratio: float = 1.0

    def hosts(self) -> np.ndarray:
        """(ranks,) int, the host of each rank."""
        return np.arange(self.ranks) // self.ranks_per_host

    def levels(self) -> np.ndarray:
        """(ranks, ranks) int: 0 same host, 1 same switch, 2 across switches."""
        host = self.hosts()
        switch = host // self.hosts_per_switch
        return np.where(host[:, None] == host, 0, np.where(switch[:, None] == switch, 1, 2))

    def latency(self) -> np.ndarray:
        """(ranks, ranks, sizes) in s: start-up and bandwidth of a pair's level, without spread and slow links."""
        level = self.levels()[..., None]
        size = np.array(self.sizes, float)
        out = np.array(self.start_up_s)[level] + size / np.array(self.bandwidth)[level]
        if self.eager_limit is not None:
            out = out + self.rendezvous_s * (size > self.eager_limit)
        return np.asarray(out, float)

    def links(self, rng: np.random.Generator) -> np.ndarray:
        """(ranks, ranks, sizes) in s: the true median of each link outside its slow regime. Symmetric."""
        link = np.triu(rng.normal(0, self.link_spread, (self.ranks, self.ranks)), 1)
        own = rng.normal(0, self.rank_spread, self.ranks)
        factor = (link + link.T + own[:, None] + own[None, :])[..., None] + np.zeros(len(self.sizes))
        for r, ratio in self.slow_ranks.items():
            factor[r] += np.log(ratio)
            factor[:, r] += np.log(ratio)
        host = self.hosts()
        for h, ratio in self.slow_hosts.items():
            factor[(host == h)[:, None] != (host == h)[None, :]] += np.log(ratio)
        for (i, j), ratio in self.slow_links.items():
            factor[i, j] += np.log(ratio)
            factor[j, i] += np.log(ratio)
        out = self.latency() * np.exp(factor)
        out[np.arange(self.ranks), np.arange(self.ranks)] = np.nan
        return out

    def epoch_medians(self, epochs: int, rng: np.random.Generator) -> np.ndarray:
        """(ranks, ranks, sizes, epochs) in s: the median of each burst, regimes included."""
        links = self.links(rng)
        shape = (*links.shape, epochs)
        regime = _regimes(shape, self.regime_share, self.regime_epochs, rng)
        log = rng.normal(0, self.epoch_spread, shape) + np.log(self.regime_ratio) * regime
        if self.event_epoch is not None:
            log[..., self.event_epoch :] += np.log(self.event_ratio)
        return np.asarray(links[..., None] * np.exp(log))

    def raw(self, epochs: int = 20, samples: int = 20, seed: int = 0) -> xr.Dataset:
        """A whole /raw of net/1 with `samples` delays in each of `epochs` bursts per cell."""
        rng = np.random.default_rng(seed)
        centre = self.epoch_medians(epochs, rng)
        n = epochs * samples
        shape = (*centre.shape[:3], n)
        body = np.repeat(centre, samples, axis=3)
        noise = 1 + self.jitter * (rng.lognormal(0, 0.5, shape) - 1)
        outlier = np.where(rng.random(shape) < self.outlier_share, self.outlier_ratio, 1.0)
        latency = body * noise * outlier
        epoch = np.broadcast_to(np.repeat(np.arange(epochs), samples), shape)
        ranks, sizes = self.ranks, len(self.sizes)
        burst_s = np.nansum(centre, axis=(0, 1, 2)).max() * samples
        visit = rng.random((ranks, ranks, sizes, epochs))
        start = (np.arange(epochs) + visit) * burst_s
        within = np.cumsum(latency.reshape(*centre.shape, samples), axis=-1) * 2
        t_start = (
            start[..., None] + np.concatenate([np.zeros((*centre.shape, 1)), within[..., :-1]], -1)
        ).reshape(shape)
        here = np.isfinite(latency)
        return raw_dataset(
            self.sizes,
            latency,
            np.where(here, epoch, -1),
            np.where(here, t_start, np.nan),
            host=np.array([f"n{h:03d}" for h in self.hosts()]),
        )

    def summary(self, epochs: int, rng: np.random.Generator) -> xr.Dataset:
        """Medians with their intervals directly from epoch medians: the results of `analyse`, much faster."""
        return summary_of_medians(
            self.sizes,
            self.epoch_medians(epochs, rng),
            host=np.array([f"n{h:03d}" for h in self.hosts()]),
        )


def raw_dataset(
    sizes: tuple[int, ...],
    latency: np.ndarray,
    epoch: np.ndarray,
    t_start: np.ndarray | None = None,
    host: np.ndarray | None = None,
    value: str = "rtt_half",
) -> xr.Dataset:
    """/raw of net/1 from arrays (src, dst, size, sample)."""
    ranks = latency.shape[0]
    n = np.isfinite(latency).sum(axis=-1).astype(np.int32)
    data: dict[str, Any] = {
        "latency": RAW["latency"].with_values(latency, {"value": value}),
        **variables(RAW, {"epoch": epoch, "n": n, "status": (n > 0).astype(np.int8)}),
    }
    if t_start is not None:
        data["t_start"] = RAW["t_start"].with_values(t_start)
    if host is not None:
        data["host"] = RAW["host"].with_values(host)
    return xr.Dataset(data, coords=_coords(ranks, sizes))


def summary_of_medians(
    sizes: tuple[int, ...], medians: np.ndarray, host: np.ndarray | None = None, value: str = "rtt_half"
) -> xr.Dataset:
    """/summary with median, its interval and epochs from epoch medians (src, dst, size, epoch)."""
    ranks, epochs = medians.shape[0], medians.shape[3]
    low, high = _median_intervals(medians)
    data: dict[str, Any] = {
        "median": np.median(medians, axis=3),
        "q05": np.quantile(medians, 0.05, axis=3),
        "median_low": low,
        "median_high": high,
        "epochs": np.where(np.isfinite(low), epochs, 0),
    }
    if host is not None:
        data["host"] = host
    return xr.Dataset(variables(SUMMARY, data), coords=_coords(ranks, sizes), attrs={"value": value})


def _median_intervals(medians: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of `stats.epoch_median_ci` of each cell: (src, dst, size, epoch) -> (src, dst, size).

    NaN if an epoch is missing.
    """
    epochs = medians.shape[3]
    if epochs >= SIGN_TEST_EPOCHS:
        ordered = np.sort(medians, axis=3)
        ends = []
        for place in stats.epoch_median_ci(np.arange(epochs, dtype=float)):
            below = min(int(place), epochs - 2)
            share = place - below
            ends.append((1 - share) * ordered[..., below] + share * ordered[..., below + 1])
        known = np.isfinite(medians).all(axis=3)
        return np.where(known, ends[0], np.nan), np.where(known, ends[1], np.nan)
    low, high = np.full(medians.shape[:3], np.nan), np.full(medians.shape[:3], np.nan)
    for cell in np.argwhere(np.isfinite(medians).all(axis=3)):
        low[tuple(cell)], high[tuple(cell)] = stats.epoch_median_ci(medians[tuple(cell)])
    return low, high


def _coords(ranks: int, sizes: tuple[int, ...]) -> dict[str, xr.Variable]:
    return {
        name: xr.Variable((name,), values, dict(attrs))
        for name, (values, attrs) in coordinates(ranks, sizes).items()
    }


def _regimes(shape: tuple[int, ...], share: float, length: float, rng: np.random.Generator) -> np.ndarray:
    """A two-state Markov chain along the last axis, started in its stationary law: 1 in the slow regime."""
    leave = 1 / max(length, 1.0)
    enter = share / max(1 - share, 1e-9) * leave
    state = np.empty(shape, bool)
    state[..., 0] = rng.random(shape[:-1]) < share
    draw = rng.random(shape)
    for k in range(1, shape[-1]):
        state[..., k] = np.where(state[..., k - 1], draw[..., k] > leave, draw[..., k] < enter)
    return state
