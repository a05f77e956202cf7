"""Whether a budget was held, from what nodes and managers reported. Pure.

A report holds the cap at one instant, and since when the hardware has it. Between two reports of a node its cap is
either the earlier or the later one, so the sum of all caps lies between `low` and `high`. `high` changes at the time at
which the node reports that its cap changed, if it reports that: a lower cap holds from then on at the latest, a higher
one from then on at the earliest. This is certain if no cap changes twice between two reports, and otherwise for states
that last: if `low` is above the budget for at least as long as nodes are silent between reports, it is a violation,
provided that reports come as often as decisions. For any other time at which `high` is above the budget, it is unknown
whether the caps were. Times are those of the senders' clocks, s.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sonde.power.stack.telemetry import NAN, ClusterSample, NodeSample, total

EXCESS_W = 0.01  # below it a sum of rounded numbers is no excess
EXCESS = 1e-6  # and below this share of the budget


@dataclass(frozen=True)
class NodeSeries:
    """One node's reports in the order of time. leased: as reported. cap_since_s: since when it has its cap; NaN:
    unknown.
    """

    t: np.ndarray
    power_w: np.ndarray
    cap_w: np.ndarray
    energy_j: np.ndarray
    leased: np.ndarray
    cap_since_s: np.ndarray | None = None

    def since(self, t: float) -> NodeSeries:
        """Its reports from t on."""
        later = self.t >= t
        pieces = (self.t, self.power_w, self.cap_w, self.energy_j, self.leased)
        since = None if self.cap_since_s is None else self.cap_since_s[later]
        t_, power, cap, energy, leased = (piece[later] for piece in pieces)
        return NodeSeries(t_, power, cap, energy, leased, since)


@dataclass(frozen=True)
class ClusterSeries:
    """Reports of managers in the order of time. unknown_w: beyond committed_w, the most that nodes may have drawn that
    a manager did not know yet.
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
        """The most that all nodes may have drawn, including unknown nodes."""
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
    """One takeover. gap_s: since the earlier manager was last heard, or is known to have ended."""

    at_s: float
    gap_s: float
    epoch: int
    before: str
    after: str


