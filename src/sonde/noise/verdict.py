"""What a noise run says in words, findings and tables. Pure: from /summary alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from sonde.core.errors import Finding, Warning, typed
from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_share, format_size
from sonde.noise.analyse import BUSY, few_cores, shared

RANKED = ("stalls", "100 ms bins with a stall", "lost time")
LEVELS = ("median", "90 % quantile", "99 % quantile", "99.9 % quantile")
RANKED_THRESHOLDS = 7
CROWDED_S = 1e-3  # an iteration as long as this says that ranks wait for each other's time slices


SURVEY = "survey"  # the study whose noise source is a known calibration, not an agent in question
WANDER, LEAST_CLEAN = 0.03, 6  # spread of clean blocks' typical iteration that is told; blocks that can tell
PAUSED, PAUSED_LEAST = 0.05, 1e-5  # of its use while on, and of a core, from which a pause has not held


def interval(low: float, high: float) -> str:
    """ "0.91 to 1.04 %", or a word where there is none."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return "too few blocks for an interval"
    size = max(abs(low), abs(high), 1e-9)
    decimals = min(6, max(0, 1 - math.floor(math.log10(100 * size))))
    ends = (round(100 * end, decimals) + 0.0 for end in (low, high))  # never "-0"
    return " to ".join(f"{end:.{decimals}f}" for end in ends) + " %"


def _share(row: xr.Dataset, name: str) -> str:
    return format_share(float(row[name]))


def _interval(row: xr.Dataset, name: str) -> str:
    return interval(float(row[f"{name}_low"]), float(row[f"{name}_high"]))


def material(row: xr.Dataset, matters: float) -> str:
    """Whether the slowdown reaches `matters`: "yes", "no", or "unsettled"."""
    low, high = float(row["slowdown_low"]), float(row["slowdown_high"])
    if low > matters or _by_stalls(row, matters):
        return "yes"
    if math.isfinite(high) and high < matters:
        return "no"
    return "unsettled"


def _by_stalls(row: xr.Dataset, matters: float) -> bool:
    """Whether what stalls take is enough to matter, and the typical iteration is not known to have got shorter.

    On a machine whose level wanders the typical iteration is known badly, and the slowdown, which holds both, with it.
    """
    return float(row["stalls_low"]) > matters and float(row["typical_high"]) > 0


def settled(row: xr.Dataset, matters: float) -> str:
    """Whether a slowdown that matters is there: "yes", "no", or "unsettled", also where it could not have been seen."""
    if int(row["detected"]):
        return material(row, matters)
    return "unsettled" if blind(row, matters) else "no"


def blind(row: xr.Dataset, matters: float) -> bool:
    """Whether the run could not have seen a slowdown that matters."""
    mde, low = float(row["mde"]), float(row["slowdown_low"])
    # An agent that works all the time makes no bursts, for which mde holds; its slowdown shows all the same.
    return not math.isfinite(mde) or mde > matters or low > matters


