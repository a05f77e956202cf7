"""A noise dataset's section of a report, and the figures of a run. Specifications only: nothing is drawn here."""

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

MOST_STALLS = 3000  # drawn, the longest of all
MOST_RANKS = 64  # bars
SHUFFLES, SHUFFLED_LEVEL = 200, 0.95
FEWEST = 5  # blocks of each kind, or readings beyond a quantile, below which it means nothing
WIDE = 2  # largest over smallest, from which an axis is logarithmic
PER_DECADE = 6  # quantiles drawn

TIME = Axis("time since the run began", "s")
CLEAN = "nothing on"
VARIANT = Slider("variant", "what was on")

METHODS = (
    Method(
        "Permutation test",
        "Blocks with the agent on are compared with blocks without by stalls folded at a period and by ranks of stalls "
        "and quantiles; the largest of these is held against what it is when the labels are drawn anew, as they were "
        "for the run.",
        "Westfall & Young, Resampling-Based Multiple Testing, 1993; Phipson & Smyth, Stat. Appl. Genet. Mol. Biol. 9, "
        "2010",
    ),
    Method(
        "Looking early",
        "The run looks at itself a few times and may end; each look may spend its share of alpha, and all shares "
        "together are alpha.",
        "Lan & DeMets, Biometrika 70, 1983",
    ),
    Method(
        "Size of the effect",
        "The median of all means of two pairwise differences, on less off. After an early detection it is measured on "
        "fresh blocks, because those that gave it away exaggerate it.",
        "Hodges & Lehmann, Ann. Math. Statist. 34, 1963",
    ),
    Method(
        "What would have been found",
        "Bursts of growing length are put into the run's own blocks with nothing on, and the whole test is done again, "
        "until nine in ten are found.",
    ),
    Method(
        "Cost at scale",
        "A model, not a measurement: a step waits for the slowest of N nodes, each with bursts as seen here at "
        "independent times; the expected largest of N.",
        "Tsafrir, Etsion, Feitelson & Kirkpatrick, ICS 2005; Hoefler, Schneider & Lumsdaine, SC 2010",
    ),
)
SEVERAL = Method(
    "Several variants",
    "Each is tested against nothing; p-values are adjusted for how many there are.",
    "Holm, Scand. J. Statist. 6, 1979",
)

STEADINESS = Method(
    "Steadiness of clean runs",
    "Whether groups of blocks are of one level, and at which block it changes.",
    "Kruskal & Wallis, J. Am. Stat. Assoc. 47, 1952; Pettitt, Applied Statistics 28, 1979",
)


def section(tree: xr.DataTree, dataset: str = "FILE") -> Section:
    """One dataset's part of a report, whatever its kind.

    Parameters
    ----------
    tree : groups /summary and, where it was kept, /raw; opened lazily
    dataset : the file's name, for what to type next

    Returns
    -------
    Section. Figures that the data cannot fill are left out.

    Raises
    ------
    DataError  core.no_summary: only a run can be told of, and nobody has judged this one.
    """
    summary = summary_of(tree, "noise", dataset)
    kind = str(tree.attrs.get("kind", "run"))
    if kind == "run":
        return run_section(tree, summary)
    if find_spec(f"sonde.noise.{kind}_figures") is not None:
        made = import_module(f"sonde.noise.{kind}_figures").section(tree, dataset)
        assert isinstance(made, Section)
        return made
    words = import_module(f"sonde.noise.{kind}")
    return Section(
        "noise",
        f"Noise, {kind}",
        words.sentence(summary),
        tables=words.tables(summary),
        warnings=words.warnings(summary),
    )


def run_section(tree: xr.DataTree, summary: xr.Dataset) -> Section:
    """A run's part of a report; as `section`."""
    summary = summary.assign_attrs({**tree.attrs, **summary.attrs})
    study = str(summary.attrs.get("study", "run"))
    words: ModuleType = study_words if study in studies.STUDIES else verdict
    methods = [*METHODS, SEVERAL] if summary.sizes.get("variant", 0) > 1 else list(METHODS)
    if not summary.sizes.get("variant", 0):
        methods = [STEADINESS] if "group_mean" in summary else []
    return Section(
        "noise",
        title(summary),
        words.sentence(summary),
        findings=words.findings(summary),
        tables=words.tables(summary),
        figures=figures(tree, summary),
        facts=facts(summary),
        method=methods,
        warnings=words.warnings(summary),
        runs=runs(summary),
        doubt=verdict.doubt(summary)
        if words is verdict
        else ""
        if words.sound(summary)
        else "too few blocks",
    )


