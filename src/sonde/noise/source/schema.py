"""Datasets of kind `source`: the bursts of noise sources, one source on each host.

/raw; `burst` counts the bursts of each source:

planned, begin       s of CLOCK_MONOTONIC of its host; add `realtime_ahead` for CLOCK_REALTIME
wall, cpu, overhead  s; see `native/noise/source.hpp`
words                number of words summed in a burst
skipped              points of the grid left out before a burst
truncated            1 where the period ended before the work was done
n                    bursts of a source; the rest of its row is empty
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.allowed import COUNT, FINITE, LEVELS, NUMBERED, Allowed, codes, count_of
from sonde.core.described import ROOT, Described, Tables, optional, variables
from sonde.core.errors import DataError, Warning
from sonde.core.layout import Layout

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile
    from sonde.core.deadline import Deadline

_CHUNK = 65536  # bursts

# name: (name in the records, dtype, fill, unit, long name)
BURST: dict[str, tuple[str, str, float | int | None, str, str]] = {
    "planned": ("planned", "<f8", np.nan, "s", "point of the grid, CLOCK_MONOTONIC of the host"),
    "begin": ("begin", "<f8", np.nan, "s", "begin of the burst, CLOCK_MONOTONIC of the host"),
    "wall": ("wall", "<f8", np.nan, "s", "time from begin until the work was done"),
    "cpu": ("cpu", "<f8", np.nan, "s", "CPU time since the end of the burst before"),
    "overhead": ("overhead", "<f8", np.nan, "s", "part of the CPU time that was used before begin"),
    "words": ("words", "<i8", 0, "1", "64-bit words summed"),
    "on_cpu": ("on_cpu", "<i4", -1, "1", "CPU on which the burst ended"),
    "skipped": ("skipped", "<i4", 0, "1", "points of the grid left out before the burst"),
    "truncated": (
        "truncated",
        "|i1",
        0,
        "1",
        "whether the period, or the source, ended before the work was done",
    ),
    "preempted": ("preempted", "<i4", 0, "1", "involuntary context switches during the burst"),
}

# name: (key of the header, dtype, unit, long name)
SOURCE: dict[str, tuple[str, str, str, str]] = {
    "host": ("host", "str", "", "host of the source"),
    "level": ("level", "<f8", "1", "requested CPU time, share of each period"),
    "period": ("period_s", "<f8", "s", "time from burst to burst"),
    "footprint": ("words", "<i8", "1", "64-bit words of its array"),
    "core": ("core", "<i4", "1", "CPU to which it was pinned; -1: not pinned"),
    "phase": ("phase_s", "<f8", "s", "offset of the grid from multiples of the period of CLOCK_REALTIME"),
    "pid": ("pid", "<i8", "1", "process id"),
    "realtime_ahead": ("realtime_ahead_s", "<f8", "s", "CLOCK_REALTIME minus CLOCK_MONOTONIC at the begin"),
    "cpu_clock_cost": ("cpu_clock_cost_s", "<f8", "s", "time of one reading of the CPU time"),
}

_WHOLE = {name: COUNT for name in ("words", "skipped", "preempted")}
_FACTS = {name: FINITE for name in ("level", "phase", "realtime_ahead", "cpu_clock_cost")}
RAW: dict[str, Described] = {
    **{
        name: optional(
            ("source", "burst"),
            unit,
            text,
            dtype,
            _WHOLE.get(name)
            or (FINITE if dtype == "<f8" else codes(0, 1) if name == "truncated" else NUMBERED),
        )
        for name, (_, dtype, _, unit, text) in BURST.items()
    },
    **{
        name: optional(("source",), unit, text, dtype, _FACTS.get(name))
        for name, (_, dtype, unit, text) in SOURCE.items()
    },
    "source": optional(("source",), "1", "noise source", "<i4", COUNT),
    "n": optional(("source",), "1", "bursts", "<i4", count_of("burst")),
    "period": optional(("source",), "s", SOURCE["period"][3], "<f8", Allowed(low=1e-9, besides=(-1,))),
}
"""The variables of /raw and their allowed values."""


def _load(units: str, long_name: str) -> Described:
    return optional(("source",), units, long_name, "<f8", FINITE)


def _count(long_name: str) -> Described:
    return optional(("source",), "1", long_name, "<i8", COUNT)


def _spread(units: str, long_name: str) -> Described:
    return optional(("source", "quantile"), units, long_name, "<f8", FINITE)


LOADS = {
    "asked": _load("1", "requested CPU time, share of each period"),
    "duty_cpu": _load("1", "CPU time used, share of the time"),
    "duty_work": _load("1", "CPU time used for summing, share of the time"),
    "duty_wall": _load("1", "time from begin to end of bursts, share of the time"),
    "jitter": _load("s", "standard deviation of the delay with which bursts begin"),
    "overhead": _load("s", "median CPU time of a burst for waking up and bookkeeping"),
}
COUNTS = {
    "bursts": _count("bursts"),
    "skipped": _count("points of the grid left out"),
    "truncated": _count("bursts that ended before their work was done"),
    "preempted": _count("involuntary context switches during bursts"),
}
SPREADS = {
    "wall_quantile": _spread("s", "time from begin to end of a burst"),
    "cpu_quantile": _spread("s", "CPU time of a burst"),
    "late_quantile": _spread("s", "begin of a burst after its point of the grid"),
    "words_quantile": _spread("1", "64-bit words summed in a burst"),
}
FACTS = ("host", "core", "period", "footprint", "phase")
SUMMARY: dict[str, Described] = {
    **LOADS,
    **COUNTS,
    **SPREADS,
    **{name: RAW[name] for name in FACTS},
    "source": RAW["source"],
    "quantile": optional(("quantile",), "1", "quantile", "<f8", LEVELS),
}
"""The variables of /summary."""

QUANTILES = (0.05, 0.5, 0.95, 0.99, 1.0)


class SourceSchema:
    """The RoomSchema of this kind. Plan keys: `hosts`, the names of the hosts that should have a source."""

    room, version = "noise", 1

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        return [""]

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> Layout:
        """A layout with one row for each file. If a host has no burst, complete is False and a warning names it.

        Raises
        ------
        DataError  noise.not_source_blocks: a file was not written by a noise source.
        """
        for file in files:
            if file.header.get("kind") != "source" or not {r for r, *_ in BURST.values()} <= set(
                file.dtype.names or ()
            ):
                raise DataError(
                    "noise.not_source_blocks",
                    f"{file.path.name} was not written by a noise source",
                    "keep the files of one run in its folder, and only these",
                )
        counts = np.array([file.records for file in files], np.int32)
        longest = max(1, int(counts.max(initial=0)))
        chunks = (1, min(longest, _CHUNK))
        made = {name: RAW[name].variable(fill, chunks) for name, (_, _, fill, _, _) in BURST.items()}
        made |= {name: RAW[name].variable() for name in (*SOURCE, "n")}
        layout = Layout(
            dims={"source": len(files), "burst": longest},
            coords={"source": (np.arange(len(files), dtype=np.int32), RAW["source"].attrs())},
            variables=made,
            attrs={"sources": len(files)},
        )
        worked = {str(file.header.get("host")) for file, count in zip(files, counts) if count}
        silent = [host for host in plan.get("hosts", ()) if host not in worked]
        if silent:
            layout.complete = False
            layout.warnings.append(
                Warning(
                    "noise.source_silent",
                    f"no burst was recorded on {', '.join(silent[:8])}"
                    + (f" and {len(silent) - 8} more hosts" if len(silent) > 8 else ""),
                    "its program failed or cannot access the folder of the dataset: use a folder that all hosts share",
                )
            )
        return layout

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        """The bursts of one source, and the fields of its header."""
        row = self._row(layout, file)
        for name, (key, dtype, *_) in SOURCE.items():
            value = file.header.get(key)
            array = (
                np.array([str(value or "")], object) if dtype == "str" else np.array([_number(value)], dtype)
            )
            yield name, (slice(row, row + 1),), array
        at = 0
        for records in file:
            for name, (key, dtype, *_) in BURST.items():
                yield name, (row, slice(at, at + len(records))), records[key].astype(dtype)
            at += len(records)
        yield "n", (slice(row, row + 1),), np.array([at], np.int32)

    @staticmethod
    def _row(layout: Layout, file: BlockFile) -> int:
        """The row of a file. seal passes the files in the same order each time, so the layout can number them."""
        rows: dict[str, int] = layout.__dict__.setdefault("rows", {})
        return rows.setdefault(file.path.name, len(rows))

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        """From /raw to /summary: `analyse`."""
        return analyse(raw)

    def tables(self, tree: xr.DataTree) -> Tables:
        """The declared variables and root attributes, with which `dataset.open` compares a file."""
        return {"raw": RAW, "summary": SUMMARY, "": ROOT}


def _number(value: Any) -> float | int:
    return value if isinstance(value, int | float) else -1


def analyse(raw: xr.Dataset) -> xr.Dataset:
    """The measured load of each source.

    Parameters
    ----------
    raw : planned, begin, wall, cpu, overhead (source, burst), s; n, level, period (source)

    Returns
    -------
    Dataset over source and quantile. Shares are relative to the time from the first point of the grid to one period
    after the last, including skipped points. A source without bursts has NaN, and counts of 0.
    """
    import xarray as xr

    from sonde.core import stats

    sources = raw.sizes["source"]
    values = {name: np.full(sources, np.nan) for name in LOADS}
    counts = {name: np.zeros(sources, np.int64) for name in COUNTS}
    spread = {name: np.full((sources, len(QUANTILES)), np.nan) for name in SPREADS}
    for row in range(sources):
        n, period = int(raw["n"][row]), float(raw["period"][row])
        values["asked"][row] = float(raw["level"][row])
        if n == 0:
            continue
        one = {name: raw[name][row, :n].values for name in BURST}
        points = round((one["planned"][-1] - one["planned"][0]) / period) + 1
        span_s = points * period
        values["duty_cpu"][row] = one["cpu"].sum() / span_s
        values["duty_work"][row] = (one["cpu"] - one["overhead"]).sum() / span_s
        values["duty_wall"][row] = one["wall"].sum() / span_s
        values["overhead"][row] = stats.median(one["overhead"])
        counts["bursts"][row] = n
        counts["skipped"][row] = one["skipped"][1:].sum()  # points before the first burst do not count
        counts["truncated"][row] = one["truncated"].sum()
        counts["preempted"][row] = one["preempted"].sum()
        late = one["begin"] - one["planned"]
        values["jitter"][row] = late.std()
        for name, series in {**one, "late": late}.items():
            if (quantile := f"{name}_quantile") in spread:
                spread[quantile][row] = [stats.quantile(series.astype(float), q) for q in QUANTILES]
    facts = {name: raw[name].values for name in FACTS}
    coords = {"source": raw["source"].values, "quantile": np.array(QUANTILES)}
    return xr.Dataset(
        variables(SUMMARY, {**values, **counts, **spread, **facts}), coords=variables(SUMMARY, coords)
    )


SCHEMA = SourceSchema()