@dataclass(frozen=True)
class Held:
    """The judgement of a budget.

    max_sum_caps_w : the largest sum of caps that lasted from one report to the next; possible_w: the largest possible
    sum. violations: how often the sum was certainly above the budget, violation_s for how long; unknown_s: for how long
    it may have been. max_unknown_w : the most that nodes may have drawn beyond their safe caps while a new manager did
    not know them yet. over_budget_s : how long the measured power was above the budget. comply_s: the longest time from
    a lower budget until no more was lent than it; NaN if it never fell. failovers: takeovers. expired: how often a
    lease of a node ended without a new one. report_s, period_s: the time between two reports of a node, and between two
    decisions.
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
        """The longest takeover; NaN if there was none."""
        return max((one.gap_s for one in self.failovers), default=NAN)


def held(
    nodes: Mapping[str, NodeSeries], cluster: ClusterSeries, ended_s: Mapping[str, float] | None = None
) -> Held:
    """Judge a stretch of time. ended_s: when a manager is known to have ended, by its name."""
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
    """For each report, the smaller or larger of its cap and the next one's; the last report's cap holds."""
    return np.asarray(of(caps, np.append(caps[1:], caps[-1:])))


def _at_most(node: NodeSeries) -> tuple[np.ndarray, np.ndarray]:
    """A node's highest possible cap from each time on. It is the larger of each report's and the next one's; if the
    next report states when its cap began, the earlier cap holds until then.
    """
    t, caps, since = node.t, node.cap_w, node.cap_since_s
    high = _between(caps, np.fmax)
    if since is None or len(t) < 2:
        return t, high
    began = np.fmax(since[1:], t[:-1])
    known_change = np.isfinite(since[1:]) & (began <= t[1:]) & (caps[:-1] != caps[1:])
    high[:-1][known_change] = caps[:-1][known_change]
    times = np.concatenate([t, began[known_change]])
    values = np.concatenate([high, caps[1:][known_change]])
    # The report comes first where two entries have one time.
    order = np.argsort(times, kind="stable")
    return times[order], values[order]


def _sum(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> Step:
    """The sum of quantities that hold from report to report; a node without a report yet, or with NaN, adds nothing."""
    if not parts:
        return _EMPTY
    t = np.concatenate([one for one, _ in parts])
    steps = np.concatenate([np.diff(np.nan_to_num(value), prepend=0.0) for _, value in parts])
    known = np.concatenate([np.isfinite(value) for _, value in parts])
    if not known.any():
        return _EMPTY
    order = np.argsort(t, kind="stable")
    t, total = t[order], np.cumsum(steps[order])
    last = np.append(t[1:] != t[:-1], True)  # of several sums at one time the last counts
    return Step(t[last], total[last])


def _limit(cluster: ClusterSeries) -> tuple[Step, np.ndarray]:
    """The most that may be lent: the budget, and after it fell, the power still lent until it was given back."""
    good = np.isfinite(cluster.budget_w)
    t, budget, committed = cluster.t[good], cluster.budget_w[good], cluster.at_most_w[good]
    # A budget that is lower in the next report fell at some time before that report.
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
    """The usual time between two reports of the node that reports least often; 0 if unknown."""
    return max((float(np.median(np.diff(one.t))) for one in series if len(one.t) > 1), default=0.0)


def _lasting(quantity: Step, span_s: float) -> float:
    """The largest value below which a quantity did not fall for this time."""
    t, value = quantity.t, quantity.value
    if not len(t):
        return NAN
    best, last = -math.inf, 0
    inside: deque[int] = deque()  # indices of the window that begins at t[k], by rising values
    for k in range(len(t)):
        if k and t[-1] < t[k] + span_s:  # a value that the end cuts off did not last
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
    """How often a quantity was above the limit for at least this time, and for how long in total."""
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
    """Each time another manager led under a higher epoch than all earlier ones."""
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
    """The total increase of a counter. A counter that falls to less than half was reset, as when a node manager starts.

    A smaller fall comes from reports out of order, for example after a clock was set back. It is subtracted again;
    otherwise each one would count everything that the counter ever gained.
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
    """Reports by node, in the order of the nodes' clocks."""
    of: dict[str, list[NodeSample]] = {}
    for sample in samples:
        of.setdefault(sample.node, []).append(sample)
    series = {}
    for name, reports in sorted(of.items()):
        reports.sort(key=lambda one: one.at_ns)
        table = np.array(
            [
                (s.at_ns * 1e-9, s.power_w, s.cap_w, s.energy_j, float(s.leased), since_s(s.cap_since_ns))
                for s in reports
            ],
            float,
        )
        series[name] = NodeSeries(*table.T)
    return series


def since_s(cap_since_ns: int, began_ns: int = 0) -> float:
    """Since when a sample's cap holds, on the clock of its time; NaN if it is not stated."""
    return (cap_since_ns - began_ns) * 1e-9 if cap_since_ns > 0 else NAN


def cluster_series(samples: Iterable[ClusterSample]) -> ClusterSeries:
    reports = sorted(samples, key=lambda one: one.at_ns)
    table = np.array(
        [
            (s.at_ns * 1e-9, s.budget_w, s.committed_w, s.safe_w, s.lease_s, s.period_s, s.epoch, s.unknown_w)
            for s in reports
        ],
        float,
    ).reshape(len(reports), 8)
    t, budget, committed, safe, lease, period, epoch, unknown = table.T
    managers = tuple(s.manager for s in reports)
    return ClusterSeries(
        t, budget, committed, safe, lease, period, epoch, managers, tuple(s.state for s in reports), unknown
    )
