"""The verdict, the findings, the warnings and the tables of a noise run. Pure: all comes from /summary."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from sonde.core.errors import Finding, Warning, typed
from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_share, format_size
from sonde.noise.detector.detectable import BUSY, few_cores, shared

RANKED = ("stalls", "100 ms bins with a stall", "lost time")
LEVELS = ("median", "90 % quantile", "99 % quantile", "99.9 % quantile")
RANKED_THRESHOLDS = 7
CROWDED_S = 1e-3  # an iteration this long shows that ranks wait for each other's time slices


SURVEY = "survey"  # the study whose noise source is a known calibration, not an agent in question
# The spread of the clean blocks' typical iteration that causes a warning, and the fewest blocks that show it.
WANDER, MIN_CLEAN = 0.03, 6
# A pause failed when the agent uses more than this share of its use while on, and of a core.
PAUSED, MIN_PAUSED = 0.05, 1e-5


def interval(low: float, high: float) -> str:
    """ "0.91 to 1.04 %"; a short explanation where there is no interval."""
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
    """Whether the time lost in stalls alone matters, while the typical iteration did not provably get shorter.

    On a machine whose level drifts, the typical iteration has a wide interval. The slowdown includes it, so its
    interval is wide, too.
    """
    return float(row["stalls_low"]) > matters and float(row["typical_high"]) > 0


def settled(row: xr.Dataset, matters: float) -> str:
    """Whether there is a slowdown that matters: "yes", "no", or "unsettled".

    It is also "unsettled" where the run could not have detected such a slowdown.
    """
    if int(row["detected"]):
        return material(row, matters)
    return "unsettled" if blind(row, matters) else "no"


def blind(row: xr.Dataset, matters: float) -> bool:
    """Whether the run could not have detected a slowdown that matters."""
    mde, low = float(row["mde"]), float(row["slowdown_low"])
    # The mde is for bursts. An agent that works all the time makes no bursts, but its slowdown is visible.
    return not math.isfinite(mde) or mde > matters or low > matters


def row_sentence(row: xr.Dataset, attrs: dict[str, Any]) -> str:
    """The verdict on one variant."""
    alpha, matters = float(attrs["alpha"]), float(attrs["matters"])
    name = str(row["variant"].values)
    p = float(row["p_adjusted"])
    p_text = f"p = {p:.2g}" if p < 0.1 else f"p = {min(p, 1):.2f}"
    mde = float(row["mde"])
    if not int(row["detected"]):
        cut_short = searched(row) < 1
        if not math.isfinite(mde) and cut_short:
            return (
                f"{name}: inconclusive: nothing was detected ({p_text}), and --budget ended before the smallest "
                "detectable cost was known."
            )
        if not math.isfinite(mde) and shared(attrs, float(row["clean_lost"])):
            return (
                f"{name}: inconclusive: nothing was detected ({p_text}), and other programs took "
                f"{format_share(float(row['clean_lost']))} of the time, so the smallest detectable cost is unknown."
            )
        if not math.isfinite(mde):
            return f"{name}: inconclusive: this run was too short or too noisy to detect any burst up to half a period."
        each = format_duration(float(row["mde_period"]))
        if mde > matters and cut_short:
            return (
                f"{name}: inconclusive ({p_text}): costs of {format_share(mde)} or more were detectable; your limit "
                f"is {format_share(matters)}, and --budget ended before smaller costs were tested."
            )
        if mde > matters:
            return (
                f"{name}: inconclusive ({p_text}): only costs of {format_share(mde)} or more were detectable; your "
                f"limit is {format_share(matters)}."
            )
        return (
            f"{name}: nothing detected ({p_text}, false alarms {format_share(alpha)}); costs of {format_share(mde)} "
            f"or more, in bursts every {each}, were detectable."
        )
    size = f"{_share(row, 'slowdown')} slowdown ({_interval(row, 'slowdown')})"
    if not float(row["slowdown_low"]) > matters and _by_stalls(row, matters):
        size += f", {_share(row, 'stalls')} of the time in stalls alone ({_interval(row, 'stalls')})"
    worth = {
        "yes": f"above your limit of {format_share(matters)}",
        "no": f"below your limit of {format_share(matters)}",
        "unsettled": f"it is open whether this exceeds your limit of {format_share(matters)}",
    }[material(row, matters)]
    return f"{name}: detected after {format_duration(float(row['detected_s']))} ({p_text}); {size}: {worth}."


def searched(row: xr.Dataset) -> float:
    """The share of the search for the shortest detectable burst that the run had time for."""
    return float(row["mde_searched"]) if "mde_searched" in row else 1.0


def sentence(summary: xr.Dataset) -> str:
    """The verdict of a run."""
    if is_survey(summary):
        return survey_sentence(summary)
    rows = [summary.isel(variant=k) for k in range(summary.sizes.get("variant", 0))]
    if not rows:
        iteration = float(summary["clean_iteration"])
        lost = format_share(float(summary["clean_lost"]))
        return f"clean run: an iteration takes {format_duration(iteration)}; stalls took {lost} of the time."
    if len(rows) == 1:
        return row_sentence(rows[0], summary.attrs)
    found = [row for row in rows if int(row["detected"])]
    if summary.attrs.get("study") == "compare":
        return compared(rows, summary.attrs)
    names = ", ".join(str(row["variant"].values) for row in found) or "none"
    return f"{len(found)} of {len(rows)} variants were detected: {names}."


def is_survey(summary: xr.Dataset) -> bool:
    """Whether the run measured the machine with Sonde's own noise source, not with an agent."""
    return summary.attrs.get("study") == SURVEY and summary.sizes.get("variant", 0) == 1


