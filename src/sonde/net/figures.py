"""The figures of one dataset of delays, and its section of a report. Specifications only: nothing is drawn
here.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from sonde.core.figure import Axis, Figure, Kind, Slider
from sonde.core.section import Fact, Method, Section
from sonde.core.units import format_duration
from sonde.net import verdict
from sonde.net.pairs import centre
from sonde.net.schema import STATUS_NAMES

CELL = ("src", "dst", "size")
SIZE = Slider("size", "message size", "B")
ROW, COLUMN = Axis("sender"), Axis("receiver")


def section(tree: xr.DataTree, dataset: str = "FILE") -> Section:
    """One dataset's part of a report.

    Parameters
    ----------
    tree : groups /summary and, where delays were kept, /raw; opened lazily
    dataset : the file's name, for what to type next

    Returns
    -------
    Section. Figures that the data cannot fill are left out.
    """
    summary = summary_of(tree)
    cells = centre(summary)
    there = cells[np.isfinite(cells)]
    facts = []
    if there.size:
        facts += [
            Fact("median delay", format_duration(float(np.median(there))), f"over {there.size} cells"),
            Fact(
                "fastest, slowest",
                f"{format_duration(float(there.min()))}, {format_duration(float(there.max()))}",
            ),
        ]
    return Section(
        "net",
        f"Latency, {tree.attrs.get('mode') or summary.attrs.get('mode') or 'mode not known'}",
        verdict.sentence(summary, dataset),
        findings=verdict.findings(summary, dataset),
        tables=verdict.tables(summary),
        figures=list(figures(tree)),
        facts=facts,
        method=list(METHODS),
        warnings=verdict.warnings(summary),
    )


def figures(tree: xr.DataTree) -> tuple[Figure, ...]:
    """Every figure the dataset has the data for, in reading order."""
    summary = summary_of(tree)
    made = [
        median_matrix(summary),
        ratio_matrix(summary),
        dendrogram(summary),
        status_matrix(summary),
    ]
    return tuple(figure for figure in made if figure is not None)


def summary_of(tree: xr.DataTree) -> xr.Dataset:
    """/summary with root attributes, completed where it comes from another tool and holds statistics only."""
    from sonde.net.analyse import structure

    summary = tree["summary"].to_dataset() if "summary" in tree.children else xr.Dataset()
    summary = summary.assign_attrs({**tree.attrs, **summary.attrs})
    return summary if "class_links" in summary else structure(summary)


METHODS = (
    Method(
        "Median and its interval",
        "The 95 % interval of a median rests on what differs between epochs, not on samples of one burst.",
        "Hettmansperger & Sheather, Statistics & Probability Letters 4, 1986",
    ),
    Method(
        "Slow links",
        "A link is slow when neither its class nor its ranks explain its delay; 5 % of those named may be false.",
        "Benjamini & Hochberg, J. R. Statist. Soc. B 57, 1995; Tukey, Exploratory Data Analysis, 1977",
    ),
    Method(
        "Classes of links",
        "Average linkage over log latencies of all sizes; cut only where a true valley parts two groups.",
        "scipy.cluster.hierarchy; Hubert & Arabie, Journal of Classification 2, 1985",
    ),
)


def _matrix(summary: xr.Dataset, name: str, values: np.ndarray, units: str, long_name: str) -> xr.Dataset:
    data = xr.Dataset(
        {"value": (("row", "col", "size"), values, {"units": units, "long_name": long_name})},
        coords={
            "row": summary["src"].values,
            "col": summary["dst"].values,
            "size": ("size", summary["size"].values, {"units": "B", "long_name": "message size"}),
        },
    )
    if "host" in summary:
        host = summary["host"].values.astype(str)
        data["sender_host"] = ("row", host, {"long_name": "host of the sender"})
        data["receiver_host"] = ("col", host, {"long_name": "host of the receiver"})
    return data


def median_matrix(summary: xr.Dataset) -> Figure | None:
    """Median delay of every pair, by size."""
    values = centre(summary)
    if not np.isfinite(values).any():
        return None
    data = _matrix(summary, "median", values, "s", "median delay")
    return Figure(
        "net-median",
        "Median delay between ranks",
        "Each cell is one pair. Blocks along the diagonal are ranks that sit close together; a stripe is a "
        "slow rank, a lone cell a slow link.",
        Kind.MATRIX,
        data,
        {"row": ROW, "col": COLUMN, "value": Axis("median delay", "s", log=True)},
        (SIZE,),
    )


def ratio_matrix(summary: xr.Dataset) -> Figure | None:
    """What ranks and classes do not explain."""
    if "ratio" not in summary or not np.isfinite(summary["ratio"].values).any():
        return None
    data = _matrix(summary, "ratio", summary["ratio"].values, "1", "measured over expected")
    return Figure(
        "net-ratio",
        "Delay over what class and ranks explain",
        "1 is as expected. What stands out here is a link that is slow by itself, not for where it leads.",
        Kind.MATRIX,
        data,
        {"row": ROW, "col": COLUMN, "value": Axis("measured over expected")},
        (SIZE,),
    )


def dendrogram(summary: xr.Dataset) -> Figure | None:
    """The tree of links."""
    if summary.sizes.get("merge", 0) < 1:
        return None
    data = xr.Dataset(
        {
            "merge": (("link", "part"), summary["merge_tree"].values),
            "leaf": ("leaf", summary["leaf_name"].values.astype(str)),
        }
    )
    return Figure(
        "net-tree",
        "Which links behave alike",
        "Links that join low are alike at all sizes; the height is the log of the ratio between them.",
        Kind.DENDROGRAM,
        data,
        {"leaf": Axis("link"), "height": Axis("distance (log ratio)")},
    )


def status_matrix(summary: xr.Dataset) -> Figure | None:
    """How measuring each cell ended."""
    if "status" not in summary:
        return None
    values = summary["status"].transpose(*CELL).values.astype(int)
    data = _matrix(summary, "status", values, "1", "how measuring ended")
    return Figure(
        "net-status",
        "How measuring each cell ended",
        "Converged cells are known as well as was asked for; others hit a cap, drifted, or ran out of time.",
        Kind.STATUS,
        data,
        {
            "row": ROW,
            "col": COLUMN,
            "value": Axis("status", labels=tuple(s.replace("_", " ") for s in STATUS_NAMES)),
        },
        (SIZE,),
    )
