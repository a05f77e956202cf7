"""From /raw to /summary. Pure: the same /raw gives the same /summary, on any machine, years later."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from sonde.net import cells
from sonde.net.classes import Classes, link_classes
from sonde.net.links import LinkTest, slow_links
from sonde.net.pairs import LEVELS, Pairs, pairs_of

CELL = ("src", "dst", "size")


def analyse(raw: xr.Dataset) -> xr.Dataset:
    """Everything Sonde says about one run's delays.

    Parameters
    ----------
    raw : /raw of net/1, opened lazily. It is read piecewise: memory does not grow with samples.

    Returns
    -------
    /summary as docs/reference/net-summary.md lists it. Cells without samples are NaN; questions that the data
    cannot answer (one epoch, two ranks, one size) have NaN or no rows, never an error.

    Raises
    ------
    DataError  net.no_latency, net.infinite_latency.
    """
    cells.check(raw)
    summary = xr.Dataset(coords={d: raw[d] if d in raw.coords else np.arange(raw.sizes[d]) for d in CELL})
    for name, values in cells.measure(raw).items():
        units, long_name, method = cells.CHEAP[name]
        summary[name] = xr.Variable(CELL, values, {"units": units, "long_name": long_name, "method": method})
    if "status" in raw:
        summary["status"] = raw["status"].load().variable
    for name in LEVELS:
        if name in raw:
            summary[name] = raw[name].load().variable
    summary.attrs.update(_facts(raw))
    return structure(summary)


def structure(summary: xr.Dataset) -> xr.Dataset:
    """Adds what follows from medians alone: link classes and slow links. For files with statistics only,
    too.
    """
    summary = summary.copy()
    pairs = pairs_of(summary)
    _put_classes(summary, pairs, classes := link_classes(pairs))
    _put_links(summary, pairs, slow_links(pairs, classes.expected))
    return summary


def _put_classes(summary: xr.Dataset, pairs: Pairs, classes: Classes) -> None:
    _put(
        summary, "class", CELL[:2], pairs.matrix(classes.label, -1), "1", "link class, 0 the fastest; -1 none"
    )
    _put(
        summary,
        "class_expected",
        CELL[:2],
        pairs.matrix(classes.expected, -1),
        "1",
        "link class that the other links of both ranks say",
    )
    _put(summary, "class_links", ("link_class",), classes.count, "1", "links in a class")
    _put(summary, "class_median", ("link_class", "size"), classes.centre, "s", "median over links of a class")
    _put(
        summary,
        "class_spread",
        ("link_class",),
        classes.spread,
        "1",
        "robust sd of log latency between its links",
    )
    _put(
        summary,
        "class_level",
        ("link_class",),
        np.array(classes.level, object),
        "1",
        "where most of its pairs are",
    )
    _put(
        summary,
        "class_level_share",
        ("link_class",),
        classes.level_share,
        "1",
        "share of its pairs that are there",
    )
    _put(
        summary,
        "merge_tree",
        ("merge", "merge_part"),
        classes.merge,
        "1",
        "tree of links as scipy's linkage: left, right, height (log ratio), links",
    )
    _put(summary, "leaf_name", ("leaf",), np.array(classes.leaf, object), "1", "links in a leaf of the tree")
    _put(summary, "leaf_class", ("leaf",), classes.leaf_class, "1", "class of a leaf")
    summary.attrs["class_agreement"] = classes.agreement
    summary.attrs["class_agreement_p"] = classes.p


def _put_links(summary: xr.Dataset, pairs: Pairs, test: LinkTest) -> None:
    _put(summary, "ratio", CELL, pairs.matrix(test.ratio), "1", "median over what ranks and class explain")
    _put(summary, "link_level", CELL[:2], pairs.matrix(test.q), "1", "false-discovery level of a slow link")
    found = [*test.ranks, *test.links]
    columns: dict[str, tuple[str, str, list[Any]]] = {
        "subject": ("1", "what is slow: link, rank or host", [s.subject for s in found]),
        "src": ("1", "sending rank, or the rank; -1 for a host", [s.src for s in found]),
        "dst": ("1", "receiving rank, or the rank; -1 for a host", [s.dst for s in found]),
        "host": ("1", "host", [s.host for s in found]),
        "size_low": ("B", "smallest size at which it is slow", [min(s.sizes, default=-1) for s in found]),
        "size_high": ("B", "largest size at which it is slow", [max(s.sizes, default=-1) for s in found]),
        "ratio": ("1", "measured over expected", [s.ratio for s in found]),
        "ratio_low": ("1", "lower end of its 95 % interval", [s.low for s in found]),
        "ratio_high": ("1", "upper end of its 95 % interval", [s.high for s in found]),
        "expected": ("s", "median expected over those sizes", [s.expected for s in found]),
        "p": ("1", "one-sided p", [s.p for s in found]),
        "q": ("1", "p after false-discovery control", [s.q for s in found]),
    }
    for name, (units, long_name, column) in columns.items():
        dtype = (
            object
            if name in ("subject", "host")
            else np.int64
            if units == "B" or name in ("src", "dst")
            else float
        )
        _put(summary, f"link_{name}", ("link",), np.array(column, dtype), units, long_name)
    summary.attrs.update(
        detectable_slowdown=test.detectable,
        detectable_power=test.power,
        slow_alpha=test.alpha,
        slow_least=test.least,
        slow_links_note=test.note,
    )


def _facts(raw: xr.Dataset) -> dict[str, Any]:
    attrs = {k: v for k, v in raw.attrs.items() if k in ("mode", "rule", "pairing", "epoch_length")}
    attrs["value"] = raw["latency"].attrs.get("value", "unknown")
    return attrs


def _put(
    summary: xr.Dataset, name: str, dims: tuple[str, ...], values: Any, units: str, long_name: str
) -> None:
    summary[name] = xr.Variable(dims, values, {"units": units, "long_name": long_name})
