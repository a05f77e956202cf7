"""`sonde data history`: past runs of a folder, from an index, and whether the newest is worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sonde.core.errors import DataError, Finding, Warning, typed
from sonde.core.printable import printable
from sonde.data.history_index import indexed
from sonde.data.past_runs import PastRun, Scalar
from sonde.data.trends import FEWEST, Judged, Trend, judge, trend_of
from sonde.data.words import count, quantity, share


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
    runs, warnings, read = indexed(folder)
    if not runs:
        raise DataError(
            "data.no_runs",
            f"no dataset in {folder} can be read" if warnings else f"there is no dataset in {folder}",
            "sonde data validate FILE shows the reason" if warnings else "give the folder of the .nc files",
        )
    runs.sort(key=lambda run: (run.created, run.file))
    runs, copies = without_copies(runs)
    return History(runs, judge(runs), [*warnings, *copies], read)


def without_copies(runs: Sequence[PastRun]) -> tuple[list[PastRun], list[Warning]]:
    """The runs without copies of one and the same run, in their order; a warning if there are copies.

    A run that counts n times would show that nothing varies.
    """
    first: dict[object, PastRun] = {}
    copies: dict[str, list[str]] = {}
    for run in runs:
        values = tuple((name, scalar.value) for name, scalar in sorted(run.scalars.items()))
        # Two runs never have equal delays to the last digit; runs without a number are distinguished by their files.
        same = (run.kind, run.created, values if values else run.file)
        if same in first:
            copies.setdefault(first[same].file, []).append(run.file)
        else:
            first[same] = run
    if not copies:
        return list(runs), []
    files = sum(map(len, copies.values()))
    original, names = max(copies.items(), key=lambda item: len(item[1]))
    return list(first.values()), [
        Warning(
            "data.copies",
            f"{count(files, 'file')} {'is a copy' if files == 1 else 'are copies'} of other runs in this folder, "
            f"such as {printable(names[0])} of {printable(original)}: each run counts once",
            "move the copies out of the folder",
        )
    ]


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
        if len(middles) > FEWEST and trend_of(scalar, middles[:-1]).worse(matters):
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
