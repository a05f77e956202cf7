"""Which job starts next: priority, fairness, age, and backfill that delays no earlier job. Pure.

The first job that cannot start gets a reservation: the earliest time at which it can start, according to the jobs' time
limits. Later jobs start before it if they end by then, or leave it the nodes and the power it needs. Source: Lifka, The
ANL/IBM SP scheduling system, 1995 (EASY backfill); here power is one more resource.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sonde.core.units import format_power
from sonde.power.jobs.jobs import Part, Spec
from sonde.power.jobs.resources import Lack, Resources

DEPTH = 500  # the first jobs, which one plan looks at


@dataclass(frozen=True)
class QueueRules:
    """A queue as it is configured. 0, or NaN: no limit. users and groups both empty: for all."""

    name: str
    priority: int = 0
    is_default: bool = False
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    default_time_s: float = 0.0
    max_time_s: float = 0.0
    max_nodes: int = 0
    max_power_w: float = math.nan

    def allows(self, user: str, groups: Collection[str]) -> bool:
        if not self.users and not self.groups:
            return True
        return user in self.users or any(group in self.groups for group in groups)


@dataclass(frozen=True)
class Order:
    """How much each criterion counts. Steps are those of the queues' priorities.

    fairness: between a user who had nothing and one who had everything. age_s: this waiting time counts one step.
    """

    fairness: float = 1.0
    age_s: float = 86400.0
    half_life_s: float = 7 * 86400.0
    shares: Mapping[str, float] = field(default_factory=dict)


class Usage:
    """The past use of each user: node-seconds and energy; half of it is forgotten in each half-life."""

    def __init__(
        self, half_life_s: float, had: Mapping[str, tuple[float, float]] | None = None, at_s: float = 0.0
    ) -> None:
        self.half_life_s, self.at_s = half_life_s, at_s
        self.had = dict(had or {})

    def to(self, at_s: float, most_s: float = math.inf) -> None:
        """Let time pass, most_s at most; after the clock was set back, count from the new time. Forgotten usage stays
        forgotten.
        """
        if at_s <= self.at_s:
            self.at_s = at_s
            return
        left = 0.5 ** (min(at_s - self.at_s, most_s) / self.half_life_s)
        self.had = {
            user: (nodes * left, energy * left)
            for user, (nodes, energy) in self.had.items()
            if nodes * left > 1e-3
        }
        self.at_s = at_s

    def add(self, user: str, node_s: float, energy_j: float) -> None:
        nodes, energy = self.had.get(user, (0.0, 0.0))
        self.had[user] = nodes + max(0.0, node_s), energy + max(0.0, energy_j)

    def factor(self, user: str, shares: Mapping[str, float], users: Collection[str] = ()) -> float:
        """1 for a user who had nothing; 1/2 for one who had just their share; towards 0 for one who had much more.

        The larger of the two parts counts, node-seconds or energy: neither makes up for the other. users: the other
        users who wait.
        """
        mine = self.had.get(user)
        if mine is None:
            return 1.0
        everybody = {user, *self.had, *users}
        share = shares.get(user, 1.0) / math.fsum(shares.get(one, 1.0) for one in everybody)
        all_nodes = math.fsum(nodes for nodes, _ in self.had.values())
        all_energy = math.fsum(energy for _, energy in self.had.values())
        part = max(
            mine[0] / all_nodes if all_nodes > 0 else 0.0, mine[1] / all_energy if all_energy > 0 else 0.0
        )
        return float(2.0 ** (-part / share))


@dataclass(frozen=True)
class Candidate:
    """A waiting job. score: the highest starts first; among equal ones the earliest."""

    spec: Spec
    score: float = 0.0
    number: int = 0


@dataclass(frozen=True)
class Busy:
    """A job that has resources, and the latest time of its end; infinite where it is unknown."""

    job: str
    ends_s: float = math.inf


@dataclass(frozen=True)
class Budget:
    """The power that the cluster may draw: now_w; and later_w from later_s on, if a part is shed until then."""

    now_w: float
    later_w: float = math.nan
    later_s: float = math.inf

    def at(self, at_s: float) -> float:
        return self.later_w if at_s >= self.later_s and math.isfinite(self.later_w) else self.now_w


@dataclass(frozen=True)
class Start:
    job: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Plan:
    """The jobs that start now, in this order; why each other one waits; and the latest start of the first of those."""

    starts: tuple[Start, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    expected_s: Mapping[str, float] = field(default_factory=dict)


def score(queue_priority: int, waited_s: float, fair: float, order: Order) -> float:
    """Age counts without limit: a job that waits long enough comes first."""
    return queue_priority + order.fairness * fair + max(0.0, waited_s) / order.age_s


def ends_s(started_s: float, spec: Spec) -> float:
    """The end of a job's time, with its time for ending."""
    return started_s + spec.limit_s + spec.grace_s if spec.limit_s > 0 else math.inf


