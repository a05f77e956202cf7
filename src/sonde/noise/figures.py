"""The section of a report for a noise dataset, and the figures of a run. Specifications only: nothing is drawn here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import xarray as xr

from sonde.core.dataset import summary_of
from sonde.core.figure import Axis, Figure, Kind, Slider
from sonde.core.section import Fact, Method, Section
from sonde.core.units import format_duration, format_share
from sonde.noise import studies, study_words, verdict
from sonde.noise.analyse import CELLS, QUANTILES, WINDOW_AFTER, WINDOW_BEFORE, reader, shared
from sonde.noise.histogram import quantiles

MOST_STALLS = 3000  # stalls that are drawn: the longest
MOST_RANKS = 64  # bars
SHUFFLES, SHUFFLED_LEVEL = 200, 0.95
FEWEST = 5  # blocks of each kind, or readings beyond a quantile; fewer mean nothing
WIDE = 2  # an axis is logarithmic from this ratio of largest to smallest value
PER_DECADE = 6  # quantiles that are drawn

TIME = Axis("time since the run began", "s")
CLEAN = "nothing on"
VARIANT = Slider("variant", "what was on")

METHODS = (
    Method(
        "Permutation test",
        "The test compares blocks with the agent on and blocks without it: by stalls folded at a period, and by ranks "
        "of stalls and quantiles. It compares the largest of these statistics with its values when the labels are "
        "drawn again, as they were drawn for the run.",
        "Westfall & Young, Resampling-Based Multiple Testing, 1993; Phipson & Smyth, Stat. Appl. Genet. Mol. Biol. 9, "
        "2010",
    ),
    Method(
        "Interim tests",
        "The run is tested a few times while it goes on, and may end early. Each interim test may spend its share of "
        "alpha; all shares together are alpha.",
        "Lan & DeMets, Biometrika 70, 1983",
    ),
    Method(
        "Size of the effect",
        "The median of all means of two pairwise differences, on minus off. After an early detection it is measured "
        "on fresh blocks, because the blocks that led to the detection overestimate it.",
        "Hodges & Lehmann, Ann. Math. Statist. 34, 1963",
    ),
    Method(
        "Smallest detectable cost",
        "Bursts of different lengths are put into the run's own blocks with nothing on, and the whole test is "
        "repeated. The result is the shortest burst that is detected in nine of ten repetitions.",
    ),
    Method(
        "Cost at scale",
        "A model, not a measurement: each step waits for the slowest of N nodes. Every node has the bursts measured "
        "here, at independent times. The model gives the expected largest of N delays.",
        "Tsafrir, Etsion, Feitelson & Kirkpatrick, ICS 2005; Hoefler, Schneider & Lumsdaine, SC 2010",
    ),
)
SEVERAL = Method(
    "Several variants",
    "Each variant is tested against blocks with nothing on; p-values are adjusted for the number of variants.",
    "Holm, Scand. J. Statist. 6, 1979",
)

STEADINESS = Method(
    "Steadiness of clean runs",
    "Whether all groups of blocks have the same level, and at which block the level changes.",
    "Kruskal & Wallis, J. Am. Stat. Assoc. 47, 1952; Pettitt, Applied Statistics 28, 1979",
)


def section(tree: xr.DataTree, dataset: str = "FILE") -> Section:
    """The section of a report for one dataset of any kind.

    Parameters
    ----------
    tree : groups /summary and, where it is stored, /raw; opened lazily
    dataset : the file's name, for the hints

    Returns
    -------
    Section. Figures that the data cannot fill are left out.

    Raises
    ------
    DataError  core.no_summary: a section needs /summary, and this run was not analysed.
    """
    summary = summary_of(tree, "noise", dataset)
    kind = str(tree.attrs.get("kind", "run"))
    if kind == "run":
        return run_section(tree, summary)
    if find_spec(f"sonde.noise.{kind}_figures") is not None:
        section = import_module(f"sonde.noise.{kind}_figures").section(tree, dataset)
        assert isinstance(section, Section)
        return section
    texts = import_module(f"sonde.noise.{kind}")
    return Section(
        "noise",
        f"Noise, {kind}",
        texts.sentence(summary),
        tables=texts.tables(summary),
        warnings=texts.warnings(summary),
    )


def run_section(tree: xr.DataTree, summary: xr.Dataset) -> Section:
    """The section of a report for a run; as `section`."""
    summary = summary.assign_attrs({**tree.attrs, **summary.attrs})
    study = str(summary.attrs.get("study", "run"))
    texts: ModuleType = study_words if study in studies.STUDIES else verdict
    methods = [*METHODS, SEVERAL] if summary.sizes.get("variant", 0) > 1 else list(METHODS)
    if not summary.sizes.get("variant", 0):
        methods = [STEADINESS] if "group_mean" in summary else []
    return Section(
        "noise",
        title(summary),
        texts.sentence(summary),
        findings=texts.findings(summary),
        tables=texts.tables(summary),
        figures=figures(tree, summary),
        facts=facts(summary),
        method=methods,
        warnings=texts.warnings(summary),
        runs=runs(summary),
        doubt=verdict.doubt(summary)
        if texts is verdict
        else ""
        if texts.sound(summary)
        else "too few blocks",
    )


def runs(summary: xr.Dataset) -> dict[str, str]:
    """The settings of the run that the command line does not show: name and value."""
    if verdict.is_survey(summary):  # a survey shows all its rooms in one table
        return {}
    attrs = summary.attrs
    settings = {"loop": f"{verdict.loop(summary)}, {int(attrs.get('ranks', 0))} ranks"}
    if "block_s" in attrs:
        measured = int(np.count_nonzero(summary["block_variant"].values >= 0))
        settings["blocks"] = f"{measured} of {format_duration(float(attrs['block_s']))}"
    if summary.sizes.get("variant", 0):
        if float(attrs.get("period_s", 0)):
            settings["period of the agent"] = format_duration(float(attrs["period_s"]))
        places = [str(place) for place in np.atleast_1d(attrs.get("placements", ()))[1:]]
        if places:
            settings["agent on CPU"] = "; ".join(dict.fromkeys(places))
        settings["false alarms allowed"] = format_share(float(attrs.get("alpha", 0.01)))
        settings["slowdown that matters"] = format_share(float(attrs.get("matters", 0.001)))
    return settings


def title(summary: xr.Dataset) -> str:
    """ "node-exporter during alltoall of 1 KiB"."""
    loop = verdict.loop(summary)
    study = str(summary.attrs.get("study", "run"))
    agent = str(summary.attrs.get("agent", "none"))
    if not summary.sizes.get("variant", 0) or agent == "none":
        return f"Clean run of {loop}"
    if study == verdict.SURVEY:
        return f"Sensitivity to noise of {loop}"
    if study in ("sensitivity", "sweep"):  # the source of each variant has its own name
        how = {"sensitivity": "at {} levels", "sweep": "made in {} ways"}[study].format(
            summary.sizes["variant"]
        )
        return f"Noise {how} during {loop}"
    subject = f"Placements of {agent}" if study == "compare" else agent
    return f"{'Noise source' if subject == 'noise source' else subject} during {loop}"


def facts(summary: xr.Dataset) -> list[Fact]:
    """The few numbers behind the verdict."""
    rows = [summary.isel(variant=k) for k in range(summary.sizes.get("variant", 0))]
    alpha = float(summary.attrs.get("alpha", 0.01))
    out = []
    if len(rows) == 1:
        (row,) = rows
        interval = verdict.interval(float(row["slowdown_low"]), float(row["slowdown_high"]))
        out += [
            Fact("slowdown", format_share(float(row["slowdown"])), f"95 %: {interval}"),
            Fact(
                "p-value",
                f"{float(row['p_adjusted']):.2g}",
                f"at most {format_share(alpha)} is significant; adjusted for all interim tests",
            ),
            _detectable(row, summary.attrs),
        ]
        if int(row["detected"]):
            rank = int(row["noisy_rank"])
            detail = verdict.noisy_rank(row).removeprefix(f"rank {rank}, ")
            out.append(Fact("late rank", f"rank {rank}" if rank >= 0 else "no single rank", detail))
    elif rows:
        found = [row for row in rows if int(row["detected"])]
        out.append(Fact("detected", f"{len(found)} of {len(rows)}", "variants"))
        if sensitivity(summary) is not None:
            for name, rule in (("detected", "Sonde's test"), ("source_detected", "disjoint 99 % means")):
                floor = studies.threshold(
                    levels_of(summary).tolist(), summary[name].values.astype(bool).tolist()
                )
                level = "none" if floor is None else study_words.level_text(floor)
                out.append(Fact("lowest level detected", level, f"by {rule}"))
        else:
            least = min(rows, key=lambda row: float(row["slowdown"]))
            out.append(
                Fact("least slowdown", format_share(float(least["slowdown"])), str(least["variant"].values))
            )
        out.append(_detectable(rows[0], summary.attrs))
    iteration = format_duration(float(summary["clean_iteration"]))
    out.append(
        Fact(
            "lost with nothing on",
            format_share(float(summary["clean_lost"])),
            f"of the time, in stalls; an iteration takes {iteration}",
        )
    )
    return out


def _detectable(row: xr.Dataset, attrs: Mapping[str, Any]) -> Fact:
    name, mde = "smallest detectable cost", float(row["mde"])
    if not math.isfinite(mde):
        if verdict.searched(row) < 1:
            return Fact(name, "unknown", "--budget ended the search for it")
        if shared(attrs, float(row["clean_lost"])):
            return Fact(name, "unknown", "other programs worked on the same cores")
        return Fact(name, "none", "no burst up to half a period was detectable")
    each = format_duration(float(row["mde_period"]))
    shorter = "; perhaps smaller: --budget ended the search" if verdict.searched(row) < 1 else ""
    return Fact(name, format_share(mde), f"in bursts every {each}, power 90 %{shorter}")


def figures(tree: xr.DataTree, summary: xr.Dataset) -> list[Figure]:
    """Every figure that the run has the data for, in reading order."""
    raw = tree["raw"].to_dataset() if "raw" in tree.children else None
    drawn = [
        sensitivity(summary),
        variants(summary),
        groups(summary),
        blocks(summary),
        None if raw is None else stalls(raw, summary),
        folded(summary),
        shift(summary, raw),
        late(summary),
        cost(summary),
    ]
    return [figure for figure in drawn if figure is not None]


def _names(summary: xr.Dataset) -> list[str]:
    """The names of all cases; the first is the case without an agent."""
    if str(summary.attrs.get("agent")) == "none":
        return [CLEAN, *["labelled on, nothing on" for _ in summary["case"].values[1:]]]
    return [CLEAN, *(str(name) for name in summary["case"].values[1:])]


def _single(summary: xr.Dataset) -> bool:
    return summary.sizes.get("variant", 0) == 1


def blocks(summary: xr.Dataset) -> Figure | None:
    """The mean iteration of each block over the run."""
    names = _names(summary)
    variant, mean = summary["block_variant"].values, summary["block_mean"].values
    middle = summary["block_begin"].values + summary["block_length"].values / 2
    known = np.isfinite(mean) & np.isfinite(middle) & (variant >= 0)
    if np.count_nonzero(known) < 2:
        return None
    count = len(names)
    x, y = (np.full((2 * count, len(mean)), np.nan) for _ in range(2))
    ends = (middle[known].min(), middle[known].max())
    for k in range(count):
        here = known & (variant == k)
        x[k, here], y[k, here] = middle[here], mean[here]
        if here.any():
            x[count + k, :2], y[count + k, :2] = ends, np.median(mean[here])
    data = xr.Dataset(
        {
            "x": (("series", "point"), x),
            "y": (("series", "point"), y),
            "style": ("series", ["points"] * count + ["dashed"] * count),
            "hue": ("series", [*range(count)] * 2),
            "key": ("series", [""] * count + ["median of these"] * count),
        },
        coords={"series": [*names, *names]},
    )
    found = float(summary["detected_s"].values[0]) if _single(summary) else math.nan
    if math.isfinite(found):
        data = data.assign(mark=("mark", [found]), mark_name=("mark", ["detected"]))
    return Figure(
        "noise-blocks",
        "Iteration over the run, block by block",
        "Each point is the mean iteration of one block. The order of the blocks is random, so a change of the machine "
        "itself moves all colours in the same way. If the distance between the dashed medians is larger than the "
        "spread of the points explains, the agent causes it."
        + (" The detection did not use the blocks after the dotted line." if math.isfinite(found) else ""),
        Kind.SCATTER,
        data,
        {"x": TIME, "y": Axis("mean iteration", "s", log=bool(mean[known].max() > WIDE * mean[known].min()))},
    )


def groups(summary: xr.Dataset) -> Figure | None:
    """The mean of each group of blocks with its interval, for a clean run."""
    if "group_mean" not in summary or summary.sizes["group"] < 2:
        return None
    value, low, high = (summary[name].values[None] for name in ("group_mean", "group_low", "group_high"))
    data = xr.Dataset(
        {
            "x": ("point", np.arange(1, value.size + 1)),
            "y": (("series", "point"), value),
            "low": (("series", "point"), low),
            "high": (("series", "point"), high),
        }
    )
    return Figure(
        "noise-groups",
        "Clean runs, group by group",
        "The mean iteration of each group of blocks with nothing on, with its 99 % interval. No agent ran. If "
        "intervals are disjoint, the machine itself caused the difference, and a rule that takes such a difference "
        "for an agent is wrong here.",
        Kind.SCATTER,
        data,
        {"x": Axis("group"), "y": Axis("mean iteration", "s")},
    )


def stalls(raw: xr.Dataset, summary: xr.Dataset) -> Figure | None:
    """The longest stalls over the run; a stall that several ranks saw counts once."""
    if "stall_block" not in raw:
        return None
    names = _names(summary)
    at, time, length = merged_stalls(raw)
    variant = summary["block_variant"].values[at]
    known = variant >= 0
    if np.count_nonzero(known) < 2:
        return None
    time, length, variant = time[known], length[known], variant[known]
    total = length.size
    least = (
        float(np.partition(length, total - MOST_STALLS)[total - MOST_STALLS]) if total > MOST_STALLS else 0.0
    )
    shown = length >= least
    time, length, variant = time[shown], length[shown], variant[shown]
    most = max(int(np.count_nonzero(variant == k)) for k in range(len(names)))
    x, y = (np.full((len(names), most), np.nan) for _ in range(2))
    for k in range(len(names)):
        here = variant == k
        n = int(np.count_nonzero(here))
        order = np.argsort(time[here])
        x[k, :n], y[k, :n] = time[here][order], length[here][order]
    data = xr.Dataset(
        {"x": (("series", "point"), x), "y": (("series", "point"), y)}, coords={"series": names}
    )
    shaded = ""
    if _single(summary):
        shade = names[1] if summary.attrs.get("agent") == "none" else f"{names[1]} on"
        data = data.assign(band=(("band", "end"), stretches(summary, 1)), band_name=shade)
        shaded = " The background is shaded while it was on."
    once = "; a stall of several ranks is drawn once" if raw.sizes["rank"] > 1 else ""
    thinned = (
        f" Only the {length.size} longest of {total} stalls are drawn, those of {format_duration(least)} or "
        f"more{once}."
        if length.size < total
        else ""
    )
    return Figure(
        "noise-stalls",
        "Stalls over the run",
        "Each point is one iteration that took far longer than usual. If a row of points at one height appears only "
        "in the blocks with the agent, the agent causes it; if it appears in all blocks, the machine does."
        f"{shaded}{thinned}",
        Kind.SCATTER,
        data,
        {"x": TIME, "y": Axis("length of the stall", "s", log=True)},
    )


def merged_stalls(raw: xr.Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The stalls of all ranks as the test uses them: overlapping stalls are one, with the length of the longest.

    Returns
    -------
    block, time, length (stall,): index of the block, begin in s since the run began, s; in order of time.
    """
    ranks = range(raw.sizes["rank"])
    at = [np.asarray(raw["stall_block"].isel(rank=rank).values) for rank in ranks]
    time, length = (
        np.concatenate(
            [np.asarray(raw[name].isel(rank=rank).values, np.float64)[at[rank] >= 0] for rank in ranks]
        )
        for name in ("stall_t", "stall_length")
    )
    block = np.concatenate([mine[mine >= 0] for mine in at])
    known = np.isfinite(time) & (length > 0)
    order = np.flatnonzero(known)[np.argsort(time[known], kind="stable")]
    block, time, length = block[order], time[order], length[order]
    if not time.size:
        return block, time, length
    over = np.maximum.accumulate(time + length)
    first = np.flatnonzero(np.concatenate([[True], (time[1:] >= over[:-1]) | (block[1:] != block[:-1])]))
    return block[first], time[first], np.maximum.reduceat(length, first)


