"""The newest run against earlier comparable ones: what changed, and how surely."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sonde.data.past_runs import PastRun, Scalar
from sonde.data.slices import MIN_HOSTS, HostSlice

FEWEST = 5  # smallest number of earlier runs for a verdict
ALPHA, POWER = 0.05, 0.8
# A value counts as changed only if it is this many times as far off as in earlier runs: five or six runs do not show
# how heavy the tails of a machine's runs are. With tails as heavy as Student's t with 3 degrees of freedom, one clean
# run in 21 is that far off after six (1 / (1 + 6 * 1.5^3)).
CLEAR_OF_RUNS = 1.5
# A host counts as changed only if it is this many times as far off as any host was before. With six earlier runs and
# tails as heavy as Student's t with 3 degrees of freedom, one clean run in 49 has such a host (1 / (1 + 6 * 2^3)).
CLEAR_OF_HOSTS = 2.0
_SIMULATED = 20_000


@dataclass(frozen=True)
class Trend:
    """The newest value of one scalar against earlier comparable runs.

    median: of the earlier runs; for a host, multiplied by the change of the other hosts. change: relative to that. p:
    two-sided, for a value that far away by chance; adjusted over all of one family (wholes, labels, hosts) of all
    kinds. mde: the relative change that is detected with 80 % power. beyond: significantly outside the earlier values.
    host, at: the host and the size of the value; empty for a value of the whole run.
    """

    scalar: Scalar
    earlier: int
    median: float
    change: float
    p: float
    beyond: bool
    mde: float
    host: str = ""
    at: str = ""

    def worse(self, matters: float) -> bool:
        """Whether this is a regression; if no direction is better, whether it is a change at all."""
        towards = {"lower": self.change > 0, "higher": self.change < 0}.get(self.scalar.better, True)
        return towards and self.beyond and abs(self.change) >= matters and self.p <= ALPHA


@dataclass
class Judged:
    """The newest run of one kind, the earlier ones (oldest first), and (name, before, now) of attributes."""

    newest: PastRun
    earlier: list[PastRun]
    trends: list[Trend] = field(default_factory=list)
    labels: list[Trend] = field(default_factory=list)
    hosts: list[Trend] = field(default_factory=list)
    changed: list[tuple[str, Any, Any]] = field(default_factory=list)

    @property
    def enough(self) -> bool:
        return len(self.earlier) >= FEWEST


def judge(runs: Iterable[PastRun]) -> list[Judged]:
    """The newest run of each kind against the complete earlier ones of that kind. runs: oldest first."""
    kinds: dict[str, list[PastRun]] = {}
    for run in runs:
        kinds.setdefault(run.kind, []).append(run)
    out = []
    for same in kinds.values():
        newest, earlier = same[-1], [run for run in same[:-1] if run.complete]
        one = Judged(newest, earlier)
        if earlier:
            one.changed = changes(newest, earlier)
        if one.enough:
            one.trends = _followed(newest.scalars, [run.scalars for run in earlier])
            one.labels = _followed(newest.labels, [run.labels for run in earlier])
            one.hosts = _followed_hosts(newest, earlier)
        out.append(one)
    _adjust(out)
    return out


def _followed(newest: dict[str, Scalar], earlier: list[dict[str, Scalar]]) -> list[Trend]:
    out = []
    for name, scalar in newest.items():
        before = [scalars[name].value for scalars in earlier if name in scalars]
        before = [value for value in before if math.isfinite(value)]
        if len(before) >= FEWEST and math.isfinite(scalar.value):
            out.append(trend_of(scalar, before))
    return out


def _followed_hosts(newest: PastRun, earlier: list[PastRun]) -> list[Trend]:
    """Each host at each label, relative to the other hosts of its run: a change that all hosts share belongs to the
    run, not to a host.
    """
    parts: list[tuple[HostSlice, list[str], np.ndarray, Pooled]] = []
    names = []
    for name, now in newest.hosts.items():
        runs = [run.hosts[name].values for run in earlier if name in run.hosts]
        hosts = [host for host in now.values if sum(_positive(run, host) for run in runs) >= FEWEST]
        hosts = [host for host in hosts if _positive(now.values, host)]
        if len(runs) < FEWEST or len(hosts) < MIN_HOSTS:
            continue
        before = np.array(
            [[math.log(run[host]) if _positive(run, host) else math.nan for host in hosts] for run in runs]
        )
        current = np.log([now.values[host] for host in hosts])
        with np.errstate(all="ignore"):
            before -= np.nanmedian(before, axis=1, keepdims=True)
        usual = np.nanmedian(before, axis=0)
        level = float(np.median(current))
        parts.append((now, hosts, level + usual, pooled_prediction(before - usual, current - level - usual)))
        names.append(name)
    furthest = _furthest([part[3].furthest for part in parts])
    out = []
    for name, (now, hosts, expected, found) in zip(names, parts):
        limit = max(found.detectable, CLEAR_OF_HOSTS * furthest * found.spread)
        for host, usual_s, p, far in zip(hosts, np.exp(expected).tolist(), found.p, found.far):
            value = now.values[host]
            out.append(
                Trend(
                    Scalar(f"{name} on host {host}", value, now.units, now.better),
                    len(earlier),
                    usual_s,
                    value / usual_s - 1,
                    float(p),
                    bool(far > CLEAR_OF_HOSTS * furthest * found.spread),
                    math.expm1(min(limit, 700)),
                    host,
                    now.at,
                )
            )
    return out


def _furthest(parts: list[np.ndarray]) -> float:
    """The largest distance over all labels; the runs of all labels count as the same ones."""
    shortest = min((len(part) for part in parts), default=0)
    return widest(np.max([part[:shortest] for part in parts], axis=0)) if shortest else 0.0


def widest(distances: np.ndarray) -> float:
    """The largest of (n,) distances, except for one in ten: a bad run of the past must not hide later ones."""
    return float(np.sort(distances)[-1 - len(distances) // 10])


def _positive(values: dict[str, float], host: str) -> bool:
    return 0 < values.get(host, math.nan) < math.inf


@dataclass(frozen=True)
class Pooled:
    """New values of many short series with one spread. p: (series,) two-sided. far: (series,) the distances from the
    series' medians, and detectable: the distance that is detected with 80 % power, both in the unit of the values.
    furthest: (runs,) the largest distance in each earlier run, in spreads.
    """

    p: np.ndarray
    far: np.ndarray
    detectable: float
    spread: float
    furthest: np.ndarray


def pooled_prediction(rests: np.ndarray, now: np.ndarray) -> Pooled:
    """Test whether new values fit many short series with one spread, which a few runs are enough to estimate.

    The spread is the MAD of all rests, corrected for the median that each series lost. The test statistic is Student's
    t; its degrees of freedom are 37 % of the remaining ones, the efficiency of a MAD.

    Parameters
    ----------
    rests : (runs, series) float, each series minus its median; NaN if a run has no value
    now : (series,) float, the new values without those medians, same unit
    """
    from scipy.stats import t

    runs = np.count_nonzero(np.isfinite(rests), axis=0)
    n = int(np.median(runs))
    sizes = np.abs(rests)
    spread = float(np.nanmedian(sizes)) / _rest_mad(n)
    freedom = max(2.0, 0.37 * float((runs - 1).sum()))
    width = spread * math.sqrt(1 + math.pi / (2 * n))
    far = np.abs(now)
    p = 2 * t.sf(far / width, freedom) if width > 0 else np.where(far > 0, 0.0, 1.0)
    needed = float(t.ppf(1 - ALPHA / 2, freedom) + t.ppf(POWER, freedom))
    furthest = np.nanmax(sizes, axis=1) / (spread or math.inf)
    return Pooled(np.asarray(p), far, needed * width, spread, furthest)


@functools.cache
def _rest_mad(n: int) -> float:
    """The median distance of n normal values with spread 1 from their own median, simulated."""
    drawn = np.random.default_rng(20261128 + n).standard_normal((_SIMULATED, n))
    return float(np.median(np.abs(drawn - np.median(drawn, axis=1, keepdims=True))))


def _adjust(judged_: list[Judged]) -> None:
    """False-discovery control over each family of all kinds: a folder with many values must not give false alarms, and
    the values of a thousand hosts must not hide a change of the whole run.
    """
    from scipy.stats import false_discovery_control

    for family in ("trends", "labels", "hosts"):
        trends = [trend for one in judged_ for trend in getattr(one, family)]
        if not trends:
            continue
        adjusted = iter(false_discovery_control([trend.p for trend in trends]).tolist())
        for one in judged_:
            mine = getattr(one, family)
            setattr(one, family, [Trend(**{**vars(trend), "p": next(adjusted)}) for trend in mine])


def trend_of(scalar: Scalar, before: list[float]) -> Trend:
    earlier = np.array(before)
    middle = float(np.median(earlier))
    positive = scalar.value > 0 and bool((earlier > 0).all())
    x, now = (np.log(earlier), math.log(scalar.value)) if positive else (earlier, scalar.value)
    p, detectable = prediction(x, now)
    limit = CLEAR_OF_RUNS * widest(np.abs(x - np.median(x)))
    beyond, detectable = abs(now - float(np.median(x))) > limit, max(detectable, limit)
    if positive:
        mde = math.expm1(detectable) if detectable < 700 else math.inf
        change = scalar.value / middle - 1
    else:
        mde = detectable / abs(middle) if middle else math.inf
        change = (scalar.value - middle) / abs(middle) if middle else math.copysign(math.inf, scalar.value)
        change = 0.0 if scalar.value == middle else change
    return Trend(scalar, len(before), middle, change, p, beyond, mde)


def prediction(earlier: np.ndarray, now: float) -> tuple[float, float]:
    """Test whether a new value fits earlier ones: its robust p value, and the change that is detected with 80 % power.

    The distance from the median in units of 1.4826 MAD is compared with the same statistic of simulated normal samples
    of that size, so that the verdict accounts for the small number of runs. If all earlier values are equal, any other
    value is infinitely far.

    Parameters
    ----------
    earlier : (n,) float, n >= 2
    now : the new value, same unit

    Returns
    -------
    (p, change), change in the unit of the values; p >= 1 / 20001.
    """
    far, needed = _calibration(len(earlier))
    middle = float(np.median(earlier))
    spread = 1.4826 * float(np.median(np.abs(earlier - middle)))
    distance = abs(now - middle)
    z = distance / spread if spread > 0 else (math.inf if distance > 0 else 0.0)
    p = (1 + int(np.count_nonzero(far >= z))) / (1 + len(far))
    return p, needed * spread


@functools.cache
def _calibration(n: int) -> tuple[np.ndarray, float]:
    """|robust z| of a normal value after n others, simulated; the shift in sigma that is detected with POWER."""
    random = np.random.default_rng(20261120 + n)
    drawn = random.standard_normal((_SIMULATED, n))
    new = random.standard_normal(_SIMULATED)
    middle = np.median(drawn, axis=1)
    spread = 1.4826 * np.median(np.abs(drawn - middle[:, None]), axis=1)
    far = np.abs(new - middle) / spread
    # A shift d is detected if (new + d - middle) / spread reaches the threshold.
    needed = np.quantile(far, 1 - ALPHA) * spread - (new - middle)
    return far, float(np.quantile(needed, POWER))


def changes(newest: PastRun, earlier: list[PastRun]) -> list[tuple[str, Any, Any]]:
    """Attributes whose value no earlier run had: (name, value of the last one, value of the newest)."""
    out = []
    for name in dict.fromkeys((*earlier[-1].attrs, *newest.attrs)):
        now = newest.attrs.get(name, "not recorded")
        seen = [run.attrs.get(name, "not recorded") for run in earlier]
        if now not in seen:
            out.append((name, seen[-1], now))
    return out
