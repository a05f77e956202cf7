"""A job's progress, its power, and the power that its target needs. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from sonde.power.jobs.jobs import Spec, Target
from sonde.power.stack.config import NodeLimits
from sonde.power.stack.telemetry import MOST, NAN

# shares of the range from a node's lowest power to its highest
STEP_DOWN, STEP_UP, LEAST_STEP = 0.05, 0.25, 0.02
NEAR = 0.5  # share of the allowed slowdown: below it power is given back, above it power is kept
MAX_READ = 1 << 14  # bytes of progress that are read at a look
FULL_LOOKS = 3  # number of looks at full power from which the best time is taken


@dataclass
class Turns:
    """The turns of a job's loop on one node, from the file to which the job appends a line at the end of each turn.

    A line may hold the progress of the job, 0 to 1, and after it how many seconds of the turn this node worked and did
    not wait for other nodes.
    """

    lines: int = 0
    at_s: float = NAN  # when the last known line was written
    progress: float = NAN
    iteration_s: float = NAN  # mean of the turns since the last look
    own_s: float = NAN  # mean of the own time that nodes reported for those turns
    _rest: bytes = b""

    def take(self, added: bytes, written_s: float) -> None:
        """Read new lines. added: the bytes since the last call. written_s: when the file was last written; any steady
        clock.

        All lines are counted. Beyond MAX_READ bytes only the last are read: a job may write any amount.
        """
        whole, end, self._rest = (self._rest + added).rpartition(b"\n")
        if not end:
            self._rest = self._rest[-256:]
            return
        count = whole.count(b"\n") + 1
        own = []
        for line in whole[-MAX_READ:].split(b"\n")[0 if len(whole) <= MAX_READ else 1 :]:
            words = line.split()
            if not words or len(words) > 2:
                continue
            try:
                value, *worked = map(float, words)
            except ValueError:
                continue
            if 0 <= value <= 1:
                self.progress = value
            # the sum of larger values overflows
            own += [seconds for seconds in worked if 0 <= seconds <= MOST]
        if own:
            self.own_s = math.fsum(own) / len(own)
        # The first look counts no turn: nobody knows when the turn of its first line began.
        if self.lines and written_s > self.at_s:
            self.iteration_s = (written_s - self.at_s) / count
        self.lines += count
        self.at_s = written_s


def of_job(turns: Sequence[Turns]) -> tuple[float, float]:
    """iteration_s and progress of a job: nodes wait for each other, so the slowest node counts."""
    times = [one.iteration_s for one in turns if math.isfinite(one.iteration_s)]
    shares = [one.progress for one in turns if math.isfinite(one.progress)]
    return max(times, default=NAN), min(shares, default=NAN)


@dataclass
class Meter:
    """Energy and power of a job, from the counters of its nodes. share: the job's part of each node."""

    energy_j: float = 0.0
    at_j: dict[str, float] = field(default_factory=dict)
    power_w: dict[str, float] = field(default_factory=dict)

    def take(self, node: str, counter_j: float, power_w: float, share: float, after_s: float = 0.0) -> None:
        """Add a reading. counter_j: of the node, NaN: it has none. A counter that went back was reset: the lost energy
        is unknown.

        after_s: since the job began. Before a node's first reading, its current power is assumed: short jobs end soon.
        """
        self.power_w[node] = power_w * share
        if node not in self.at_j and math.isfinite(power_w):
            self.energy_j += self.power_w[node] * after_s
        if math.isnan(counter_j):
            return
        before = self.at_j.get(node, counter_j)
        self.at_j[node] = counter_j
        if counter_j > before:
            self.energy_j += (counter_j - before) * share

    def power(self, nodes: Sequence[str]) -> float:
        """Power of all nodes together; NaN where one node's is unknown."""
        return math.fsum(self.power_w.get(node, NAN) for node in nodes)

    @property
    def known(self) -> bool:
        return bool(self.at_j)


@dataclass
class Steering:
    """The demand per node that makes a job reach its target and gives back power that it does not need. least_w,
    most_w: of a node. demand_w begins at the highest.
    """

    least_w: float
    most_w: float
    demand_w: float = NAN
    best_s: float = NAN
    _full: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        if math.isnan(self.demand_w):
            self.demand_w = self.most_w

    def look(self, target: Target, iteration_s: float, energy_j: float = NAN, progress: float = NAN) -> float:
        """demand_w after a look at the job. Unknown values change nothing."""
        if target.energy_j > 0 and progress > 0 and energy_j / progress > target.energy_j:
            return self._lower()
        if not (math.isfinite(iteration_s) and iteration_s > 0):
            return self.demand_w
        if target.iteration_s > 0:
            goal, room = target.iteration_s, 0.1
        elif target.slowdown > 0:
            if self.demand_w >= self.most_w and len(self._full) < FULL_LOOKS:
                self._full.append(iteration_s)
                self.best_s = median(self._full)
                if len(self._full) < FULL_LOOKS:
                    return self.demand_w
            goal, room = self.best_s * (1 + target.slowdown), target.slowdown
        else:
            return self.demand_w
        if iteration_s > goal:
            return self._raise(iteration_s / goal - 1)
        if iteration_s < goal * (1 - room * NEAR / (1 + room)):
            return self._lower()
        return self.demand_w

    def _lower(self) -> float:
        self.demand_w = max(self.least_w, self.demand_w - STEP_DOWN * (self.most_w - self.least_w))
        return self.demand_w

    def _raise(self, beyond: float) -> float:
        """Raise the demand: the further the job is beyond its goal, the larger the step."""
        span = self.most_w - self.least_w
        step = min(STEP_UP, max(LEAST_STEP, beyond)) * span
        self.demand_w = min(self.most_w, self.demand_w + step)
        return self.demand_w


def steering_for(spec: Spec, target: Target, limits: Sequence[NodeLimits]) -> Steering | None:
    """The steering of a job towards its target; None: it has no target, or none of its nodes is configured.

    limits: of its configured nodes.
    """
    if not (target.iteration_s > 0 or target.slowdown > 0 or target.energy_j > 0) or not limits:
        return None
    most = spec.demand_w or min(one.max_w for one in limits)
    least = min(most, max([spec.guaranteed_w, *(one.min_w for one in limits)]))
    return Steering(least, most)


def shares(parts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, float]]:
    """Each job's part of each node. parts: for each node, the cores of each job on it; 0: the whole node.

    A shared node is split in proportion to its jobs' cores: idle cores count for them too.
    """
    out: dict[str, dict[str, float]] = {}
    for node, cores in parts.items():
        total = sum(cores.values())
        out[node] = {job: (n / total if total else 1 / len(cores)) for job, n in cores.items()}
    return out
