"""What a prediction says, in words and tables. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sonde.core.errors import Finding, Warning
from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_share, format_size
from sonde.io.maps.layers import KINDS
from sonde.io.predict.costs import FEW
from sonde.io.predict.replay import LEVEL, MOST_THIN, Estimate, Prediction, Replayed, Row
from sonde.io.trace.compare import of_layers
from sonde.io.trace.verdict import counted

if TYPE_CHECKING:
    import xarray as xr

MODEL = Warning(
    "io.modelled",
    "this is a model and no measurement: every call is taken to cost what calls of its function and size cost in the "
    "traces of the other configuration",
    "hold it against a run there: --against C.nc",
)
FUNCTIONS_SHOWN = 10
LEAST_SHARE = 0.01  # of the time that is replayed, or modelled: a function that takes less is not told of
LEAST_TOLD = 0.001  # of the time measured: of a layer that takes less no ratio is told
OTHER = 0.01  # difference in requests or bytes from which on two runs are not of one program
_LOADS = {  # what sonde-ioload calls of a layer: how it is told to
    ("mpiio", "mpi_file_write_at"): "-a MPIIO -w",
    ("mpiio", "mpi_file_read_at"): "-a MPIIO",
    ("mpiio", "mpi_file_write_at_all"): "-a MPIIO -c -w",
    ("mpiio", "mpi_file_read_at_all"): "-a MPIIO -c",
    ("mpiio", "mpi_file_write"): "-a MPIIO -V -w",
    ("mpiio", "mpi_file_read"): "-a MPIIO -V",
    ("mpiio", "mpi_file_write_all"): "-a MPIIO -V -c -w",
    ("mpiio", "mpi_file_read_all"): "-a MPIIO -V -c",
    ("posix", "pwrite"): "-w",
    ("posix", "pread"): "",
}
_LEAST_BLOCK = 16 << 20  # B that a workload is suggested to move, so that it makes more than a call or two


def sentence(found: Prediction, a: str, on: Sequence[str]) -> str:
    """What it would take there instead."""
    there = f"on what {on[0]} was traced on" if len(on) == 1 else "there"
    text = (
        f"a model: {a} would take {_estimate(found.elapsed.on)} {there} instead of "
        f"{format_duration(found.elapsed.a)}, {format_duration(found.total.on.value)} instead of "
        f"{format_duration(found.total.a)} of it in traced calls, summed over ranks"
    )
    if math.isfinite(found.elapsed.against):
        text += f"; measured there: {format_duration(found.elapsed.against)}"
    return text


def tables(found: Prediction) -> list[Table]:
    """Layers, then the functions that were replayed."""
    return [_layers(found), _functions(found)]


def _layers(found: Prediction) -> Table:
    measured = math.isfinite(found.total.against)
    rows = []
    for row in (*found.layers, found.total, found.elapsed):
        times = [_time(row.a), _time(row.on.value), _interval(row.on)]
        if measured:
            told = row.against > LEAST_TOLD * found.total.against
            times += [_time(row.against), f"{row.on.value / row.against:.2f}" if told else "–"]
        rows.append((row.title, *times))
    kept = found.total.kept / found.total.on.value if found.total.on.value > 0 else 0.0
    note = f"Replayed at {found.at_title}. What is above it, or was not measured, is A's own: {format_share(kept)}."
    if math.isfinite(found.total.on.low):
        note += " 95 %: how much calls there differ; nothing of what the model leaves out."
    note += " Elapsed: of the threads that were replayed, without the tracer's own work."
    return Table(
        "A model: time in each layer itself, all ranks",
        (
            "layer",
            "A",
            "modelled",
            f"{LEVEL:.0%}".replace("%", " %"),
            *(("measured", "ratio") if measured else ()),
        ),
        rows,
        right=tuple(range(1, 6 if measured else 4)),
        note=note,
    )


def _functions(found: Prediction) -> Table:
    rows = [
        (
            one.symbol,
            str(one.calls),
            _sizes(one.asked_least, one.asked_most),
            _sizes(one.least, one.most) if one.measured else "no",
            _time(one.a),
            _time(one.on.value),
        )
        for one in found.functions[:FUNCTIONS_SHOWN]
    ]
    more = len(found.functions) - len(rows)
    notes = [f"and {more} more with less time: --json"] if more > 0 else []
    beyond = _outside(found)
    if beyond["calls"]:
        of_bytes = f", {format_share(beyond['bytes_share'])} of the bytes" if beyond["bytes"] else ""
        notes.append(
            f"outside of the sizes measured there: {format_share(beyond['calls_share'])} of the calls{of_bytes}"
        )
    return Table(
        "Functions that were replayed, without waiting for other ranks",
        ("function", "calls", "of", "measured there", "A", "modelled"),
        rows,
        right=(1, 2, 3, 4, 5),
        note="; ".join(notes),
    )


def _outside(found: Prediction) -> dict[str, float]:
    """Calls and bytes that are outside of what was measured, and their share of those that are replayed."""
    out: dict[str, float] = {}
    for k, what in enumerate(("calls", "bytes")):
        beyond = sum(one.outside[k] for one in found.functions)
        every = sum(one.calls if what == "calls" else one.bytes for one in found.functions)
        out |= {what: beyond, f"{what}_share": beyond / every if every else 0.0}
    return out


def findings(found: Prediction, a: str) -> list[Finding]:
    """What the model had to do without, each with what to type."""
    out = []
    time = sum(max(one.a, one.on.value) for one in found.functions)
    for one in found.functions:
        share = max(one.a, one.on.value) / time if time > 0 else 0.0
        if share < LEAST_SHARE:
            continue
        if not one.measured:
            out.append(
                Finding(
                    "io.not_measured",
                    f"{one.symbol} was not measured there: its {counted(one.calls, 'call')} keep the "
                    f"{format_duration(one.a)} that they took, {format_share(share)} of what was replayed",
                    {"function": one.symbol, "layer": one.key.layer, "calls": one.calls, "share": share},
                    _measure(one, found.ranks[0]),
                )
            )
        elif one.outside[0]:
            calls, moved = one.outside
            of_bytes = f", {format_share(moved / one.bytes)} of its bytes," if one.bytes else ""
            out.append(
                Finding(
                    "io.outside_measured",
                    f"{format_share(calls / one.calls)} of the calls of {one.symbol}{of_bytes} are outside of the "
                    f"sizes measured there: {_sizes(one.asked_least, one.asked_most)} are asked for, "
                    f"{_sizes(one.least, one.most) or 'none that are known'} were measured",
                    {
                        "function": one.symbol, "layer": one.key.layer, "calls": calls, "bytes": moved,
                        "asked_B": [_number(one.asked_least), _number(one.asked_most)],
                        "measured_B": [_number(one.least), _number(one.most)],
                    },
                    _measure(one, found.ranks[0]),
                )
            )  # fmt: skip
    return out


def warnings(found: Prediction, a: str) -> list[Warning]:
    """What a reader must know: that it is a model, and what of this one is worse than usual."""
    out = [MODEL]
    mine, theirs = found.ranks
    if other := [ranks for ranks in theirs if ranks != mine]:
        out.append(
            Warning(
                "io.other_ranks",
                f"{a} ran with {counted(mine, 'rank')}, what was measured there with {', '.join(map(str, other))}: "
                "how much more, or less, so many ranks take from each other is not modelled",
                f"trace a workload there with mpirun -n {mine}",
            )
        )
    if found.unmatched:
        out.append(
            Warning(
                "io.ranks_not_matched",
                f"ranks call {', '.join(found.unmatched)} unequally often, or on files that nobody was seen to open: "
                "these calls are replayed for each rank by itself, without waiting for the last",
                "their time holds what ranks waited for each other there",
            )
        )
    if found.thin > MOST_THIN:
        out.append(
            Warning(
                "io.few_calls",
                f"{format_share(found.thin)} of the modelled time rests on fewer than {FEW} calls of a size, too few "
                "to tell how such calls differ: there is no interval",
                "trace more there, as several times the same, and give each with --on",
            )
        )
    return out


def other_program(a: xr.Dataset, c: xr.Dataset, at: str) -> list[Warning]:
    """That a run is none of the same program, where its requests tell. a, c: /summary of both."""
    told = []
    for what in ("requests", "bytes"):
        mine, theirs = (of_layers(summary).get(at, {}).get(what, 0.0) for summary in (a, c))
        if abs(mine - theirs) > OTHER * max(mine, theirs):
            told.append(f"{theirs:.0f} {what} instead of {mine:.0f}")
    if not told:
        return []
    return [
        Warning(
            "io.other_program",
            f"what --against names asked {at} for {' and '.join(told)}: it is no run of the same program",
            "run the program there with the same arguments",
        )
    ]


def values(found: Prediction) -> dict[str, Any]:
    """The same as data."""
    return {
        "model": True,
        "at": found.at,
        "ranks": {"a": found.ranks[0], "on": list(found.ranks[1])},
        "elapsed": _row(found.elapsed),
        "total": _row(found.total),
        "layers": [{"layer": row.name, "title": row.title, **_row(row)} for row in found.layers],
        "functions": [
            {
                "function": one.symbol,
                "layer": one.key.layer,
                "kind": KINDS[one.key.kind],
                "calls": one.calls,
                "bytes": one.bytes,
                "a_s": one.a,
                "modelled_s": one.on.value,
                "ci95_s": _ends(one.on),
                "measured_calls": one.measured,
                "measured_B": [_number(one.least), _number(one.most)],
                "asked_B": [_number(one.asked_least), _number(one.asked_most)],
                "outside": {"calls": one.outside[0], "bytes": one.outside[1]},
            }
            for one in found.functions
        ],
        "outside": _outside(found),
        "not_measured": [one.symbol for one in found.functions if not one.measured],
        "few_calls_share": found.thin,
    }


def _row(row: Row) -> dict[str, Any]:
    measured = math.isfinite(row.against)
    return {
        "a_s": row.a,
        "modelled_s": row.on.value,
        "ci95_s": _ends(row.on),
        "kept_s": row.kept if math.isfinite(row.kept) else None,
        "measured_s": row.against if measured else None,
        "ratio": row.on.value / row.against if measured and row.against > 0 else None,
    }


def _ends(one: Estimate) -> list[float] | None:
    return [one.low, one.high] if math.isfinite(one.low) else None


def _number(size: float) -> int | None:
    return int(size) if math.isfinite(size) else None


def _measure(one: Replayed, ranks: int) -> str:
    """What would measure a function there at the sizes that are asked for: sonde-ioload, where it calls that."""
    load = _LOADS.get((one.key.layer, one.key.name))
    if load is None or not math.isfinite(one.asked_most) or one.asked_most < 1:
        return f"trace something there that calls {one.symbol}, and add it with --on"
    beyond = one.asked_least if one.measured and one.asked_least < one.least else one.asked_most
    size = -(-int(beyond) // 8) * 8
    block = size * max(1, _LEAST_BLOCK // size)
    words = [
        "sonde io run -o more.nc -- mpirun -n",
        str(ranks),
        "sonde-ioload",
        load,
        f"-t {size} -b {block}",
    ]
    return " ".join(word for word in words if word)


def _sizes(least: float, most: float) -> str:
    if not math.isfinite(least):
        return ""
    if least == most:
        return format_size(int(least))
    return f"{format_size(int(least))} to {format_size(int(most))}"


def _time(value_s: float) -> str:
    return format_duration(value_s) if math.isfinite(value_s) and value_s > 0 else "–"


def _interval(one: Estimate) -> str:
    """ "1.2 to 1.4 s": the unit once where both have one."""
    if not math.isfinite(one.low) or one.value <= 0:
        return "–"
    low, high = format_duration(one.low), format_duration(one.high)
    if low == high:
        return low
    number, _, unit = low.rpartition(" ")
    return f"{number if high.endswith(f' {unit}') and number.count(' ') == 0 else low} to {high}"


def _estimate(one: Estimate) -> str:
    interval = _interval(one)
    return format_duration(one.value) + (f" ({interval})" if " to " in interval else "")
