"""Jumps: message lengths at which delays change course, and moments at which they changed permanently.

Over lengths, a delay is modelled as piecewise linear in the size. A buffer that overflows or a protocol switch appears
as a jump or a new slope; if all pairs show it at one size, it belongs to the network, not to a link.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats as sps

from sonde.core import stats
from sonde.core.comparison import LEAST_ERROR
from sonde.net.pairs import Pairs

ALPHA = 0.01
# A delay is never linear to more precision than this; smaller steps are not jumps.
LEAST_MISFIT = 0.02
LEAST_JUMP = 0.05
# The share of pairs that must shift together for an event of the machine.
LEAST_SHARE = 0.5
# Longer lists of sizes are thinned to this number before the search for breaks.
MOST_SIZES = 400


@dataclass(frozen=True)
class Jump:
    """A break between two neighbouring sizes, B.

    src, dst : the pair, -1 and -1 for the median of all pairs or of a class; link_class : -1 unless of one class
    height : s, delay at size_high above the value from the slope before; ratio : the delay over that value
    slope_before, slope_after : s/B, NaN if a side has one size
    p : of such a break by noise and misfit only, over all tried places; share : pairs that show it (NaN for one pair)
    """

    src: int
    dst: int
    link_class: int
    size_low: int
    size_high: int
    height: float
    ratio: float
    slope_before: float
    slope_after: float
    p: float
    share: float


@dataclass(frozen=True)
class Event:
    """A moment from which on delays are different: t in s since the run began, epoch at this moment.

    src, dst : the cell, -1 for the whole machine; ratio : after over before; share : cells that moved in the same
    direction
    """

    t: float
    epoch: int
    src: int
    dst: int
    ratio: float
    share: float
    p: float


def breaks(size: np.ndarray, delay: np.ndarray, error: np.ndarray, alpha: float = ALPHA) -> list[int]:
    """The positions at which a piecewise linear delay breaks.

    Parameters
    ----------
    size : (S,) B, ascending; delay : (S,) s; error : (S,) s, standard errors of delay
    alpha : the largest p of a break

    Returns
    -------
    Positions k, ascending: a new piece begins at size[k]. [] with fewer than 5 sizes. Every piece has at least two
    sizes, so a single odd size is not a piece.

    Source: best partition by dynamic programming (Bellman & Roth, J. Am. Stat. Assoc. 64, 1969, 1079-1084)
    with the known errors; the cost of a piece is the value that chi-square with its three parameters reaches by chance
    at any of S places.
    """
    count = len(size)
    if count < 5:
        return []
    cost = _piece_costs(size.astype(float), delay, error)
    price = float(sps.chi2.isf(alpha / count, 3))
    best = np.full(count + 1, np.inf)
    best[0] = -price
    back = np.zeros(count + 1, int)
    for end in range(2, count + 1):
        total = best[: end - 1] + cost[: end - 1, end] + price
        back[end] = int(total.argmin())
        best[end] = total[back[end]]
    cuts = []
    at = count
    while at > 0:
        at = int(back[at])
        if at > 0:
            cuts.append(at)
    return cuts[::-1]


def size_jumps(pairs: Pairs, classes: np.ndarray, alpha: float = ALPHA) -> list[Jump]:
    """Breaks over message lengths of every class of links, and the share of its pairs that have each.

    Parameters
    ----------
    pairs : links with medians and errors; classes : (P,) int

    Returns
    -------
    Jumps of classes, in order of class and size; [] with fewer than 5 sizes. A break counts if the median over a
    class's links shows it. `share`, the share of links that move in the same direction beyond their own noise, shows
    whether it belongs to the network.
    """
    out: list[Jump] = []
    if len(pairs.size) < 5 or len(pairs) == 0:
        return out
    order = np.argsort(pairs.size, kind="stable")
    if len(order) > MOST_SIZES:
        order = order[np.unique(np.linspace(0, len(order) - 1, MOST_SIZES).round().astype(int))]
    for k in np.unique(classes):
        mine = classes == k
        y = pairs.log_latency[mine][:, order]
        with np.errstate(invalid="ignore"):
            present = np.isfinite(y).any(axis=0)
        if present.sum() < 5:
            continue
        y, size = y[:, present], pairs.size[order][present]
        own = np.nan_to_num(pairs.log_error[mine][:, order][:, present], nan=LEAST_ERROR)
        delay = np.exp(np.nanmedian(y, axis=0))
        error = delay * np.hypot(np.median(own, axis=0) / np.sqrt(len(y)), LEAST_MISFIT)
        cuts = breaks(size, delay, error, alpha)
        for n, cut in enumerate(cuts):
            low = cuts[n - 1] if n else 0
            high = cuts[n + 1] if n + 1 < len(cuts) else len(size)
            jump = _jump(size, delay, error, low, cut, high)
            if jump is None:
                continue
            height, ratio, before, after, p = jump
            grown = (np.exp(y[:, cut]) - _carried(size, np.exp(y), low, cut)) / np.exp(y[:, cut - 1])
            # A noisy slope, extended, can exceed twice the delay: a fall out of the logarithm's range is still a fall,
            # and must be counted as one.
            steps = np.log1p(np.maximum(grown, -1 + 1e-9))
            noise = 2 * np.hypot(own[:, cut], LEAST_MISFIT)
            moved = np.sign(height) * steps > noise
            known = np.isfinite(steps)
            share = float(moved[known].mean()) if known.any() else float("nan")
            out.append(
                Jump(
                    -1, -1, int(k), int(size[cut - 1]), int(size[cut]), height, ratio, before, after, p, share
                )
            )
    return out


def pair_jumps(
    pairs: Pairs, rows: np.ndarray, common: list[Jump], classes: np.ndarray, alpha: float = ALPHA
) -> list[Jump]:
    """Breaks of single pairs that their class does not show.

    Parameters
    ----------
    rows : (R,) pairs to examine; common : from size_jumps

    Returns
    -------
    Jumps with src and dst, p corrected for all rows; [] with fewer than 5 sizes.
    """
    out: list[Jump] = []
    order = np.argsort(pairs.size, kind="stable")
    for row in rows:
        y = pairs.log_latency[row, order]
        present = np.isfinite(y)
        if present.sum() < 5:
            continue
        size, delay = pairs.size[order][present], np.exp(y[present])
        own = np.nan_to_num(pairs.log_error[row, order][present], nan=LEAST_MISFIT)
        error = delay * np.hypot(own, LEAST_MISFIT)
        theirs = {j.size_high for j in common if j.link_class == classes[row]}
        cuts = breaks(size, delay, error, alpha / max(len(rows), 1))
        for n, cut in enumerate(cuts):
            near = set(size[max(cut - 1, 0) : cut + 2].tolist())
            low, high = cuts[n - 1] if n else 0, cuts[n + 1] if n + 1 < len(cuts) else len(size)
            jump = _jump(size, delay, error, low, cut, high)
            if jump is None or theirs & near:
                continue
            height, ratio, before, after, p = jump
            place = int(pairs.src[row]), int(pairs.dst[row]), -1, int(size[cut - 1]), int(size[cut])
            out.append(Jump(*place, height, ratio, before, after, min(1.0, p * len(rows)), float("nan")))
    return out


def machine_events(level: np.ndarray, t: np.ndarray, alpha: float = ALPHA) -> list[Event]:
    """Moments at which most cells moved together.

    Parameters
    ----------
    level : (C, E) log of epoch medians of C cells in E epochs, NaN if missing; t : (C, E) their times, s

    Returns
    -------
    Events of the whole machine, in order of time; [] with fewer than 10 epochs or 2 cells.

    The common part of cells in an epoch is the median over cells of their distance from their own median. A change of
    it counts if Pettitt's test finds it and more than half of the cells moved in the same direction.

    Source: Pettitt, Applied Statistics 28, 1979, 126-135, by binary segmentation
    (sonde.core.stats.change_points).
    """
    cells, epochs = level.shape
    if cells < 2 or epochs < 10:
        return []
    with np.errstate(invalid="ignore"):
        centred = level - _nanmedian(level, 1)[:, None]
        common = _nanmedian(centred, 0)
        when = _nanmedian(t, 0)
    valid = np.flatnonzero(np.isfinite(common))
    if len(valid) < 10:
        return []
    found = stats.change_points(common[valid], alpha, 4)
    edges = [0, *(c.index for c in found), len(valid)]
    out = []
    for k, change in enumerate(found):
        before, after = valid[edges[k] : edges[k + 1]], valid[edges[k + 1] : edges[k + 2]]
        step = float(np.median(common[after]) - np.median(common[before]))
        with np.errstate(invalid="ignore"):
            own = _nanmedian(centred[:, after], 1) - _nanmedian(centred[:, before], 1)
        share = float(np.mean(np.sign(own[np.isfinite(own)]) == np.sign(step)))
        # By chance, half of the cells move in either direction.
        if abs(step) >= np.log1p(LEAST_JUMP) and share > (1 + LEAST_SHARE) / 2:
            at = int(valid[change.index])
            out.append(Event(float(when[at]), at, -1, -1, float(np.exp(step)), share, change.p))
    return out


# ---- pieces -----------------------------------------------------------------------------------


def _piece_costs(x: np.ndarray, y: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Weighted squared residual of the best line through x[i:j], for all i < j: (S, S + 1)."""
    count = len(x)
    unit = float(np.median(y))
    # Scaled, so that the running sums stay precise.
    x, y, w = x / max(float(x.max()), 1.0), y / unit, (unit / error) ** 2

    def running(v: np.ndarray) -> np.ndarray:
        return np.concatenate([[0.0], np.cumsum(v)])

    sums = [running(v) for v in (w, w * x, w * y, w * x * x, w * x * y, w * y * y)]
    s, sx, sy, sxx, sxy, syy = (v[None, :] - v[:, None] for v in sums)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_x, mean_y = sx / s, sy / s
        var_x, cov, var_y = sxx - s * mean_x**2, sxy - s * mean_x * mean_y, syy - s * mean_y**2
        rest = var_y - np.where(var_x > 1e-14 * s, cov**2 / np.where(var_x > 0, var_x, 1), 0)
    return np.asarray(np.maximum(np.nan_to_num(rest), 0)[:count])


