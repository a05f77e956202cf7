"""Figures of a dataset of power/1, and its section of a report. Specifications only: nothing is drawn here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from sonde.core.figure import Axis, Figure, Kind
from sonde.core.section import Fact, Method, Section
from sonde.core.units import format_duration, format_power
from sonde.power.monitor import verdict as monitor_verdict
from sonde.power.recording import verdict

MOST_NODES = 8  # curves of one figure

METHOD = Method(
    "Whether a budget was held",
    "Between two reports of a node its cap is one or the other: the sum of caps has a lower and an upper bound, and "
    "only the lower one above the budget counts as a violation; how long only the upper one was above is told, too.",
)


def section(tree: xr.DataTree, dataset: str = "FILE") -> Section:
    """One dataset's part of a report. Figures that the data cannot fill are left out."""
    summary = tree["summary"].to_dataset().load()
    title = "Power under a budget" + (" (simulated nodes)" if verdict.simulated(summary) else "")
    sound = verdict.sound(summary)
    return Section(
        "power",
        title,
        verdict.sentence(summary),
        findings=verdict.findings(summary, dataset),
        facts=facts(summary),
        tables=[monitor_verdict.table(verdict.held_of(summary))],
        numbers=verdict.tables(summary)[1:],
        figures=figures(tree),
        method=[METHOD],
        doubt="" if sound else "too few reports tell of caps",
        untold=("kind", "cluster"),
    )


def facts(summary: xr.Dataset) -> list[Fact]:
    """The numbers a reader looks for first."""
    told, out = verdict.held_of(summary), []
    for name, value in (("caps, at most", told.max_sum_caps_w), ("power, at most", told.max_power_w)):
        if np.isfinite(value):
            out.append(Fact(name, format_power(value), f"of {format_power(told.budget_w)}"))
    out.append(Fact("violations", str(told.violations), f"in {format_duration(told.seconds)}"))
    if told.failovers:
        out.append(
            Fact("takeover", format_duration(told.failover_s), f"lease {format_duration(told.lease_s)}")
        )
    if np.isfinite(told.energy_j):
        out.append(Fact("energy", monitor_verdict.joules(told.energy_j), f"{told.nodes} nodes"))
    return out


def figures(tree: xr.DataTree) -> list[Figure]:
    """All figures that this dataset can fill, in reading order."""
    summary = tree["summary"].to_dataset().load()
    made: list[Figure | None] = [course(summary), leases(summary)]
    if "raw" in tree.children:
        raw = tree["raw"].to_dataset()
        made += [of_nodes(raw, "cap"), of_nodes(raw, "power"), traffic(raw)]
    made.append(energy(summary))
    return [figure for figure in made if figure is not None]


def _marks(summary: xr.Dataset) -> dict[str, tuple[str, object]]:
    if "takeover_time" not in summary:
        return {}
    names = [f"{after} leads" for after in summary["takeover_after"].values]
    return {"mark": ("mark", summary["takeover_time"].values), "mark_name": ("mark", names)}


def _lines(
    t: np.ndarray, curves: Mapping[str, np.ndarray], styles: Sequence[str], summary: xr.Dataset
) -> xr.Dataset:
    """Curves over one time, each named, and who began to lead when."""
    return xr.Dataset(
        {
            "x": (("series", "point"), np.tile(t, (len(curves), 1))),
            "y": (("series", "point"), np.stack(list(curves.values()))),
            "style": ("series", list(styles)),
            **_marks(summary),
        },
        coords={"series": list(curves)},
    )


def course(summary: xr.Dataset) -> Figure | None:
    """Sums of power and caps against the budget."""
    if "course_time" not in summary:
        return None
    curves = {
        "power drawn": summary["course_power"].values,
        "caps": summary["course_caps"].values,
        "lent at most": summary["course_committed"].values,
        "budget": summary["course_budget"].values,
    }
    styles = ["line", "steps", "dashed", "dashed"]
    caption = (
        "Sums over all nodes. Caps are what hardware was read back to have; lent is what nodes may be at, at most, by "
        "the manager's word."
    )
    unknown = _not_known(summary)
    if unknown is not None:
        curves["with nodes not known yet"] = unknown
        styles.append("dashed")
        caption += (
            " A manager that has just taken over does not know what its nodes were lent before: until it does, "
            "it counts them at their most, apart, and lends nothing of that."
        )
    data = _lines(summary["course_time"].values, curves, styles, summary)
    if verdict.simulated(summary):
        caption += "\nNodes of this run are simulated."
    axes = {"x": Axis("time since the begin", "s"), "y": Axis("power", "W")}
    return Figure("power-course", "Power and caps against the budget", caption, Kind.SCATTER, data, axes)