def row_sentence(row: xr.Dataset, attrs: dict[str, Any]) -> str:
    """The verdict on one variant."""
    alpha, matters = float(attrs["alpha"]), float(attrs["matters"])
    name = str(row["variant"].values)
    p = float(row["p_adjusted"])
    told_p = f"p = {p:.2g}" if p < 0.1 else f"p = {min(p, 1):.2f}"
    mde = float(row["mde"])
    if not int(row["detected"]):
        short = searched(row) < 1  # of time
        if not math.isfinite(mde) and short:
            return (
                f"{name}: no verdict; nothing was detected ({told_p}), and --budget was over before it was known which "
                "bursts would have been found."
            )
        if not math.isfinite(mde) and shared(attrs, float(row["clean_lost"])):
            return (
                f"{name}: no verdict; nothing was detected ({told_p}), and other programs took "
                f"{format_share(float(row['clean_lost']))} of the time: which bursts would have been found beside them "
                "is not known."
            )
        if not math.isfinite(mde):
            return f"{name}: no verdict; this run was too short, or too noisy, to find any burst up to half a period."
        each = format_duration(float(row["mde_period"]))
        if mde > matters and short:
            return (
                f"{name}: no verdict; nothing was detected ({told_p}); bursts of {format_share(mde)} of each {each} "
                f"would have been found, {format_share(matters)} matters, and --budget was over before shorter ones "
                "were looked for."
            )
        if mde > matters:
            return (
                f"{name}: no verdict; nothing was detected ({told_p}), but of bursts each {each} only those of "
                f"{format_share(mde)} of the time or more would have been found, and {format_share(matters)} matters."
            )
        return (
            f"{name}: nothing detected ({told_p}, false alarms {format_share(alpha)}); of bursts each {each}, "
            f"{format_share(mde)} of the time or more would have been found."
        )
    size = f"{_share(row, 'slowdown')} slowdown ({_interval(row, 'slowdown')})"
    if not float(row["slowdown_low"]) > matters and _by_stalls(row, matters):
        size += f", {_share(row, 'stalls')} of the time in stalls alone ({_interval(row, 'stalls')})"
    worth = {
        "yes": f"more than the {format_share(matters)} that matters",
        "no": f"less than the {format_share(matters)} that matters",
        "unsettled": f"whether it reaches the {format_share(matters)} that matters is not settled",
    }[material(row, matters)]
    return f"{name}: detected after {format_duration(float(row['detected_s']))} ({told_p}); {size}: {worth}."


def searched(row: xr.Dataset) -> float:
    """The share of the search for the shortest burst that would have been found, for which there was time."""
    return float(row["mde_searched"]) if "mde_searched" in row else 1.0


def sentence(summary: xr.Dataset) -> str:
    """The verdict of a run."""
    if is_survey(summary):
        return survey_sentence(summary)
    rows = [summary.isel(variant=k) for k in range(summary.sizes.get("variant", 0))]
    if not rows:
        iteration = float(summary["clean_iteration"])
        lost = format_share(float(summary["clean_lost"]))
        return (
            f"clean run: an iteration takes {format_duration(iteration)}, {lost} of time is lost in stalls."
        )
    if len(rows) == 1:
        return row_sentence(rows[0], summary.attrs)
    found = [row for row in rows if int(row["detected"])]
    if summary.attrs.get("study") == "compare":
        return compared(rows, summary.attrs)
    names = ", ".join(str(row["variant"].values) for row in found) or "none"
    return f"{len(found)} of {len(rows)} variants are detected: {names}."


def is_survey(summary: xr.Dataset) -> bool:
    """Whether the run measured the machine with a noise source of its own, rather than an agent."""
    return summary.attrs.get("study") == SURVEY and summary.sizes.get("variant", 0) == 1


def survey_sentence(summary: xr.Dataset) -> str:
    """How sensitive the machine is, and what it loses by itself: the source of a survey is known to be there."""
    row = summary.isel(variant=0)
    level, mde = format_share(float(summary.attrs["matters"])), float(row["mde"])
    lost = f"{format_share(float(summary['clean_lost']))} of the time is lost in stalls with nothing on"
    if int(row["detected"]):
        seen = f"bursts of {level} were found in {format_duration(float(row['detected_s']))}"
        seen += f", of {format_share(mde)} would have been" if math.isfinite(mde) else ""
    elif not looked(row):
        seen = f"the time was over before bursts of {level} could be looked for"
    else:
        seen = f"bursts of {level} were not found (p = {min(float(row['p_adjusted']), 1):.2f})"
    return f"{seen}; {lost}."


def looked(row: xr.Dataset) -> bool:
    """Whether the run lasted until its first look."""
    return bool(float(row["z_fold"]) or float(row["z_ranked"]))


def crowded(summary: xr.Dataset) -> bool:
    """Whether ranks wait for each other's time slices."""
    slow = float(summary["clean_iteration"]) > CROWDED_S and int(summary.attrs.get("size", 0)) <= 65536
    return few_cores(summary.attrs) or slow


