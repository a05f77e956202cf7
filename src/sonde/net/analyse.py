"""From /raw to /summary. Pure: the same /raw gives the same /summary, on any machine, years later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from sonde.core.deadline import Deadline
from sonde.core.described import variables
from sonde.core.status import status_flags
from sonde.net import cells
from sonde.net.classes import Classes, link_classes
from sonde.net.jumps import machine_events, pair_jumps, size_jumps
from sonde.net.links import LinkTest, slow_links
from sonde.net.pairs import LEVELS, Pairs, centre, pairs_of
from sonde.net.schema import CELL, COORDINATES, SUMMARY

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
    places = {d: raw[d].values if d in raw.coords else np.arange(raw.sizes[d]) for d in CELL}
    summary = xr.Dataset(coords=variables(COORDINATES, places))
    _put(summary, cells.measure(raw))
    if "status" in raw:
        summary["status"] = SUMMARY["status"].with_values(
            raw["status"].transpose(*CELL).values, status_flags()
        )
    _put(summary, {name: raw[name].values for name in ("clock_error", *LEVELS) if name in raw})
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
    most = min(cells.MAX_FITTED, int(raw.attrs.get("fitted_at_most", cells.MAX_FITTED)))
    if len(spots) > most:
        drawn = np.random.default_rng(0).choice(len(spots), most, replace=False)
        chosen = sorted({*(spots[k] for k in drawn), *shown})
    # The shown cells first, then the random ones: when the time is over, the finished ones represent all.
    mixed = [chosen[k] for k in np.random.default_rng(0).permutation(len(chosen))]
    order = [*dict.fromkeys(shown), *(spot for spot in mixed if spot not in shown)]
    values, done = cells.fit(raw, order, set(shown), deadline)
    _put(summary, values)
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
    _put(
        summary,
        {
            f"event_{name}": [float(getattr(event, name)) for event in events]
            for name in ("t", "epoch", "ratio", "share", "p")
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
    _put(
        summary,
        {
            "class": pairs.matrix(classes.label, -1),
            "class_expected": pairs.matrix(classes.expected, -1),
            "class_links": classes.count,
            "class_median": classes.centre,
            "class_spread": classes.spread,
            "class_level": classes.level,
            "class_level_share": classes.level_share,
            "merge_tree": classes.merge,
            "leaf_name": classes.leaf,
            "leaf_class": classes.leaf_class,
        },
    )
    summary.attrs["class_agreement"] = classes.agreement
    summary.attrs["class_agreement_p"] = classes.p


def _put_links(summary: xr.Dataset, pairs: Pairs, test: LinkTest) -> None:
    found = [*test.ranks, *test.links]
    columns: dict[str, list[Any]] = {
        "subject": [s.subject for s in found],
        "src": [s.src for s in found],
        "dst": [s.dst for s in found],
        "host": [s.host for s in found],
        "size_low": [min(s.sizes, default=-1) for s in found],
        "size_high": [max(s.sizes, default=-1) for s in found],
        "ratio": [s.ratio for s in found],
        "ratio_low": [s.low for s in found],
        "ratio_high": [s.high for s in found],
        "expected": [s.expected for s in found],
        "p": [s.p for s in found],
        "q": [s.q for s in found],
        "slow": [s.links for s in found],
        "of": [s.of for s in found],
    }
    _put(
        summary,
        {
            "ratio": pairs.matrix(test.ratio),
            "link_level": pairs.matrix(test.q),
            **{f"link_{name}": column for name, column in columns.items()},
        },
    )
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
    columns: dict[str, list[Any]] = {
        "src": [j.src for j in found],
        "dst": [j.dst for j in found],
        "class": [j.link_class for j in found],
        "size_low": [j.size_low for j in found],
        "size_high": [j.size_high for j in found],
        "height": [j.height for j in found],
        "ratio": [j.ratio for j in found],
        "slope_before": [j.slope_before for j in found],
        "slope_after": [j.slope_after for j in found],
        "p": [j.p for j in found],
        "share": [j.share for j in found],
    }
    _put(summary, {f"jump_{name}": column for name, column in columns.items()})


def _facts(raw: xr.Dataset) -> dict[str, Any]:
    attrs = {
        k: v
        for k, v in raw.attrs.items()
        if k in ("mode", "rule", "pairing", "epoch_length", "oversubscribed", "crowded_kernel")
    }
    attrs["value"] = raw["latency"].attrs.get("value", "unknown")
    return attrs


def _put(summary: xr.Dataset, values: Mapping[str, Any]) -> None:
    """All at once: if a dataset gets variables one by one, xarray merges and aligns all existing ones each time."""
    summary.update(variables(SUMMARY, values))
