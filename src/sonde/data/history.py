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
from sonde.data.diff import OF_THE_RUN, judged
from sonde.data.words import quantity, share

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
)  # of noise: runs of other loops or agents tell nothing
FEWEST = 5  # earlier runs, below which nothing can be said
ALPHA, POWER = 0.05, 0.8
_FORMAT = 1
_COLUMNS = ["file", "size", "mtime_ns", "said", "error"]
_SIMULATED = 20_000
_QUANTILE_CELLS = 20  # below these, a 95 % quantile over cells is the maximum


@dataclass(frozen=True)
class Scalar:
    """One number that stands for a run. better: "lower", "higher", or "" where neither is."""

    name: str
    value: float
    units: str
    better: str


@dataclass(frozen=True)
class PastRun:
    """A dataset of the folder. key: what must agree for two runs to be comparable."""

    file: str
    schema: str
    created: str
    complete: bool
    key: dict[str, Any]
    attrs: dict[str, Any]
    scalars: dict[str, Scalar]

    @property
    def kind(self) -> str:
        return json.dumps(self.key, sort_keys=True)


@dataclass(frozen=True)
class Trend:
    """The newest value of one scalar against earlier comparable runs.

    change: relative to their median. p: two-sided, of a value that far away by chance; adjusted over all
    scalars of all kinds. mde: the relative change that would be found in four cases of five. beyond: outside
    everything seen before.
    """

    scalar: Scalar
    earlier: int
    median: float
    change: float
    p: float
    beyond: bool
    mde: float

    def worse(self, matters: float) -> bool:
        """Whether this is a regression; where no direction is better, whether it is a change at all."""
        towards = {"lower": self.change > 0, "higher": self.change < 0}.get(self.scalar.better, True)
        return towards and self.beyond and abs(self.change) >= matters and self.p <= ALPHA


@dataclass
class Judged:
    """The newest run of one kind, the earlier ones (oldest first), and (name, before, now) of attributes."""

    newest: PastRun
    earlier: list[PastRun]
    trends: list[Trend] = field(default_factory=list)
    changed: list[tuple[str, Any, Any]] = field(default_factory=list)

    @property
    def enough(self) -> bool:
        return len(self.earlier) >= FEWEST


@dataclass
class History:
    """Runs of a folder, oldest first; the newest of each kind, judged; what could not be read."""

    runs: list[PastRun]
    judged: list[Judged]
    warnings: list[Warning]
    read: int  # datasets that had to be opened; the others were in the index


def history(folder: Path) -> History:
    """Reads a folder's runs by its index, and compares the newest of each kind with the earlier ones.

    The index `.sonde-history.sqlite` is made, kept up to date by size and time of change, and made again when
    it is damaged. In a folder that cannot be written it lives in memory.

    Raises
    ------
    DataError  data.no_folder: it is not a folder; data.no_runs: no dataset is in it.
    """
    if not folder.is_dir():
        raise DataError(
            "data.no_folder", f"{folder} is not a folder", "give the folder that holds the datasets"
        )
    runs, warnings, read = _indexed(folder)
    if not runs:
        raise DataError(
            "data.no_runs",
            f"no dataset in {folder} can be read" if warnings else f"there is no dataset in {folder}",
            "sonde data validate FILE says why" if warnings else "give the folder that holds the .nc files",
        )
    runs.sort(key=lambda run: (run.created, run.file))
    return History(runs, judge(runs), warnings, read)