def doubt(summary: xr.Dataset) -> str:
    """In a few words why "no findings" says little; "" where it is sound."""
    if sound(summary):
        return ""
    if crowded(summary):
        return "ranks wait for each other's time slices"
    if is_survey(summary):
        what = f"bursts of {format_share(float(summary.attrs['matters']))}"
        return (
            f"{what} were not found" if looked(summary.isel(variant=0)) else f"{what} could not be looked for"
        )
    matters = float(summary.attrs.get("matters", 0.001))
    rows = [summary.isel(variant=k) for k in range(summary.sizes.get("variant", 0))]
    if any(int(row["detected"]) and settled(row, matters) == "unsettled" for row in rows):
        return "whether the slowdown matters is not settled"
    return "a slowdown that matters may not have been found"


def loop(summary: xr.Dataset) -> str:
    """What was repeated: "alltoall of 1 KiB"."""
    return f"{summary.attrs.get('op', 'the loop')}{_size(summary)}"


def compared(rows: list[xr.Dataset], attrs: dict[str, Any]) -> str:
    """Which placement harms least."""
    matters = float(attrs["matters"])
    harmless = [row for row in rows if settled(row, matters) == "no"]
    cheapest = min(harmless or rows, key=lambda row: float(row["slowdown"]))
    name, cost = str(cheapest["variant"].values), format_share(float(cheapest["slowdown"]))
    if harmless:
        bound = format_share(matters)
        return f"{name} is the cheapest harmless placement: {cost} slowdown, below the {bound} that matters."
    others = [row for row in rows if row is not cheapest]
    if all(float(cheapest["slowdown_high"]) < float(row["slowdown_low"]) for row in others):
        return f"no placement is shown to be harmless; {name} costs least, {cost}."
    return "no placement is shown to be harmless, and which of them costs least is not settled."


def cause(row: xr.Dataset) -> str:
    """What gave it away, in words."""
    folded = int(row["effect_window"]) or float(row["p_fold"]) <= float(row["p_ranked"])
    if folded and float(row["period"]) > 0:
        since = "after it is let go" if int(row["from_resume"]) else "of the run's time"
        return f"stalls each {format_duration(float(row['period']))}, {format_duration(float(row['phase']))} {since}"
    feature = int(row["feature"])
    if feature >= 3 * RANKED_THRESHOLDS:
        return f"the {LEVELS[feature - 3 * RANKED_THRESHOLDS]} of the iteration"
    return f"{RANKED[feature % 3]}, threshold {feature // 3 + 1} of {RANKED_THRESHOLDS}"


def noisy_rank(row: xr.Dataset) -> str:
    """The rank that is late, in words."""
    rank = int(row["noisy_rank"])
    if rank >= 0:
        return f"rank {rank}, late at the wake-up in {format_share(float(row['late_share'].values[rank]))} of blocks"
    known = float(row["late_known"])
    if not math.isfinite(known):
        return "not looked for: no wake-up was found"
    if known < 0.5:
        return f"none: the kernel kept a rank waiting in {format_share(known)} of blocks only"
    shares = ", ".join(f"{r}: {format_share(s)}" for r, s in enumerate(row["late_share"].values[:8]))
    return f"no single one ({shares})"


def findings(summary: xr.Dataset) -> list[Finding]:
    """A detected slowdown that matters; of a survey, what hinders the machine itself."""
    if is_survey(summary):
        return survey_findings(summary)
    matters = float(summary.attrs.get("matters", 0.001))
    out = []
    for k in range(summary.sizes.get("variant", 0)):
        row = summary.isel(variant=k)
        if settled(row, matters) != "yes":
            continue
        out.append(
            Finding(
                "noise.slowdown",
                row_sentence(row, summary.attrs),
                {
                    "variant": str(row["variant"].values),
                    "slowdown_pct": 100 * float(row["slowdown"]),
                    "ci_pct": [100 * float(row["slowdown_low"]), 100 * float(row["slowdown_high"])],
                    "p": float(row["p_adjusted"]),
                },
                _cheaper(row, summary.attrs),
            )
        )
    return out


def _cheaper(row: xr.Dataset, attrs: dict[str, Any]) -> str:
    """What to type to find a place where an agent costs less; "" for the noise source, which is none."""
    if attrs.get("study", "run") != "run" or math.isfinite(float(row["duty_asked"])):
        return ""
    return typed("sonde", "noise", "run", "--agent", str(attrs["agent"]), "--compare", "pinned,free,sibling")