def survey_sentence(summary: xr.Dataset) -> str:
    """How small a disturbance is detected, and how much time the machine loses by itself.

    A survey knows that its noise source works, so this is a self-test.
    """
    row = summary.isel(variant=0)
    level, mde = format_share(float(summary.attrs["matters"])), float(row["mde"])
    lost = f"With nothing on, stalls took {format_share(float(summary['clean_lost']))} of the time"
    if int(row["detected"]):
        result = f"a {level} disturbance was detected after {format_duration(float(row['detected_s']))}"
        result += f"; {format_share(mde)} or more is detected reliably" if math.isfinite(mde) else ""
    elif not looked(row):
        result = f"the time was over before the first test for a {level} disturbance"
    else:
        result = f"a {level} disturbance was not detected (p = {min(float(row['p_adjusted']), 1):.2f})"
    return f"Self-test: {result}. {lost}."


def looked(row: xr.Dataset) -> bool:
    """Whether the run lasted until its first interim test."""
    return bool(float(row["z_fold"]) or float(row["z_ranked"]))


def crowded(summary: xr.Dataset) -> bool:
    """Whether ranks wait for each other's time slices."""
    slow = float(summary["clean_iteration"]) > CROWDED_S and int(summary.attrs.get("size", 0)) <= 65536
    return few_cores(summary.attrs) or slow


def doubt(summary: xr.Dataset) -> str:
    """A short reason why "no findings" means little; "" where the result is conclusive."""
    if sound(summary):
        return ""
    if crowded(summary):
        return "ranks wait for each other's time slices"
    if is_survey(summary):
        level = format_share(float(summary.attrs["matters"]))
        outcome = "was not detected" if looked(summary.isel(variant=0)) else "could not be tested"
        return f"a {level} disturbance {outcome}"
    matters = float(summary.attrs.get("matters", 0.001))
    rows = [summary.isel(variant=k) for k in range(summary.sizes.get("variant", 0))]
    if any(int(row["detected"]) and settled(row, matters) == "unsettled" for row in rows):
        return "it is open whether the slowdown exceeds your limit"
    return "a slowdown above your limit may have been missed"


def loop(summary: xr.Dataset) -> str:
    """The operation that was repeated: "alltoall of 1 KiB"."""
    return f"{summary.attrs.get('op', 'the loop')}{_size(summary)}"


def compared(rows: list[xr.Dataset], attrs: dict[str, Any]) -> str:
    """The verdict on placements: the one that costs least, and whether it is harmless."""
    matters = float(attrs["matters"])
    harmless = [row for row in rows if settled(row, matters) == "no"]
    cheapest = min(harmless or rows, key=lambda row: float(row["slowdown"]))
    name, cost = str(cheapest["variant"].values), format_share(float(cheapest["slowdown"]))
    if harmless:
        bound = format_share(matters)
        return f"{name} is the cheapest harmless placement: {cost} slowdown, below your limit of {bound}."
    others = [row for row in rows if row is not cheapest]
    if all(float(cheapest["slowdown_high"]) < float(row["slowdown_low"]) for row in others):
        return f"no placement was proven harmless; {name} costs least, {cost}."
    return "no placement was proven harmless, and it is open which of them costs least."


