"""The tables of /summary of a noise run."""

from __future__ import annotations

from dataclasses import replace

from sonde.core.described import Described
from sonde.core.described import optional as _of

_BLOCK, _CASE = ("block",), ("case",)


def _each(
    units: str, long_name: str, dims: tuple[str, ...] = (), dtype: str = "<f8", better: str = ""
) -> Described:
    """A variable that each variant has. dims: further ones."""
    return replace(_of(("variant", *dims), units, long_name, dtype), better=better)


OF_VARIANT: dict[str, Described] = {
    "p": _each("1", "p of the run, adjusted for all interim tests"),
    "p_adjusted": _each("1", "p, adjusted for the number of variants (Holm)"),
    "detected": _each("1", "whether p_adjusted is at most alpha", dtype="|i1"),
    "detected_s": _each("s", "time of the detection since the run began; NaN: not detected"),
    "p_fold": _each("1", "p of the folded stalls at the last look"),
    "p_ranked": _each("1", "p of the ranked blocks at the last look"),
    "z_fold": _each("1", "largest standardised cell of the fold"),
    "z_ranked": _each("1", "largest standardised rank sum"),
    "period": _each("s", "period at which the fold was largest"),
    "phase": _each("s", "phase at which the fold was largest"),
    "from_resume": _each("1", "whether the phase counts from the moment the agent was resumed", dtype="<i8"),
    "feature": _each("1", "number of the ranked feature with the largest statistic", dtype="<i8"),
    "slowdown": _each(
        "1", "slowdown: time lost in stalls and change of the typical iteration", better="lower"
    ),
    "slowdown_low": _each("1", "low end of its 95 % interval"),
    "slowdown_high": _each("1", "high end of its 95 % interval"),
    "stalls": _each("1", "share of time lost in stalls, on minus off", better="lower"),
    "stalls_low": _each("1", "low end of its 95 % interval"),
    "stalls_high": _each("1", "high end of its 95 % interval"),
    "typical": _each("1", "change of the median iteration, a share", better="lower"),
    "typical_low": _each("1", "low end of its 95 % interval"),
    "typical_high": _each("1", "high end of its 95 % interval"),
    "effect_pairs": _each("1", "pairs of blocks behind the size of the effect", dtype="<i8"),
    "effect_fresh": _each("1", "whether the detection did not use these blocks", dtype="<i8"),
    "effect_window": _each("1", "whether only stalls around the agent's wake-up count", dtype="<i8"),
    "window_before": _each(
        "1",
        "time before the wake-up that counts as the agent's, a share of the period; NaN: no "
        "wake-up was found",
    ),
    "window_after": _each("1", "time after the wake-up that counts as the agent's, a share of the period"),
    "mde": _each(
        "1",
        "shortest burst that this run detects with power 0.9, a share of the period; NaN: "
        "unknown, for example because others work on the ranks' cores",
    ),
    "mde_period": _each("s", "period of the bursts for which mde holds"),
    "mde_searched": _each(
        "1",
        "share of the search for mde that --budget had time for; below 1, shorter bursts may "
        "be detectable, too",
    ),
    "mde_runs": _each("1", "simulated runs in each step of that search; fewer when --budget is short"),
    "permutations": _each("1", "permutations behind p at the last look", dtype="<i8"),
    "noisy_rank": _each(
        "1", "the rank that is late in the agent's stalls; -1: no rank, or several", dtype="<i8"
    ),
    "late_share": _each(
        "1", "share of blocks in which a rank was late at the wake-up, on minus off", ("rank",)
    ),
    "late_known": _each("1", "share of blocks in which any rank was late"),
    "cost": _each("1", "modelled slowdown by number of nodes, agents not synchronised", ("scale",)),
    "cost_synchronised": _each("1", "modelled slowdown on any number of nodes, agents synchronised"),
    "wake_lost": _each("s", "time lost a period"),
    "source_detected": _each(
        "1", "whether the source thesis's rule detects it: disjoint 99 % intervals of means", dtype="<i8"
    ),
    "source_detected_s": _each("s", "time at which the intervals first were disjoint; NaN: never"),
    "source_gap": _each(
        "1", ("gap between the two intervals at the end, as a share of the clean mean; below 0: they overlap")
    ),
    "source_separated_s": _each(
        "s", "time at which they first were the thesis's several seconds apart; NaN: never"
    ),
    "agent_cpu": _each("1", "CPU time of the agent, as a share of the time it was on"),
    "agent_paused": _each("1", "CPU time of agents meant to be paused, as a share of that time"),
    "agent_wakeups": _each("Hz", "wake-ups of its threads a second"),
    "duty": _each(
        "1", "CPU time that the noise source recorded in its blocks, a share; NaN: no noise source"
    ),
    "duty_asked": _each("1", "requested share of CPU time; NaN: no noise source"),
    "duty_bursts": _each("Hz", "bursts a second in these blocks"),
    "keeper_cpu": _each("1", "CPU time of the process that drives it, as a share"),
    "drives": _each("1", "number of times the agent was driven"),
    "drives_failed": _each("1", "drives that failed"),
    "fold_on": _each("1", "share of periods with a stall in a cell of the period, agent on", ("cell",)),
    "fold_off": _each("1", "share of periods with a stall in a cell of the period, agent off", ("cell",)),
    "fold_threshold": _each("s", "shortest time that counts as a stall in the fold"),
}
"""The results of each variant. A clean run has no variants."""

OF_CASE: dict[str, Described] = {
    "mean": _of(_CASE, "s", "mean time of an iteration, over the means of blocks"),
    "sd": _of(_CASE, "s", "standard deviation of the means of blocks"),
    "blocks": _of(_CASE, "1", "blocks"),
    "mean_low": _of(_CASE, "s", "99 % interval of the mean (Student), low end"),
    "mean_high": _of(_CASE, "s", "99 % interval of the mean (Student), high end"),
}
"""The means of each variant, off included."""

SUMMARY: dict[str, Described] = {
    **OF_VARIANT,
    "block_variant": _of(_BLOCK, "1", "variant that was on", "<i4"),
    "block_segment": _of(_BLOCK, "1", "segment of a block", "<i4"),
    "block_begin": _of(_BLOCK, "s", "begin of a block since the run began"),
    "block_length": _of(_BLOCK, "s", "length of a block"),
    "block_mean": _of(_BLOCK, "s", "mean time of an iteration"),
    "block_median": _of(_BLOCK, "s", "median time of an iteration"),
    "block_lost": _of(_BLOCK, "1", "share of a block lost in stalls"),
    "clean_iteration": _of((), "s", "median iteration, agent off"),
    "clean_lost": replace(_of((), "1", "share lost in stalls, agent off"), better="lower"),
    "quantile_s": _of(("case", "quantile"), "s", "quantile of an iteration's time"),
    **OF_CASE,
    "keeping_share": _of((), "1", "cost of recording every iteration, a share of the loop"),
    "keeping_low": _of((), "1", "low end of its 95 % interval"),
    "keeping_high": _of((), "1", "high end of its 95 % interval"),
    "variant": _of(("variant",), "", "variant, without off", "str"),
    "case": _of(_CASE, "", "variant, off included", "str"),
    "quantile": _of(("quantile",), "1", "quantile"),
    "scale": _of(("scale",), "1", "nodes", "<i8"),
    "cell": _of(("cell",), "1", "share of the period, 0.5 at the wake-up"),
}
"""The variables of /summary. If a run has no records of a kind, their variables are left out."""
