"""What a job tells of its turns, what it draws, and how much power its target needs. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from sonde.power.jobs.jobs import Target
from sonde.power.stack.telemetry import MOST, NAN

STEP_DOWN, STEP_UP, LEAST_STEP = 0.05, 0.25, 0.02  # shares of what a node of the job may have above its least
NEAR = 0.5  # of the allowed slowdown: within it power is given back, beyond it is kept
MAX_READ = 1 << 14  # bytes of what came since the look before
FULL_LOOKS = 3  # so many looks at full power make the best time


@dataclass
class Turns:
    """The turns of a job's loop on one node, from the file that it writes a line into at the end of each.

    A line may hold how much of the job is done, 0 to 1, and behind that how many seconds of the turn this node worked
    and did not wait for others.
    """

    lines: int = 0
    at_s: float = NAN  # when the last known line was written
    progress: float = NAN
    iteration_s: float = NAN  # mean of the turns since the look before
    own_s: float = NAN  # mean of what nodes said of those turns
    _rest: bytes = b""

    def take(self, added: bytes, written_s: float) -> None:
        """added: what came since the last call. written_s: when the file was written last; any steady clock.

        All lines are counted. Of more than MAX_READ bytes the last are read: a job may write what it likes.
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
            own += [seconds for seconds in worked if 0 <= seconds <= MOST]  # sums of more overflow
        if own:
            self.own_s = math.fsum(own) / len(own)
        # Between the first line and nothing there is no turn whose beginning is known.
        if self.lines and written_s > self.at_s:
            self.iteration_s = (written_s - self.at_s) / count
        self.lines += count
        self.at_s = written_s


def of_job(turns: Sequence[Turns]) -> tuple[float, float]:
    """iteration_s and progress of a job: nodes wait for each other, so that the slowest tells."""
    times = [one.iteration_s for one in turns if math.isfinite(one.iteration_s)]
    shares = [one.progress for one in turns if math.isfinite(one.progress)]
    return max(times, default=NAN), min(shares, default=NAN)


@dataclass
class Meter:
    """Energy and power of a job, from the counters of its nodes. share: of each node, what of it is the job's."""

    energy_j: float = 0.0
    at_j: dict[str, float] = field(default_factory=dict)
    power_w: dict[str, float] = field(default_factory=dict)

    def take(self, node: str, counter_j: float, power_w: float, share: float, after_s: float = 0.0) -> None:
        """counter_j: of the node, NaN: it has none. One that went back began anew: what it lost is not known.

        after_s: since the job began. Until a node is heard first it drew what it draws then: short jobs are over soon.
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
        """Of all; NaN where one of them is not known."""
        return math.fsum(self.power_w.get(node, NAN) for node in nodes)

    @property
    def known(self) -> bool:
        return bool(self.at_j)


@dataclass
class Steering:
    """How much power each node of a job is to be thought to want, so that the job reaches its target and gives back
    what it does not need. least_w, most_w: of a node. demand_w begins at the most.
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
        """demand_w after a look at the job. What is not known changes nothing."""
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
        """More at once the further it is beyond the goal."""
        span = self.most_w - self.least_w
        step = min(STEP_UP, max(LEAST_STEP, beyond)) * span
        self.demand_w = min(self.most_w, self.demand_w + step)
        return self.demand_w


def asks_for_something(target: Target) -> bool:
    return target.iteration_s > 0 or target.slowdown > 0 or target.energy_j > 0


def shares(parts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, float]]:
    """What of each node is each job's. parts: of each node, the cores of each job on it, 0: the whole of it.

    A node that several have is split by their cores: what nobody uses is theirs as well.
    """
    out: dict[str, dict[str, float]] = {}
    for node, cores in parts.items():
        total = sum(cores.values())
        out[node] = {job: (n / total if total else 1 / len(cores)) for job, n in cores.items()}
    return out