def runs(summary: xr.Dataset) -> dict[str, str]:
    """What was asked for, beyond the command."""
    if verdict.is_survey(summary):  # whose rooms stand side by side in one table
        return {}
    said = summary.attrs
    made = {"loop": f"{verdict.loop(summary)}, {int(said.get('ranks', 0))} ranks"}
    if "block_s" in said:
        measured = int(np.count_nonzero(summary["block_variant"].values >= 0))
        made["blocks"] = f"{measured} of {format_duration(float(said['block_s']))}"
    if summary.sizes.get("variant", 0):
        if float(said.get("period_s", 0)):
            made["period of the agent"] = format_duration(float(said["period_s"]))
        places = [str(place) for place in np.atleast_1d(said.get("placements", ()))[1:]]
        if places:
            made["agent on CPU"] = "; ".join(dict.fromkeys(places))
        made["false alarms allowed"] = format_share(float(said.get("alpha", 0.01)))
        made["slowdown that matters"] = format_share(float(said.get("matters", 0.001)))
    return made


def title(summary: xr.Dataset) -> str:
    """ "node-exporter beside alltoall of 1 KiB"."""
    loop = verdict.loop(summary)
    study = str(summary.attrs.get("study", "run"))
    agent = str(summary.attrs.get("agent", "none"))
    if not summary.sizes.get("variant", 0) or agent == "none":
        return f"Nothing beside {loop}"
    if study == verdict.SURVEY:
        return f"Sensitivity to noise of {loop}"
    if study in ("sensitivity", "sweep"):  # each variant's source has a name of its own
        how = {"sensitivity": "at {} levels", "sweep": "made in {} ways"}[study].format(
            summary.sizes["variant"]
        )
        return f"Noise {how} beside {loop}"
    what = f"Placements of {agent}" if study == "compare" else agent
    return f"{'Noise source' if what == 'noise source' else what} beside {loop}"


def facts(summary: xr.Dataset) -> list[Fact]:
    """The few numbers that carry the verdict."""
    rows = [summary.isel(variant=k) for k in range(summary.sizes.get("variant", 0))]
    alpha = float(summary.attrs.get("alpha", 0.01))
    out = []
    if len(rows) == 1:
        (row,) = rows
        told = verdict.interval(float(row["slowdown_low"]), float(row["slowdown_high"]))
        out += [
            Fact("slowdown", format_share(float(row["slowdown"])), f"95 %: {told}"),
            Fact(
                "p-value",
                f"{float(row['p_adjusted']):.2g}",
                f"{format_share(alpha)} is allowed; all looks paid for",
            ),
            _would_find(row, summary.attrs),
        ]
        if int(row["detected"]):
            rank = int(row["noisy_rank"])
            known = verdict.noisy_rank(row).removeprefix(f"rank {rank}, ")
            out.append(Fact("who was late", f"rank {rank}" if rank >= 0 else "no single rank", known))
    elif rows:
        found = [row for row in rows if int(row["detected"])]
        out.append(Fact("found", f"{len(found)} of {len(rows)}", "variants"))
        if sensitivity(summary) is not None:
            for name, rule in (("detected", "Sonde's test"), ("source_detected", "disjoint 99 % means")):
                floor = studies.threshold(
                    levels_of(summary).tolist(), summary[name].values.astype(bool).tolist()
                )
                told = "none" if floor is None else study_words.level_text(floor)
                out.append(Fact("lowest level found", told, f"by {rule}"))
        else:
            least = min(rows, key=lambda row: float(row["slowdown"]))
            out.append(
                Fact("least slowdown", format_share(float(least["slowdown"])), str(least["variant"].values))
            )
        out.append(_would_find(rows[0], summary.attrs))
    iteration = format_duration(float(summary["clean_iteration"]))
    out.append(
        Fact(
            "lost with nothing on",
            format_share(float(summary["clean_lost"])),
            f"of the time, in stalls; an iteration takes {iteration}",
        )
    )
    return out


