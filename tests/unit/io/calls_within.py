"""Calls within calls, made up."""

from __future__ import annotations

import random

import numpy as np


def tree_of(seed: int, begin: int = 10):
    """Calls within calls, in the order in which they end: (begin, end, depth, parent's place or -1)."""
    rng, calls, clock = random.Random(seed), [], [begin]

    def one(depth: int) -> int:
        clock[0] += rng.randint(1, 5)
        start, inner = clock[0], []
        for _ in range(rng.randint(0, 3) if depth < 5 else 0):
            inner.append(one(depth + 1))
        clock[0] += rng.randint(1, 9)
        calls.append([start, clock[0], depth, -1])
        for k in inner:
            calls[k][3] = len(calls) - 1
        return len(calls) - 1

    for _ in range(4):
        one(0)
    return np.array(calls)
