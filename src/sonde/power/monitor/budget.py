"""Whether a budget was held, from what nodes and managers reported. Pure.

A report tells a cap at one instant, and since when the hardware has it. Between two reports of a node its cap is taken
to be one or the other, so that the sum of all caps lies between `low` and `high`; `high` changes when the node says
that its cap did, where it says that: a lower one by then at the latest, a higher one from then on at the earliest. That
is sure where no cap changes twice between two reports, and else for what lasts: `low` above the budget for at least as
long as nodes are silent between reports is a violation, if reports come as often as decisions; all else that is above
it by `high` is not known. Times are those of the senders' clocks, s.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sonde.power.stack.telemetry import NAN, ClusterSample, NodeSample, total

EXCESS_W = 0.01  # below it a sum of rounded numbers is no excess
EXCESS = 1e-6  # and this share of the budget


@dataclass(frozen=True)
class NodeSeries:
    """One node's reports in the order of time. leased: as it said. cap_since_s: since when it has its cap; NaN: not
    known.
    """

    t: np.ndarray
    power_w: np.ndarray
    cap_w: np.ndarray
    energy_j: np.ndarray
    leased: np.ndarray
    cap_since_s: np.ndarray | None = None

    def since(self, t: float) -> NodeSeries:
        """Its reports from t on."""
        there = self.t >= t
        pieces = (self.t, self.power_w, self.cap_w, self.energy_j, self.leased)
        since = None if self.cap_since_s is None else self.cap_since_s[there]
        t_, power, cap, energy, leased = (piece[there] for piece in pieces)
        return NodeSeries(t_, power, cap, energy, leased, since)


@dataclass(frozen=True)
class ClusterSeries:
    """Reports of managers in the order of time. unknown_w: what nodes that a manager did not know yet may have been at,
    beyond committed_w.
    """

    t: np.ndarray
    budget_w: np.ndarray
    committed_w: np.ndarray
    safe_w: np.ndarray
    lease_s: np.ndarray
    period_s: np.ndarray
    epoch: np.ndarray
    manager: tuple[str, ...]
    state: tuple[str, ...]
    unknown_w: np.ndarray | None = None

    @property
    def at_most_w(self) -> np.ndarray:
        """What all nodes may have been at, also those that were not known."""
        return self.committed_w if self.unknown_w is None else self.committed_w + self.unknown_w


@dataclass(frozen=True)
class Step:
    """A quantity that holds from each t on until the next."""

    t: np.ndarray
    value: np.ndarray

    def at(self, times: np.ndarray) -> np.ndarray:
        """Its values; NaN before the first."""
        place = np.searchsorted(self.t, times, side="right") - 1
        out = np.full(len(times), NAN)
        if len(self.t):
            out[place >= 0] = self.value[place[place >= 0]]
        return out


_EMPTY = Step(np.zeros(0), np.zeros(0))


@dataclass(frozen=True)
class Failover:
    """One takeover. gap_s: from when the one before was last heard, or from when it is known to have ended."""

    at_s: float
    gap_s: float
    epoch: int
    before: str
    after: str


@dataclass(frozen=True)
class Held:
    """What a budget came to.

    max_sum_caps_w : the largest sum of caps that lasted from one report to the next; possible_w: that may have been.
    violations: how often it was surely above the budget, violation_s for how long; unknown_s: how long it may be.
    max_unknown_w : the most that nodes may have had which a manager that took over did not know yet, beyond their safe
    caps. over_budget_s : how long measured power was above the budget. comply_s: the longest from a lower budget until
    no more was lent than it; NaN where it never fell. failovers: takeovers. expired: how often a lease of a node ended
    without another. report_s, period_s: how long a node is silent between two reports, and between two decisions.
    """

    budget_w: float = NAN
    max_sum_caps_w: float = NAN
    max_possible_w: float = NAN
    max_power_w: float = NAN
    max_committed_w: float = NAN
    max_unknown_w: float = NAN
    over_budget_s: float = 0.0
    violations: int = 0
    violation_s: float = 0.0
    unknown_s: float = 0.0
    lease_s: float = NAN
    report_s: float = NAN
    period_s: float = NAN
    comply_s: float = NAN
    failovers: tuple[Failover, ...] = ()
    expired: int = 0
    energy_j: float = NAN
    seconds: float = 0.0
    nodes: int = 0
    reports: int = 0
    caps_low: Step = field(default_factory=lambda: _EMPTY)
    caps_high: Step = field(default_factory=lambda: _EMPTY)
    power: Step = field(default_factory=lambda: _EMPTY)
    limit: Step = field(default_factory=lambda: _EMPTY)

    @property
    def failover_s(self) -> float:
        """The longest takeover; NaN where there was none."""
        return max((one.gap_s for one in self.failovers), default=NAN)


def held(
    nodes: Mapping[str, NodeSeries], cluster: ClusterSeries, ended_s: Mapping[str, float] | None = None
) -> Held:
    """Judges a stretch of time. ended_s: when a manager is known to have ended, by its name."""
    series = [one for one in nodes.values() if len(one.t)]
    limit, budgets = _limit(cluster)
    low = _sum([(one.t, _between(one.cap_w, np.fmin)) for one in series])
    high = _sum([_at_most(one) for one in series])
    power = _sum([(one.t, one.power_w) for one in series])
    over = _above(power, limit)
    silent, period = _silent(series), _last(cluster.period_s)
    often = not (silent > 1.05 * period)
    surely = _above(low, limit, silent) if often else (0, 0.0)
    maybe = _above(high, limit)
    energies = [gained(one.energy_j) for one in series]
    times = (
        np.concatenate([cluster.t, *(one.t for one in series)]) if series or len(cluster.t) else np.zeros(0)
    )
    return Held(
        budget_w=float(budgets[-1]) if len(budgets) else NAN,
        max_sum_caps_w=_lasting(low, silent),
        max_possible_w=_most(high.value),
        max_power_w=_most(power.value),
        max_committed_w=_most(cluster.committed_w),
        max_unknown_w=NAN if cluster.unknown_w is None else _most(cluster.unknown_w),
        over_budget_s=over[1],
        violations=surely[0],
        violation_s=surely[1],
        unknown_s=max(0.0, maybe[1] - surely[1]),
        lease_s=_last(cluster.lease_s),
        report_s=silent,
        period_s=period,
        comply_s=_comply(cluster),
        failovers=failovers(cluster, ended_s or {}),
        expired=sum(int(((one.leased[:-1] > 0) & (one.leased[1:] == 0)).sum()) for one in series),
        energy_j=total(energies),
        seconds=float(times.max() - times.min()) if len(times) else 0.0,
        nodes=len(series),
        reports=sum(len(one.t) for one in series),
        caps_low=low,
        caps_high=high,
        power=power,
        limit=limit,
    )


def _between(caps: np.ndarray, of: np.ufunc) -> np.ndarray:
    """Of each report and the next one the smaller or the larger cap; the last holds."""
    return np.asarray(of(caps, np.append(caps[1:], caps[-1:])))


def _at_most(node: NodeSeries) -> tuple[np.ndarray, np.ndarray]:
    """A node's highest cap from each time on: of each report and the next one the larger; where the next one tells
    when its cap began, until then its own.
    """
    t, caps, since = node.t, node.cap_w, node.cap_since_s
    high = _between(caps, np.fmax)
    if since is None or len(t) < 2:
        return t, high
    began = np.fmax(since[1:], t[:-1])
    told = np.isfinite(since[1:]) & (began <= t[1:]) & (caps[:-1] != caps[1:])
    high[:-1][told] = caps[:-1][told]
    times = np.concatenate([t, began[told]])
    values = np.concatenate([high, caps[1:][told]])
    # Of two at one time the report comes first.
    order = np.argsort(times, kind="stable")
    return times[order], values[order]


def _sum(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> Step:
    """The sum of quantities that hold from report to report; who said nothing yet, or NaN, adds nothing."""
    if not parts:
        return _EMPTY
    t = np.concatenate([one for one, _ in parts])
    steps = np.concatenate([np.diff(np.nan_to_num(value), prepend=0.0) for _, value in parts])
    known = np.concatenate([np.isfinite(value) for _, value in parts])
    if not known.any():
        return _EMPTY
    order = np.argsort(t, kind="stable")
    t, total = t[order], np.cumsum(steps[order])
    last = np.append(t[1:] != t[:-1], True)  # of several at one time the last sum counts
    return Step(t[last], total[last])


def _limit(cluster: ClusterSeries) -> tuple[Step, np.ndarray]:
    """What may be lent: the budget, and after it fell what is still out, until it was given back."""
    good = np.isfinite(cluster.budget_w)
    t, budget, committed = cluster.t[good], cluster.budget_w[good], cluster.at_most_w[good]
    # A budget that is lower in the next report fell at some time before it.
    allowed = np.fmax(budget, np.append(budget[1:], budget[-1:]))
    falling = False
    for k in range(1, len(budget)):
        falling = falling or budget[k] < budget[k - 1]
        falling = (
            falling and math.isfinite(committed[k]) and committed[k] > budget[k] * (1 + EXCESS) + EXCESS_W
        )
        if falling:
            allowed[k] = max(allowed[k], allowed[k - 1], committed[k])
    return Step(t, allowed), budget


def _silent(series: Sequence[NodeSeries]) -> float:
    """The usual time between two reports, of the node that reports most seldom; 0 where that is not known."""
    return max((float(np.median(np.diff(one.t))) for one in series if len(one.t) > 1), default=0.0)


def _lasting(quantity: Step, span_s: float) -> float:
    """The largest value that a quantity did not fall below for so long."""
    t, value = quantity.t, quantity.value
    if not len(t):
        return NAN
    best, last = -math.inf, 0
    inside: deque[int] = deque()  # of the window that begins at t[k], in rising order of values
    for k in range(len(t)):
        if k and t[-1] < t[k] + span_s:  # what the end cuts off did not last
            break
        while last < len(t) and (last <= k or t[last] < t[k] + span_s):
            while inside and value[inside[-1]] >= value[last]:
                inside.pop()
            inside.append(last)
            last += 1
        while inside[0] < k:
            inside.popleft()
        best = max(best, float(value[inside[0]]))
    return best


def _above(quantity: Step, limit: Step, least_s: float = 0.0) -> tuple[int, float]:
    """How often a quantity was above the limit for at least so long, and for how long together."""
    if not len(quantity.t) or not len(limit.t):
        return 0, 0.0
    t = np.unique(np.concatenate([quantity.t, limit.t]))
    most = limit.at(t)
    above = quantity.at(t) > most * (1 + EXCESS) + EXCESS_W
    spans = np.diff(t, append=t[-1])
    begins = np.flatnonzero(above & ~np.concatenate([[False], above[:-1]]))
    if not len(begins):
        return 0, 0.0
    lengths = np.add.reduceat(np.where(above, spans, 0.0), begins)
    counted = lengths[(lengths >= least_s) & (lengths > 0)]
    return len(counted), float(counted.sum())


def _comply(cluster: ClusterSeries) -> float:
    longest, since = NAN, NAN
    for k in range(1, len(cluster.t)):
        if cluster.budget_w[k] < cluster.budget_w[k - 1] * (1 - EXCESS) and not math.isfinite(since):
            since = float(cluster.t[k])
        if math.isfinite(since) and cluster.at_most_w[k] <= cluster.budget_w[k] * (1 + EXCESS) + EXCESS_W:
            took = float(cluster.t[k]) - since
            longest, since = (took if math.isnan(longest) else max(longest, took)), NAN
    return longest


def failovers(cluster: ClusterSeries, ended_s: Mapping[str, float]) -> tuple[Failover, ...]:
    """Each time another manager led under a higher epoch than all before."""
    found: list[Failover] = []
    leader, epoch, seen = "", -1, NAN
    for t, number, who, state in zip(cluster.t, cluster.epoch, cluster.manager, cluster.state):
        if state not in ("active", "observing"):
            continue
        if number > epoch:
            if leader and who != leader:
                ended = ended_s.get(leader, seen)
                begin = ended if seen <= ended <= t else seen
                found.append(Failover(float(t), float(t) - begin, int(number), leader, who))
            leader, epoch = who, int(number)
        if who == leader:
            seen = float(t)
    return tuple(found)


def gained(counter: np.ndarray) -> float:
    """What a counter gained; it begins again where it falls to less than half, as a node manager's does.

    A smaller fall is that of reports out of order, as after a clock that was set back: it is taken off again, or each
    would count all that the counter ever gained.
    """
    known = counter[np.isfinite(counter)]
    if len(known) < 2:
        return NAN
    again = known[1:] < known[:-1] / 2
    return float(np.where(again, known[1:], np.diff(known)).sum())


def _most(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else NAN


def _last(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known[-1]) if len(known) else NAN


# ---- from samples


def node_series(samples: Iterable[NodeSample]) -> dict[str, NodeSeries]:
    """By node; in the order of the nodes' clocks."""
    of: dict[str, list[NodeSample]] = {}
    for sample in samples:
        of.setdefault(sample.node, []).append(sample)
    made = {}
    for name, said in sorted(of.items()):
        said.sort(key=lambda one: one.at_ns)
        table = np.array(
            [
                (s.at_ns * 1e-9, s.power_w, s.cap_w, s.energy_j, float(s.leased), since_s(s.cap_since_ns))
                for s in said
            ],
            float,
        )
        made[name] = NodeSeries(*table.T)
    return made


def since_s(cap_since_ns: int, began_ns: int = 0) -> float:
    """Of a sample, on the clock of its time; NaN where it does not say."""
    return (cap_since_ns - began_ns) * 1e-9 if cap_since_ns > 0 else NAN


def cluster_series(samples: Iterable[ClusterSample]) -> ClusterSeries:
    said = sorted(samples, key=lambda one: one.at_ns)
    table = np.array(
        [
            (s.at_ns * 1e-9, s.budget_w, s.committed_w, s.safe_w, s.lease_s, s.period_s, s.epoch, s.unknown_w)
            for s in said
        ],
        float,
    ).reshape(len(said), 8)
    t, budget, committed, safe, lease, period, epoch, unknown = table.T
    managers = tuple(s.manager for s in said)
    return ClusterSeries(
        t, budget, committed, safe, lease, period, epoch, managers, tuple(s.state for s in said), unknown
    )
