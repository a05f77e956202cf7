"""Compute /summary of a study from /raw: rates, times by function and layer, and the cost of the tracer, with
intervals. Pure.

Rates are from runs without the tracer, which slows configurations with many calls or much loaded code more than others;
calls and times of functions are from runs with it. A run is one epoch: medians over runs and their intervals come from
`core.stats`. Two cells, and runs of one cell with and without the tracer, are compared by the ratios within rounds, as
in the `store` room: typical ratio and interval are Hodges and Lehmann's shift of logs, which needs six rounds for an
interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import stats
from sonde.core.described import variables
from sonde.io.maps.layers import TOPS
from sonde.io.study.schema import LIMITS, OF_CELL, OF_FUNCTION, OF_LAYER, RECORD, SUMMARY, WHOLE
from sonde.io.trace.ratios import ratio_of_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

DIRECTIONS = ("write", "read")
TRACER = "tracer"
LEAST_SPREAD = 3  # runs: with two, an interval may have any width


def analyse(raw: xr.Dataset) -> xr.Dataset:
    """Compute the tables SUMMARY. A run counts if its command succeeded."""
    import xarray as xr

    raw = raw.load()
    cells, ranks = raw.sizes["cell"], int(raw.attrs["ranks"])
    of, traced = raw["run_cell"].values, raw["run_traced"].values == 1
    good = raw["run_status"].values == 0
    rounds = raw["run_round"].values
    rates = np.stack([raw[f"run_{name}"].values for name in DIRECTIONS], axis=1)
    plain, seen = (
        [np.flatnonzero((of == cell) & (traced == way) & good) for cell in range(cells)]
        for way in (False, True)
    )
    benchmark = raw["cell_benchmark"].values
    baseline = [int(np.flatnonzero(benchmark == benchmark[cell])[0]) for cell in range(cells)]
    out: dict[str, np.ndarray] = {name: raw[name].values for name in (*OF_CELL, *OF_FUNCTION, *OF_LAYER)}
    out |= {
        "direction": _texts(DIRECTIONS),
        "runs": np.array([len(runs) for runs in plain], np.int64),
        "traced_runs": np.array([len(runs) for runs in seen], np.int64),
        "failed_runs": np.bincount(of[~good], minlength=cells).astype(np.int64),
        "baseline": np.array(baseline, np.int64),
    }
    out |= _columns("rate", [[middle(rates[runs, d]) for d in range(2)] for runs in plain])
    out |= _columns(
        "ratio",
        [
            [_paired(rounds, rates[:, d], plain[baseline[cell]], plain[cell]) for d in range(2)]
            for cell in range(cells)
        ],
    )
    took = raw["run_io"].values
    out |= _columns("slowdown", [_paired(rounds, took, plain[cell], seen[cell]) for cell in range(cells)])
    for name in ("time", "self_time"):
        per_rank = raw[name].values / ranks
        rows = [[middle(per_rank[runs, k]) for k in range(per_rank.shape[1])] for runs in seen]
        out |= _columns(f"function_{name}", rows, (cells, per_rank.shape[1]))
    for name in ("calls", "bytes"):
        values = raw[name].values.astype(float)
        out[f"function_{name}"] = np.array(
            [[middle(values[runs, k])[0] for k in range(values.shape[1])] for runs in seen]
        ).reshape(cells, values.shape[1])
    own = raw["self_time"].values / ranks
    layer_of = raw["function_layer"].values
    layers = raw.sizes["layer"]
    in_layer = np.stack([own[:, layer_of == layer].sum(axis=1) for layer in range(layers)], axis=1)
    out |= _columns(
        "layer_self_time",
        [[middle(in_layer[runs, layer]) for layer in range(layers)] for runs in seen],
        (cells, layers),
    )
    out |= _limits(raw)
    return xr.Dataset(variables(SUMMARY, out), attrs={"ranks": ranks})


def middle(values: np.ndarray) -> tuple[float, float, float]:
    """Median over runs, and its interval from three runs on; NaN if there is none. A run is an epoch."""
    known = values[np.isfinite(values)]
    if not known.size:
        return (float("nan"),) * 3
    if known.size < LEAST_SPREAD:
        return (stats.median(known), float("nan"), float("nan"))
    return (stats.median(known), *stats.epoch_median_ci(known))


def _paired(
    rounds: np.ndarray, values: np.ndarray, first: np.ndarray, second: np.ndarray
) -> tuple[float, float, float]:
    """The ratio of one set of runs to another, within rounds."""
    _, a, b = np.intersect1d(rounds[first], rounds[second], return_indices=True)
    return ratio_of_pairs(values[first[a]], values[second[b]])


def _columns(name: str, rows: Sequence[Any], shape: tuple[int, ...] | None = None) -> dict[str, np.ndarray]:
    """Rows of (estimate, low, high) as three variables."""
    array = np.array(rows, float)
    if shape is not None:
        array = array.reshape(*shape, 3)
    return {name: array[..., 0], f"{name}_low": array[..., 1], f"{name}_high": array[..., 2]}


def _limits(raw: xr.Dataset) -> dict[str, np.ndarray]:
    """The median rate of each place and network."""
    names = [(str(p), str(c)) for p, c in zip(raw["limit_place"].values, raw["limit_cluster"].values)]
    places = list(dict.fromkeys(names))
    what, rate = raw["limit_what"].values, raw["limit_rate"].values
    rows, counts, by = [], [], []
    for place in places:
        mine = np.array([name == place for name in names], bool)
        runs = [np.flatnonzero(mine & (what == k) & np.isfinite(rate)) for k in range(len(LIMITS))]
        rows.append([middle(rate[one]) for one in runs])
        counts.append([len(one) for one in runs])
        by.append([str(raw["limit_by"].values[one[-1]]) if len(one) else "" for one in runs])
    shape = (len(places), len(LIMITS))
    texts = np.empty(shape, object)
    texts[:] = np.array(by, object).reshape(shape)
    return {
        "place_name": _texts(place for place, _ in places),
        "place_cluster": _texts(cluster for _, cluster in places),
        "what": _texts(LIMITS),
        "limit_by": texts,
        "limit_runs": np.array(counts, np.int64).reshape(shape),
        **_columns("limit", rows, shape),
    }


def _texts(values: Any) -> np.ndarray:
    listed = list(values)
    out = np.empty(len(listed), object)
    out[:] = listed
    return out


# ---- from one trace


def functions_of(
    summary: xr.Dataset, raw: xr.Dataset, folder: str
) -> tuple[list[tuple[str, str, int]], np.ndarray]:
    """The functions in a trace, as records of a study; only what the benchmark itself did.

    Programs and libraries read and write many other files while they start. If MPI-IO or HDF5 was called, calls within
    it count; otherwise those on the files in the benchmark's folder, and all their time is own time.

    Parameters
    ----------
    summary, raw : of the trace. folder: that of the benchmark's files

    Returns
    -------
    [(layer, name, kind)] and records whose `function` is an index into it.
    """
    layers = [str(name) for name in summary["layer_name"].values]
    layer_of = summary["function_layer"].values.astype(int)
    calls = summary["calls"].values.sum(axis=0)
    top = next(
        (k for name in TOPS if name in layers for k in [layers.index(name)] if calls[layer_of == k].any()),
        None,
    )
    table = summary if top is not None else raw  # /summary leaves out functions without calls
    layer_of = table["function_layer"].values.astype(int)
    layers = [str(name) for name in table["layer_name"].values]
    sums = _of_files(raw, folder) if top is None else _within(summary, layer_of == top)
    keys: dict[tuple[str, str, int], int] = {}
    place = np.full(len(layer_of), -1)
    for k in np.flatnonzero(sums["calls"] > 0).tolist():
        if layers[layer_of[k]] != TRACER:
            key = (
                layers[layer_of[k]],
                str(table["function_name"].values[k]),
                int(table["function_kind"].values[k]),
            )
            place[k] = keys.setdefault(key, len(keys))  # a name that two libraries define is one function
    records = np.zeros(len(keys), RECORD)
    records["function"] = np.arange(len(keys))
    mine = place >= 0
    for name in ("calls", "bytes", "time", "self_time"):
        np.add.at(records[name], place[mine], sums[name][mine].astype(records[name].dtype))
    return list(keys), records


def whole_run(length_s: float) -> np.ndarray:
    """The record of a run itself."""
    record = np.zeros(1, RECORD)
    record["function"], record["time"] = WHOLE, length_s
    return record


def _within(summary: xr.Dataset, tops: np.ndarray) -> dict[str, np.ndarray]:
    """Sums over call paths at or below some functions. If a function calls itself, the outer call has the time."""
    parent, what = summary["node_parent"].values.astype(int), summary["node_function"].values.astype(int)
    inside = np.zeros(len(what), bool)
    outer = np.ones(len(what), bool)
    for k in range(len(what)):  # a path comes after the path around it
        inside[k] = tops[what[k]] or (parent[k] >= 0 and inside[parent[k]])
        above = parent[k]
        while above >= 0 and outer[k]:
            outer[k] = what[above] != what[k]
            above = parent[above]

    def summed(name: str, chosen: np.ndarray) -> np.ndarray:
        values = summary[f"node_{name}"].values[chosen].astype(float)
        return np.bincount(what[chosen], values, minlength=len(tops))

    return {
        "calls": summed("calls", inside),
        "bytes": summed("bytes", inside),
        "time": summed("time", inside & outer),
        "self_time": summed("self_time", inside),
    }


def _of_files(raw: xr.Dataset, folder: str) -> dict[str, np.ndarray]:
    """Sums over calls on files within a folder."""
    functions = raw.sizes["function"]
    # A name without a folder is in the benchmark's folder, in which it was started.
    wanted = np.flatnonzero([str(path).startswith(folder) or path[:1] != "/" for path in raw["path"].values])
    out = {name: np.zeros(functions) for name in ("calls", "bytes", "time", "self_time")}
    inside = float(np.median(raw["call_cost_inside"].values)) * 1e-9 if raw.sizes["process"] else 0.0
    for at in range(0, raw.sizes["event"], 1 << 20):
        where = slice(at, at + (1 << 20))
        function = raw["function_index"][where].values.astype(int)
        mine = np.isin(raw["file_index"][where].values, wanted) & (function >= 0)
        size = np.maximum(raw["size"][where].values[mine], 0)
        took = raw["duration"][where].values[mine] * 1e-9
        own = np.maximum(took - inside, 0.0)  # minus the cost of tracing, as in /summary
        for name, values in (("calls", None), ("bytes", size), ("time", took), ("self_time", own)):
            out[name] += np.bincount(function[mine], values, minlength=functions)
    return out
