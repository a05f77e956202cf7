"""The verdicts, tables and JSON values of studies, as `detector.verdict` has them for runs.

Pure: all comes from /summary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from sonde.core.errors import Finding, Warning
from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_share, format_size
from sonde.noise.detector import verdict
from sonde.noise.detector.detectable import shared
from sonde.noise.detector.levels import threshold
from sonde.noise.detector.plan import level_text
from sonde.noise.detector.source_rule import SOURCE_GAP
from sonde.noise.detector.verdict import interval
from sonde.noise.studies.contrasts import contrast, contrasts
from sonde.noise.studies.plan import STANDARD_BUDGET_S

NARROW = 0.01  # a clean run is stable up to this width of the 99 % interval of the mean, a share of the mean
DUTY_TOLERANCE = 0.10  # share of the requested level

QUESTIONS = {
    "sync": "Sources on all ranks' cores, {a} or {b}",
    "period": "The same level, {a} or {b}",
    "placement": "The source {a} to the last core, or {b}",
    "sibling": "The source {a} to the last rank's thread, or on its sibling",
}


def sentence(summary: xr.Dataset) -> str:
    """The verdict of a study."""
    return {"sensitivity": _sensitivity, "sweep": _sweep, "stability": _stability}[_study(summary)](summary)


def findings(summary: xr.Dataset) -> list[Finding]:
    """An empty list: a study measures noise that it made itself."""
    return []


def sound(summary: xr.Dataset) -> bool:
    """Whether the study has a result: a detected level, a stable loop, or an answer."""
    study = _study(summary)
    if study == "sensitivity":
        return thresholds(summary)[0] is not None
    if study == "stability":
        return stable(summary)
    return any(answer["costs_more"] for answer in _answers(summary))


def _study(summary: xr.Dataset) -> str:
    return str(summary.attrs["study"])


def loop(summary: xr.Dataset) -> str:
    """ "alltoall of 1 KiB, 2 ranks"."""
    op, size = str(summary.attrs["op"]), int(summary.attrs["size"])
    what = op if size == 0 or op == "barrier" else f"{op} of {format_size(size, exact=True)}"
    return f"{what}, {int(summary.attrs['ranks'])} ranks"


def _unit(seconds: float) -> tuple[float, str]:
    """A factor and a unit that make a time of about `seconds` easy to read."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1:
            return factor, unit
    return 1e9, "ns"


def _number(value: float, factor: float, decimals: int) -> str:
    return "–" if not math.isfinite(value) else f"{value * factor:.{decimals}f}"


def _least(sds: xr.DataArray) -> float:
    """The least of the known values above 0."""
    known = [float(sd) for sd in np.atleast_1d(sds.values) if sd > 0]
    return min(known, default=math.nan)


def _decimals(sd: float, factor: float) -> int:
    """Digits after the point that show a standard deviation with two digits."""
    scaled = sd * factor
    return 3 if not scaled > 0 else min(6, max(0, 1 - math.floor(math.log10(scaled))))


def warnings(summary: xr.Dataset) -> list[Warning]:
    """The warnings of every run, and one for each source whose load differs from the requested level."""
    out = verdict.warnings(summary)
    for row in _rows(summary):
        requested, used = float(row["duty_asked"]), float(row["duty"])
        if math.isfinite(used) and abs(used / requested - 1) > DUTY_TOLERANCE:
            out.append(
                Warning(
                    "noise.duty_off",
                    f"{row['variant'].values}: {level_text(requested)} of CPU time was requested from the source; it "
                    f"used {format_share(used, 3)} in its blocks",
                    "a longer --budget averages out bursts at the edges of blocks; in bursts below 100 us, waking up "
                    "takes most of the time",
                )
            )
    return out


def _rows(summary: xr.Dataset) -> list[xr.Dataset]:
    return [summary.isel(variant=k) for k in range(summary.sizes.get("variant", 0))]


def tables(summary: xr.Dataset) -> list[Table]:
    """The tables below the verdict."""
    study = _study(summary)
    if study == "stability":
        return stability_tables([summary])
    return [_means(summary), *([_detections(summary)] if study == "sensitivity" else [_slowdowns(summary)])]