def stretches(summary: xr.Dataset, variant: int) -> np.ndarray:
    """(stretch, 2) s since the run began: begin and end of each series of blocks in which a variant was on."""
    begin, length = summary["block_begin"].values, summary["block_length"].values
    order = np.flatnonzero((summary["block_variant"].values >= 0) & np.isfinite(begin + length))
    on = summary["block_variant"].values[order] == variant
    change = np.flatnonzero(np.diff(on, prepend=False, append=False))
    first, last = order[change[::2]], order[change[1::2] - 1]
    return np.stack([begin[first], begin[last] + length[last]], axis=1)


def folded(summary: xr.Dataset) -> Figure | None:
    """The time of stalls within the period, with and without the agent."""
    count = summary.sizes.get("variant", 0)
    if not count or not np.isfinite(summary["fold_on"].values).any():
        return None
    period = np.array([fold_period(summary.isel(variant=k)) for k in range(count)])
    found = summary["effect_window"].values.astype(bool)
    edges = np.repeat(np.arange(CELLS + 1) / CELLS - 0.5, 2)[1:-1]  # steps, as in a histogram
    x = np.broadcast_to((edges * period[:, None])[:, None, :], (count, 2, edges.size))
    y = 100 * np.repeat(np.stack([summary["fold_off"].values, summary["fold_on"].values], axis=1), 2, axis=2)
    data = xr.Dataset(
        {
            "x": (("variant", "series", "point"), x),
            "y": (("variant", "series", "point"), y),
            "style": ("series", ["line", "line"]),
        },
        coords={"series": [CLEAN, "agent on"], "variant": _names(summary)[1:]},
    )
    threshold = float(summary["fold_threshold"].values[0])
    around = (
        "around its wake-up"
        if found.all()
        else "around its wake-up where one was found, otherwise over a whole period of the run"
    )
    if count == 1:
        data = data.isel(variant=0, drop=True).assign_coords(series=_names(summary))
        cell = float(period[0]) / CELLS
        before, after = (
            CELLS * float(summary[name][0]) if name in summary else cells
            for name, cells in (("window_before", WINDOW_BEFORE), ("window_after", WINDOW_AFTER))
        )
        if found[0]:
            # A window that reaches beyond the figure continues at its other end; only the part that fits is shown.
            ends = [[max(-0.5 * CELLS, -before) * cell, min(0.5 * CELLS, after) * cell]]
            data = data.assign(band=(("band", "end"), ends), band_name="counted as its wake-up")
        else:
            around = "over a whole period of the run"
    return Figure(
        "noise-fold",
        "Stalls over the period",
        f"The share of periods with a stall of {format_duration(threshold)} or longer at each time {around}. One high "
        "step is an agent that works at regular times; two level lines are stalls at random times, which the machine "
        "causes itself.",
        Kind.SCATTER,
        data,
        {"x": Axis("time within the period", "s"), "y": Axis("periods with a stall there", "%")},
        (VARIANT,) if count > 1 else (),
    )


