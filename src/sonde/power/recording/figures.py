"""Figures of a dataset of power/1, and its section of a report. Only specifications: nothing is drawn here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from sonde.core.figure import Axis, Figure, Kind
from sonde.core.section import Fact, Method, Section
from sonde.core.units import format_duration, format_power
from sonde.power.monitor import verdict as monitor_verdict
from sonde.power.recording import verdict

MOST_NODES = 8  # curves in one figure

METHOD = Method(
    "Whether a budget was held",
    "Between two reports of a node its cap is the earlier or the later one: the sum of caps has a lower and an upper "
    "bound. Only a lower bound above the budget counts as a violation; the time of the upper bound above it is shown.",
)


def section(tree: xr.DataTree, dataset: str = "FILE") -> Section:
    """One dataset's section of a report. Figures that the data cannot fill are left out."""
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
        doubt="" if sound else "too few reports contain caps",
        untold=("kind", "cluster"),
    )


def facts(summary: xr.Dataset) -> list[Fact]:
    """The numbers that a reader looks for first."""
    held, out = verdict.held_of(summary), []
    for name, value in (("largest caps", held.max_sum_caps_w), ("largest power", held.max_power_w)):
        if np.isfinite(value):
            out.append(Fact(name, format_power(value), f"of {format_power(held.budget_w)}"))
    out.append(Fact("violations", str(held.violations), f"in {format_duration(held.seconds)}"))
    if held.failovers:
        out.append(
            Fact("takeover", format_duration(held.failover_s), f"lease {format_duration(held.lease_s)}")
        )
    if np.isfinite(held.energy_j):
        out.append(Fact("energy", monitor_verdict.joules(held.energy_j), f"{held.nodes} nodes"))
    return out


def figures(tree: xr.DataTree) -> list[Figure]:
    """All figures that this dataset can fill, in reading order."""
    summary = tree["summary"].to_dataset().load()
    found: list[Figure | None] = [course(summary), leases(summary)]
    if "raw" in tree.children:
        raw = tree["raw"].to_dataset()
        found += [of_nodes(raw, "cap"), of_nodes(raw, "power"), traffic(raw)]
    found.append(energy(summary))
    return [figure for figure in found if figure is not None]


def _marks(summary: xr.Dataset) -> dict[str, tuple[str, object]]:
    if "takeover_time" not in summary:
        return {}
    names = [f"{after} leads" for after in summary["takeover_after"].values]
    return {"mark": ("mark", summary["takeover_time"].values), "mark_name": ("mark", names)}


def _lines(
    t: np.ndarray, curves: Mapping[str, np.ndarray], styles: Sequence[str], summary: xr.Dataset
) -> xr.Dataset:
    """Curves over a common time axis, each with a name, and the times when managers began to lead."""
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
        "Sums over all nodes. Caps are read back from the hardware; lent is the most that nodes may draw, according to "
        "the manager."
    )
    unknown = _not_known(summary)
    if unknown is not None:
        curves["with unknown nodes"] = unknown
        styles.append("dashed")
        caption += (
            " A manager that has just taken over does not know its nodes' earlier leases. Until it does, it counts "
            "these nodes separately at their highest power, and does not lend that power."
        )
    data = _lines(summary["course_time"].values, curves, styles, summary)
    if verdict.simulated(summary):
        caption += "\nNodes of this run are simulated."
    axes = {"x": Axis("time since the beginning", "s"), "y": Axis("power", "W")}
    return Figure("power-course", "Power and caps against the budget", caption, Kind.SCATTER, data, axes)


def _not_known(summary: xr.Dataset) -> np.ndarray | None:
    """The most that nodes may have drawn while a manager did not know all of them, and otherwise what was lent: a line
    has no gaps.

    None if all nodes were known all the time.
    """
    if "course_unknown" not in summary:
        return None
    most, lent = summary["course_unknown"].values, summary["course_committed"].values
    unknown = most > lent
    return np.where(unknown, most, lent) if unknown.any() else None


def leases(summary: xr.Dataset) -> Figure | None:
    """The number of nodes with a lease: a manager that dies leaves a gap here, not a sum above the budget."""
    if "course_time" not in summary:
        return None
    curves = {"nodes with a lease": summary["course_leased"].values}
    data = _lines(summary["course_time"].values, curves, ("line",), summary)
    caption = (
        "A node whose lease has run out is at its safe cap. "
        "When a manager dies, leases run out until the next one lends."
    )
    axes = {"x": Axis("time since the beginning", "s"), "y": Axis("nodes")}
    return Figure("power-leases", "Leases and who leads", caption, Kind.SCATTER, data, axes)


def of_nodes(raw: xr.Dataset, what: str) -> Figure | None:
    """Power or caps, one curve for each node; of many nodes those with the highest power."""
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
    title = {"cap": "Caps of nodes", "power": "Power of nodes"}[what]
    left = f" The {MOST_NODES} of {len(rows)} nodes with the highest power." if len(rows) > MOST_NODES else ""
    caption = {
        "cap": "Cap read back from each node's hardware.",
        "power": "Power that each node reported.",
    }[what] + left
    axes = {"x": Axis("time since the beginning", "s"), "y": Axis(what, "W")}
    return Figure(f"power-nodes-{what}", title, caption, Kind.SCATTER, data, axes)


def energy(summary: xr.Dataset) -> Figure | None:
    """Energy by job if there are jobs, else by node."""
    of = "job" if "job_name" in summary and np.isfinite(summary["job_energy"].values).any() else "node"
    values, names = summary[f"{of}_energy"].values, [str(name) for name in summary[f"{of}_name"].values]
    rows = [k for k in np.argsort(-np.nan_to_num(values), kind="stable")[:30] if np.isfinite(values[k])]
    if not rows:
        return None
    labels = tuple(names[k] for k in rows)
    data = xr.Dataset({"y": ("bar", values[rows])}, coords={"bar": list(labels)})
    axes = {"bar": Axis(of, labels=labels), "y": Axis("energy", "J")}
    title = "Energy by job" if of == "job" else "Energy by node"
    return Figure("power-energy", title, "Energy of each over the recorded time.", Kind.BAR, data, axes)


def traffic(raw: xr.Dataset) -> Figure | None:
    """Samples per second of each topic."""
    t = np.asarray(raw["traffic_time"].values, float)
    if np.isfinite(t).sum() < 3:
        return None
    rate = np.diff(raw["traffic_samples"].values, axis=1) / np.diff(t)
    names = [str(name).removeprefix("Monitor_report_") for name in raw["topic_name"].values]
    data = xr.Dataset({"y": (("series", "x"), rate)}, coords={"series": names, "x": t[1:]})
    axes = {"x": Axis("time since the beginning", "s"), "y": Axis("samples received", "1/s")}
    return Figure(
        "power-traffic",
        "Telemetry on the bus",
        "Samples that one subscriber of all telemetry receives.",
        Kind.SERIES,
        data,
        axes,
    )
