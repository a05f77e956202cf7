"""The common cause of slow links: the rank or the host at which they end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sonde.net.pairs import Pairs

# This number of slow links with a common end have a common cause.
LEAST_OF_CAUSE = 3


@dataclass(frozen=True)
class Slow:
    """One link, or one rank, that is slower than the model predicts.

    subject: "link" | "rank" | "host". src, dst: ranks (equal for a rank; -1 for a host); host: its name.
    sizes: the slow sizes, B. ratio: measured over expected, with its 95 % interval.
    expected: median over those sizes, s (NaN for a rank or host).
    p: one-sided, over all sizes; q: the same after false-discovery control over all links (or ranks).
    links, of: number of slow links of the rank or host, and of all its links; 1 and 1 for a link.
    """

    subject: str
    src: int
    dst: int
    sizes: tuple[int, ...]
    ratio: float
    low: float
    high: float
    expected: float
    p: float
    q: float
    host: str = ""
    links: int = 1
    of: int = 1


def by_cause(links: list[Slow], pairs: Pairs) -> tuple[list[Slow], list[Slow]]:
    """Slow links that share a rank or host, combined: (ranks and hosts, the remaining links).

    A rank, or a host with several ranks, is the cause if LEAST_OF_CAUSE slow links or more end there, and if they are
    half of all slow links, or half of its own links.
    """
    causes: list[Slow] = []
    left = list(links)
    hosts = pairs.host.astype(str) if all(pairs.host) else np.full(pairs.ranks, "")
    while True:
        best: tuple[int, bool, int | str] | None = None
        ends: dict[int | str, list[Slow]] = {}
        for one in left:
            for rank in (one.src, one.dst):
                ends.setdefault(rank, []).append(one)
            for host in {hosts[one.src], hosts[one.dst]} - {""}:
                if int((hosts == host).sum()) > 1:
                    ends.setdefault(str(host), []).append(one)
        for end, group in ends.items():
            half = 2 * len(group) >= len(left) or 2 * len(group) >= int(_ends_at(pairs, hosts, end).sum())
            # If a rank and its host have the same number of slow links, report the rank: it is more specific.
            candidate = (len(group), isinstance(end, int), end)
            if len(group) >= LEAST_OF_CAUSE and half and (best is None or candidate[:2] > best[:2]):
                best = candidate
        if best is None:
            return causes, left
        end = best[2]
        group = ends[end]
        causes.append(_cause(end, group, str(hosts[end]) if isinstance(end, int) else end, pairs, hosts))
        left = [one for one in left if one not in group]


def _ends_at(pairs: Pairs, hosts: np.ndarray, end: int | str) -> np.ndarray:
    """Links with one end at this rank, or with one end at this host and the other elsewhere. (P,) bool"""
    if isinstance(end, int):
        return np.asarray((pairs.src == end) | (pairs.dst == end))
    return np.asarray((hosts[pairs.src] == end) | (hosts[pairs.dst] == end))


def _cause(end: int | str, group: list[Slow], host: str, pairs: Pairs, hosts: np.ndarray) -> Slow:
    rank = end if isinstance(end, int) else -1
    worst = min(group, key=lambda one: one.p)
    return Slow(
        "rank" if rank >= 0 else "host",
        rank,
        rank,
        tuple(sorted({size for one in group for size in one.sizes})),
        float(np.median([one.ratio for one in group])),
        min(one.low for one in group),
        max(one.high for one in group),
        float("nan"),
        worst.p,
        worst.q,
        host,
        len(group),
        int(_ends_at(pairs, hosts, end).sum()),
    )


def by_host(found: list[Slow], pairs: Pairs) -> list[Slow]:
    """Combine the ranks of one host if all of them, at least two, are slow."""
    out: list[Slow] = []
    slow_of: dict[str, list[Slow]] = {}
    for one in found:
        slow_of.setdefault(one.host or f"rank {one.src}", []).append(one)
    for name, group in slow_of.items():
        on_it = pairs.host == name
        if len(group) < 2 or len(group) != int(on_it.sum()):
            out += group
            continue
        worst = min(group, key=lambda s: s.p)
        has = int((on_it[pairs.src] != on_it[pairs.dst]).sum())
        out.append(
            Slow(
                "host",
                -1,
                -1,
                tuple(sorted({size for one in group for size in one.sizes})),
                float(np.median([one.ratio for one in group])),
                min(one.low for one in group),
                max(one.high for one in group),
                float("nan"),
                worst.p,
                worst.q,
                name,
                has,
                has,
            )
        )
    return sorted(out, key=lambda s: -s.ratio)