def fold_period(row: xr.Dataset) -> float:
    """The period at which the stalls of a variant were folded, s."""
    if int(row["effect_window"]) and float(row["period"]) > 0:
        return float(row["period"])
    return float(row.attrs.get("period_s", 0) or 1.0)


def shift(summary: xr.Dataset, raw: xr.Dataset | None) -> Figure | None:
    """The ratio of the quantiles of the iteration, on over off, and the same ratio for shuffled labels."""
    count = summary.sizes.get("variant", 0)
    if not count:
        return None
    every = 1
    if raw is None:
        q = np.asarray(QUANTILES)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = summary["quantile_s"].values[1:] / summary["quantile_s"].values[0]
        low = high = np.full(ratio.shape, np.nan)
    else:
        every = int(raw["stamp_every"].values[reader(raw)])
        q = tail_of(raw, summary)
        ratio, low, high = (
            np.stack(part) for part in zip(*(shuffled(raw, summary, k + 1, q) for k in range(count)))
        )
    if not np.isfinite(ratio).any():
        return None
    bounded = bool(np.isfinite(low).any())
    y = np.stack([ratio, low, high] if bounded else [ratio], axis=1)
    null = [f"{SHUFFLED_LEVEL:.0%} of runs with shuffled labels".replace("%", " %", 1)] * 2 if bounded else []
    data = xr.Dataset(
        {
            "x": (("variant", "series", "point"), np.broadcast_to(1 / (1 - q), y.shape)),
            "y": (("variant", "series", "point"), y),
            "style": ("series", ["line", *["dashed" for _ in null]]),
            "hue": ("series", [1, *[4 for _ in null]]),
            "key": ("series", ["", *null]),
            "level": ("level", [1.0]),
        },
        coords={"series": ["agent on over off", *null], "variant": _names(summary)[1:]},
    )
    if count == 1:
        data = data.isel(variant=0, drop=True)
    return Figure(
        "noise-shift",
        "Which iterations got longer",
        "How much longer the typical iteration (left) and rarer, longer iterations (right) take with the agent on. A "
        "step only at the right means a few long interruptions; a shift of the whole line means a shared core, cache "
        "or link."
        + (" Values between the dashed lines may be chance." if bounded else "")
        + (f" Each reading of the clock covers {every} iterations." if every > 1 else ""),
        Kind.SCATTER,
        data,
        {"x": Axis("one iteration in N is longer", log=True), "y": Axis("agent on over off", log=True)},
        (VARIANT,) if count > 1 else (),
    )