def _would_find(row: xr.Dataset, attrs: Mapping[str, Any]) -> Fact:
    mde = float(row["mde"])
    if not math.isfinite(mde):
        if verdict.searched(row) < 1:
            return Fact("would have found", "not known", "--budget was over before it was")
        if shared(attrs, float(row["clean_lost"])):
            return Fact("would have found", "not known", "other programs worked on the same cores")
        return Fact("would have found", "nothing", "no burst up to half a period")
    each = format_duration(float(row["mde_period"]))
    shorter = "; perhaps shorter ones: --budget was over" if verdict.searched(row) < 1 else ""
    return Fact("would have found", format_share(mde), f"in bursts each {each}, power 90 %{shorter}")


def figures(tree: xr.DataTree, summary: xr.Dataset) -> list[Figure]:
    """Every figure the run has the data for, in reading order."""
    raw = tree["raw"].to_dataset() if "raw" in tree.children else None
    made = [
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
    return [figure for figure in made if figure is not None]


def _names(summary: xr.Dataset) -> list[str]:
    """Of all cases, the first without an agent."""
    if str(summary.attrs.get("agent")) == "none":
        return [CLEAN, *["on in name only" for _ in summary["case"].values[1:]]]
    return [CLEAN, *(str(name) for name in summary["case"].values[1:])]


def _single(summary: xr.Dataset) -> bool:
    return summary.sizes.get("variant", 0) == 1


def blocks(summary: xr.Dataset) -> Figure | None:
    """Mean iteration of each block over the run."""
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
        data = data.assign(mark=("mark", [found]), mark_name=("mark", ["found"]))
    return Figure(
        "noise-blocks",
        "Iteration over the run, block by block",
        "Each point is the mean iteration of one block. What was on in a block was drawn by lot, so that a machine "
        "that changes by itself moves all colours alike; a distance between the dashed medians that the spread of the "
        "points does not explain is the agent's."
        + (" Blocks after the dotted line had no part in finding it." if math.isfinite(found) else ""),
        Kind.SCATTER,
        data,
        {"x": TIME, "y": Axis("mean iteration", "s", log=bool(mean[known].max() > WIDE * mean[known].min()))},
    )


def groups(summary: xr.Dataset) -> Figure | None:
    """Of a clean run: the mean of each group of blocks with its interval."""
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
        "The mean iteration of each group of blocks with nothing on, with its 99 % interval. Groups whose intervals "
        "are disjoint differ by themselves: no agent was there, and a rule that calls such a distance an agent would "
        "be wrong here.",
        Kind.SCATTER,
        data,
        {"x": Axis("group"), "y": Axis("mean iteration", "s")},
    )


def stalls(raw: xr.Dataset, summary: xr.Dataset) -> Figure | None:
    """The longest stalls over the run, those that several ranks saw once."""
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
        shaded = " The ground is shaded where it was on."
    once = ", each once however many ranks it held up" if raw.sizes["rank"] > 1 else ""
    thinned = (
        f" Of {total} stalls the {length.size} longest are drawn, from {format_duration(least)} on{once}."
        if length.size < total
        else ""
    )
    return Figure(
        "noise-stalls",
        "Stalls over the run",
        "Each point is one iteration that took far longer than usual. A row of points at one height that is there "
        f"only in some blocks is the agent at work; what is there in all of them is the machine.{shaded}{thinned}",
        Kind.SCATTER,
        data,
        {"x": TIME, "y": Axis("length of the stall", "s", log=True)},
    )


