"""The tables of a run, for the terminal and for reports. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import xarray as xr

from sonde.bus import first
from sonde.bus.cases import Case
from sonde.bus.growth import SOURCE_SQUARE, Law
from sonde.bus.lessons import LOSS_MATTERS, RATES, keys_cost, law_text, laws
from sonde.bus.texts import capitalised, listed, short_text, text_of
from sonde.bus.values import SHARES, Value, Values, Way
from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_share

MOST_COLUMNS = 4  # variants in a table, so that it fits in 80 columns
LOSSY = "!"  # mark in front of a number
NONE = "–"  # shown in place of a missing number
# The tables of each test: quantity and heading.
SHOWN = {
    "latency": (("rtt", "round trip"), ("publish", "publish")),
    "fanout": (
        ("last", "until the last subscriber received it"),
        ("publish", "publish"),
        ("one_way", "one way"),
    ),
    "discovery": (
        ("datagrams", "datagrams until all match"),
        ("time_to_match", "time until all match"),
        ("cpu", "processor time until all match"),
    ),
    "partitions": (("publish", "publish"), ("cycles", "cycles of a publish")),
    "throughput": (("message_rate", "messages a second to each subscriber"), ("byte_rate", "bytes a second")),
    "first-message": (("rtt", "round trip"),),
    "calls": (("rtt", "request and reply"), ("call_rate", "calls a second")),
}


def tables(summary: xr.Dataset, intervals: bool = False) -> list[Table]:
    """The results of each test, one column for each variant. intervals: add the 95 % intervals in brackets."""
    results = Values(summary)
    out: list[Table] = []
    for test in results.tests:
        for quantity, what in SHOWN[test] if intervals else SHOWN[test][:2]:
            out += _tables_of(results, test, quantity, what, intervals)
        if test == "throughput":
            out += _tables_of(results, test, "lost", "share lost", intervals)
        if test == "first-message":
            out += _breakdown_tables(results)
        if test == "discovery" and (shown := laws(results)):
            out.append(_law_table(shown))
    if keyed := results.keyed():
        out += _keys_tables(results, keyed)
    return out


def _tables_of(results: Values, test: str, quantity: str, what: str, intervals: bool) -> list[Table]:
    found = results.find(test, quantity)
    if not found:
        return []
    ways = [way for way in results.ways if any(value.way == way for value in found)]
    cases = [case for case in results.cases if any(value.case == case for value in found)]
    shared, names = _apart(test, cases)
    title = capitalised(f"{test}{shared}: {what}")
    most = MOST_COLUMNS - intervals
    # Variants are columns, unless variants as rows give fewer tables.
    turned = -(-len(cases) // most) < -(-len(ways) // most)
    heads, rows = (names, [way.name for way in ways]) if turned else ([way.name for way in ways], names)
    cells = np.array(
        [
            [_cell(results, results.of(way, case, quantity), quantity, intervals) for case in cases]
            for way in ways
        ]
    )
    cells = cells if turned else cells.T
    out = []
    for part in np.array_split(np.arange(len(heads)), -(-len(heads) // most)):
        lines = [[name, *line] for name, line in zip(rows, cells[:, part].tolist()) if set(line) != {NONE}]
        marked = any(cell.startswith(LOSSY) for line in lines for cell in line)
        lossy = f"more than {format_share(LOSS_MATTERS)} of the messages were lost"
        note = f"{LOSSY} before a rate: {lossy}" if marked else ""
        columns = ("variant" if turned else "case", *(heads[k] for k in part))
        right = tuple(range(1, len(columns)))
        out.append(Table(title, columns, lines, right, note, () if turned else right))
    return out


def _apart(test: str, cases: Sequence[Case]) -> tuple[str, list[str]]:
    """The part common to all cases of a test, such as ", 64 B", and for each case the rest: a row's name."""
    parts = [case.title.removeprefix(f"{test}, ").split(", ") for case in cases]
    if len(cases) < 2 or len({len(part) for part in parts}) > 1:
        return "", [", ".join(part) for part in parts]
    same = [len(set(column)) == 1 for column in zip(*parts)]
    shared = [f", {word}" for word, all_have in zip(parts[0], same) if all_have]
    names = [", ".join(word for word, all_have in zip(part, same) if not all_have) for part in parts]
    return "".join(shared), names


def _cell(results: Values, value: Value | None, quantity: str, intervals: bool) -> str:
    if value is None:
        return NONE
    if quantity in SHARES:
        return format_share(value.mean)
    text = text_of(value.median, value.unit)
    if quantity in RATES and results.lost(value) > LOSS_MATTERS:
        text = f"{LOSSY}{text}"
    if intervals and math.isfinite(value.ends[0]):
        text += f" ({_between(*value.ends, value.unit)})"
    return text


def _breakdown_tables(results: Values) -> list[Table]:
    out = []
    for found in first.breakdowns(results):
        lines = [
            (part.treatment, format_duration(part.value), _taken(part), _ends(part), part.judged)
            for part in found.parts
        ]
        if lines:
            title = (
                f"Why {found.slow} takes longer than {format_duration(found.usual_s)} over {found.way.name}"
            )
            head = ("treatment", "round trip", "share removed", "95 %", "judged")
            out.append(Table(title, head, lines, (1, 2, 3)))
    return out


def _taken(part: first.Part) -> str:
    if part.share < -1:
        return "takes longer"
    return format_share(part.share) if part.share <= 2 else "more than all"


