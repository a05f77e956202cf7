"""Comparison of a run with an earlier one. Pure: summaries in, findings out.

`core.comparison` decides when two medians differ; the standard errors of their logarithms come from the 95 % intervals.
Losses are compared by their means over bursts, because most bursts may lose nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from sonde.bus.cases import Case
from sonde.bus.lessons import RATES
from sonde.bus.texts import text_of
from sonde.bus.values import Value, Values
from sonde.core.comparison import (
    LEAST_ERROR,
    LEVEL,
    MATTERS,
    Cells,
    Difference,
    Machines,
    changed,
    compare,
    cut_short,
)
from sonde.core.errors import DataError, Finding, UsageError, Warning, nearest, typed
from sonde.core.outcome import Table

MOST_ROWS = 24
MARK = "!"
Z95 = 1.959964
MACHINE = (
    "sonde_version",
    "instructions",
    "cycles_by",
    "counters_of",
)  # a change of these may explain a difference, too
# Compared quantities: costs, where more is worse, and rates, where less is worse. Hardware counters are not compared.
JUDGED = ("rtt", "one_way", "publish", "first", "last", "datagrams", "time_to_match", "cpu", *RATES)
MORE_LOST = 0.001  # smallest increase of the share of lost messages from A to B that counts
PERMUTATIONS, SEED = 9999, 1  # a fixed seed: the same two runs give the same findings


def diff(
    a: xr.Dataset,
    b: xr.Dataset,
    names: tuple[str, str] = ("A", "B"),
    matters: float = MATTERS,
    machine: Machines | None = None,
    variants: tuple[str, str] | None = None,
) -> Difference:
    """The series in which run B costs more than run A, of those that both runs have; for a rate, less is more cost.

    Series that drifted in either run, or whose median has no interval, are left out. machine: root attributes of both;
    differences between them become evidence of the findings. variants: a variant of A and one of B that are compared,
    instead of all variants by name. Messages that only B loses are a separate finding.

    Raises
    ------
    DataError  bus.not_comparable: no series in common. UsageError  bus.no_such_variant.
    """
    before, after = Values(a), Values(b)
    partner = _partners(before, after, names, variants)
    pairs = _pairs(before, after, partner)
    if not pairs:
        raise DataError(
            "bus.not_comparable",
            f"{names[0]} and {names[1]} have no case and variant in common",
            "compare runs of the same tests; 'sonde bus show' lists the cases of a run",
        )
    x, y = (np.array([_cost(pair[k]) for pair in pairs]) for k in (0, 1))
    error = np.array([np.hypot(_log_error(one), _log_error(other)) for one, other in pairs])
    drifted = np.array([one.drifted or other.drifted for one, other in pairs])
    cells = compare(x, y, error, drifted, matters)
    evidence = {"machine": differing} if (differing := changed(machine, MACHINE)) else {}
    found = []
    for k in sorted(np.flatnonzero(cells.slower).tolist(), key=lambda k: -cells.ratio[k]):
        one, other = pairs[k]
        how = "lower" if one.quantity in RATES else "higher"
        change = abs(other.median / one.median - 1)
        found.append(
            Finding(
                "bus.slower",
                f"{one.quantity} of {_variants(one, other)} is {change:.0%} {how} in {names[1]} in {one.case.title}: "
                f"{text_of(other.median, other.unit)} against {text_of(one.median, one.unit)}",
                {
                    "variant": other.way.name,
                    **({} if one.way.name == other.way.name else {"against": one.way.name}),
                    "case": one.case.spec,
                    "quantity": one.quantity,
                    "ratio": float(cells.ratio[k]),
                    "q": float(cells.q[k]),
                    **evidence,
                },
                typed("sonde", "bus", "show", names[1], "--case", one.case.title),
            )
        )
    found = cut_short(found, f"series cost more in {names[1]}", typed("sonde", "bus", "show", names[1]))
    found += _losses(before, after, names, partner)
    titles = names if variants is None else tuple(f"{one} of {file}" for one, file in zip(variants, names))
    table = _table(pairs, cells, titles, variants is None)
    return Difference.of(cells, found, table, _warnings(before, after, names))


def _partners(
    before: Values, after: Values, names: tuple[str, str], variants: tuple[str, str] | None
) -> dict[str, str]:
    """For each name of a variant of A, the name of the variant of B that it is compared with."""
    if variants is None:
        return {way.name: way.name for way in before.ways}
    for results, variant, file in zip((before, after), variants, names):
        known = [way.name for way in results.ways]
        if variant not in known:
            raise UsageError(
                "bus.no_such_variant",
                f"{file} has no variant '{variant}'{nearest(variant, known)}; its variants: {', '.join(known)}",
                "name one variant of A and one of B, with a comma between them: --variants cyclonedds/udp4,mine",
            )
    return {variants[0]: variants[1]}


def _variants(one: Value, other: Value) -> str:
    name = other.way.name
    return name if name == one.way.name else f"{name} (compared with {one.way.name})"


def _pairs(before: Values, after: Values, partner: dict[str, str]) -> list[tuple[Value, Value]]:
    by_key: dict[tuple[str, Case, str], Value] = {(v.way.name, v.case, v.quantity): v for v in after.all}
    return [
        (value, other)
        for value in before.all
        if value.quantity in JUDGED
        and value.median > 0
        and (other := by_key.get((partner.get(value.way.name, ""), value.case, value.quantity))) is not None
        and other.median > 0
    ]


def _cost(value: Value) -> float:
    return 1 / value.median if value.quantity in RATES else value.median


def _log_error(value: Value) -> float:
    """Standard error of the log median; NaN without an interval."""
    if not (value.low > 0 and value.high >= value.low):
        return float("nan")
    return max(float(np.log(value.high / value.low)) / (2 * Z95), LEAST_ERROR)


def _losses(before: Values, after: Values, names: tuple[str, str], partner: dict[str, str]) -> list[Finding]:
    """Findings for cases in which B lost significantly more messages than A, corrected for all cases with any loss."""
    by_case = {(v.way.name, v.case): v for v in after.all if v.quantity == "lost"}
    pairs = [
        (value, other)
        for value in before.all
        if value.quantity == "lost"
        and (other := by_case.get((partner.get(value.way.name, ""), value.case))) is not None
        and max(value.most, other.most) > 0
    ]
    if not pairs:
        return []
    more = np.array([other.mean > value.mean + MORE_LOST for value, other in pairs])
    p = [_p_more(value, other) if increased else 1.0 for (value, other), increased in zip(pairs, more)]
    from scipy import stats as sps  # slow to import; only a comparison needs it

    significant = more & (sps.false_discovery_control(p) <= LEVEL)
    found = []
    for value, other in (pairs[k] for k in np.flatnonzero(significant)):
        found.append(
            Finding(
                "bus.more_lost",
                f"{other.way.name} lost {other.mean:.2%} of the messages in {names[1]} in {other.case.title}, "
                f"{value.mean:.2%} in {names[0]}",
                {
                    "variant": other.way.name,
                    "case": other.case.spec,
                    "lost": other.mean,
                    "before": value.mean,
                },
                typed("sonde", "bus", "show", names[1], "--case", other.case.title),
            )
        )
    return found


def _p_more(value: Value, other: Value) -> float:
    """Probability of at least this increase of loss in `other` if stretches were assigned to the runs at random.

    With a single stretch in either run, the p value of its rank.

    Source: permutation test of the difference of means, Fisher 1935; p never 0 after Phipson and Smyth 2010.
    """
    longest = max(_epochs_each(value), _epochs_each(other))
    x, y = _stretches(value, longest), _stretches(other, longest)
    both = np.concatenate([x, y])
    if len(x) == 1:
        return float(np.mean(both <= x[0]))
    if len(y) == 1:
        return float(np.mean(both >= y[0]))
    from scipy import stats as sps

    test = sps.permutation_test(
        (y, x),
        lambda y, x, axis: y.mean(axis=axis) - x.mean(axis=axis),
        vectorized=True,
        n_resamples=PERMUTATIONS,
        alternative="greater",
        random_state=SEED,
    )
    return float(test.pvalue)


def _epochs_each(value: Value) -> float:
    return value.epochs / int(np.isfinite(value.blocks).sum())


def _stretches(value: Value, epochs: float) -> np.ndarray:
    """The means of a value over stretches of about `epochs` epochs. Stretches of long runs are longer and vary less."""
    blocks = value.blocks[np.isfinite(value.blocks)]
    together = max(1, round(epochs / _epochs_each(value)))
    parts = np.array_split(blocks, max(1, len(blocks) // together))
    return np.array([part.mean() for part in parts])


def _warnings(before: Values, after: Values, names: tuple[str, str]) -> list[Warning]:
    versions = {way.name: way.version for way in after.ways}
    return [
        Warning(
            "bus.other_version",
            f"{way.name} was version {way.version} in {names[0]} and {versions[way.name]} in {names[1]}",
            "a difference may come from the new version of the implementation",
        )
        for way in before.ways
        if way.name in versions and versions[way.name] != way.version
    ]


def _table(pairs: list[tuple[Value, Value]], cells: Cells, names: Sequence[str], by_variant: bool) -> Table:
    """The series that changed most, significant changes first. by_variant: the series are of several variants."""
    changes = cells.slower | cells.faster
    where = np.flatnonzero(cells.compared).tolist()
    where.sort(key=lambda k: (not changes[k], -abs(np.log(cells.ratio[k]))))
    rows = []
    for k in where[:MOST_ROWS]:
        one, other = pairs[k]
        rows.append(
            (
                *([one.way.name] if by_variant else []),
                f"{one.case.title}: {one.quantity}",
                text_of(one.median, one.unit),
                text_of(other.median, other.unit),
                f"{other.median / one.median:.3f}",
                MARK if changes[k] else "",
            )
        )
    note = f"A: {names[0]}\nB: {names[1]}"
    if any(row[-1] for row in rows):
        note += f"\n{MARK} at the end of a row: a significant change, larger than --matters"
    if len(where) > MOST_ROWS:
        note += f"\nand {len(where) - MOST_ROWS} series that changed less"
    head = (*(["variant"] if by_variant else []), "case", "A", "B", "ratio", "")
    return Table("Medians", head, rows, tuple(range(len(head) - 4, len(head) - 1)), note)
