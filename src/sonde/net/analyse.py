"""From /raw to /summary. Pure: the same /raw gives the same /summary, on any machine, years later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from sonde.core.deadline import Deadline
from sonde.net import cells
from sonde.net.classes import Classes, link_classes
from sonde.net.jumps import machine_events, pair_jumps, size_jumps
from sonde.net.links import LinkTest, slow_links
from sonde.net.pairs import LEVELS, Pairs, centre, pairs_of

CELL = ("src", "dst", "size")
# name -> dimensions, values, unit, long name
Table = dict[str, tuple[tuple[str, ...], Any, str, str]]
# Cells whose course over time shows whether the whole machine changed, and pairs that are tested for their own jumps.
EVENT_CELLS = 400
JUMP_PAIRS = 400


def analyse(raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
    """All statistics of one run's delays.

    Parameters
    ----------
    raw : /raw of net/1, opened lazily. It is read piecewise: memory does not grow with samples.
    deadline : the end of fits of laws and cycles of cells, which take longest

    Returns
    -------
    /summary as listed in docs/reference/net-summary.md. Cells without samples are NaN; questions that the data cannot
    answer (one epoch, two ranks, one size) give NaN or no rows, never an error.

    Raises
    ------
    DataError  net.no_latency, net.infinite_latency.
    """
    cells.check(raw)
    summary = xr.Dataset(coords={d: raw[d] if d in raw.coords else np.arange(raw.sizes[d]) for d in CELL})
    _put_cells(summary, cells.measure(raw), cells.CHEAP)
    summary.update(
        {name: raw[name].load().variable for name in ("status", "clock_error", *LEVELS) if name in raw}
    )
    summary.attrs.update(_facts(raw))
    _put_fits(summary, raw, deadline)
    summary = structure(summary)
    _put_events(summary, raw)
    return summary


def shown_cells(summary: xr.Dataset) -> dict[str, cells.Spot]:
    """The cells that represent a run: {"fastest", "median", "slowest", "most irregular"} -> (src, dst, size) positions.

    All are at the smallest size among the most widely measured ones. The most irregular cell has the widest span from
    the 5 % to the 95 % quantile over the median. One cell may have several names; {} if nothing was measured.
    """
    median = centre(summary)
    measured = np.isfinite(median)
    if not measured.any():
        return {}
    k = int(measured.sum(axis=(0, 1)).argmax())
    one = median[..., k]
    order = [tuple(int(v) for v in at) for at in np.argwhere(measured[..., k])]
    order.sort(key=lambda at: float(one[at]))
    picked = {"fastest": order[0], "median": order[(len(order) - 1) // 2], "slowest": order[-1]}
    if {"q05", "q95"} <= set(summary.variables):
        width = ((summary["q95"] - summary["q05"]).transpose(*CELL).values / median)[..., k]
        picked["most irregular"] = max(order, key=lambda at: float(np.nan_to_num(width[at])))
    return {name: (at[0], at[1], k) for name, at in picked.items()}


def _put_fits(summary: xr.Dataset, raw: xr.Dataset, deadline: Deadline | None) -> None:
    """Laws, cycles and outliers: of all cells if there are few, else of a random sample and the shown cells."""
    spots = _spots(summary["n"].values > 0)
    shown = list(shown_cells(summary).values())
    chosen = spots
    # A short budget leaves time for fewer; the dataset records this, and any later analysis of it gives the same
    # result.
    most = min(cells.FITTED, int(raw.attrs.get("fitted_at_most", cells.FITTED)))
    if len(spots) > most:
        drawn = np.random.default_rng(0).choice(len(spots), most, replace=False)
        chosen = sorted({*(spots[k] for k in drawn), *shown})
    # The shown cells first, then the random ones: when the time is over, the finished ones represent all.
    mixed = [chosen[k] for k in np.random.default_rng(0).permutation(len(chosen))]
    order = [*dict.fromkeys(shown), *(spot for spot in mixed if spot not in shown)]
    values, done = cells.fit(raw, order, set(shown), deadline)
    _put_cells(summary, values, cells.COSTLY)
    summary.attrs.update(fitted_cells=done, measured_cells=len(spots))


def _spots(chosen: np.ndarray) -> list[cells.Spot]:
    return [(int(s), int(d), int(k)) for s, d, k in np.argwhere(chosen)]


def _put_events(summary: xr.Dataset, raw: xr.Dataset) -> None:
    """Moments at which the whole machine changed, from at most EVENT_CELLS random cells."""
    spots = _spots(summary["epochs"].values >= 10)
    if len(spots) > EVENT_CELLS:
        drawn = np.random.default_rng(1).choice(len(spots), EVENT_CELLS, replace=False)
        spots = [spots[k] for k in sorted(drawn)]
    last = -1
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for spot in spots:
        series = cells.series_of(raw, spot)
        medians, when = cells.epoch_levels(series)
        number = np.unique(series.epoch)
        found.append((number, np.log(np.maximum(medians, 1e-12)), when))
        last = max(last, int(number[-1]))
    level = np.full((len(found), last + 1), np.nan)
    t = np.full(level.shape, np.nan)
    for row, (number, medians, when) in enumerate(found):
        level[row, number], t[row, number] = medians, when
    events = machine_events(level, t)
    columns: dict[str, tuple[str, str, list[float]]] = {
        "t": ("s", "time of the event since the run began", [e.t for e in events]),
        "epoch": ("1", "first epoch after it", [e.epoch for e in events]),
        "ratio": ("1", "delay after over before", [e.ratio for e in events]),
        "share": ("1", "share of cells that moved the same way", [e.share for e in events]),
        "p": ("1", "p of no change", [e.p for e in events]),
    }
    _put(
        summary,
        {
            f"event_{name}": (("event",), np.array(values, float), units, long_name)
            for name, (units, long_name, values) in columns.items()
        },
    )


def structure(summary: xr.Dataset) -> xr.Dataset:
    """Add the results that need only medians: link classes and slow links. Also for files with statistics only."""
    summary = summary.copy()
    pairs = pairs_of(summary)
    _put_classes(summary, pairs, classes := link_classes(pairs))
    _put_links(summary, pairs, slow_links(pairs, classes.expected))
    _put_jumps(summary, pairs, classes)
    return summary


def _put_classes(summary: xr.Dataset, pairs: Pairs, classes: Classes) -> None:
    by_class = ("link_class",)
    _put(
        summary,
        {
            "class": (CELL[:2], pairs.matrix(classes.label, -1), "1", "link class, 0 the fastest; -1 none"),
            "class_expected": (
                CELL[:2],
                pairs.matrix(classes.expected, -1),
                "1",
                "link class that the other links of both ranks say",
            ),
            "class_links": (by_class, classes.count, "1", "links in a class"),
            "class_median": (("link_class", "size"), classes.centre, "s", "median over links of a class"),
            "class_spread": (by_class, classes.spread, "1", "robust sd of log latency between its links"),
            "class_level": (by_class, np.array(classes.level, object), "1", "where most of its pairs are"),
            "class_level_share": (by_class, classes.level_share, "1", "share of its pairs that are there"),
            "merge_tree": (
                ("merge", "merge_part"),
                classes.merge,
                "1",
                "tree of links as scipy's linkage: left, right, height (log ratio), links",
            ),
            "leaf_name": (("leaf",), np.array(classes.leaf, object), "1", "links in a leaf of the tree"),
            "leaf_class": (("leaf",), classes.leaf_class, "1", "class of a leaf"),
        },
    )
    summary.attrs["class_agreement"] = classes.agreement
    summary.attrs["class_agreement_p"] = classes.p


def _put_links(summary: xr.Dataset, pairs: Pairs, test: LinkTest) -> None:
    table: Table = {
        "ratio": (CELL, pairs.matrix(test.ratio), "1", "median over what ranks and class explain"),
        "link_level": (CELL[:2], pairs.matrix(test.q), "1", "false-discovery level of a slow link"),
    }
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
        "slow": ("1", "how many links of the rank or host are slow", [s.links for s in found]),
        "of": ("1", "how many links it has", [s.of for s in found]),
    }
    for name, (units, long_name, column) in columns.items():
        dtype = (
            object
            if name in ("subject", "host")
            else np.int64
            if units == "B" or name in ("src", "dst", "slow", "of")
            else float
        )
        table[f"link_{name}"] = (("link",), np.array(column, dtype), units, long_name)
    _put(summary, table)
    summary.attrs.update(
        detectable_slowdown=test.detectable,
        detectable_slowdown_one_size=test.detectable_one,
        detectable_power=test.power,
        slow_alpha=test.alpha,
        slow_least=test.least,
        slow_links_note=test.note,
    )


def _put_jumps(summary: xr.Dataset, pairs: Pairs, classes: Classes) -> None:
    common = size_jumps(pairs, classes.expected)
    rows = np.arange(len(pairs))
    if len(rows) > JUMP_PAIRS:
        rows = np.sort(np.random.default_rng(2).choice(len(pairs), JUMP_PAIRS, replace=False))
    found = [*common, *pair_jumps(pairs, rows, common, classes.expected)]
    columns: dict[str, tuple[str, str, list[Any]]] = {
        "src": ("1", "sender of the pair; -1 for a whole class", [j.src for j in found]),
        "dst": ("1", "receiver of the pair; -1 for a whole class", [j.dst for j in found]),
        "class": ("1", "link class; -1 for a single pair", [j.link_class for j in found]),
        "size_low": ("B", "largest size before it", [j.size_low for j in found]),
        "size_high": ("B", "smallest size after it", [j.size_high for j in found]),
        "height": ("s", "delay above what the slope before would give", [j.height for j in found]),
        "ratio": ("1", "the same as a ratio", [j.ratio for j in found]),
        "slope_before": ("s/B", "slope of delay over size before it", [j.slope_before for j in found]),
        "slope_after": ("s/B", "slope of delay over size after it", [j.slope_after for j in found]),
        "p": ("1", "p of no break", [j.p for j in found]),
        "share": ("1", "share of the class's pairs that show it", [j.share for j in found]),
    }
    table: Table = {}
    for name, (units, long_name, column) in columns.items():
        dtype = np.int64 if name in ("src", "dst", "class", "size_low", "size_high") else float
        table[f"jump_{name}"] = (("jump",), np.array(column, dtype), units, long_name)
    _put(summary, table)


def _facts(raw: xr.Dataset) -> dict[str, Any]:
    attrs = {
        k: v
        for k, v in raw.attrs.items()
        if k in ("mode", "rule", "pairing", "epoch_length", "oversubscribed", "crowded_kernel")
    }
    attrs["value"] = raw["latency"].attrs.get("value", "unknown")
    return attrs


def _put_cells(
    summary: xr.Dataset, values: Mapping[str, np.ndarray], described: Mapping[str, tuple[str, str, str]]
) -> None:
    """described: name -> unit, long name, method."""
    names = ("units", "long_name", "method")
    summary.update(
        {name: xr.Variable(CELL, array, dict(zip(names, described[name]))) for name, array in values.items()}
    )


def _put(summary: xr.Dataset, table: Table) -> None:
    """All at once: if a dataset gets variables one by one, xarray merges and aligns all existing ones each time."""
    summary.update(
        {
            name: xr.Variable(dims, values, {"units": units, "long_name": long_name})
            for name, (dims, values, units, long_name) in table.items()
        }
    )
