"""The model of links' delays: medians without NaN, and effects of ranks that slow links do not move."""

from __future__ import annotations

import numpy as np

from sonde.net.link_model import fitted, median_last
from sonde.net.pairs import Pairs

RANKS = 8


def all_pairs(log_latency: np.ndarray) -> Pairs:
    src, dst = np.triu_indices(RANKS, 1)
    links = len(src)
    return Pairs(
        src=src,
        dst=dst,
        size=np.array([8]),
        log_latency=log_latency,
        log_error=np.full((links, 1), 0.01),
        degrees=np.full((links, 1), 10.0),
        ways=log_latency[:, None, :],
        low=np.full((links, 1, 1), np.nan),
        ranks=RANKS,
        directed=False,
        level=np.full(links, -1),
        host=np.full(RANKS, ""),
    )


def test_medians_leave_out_what_is_missing():
    x = np.array([[3.0, np.nan, 1.0, 2.0], [np.nan] * 4, [1.0, 2.0, np.nan, np.nan]])
    np.testing.assert_array_equal(median_last(x), [2.0, 0.0, 1.5])


def test_a_slow_rank_moves_its_effect_and_a_slow_link_its_rest():
    src, dst = np.triu_indices(RANKS, 1)
    y = np.zeros((len(src), 1))
    y[(src == 2) | (dst == 2)] += 0.5
    link = int(np.flatnonzero((src == 4) & (dst == 6))[0])
    y[link] += 1.0
    pairs = all_pairs(y)
    fit = fitted(pairs, pairs.ways, np.zeros(len(src), int))
    assert abs(fit.effect[0, 2, 0] - fit.effect[0, 0, 0] - 0.5) < 0.05
    assert fit.rest[link, 0, 0] > 0.9
    others = np.delete(fit.rest[:, 0, 0], link)
    assert np.abs(others).max() < 0.1