def _ends(part: first.Part) -> str:
    if not math.isfinite(part.low) or max(-part.low, part.high) > 10:
        return ""
    return f"{part.low:.0%} to {part.high:.0%}"


def _keys_tables(results: Values, keyed: Sequence[Value]) -> list[Table]:
    ways = list(dict.fromkeys(value.way for value in keyed))
    cases = [case for case in results.cases if any(value.case == case for value in keyed)]
    by_case = {(value.way, value.case): value for value in keyed}
    note = "Paired by epoch, with 95 % intervals; for a rate, the factor by which it is lower."
    out = []
    for part in np.array_split(np.arange(len(ways)), -(-len(ways) // (MOST_COLUMNS - 1))):
        shown = [ways[k] for k in part]
        lines = []
        for case in cases:
            cells = [by_case.get((way, case)) for way in shown]
            lines.append([case.title, *("–" if value is None else _times(value) for value in cells)])
        against = "; ".join(f"{way.name} relative to {_bare(results, keyed, way)}" for way in shown)
        columns = ("case", *(way.name for way in shown))
        right = tuple(range(1, len(columns)))
        out.append(
            Table(
                "Cost of keys, relative to the same variant without keys",
                columns,
                lines,
                right,
                f"{against}.\n{note}",
                right,
            )
        )
    return out


def _bare(results: Values, keyed: Sequence[Value], way: Way) -> str:
    return next(results.ways[value.base].name for value in keyed if value.way == way)


def _times(value: Value) -> str:
    ratio, low, high = keys_cost(value)
    return (
        f"{short_text(ratio)} ({short_text(low)}–{short_text(high)})"
        if math.isfinite(low)
        else short_text(ratio)
    )


def _law_table(found: Sequence[tuple[Way, Law]]) -> Table:
    lines = []
    for way, law in found:
        square = NONE if law.quadratic is None else ("yes" if law.quadratic else "no")
        range_ = f"{law.numbers[0]:.0f} to {law.numbers[1]:.0f}"
        lines.append((way.name, way.discovery, range_, law_text(law), square))
    head = ("variant", "discovery", "participants", "datagrams", "quadratic?")
    note = f"N: participants. The source's figure of simple discovery shows {SOURCE_SQUARE:g}·N²."
    return Table("Discovery: growth of datagrams", head, lines, (), note)


def variant_table(summary: xr.Dataset) -> Table:
    """The table of variants."""
    lines = [
        (way.name, way.implementation, way.version, way.transport, way.options)
        for way in Values(summary).ways
    ]
    return Table("Variants", ("variant", "implementation", "version", "transport", "options"), lines)


def case_tables(summary: xr.Dataset, name: str) -> list[Table]:
    """The tables of one case, one for each quantity, with intervals and ratios; [] for an unknown name.

    name: the title or specification of the case, or the beginning of it.
    """
    results = Values(summary)
    case = next((case for case in results.cases if name in (case.title, case.spec)), None)
    case = case or next(
        (c for c in results.cases if c.title.startswith(name) or c.spec.startswith(name)), None
    )
    if case is None:
        return []
    return [
        _quantity_table(results, case, quantity)
        for quantity in dict.fromkeys(value.quantity for value in results.all if value.case == case)
    ]


def _quantity_table(results: Values, case: Case, quantity: str) -> Table:
    found = [value for value in results.all if (value.case, value.quantity) == (case, quantity)]
    title = capitalised(f"{case.title}: {quantity}")
    if quantity in SHARES:
        lines = [(value.way.name, format_share(value.mean), str(value.n)) for value in found]
        return Table(title, ("variant", "mean", "n"), lines, (1, 2), "", (1, 2))
    rows = [
        (
            value.way.name,
            text_of(value.median, value.unit),
            _between(*value.ends, value.unit),
            text_of(value.p99, value.unit),
            short_text(value.ratio[0]),
            short_text(value.ratio_to_raw[0]),
            str(value.n),
        )
        for value in found
    ]
    head = ("variant", "median", "95 %", "99 %", "ratio", "× raw", "n")
    columns = [
        k for k in range(len(head)) if k not in (2, 4, 5) or any(row[k] not in ("–", "") for row in rows)
    ]
    table = [tuple(row[k] for k in columns) for row in rows]
    note = _bases(results, found) if 4 in columns else ""
    return Table(title, [head[k] for k in columns], table, tuple(range(1, len(columns))), note)


def _bases(results: Values, found: Sequence[Value]) -> str:
    """The note on what ratios are relative to: mostly the first variant; with keys, the same variant without."""
    over: dict[str, list[str]] = {}
    for value in found:
        if value.base >= 0:
            over.setdefault(results.ways[value.base].name, []).append(value.way.name)
    if len(over) < 2:
        return "".join(f"ratio: relative to {base}" for base in over)
    return "ratio: " + "; ".join(f"{listed(names)} relative to {base}" for base, names in over.items())


def _between(low: float, high: float, unit: str) -> str:
    """ "36.4–47.7 µs": the unit appears once if both ends have the same."""
    if not math.isfinite(low):
        return ""
    one, other = text_of(low, unit), text_of(high, unit)
    if one == other:
        return one
    number, blank, word = one.rpartition(" ")
    if blank and word and not word.isdigit() and other.endswith(f" {word}"):
        one = number
    return f"{one}–{other}"