def survey_findings(summary: xr.Dataset) -> list[Finding]:
    """A machine that loses time by itself, or on which noise that is surely there is not found.

    Neither is said of more ranks than cores: these hinder each other, and that says nothing about the machine.
    """
    if crowded(summary):
        return []
    row = summary.isel(variant=0)
    lost, matters = float(summary["clean_lost"]), float(summary.attrs["matters"])
    out = []
    if lost > BUSY:
        out.append(
            Finding(
                "noise.busy_machine",
                f"{format_share(lost)} of the time is lost in stalls with nothing on: something else works here",
                {"lost_pct": 100 * lost, "limit_pct": 100 * BUSY},
                "sonde noise host",
            )
        )
    if not int(row["detected"]) and looked(row):
        out.append(
            Finding(
                "noise.blind",
                f"bursts of {format_share(matters)}, switched on and off by the survey itself, were not found "
                f"(p = {min(float(row['p_adjusted']), 1):.2f}): an agent that costs as much would pass unseen here",
                {
                    "level_pct": 100 * matters,
                    "p": float(row["p_adjusted"]),
                    "mde_pct": _finite(100 * float(row["mde"])),
                },
                "sonde noise run --level 1% --budget 2min",
            )
        )
    return out


def warnings(summary: xr.Dataset) -> list[Warning]:
    """What makes the verdict worth less."""
    out = []
    if float(summary["clean_iteration"]) > CROWDED_S and int(summary.attrs.get("size", 0)) <= 65536:
        out.append(
            Warning(
                "noise.crowded",
                f"an iteration takes {format_duration(float(summary['clean_iteration']))}: ranks wait for each "
                "other's time slices, and nothing fine can be seen beside that",
                "give no more ranks than cores",
            )
        )
    lost = float(summary["clean_lost"])
    if lost > BUSY and not is_survey(summary) and not crowded(summary):
        out.append(
            Warning(
                "noise.busy_machine",
                f"{format_share(lost)} of the time is lost in stalls with the agent off: something else works here",
                "find it with sonde noise host, or measure when the machine is idle",
            )
        )
    wandered = wander(summary)
    if wandered > WANDER and not crowded(summary):
        out.append(
            Warning(
                "noise.level_wanders",
                f"with nothing on, the typical iteration differs by {format_share(wandered)} from block to block "
                "(middle half), as where others share caches, memory or the clock: the slowdown, which holds it, is "
                "known no better; what is lost in stalls does not depend on it",
                "measure when its neighbours are idle, or longer",
            )
        )
    for k in range(summary.sizes.get("variant", 0)):
        row = summary.isel(variant=k)
        paused = float(row["agent_paused"]) if "agent_paused" in row else math.nan
        works = float(row["agent_cpu"])
        if paused > max(PAUSED * works, PAUSED_LEAST):
            out.append(
                Warning(
                    "noise.agent_not_paused",
                    f"{row['variant'].values}: while it was meant to be paused it used {format_share(paused)} of a "
                    f"core, of {format_share(works)} while it was on: what it costs is told too small",
                    "find out what lets it go, or have it ended instead: --pause start-stop",
                )
            )
        failed = float(row["drives_failed"])
        if failed > 0:
            out.append(
                Warning(
                    "noise.drives_failed",
                    f"{row['variant'].values}: {failed:.0f} of {failed + float(row['drives']):.0f} drives failed, "
                    "so the agent did less than its real work",
                    "try the agent alone with sonde noise agents NAME --try",
                )
            )
    return out


def wander(summary: xr.Dataset) -> float:
    """Width of the middle half of the clean blocks' typical iterations, a share of their median; 0 where not known."""
    if "block_median" not in summary:
        return 0.0
    clean = summary["block_median"].values[summary["block_variant"].values == 0]
    clean = clean[np.isfinite(clean)]
    if clean.size < LEAST_CLEAN:
        return 0.0
    low, middle, high = np.quantile(clean, (0.25, 0.5, 0.75))
    return float((high - low) / middle)