def cause(row: xr.Dataset) -> str:
    """The statistic that detected the agent, as a text."""
    folded = int(row["effect_window"]) or float(row["p_fold"]) <= float(row["p_ranked"])
    if folded and float(row["period"]) > 0:
        since = "after it is resumed" if int(row["from_resume"]) else "into each period of the run"
        return f"stalls every {format_duration(float(row['period']))}, {format_duration(float(row['phase']))} {since}"
    feature = int(row["feature"])
    if feature >= 3 * RANKED_THRESHOLDS:
        return f"the {LEVELS[feature - 3 * RANKED_THRESHOLDS]} of the iteration"
    return f"{RANKED[feature % 3]}, threshold {feature // 3 + 1} of {RANKED_THRESHOLDS}"


def noisy_rank(row: xr.Dataset) -> str:
    """The rank that is late, as a text."""
    rank = int(row["noisy_rank"])
    if rank >= 0:
        return f"rank {rank}, late at the wake-up in {format_share(float(row['late_share'].values[rank]))} of blocks"
    known = float(row["late_known"])
    if not math.isfinite(known):
        return "unknown: no wake-up was found"
    if known < 0.5:
        return f"none: the kernel delayed a rank in only {format_share(known)} of blocks"
    shares = ", ".join(f"{r}: {format_share(s)}" for r, s in enumerate(row["late_share"].values[:8]))
    return f"no single rank ({shares})"


def findings(summary: xr.Dataset) -> list[Finding]:
    """The detected slowdowns that matter; for a survey, the disturbances of the machine itself."""
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
    """The command that finds a placement where the agent costs less; "" for the noise source, which is no agent."""
    if attrs.get("study", "run") != "run" or math.isfinite(float(row["duty_asked"])):
        return ""
    return typed("sonde", "noise", "run", "--agent", str(attrs["agent"]), "--compare", "pinned,free,sibling")


def survey_findings(summary: xr.Dataset) -> list[Finding]:
    """Findings when the machine loses time by itself, and when the survey misses its own noise.

    There are no findings with more ranks than cores: such ranks delay each other, which proves nothing about the
    machine.
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
                f"Machine busy: other programs took {format_share(lost)} of the time.",
                {"lost_pct": 100 * lost, "limit_pct": 100 * BUSY},
                "sonde noise host",
            )
        )
    if not int(row["detected"]) and looked(row):
        out.append(
            Finding(
                "noise.blind",
                f"the self-test did not detect its own disturbance of {format_share(matters)} "
                f"(p = {min(float(row['p_adjusted']), 1):.2f}): an agent that costs as much would go undetected here",
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
    """The conditions that make the verdict less reliable."""
    out = []
    if float(summary["clean_iteration"]) > CROWDED_S and int(summary.attrs.get("size", 0)) <= 65536:
        out.append(
            Warning(
                "noise.crowded",
                f"an iteration takes {format_duration(float(summary['clean_iteration']))}: ranks wait for each "
                "other's time slices, so small effects cannot be detected",
                "give no more ranks than cores",
            )
        )
    lost = float(summary["clean_lost"])
    if lost > BUSY and not is_survey(summary) and not crowded(summary):
        out.append(
            Warning(
                "noise.busy_machine",
                f"Machine busy: other programs took {format_share(lost)} of the time.",
                "find them with sonde noise host, or measure when the machine is idle",
            )
        )
    spread = wander(summary)
    if spread > WANDER and not crowded(summary):
        out.append(
            Warning(
                "noise.level_wanders",
                f"with nothing on, the typical iteration differs by {format_share(spread)} from block to block "
                "(middle half), as when others share caches, memory or the clock: the slowdown cannot be known more "
                "exactly than that; the time lost in stalls is not affected",
                "measure when its neighbours are idle, or measure longer",
            )
        )
    for k in range(summary.sizes.get("variant", 0)):
        row = summary.isel(variant=k)
        paused = float(row["agent_paused"]) if "agent_paused" in row else math.nan
        used = float(row["agent_cpu"])
        if paused > max(PAUSED * used, MIN_PAUSED):
            out.append(
                Warning(
                    "noise.agent_not_paused",
                    f"{row['variant'].values}: the paused agent still used {format_share(paused)} of a core; it used "
                    f"{format_share(used)} while it was on. The reported cost is too small",
                    "find out what resumes it, or have it ended instead: --pause start-stop",
                )
            )
        failed = float(row["drives_failed"])
        if failed > 0:
            out.append(
                Warning(
                    "noise.drives_failed",
                    f"{row['variant'].values}: {failed:.0f} of {failed + float(row['drives']):.0f} drives failed, "
                    "so the agent did less than its usual work",
                    "try the agent alone with sonde noise agents NAME --try",
                )
            )
    return out


def wander(summary: xr.Dataset) -> float:
    """The width of the middle half of the clean blocks' typical iterations, a share of their median; 0: unknown."""
    if "block_median" not in summary:
        return 0.0
    clean = summary["block_median"].values[summary["block_variant"].values == 0]
    clean = clean[np.isfinite(clean)]
    if clean.size < MIN_CLEAN:
        return 0.0
    low, middle, high = np.quantile(clean, (0.25, 0.5, 0.75))
    return float((high - low) / middle)


