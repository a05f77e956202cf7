"""Made networks of 8 to 256 hosts with one slow host, rank or link: how often it is named, and nothing else.

Slow at all message sizes, at the larger half of them, or at one, by 1.2 to 10 times. A slow host is slow towards other
hosts, as with a sick adapter.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import binomtest

from bench.rows import Row, row
from sonde.net.classes import link_classes
from sonde.net.links import slow_links
from sonde.net.pairs import pairs_of
from sonde.net.synthetic import Network

SIZES = (8, 1024, 65536)
EPOCHS = 20
RATIOS = (1.2, 1.5, 2.0, 10.0)
# hosts, ranks on each, runs of each kind, pattern and ratio
NETWORKS = (
    (8, 1, 40),
    (8, 2, 40),
    (16, 1, 40),
    (16, 2, 40),
    (32, 1, 20),
    (64, 1, 20),
    (128, 1, 5),
    (256, 1, 2),
)
KINDS = ("host", "rank", "link")
PATTERNS = ("all sizes", "the larger sizes", "one size")
SEED = 27

Name = tuple[str, ...]


def named(net: Network, rng: np.random.Generator) -> set[Name]:
    """What one run of the network names as slow."""
    pairs = pairs_of(net.summary(EPOCHS, rng))
    test = slow_links(pairs, link_classes(pairs).expected)
    names: set[Name] = {("link", str(one.src), str(one.dst)) for one in test.links}
    for one in test.ranks:
        # Where a host has one rank, the rank is the host.
        alone = one.subject == "rank" and int((pairs.host == one.host).sum()) == 1
        names.add(("host", one.host) if alone or one.subject == "host" else ("rank", str(one.src)))
    return names


def sick(
    hosts: int, per_host: int, kind: str, pattern: str, ratio: float, rng: np.random.Generator
) -> tuple[Network, set[Name]]:
    """A network with one slow thing, and its name."""
    count = len(SIZES)
    at = {
        "all sizes": range(count),
        "the larger sizes": range(count // 2, count),
        "one size": [int(rng.integers(count))],
    }[pattern]
    factor = tuple(ratio if k in at else 1.0 for k in range(count))
    ranks = hosts * per_host
    if kind == "link":
        low, high = sorted(int(h) for h in rng.choice(hosts, 2, replace=False))
        a, b = (int(h * per_host + rng.integers(per_host)) for h in (low, high))
        net = Network(ranks=ranks, ranks_per_host=per_host, sizes=SIZES, slow_links={(a, b): factor})
        return net, {("link", str(a), str(b))}
    host = int(rng.integers(hosts))
    if kind == "host" or per_host == 1:
        net = Network(ranks=ranks, ranks_per_host=per_host, sizes=SIZES, slow_hosts={host: factor})
        return net, {("host", f"n{host:03d}")}
    rank = int(host * per_host + rng.integers(per_host))
    net = Network(ranks=ranks, ranks_per_host=per_host, sizes=SIZES, slow_ranks={rank: factor})
    return net, {("rank", str(rank))}


def rows() -> list[Row]:
    rng = np.random.default_rng(SEED)
    out: list[Row] = []
    for hosts, per_host, runs in NETWORKS:
        what = f"{hosts} hosts of {per_host} rank{'s' if per_host > 1 else ''} (synthetic)"
        false: list[float] = []
        for kind in KINDS if per_host > 1 else ("host", "link"):
            for pattern in PATTERNS:
                shares = []
                for ratio in RATIOS:
                    exact = 0
                    for _ in range(runs):
                        net, truth = sick(hosts, per_host, kind, pattern, ratio, rng)
                        found = named(net, rng)
                        exact += found == truth
                        false.append(len(found - truth) / max(len(found), 1))
                    shares.append(exact)
                worst = min(shares)
                ci = binomtest(worst, runs).proportion_ci(method="wilson")
                each = ", ".join(f"× {ratio:g}: {share}/{runs}" for ratio, share in zip(RATIOS, shares))
                out.append(
                    row(
                        f"{what}: one slow {kind}, at {pattern}: named, and nothing else",
                        "≥ 95 % at each ratio",
                        worst / runs,
                        [float(ci.low), float(ci.high)],
                        lambda share: share >= 0.95,
                        f"the ratio with the fewest; {each}; {EPOCHS} epochs, links and ranks differ by 1.5 %",
                    )
                )
        out.append(
            row(
                f"{what}: false ones among what is named",
                "FDR ≤ 5 %",
                float(np.mean(false)),
                None,
                lambda rate: rate <= 0.05,
                f"mean share over the {len(false)} runs above",
            )
        )
        clean = sum(
            bool(named(Network(ranks=hosts * per_host, ranks_per_host=per_host, sizes=SIZES), rng))
            for _ in range(runs)
        )
        ci = binomtest(clean, runs).proportion_ci(method="wilson")
        out.append(
            row(
                f"{what}: nothing slow: runs that name something",
                "≤ 5 %",
                clean / runs,
                [float(ci.low), float(ci.high)],
                lambda rate: rate <= 0.05,
                f"{runs} runs",
            )
        )
    return out