def values(summary: xr.Dataset) -> dict[str, Any]:
    """The values for --json."""
    study = _study(summary)
    base = {
        "study": study,
        "op": str(summary.attrs["op"]),
        "size": int(summary.attrs["size"]),
        "ranks": int(summary.attrs["ranks"]),
        "alpha": float(summary.attrs["alpha"]),
        "block_s": float(summary.attrs["block_s"]),
        "clean": _case(summary, 0),
    }
    return base | {"sensitivity": _sensitivity_values, "sweep": _sweep_values, "stability": stability_values}[
        study
    ](summary)


def _case(summary: xr.Dataset, case: int) -> dict[str, Any]:
    one = summary.isel(case=case)
    return {
        "mean_s": _finite(one["mean"]),
        "sd_s": _finite(one["sd"]),
        "blocks": int(one["blocks"]),
        "ci99_s": [_finite(one["mean_low"]), _finite(one["mean_high"])],
    }


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _means(summary: xr.Dataset) -> Table:
    """Mean, spread and number of blocks of each case: tables 3 to 6 of the source thesis."""
    clean = float(summary["mean"].values[0])
    factor, unit = _unit(clean)
    decimals = _decimals(_least(summary["sd"]), factor)
    rows = []
    for case, name in enumerate(summary["case"].values):
        one = summary.isel(case=case)
        used = math.nan if case == 0 else float(summary["duty"].values[case - 1])
        low, high = (_number(float(one[end]), factor, decimals) for end in ("mean_low", "mean_high"))
        rows.append(
            (
                str(name),
                format_share(used, 3) if math.isfinite(used) else "–",
                _number(float(one["mean"]), factor, decimals),
                _number(float(one["sd"]), factor, decimals),
                str(int(one["blocks"])),
                f"{low} to {high}",
            )
        )
    return Table(
        f"Time of an iteration: {loop(summary)}",
        ("noise", "used", f"mean, {unit}", "sd", "blocks", "99 % interval of the mean"),
        rows,
        right=(1, 2, 3, 4, 5),
        note=f"a run is a block of {format_duration(float(summary.attrs['block_s']))}; used: CPU time that the "
        "source recorded in its blocks",
    )


# ---- sensitivity ----------------------------------------------------------------------------------


def levels_of(summary: xr.Dataset) -> list[float]:
    return [float(level) for level in summary["duty_asked"].values]


def thresholds(summary: xr.Dataset) -> tuple[float | None, float | None, float | None]:
    """The lowest level that is detected together with all higher ones, by three rules.

    The rules are Sonde's test, disjoint intervals, and disjoint intervals with the gap of the source thesis.
    """
    levels = levels_of(summary)
    return (
        threshold(levels, [bool(found) for found in summary["detected"].values]),
        threshold(levels, [bool(found) for found in summary["source_detected"].values]),
        threshold(levels, [float(gap) >= SOURCE_GAP for gap in summary["source_gap"].values]),
    )


def _sensitivity(summary: xr.Dataset) -> str:
    ours, theirs, _ = thresholds(summary)
    highest = max(levels_of(summary))
    levels, found = levels_of(summary), [bool(each) for each in summary["detected"].values]
    chance = [level for level, each in zip(levels, found) if each and (ours is None or level < ours)]
    first = (
        f"noise is detected down to {level_text(ours)}"
        if ours is not None
        else f"even {level_text(highest)} of noise is not detected"
    )
    if chance:
        first += f" ({', '.join(map(level_text, chance))} is also detected, but a higher level is not)"
    second = (
        f"disjoint 99 % intervals of means detect it down to {level_text(theirs)}"
        if theirs is not None
        else f"disjoint 99 % intervals of means do not detect even {level_text(highest)}"
    )
    return f"{first}; {second}."


def _seconds(found: bool, seconds: float, limit: float) -> str:
    """ "15 s"; "> 56 s" where a run of one level would not have detected it in that time; "–" if not detected."""
    if math.isfinite(seconds) and found:
        return format_duration(seconds)
    return f"> {format_duration(limit)}" if found else "–"


