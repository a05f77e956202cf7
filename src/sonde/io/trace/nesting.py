"""Compute which call was made within which from times alone: self time, layers above, call paths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Nested:
    """Calls of one thread in the order in which they began.

    order : positions of the calls in the input; the other arrays have this order
    parent : position in `order` of the call around each; -1 for none
    level : number of calls around each
    self_ns : duration less that of the calls within
    """

    order: np.ndarray
    parent: np.ndarray
    level: np.ndarray
    self_ns: np.ndarray


def nested(begin: np.ndarray, duration: np.ndarray, depth: np.ndarray) -> Nested:
    """Nest the calls of one thread.

    A call is within another if it began after it and ended no later. Calls that overlap in another way, as when a
    program switches stacks by hand, are siblings.

    begin, duration : ns; depth : as recorded; shows which of two calls that began in the same ns is the outer one
    """
    order = np.lexsort((depth, -duration, begin))
    first, last = begin[order], begin[order] + duration[order]
    n = len(order)
    parent, level = np.full(n, -1, np.int64), np.zeros(n, np.int32)
    left = np.arange(n)
    above = np.zeros(0, np.int64)
    step = 0
    while left.size:
        ends = last[left]
        before = np.empty_like(ends)
        before[0] = np.iinfo(np.int64).min
        np.maximum.accumulate(ends[:-1], out=before[1:])
        outer = ends > before
        # A call is also within another if both end together and the other did not begin later, except if both took no
        # time.
        outer |= (ends == before) & (first[left] >= before)
        mine = left[outer]
        level[mine] = step
        if step:
            place = np.searchsorted(above, mine) - 1
            inside = (place >= 0) & (last[above[place]] >= last[mine])
            parent[mine[inside]] = above[place[inside]]
        above, left, step = mine, left[~outer], step + 1
    self_ns = duration[order].astype(np.int64).copy()
    within = parent >= 0
    np.subtract.at(self_ns, parent[within], duration[order][within])
    return Nested(order, parent, level, np.maximum(self_ns, 0))