def sound(summary: xr.Dataset) -> bool:
    """Whether it is settled if a slowdown that matters is there; of a survey, whether it could tell."""
    if is_survey(summary):
        return bool(int(summary["detected"].values[0])) and not crowded(summary)
    matters = float(summary.attrs.get("matters", 0.001))
    rows = [summary.isel(variant=k) for k in range(summary.sizes.get("variant", 0))]
    return bool(rows) and not any(settled(row, matters) == "unsettled" for row in rows)


def tables(summary: xr.Dataset) -> list[Table]:
    """What stands below the verdict."""
    out = []
    count = summary.sizes.get("variant", 0)
    if count == 1:
        out.append(_single(summary.isel(variant=0), summary))
    elif count:
        head = ("variant", "slowdown", "95 % interval", "p", "found after", "would find", "agent's CPU")
        rows: list[tuple[str, ...]] = []
        for k in range(count):
            row = summary.isel(variant=k)
            rows.append(
                (
                    str(row["variant"].values),
                    format_share(float(row["slowdown"])),
                    interval(float(row["slowdown_low"]), float(row["slowdown_high"])),
                    f"{float(row['p_adjusted']):.2g}",
                    format_duration(float(row["detected_s"])) if int(row["detected"]) else "–",
                    format_share(float(row["mde"])),
                    format_share(float(row["agent_cpu"])),
                )
            )
        out.append(Table("Against blocks with nothing on", head, rows, right=(1, 2, 3, 4, 5, 6)))
    modelled = [
        summary.isel(variant=k)
        for k in range(0 if is_survey(summary) else count)
        if math.isfinite(float(summary["cost"].values[k, 0]))
    ]
    if modelled:
        nodes_head: tuple[str, ...] = ("nodes", *(str(row["variant"].values) for row in modelled))
        rows = [
            (
                f"{nodes:,}".replace(",", " "),
                *(format_share(float(row["cost"].values[i])) for row in modelled),
            )
            for i, nodes in enumerate(summary["scale"].values)
        ]
        rows.append(("any, in step", *(format_share(float(row["cost_synchronised"])) for row in modelled)))
        grain = format_duration(float(summary.attrs.get("grain_s", 0.001)))
        out.append(
            Table(
                "Modelled slowdown at scale",
                nodes_head,
                rows,
                right=tuple(range(1, len(nodes_head))),
                note=f"a model, not measured: the slowest of so many nodes decides each step of {grain}; agents at "
                "independent times, and in step with each other",
            )
        )
    return out


def _single(row: xr.Dataset, summary: xr.Dataset) -> Table:
    fresh = "blocks after the detection" if int(row["effect_fresh"]) else "all blocks"
    rows = [
        ("slowdown", f"{_share(row, 'slowdown')}, 95 %: {_interval(row, 'slowdown')}, "
         f"from {int(row['effect_pairs'])} pairs of {fresh}"),
        ("  lost in stalls", f"{_share(row, 'stalls')} of the time, 95 %: {_interval(row, 'stalls')}"),
        ("  typical iteration", f"{_share(row, 'typical')}, 95 %: {_interval(row, 'typical')}"),
        ("would find", f"bursts of {_share(row, 'mde')} of each {format_duration(float(row['mde_period']))}, "
         "with power 90 %" + (", or shorter ones: the search was ended by --budget" if searched(row) < 1 else "")),
    ]  # fmt: skip
    if int(row["detected"]):
        rows += [("given away by", cause(row)), ("late", noisy_rank(row))]
    if math.isfinite(float(row["agent_cpu"])):
        rows.append(
            (
                "agent",
                f"{_share(row, 'agent_cpu')} of a core, {float(row['agent_wakeups']):.1f} wake-ups a second",
            )
        )
    if float(row["drives"]) > 0:
        rows.append(
            (
                "driven",
                f"{float(row['drives']):.0f} times; driving took {format_share(float(row['keeper_cpu']))} of a core",
            )
        )
    gap = float(row["source_gap"])
    by_means = (
        "not before"
        if not math.isfinite(float(row["source_detected_s"]))
        else f"first at {format_duration(float(row['source_detected_s']))},"
    )
    if math.isfinite(gap):
        rows.append(
            (
                "disjoint 99 % means",
                f"{by_means} the end: gap {format_share(gap)}"
                if gap > 0
                else f"{by_means} the end: they overlap",
            )
        )
    rows.append(
        ("loop", f"{loop(summary)}, {int(summary.attrs['ranks'])} ranks, iteration "
         f"{format_duration(float(summary['clean_iteration']))} (median); keeping its times costs "
         f"{_share(summary, 'keeping_share')}, 95 %: {_interval(summary, 'keeping')}")
    )  # fmt: skip
    return Table("", ("", ""), rows)