def _detections(summary: xr.Dataset) -> Table:
    rows = []
    for row in _rows(summary):
        limit, found = float(row["alone_limit"]), bool(row["detected"])
        gap, disjoint = float(row["source_gap"]), bool(row["source_detected"])
        theirs = "overlap" if not disjoint else f"{format_share(gap)} apart"
        rows.append(
            (
                level_text(float(row["duty_asked"])),
                "yes" if found else "no",
                f"{float(row['p_adjusted']):.2g}",
                _seconds(found, float(row["alone_s"]), limit),
                theirs if math.isfinite(gap) else "too few",
                _seconds(disjoint, float(row["alone_source_s"]), limit),
                _seconds(gap >= SOURCE_GAP, float(row["alone_separated_s"]), limit),
            )
        )
    several = level_text(SOURCE_GAP)
    mde, period = float(summary["mde"].values[0]), float(summary["mde_period"].values[0])
    detectable = (
        f"such a run detects bursts of {format_share(mde)} of each {format_duration(period)} with power 90 %"
        if math.isfinite(mde)
        else "its smallest detectable burst is unknown: other programs worked on the same cores"
        if shared(summary.attrs, float(summary["clean_lost"]))
        else "such a run detects no burst of up to half a period"
    )
    return Table(
        "Detection of each level",
        ("noise", "detected", "p", "in", "99 % intervals", "in", f"{several} apart in"),
        rows,
        right=(2, 3, 4, 5, 6),
        note="detected, p (Holm): Sonde's test; 99 % intervals: the rule of the source thesis, which asks for disjoint "
        f"intervals that are several seconds apart, here {several}. in: the time that a run of one level alone needs; "
        f"{detectable}",
    )


def _sensitivity_values(summary: xr.Dataset) -> dict[str, Any]:
    ours, theirs, separated = thresholds(summary)

    def pct(share: float | None) -> float | None:
        return None if share is None else round(100 * share, 9)

    return {
        "threshold_pct": pct(ours),
        "source_threshold_pct": pct(theirs),
        "source_separated_threshold_pct": pct(separated),
        "source_gap_pct": 100 * SOURCE_GAP,
        "levels": [_level_values(row, summary, case) for case, row in enumerate(_rows(summary), 1)],
    }


def _level_values(row: xr.Dataset, summary: xr.Dataset, case: int) -> dict[str, Any]:
    found, disjoint = bool(row["detected"]), bool(row["source_detected"])
    apart = float(row["source_gap"]) >= SOURCE_GAP
    return {
        "level_pct": round(100 * float(row["duty_asked"]), 9),
        "duty_pct": _pct(row["duty"]),
        **_case(summary, case),
        "slowdown_pct": _pct(row["slowdown"]),
        "ci_pct": [_pct(row["slowdown_low"]), _pct(row["slowdown_high"])],
        "sonde": {
            "detected": found,
            "p": float(row["p_adjusted"]),
            "p_alone": _finite(row["alone_p"]),
            "seconds": _finite(row["alone_s"]) if found else None,
            "mde_pct": _pct(row["mde"]),
        },
        "source_rule": {
            "detected": disjoint,
            "seconds": _finite(row["alone_source_s"]) if disjoint else None,
            "gap_pct": _pct(row["source_gap"]),
            "separated": apart,
            "separated_seconds": _finite(row["alone_separated_s"]) if apart else None,
        },
        "limit_s": _finite(row["alone_limit"]),
    }


def _pct(share: Any) -> float | None:
    value = float(share)
    return 100 * value if math.isfinite(value) else None


# ---- sweep ----------------------------------------------------------------------------------------


def _answers(summary: xr.Dataset) -> list[dict[str, Any]]:
    out = []
    for question, first, second in contrasts([str(name) for name in summary["case"].values]):
        shift = contrast(summary, first, second)
        known = math.isfinite(shift.low)
        dearer = first if known and shift.low > 0 else second if known and shift.high < 0 else None
        out.append(
            {
                "question": question,
                "first": first,
                "second": second,
                "difference_pct": _pct(shift.estimate),
                "ci_pct": [_pct(shift.low), _pct(shift.high)],
                "costs_more": dearer,
            }
        )
    return out


def _sweep(summary: xr.Dataset) -> str:
    answers = _answers(summary)
    if not answers:
        return "none of the questions can be answered here."
    texts = []
    for answer in answers:
        dearer = answer["costs_more"]
        if dearer is None:
            texts.append(f"no significant difference between {answer['first']} and {answer['second']}")
        else:
            other = answer["second"] if dearer == answer["first"] else answer["first"]
            texts.append(f"{dearer} costs more than {other}")
    return f"{loop(summary)}: {'; '.join(texts)}."


