"""Power and false discoveries of the slow-link test, on networks whose slow link is known."""

from __future__ import annotations

import numpy as np
from scipy.stats import binomtest

from sonde.net.classes import link_classes
from sonde.net.links import slow_links
from sonde.net.pairs import pairs_of
from sonde.net.synthetic import Network

RANKS, EPOCHS, RATIO = 64, 20, 1.2
RUNS, CLEAN_RUNS = 200, 100
SEED = 20


def found_in(net: Network, rng: np.random.Generator) -> set[tuple[int, int]]:
    """Pairs that one simulated run names as slow."""
    pairs = pairs_of(net.summary(EPOCHS, rng))
    return {(slow.src, slow.dst) for slow in slow_links(pairs, link_classes(pairs).expected).links}


def rows() -> list[dict]:
    """Power and false-discovery rate with one pair 20 % slow at random, and false alarms with none."""
    rng = np.random.default_rng(SEED)
    hits, wrong = 0, []
    for _ in range(RUNS):
        low, high = sorted(int(r) for r in rng.choice(RANKS, 2, replace=False))
        found = found_in(Network(ranks=RANKS, slow_links={(low, high): RATIO}), rng)
        hits += (low, high) in found
        wrong.append(len(found - {(low, high)}) / max(len(found), 1))
    alarms = sum(bool(found_in(Network(ranks=RANKS), rng)) for _ in range(CLEAN_RUNS))
    power = binomtest(hits, RUNS).proportion_ci(method="wilson")
    rate = float(np.mean(wrong))
    # A run's share is at most 1: the share of runs with any false one bounds the rate from above, also when
    # it is 0.
    most = binomtest(sum(share > 0 for share in wrong), RUNS).proportion_ci(method="wilson").high
    alarm = binomtest(alarms, CLEAN_RUNS).proportion_ci(method="wilson")
    machine = (
        f"{RUNS} simulated runs: {RANKS} ranks, 2 a host, 8 hosts a switch, 3 sizes, {EPOCHS} epochs; "
        "links differ by "
        "1.5 %, ranks by 1.5 %, epochs by 3 %, and spend a fifth of the time 25 % slow in spells of 3 "
        "epochs; one "
        "pass, no second measurement"
    )
    return [
        {
            "what": f"injected slow pair +20 % among {RANKS} ranks (synthetic): power",
            "bar": "power ≥ 95 %",
            "value": hits / RUNS,
            "ci": [float(power.low), float(power.high)],
            "met": hits / RUNS >= 0.95,
            "note": machine,
        },
        {
            "what": f"injected slow pair +20 % among {RANKS} ranks (synthetic): false discoveries",
            "bar": "FDR ≤ 5 %",
            "value": rate,
            "ci": [0.0, float(most)],
            "met": rate <= 0.05,
            "note": "mean share of false ones among the links named in a run; same runs",
        },
        {
            "what": f"no slow pair among {RANKS} ranks (synthetic): runs that name one",
            "bar": "≤ 5 % of runs",
            "value": alarms / CLEAN_RUNS,
            "ci": [float(alarm.low), float(alarm.high)],
            "met": alarms / CLEAN_RUNS <= 0.05,
            "note": f"{CLEAN_RUNS} simulated runs of the same network without a slow link",
        },
    ]
