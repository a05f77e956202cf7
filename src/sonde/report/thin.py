"""Fewer points to draw, nothing hidden: extremes stay, and every reduction is described in the figure. Pure."""

from __future__ import annotations

import numpy as np


def envelope(y: np.ndarray, most: int, group: np.ndarray | None = None) -> np.ndarray:
    """Indices, ascending, of the smallest and largest sample of every stretch of equal length.

    y: (n,) with NaN for holes, which are never chosen. most: about the largest number of indices.
    group: (n,) int; a stretch does not cross a change of group while groups are longer than a stretch.
    n <= most gives every index.
    """
    n = y.size
    if n <= most:
        return np.arange(n)
    length = int(np.ceil(n / max(1, most // 2)))
    edges = np.arange(0, n, length)
    if group is not None:
        changes = np.flatnonzero(np.diff(group)) + 1
        if changes.size <= most // 4:
            edges = np.union1d(edges, changes)
    low = np.where(np.isnan(y), np.inf, y)
    high = np.where(np.isnan(y), -np.inf, y)
    ends = np.append(edges[1:], n)
    chosen = np.empty(2 * edges.size, dtype=np.int64)
    for k, (a, b) in enumerate(zip(edges, ends)):
        chosen[2 * k] = a + int(np.argmin(low[a:b]))
        chosen[2 * k + 1] = a + int(np.argmax(high[a:b]))
    return np.unique(chosen)


def steps(p: np.ndarray, most: int) -> np.ndarray:
    """Indices of at most `most` points of a distribution function: even in p, both tails in full.

    p: (n,) ascending. n <= most gives every index.
    """
    n = p.size
    if n <= most:
        return np.arange(n)
    tail = min(100, most // 4)
    inner = np.linspace(tail, n - 1 - tail, most - 2 * tail).round().astype(np.int64)
    return np.unique(np.concatenate([np.arange(tail), inner, np.arange(n - tail, n)]))


def block_size(rows: int, cols: int, values: int, budget: int) -> int:
    """Smallest power of two b with values * ceil(rows / b) * ceil(cols / b) <= budget; 1 when all fit."""
    b = 1
    while values * -(-rows // b) * -(-cols // b) > budget and b < max(rows, cols):
        b *= 2
    return b


def _blocked(a: np.ndarray, b: int) -> np.ndarray:
    rows, cols = -(-a.shape[0] // b), -(-a.shape[1] // b)
    padded = np.full((rows * b, cols * b), np.nan)
    padded[: a.shape[0], : a.shape[1]] = a
    return padded.reshape(rows, b, cols, b).transpose(0, 2, 1, 3).reshape(rows, cols, b * b)


def unusual(a: np.ndarray, b: int, log: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every b × b block: its value that is furthest from the median of all, its smallest and its largest value.

    a: (rows, cols), NaN for unmeasured values. log: distances are ratios. Returns three (rows/b, cols/b); NaN if a
    block is all NaN.
    """
    parts = _blocked(a, b)
    empty = np.isnan(parts).all(axis=2)
    low = np.where(empty, np.nan, np.min(np.where(np.isnan(parts), np.inf, parts), axis=2))
    high = np.where(empty, np.nan, np.max(np.where(np.isnan(parts), -np.inf, parts), axis=2))
    finite = a[np.isfinite(a)]
    middle = float(np.median(finite)) if finite.size else 0.0
    if log and middle > 0:
        with np.errstate(divide="ignore", invalid="ignore"):
            up, down = np.log(high / middle), np.log(middle / low)
    else:
        up, down = high - middle, middle - low
    return np.where(up >= down, high, low), low, high


def rarest(codes: np.ndarray, b: int) -> np.ndarray:
    """For every b × b block of integer codes: its code that is rarest in the whole matrix; negative is a hole.

    Returns (rows/b, cols/b) float; NaN if a block has no code.
    """
    a = np.where(codes < 0, np.nan, codes.astype(float))
    present, counts = np.unique(a[np.isfinite(a)], return_counts=True)
    order = {code: place for place, code in enumerate(present[np.argsort(counts, kind="stable")])}
    rank = np.full(a.shape, np.nan)
    for code, place in order.items():
        rank[a == code] = place
    parts = _blocked(rank, b)
    best = np.min(np.where(np.isnan(parts), np.inf, parts), axis=2)
    back = np.array([*sorted(order, key=lambda c: order[c]), np.nan])
    return back[np.where(np.isfinite(best), best, len(order)).astype(int)]


def maxima(a: np.ndarray, most_rows: int, most_cols: int) -> tuple[np.ndarray, int, int]:
    """A field reduced by the largest value of each tile; returns it with the tile's rows and columns.

    a: (rows, cols). Tiles at the end may be smaller. Within the limits the field comes back unchanged.
    """
    r, c = -(-a.shape[0] // most_rows), -(-a.shape[1] // most_cols)
    if r == c == 1:
        return a, 1, 1
    filled = np.where(np.isnan(a), -np.inf, a)
    reduced = np.maximum.reduceat(filled, np.arange(0, a.shape[0], r), axis=0)
    reduced = np.maximum.reduceat(reduced, np.arange(0, a.shape[1], c), axis=1)
    return np.where(np.isinf(reduced), np.nan, reduced), r, c