def answer_lines(summary: xr.Dataset) -> list[str]:
    """One line for each question: the difference, and which of the two costs more here."""
    lines = []
    for answer in _answers(summary):
        a, b = answer["first"], answer["second"]
        ends = [math.nan if end is None else end / 100 for end in answer["ci_pct"]]
        estimate = answer["difference_pct"]
        size = format_share(math.nan if estimate is None else estimate / 100)
        difference = f"{a} minus {b}: {size} (95 %: {interval(*ends)})"
        direction = (
            "not significant here"
            if answer["costs_more"] is None
            else f"here {answer['costs_more']} costs more"
        )
        lines.append(f"{QUESTIONS[answer['question']].format(a=a, b=b)}: {difference}; {direction}.")
    return lines


def _slowdowns(summary: xr.Dataset) -> Table:
    rows = []
    for row in _rows(summary):
        rows.append(
            (
                str(row["variant"].values),
                format_share(float(row["slowdown"])),
                interval(float(row["slowdown_low"]), float(row["slowdown_high"])),
                format_share(float(row["stalls"])),
                format_share(float(row["typical"])),
                f"{float(row['p_adjusted']):.2g}",
            )
        )
    level = level_text(float(summary["duty_asked"].values[0]) / _sources(summary))
    return Table(
        f"Slowdown by sources at {level}, against nothing on",
        ("noise", "slowdown", "95 % interval", "in stalls", "typical", "p"),
        rows,
        right=(1, 2, 3, 4, 5),
        note="in stalls: time lost in long iterations; typical: change of the median iteration; p adjusted (Holm)",
    )


def _sources(summary: xr.Dataset) -> int:
    """Sources on a node in the first variant."""
    return int(np.atleast_1d(summary.attrs.get("variant_sources", [1, 1]))[1])


def _sweep_values(summary: xr.Dataset) -> dict[str, Any]:
    return {
        "variants": [
            {
                "variant": str(row["variant"].values),
                "level_pct": _pct(row["duty_asked"]),
                "duty_pct": _pct(row["duty"]),
                "slowdown_pct": _pct(row["slowdown"]),
                "ci_pct": [_pct(row["slowdown_low"]), _pct(row["slowdown_high"])],
                "stalls_pct": _pct(row["stalls"]),
                "typical_pct": _pct(row["typical"]),
                "detected": bool(row["detected"]),
                "p": float(row["p_adjusted"]),
                **_case(summary, case),
            }
            for case, row in enumerate(_rows(summary), 1)
        ],
        "answers": _answers(summary),
    }


# ---- stability ------------------------------------------------------------------------------------


def width(summary: xr.Dataset) -> float:
    """The width of the 99 % interval of the mean of clean blocks, as a share of the mean."""
    one = summary.isel(case=0)
    return float(one["mean_high"] - one["mean_low"]) / float(one["mean"])


def stable(summary: xr.Dataset) -> bool:
    """Whether the loop is stable by the rule of the source thesis; its "sufficiently narrow" is NARROW here."""
    return width(summary) <= NARROW


def _stability(summary: xr.Dataset) -> str:
    wide = width(summary)
    if not math.isfinite(wide):
        return f"{loop(summary)}: too few blocks to decide whether it is stable."
    result = "stable" if stable(summary) else "not stable"
    measured = (
        f"{loop(summary)}: {result}, the 99 % interval of its mean is {format_share(wide)} wide "
        f"(allowed: {format_share(NARROW)})"
    )
    mde = float(summary["clean_mde"])
    detectable = (
        f"a run of {format_duration(STANDARD_BUDGET_S)} detects bursts of {format_share(mde)} of each second"
        if math.isfinite(mde)
        else "the smallest detectable burst is unknown, because other programs are running"
        if shared(summary.attrs, float(summary["clean_lost"]))
        else "the blocks are too few or too short to compute the smallest detectable burst"
    )
    return f"{measured}; {detectable}."


