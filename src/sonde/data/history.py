"""`sonde data history`: past runs of a folder, from an index, and whether the newest is worse."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import dataset, hostlist
from sonde.core.errors import DataError, Finding, SondeError, Warning, typed
from sonde.core.owned_files import Folder
from sonde.core.printable import encodable
from sonde.data.diff import judged, of_the_run
from sonde.data.slices import MIN_HOSTS, HostSlice, host_slices, label_slices
from sonde.data.words import count, quantity, share

if TYPE_CHECKING:
    import xarray as xr

INDEX = ".sonde-history.sqlite"
WHAT = (
    "kind",
    "study",
    "op",
    "size",
    "agent",
    "period_s",
)  # of noise: runs with other loops or agents are not comparable
FEWEST = 5  # smallest number of earlier runs for a verdict
ALPHA, POWER = 0.05, 0.8
# A value counts as changed only if it is this many times as far off as in earlier runs: five or six runs do not show
# how heavy the tails of a machine's runs are. With tails as heavy as Student's t with 3 degrees of freedom, one clean
# run in 21 is that far off after six (1 / (1 + 6 * 1.5^3)).
CLEAR_OF_RUNS = 1.5
# A host counts as changed only if it is this many times as far off as any host was before. With six earlier runs and
# tails as heavy as Student's t with 3 degrees of freedom, one clean run in 49 has such a host (1 / (1 + 6 * 2^3)).
CLEAR_OF_HOSTS = 2.0
_FORMAT = 3
_COLUMNS = ["file", "size", "mtime_ns", "said", "error"]
_SIMULATED = 20_000
_QUANTILE_CELLS = 20  # with fewer cells, a 95 % quantile over cells is the maximum


@dataclass(frozen=True)
class Scalar:
    """One number that represents a run. better: "lower", "higher", or "" if neither is better."""

    name: str
    value: float
    units: str
    better: str


@dataclass(frozen=True)
class PastRun:
    """A dataset of the folder. key: the values that must agree for two runs to be comparable."""

    file: str
    schema: str
    created: str
    complete: bool
    key: dict[str, Any]
    attrs: dict[str, Any]
    scalars: dict[str, Scalar]
    labels: dict[str, Scalar] = field(default_factory=dict)
    hosts: dict[str, HostSlice] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return json.dumps(self.key, sort_keys=True)


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


@dataclass
class History:
    """Runs of a folder, oldest first; the newest run of each kind, judged; warnings about unreadable files."""

    runs: list[PastRun]
    judged: list[Judged]
    warnings: list[Warning]
    read: int  # datasets that had to be opened; the others were in the index


def history(folder: Path) -> History:
    """Read a folder's runs by its index, and compare the newest of each kind with the earlier ones.

    The index `.sonde-history.sqlite` is created, updated by size and time of change, and created again if it is
    damaged. In a folder that cannot be written it is in memory only.

    Raises
    ------
    DataError  data.no_folder: it is not a folder; data.no_runs: it contains no dataset.
    """
    if not folder.is_dir():
        raise DataError("data.no_folder", f"{folder} is not a folder", "give the folder of the datasets")
    runs, warnings, read = _indexed(folder)
    if not runs:
        raise DataError(
            "data.no_runs",
            f"no dataset in {folder} can be read" if warnings else f"there is no dataset in {folder}",
            "sonde data validate FILE shows the reason" if warnings else "give the folder of the .nc files",
        )
    runs.sort(key=lambda run: (run.created, run.file))
    return History(runs, judge(runs), warnings, read)


def findings(found: History, folder: Path, matters: float = 0.05) -> list[Finding]:
    """Findings about values that are worse in a newest run than in all before, and the attributes that changed: for
    each host, for each value of the run as a whole, and for each size if the whole run shows no change.
    """
    out = []
    for one in found.judged:
        hosts: dict[str, list[Trend]] = {}
        for trend in one.hosts:
            if trend.worse(matters):
                hosts.setdefault(trend.host, []).append(trend)
        ranked = sorted(hosts.items(), key=lambda item: -max(abs(trend.change) for trend in item[1]))
        out += [_host_finding(one, host, trends, folder) for host, trends in ranked]
        whole = [
            trend
            for trend in one.trends
            if trend.worse(matters) and not _explained(trend, hosts, one, matters)
        ]
        out += [_finding(one, trend, folder) for trend in whole]
        shown = {_variable(trend.scalar.name) for trend in whole}
        if hosts:
            continue  # if a host is slow as well, it is the cause of a slow size
        out += [
            _finding(one, trend, folder)
            for trend in one.labels
            if trend.worse(matters) and _variable(trend.scalar.name) not in shown
        ]
    return out


def _explained(trend: Trend, hosts: dict[str, list[Trend]], one: Judged, matters: float) -> bool:
    """Whether slow hosts explain why a value of the whole run is worse: their cells are in it, and the median host is
    at no label worse than before.
    """
    name = _variable(trend.scalar.name)
    mine = {at for at, now in one.newest.hosts.items() if _variable(at) == name}
    if not any(_variable(slow.scalar.name) == name for trends in hosts.values() for slow in trends):
        return False
    for at in mine:
        levels = [run.hosts[at] for run in (*one.earlier, one.newest) if at in run.hosts]
        middles = [float(np.median(list(level.values.values()))) for level in levels]
        scalar = Scalar(at, middles[-1], trend.scalar.units, trend.scalar.better)
        if len(middles) > FEWEST and _trend(scalar, middles[:-1]).worse(matters):
            return False
    return True


def _variable(name: str) -> str:
    return name.split(" ", 1)[0]


def _finding(one: Judged, trend: Trend, folder: Path) -> Finding:
    scalar = trend.scalar
    return Finding(
        "data.regression" if scalar.better else "data.change",
        f"{one.newest.file}: {scalar.name} is {quantity(scalar.value, scalar.units)}, "
        f"{share(trend.change)} from the median of {trend.earlier} earlier runs; "
        f"changed since: {_changed(one)}",
        _evidence(one, trend),
        _closer(one, folder),
    )


def _host_finding(one: Judged, host: str, trends: list[Trend], folder: Path) -> Finding:
    worst = max(trends, key=lambda trend: abs(trend.change))
    scalar = worst.scalar
    others = f" (and {count(len(trends) - 1, 'other value')} of this host)" if len(trends) > 1 else ""
    at = f" at {worst.at}" if worst.at else ""
    return Finding(
        "data.regression",
        f"{one.newest.file}: host {host}: {_variable(scalar.name)}{at} is {quantity(scalar.value, scalar.units)}, "
        f"{share(worst.change)} from the value expected from {worst.earlier} earlier runs and the other hosts{others}; "
        f"changed since: {_changed(one)}",
        {
            **_evidence(one, worst),
            "host": host,
            "at": [
                {
                    "scalar": trend.scalar.name,
                    "at": trend.at,
                    "value": trend.scalar.value,
                    "change": trend.change,
                }
                for trend in trends
            ],
        },
        _closer(one, folder),
    )


def _changed(one: Judged) -> str:
    return ", ".join(name for name, _, _ in one.changed) or "no recorded attribute"


def _evidence(one: Judged, trend: Trend) -> dict[str, Any]:
    return {
        "file": one.newest.file,
        "scalar": trend.scalar.name,
        "value": trend.scalar.value,
        "units": trend.scalar.units,
        "median": trend.median,
        "change": trend.change,
        "p": trend.p,
        "earlier_runs": trend.earlier,
        "minimal_detectable_change": trend.mde,
        "changed": {name: {"before": old, "now": new} for name, old, new in one.changed},
    }


def _closer(one: Judged, folder: Path) -> str:
    return typed("sonde", "data", "diff", folder / one.earlier[-1].file, folder / one.newest.file)


# ---- judging -------------------------------------------------------------------------------------


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
            out.append(_trend(scalar, before))
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


def _trend(scalar: Scalar, before: list[float]) -> Trend:
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


# ---- reading -------------------------------------------------------------------------------------


def read_run(path: Path) -> PastRun:
    """The part of a dataset that the history stores.

    Raises
    ------
    DataError  as `sonde.open`.
    """
    with dataset.open(path) as tree:
        attrs = dataset.attrs(tree)
        room, version = dataset.schema_of(tree)
        summary = tree.children["summary"].to_dataset() if "summary" in tree.children else None
        scalars = {} if summary is None else scalars_of(summary)
        labels, hosts = ({}, {}) if summary is None else slices_of(summary)
        differing = of_the_run(attrs)
        machine = {
            name: value
            for name, value in attrs.items()
            if name not in differing and not isinstance(value, float)
        }
        return PastRun(
            path.name,
            f"{room}/{version}",
            str(attrs.get("created_utc", "")),
            bool(attrs.get("complete", 0)),
            _key(tree, attrs, summary),
            machine,
            scalars,
            labels,
            hosts,
        )


def slices_of(summary: xr.Dataset) -> tuple[dict[str, Scalar], dict[str, HostSlice]]:
    """Labels and hosts of each variable with an interval, by name."""
    labels: dict[str, Scalar] = {}
    hosts: dict[str, HostSlice] = {}
    place = (
        np.asarray(summary["host"].values).astype(str) if "host" in summary.data_vars else np.array([], str)
    )
    for name in judged(summary):
        variable = summary[name]
        better = _scalar(name, math.nan, variable).better
        for part in label_slices(name, variable):
            at = f"{name} at {part.at}"
            labels[at] = Scalar(at, part.value, part.units, better)
        if better and place.ndim == 1:
            for slice_ in host_slices(name, variable, place, better):
                hosts[f"{name} at {slice_.at}" if slice_.at else name] = slice_
    return labels, hosts


def _key(tree: xr.DataTree, attrs: dict[str, Any], summary: xr.Dataset | None) -> dict[str, Any]:
    group = tree.children.get("raw")
    sizes = dict(group.sizes) if group is not None else {} if summary is None else dict(summary.sizes)
    grid = hashlib.sha256()
    for name, coordinate in sorted(
        {} if summary is None else summary.coords.items(), key=lambda item: str(item[0])
    ):
        grid.update(f"{name}:{coordinate.values.tolist()};".encode())
    return {
        "schema": attrs.get("schema"),
        "mode": attrs.get("mode", ""),
        "hosts": _hosts(str(attrs.get("hostlist", ""))),
        "ranks": int(sizes.get("rank", sizes.get("src", 0))),
        "grid": grid.hexdigest()[:16],
        **{name: attrs[name] for name in WHAT if name in attrs},
    }


def _hosts(text: str) -> int:
    try:
        return len(hostlist.expand(text)) if text else 0
    except SondeError:
        return 0


def scalars_of(summary: xr.Dataset) -> dict[str, Scalar]:
    """Single values, and for each variable with an interval the median and the 95 % quantile over cells, by name."""
    return {scalar.name: scalar for scalar in _scalars(summary)}


def _scalars(summary: xr.Dataset) -> Iterator[Scalar]:
    for name in judged(summary):
        variable = summary[name]
        values = np.asarray(variable.values, float)
        values = values[np.isfinite(values)]
        if not values.size:
            continue
        if variable.ndim == 0:
            yield _scalar(name, float(values[0]), variable)
            continue
        yield _scalar(f"{name} (median over cells)", float(np.median(values)), variable)
        if values.size >= _QUANTILE_CELLS:
            yield _scalar(f"{name} (95 % over cells)", float(np.quantile(values, 0.95)), variable)
    for key, variable in summary.data_vars.items():
        name = str(key)
        alone = variable.ndim == 0 and variable.dtype.kind == "f" and name not in judged(summary)
        if alone and not name.endswith(("_low", "_high", "_p")):
            yield _scalar(name, float(variable.values), variable)


def _scalar(name: str, value: float, variable: xr.DataArray) -> Scalar:
    units = str(variable.attrs.get("units", ""))
    known = {"s": "lower", "B/s": "higher", "1/s": "higher"}
    return Scalar(name, value, units, str(variable.attrs.get("better", known.get(units, ""))))


# ---- the index -----------------------------------------------------------------------------------


_DAMAGE = (
    sqlite3.DatabaseError,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RecursionError,
)


def _indexed(folder: Path) -> tuple[list[PastRun], list[Warning], int]:
    """All runs of the folder. Datasets that the index already contains are not opened again."""
    path = folder / INDEX
    ways: list[Callable[[Path], sqlite3.Connection]] = (
        [_kept, _copied, _empty] if _may_keep(folder) else [_empty]
    )
    anew = False
    while True:
        connect = ways.pop(0)
        try:
            with contextlib.closing(connect(path)) as index:
                read = _refresh(index, folder)
                return *_load(index), read
        except (sqlite3.OperationalError, OSError):
            # Locked, or not writable: the next attempt needs fewer rights.
            if not ways:
                raise
        except _DAMAGE:
            # Damaged. An index contains nothing that the datasets do not contain.
            if connect is _kept and not anew and not _removed(path):
                continue
            if connect is _empty:
                raise
            ways = [_kept, _empty] if connect is _kept and not anew else [_empty]
            anew = True


def _may_keep(folder: Path) -> bool:
    """Whether the index may be opened in the folder. SQLite follows links: it would write to their target.

    A group may share a folder and its index. Root stores no index in a folder of another user, who could create a link
    there at any moment.
    """
    try:
        with Folder(folder) as opened:
            facts = [opened.facts(f"{INDEX}{suffix}") for suffix in ("", "-journal", "-wal", "-shm")]
            plain = all(one is None or (stat.S_ISREG(one.st_mode) and one.st_nlink == 1) for one in facts)
            return plain and (opened.is_own or os.geteuid() != 0)
    except OSError:
        return False


def _removed(path: Path) -> bool:
    try:
        for name in (path.name, f"{path.name}-journal"):
            path.with_name(name).unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _kept(path: Path) -> sqlite3.Connection:
    """The index in its file."""
    index = sqlite3.connect(path, timeout=5)
    try:
        index.execute("BEGIN IMMEDIATE")  # fails if it cannot be written, before anything is read
        if not _is_current(index):
            _create(index)
    except BaseException:
        index.close()
        raise
    return index


def _copied(path: Path) -> sqlite3.Connection:
    """A copy, in memory, of an index that can only be read."""
    index = sqlite3.connect(":memory:")
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as stored:
            stored.backup(index)
        if not _is_current(index):
            _create(index)
    except BaseException:
        index.close()
        raise
    return index


def _empty(_path: Path) -> sqlite3.Connection:
    """A new index in memory."""
    index = sqlite3.connect(":memory:")
    _create(index)
    return index


def _is_current(index: sqlite3.Connection) -> bool:
    columns = [row[1] for row in index.execute("PRAGMA table_info(run)")]
    return index.execute("PRAGMA user_version").fetchone()[0] == _FORMAT and columns == _COLUMNS


def _create(index: sqlite3.Connection) -> None:
    index.execute("DROP TABLE IF EXISTS run")
    index.execute(
        "CREATE TABLE run (file BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, said TEXT, error TEXT)"
    )
    index.execute(f"PRAGMA user_version = {_FORMAT}")


def _refresh(index: sqlite3.Connection, folder: Path) -> int:
    """Update the index; returns the number of datasets that were opened."""
    rows = index.execute("SELECT file, size, mtime_ns FROM run")
    known = {os.fsdecode(file): (size, time) for file, size, time in rows}  # a name is bytes
    here: dict[str, tuple[int, int]] = {}
    for path in sorted(folder.glob("*.nc")):
        with contextlib.suppress(OSError):
            status = path.stat()
            here[path.name] = status.st_size, status.st_mtime_ns
    for file in known.keys() - here.keys():
        index.execute("DELETE FROM run WHERE file = ?", (os.fsencode(file),))
    fresh = [file for file, stamp in here.items() if known.get(file) != stamp]
    for file in fresh:
        stored, error = None, None
        try:
            stored = json.dumps(_said(read_run(folder / file)))
        except DataError as failed:
            error = encodable(failed.what)
        index.execute(
            "REPLACE INTO run VALUES (?, ?, ?, ?, ?)", (os.fsencode(file), *here[file], stored, error)
        )
    index.commit()
    return len(fresh)


def _load(index: sqlite3.Connection) -> tuple[list[PastRun], list[Warning]]:
    runs, warnings = [], []
    for name, stored, error in index.execute("SELECT file, said, error FROM run ORDER BY file"):
        file = os.fsdecode(name)
        if error is not None:
            warnings.append(Warning("data.unreadable_run", error, typed("sonde", "data", "validate", file)))
            continue
        fields = json.loads(stored)
        for family, kind in (("scalars", Scalar), ("labels", Scalar), ("hosts", HostSlice)):
            fields[family] = {name: kind(**one) for name, one in fields[family].items()}
        runs.append(PastRun(file=file, **fields))
    return runs, warnings


def _said(run: PastRun) -> dict[str, Any]:
    return {
        "schema": run.schema,
        "created": run.created,
        "complete": run.complete,
        "key": run.key,
        "attrs": run.attrs,
        **{
            family: {name: vars(one) for name, one in getattr(run, family).items()}
            for family in ("scalars", "labels", "hosts")
        },
    }
