"""The section of a report for a run. Specifications only: nothing is drawn here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from sonde.core.dataset import summary_of
from sonde.core.figure import Figure
from sonde.core.section import Fact, Method, Section
from sonde.core.units import format_duration, format_share
from sonde.noise.detector import verdict
from sonde.noise.detector.detectable import shared
from sonde.noise.detector.figures_of_effect import cost, late, sensitivity, shift, variants
from sonde.noise.detector.figures_over_time import blocks, folded, stalls
from sonde.noise.detector.levels import levels_of, threshold
from sonde.noise.detector.plan import level_text

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


def section(tree: xr.DataTree, dataset: str = "FILE") -> Section:
    """The section of a report for a run that is no study.

    Parameters
    ----------
    tree : groups /summary and, where it is stored, /raw; opened lazily
    dataset : the file's name, for the hints

    Returns
    -------
    Section. Figures that the data cannot fill are left out.

    Raises
    ------
    DataError  core.no_summary.
    """
    summary = all_of(tree, dataset)
    return Section(
        "noise",
        title(summary),
        verdict.sentence(summary),
        findings=verdict.findings(summary),
        tables=verdict.tables(summary),
        figures=figures(tree, summary),
        facts=facts(summary),
        method=methods(summary),
        warnings=verdict.warnings(summary),
        runs=runs(summary),
        doubt=verdict.doubt(summary),
    )


def all_of(tree: xr.DataTree, dataset: str) -> xr.Dataset:
    """/summary of a run, with the root attributes besides its own. It raises the errors of `summary_of`."""
    summary = summary_of(tree, "noise", dataset)
    return summary.assign_attrs({**tree.attrs, **summary.attrs})


def methods(summary: xr.Dataset) -> list[Method]:
    """The methods behind the verdict; none for a clean run."""
    variants = summary.sizes.get("variant", 0)
    return [*METHODS, SEVERAL] if variants > 1 else list(METHODS) if variants else []


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
                floor = threshold(levels_of(summary).tolist(), summary[name].values.astype(bool).tolist())
                level = "none" if floor is None else level_text(floor)
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
        blocks(summary),
        None if raw is None else stalls(raw, summary),
        folded(summary),
        shift(summary, raw),
        late(summary),
        cost(summary),
    ]
    return [figure for figure in drawn if figure is not None]
