"""Made histories of seven runs: how often healthy ones raise a finding, and which slow hosts are named, and alone.

Runs differ as a whole by 5 %, and each host at each size by 2 %: the scale of a normal distribution, or of Student's t
with 3 degrees of freedom, whose tails are as heavy as those of busy machines.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

from bench.rows import Row, row
from sonde.data.history import History, findings
from sonde.data.past_runs import PastRun, scalars_of, slices_of
from sonde.data.trends import judge
from sonde.net.synthetic import Network

SIZES = (8, 1024, 65536)
EARLIER = 6
EPOCHS = 10
RATIOS = (1.2, 1.5, 2.0, 10.0)
# hosts, histories of each kind
FOLDERS = ((4, 100), (8, 100), (32, 60), (128, 10))
COMMON, OWN = 0.05, 0.02
SEED = 28

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
TAILS: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "Student's t, 3": lambda rng, shape: rng.standard_t(3, shape),
}


def run(
    day: int, hosts: int, slow: dict[int, tuple[float, ...]], draw: Draw, rng: np.random.Generator
) -> PastRun:
    net = Network(ranks=hosts, ranks_per_host=1, sizes=SIZES, slow_hosts=slow)
    summary = net.summary(EPOCHS, rng)
    own = np.exp(OWN * draw(rng, (hosts, len(SIZES))))
    factor = np.exp(COMMON * draw(rng, (1,))) * own[:, None, :] * own[None, :, :]
    for name in ("median", "median_low", "median_high"):
        summary[name].values[...] *= factor
    labels, of_hosts = slices_of(summary)
    return PastRun(
        f"{day}.nc", "net/1", f"2026-01-{day:02d}", True, {}, {}, scalars_of(summary), labels, of_hosts
    )


def named(hosts: int, slow: dict[int, tuple[float, ...]], draw: Draw, rng: np.random.Generator) -> list[str]:
    """The host, or "" of a finding about the whole run, of each finding about the newest of seven runs."""
    runs = [run(day, hosts, slow if day > EARLIER else {}, draw, rng) for day in range(1, EARLIER + 2)]
    found = findings(History(runs, judge(runs), [], 0), Path())
    return [str(one.evidence.get("host", "")) for one in found]


def rows() -> list[Row]:
    rng = np.random.default_rng(SEED)
    out: list[Row] = []
    for hosts, count in FOLDERS:
        for tails, draw in TAILS.items():
            what = f"history of {EARLIER + 1} runs of {hosts} hosts (synthetic, {tails})"
            healthy = [named(hosts, {}, draw, rng) for _ in range(count)]
            alarms = sum(map(bool, healthy))
            ci = binomtest(alarms, count).proportion_ci(method="wilson")
            blamed = sum(any(one) for one in healthy)
            out.append(
                row(
                    f"{what}: healthy, and something is found",
                    "≤ 15 % (three families of 5 %)",
                    alarms / count,
                    [float(ci.low), float(ci.high)],
                    lambda share: share <= 0.15,
                    f"{alarms} of {count}; a host was named in {blamed}",
                )
            )
            exact = {}
            for ratio in RATIOS:
                exact[ratio] = 0
                for _ in range(count):
                    host, size = int(rng.integers(hosts)), int(rng.integers(len(SIZES)))
                    slow = {host: tuple(ratio if k == size else 1.0 for k in range(len(SIZES)))}
                    exact[ratio] += [one for one in named(hosts, slow, draw, rng) if one] == [f"n{host:03d}"]
            ci = binomtest(exact[10.0], count).proportion_ci(method="wilson")
            out.append(
                row(
                    f"{what}: a host 10 times slower at one size is the one that is named",
                    "≥ 95 %",
                    exact[10.0] / count,
                    [float(ci.low), float(ci.high)],
                    lambda share: share >= 0.95,
                    ", ".join(f"× {ratio:g}: {share}/{count}" for ratio, share in exact.items()),
                )
            )
    return out