def merged_stalls(raw: xr.Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stalls of all ranks as the test takes them: those that overlap are one, as long as the longest of them.

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
    """(stretch, 2) s since the run began: from when to when a variant was on in one block after the other."""
    begin, length = summary["block_begin"].values, summary["block_length"].values
    order = np.flatnonzero((summary["block_variant"].values >= 0) & np.isfinite(begin + length))
    on = summary["block_variant"].values[order] == variant
    change = np.flatnonzero(np.diff(on, prepend=False, append=False))
    first, last = order[change[::2]], order[change[1::2] - 1]
    return np.stack([begin[first], begin[last] + length[last]], axis=1)


def folded(summary: xr.Dataset) -> Figure | None:
    """Where in the period stalls fall, with and without the agent."""
    count = summary.sizes.get("variant", 0)
    if not count or not np.isfinite(summary["fold_on"].values).any():
        return None
    period = np.array([fold_period(summary.isel(variant=k)) for k in range(count)])
    found = summary["effect_window"].values.astype(bool)
    edges = np.repeat(np.arange(CELLS + 1) / CELLS - 0.5, 2)[1:-1]  # steps, as a histogram has them
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
    at = (
        "its wake-up"
        if found.all()
        else "its wake-up, where one was found, else a whole period of the run's time"
    )
    if count == 1:
        data = data.isel(variant=0, drop=True).assign_coords(series=_names(summary))
        cell = float(period[0]) / CELLS
        before, after = (
            CELLS * float(summary[name][0]) if name in summary else cells
            for name, cells in (("window_before", WINDOW_BEFORE), ("window_after", WINDOW_AFTER))
        )
        if found[0]:
            # A window beyond the figure's end goes on at its begin; the figure shows what fits.
            ends = [[max(-0.5 * CELLS, -before) * cell, min(0.5 * CELLS, after) * cell]]
            data = data.assign(band=(("band", "end"), ends), band_name="counted as its wake-up")
        else:
            at = "a whole period of the run's time"
    return Figure(
        "noise-fold",
        "Stalls over the period",
        f"In which share of periods a stall of {format_duration(threshold)} or longer fell at that time from {at}. "
        "One high step is an agent that keeps time; two level lines are stalls that come at any time, the "
        "machine's own.",
        Kind.SCATTER,
        data,
        {"x": Axis("time within the period", "s"), "y": Axis("periods with a stall there", "%")},
        (VARIANT,) if count > 1 else (),
    )


def fold_period(row: xr.Dataset) -> float:
    """At which period the fold of a variant was made, s."""
    if int(row["effect_window"]) and float(row["period"]) > 0:
        return float(row["period"])
    return float(row.attrs.get("period_s", 0) or 1.0)


def shift(summary: xr.Dataset, raw: xr.Dataset | None) -> Figure | None:
    """Quantiles of the iteration, on over off, beside what shuffled labels give."""
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
    told = bool(np.isfinite(low).any())
    y = np.stack([ratio, low, high] if told else [ratio], axis=1)
    null = [f"{SHUFFLED_LEVEL:.0%} of runs with shuffled labels".replace("%", " %", 1)] * 2 if told else []
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
        "How much longer the typical iteration (left) and ever rarer ones (right) take with the agent on. A step at "
        "the right alone is a few long interruptions; a shift of the whole line is a shared core, cache or link."
        + (" Between the dashed lines it may be chance." if told else "")
        + (f" One reading of the clock is of {every} iterations." if every > 1 else ""),
        Kind.SCATTER,
        data,
        {"x": Axis("one iteration in so many is longer", log=True), "y": Axis("agent on over off", log=True)},
        (VARIANT,) if count > 1 else (),
    )


def tail_of(raw: xr.Dataset, summary: xr.Dataset) -> np.ndarray:
    """Quantiles, evenly spread over how rare what lies beyond is: down to FEWEST readings of the case with fewest."""
    total = np.asarray(raw["count"].isel(rank=reader(raw)).sum("class").values, np.float64)
    labels = summary["block_variant"].values
    held = [total[labels == case].sum() for case in range(summary.sizes["case"])]
    rarest = max(100.0, min(held) / FEWEST)
    rarity = np.geomspace(2, rarest, max(2, round(PER_DECADE * math.log10(rarest / 2))))
    return 1 - 1 / np.concatenate([[1 / 0.9, 1 / 0.75], rarity])


