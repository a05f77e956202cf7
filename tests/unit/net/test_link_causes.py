"""Slow links with a common end are reported as that rank or host."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from test_link_model import RANKS, all_pairs

from sonde.net.link_causes import Slow, by_cause, by_host


def slow(src: int, dst: int, subject: str = "link", host: str = "") -> Slow:
    return Slow(subject, src, dst, (8,), 2.0, 1.5, 2.5, 1e-6, 1e-9, 1e-8, host)


def pairs():
    return all_pairs(np.zeros((RANKS * (RANKS - 1) // 2, 1)))


def test_links_that_share_a_rank_are_that_rank():
    causes, left = by_cause([slow(3, 4), slow(3, 5), slow(1, 3), slow(6, 7)], pairs())
    assert [(one.subject, one.src, one.links) for one in causes] == [("rank", 3, 3)]
    assert [(one.src, one.dst) for one in left] == [(6, 7)]


def test_two_links_have_no_common_cause():
    causes, left = by_cause([slow(3, 4), slow(3, 5)], pairs())
    assert causes == []
    assert len(left) == 2


def test_all_ranks_of_a_host_are_the_host():
    of_two = replace(pairs(), host=np.array([f"n{rank // 2}" for rank in range(RANKS)]))
    found = by_host([slow(2, 2, "rank", "n1"), slow(3, 3, "rank", "n1"), slow(4, 4, "rank", "n2")], of_two)
    assert sorted((one.subject, one.host) for one in found) == [("host", "n1"), ("rank", "n2")]
