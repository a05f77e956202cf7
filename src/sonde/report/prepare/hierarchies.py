"""DENDROGRAM as a Tree of branches, ICICLE as an Icicle of nodes."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sonde.core.figure import Figure
from sonde.report import scale
from sonde.report.prepare import limits
from sonde.report.prepare.frames import at_frame
from sonde.report.prepare.quantities import Extra, Quantity, axis_of, extra_of, quantity_of
from sonde.report.prepare.requirements import check

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Tree:
    height: Quantity
    frames: list[
        tuple[list[str], list[tuple[np.ndarray, np.ndarray, int]]]
    ]  # leaf names; (along, height, class)
    threshold: float | None
    notes: list[str]


@dataclass(frozen=True)
class Icicle:
    """Nodes, each parent before its children. extras: one (nodes,) array per frame each."""

    value: Quantity
    labels: list[str]
    parents: list[int]  # -1: the root, node 0
    hues: list[int]  # -1: no colour
    hue_names: tuple[str, ...]
    frames: list[np.ndarray]  # (nodes,) in the shown unit
    extras: list[Extra]
    notes: list[str]

    @property
    def depth(self) -> int:
        """The number of levels, including the root."""
        return max(self.levels) + 1

    @property
    def levels(self) -> list[int]:
        """The level of each node: the number of its ancestors."""
        levels: list[int] = []
        for parent in self.parents:
            levels.append(0 if parent < 0 else levels[parent] + 1)
        return levels

    def own(self, frame: int) -> np.ndarray:
        """The part of each node's value that is in none of its children, in the shown unit."""
        own = self.frames[frame].copy()
        np.subtract.at(own, self.parents[1:], self.frames[frame][1:])
        return np.maximum(own, 0)


def dendrogram(figure: Figure) -> Tree:
    """DENDROGRAM as branches (along, height, class); beyond limits.LEAVES leaves only the upper links.

    class: 0 above the threshold, else one more than the hue of its leaves, or 1 to 9 by branch, then 1 again.
    """
    from scipy.cluster import hierarchy

    check(figure)
    axis = axis_of(figure, "height")
    first = next(at_frame(figure))
    height = quantity_of(axis, first["merge"].values[..., 2])
    limit = float(first["threshold"]) if "threshold" in first.variables else None
    frames: list[tuple[list[str], list[tuple[np.ndarray, np.ndarray, int]]]] = []
    notes: list[str] = []
    for f in at_frame(figure):
        links = np.asarray(f["merge"].values, float)
        if links.shape[0] == 0:
            frames.append(([_leaf(f, 0)], []))
            continue
        n = links.shape[0] + 1
        cut = limit if limit is not None else 0.0
        shrink = {"p": limits.LEAVES, "truncate_mode": "lastp"} if n > limits.LEAVES else {}
        drawn = hierarchy.dendrogram(
            counted(links), no_plot=True, color_threshold=cut, above_threshold_color="above", **shrink
        )
        names = [
            _leaf(f, leaf) if leaf < n else f"{int(links[leaf - n, 3])} leaves" for leaf in drawn["leaves"]
        ]
        if shrink:
            notes = [f"{scale.number(n)} leaves: only the uppermost {limits.LEAVES} branches are drawn."]
        classes: dict[str, int] = {}
        if "hue" in f.variables and not shrink:
            for leaf, colour in zip(drawn["leaves"], drawn["leaves_color_list"]):
                classes.setdefault(colour, int(f["hue"].values[leaf]) + 1)
        branches = []
        for along, up, colour in zip(drawn["icoord"], drawn["dcoord"], drawn["color_list"]):
            of_class = 0 if colour == "above" else classes.setdefault(colour, len(classes) + 1)
            # scipy sets leaves 10 apart, the first at 5
            branches.append(((np.asarray(along) - 5) / 10, np.asarray(up) * height.factor, of_class))
        frames.append((names, branches))
    return Tree(height, frames, None if limit is None else limit * height.factor, notes)


def counted(links: np.ndarray) -> np.ndarray:
    """A linkage whose counts are numbers of leaves, as scipy requires; a room's leaf may stand for several things."""
    links = np.array(links, float)
    members = [1.0] * (len(links) + 1)
    for row in links:
        row[3] = members[int(row[0])] + members[int(row[1])]
        members.append(float(row[3]))
    return links


def _leaf(data: xr.Dataset, k: int) -> str:
    return str(data["leaf"].values[k]) if "leaf" in data.variables else str(k)


def icicle(figure: Figure) -> Icicle:
    """ICICLE with its largest nodes, at most limits.NODES; the area of a node that is left out stays empty."""
    check(figure)
    parent = np.asarray(figure.data["parent"].values, np.int64)
    frames = [np.nan_to_num(np.asarray(f["value"].values, float)) for f in at_frame(figure)]
    largest = np.max(frames, axis=0)
    children: dict[int, list[int]] = {}
    for node in np.argsort(-largest, kind="stable").tolist():
        children.setdefault(int(parent[node]), []).append(node)
    # From the largest node down, so that a node is never drawn without its parent
    waiting = [(-largest[node], node) for node in children[-1]]
    chosen: list[int] = []
    while waiting and len(chosen) < limits.NODES:
        _, node = heapq.heappop(waiting)
        chosen.append(node)
        for within in children.get(node, ()):
            heapq.heappush(waiting, (-largest[within], within))
    notes = []
    if len(chosen) < parent.size:
        notes.append(f"{scale.number(parent.size)} nodes: the largest {scale.number(len(chosen))} are drawn.")
    place = {node: k for k, node in enumerate(chosen)}
    axis = axis_of(figure, "value")
    quantity = quantity_of(axis, largest[chosen[:1]])
    names = axis_of(figure, "hue").labels
    hues = (
        figure.data["hue"].values[chosen].tolist() if "hue" in figure.data.variables else [-1] * len(chosen)
    )
    moved = {c.dim for c in figure.controls}
    extras = [
        extra_of(str(name), variable, [np.asarray(f[name].values)[chosen] for f in at_frame(figure)])
        for name, variable in figure.data.variables.items()
        if name not in ("parent", "value", "label", "hue")
        and {"node"} <= set(variable.dims) <= {"node", *moved}
    ]
    return Icicle(
        quantity,
        [str(figure.data["label"].values[node]) for node in chosen],
        [place.get(int(parent[node]), -1) for node in chosen],
        [int(hue) for hue in hues],
        names,
        [f[chosen] * quantity.factor for f in frames],
        extras,
        notes,
    )