def plan(
    waiting: Sequence[Candidate],
    running: Sequence[Busy],
    resources: Resources,
    budget: Budget,
    now_s: float,
    usable: Collection[str] | None = None,
    starts_at_once: int = 1000,
) -> Plan:
    """Plan what starts now. resources: including those of running jobs; not changed.

    usable: nodes that answer; None: all. starts_at_once: the most starts.
    """
    here = resources.copy()
    ends = {busy.job: max(busy.ends_s, now_s) for busy in running}
    ordered = sorted(waiting, key=lambda one: (-one.score, one.number))
    starts: list[Start] = []
    reasons: dict[str, str] = {}
    expected: dict[str, float] = {}
    first: Candidate | None = None
    then_s, then = math.inf, here
    for one in ordered[:DEPTH]:
        spec = one.spec
        found = here.find(spec, budget.now_w, usable)
        if isinstance(found, Lack):
            reasons[spec.job] = f"waits for {found.what}"
            if first is None:
                at = _earliest(spec, here, ends, budget, now_s, usable)
                if at is None:
                    # No known event makes its start possible: jobs behind it need not wait for it.
                    continue
                first, (then_s, then) = one, at
                if math.isfinite(then_s):
                    expected[spec.job] = then_s
            continue
        if len(starts) >= starts_at_once:
            reasons[spec.job] = "starts next"
            continue
        over_s = ends_s(now_s, spec)
        # A job without a time limit is also considered if the start of the first one is unknown.
        if first is not None and (over_s > then_s or math.isinf(over_s)):
            with_it = then.copy()
            with_it.take(spec.job, found, spec.guaranteed_w)
            if isinstance(with_it.find(first.spec, budget.at(then_s), usable), Lack):
                reasons[spec.job] = f"waits for {first.spec.job}, which comes first and would be delayed"
                continue
            then = with_it
        here.take(spec.job, found, spec.guaranteed_w)
        ends[spec.job] = over_s
        starts.append(Start(spec.job, found))
    for one in ordered[DEPTH:]:
        reasons[one.spec.job] = f"waits in the queue: {DEPTH} or more jobs come first"
    return Plan(tuple(starts), reasons, expected)


def _earliest(
    spec: Spec,
    resources: Resources,
    ends: Mapping[str, float],
    budget: Budget,
    now_s: float,
    usable: Collection[str] | None,
) -> tuple[float, Resources] | None:
    """The latest time at which the job can start, and the resources in use then; None if no end of a job makes it
    possible.
    """
    then = resources.copy()
    moments: dict[float, list[str]] = {}
    for job in resources.held:
        moments.setdefault(ends.get(job, math.inf), []).append(job)
    if now_s < budget.later_s < math.inf:
        moments.setdefault(budget.later_s, [])
    for at_s in sorted(moments):
        for job in moments[at_s]:
            then.give_back(job)
        if not isinstance(then.find(spec, budget.at(at_s), usable), Lack):
            return at_s, then
    return None


def never(spec: Spec, empty: Resources, budget_w: float) -> str:
    """The reason why a job can never start, whatever ends; "" if it can."""
    found = empty.find(spec, budget_w)
    if not isinstance(found, Lack):
        return ""
    if found.kind == "nodes":
        unknown = [name for name in spec.hosts if name not in empty.nodes]
        if unknown:
            return f"there is no node {unknown[0]}"
        wanted = len(spec.hosts) or spec.nodes
        good = sum(empty.fits(spec, name) for name in spec.hosts or empty.nodes)
        most = max((node.max_w for node in empty.nodes.values()), default=0.0)
        if spec.guaranteed_w > most:
            asked = format_power(spec.guaranteed_w)
            return (
                f"a guarantee of {asked} on each node is requested; a node draws at most {format_power(most)}"
            )
        return f"{wanted} nodes are requested, but only {good} have the requested resources"
    if found.kind == "rack":
        return "its racks can never supply this power: " + found.what
    return (
        f"a guarantee of {format_power(spec.guaranteed_w)} on each of {len(spec.hosts) or spec.nodes} nodes, "
        f"with the safe caps of the other nodes that exceeds the budget of {format_power(budget_w)}"
    )