def _not_known(summary: xr.Dataset) -> np.ndarray | None:
    """What nodes may have been at while a manager did not know all of them, and else what was lent: a line has no gaps.

    None where all were known all the time.
    """
    if "course_unknown" not in summary:
        return None
    most, lent = summary["course_unknown"].values, summary["course_committed"].values
    there = most > lent
    return np.where(there, most, lent) if there.any() else None


def leases(summary: xr.Dataset) -> Figure | None:
    """How many nodes held a lease: a manager that dies leaves a gap here, not above the budget."""
    if "course_time" not in summary:
        return None
    curves = {"nodes with a lease": summary["course_leased"].values}
    data = _lines(summary["course_time"].values, curves, ("line",), summary)
    caption = (
        "A node whose lease has run out is at its safe cap. "
        "Where a manager dies leases run out, until the next one lends."
    )
    axes = {"x": Axis("time since the begin", "s"), "y": Axis("nodes")}
    return Figure("power-leases", "Leases and who leads", caption, Kind.SCATTER, data, axes)


def of_nodes(raw: xr.Dataset, what: str) -> Figure | None:
    """Power or caps, a curve a node; of many nodes those that drew most."""
    t, y = raw["node_time"].values, raw[f"node_{what}"].values
    rows = [k for k in range(len(t)) if np.isfinite(y[k]).any()]
    if not rows:
        return None
    mean = [
        float(np.nanmean(raw["node_power"].values[k]))
        if np.isfinite(raw["node_power"].values[k]).any()
        else 0.0
        for k in rows
    ]
    chosen = sorted(row for _, row in sorted(zip(mean, rows), reverse=True)[:MOST_NODES])
    names = [str(raw["node_name"].values[k]) for k in chosen]
    data = xr.Dataset(
        {
            "x": (("series", "point"), t[chosen]),
            "y": (("series", "point"), y[chosen]),
            "style": ("series", ["line" if what == "power" else "steps"] * len(chosen)),
        },
        coords={"series": names},
    )
    word = {"cap": "Caps of nodes", "power": "Power of nodes"}[what]
    left = f" The {MOST_NODES} that drew most of {len(rows)}." if len(rows) > MOST_NODES else ""
    caption = {
        "cap": "What each node's hardware was read back to have.",
        "power": "What each node drew, as it reported.",
    }[what] + left
    axes = {"x": Axis("time since the begin", "s"), "y": Axis(what, "W")}
    return Figure(f"power-nodes-{what}", word, caption, Kind.SCATTER, data, axes)


def energy(summary: xr.Dataset) -> Figure | None:
    """Energy by job where there are jobs, else by node."""
    of = "job" if "job_name" in summary and np.isfinite(summary["job_energy"].values).any() else "node"
    values, names = summary[f"{of}_energy"].values, [str(name) for name in summary[f"{of}_name"].values]
    rows = [k for k in np.argsort(-np.nan_to_num(values), kind="stable")[:30] if np.isfinite(values[k])]
    if not rows:
        return None
    labels = tuple(names[k] for k in rows)
    data = xr.Dataset({"y": ("bar", values[rows])}, coords={"bar": list(labels)})
    axes = {"bar": Axis(of, labels=labels), "y": Axis("energy", "J")}
    title = "Energy by job" if of == "job" else "Energy by node"
    return Figure(
        "power-energy", title, "What each came to in the time that was recorded.", Kind.BAR, data, axes
    )


def traffic(raw: xr.Dataset) -> Figure | None:
    """Samples a second of each topic."""
    t = np.asarray(raw["traffic_time"].values, float)
    if np.isfinite(t).sum() < 3:
        return None
    rate = np.diff(raw["traffic_samples"].values, axis=1) / np.diff(t)
    names = [str(name).removeprefix("Monitor_report_") for name in raw["topic_name"].values]
    data = xr.Dataset({"y": (("series", "x"), rate)}, coords={"series": names, "x": t[1:]})
    axes = {"x": Axis("time since the begin", "s"), "y": Axis("samples received", "1/s")}
    return Figure(
        "power-traffic",
        "Telemetry on the bus",
        "What one subscriber of all telemetry receives.",
        Kind.SERIES,
        data,
        axes,
    )
