"""The cost of functions by the size of a request, learnt from traces of a configuration. Pure.

Between two measured sizes the cost lies on the straight line between them; beyond the ends, on the line of the sizes
nearest to that end. So each section is a latency plus bytes over a bandwidth, for each layer's part separately. A line
over the logarithm of the size would be wrong: from 4 KiB to 16 MiB, the middle is 256 KiB, and it would get half the
cost of 16 MiB instead of a 64th. The mean is taken for each size, not the median, because a prediction is the sum of
many calls, to which the few long calls belong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sonde.io.predict.calls import FILES, WAITING, Calls, Groups, Key, Part, groups_of, synchronising
from sonde.io.trace import ignored_paths

if TYPE_CHECKING:
    import xarray as xr

PIECES = 20  # the calls of a size in the order of time are cut into these; an interval resamples them
MOST_SIZES = 64  # distinct sizes of a function; with more, four classes to an octave
FEW = 6  # calls of a size; fewer do not show how much such calls differ
LEAVING = "leaving"  # a column: from the end of a rank's collective call to the end of the last rank's
NO_SIZE = -1.0


@dataclass(frozen=True)
class Curve:
    """The costs of a function. Sizes in B, costs in ns.

    size, calls : for each measured size, rising; the first is NO_SIZE if there were calls without a size
    counts : (size, piece) calls. sums : (size, piece, column) their cost
    waits : whether no rank leaves it before all ranks have arrived; None if no trace of several ranks shows it
    """

    size: np.ndarray
    calls: np.ndarray
    counts: np.ndarray
    sums: np.ndarray
    least: float
    most: float
    waits: bool | None

    def means(self, weight: np.ndarray) -> np.ndarray:
        """(draw, size, column) mean costs, with each piece counted `weight` times; weight: (draw, piece)."""
        n = weight @ self.counts.T
        total = np.einsum("dp,spc->dsc", weight, self.sums)
        every = self.sums.sum(axis=1) / self.calls[:, None]
        # A draw may contain no call of a size with few calls: then it uses the mean over all calls.
        return np.where(n[..., None] > 0, total / np.maximum(n, 1)[..., None], every)

    def at(self, means: np.ndarray, size: np.ndarray) -> np.ndarray:
        """(draw, request, column) cost of requests of these sizes, from `means`."""
        has_unsized = self.size[0] == NO_SIZE
        sized = self.size[1:] if has_unsized else self.size
        known = means[:, 1:] if has_unsized else means
        if not len(sized):
            return np.repeat(means[:, :1], len(size), axis=1)
        found = _on_line(sized, known, np.maximum(size, 0.0))
        unknown = size < 0
        if unknown.any():
            share = self.calls / self.calls.sum()
            found[:, unknown] = (means[:, 0] if has_unsized else np.einsum("s,dsc->dc", share, means))[
                :, None
            ]
        return found

    def outside(self, size: np.ndarray) -> np.ndarray:
        """A mask of the sizes that are smaller or larger than all measured ones."""
        return (size >= 0) & ((size < self.least) | (size > self.most))

    def thin(self, size: np.ndarray) -> np.ndarray:
        """A mask of the sizes that rest on too few calls to estimate how much these differ."""
        has_unsized = self.size[0] == NO_SIZE
        sized, calls = (self.size[1:], self.calls[1:]) if has_unsized else (self.size, self.calls)
        if not len(sized):
            return np.full(len(size), self.calls[0] < FEW)
        right = np.clip(np.searchsorted(sized, size), 0, len(sized) - 1)
        left = np.where(sized[right] == size, right, np.maximum(right - 1, 0))
        found = np.minimum(calls[left], calls[right]) < FEW
        found[size < 0] = (self.calls[0] if has_unsized else self.calls.sum()) < FEW
        return found


def _on_line(x: np.ndarray, cost: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Costs at `size` if those at `x` are (draw, x, column) `cost`; never negative."""
    if len(x) == 1:
        # One size cannot separate latency from bandwidth: larger requests scale as pure bandwidth, smaller ones as pure
        # latency.
        factor = np.maximum(size / x[0], 1.0) if x[0] > 0 else np.ones(len(size))
        return cost[:, :1] * factor[None, :, None]
    left = np.clip(np.searchsorted(x, size, side="right") - 1, 0, len(x) - 2)
    part = np.clip((size - x[left]) / (x[left + 1] - x[left]), 0.0, 1.0)[None, :, None]
    found = cost[:, left] * (1 - part) + cost[:, left + 1] * part
    # Beyond the ends, the line goes through sizes that are a factor of two apart, so that the slope is not noise.
    if (under := size < x[0]).any():
        other = min(int(np.searchsorted(x, 2 * x[0])), len(x) - 1)
        slope = np.clip((cost[:, other] - cost[:, 0]) / (x[other] - x[0]), 0.0, cost[:, 0] / x[0])
        found[:, under] = cost[:, :1] - slope[:, None] * (x[0] - size[under])[None, :, None]
    if (over := size > x[-1]).any():
        other = max(int(np.searchsorted(x, x[-1] / 2, side="right")) - 1, 0)
        slope = np.maximum((cost[:, -1] - cost[:, other]) / (x[-1] - x[other]), 0.0)
        found[:, over] = cost[:, -1:] + slope[:, None] * (size[over] - x[-1])[None, :, None]
    return found


