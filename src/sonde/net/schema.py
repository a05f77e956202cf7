"""net/1: the variables of a dataset of `sonde net`, and the rules for a valid file.

docs/reference/schemas.md, "net/1", is the definition; the tables RAW and SUMMARY here are the same as data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import described, other_programs
from sonde.core.allowed import COUNT, FINITE, NUMBERED, SHARE, Allowed, count_of, index
from sonde.core.described import Described, attribute
from sonde.core.described import optional as _of
from sonde.core.errors import Finding
from sonde.core.layout import Variable
from sonde.core.status import NOT_MEASURED, STATUS, UNDECIDED, status_flags
from sonde.net.clustbench import STATISTICS as CLUSTBENCH_STATISTICS

if TYPE_CHECKING:
    import xarray as xr

NAME = "net/1"

VALUES = ("rtt_half", "one_way", "recv_duration", "completion", "unknown")  # unknown: only for imports

CELL = ("src", "dst", "size")
SERIES = (*CELL, "sample")

CHUNK_BYTES = 512 * 1024
# A series without epochs is cut into this number of blocks for questions about its course.
BLOCKS = 20
# The beginning of the names of variables that hold the content of clustbench's files.
CLUSTBENCH = "clustbench_"


def _cell(
    units: str, long_name: str, dtype: str = "<f8", allowed: Allowed | None = None, method: str = ""
) -> Described:
    return _of(CELL, units, long_name, dtype, allowed, method)


RAW: dict[str, Described] = {
    "latency": Described(SERIES, "<f8", "s", "delay of one message", allowed=FINITE),
    "epoch": Described(
        SERIES, "<i4", "1", "burst a sample belongs to; -1 where there is none", allowed=NUMBERED
    ),
    "t_start": Described(
        SERIES,
        "<f8",
        "s",
        "start of the measurement since the run began, by the clock of the rank that measured",
        allowed=FINITE,
    ),
    "n": Described(CELL, "<i4", "1", "samples kept", allowed=count_of("sample")),
    "status": Described(CELL, "|i1", "1", "how measuring a cell ended", allowed=STATUS),
    "host": Described(("rank",), "str", "", "host a rank ran on"),
    "cpu": Described(("rank",), "<i4", "1", "hardware thread a rank ran on; -1 not known", allowed=NUMBERED),
    "core": Described(("rank",), "<i4", "1", "core a rank ran on; -1 not known", allowed=NUMBERED),
    "l3": Described(("rank",), "<i4", "1", "L3 cache a rank ran under; -1 not known", allowed=NUMBERED),
    "numa": Described(("rank",), "<i4", "1", "NUMA node a rank ran on; -1 not known", allowed=NUMBERED),
    "package": Described(
        ("rank",), "<i4", "1", "processor package a rank ran on; -1 not known", allowed=NUMBERED
    ),
    "clock_offset": Described(
        ("rank",), "<f8", "s", "clock of a rank minus clock of rank 0", required=False, allowed=FINITE
    ),
    "clock_drift": Described(
        ("rank",), "<f8", "s/s", "drift of that clock against rank 0", required=False, allowed=FINITE
    ),
    "clock_error": Described(
        ("rank",), "<f8", "s", "error of the clock offset", required=False, allowed=FINITE
    ),
}
RANK_FACTS = ("cpu", "core", "l3", "numa", "package")
CLOCK_FACTS = ("clock_offset", "clock_drift", "clock_error")

_QUANTILE = "linear between order statistics"
_INTERVAL = (
    "from what differs between epochs, Woodruff 1952 over epochs after the warm-up; none with fewer than two"
)
MEASURED: dict[str, Described] = {
    "mean": _cell("s", "mean", method="arithmetic mean of all samples"),
    "sd": _cell("s", "standard deviation", method="of the sample, n - 1 in the denominator"),
    "min": _cell("s", "smallest delay", method="smallest sample"),
    "max": _cell("s", "largest delay", method="largest sample"),
    "median": _cell(
        "s",
        "median",
        method="middle of the samples after the warm-up; ties of a clock's tick spread over it",
    ),
    "q05": _cell("s", "5 % quantile", method=_QUANTILE),
    "q25": _cell("s", "25 % quantile", method=_QUANTILE),
    "q75": _cell("s", "75 % quantile", method=_QUANTILE),
    "q95": _cell("s", "95 % quantile", method=_QUANTILE),
    "q99": _cell("s", "99 % quantile", method=_QUANTILE),
    "median_low": _cell("s", "lower end of the 95 % interval of the median", method=_INTERVAL),
    "median_high": _cell("s", "upper end of the 95 % interval of the median", method=_INTERVAL),
    "warmup": _cell(
        "1",
        "samples left out of the median as warm-up",
        "<i4",
        COUNT,
        "epochs that stand out at the beginning, and a tail as long",
    ),
    "ess": _cell(
        "1", "effective sample size", method="variance of one sample over that of the mean, from epochs"
    ),
    "epochs": _cell("1", "epochs with samples", "<i4", COUNT, "counted"),
    "n": _cell("1", "samples", "<i4", COUNT, "counted"),
    "drift_p": _cell(
        "1",
        "p of no drift",
        method=f"Pettitt 1979 on epoch medians; on medians of {BLOCKS} blocks with one epoch",
    ),
}
"""Statistics of every cell."""
FITTED: dict[str, Described] = {
    "lognormal_shift": _cell(
        "s", "shift of the fitted three-parameter lognormal", method="grouped likelihood"
    ),
    "lognormal_mu": _cell("1", "mean of log((delay - shift) / 1 s)", method="grouped likelihood"),
    "lognormal_sigma": _cell(
        "1", "standard deviation of log((delay - shift) / 1 s)", method="grouped likelihood"
    ),
    "lognormal_ks": _cell(
        "1", "Kolmogorov-Smirnov distance from the fitted lognormal", method="largest distance"
    ),
    "lognormal_p": _cell(
        "1", "p of the fitted lognormal", method="parametric bootstrap; for representative cells only"
    ),
    "cyclic_p": _cell(
        "1",
        "p of no cycle, within bursts and between them",
        method="highest ordinate over a fitted red and white background, every frequency paid for",
    ),
    "cyclic_period": _cell(
        "s", "period of the strongest cycle; NaN where cyclic_p > 0.01", method="of that ordinate"
    ),
    "cyclic_samples": _cell(
        "1", "the same in samples, where samples have no times", method="of that ordinate"
    ),
    "outlier_share": _cell(
        "1", "share of samples that are outliers", method="6 robust sd above the median of their epoch"
    ),
    "outlier_p": _cell(
        "1", "p of outliers at random times", method="Rayleigh's power, every frequency paid for"
    ),
    "outlier_period": _cell(
        "s", "period of recurring outliers; NaN where outlier_p > 0.01", method="of that power"
    ),
    "outlier_samples": _cell("1", "the same in samples, where samples have no times", method="of that power"),
    "regimes": _cell(
        "1",
        "levels that the epoch medians take; 0 where not looked for",
        "<i4",
        COUNT,
        "Pettitt, binary segmentation",
    ),
    "homogeneous_p": _cell("1", "p of epochs alike in level and spectrum", method="permutation of epochs"),
}
"""Statistics of chosen cells: each cell costs milliseconds."""
SUMMARY: dict[str, Described] = {
    **MEASURED,
    **FITTED,
    "status": _cell("1", "how measuring a cell ended", "|i1", allowed=STATUS),
    "ratio": _cell("1", "median over what ranks and class explain"),
    "class": _of(
        ("src", "dst"), "1", "link class, 0 the fastest; -1 none", "<i8", allowed=index("link_class", -1)
    ),
    "class_expected": _of(("src", "dst"), "1", "link class that the other links of both ranks say", "<i8"),
    "class_links": _of(("link_class",), "1", "links in a class", "<i8", allowed=COUNT),
    "class_median": _of(("link_class", "size"), "s", "median over links of a class"),
    "class_spread": _of(("link_class",), "1", "robust sd of log latency between its links"),
    "class_level": _of(("link_class",), "", "where most of its pairs are", "str"),
    "class_level_share": _of(("link_class",), "1", "share of its pairs that are there"),
    "merge_tree": _of(
        ("merge", "merge_part"),
        "1",
        "tree of links as scipy's linkage: left, right, height (log ratio), links",
    ),
    "leaf_name": _of(("leaf",), "", "links in a leaf of the tree", "str"),
    "leaf_class": _of(("leaf",), "1", "class of a leaf", "<i8", allowed=index("link_class", -1)),
    "link_level": _of(("src", "dst"), "1", "false-discovery level of a slow link"),
    "link_subject": _of(("link",), "", "what is slow: link, rank or host", "str"),
    "link_src": _of(
        ("link",), "1", "sending rank, or the rank; -1 for a host", "<i8", allowed=index("src", -1)
    ),
    "link_dst": _of(
        ("link",), "1", "receiving rank, or the rank; -1 for a host", "<i8", allowed=index("dst", -1)
    ),
    "link_host": _of(("link",), "", "host", "str"),
    "link_size_low": _of(("link",), "B", "smallest size at which it is slow", "<i8", allowed=COUNT),
    "link_size_high": _of(("link",), "B", "largest size at which it is slow", "<i8", allowed=COUNT),
    "link_ratio": _of(("link",), "1", "measured over expected"),
    "link_ratio_low": _of(("link",), "1", "lower end of its 95 % interval"),
    "link_ratio_high": _of(("link",), "1", "upper end of its 95 % interval"),
    "link_expected": _of(("link",), "s", "median expected over those sizes"),
    "link_p": _of(("link",), "1", "one-sided p"),
    "link_q": _of(("link",), "1", "p after false-discovery control"),
    "link_slow": _of(("link",), "1", "how many links of the rank or host are slow", "<i8", allowed=COUNT),
    "link_of": _of(("link",), "1", "how many links it has", "<i8", allowed=COUNT),
    "jump_src": _of(
        ("jump",), "1", "sender of the pair; -1 for a whole class", "<i8", allowed=index("src", -1)
    ),
    "jump_dst": _of(
        ("jump",), "1", "receiver of the pair; -1 for a whole class", "<i8", allowed=index("dst", -1)
    ),
    "jump_class": _of(
        ("jump",), "1", "link class; -1 for a single pair", "<i8", allowed=index("link_class", -1)
    ),
    "jump_size_low": _of(("jump",), "B", "largest size before it", "<i8", allowed=COUNT),
    "jump_size_high": _of(("jump",), "B", "smallest size after it", "<i8", allowed=COUNT),
    "jump_height": _of(("jump",), "s", "delay above what the slope before would give"),
    "jump_ratio": _of(("jump",), "1", "the same as a ratio"),
    "jump_slope_before": _of(("jump",), "s/B", "slope of delay over size before it"),
    "jump_slope_after": _of(("jump",), "s/B", "slope of delay over size after it"),
    "jump_p": _of(("jump",), "1", "p of no break"),
    "jump_share": _of(("jump",), "1", "share of the class's pairs that show it"),
    "event_t": _of(("event",), "s", "time of the event since the run began"),
    "event_epoch": _of(("event",), "1", "first epoch after it"),
    "event_ratio": _of(("event",), "1", "delay after over before"),
    "event_share": _of(("event",), "1", "share of cells that moved the same way"),
    "event_p": _of(("event",), "1", "p of no change"),
    "spectrum": _of(
        ("src", "dst", "position", "harmonic"), "s", "amplitude |rfft| of each window of samples"
    ),
    **{
        name: replace(RAW[name], required=False)
        for name in ("host", "core", "l3", "numa", "package", "clock_error")
    },
    **{
        f"{CLUSTBENCH}{name}": _cell("s", f"{name} of the delays, as clustbench wrote it")
        for name in CLUSTBENCH_STATISTICS
    },
    f"{CLUSTBENCH}measurements_amount": _cell("1", "measurements per cell, as clustbench wrote it"),
    f"{CLUSTBENCH}diagonal": _of(
        ("src", "size", "repetition"), "1", "diagonal of clustbench's _all, which it does not measure"
    ),
}
"""Variables of /summary. Every variable is optional, and others are allowed."""


COORDINATES = {
    "src": _of(("src",), "1", "sending rank", "<i4", COUNT),
    "dst": _of(("dst",), "1", "receiving rank", "<i4", COUNT),
    "size": _of(("size",), "B", "message size", "<i8", COUNT),
    "rank": _of(("rank",), "1", "rank", "<i4", COUNT),
}
ATTRIBUTES = {
    **described.ROOT,
    "epoch_length": attribute("samples of a burst", COUNT),
    other_programs.HOSTS: attribute("hosts of a run", listed=True, texts=True),
    other_programs.SHARES: attribute(
        "share of the processors' time that other programs used on each of these hosts",
        SHARE,
        listed=True,
    ),
}


# ---- the form of /raw ----------------------------------------------------------------------------


def raw_variables(
    ranks: int, sizes: int, samples: int, axis: int, value: str, clock: bool = False
) -> dict[str, Variable]:
    """Variables of /raw. axis: 0 if senders measure, 1 if receivers do. It turns the chunks so that one rank's
    measurements of one size are together, in chunks of at most CHUNK_BYTES.
    """
    sample_chunk = min(samples, CHUNK_BYTES // 8)
    peer_chunk = min(ranks, max(1, CHUNK_BYTES // 8 // sample_chunk))
    pair = (1, peer_chunk) if axis == 0 else (peer_chunk, 1)
    pair_whole = (1, ranks) if axis == 0 else (ranks, 1)
    out: dict[str, Variable] = {}
    for name, what in RAW.items():
        attrs = what.attrs()
        chunks: tuple[int, ...] | None = None
        fill: float | int | None = None
        if name in CLOCK_FACTS and not clock:
            continue
        if what.dims == SERIES:
            chunks = (*pair, 1, sample_chunk)
            fill = -1 if name == "epoch" else np.nan
        elif what.dims == CELL:
            chunks = (*pair_whole, min(sizes, max(1, CHUNK_BYTES // 8 // ranks)))
        if name == "latency":
            attrs["value"] = value
            attrs["measured_by"] = CELL[axis]
        if name == "status":
            attrs |= status_flags()
        out[name] = Variable(what.dims, what.dtype, attrs, fill, chunks)
    return out


def coordinates(ranks: int, sizes: Sequence[int] | np.ndarray) -> dict[str, tuple[Any, Mapping[str, Any]]]:
    """Coordinates of /raw and /summary: values and attributes. sizes in B."""
    values = {name: np.arange(ranks) if name != "size" else np.asarray(sizes) for name in COORDINATES}
    return {name: (values[name].astype(what.dtype), what.attrs()) for name, what in COORDINATES.items()}


# ---- validity ------------------------------------------------------------------------------------


def validate(tree: xr.DataTree) -> list[Finding]:
    """The violations of net/1 in a dataset.

    Parameters
    ----------
    tree : groups /raw and /summary, opened lazily; /raw is read one sender at a time

    Returns
    -------
    Findings, [] for a valid dataset. A file with statistics only (no /raw) is valid.
    """
    found: list[Finding] = []
    schema = tree.attrs.get("schema")
    if schema != NAME:
        found.append(Finding("net.schema", f"schema is {schema!r}, not {NAME!r}", {"schema": schema}))
    has_raw, has_summary = "raw" in tree.children, "summary" in tree.children
    if not has_raw and not has_summary:
        found.append(Finding("net.empty", "there is neither /raw nor /summary", {}))
    if has_raw:
        raw = tree["raw"].to_dataset()
        found += described.check("net", "/raw", raw, RAW, CELL)
        if not found:
            found += _check_raw(raw)
    if has_summary:
        found += described.check("net", "/summary", tree["summary"].to_dataset(), SUMMARY, CELL)
    return found


def _check_raw(raw: xr.Dataset) -> list[Finding]:
    found: list[Finding] = []
    ranks = raw.sizes["src"]
    if raw.sizes["dst"] != ranks or raw.sizes["rank"] != ranks:
        lengths = f"{ranks}, {raw.sizes['dst']} and {raw.sizes['rank']}"
        text = f"src, dst and rank have the lengths {lengths}; they must be equal"
        return [Finding("net.ranks", text, {})]
    sizes = raw["size"].values
    if len(np.unique(sizes)) != len(sizes) or (sizes < 0).any():
        text = "a message size occurs twice or is negative"
        found.append(Finding("net.sizes", text, {"sizes": sizes.tolist()}))
    value = raw["latency"].attrs.get("value")
    if value not in VALUES:
        text = f"the attribute value of /raw/latency is {value!r}; allowed: {', '.join(VALUES)}"
        found.append(Finding("net.value", text, {"value": value}))
    wrong = dict.fromkeys(("count", "value", "epoch", "status"), 0)
    for part in _parts(raw):
        dims = ("src", "dst", "size", "sample")
        latency = part["latency"].transpose(*dims).values
        epoch = np.nan_to_num(part["epoch"].transpose(*dims).values, nan=-1)
        n, status = part["n"].transpose(*CELL).values, part["status"].transpose(*CELL).values
        counted = np.arange(latency.shape[-1]) < n[..., None]
        wrong["count"] += int(((~np.isnan(latency)) != counted).any(axis=-1).sum())
        odd = np.isinf(latency) | (latency < 0 if value != "one_way" else False)  # clocks have errors
        wrong["value"] += int(odd.any(axis=-1).sum())
        falls = (np.diff(epoch, axis=-1) < 0) & counted[..., 1:]
        wrong["epoch"] += int((((epoch >= 0) != counted).any(axis=-1) | falls.any(axis=-1)).sum())
        bad = (status < NOT_MEASURED) | (status > UNDECIDED) | ((status == NOT_MEASURED) != (n == 0))
        wrong["status"] += int(bad.sum())
    texts = {
        "count": "cells where n is not the number of leading delays",
        "value": "cells with a negative or infinite delay",
        "epoch": "cells whose epochs do not ascend, or are missing for delays",
        "status": "cells whose status is not a known code or does not fit n",
    }
    for what, count in wrong.items():
        if count:
            found.append(Finding(f"net.{what}", f"{count} {texts[what]}", {"cells": count}))
    return found


def _parts(raw: xr.Dataset, limit_bytes: int = 32 << 20) -> Iterator[xr.Dataset]:
    """/raw in pieces of about `limit_bytes` of delays, cut along its chunks: by the measuring rank."""
    axis = "src" if raw["latency"].attrs.get("measured_by") == "src" else "dst"
    wanted = raw[["latency", "epoch", "n", "status"]]
    row_bytes = 8 * raw.sizes["src"] * raw.sizes["size"] * raw.sizes["sample"]
    rows = max(1, limit_bytes // max(1, row_bytes))
    sizes = raw.sizes["size"] if row_bytes <= limit_bytes else 1
    for first in range(0, raw.sizes[axis], rows):
        for k in range(0, raw.sizes["size"], sizes):
            yield wanted.isel({axis: slice(first, first + rows), "size": slice(k, k + sizes)})