def findings(found: History, folder: Path, matters: float = 0.05) -> list[Finding]:
    """A finding for each scalar of a newest run that is worse than all before; with what changed."""
    out = []
    for one in found.judged:
        for trend in one.trends:
            if not trend.worse(matters):
                continue
            scalar, last = trend.scalar, one.earlier[-1]
            changed = {name: {"before": old, "now": new} for name, old, new in one.changed}
            names = ", ".join(changed) or "nothing that is recorded"
            out.append(
                Finding(
                    "data.regression" if scalar.better else "data.change",
                    f"{one.newest.file}: {scalar.name} is {quantity(scalar.value, scalar.units)}, "
                    f"{share(trend.change)} from the median of {trend.earlier} earlier runs; "
                    f"changed since: {names}",
                    {
                        "file": one.newest.file,
                        "scalar": scalar.name,
                        "value": scalar.value,
                        "units": scalar.units,
                        "median": trend.median,
                        "change": trend.change,
                        "p": trend.p,
                        "earlier_runs": trend.earlier,
                        "minimal_detectable_change": trend.mde,
                        "changed": changed,
                    },
                    typed("sonde", "data", "diff", folder / last.file, folder / one.newest.file),
                )
            )
    return out


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
            for name, scalar in newest.scalars.items():
                before = [run.scalars[name].value for run in earlier if name in run.scalars]
                before = [value for value in before if math.isfinite(value)]
                if len(before) >= FEWEST and math.isfinite(scalar.value):
                    one.trends.append(_trend(scalar, before))
        out.append(one)
    _adjust(out)
    return out


def _adjust(judged_: list[Judged]) -> None:
    """False-discovery control over every scalar of every kind: a folder of many must not cry wolf."""
    from scipy.stats import false_discovery_control

    trends = [trend for one in judged_ for trend in one.trends]
    if not trends:
        return
    adjusted = iter(false_discovery_control([trend.p for trend in trends]).tolist())
    for one in judged_:
        one.trends = [Trend(**{**vars(trend), "p": next(adjusted)}) for trend in one.trends]


def _trend(scalar: Scalar, before: list[float]) -> Trend:
    earlier = np.array(before)
    middle = float(np.median(earlier))
    beyond = not earlier.min() <= scalar.value <= earlier.max()
    positive = scalar.value > 0 and bool((earlier > 0).all())
    x, now = (np.log(earlier), math.log(scalar.value)) if positive else (earlier, scalar.value)
    p, detectable = prediction(x, now)
    if positive:
        mde = math.expm1(detectable) if detectable < 700 else math.inf
        change = scalar.value / middle - 1
    else:
        mde = detectable / abs(middle) if middle else math.inf
        change = (scalar.value - middle) / abs(middle) if middle else math.copysign(math.inf, scalar.value)
        change = 0.0 if scalar.value == middle else change
    return Trend(scalar, len(before), middle, change, p, beyond, mde)