@dataclass
class _Samples:
    """Sizes and costs of one function, in the order of time, trace by trace."""

    size: list[np.ndarray] = field(default_factory=list)
    cost: list[np.ndarray] = field(default_factory=list)

    def add(self, begin: np.ndarray, size: np.ndarray, cost: np.ndarray) -> None:
        order = np.argsort(begin, kind="stable")
        self.size.append(size[order])
        self.cost.append(cost[order])

    def curve(self, waits: bool | None) -> Curve:
        size, cost = np.concatenate(self.size), np.concatenate(self.cost)
        size = np.where(size < 0, NO_SIZE, size)
        bin_of = binned(size)
        bins = int(bin_of.max()) + 1
        calls = np.bincount(bin_of, minlength=bins)
        counts = np.zeros((bins, PIECES))
        sums = np.zeros((bins, PIECES, cost.shape[1]))
        for k in range(bins):
            mine = np.flatnonzero(bin_of == k)
            piece = np.arange(len(mine)) * PIECES // len(mine)
            np.add.at(counts[k], piece, 1.0)
            np.add.at(sums[k], piece, cost[mine])
        known = size[size >= 0]
        return Curve(
            np.bincount(bin_of, size, bins) / calls,
            calls,
            counts,
            sums,
            float(known.min()) if len(known) else float("inf"),
            float(known.max()) if len(known) else float("-inf"),
            waits,
        )


def binned(size: np.ndarray, most: int = MOST_SIZES, an_octave: int = 4) -> np.ndarray:
    """Class numbers of sizes, rising without gaps: one class for each size, or parts of an octave if there are more
    than `most` sizes. NO_SIZE and 0 always have their own class."""
    every, which = np.unique(size, return_inverse=True)
    if len(every) <= most:
        return which.reshape(-1)
    part = np.where(every > 0, 2 + np.floor(an_octave * np.log2(np.maximum(every, 1.0))), every + 1)
    return np.unique(part, return_inverse=True)[1].reshape(-1)[which.reshape(-1)]


@dataclass(frozen=True)
class Costs:
    """The learnt costs. columns : of the costs: layers, "system", "waiting", "leaving"."""

    columns: list[str]
    curves: dict[Key, Curve]


def learn(raws: Sequence[xr.Dataset], wanted: set[Key]) -> Costs:
    """Costs of functions in one or more traces of a configuration."""
    columns = list(dict.fromkeys(str(name) for raw in raws for name in raw["layer_name"].values))
    columns += [ignored_paths.LAYER, WAITING, LEAVING]
    samples: dict[Key, _Samples] = {}
    groups = [groups_of(raw) for raw in raws]
    together = synchronising(groups)
    for raw, grouped in zip(raws, groups):
        _learn(Calls(raw, grouped, together), wanted, columns, samples)
    return Costs(
        columns,
        {
            key: one.curve(together.get(key.name) if key.layer == FILES else None)
            for key, one in samples.items()
        },
    )


def _learn(calls: Calls, wanted: set[Key], columns: list[str], samples: dict[Key, _Samples]) -> None:
    groups = calls.groups
    names = sorted({key.layer for key in wanted if key in calls.keys})
    families = [np.array([key in wanted and key.layer == name for key in calls.keys], bool) for name in names]
    parts: list[Part] = [part for _, part in calls.parts(*families) if len(part.event)]
    if not parts:
        return
    event, begin, end, function, size, cost = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("event", "begin", "end", "function", "size", "cost")
    )
    wide = np.zeros((len(event), len(columns)))
    wide[:, [columns.index(name) for name in calls.columns]] = cost
    kinds = sorted({calls.keys[k] for k in np.unique(function).tolist()})
    key_of = np.array([kinds.index(key) if key in kinds else -1 for key in calls.keys])[function]
    at = groups.place(event)
    for number, key in enumerate(kinds):
        one = samples.setdefault(key, _Samples())
        mine = key_of == number
        if not (key.layer == FILES and calls.waits[calls.keys.index(key)]):
            one.add(begin[mine], size[mine], wide[mine])
            continue
        grouped = mine & (at >= 0)
        if (alone := mine & (at < 0)).any():
            one.add(begin[alone], size[alone], wide[alone])
        if grouped.any():
            one.add(*_of_groups(groups, at[grouped], end[grouped], size[grouped], wide[grouped]))


def _of_groups(
    groups: Groups, at: np.ndarray, end: np.ndarray, size: np.ndarray, cost: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each group: when it began, the mean size of its ranks' requests, the mean cost of a rank with its early
    leaving."""
    numbers, which = np.unique(groups.group[at], return_inverse=True)
    which = which.reshape(-1)
    n = np.bincount(which)
    means = np.stack([np.bincount(which, column) / n for column in cost.T], axis=1)
    first = np.zeros(len(numbers), np.int64)
    first[which] = np.arange(len(at))
    arrive, leave = groups.arrive[at][first], groups.leave[at][first]
    means[:, -1] = leave - np.bincount(which, np.maximum(end, arrive[which])) / n
    return arrive, np.bincount(which, size) / n, means