def _line(size: np.ndarray, delay: np.ndarray, error: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Start-up, slope and their covariance of a weighted line."""
    design = np.column_stack([np.ones(len(size)), size.astype(float)]) / error[:, None]
    unit = np.array([1.0, max(float(size.max()), 1.0)])
    inverse = np.linalg.pinv((design * (1 / unit)).T @ (design * (1 / unit))) / np.outer(unit, unit)
    fit = inverse @ (design.T @ (delay / error))
    return float(fit[0]), float(fit[1]), inverse


def _jump(
    size: np.ndarray, delay: np.ndarray, error: np.ndarray, low: int, cut: int, high: int
) -> tuple[float, float, float, float, float] | None:
    """Height, ratio, slopes and p of a break at `cut` between pieces [low, cut) and [cut, high)."""
    left, right = slice(low, cut), slice(cut, high)
    a0, a1, _ = _line(size[left], delay[left], error[left])
    b0, b1, _ = _line(size[right], delay[right], error[right])
    at = float(size[cut])
    expected = a0 + a1 * at
    height = b0 + b1 * at - expected
    both = slice(low, high)
    c0, c1, _ = _line(size[both], delay[both], error[both])
    apart = sum(
        float((((delay[part] - u - v * size[part]) / error[part]) ** 2).sum())
        for part, u, v in ((left, a0, a1), (right, b0, b1))
    )
    whole = float((((delay[both] - c0 - c1 * size[both]) / error[both]) ** 2).sum())
    p = min(1.0, float(sps.chi2.sf(max(whole - apart, 0), 2)) * max(high - low - 3, 1))
    ratio = (expected + height) / expected if expected > 0 else float("nan")
    slope = abs(b1 - a1) * float(size[high - 1] - size[cut]) / delay[high - 1]
    if abs(height) < LEAST_JUMP * delay[cut] and slope < LEAST_JUMP:
        return None
    return height, float(ratio), a1, b1, p


def _carried(size: np.ndarray, delay: np.ndarray, low: int, cut: int) -> np.ndarray:
    """The value at size[cut] of each pair's line through [low, cut): (P,)."""
    x = size[low:cut].astype(float)
    y = delay[:, low:cut]
    if len(x) < 2 or np.ptp(x) == 0:
        return np.asarray(y[:, -1])
    centred = x - x.mean()
    slope = (y * centred).sum(axis=1) / (centred**2).sum()
    return np.asarray(y.mean(axis=1) + slope * (float(size[cut]) - x.mean()))


def _nanmedian(x: np.ndarray, axis: int) -> np.ndarray:
    """nanmedian that returns NaN for empty input without a warning."""
    ordered = np.sort(np.moveaxis(x, axis, -1), axis=-1)
    n = np.isfinite(ordered).sum(axis=-1, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum((n - 1) // 2, 0), axis=-1)
    high = np.take_along_axis(ordered, np.minimum(n // 2, ordered.shape[-1] - 1), axis=-1)
    return np.where(n > 0, (low + high) / 2, np.nan)[..., 0]