def prediction(earlier: np.ndarray, now: float) -> tuple[float, float]:
    """Whether a new value fits earlier ones: its robust p value, and the change found in four cases of five.

    The distance from the median in units of 1.4826 MAD is held against the same statistic of simulated normal
    samples of that size, so that few runs are not asked for more than they can tell. When all earlier values
    are equal, any other value is infinitely far.

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
    """|robust z| of a normal value after n others, simulated; the shift in sigma that is found with POWER."""
    random = np.random.default_rng(20261120 + n)
    drawn = random.standard_normal((_SIMULATED, n))
    new = random.standard_normal(_SIMULATED)
    middle = np.median(drawn, axis=1)
    spread = 1.4826 * np.median(np.abs(drawn - middle[:, None]), axis=1)
    far = np.abs(new - middle) / spread
    # A shift d is found when (new + d - middle) / spread reaches the threshold.
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
    """What history keeps of a dataset.

    Raises
    ------
    DataError  as `sonde.open`.
    """
    with dataset.open(path) as tree:
        attrs = dataset.attrs(tree)
        room, version = dataset.schema_of(tree)
        summary = tree.children["summary"].to_dataset() if "summary" in tree.children else None
        scalars = {} if summary is None else {scalar.name: scalar for scalar in _scalars(summary)}
        machine = {
            name: value
            for name, value in attrs.items()
            if name not in OF_THE_RUN and not isinstance(value, float)
        }
        return PastRun(
            path.name,
            f"{room}/{version}",
            str(attrs.get("created_utc", "")),
            bool(attrs.get("complete", 0)),
            _key(tree, attrs, summary),
            machine,
            scalars,
        )


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


def _scalars(summary: xr.Dataset) -> Iterator[Scalar]:
    """Single values, and of each variable with an interval the median and the 95 % quantile over cells."""
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
    """All runs of the folder. What the index knows already is not opened again."""
    path = folder / INDEX
    ways: list[Callable[[Path], sqlite3.Connection]] = (
        [_kept, _copied, _empty] if _may_keep(folder) else [_empty]
    )
    while True:
        connect = ways.pop(0)
        try:
            with contextlib.closing(connect(path)) as index:
                read = _refresh(index, folder)
                return *_load(index), read
        except (sqlite3.OperationalError, OSError):
            # Locked, or not writable: the next way needs less of the file.
            if not ways:
                raise
        except _DAMAGE:
            # Damaged. An index holds nothing that the datasets do not.
            if connect is _kept and not _removed(path):
                continue
            ways = [_kept, _empty] if connect is _kept else [_empty]


def _may_keep(folder: Path) -> bool:
    """Whether the index may be opened in the folder. SQLite follows links: it would write to the file they lead to.

    A group may share a folder and its index. Root keeps no index in a folder of another user, who could put a link
    there at any moment.
    """
    try:
        with Folder(folder) as held:
            facts = [held.facts(f"{INDEX}{suffix}") for suffix in ("", "-journal", "-wal", "-shm")]
            plain = all(one is None or (stat.S_ISREG(one.st_mode) and one.st_nlink == 1) for one in facts)
            return plain and (held.is_own or os.geteuid() != 0)
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
        index.execute("BEGIN IMMEDIATE")  # fails where it cannot be written, before anything is read
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
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as kept:
            kept.backup(index)
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
        "CREATE TABLE run (file TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, said TEXT, error TEXT)"
    )
    index.execute(f"PRAGMA user_version = {_FORMAT}")


def _refresh(index: sqlite3.Connection, folder: Path) -> int:
    """Brings the index up to date; returns how many datasets were opened for that."""
    known = {file: (size, time) for file, size, time in index.execute("SELECT file, size, mtime_ns FROM run")}
    here: dict[str, tuple[int, int]] = {}
    for path in sorted(folder.glob("*.nc")):
        with contextlib.suppress(OSError):
            status = path.stat()
            here[path.name] = status.st_size, status.st_mtime_ns
    for file in known.keys() - here.keys():
        index.execute("DELETE FROM run WHERE file = ?", (file,))
    fresh = [file for file, stamp in here.items() if known.get(file) != stamp]
    for file in fresh:
        said, error = None, None
        try:
            said = json.dumps(_said(read_run(folder / file)))
        except DataError as failed:
            error = failed.what
        index.execute("REPLACE INTO run VALUES (?, ?, ?, ?, ?)", (file, *here[file], said, error))
    index.commit()
    return len(fresh)


def _load(index: sqlite3.Connection) -> tuple[list[PastRun], list[Warning]]:
    runs, warnings = [], []
    for file, said, error in index.execute("SELECT file, said, error FROM run ORDER BY file"):
        if error is not None:
            warnings.append(Warning("data.unreadable_run", error, typed("sonde", "data", "validate", file)))
            continue
        kept = json.loads(said)
        kept["scalars"] = {name: Scalar(**scalar) for name, scalar in kept["scalars"].items()}
        runs.append(PastRun(file=file, **kept))
    return runs, warnings


def _said(run: PastRun) -> dict[str, Any]:
    return {
        "schema": run.schema,
        "created": run.created,
        "complete": run.complete,
        "key": run.key,
        "attrs": run.attrs,
        "scalars": {name: vars(scalar) for name, scalar in run.scalars.items()},
    }
