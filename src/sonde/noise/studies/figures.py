"""The section of a report for a study. Specifications only: nothing is drawn here."""

from __future__ import annotations

import numpy as np
import xarray as xr

from sonde.core.figure import Axis, Figure, Kind
from sonde.core.section import Method, Section
from sonde.noise.detector import figures as run
from sonde.noise.studies import verdict

STEADINESS = Method(
    "Steadiness of clean runs",
    "Whether all groups of blocks have the same level, and at which block the level changes.",
    "Kruskal & Wallis, J. Am. Stat. Assoc. 47, 1952; Pettitt, Applied Statistics 28, 1979",
)


def section(tree: xr.DataTree, dataset: str = "FILE") -> Section:
    """The section of a report for the run of a study; as `detector.figures.section`."""
    summary = run.all_of(tree, dataset)
    grouped = groups(summary)
    return Section(
        "noise",
        run.title(summary),
        verdict.sentence(summary),
        findings=verdict.findings(summary),
        tables=verdict.tables(summary),
        figures=[*([] if grouped is None else [grouped]), *run.figures(tree, summary)],
        facts=run.facts(summary),
        method=methods(summary),
        warnings=verdict.warnings(summary),
        runs=run.runs(summary),
        doubt="" if verdict.sound(summary) else "too few blocks",
    )


def methods(summary: xr.Dataset) -> list[Method]:
    """The methods behind the verdict."""
    if not summary.sizes.get("variant", 0) and "group_mean" in summary:
        return [STEADINESS]
    return run.methods(summary)


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