def tail_of(raw: xr.Dataset, summary: xr.Dataset) -> np.ndarray:
    """The quantiles to draw: evenly spaced in the logarithm of their rarity.

    The rarest quantile has FEWEST readings beyond it in the case with the fewest readings.
    """
    total = np.asarray(raw["count"].isel(rank=reader(raw)).sum("class").values, np.float64)
    labels = summary["block_variant"].values
    readings = [total[labels == case].sum() for case in range(summary.sizes["case"])]
    rarest = max(100.0, min(readings) / FEWEST)
    rarity = np.geomspace(2, rarest, max(2, round(PER_DECADE * math.log10(rarest / 2))))
    return 1 - 1 / np.concatenate([[1 / 0.9, 1 / 0.75], rarity])


def shuffled(
    raw: xr.Dataset, summary: xr.Dataset, variant: int, q: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The on / off ratios of quantiles, and their range when labels are drawn again in each segment.

    Parameters
    ----------
    q : (quantile,) in [0, 1)

    Returns
    -------
    ratio, low, high (quantile,): low and high are the bounds of the central SHUFFLED_LEVEL of SHUFFLES draws; NaN
    where there are fewer than FEWEST blocks of a kind.
    """
    labels = np.asarray(summary["block_variant"].values)
    chosen = np.flatnonzero((labels == variant) | (labels == 0))
    rank = reader(raw)
    counts = np.asarray(raw["count"].isel(rank=rank).values, np.float64)[chosen]
    edges = np.asarray(raw["class_edge"].values)[rank]
    segment, on = summary["block_segment"].values[chosen], labels[chosen] == variant
    wanted = q.tolist()

    def ratios(drawn: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            found = quantiles(drawn @ counts, edges, wanted) / quantiles(~drawn @ counts, edges, wanted)
        return np.asarray(found)

    ratio = ratios(on)
    if min(np.count_nonzero(on), np.count_nonzero(~on)) < FEWEST:
        return ratio, np.full(q.size, np.nan), np.full(q.size, np.nan)
    random = np.random.default_rng(int(raw.attrs.get("seed", 0)))
    drawn = np.empty((SHUFFLES, chosen.size), bool)
    for row in drawn:
        for one in np.unique(segment):
            row[segment == one] = random.permutation(on[segment == one])
    tail = (1 - SHUFFLED_LEVEL) / 2
    low, high = np.quantile(ratios(drawn), [tail, 1 - tail], axis=0)
    return ratio, low, high


def late(summary: xr.Dataset) -> Figure | None:
    """The share of the agent's stalls in which each rank was late."""
    if "late_share" not in summary or summary.sizes.get("rank", 0) < 2:
        return None
    share = 100 * summary["late_share"].values
    known = np.flatnonzero((summary["late_known"].values > 0) & np.isfinite(share).any(axis=1))
    if not known.size:
        return None
    ranks = np.sort(np.argsort(-np.nanmax(share[known], axis=0), kind="stable")[:MOST_RANKS])
    y = share[np.ix_(known, ranks)].T
    names = _names(summary)[1:]
    data = (
        xr.Dataset({"y": ("bar", y[:, 0])}, coords={"bar": ranks})
        if known.size == 1
        else xr.Dataset(
            {"y": (("bar", "series"), y)}, coords={"bar": ranks, "series": [names[k] for k in known]}
        )
    )
    left = summary.sizes["rank"] - ranks.size
    return Figure(
        "noise-late",
        "Late ranks",
        "In a collective all ranks wait when one is late. Each bar is the share of the agent's stalls in which the "
        "kernel took the core from this rank for most of the stall. One high bar shows the core on which the agent "
        "works." + (f" {left} ranks with lower bars are left out." if left else ""),
        Kind.BAR,
        data,
        {"bar": Axis("Rank"), "y": Axis("late in", "%")},
    )


def cost(summary: xr.Dataset) -> Figure | None:
    """The modelled slowdown by number of nodes."""
    if summary.attrs.get("study") == verdict.SURVEY or "cost" not in summary:
        return None
    values = 100 * summary["cost"].values
    known = [k for k in range(values.shape[0]) if np.isfinite(values[k]).any() and (values[k] > 0).any()]
    if not known:
        return None
    together = 100 * summary["cost_synchronised"].values
    names, nodes = _names(summary)[1:], summary["scale"].values.astype(float)
    y = np.concatenate([values[known], np.repeat(together[known][:, None], nodes.size, axis=1)])
    n = len(known)
    data = xr.Dataset(
        {
            "x": (("series", "point"), np.broadcast_to(nodes, y.shape)),
            "y": (("series", "point"), y),
            "style": ("series", ["line"] * n + ["dashed"] * n),
            "hue": ("series", [k + 1 for k in known] * 2),
            "key": ("series", [""] * n + ["agents of all nodes in step"] * n),
        },
        coords={"series": [names[k] for k in known] * 2},
    )
    grain = format_duration(float(summary.attrs.get("grain_s", 0.001)))
    return Figure(
        "noise-cost",
        "Modelled cost at scale",
        f"A model, not a measurement: an application computes {grain} between two collectives and waits each time for "
        "the slowest node. If agents wake up at independent times, their cost grows with the number of nodes, until "
        "every step meets an agent. If all agents wake up at the same time, they cost the same as on one node.",
        Kind.SCATTER,
        data,
        {"x": Axis("nodes", log=True), "y": Axis("modelled slowdown, %", log=True)},
    )


def variants(summary: xr.Dataset) -> Figure | None:
    """The slowdown of each variant with its interval."""
    if summary.sizes.get("variant", 0) < 2 or sensitivity(summary) is not None:
        return None
    value, low, high = (100 * summary[f"slowdown{end}"].values for end in ("", "_low", "_high"))
    if not np.isfinite(value).any():
        return None
    data = xr.Dataset(
        {"y": ("bar", value), "low": ("bar", low), "high": ("bar", high)},
        coords={"bar": _names(summary)[1:]},
    )
    return Figure(
        "noise-variants",
        "Slowdown of each variant",
        "Slowdown against blocks of the same run with nothing on, with 95 % intervals. Where intervals overlap, this "
        "run does not show which variant costs less. An interval that contains 0 does not prove that there is no cost.",
        Kind.BAR,
        data,
        {"bar": Axis("Variant"), "y": Axis("slowdown", "%")},
    )


def sensitivity(summary: xr.Dataset) -> Figure | None:
    """The measured slowdown over the level of the noise source, and the lowest level that is detected."""
    level = levels_of(summary)
    # In a sweep, two sources together have twice the level of one source. These are not two levels of noise.
    if np.unique(level[level > 0]).size < 2 or summary.attrs.get("study") == "sweep":
        return None
    level = 100 * np.where(level > 0, level, np.nan)
    value, low, high = (100 * summary[f"slowdown{end}"].values for end in ("", "_low", "_high"))
    ours = summary["detected"].values.astype(bool)
    theirs = summary["source_detected"].values.astype(bool)
    groups = {
        "detected": ours & ~theirs,
        "detected, means disjoint": ours & theirs,
        "not detected": ~ours & ~theirs,
        "not detected, but means disjoint": ~ours & theirs,
    }
    groups = {name: here for name, here in groups.items() if here.any()}
    shape = (len(groups) + 1, level.size)
    x, y, foot, head = (np.full(shape, np.nan) for _ in range(4))
    for k, here in enumerate(groups.values()):
        x[k, here], y[k, here], foot[k, here], head[k, here] = level[here], value[here], low[here], high[here]
    x[-1] = y[-1] = level
    hues = {"detected": 2, "detected, means disjoint": 0, "not detected": 1}
    data = xr.Dataset(
        {
            "x": (("series", "point"), x),
            "y": (("series", "point"), y),
            "low": (("series", "point"), foot),
            "high": (("series", "point"), head),
            "style": ("series", ["points"] * len(groups) + ["dashed"]),
            "hue": ("series", [hues.get(name, 3) for name in groups] + [4]),
        },
        coords={"series": [*groups, "slowdown = level"]},
    )
    rules = ((ours, "Sonde"), (theirs, "disjoint means"))
    floors = [(studies.threshold(level.tolist(), found.tolist()), name) for found, name in rules]
    marks = [(at, name) for at, name in floors if at is not None]
    if marks:
        data = data.assign(
            mark=("mark", [at for at, _ in marks]),
            mark_name=("mark", [f"floor, {name}" for _, name in marks]),
        )
    return Figure(
        "noise-sensitivity",
        "Detected levels of noise",
        "Measured slowdown at each level of the noise source, with 95 % intervals. Dotted lines are floors: the lowest "
        "level that is detected together with all higher ones, by Sonde's test and by the rule of disjoint 99 % "
        "intervals of means on the same blocks. Points off the dashed line lose more or less than the share of time "
        "that the source works. An interval without a lower end reaches down to 0 or below.",
        Kind.SCATTER,
        data,
        {"x": Axis("level of the source, %", log=True), "y": Axis("measured slowdown, %", log=True)},
    )


def levels_of(summary: xr.Dataset) -> np.ndarray:
    """(variant,) level of the noise source, a share; NaN for any other agent, or where the run does not state it."""
    if "duty_asked" in summary:
        return np.asarray(summary["duty_asked"].values, float)
    count = summary.sizes.get("variant", 0)
    levels = np.atleast_1d(np.asarray(summary.attrs.get("levels", ()), float))
    return levels[1:] if levels.size == count + 1 else np.full(count, np.nan)