def stability_tables(summaries: Sequence[xr.Dataset]) -> list[Table]:
    """A table with a column for each configuration, as tables 1 and 2 of the source thesis; and the groups of each."""
    heads = [loop(summary).replace(", ", "\n") for summary in summaries]
    columns = [_column(summary) for summary in summaries]
    rows = [(name, *(column[name] for column in columns)) for name in columns[0]]
    right = tuple(range(1, len(columns) + 1))
    note = (
        f"a run is a block of {format_duration(float(summaries[0].attrs['block_s']))}. stable: the width of the "
        f"interval is at most {format_share(NARROW)} of the mean; the source thesis asks for 'sufficiently "
        "narrow'"
    )
    out = [Table("Clean runs", ("", *heads), rows, right=right, note=note)]
    for summary in summaries:
        out.append(_groups(summary, title=f"Groups: {loop(summary)}"))
    return out


def _column(summary: xr.Dataset) -> dict[str, str]:
    one = summary.isel(case=0)
    mean, sd = float(one["mean"]), float(one["sd"])
    factor, unit = _unit(mean)
    decimals = _decimals(sd, factor)
    jumps = int(summary["changed"].values.sum())
    p = float(summary["groups_p"])
    differ = "–" if not math.isfinite(p) else f"{'yes' if p <= 0.01 else 'no'}, p = {p:.2g}"
    return {
        "mean time": f"{_number(mean, factor, decimals)} {unit}",
        "standard deviation": f"{_number(sd, factor, decimals)} {unit}",
        "runs": str(int(one["blocks"])),
        "99 % interval, low": f"{_number(float(one['mean_low']), factor, decimals)} {unit}",
        "99 % interval, high": f"{_number(float(one['mean_high']), factor, decimals)} {unit}",
        "  its width": format_share(width(summary)),
        "stable": "yes" if stable(summary) else "no",
        "coefficient of variation": format_share(sd / mean),
        "groups differ": differ,
        "changes of level": str(jumps),
        "correlation of neighbours": f"{float(summary['autocorrelation']):.2f}",
        "independent runs": f"{float(summary['effective']):.0f}",
        "detectable in 60 s": format_share(float(summary["clean_mde"])),
    }


def _groups(summary: xr.Dataset, title: str) -> Table:
    factor, unit = _unit(float(summary["mean"].values[0]))
    decimals = _decimals(_least(summary["group_sd"]), factor)
    segments = np.unique(summary["block_segment"].values[summary["block_variant"].values == 0])
    rows = []
    for k in range(summary.sizes["group"]):
        one = summary.isel(group=k)
        low, high, mean = (float(one[name]) for name in ("group_low", "group_high", "group_mean"))
        begin = float(summary["block_begin"].values[summary["block_segment"].values == segments[k]].min())
        rows.append(
            (
                str(k + 1),
                format_duration(begin),
                _number(mean, factor, decimals),
                _number(float(one["group_sd"]), factor, decimals),
                str(int(one["group_blocks"])),
                f"{_number(low, factor, decimals)} to {_number(high, factor, decimals)}",
                format_share((high - low) / mean),
            )
        )
    columns = ("group", "from", f"mean, {unit}", "sd", "runs", "99 % interval of the mean", "width")
    return Table(title, columns, rows, right=tuple(range(1, 7)))


def stability_values(summary: xr.Dataset) -> dict[str, Any]:
    mean, sd = float(summary["mean"].values[0]), float(summary["sd"].values[0])
    changed = summary["block_begin"].values[summary["changed"].values == 1]
    return {
        "width_pct": _pct(width(summary)),
        "stable": stable(summary),
        "cv_pct": _pct(sd / mean),
        "groups_p": _finite(summary["groups_p"]),
        "change_points_s": [float(begin) for begin in changed],
        "autocorrelation": _finite(summary["autocorrelation"]),
        "effective": _finite(summary["effective"]),
        "mde_pct": _pct(summary["clean_mde"]),
        "groups": [
            {
                "mean_s": _finite(one["group_mean"]),
                "sd_s": _finite(one["group_sd"]),
                "blocks": int(one["group_blocks"]),
                "ci99_s": [_finite(one["group_low"]), _finite(one["group_high"])],
            }
            for one in (summary.isel(group=k) for k in range(summary.sizes["group"]))
        ],
    }