def _size(summary: xr.Dataset) -> str:
    return (
        ""
        if summary.attrs.get("op") == "barrier" or "size" not in summary.attrs
        else f" of {format_size(int(summary.attrs['size']), exact=True)}"
    )


def values(summary: xr.Dataset) -> dict[str, Any]:
    """What --json tells: the first variant's numbers, and all of them under `variants`."""
    rows = [_values(summary.isel(variant=k), summary) for k in range(summary.sizes.get("variant", 0))]
    out: dict[str, Any] = {
        "alpha": float(summary.attrs["alpha"]),
        "matters_pct": 100 * float(summary.attrs["matters"]),
        "op": str(summary.attrs["op"]),
        "size": int(summary.attrs["size"]),
        "ranks": int(summary.attrs["ranks"]),
        "iteration_s": _finite(float(summary["clean_iteration"])),
        "clean_lost_pct": _finite(100 * float(summary["clean_lost"])),
        "keeping_pct": _finite(100 * float(summary["keeping_share"])),
    }
    if rows:
        out |= rows[0]
    if len(rows) > 1:
        out["variants"] = rows
    return out


def _values(row: xr.Dataset, summary: xr.Dataset) -> dict[str, Any]:
    rank = int(row["noisy_rank"])
    return {
        "variant": str(row["variant"].values),
        "detected": bool(row["detected"]),
        "material": settled(row, float(summary.attrs["matters"])),
        "slowdown_pct": _finite(100 * float(row["slowdown"])),
        "ci_pct": [_finite(100 * float(row["slowdown_low"])), _finite(100 * float(row["slowdown_high"]))],
        "p": float(row["p_adjusted"]),
        "mde_pct": _finite(100 * float(row["mde"])),
        "mde_searched_pct": _finite(100 * searched(row)),
        "seconds": _finite(float(row["detected_s"])),
        "noisy_rank": rank if rank >= 0 else None,
        "period_s": _finite(float(row["period"])) or None,
        "stalls_pct": _finite(100 * float(row["stalls"])),
        "typical_pct": _finite(100 * float(row["typical"])),
        "agent_cpu_pct": _finite(100 * float(row["agent_cpu"])),
        "wakeups_per_s": _finite(float(row["agent_wakeups"])),
        "source_rule": {
            "detected": bool(row["source_detected"]),
            "seconds": _finite(float(row["source_detected_s"])),
            "separated_seconds": _finite(float(row["source_separated_s"])),
        },
        "modelled_cost_pct": {
            str(int(nodes)): _finite(100 * float(cost))
            for nodes, cost in zip(np.atleast_1d(summary["scale"].values), np.atleast_1d(row["cost"].values))
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def worse(old: xr.Dataset, new: xr.Dataset, names: tuple[str, str]) -> list[Finding]:
    """What is noisier in `new` than in `old`: more time lost in stalls with nothing on, by more than twofold."""
    before, now = (float(summary["clean_lost"]) for summary in (old, new))
    if not (math.isfinite(before) and math.isfinite(now)) or now <= max(2 * before, 0.005):
        return []
    return [
        Finding(
            "noise.noisier",
            f"{format_share(now)} of the time is lost in stalls with nothing on, in {names[0]} it was "
            f"{format_share(before)}",
            {"lost": now, "before": before},
            "sonde noise host",
        )
    ]