def shuffled(
    raw: xr.Dataset, summary: xr.Dataset, variant: int, q: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """On / off ratios of quantiles, and how far they go when labels are drawn anew in each segment.

    Parameters
    ----------
    q : (quantile,) in [0, 1)

    Returns
    -------
    ratio, low, high (quantile,): low and high bound the central SHUFFLED_LEVEL of SHUFFLES draws; NaN where there
    are fewer than FEWEST blocks of a kind.
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
    """Which rank was late in the agent's stalls."""
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
        "Who was late",
        "In a collective all ranks wait when one is late. Of the agent's stalls, the share in which the kernel kept a "
        "rank from its core for most of the stall. One high bar names the core that the agent works on."
        + (f" {left} ranks with lower bars are left out." if left else ""),
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
            "key": ("series", [""] * n + ["all nodes' agents in step"] * n),
        },
        coords={"series": [names[k] for k in known] * 2},
    )
    grain = format_duration(float(summary.attrs.get("grain_s", 0.001)))
    return Figure(
        "noise-cost",
        "Modelled cost at scale",
        f"A model, not a measurement: an application that computes {grain} between two collectives and waits each time "
        "for the slowest node. Agents that wake up at independent times cost the more the more nodes there are, until "
        "every step meets one; agents in step cost what they cost on one node.",
        Kind.SCATTER,
        data,
        {"x": Axis("nodes", log=True), "y": Axis("modelled slowdown, %", log=True)},
    )


def variants(summary: xr.Dataset) -> Figure | None:
    """Slowdown of each variant with its interval."""
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
        "Against blocks of the same run with nothing on, with 95 % intervals. Where intervals overlap, this run does "
        "not tell which costs less; an interval that holds 0 is not a proof of no cost.",
        Kind.BAR,
        data,
        {"bar": Axis("Variant"), "y": Axis("slowdown", "%")},
    )


def sensitivity(summary: xr.Dataset) -> Figure | None:
    """Level of the noise source against the slowdown measured, and from where on it is found."""
    level = levels_of(summary)
    # A sweep's two sources together have twice the level of one, and are no lower or higher noise.
    if np.unique(level[level > 0]).size < 2 or summary.attrs.get("study") == "sweep":
        return None
    level = 100 * np.where(level > 0, level, np.nan)
    value, low, high = (100 * summary[f"slowdown{end}"].values for end in ("", "_low", "_high"))
    ours = summary["detected"].values.astype(bool)
    theirs = summary["source_detected"].values.astype(bool)
    groups = {
        "found": ours & ~theirs,
        "found, and its means are disjoint": ours & theirs,
        "not found": ~ours & ~theirs,
        "not found, but its means are disjoint": ~ours & theirs,
    }
    groups = {name: here for name, here in groups.items() if here.any()}
    shape = (len(groups) + 1, level.size)
    x, y, foot, head = (np.full(shape, np.nan) for _ in range(4))
    for k, here in enumerate(groups.values()):
        x[k, here], y[k, here], foot[k, here], head[k, here] = level[here], value[here], low[here], high[here]
    x[-1] = y[-1] = level
    hues = {"found": 2, "found, and its means are disjoint": 0, "not found": 1}
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
        "What level of noise is found",
        "Slowdown measured at each level of the noise source, with 95 % intervals. Dotted lines are floors: the lowest "
        "level from which on all are found, by Sonde's test and by the rule of disjoint 99 % intervals of means on the "
        "same blocks. Points off the dashed line lose more, or less, than the share of time that the source works. An "
        "interval without a lower end reaches down to 0 or below.",
        Kind.SCATTER,
        data,
        {"x": Axis("level of the source, %", log=True), "y": Axis("slowdown measured, %", log=True)},
    )


def levels_of(summary: xr.Dataset) -> np.ndarray:
    """(variant,) level of the noise source, a share; NaN of anything else, or where the run does not say."""
    if "duty_asked" in summary:
        return np.asarray(summary["duty_asked"].values, float)
    count = summary.sizes.get("variant", 0)
    told = np.atleast_1d(np.asarray(summary.attrs.get("levels", ()), float))
    return told[1:] if told.size == count + 1 else np.full(count, np.nan)
