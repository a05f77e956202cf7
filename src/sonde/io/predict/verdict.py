"""The sentence, tables, findings and data of a prediction. Pure."""

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
    "this is a model, not a measurement: every call is assumed to cost what calls of its function and size "
    "cost in the traces of the other configuration",
    "compare it with a run there: --against C.nc",
)
FUNCTIONS_SHOWN = 10
LEAST_SHARE = 0.01  # of the replayed or modelled time: functions below this share get no finding
LEAST_TOLD = 0.001  # of the measured time: layers below this share get no ratio
OTHER = 0.01  # a larger difference in requests or bytes shows that two runs are not of the same program
_LOADS = {  # the functions that sonde-ioload can call, and the options for each
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
_LEAST_BLOCK = 16 << 20  # B that a suggested workload moves, so that it makes more than a call or two


def sentence(found: Prediction, a: str, on: Sequence[str]) -> str:
    """The verdict: the modelled time on the other configuration."""
    there = f"on the configuration of {on[0]}" if len(on) == 1 else "there"
    text = (
        f"Model: {a} would take {_estimate(found.elapsed.on)} {there} instead of "
        f"{format_duration(found.elapsed.a)}; of this, traced calls would take "
        f"{format_duration(found.total.on.value)} instead of {format_duration(found.total.a)}, summed over "
        "ranks"
    )
    if math.isfinite(found.elapsed.against):
        text += f"; measured there: {format_duration(found.elapsed.against)}"
    return text


def tables(found: Prediction) -> list[Table]:
    """A table of layers, and a table of the replayed functions."""
    return [_layers(found), _functions(found)]


def _layers(found: Prediction) -> Table:
    measured = math.isfinite(found.total.against)
    rows = []
    for row in (*found.layers, found.total, found.elapsed):
        times = [_time(row.a), _time(row.on.value), _interval(row.on)]
        if measured:
            shown = row.against > LEAST_TOLD * found.total.against
            times += [_time(row.against), f"{row.on.value / row.against:.2f}" if shown else "–"]
        rows.append((row.title, *times))
    own_share = found.total.own / found.total.on.value if found.total.on.value > 0 else 0.0
    note = (
        f"Replayed at {found.at_title}. Time above that layer, or in functions without a measurement, is "
        f"A's own: {format_share(own_share)}."
    )
    if math.isfinite(found.total.on.low):
        note += " The 95 % interval covers how much calls there differ, not what the model leaves out."
    note += " Elapsed: of the threads that were replayed, without the tracer's own work."
    return Table(
        "Model: time in each layer itself, all ranks",
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
            f"outside the sizes measured there: {format_share(beyond['calls_share'])} of the calls{of_bytes}"
        )
    return Table(
        "Replayed functions, without waiting for other ranks",
        ("function", "calls", "of", "measured there", "A", "modelled"),
        rows,
        right=(1, 2, 3, 4, 5),
        note="; ".join(notes),
    )


def _outside(found: Prediction) -> dict[str, float]:
    """Calls and bytes of sizes outside the measured ones, and their share of the replayed calls and bytes."""
    out: dict[str, float] = {}
    for k, what in enumerate(("calls", "bytes")):
        beyond = sum(one.outside[k] for one in found.functions)
        every = sum(one.calls if what == "calls" else one.bytes for one in found.functions)
        out |= {what: beyond, f"{what}_share": beyond / every if every else 0.0}
    return out


def findings(found: Prediction, a: str) -> list[Finding]:
    """Findings about missing measurements, each with a command that would fill the gap."""
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
                    f"{one.symbol} was not measured there: {counted(one.calls, 'call')} with "
                    f"{format_duration(one.a)} in A, {format_share(share)} of what was replayed, are taken over "
                    "unchanged",
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
                    f"{format_share(calls / one.calls)} of the calls of {one.symbol}{of_bytes} have sizes "
                    f"outside those measured there: A has {_sizes(one.asked_least, one.asked_most)}, the "
                    f"traces have {_sizes(one.least, one.most) or 'no known size'}",
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
    """Warnings: that this is a model, and the weaknesses of this prediction."""
    out = [MODEL]
    mine, theirs = found.ranks
    if other := [ranks for ranks in theirs if ranks != mine]:
        out.append(
            Warning(
                "io.other_ranks",
                f"{a} ran with {counted(mine, 'rank')}, the traces there with {', '.join(map(str, other))}: "
                "the model does not cover how the number of ranks changes their share of the storage",
                f"trace a workload there with mpirun -n {mine}",
            )
        )
    if found.unmatched:
        out.append(
            Warning(
                "io.ranks_not_matched",
                f"ranks call {', '.join(found.unmatched)} unequally often, or on files whose opening was "
                "not traced: these calls are replayed for each rank separately, without waiting for the "
                "last rank",
                "their time includes the waiting of ranks for each other there",
            )
        )
    if found.thin > MOST_THIN:
        out.append(
            Warning(
                "io.few_calls",
                f"{format_share(found.thin)} of the modelled time rests on fewer than {FEW} calls of a "
                "size, too few for an interval",
                "trace more there, for example the same run several times, and give each trace with --on",
            )
        )
    return out


def other_program(a: xr.Dataset, c: xr.Dataset, at: str) -> list[Warning]:
    """A warning if `c` is a run of another program than `a`, judged by their requests. a, c: /summary of both."""
    differences = []
    for what in ("requests", "bytes"):
        mine, theirs = (of_layers(summary).get(at, {}).get(what, 0.0) for summary in (a, c))
        if abs(mine - theirs) > OTHER * max(mine, theirs):
            differences.append(f"{theirs:.0f} {what} instead of {mine:.0f}")
    if not differences:
        return []
    return [
        Warning(
            "io.other_program",
            f"the run of --against made other requests at {at}, {' and '.join(differences)}: it is not a "
            "run of the same program",
            "run the program there with the same arguments",
        )
    ]


def values(found: Prediction) -> dict[str, Any]:
    """The prediction as data."""
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
        "kept_s": row.own if math.isfinite(row.own) else None,
        "measured_s": row.against if measured else None,
        "ratio": row.on.value / row.against if measured and row.against > 0 else None,
    }


def _ends(one: Estimate) -> list[float] | None:
    return [one.low, one.high] if math.isfinite(one.low) else None


def _number(size: float) -> int | None:
    return int(size) if math.isfinite(size) else None


def _measure(one: Replayed, ranks: int) -> str:
    """A command that measures a function there at the missing sizes: sonde-ioload, if it calls that function."""
    load = _LOADS.get((one.key.layer, one.key.name))
    if load is None or not math.isfinite(one.asked_most) or one.asked_most < 1:
        return f"trace a program there that calls {one.symbol}, and add its trace with --on"
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
    """ "1.2 to 1.4 s": the unit appears once if both ends have the same."""
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