def sound(summary: xr.Dataset) -> bool:
    """Whether the run settled if there is a slowdown that matters; for a survey, whether its self-test passed."""
    if is_survey(summary):
        return bool(int(summary["detected"].values[0])) and not crowded(summary)
    matters = float(summary.attrs.get("matters", 0.001))
    rows = [summary.isel(variant=k) for k in range(summary.sizes.get("variant", 0))]
    return bool(rows) and not any(settled(row, matters) == "unsettled" for row in rows)


def tables(summary: xr.Dataset) -> list[Table]:
    """The tables below the verdict."""
    out = []
    count = summary.sizes.get("variant", 0)
    if count == 1:
        out.append(_single(summary.isel(variant=0), summary))
    elif count:
        head = ("variant", "slowdown", "95 % interval", "p", "detected after", "detectable", "agent's CPU")
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
                note=f"a model, not a measurement: the slowest node decides each step of {grain}; the agents wake up "
                'at independent times, or, in the row "any, in step", at the same time',
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
        ("detectable", f"bursts of {_share(row, 'mde')} of each {format_duration(float(row['mde_period']))}, "
         "with power 90 %" + ("; perhaps shorter ones: --budget ended the search" if searched(row) < 1 else "")),
    ]  # fmt: skip
    if int(row["detected"]):
        rows += [("detected by", cause(row)), ("late", noisy_rank(row))]
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
                f"{float(row['drives']):.0f} times; driving it took {format_share(float(row['keeper_cpu']))} of a core",
            )
        )
    gap = float(row["source_gap"])
    by_means = (
        "never before the end"
        if not math.isfinite(float(row["source_detected_s"]))
        else f"first at {format_duration(float(row['source_detected_s']))}"
    )
    if math.isfinite(gap):
        rows.append(
            (
                "disjoint 99 % means",
                f"{by_means}; at the end: gap {format_share(gap)}"
                if gap > 0
                else f"{by_means}; at the end they overlap",
            )
        )
    rows.append(
        ("loop", f"{loop(summary)}, {int(summary.attrs['ranks'])} ranks, iteration "
         f"{format_duration(float(summary['clean_iteration']))} (median); recording its times costs "
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
    """The values for --json: the first variant's numbers, and those of all variants under `variants`."""
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
    """A finding when `new` is noisier than `old`: with nothing on it loses more than twice the time in stalls."""
    before, now = (float(summary["clean_lost"]) for summary in (old, new))
    if not (math.isfinite(before) and math.isfinite(now)) or now <= max(2 * before, 0.005):
        return []
    return [
        Finding(
            "noise.noisier",
            f"with nothing on, stalls took {format_share(now)} of the time; in {names[0]} they took "
            f"{format_share(before)}",
            {"lost": now, "before": before},
            "sonde noise host",
        )
    ]
