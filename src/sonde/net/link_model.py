"""The model of links' delays by which slow links are found: a class, and effects of both ranks, fitted by medians."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sonde.net.pairs import LEAST_LINKS_OF_RANK, LEAST_RANKS, Pairs


@dataclass
class Fit:
    """The model of all classes.

    bare : (P,), whether a rank of the link has too few links in its class for an effect there
    rest : (P, W, S), by direction and size. effect : (2, N, S), a rank as sender and as receiver, in the
        class with most of its links.
    weight : (N, S), links behind the effect. widen : (P,), factor by which the fit has reduced the rest.
    """

    bare: np.ndarray
    rest: np.ndarray
    effect: np.ndarray
    weight: np.ndarray
    widen: np.ndarray


def fitted(pairs: Pairs, y: np.ndarray, classes: np.ndarray) -> Fit:
    """The two-way model of y (P, W, S) in every class."""
    rows, ways, sizes = y.shape
    fit = Fit(
        np.zeros(rows, bool),
        np.full(y.shape, np.nan),
        np.full((2, pairs.ranks, sizes), np.nan),
        np.zeros((pairs.ranks, sizes)),
        np.ones(rows),
    )
    for k in np.unique(classes):
        mine = np.flatnonzero(classes == k)
        rest, effect, free = _two_way(pairs.take(mine), y[mine].reshape(len(mine), ways * sizes))
        fit.rest[mine] = rest.reshape(len(mine), ways, sizes)
        fit.widen[mine] = np.sqrt(len(mine) / max(len(mine) - free, len(mine) / 4))
        counts = np.bincount(np.concatenate([pairs.src[mine], pairs.dst[mine]]), minlength=pairs.ranks)
        enough = np.where(counts >= LEAST_LINKS_OF_RANK, counts, 0)[:, None]
        fit.bare[mine] = np.minimum(counts[pairs.src[mine]], counts[pairs.dst[mine]]) < LEAST_LINKS_OF_RANK
        better = np.broadcast_to(enough, fit.weight.shape) > fit.weight
        fit.effect[:, better] = effect.reshape(2, pairs.ranks, ways, sizes).mean(axis=2)[:, better]
        fit.weight = np.where(better, enough, fit.weight)
    return fit


def _two_way(pairs: Pairs, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Rest (P, S) and effects (2, N, S) of one class by medians, and the number of fitted effects."""
    rest = pairs.matrix(y - median_last(y.T))
    ranks, sizes = pairs.ranks, y.shape[1]
    effect = np.zeros((2, ranks, sizes))
    measured = np.isfinite(rest).any(axis=2)
    senders = measured.sum(axis=1) >= LEAST_LINKS_OF_RANK
    receivers = measured.sum(axis=0) >= LEAST_LINKS_OF_RANK
    # A class in which few ranks have enough links cannot distinguish ranks from links.
    if ranks < LEAST_RANKS or senders.sum() < 3 or receivers.sum() < 3:
        return rest[pairs.src, pairs.dst], effect, 1
    for _ in range(12):
        if pairs.directed:
            step = median_last(rest.transpose(0, 2, 1)) * senders[:, None]
            effect[0] += step
            rest -= step[:, None, :]
            step = median_last(rest.transpose(1, 2, 0)) * receivers[:, None]
            effect[1] += step
            rest -= step[None, :, :]
        else:
            # Both ends move at once; the damping keeps them from overshooting together.
            step = 0.7 * median_last(rest.transpose(0, 2, 1)) * senders[:, None]
            effect += step
            rest -= step[:, None, :] + step[None, :, :]
        rest -= median_last(rest.reshape(-1, sizes).T)
        if np.abs(step).max(initial=0.0) < 1e-4:
            break
    free = int(senders.sum()) + (int(receivers.sum()) - 1 if pairs.directed else 0)
    return rest[pairs.src, pairs.dst], effect, free


def median_last(x: np.ndarray) -> np.ndarray:
    """Median over the last axis, without NaN; 0 for empty input. Much faster than nanmedian."""
    ordered = np.sort(x, axis=-1)
    n = np.isfinite(x).sum(axis=-1, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum((n - 1) // 2, 0), axis=-1)
    high = np.take_along_axis(ordered, np.minimum(n // 2, x.shape[-1] - 1), axis=-1)
    return np.where(n > 0, (low + high) / 2, 0.0)[..., 0]
