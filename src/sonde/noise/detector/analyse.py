"""From /raw of a noise run to its /summary: verdicts, size of the effect, smallest detectable burst. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from sonde.core import stats
from sonde.core.deadline import Deadline
from sonde.core.described import variables
from sonde.noise.detector.block_numbers import Numbers, counts_of, finite_median, numbers_of, reader
from sonde.noise.detector.histogram import quantiles
from sonde.noise.detector.scale import SCALES
from sonde.noise.detector.source_rule import SOURCE_LEVEL
from sonde.noise.detector.summary import OF_CASE, SUMMARY
from sonde.noise.detector.variant import results_of
from sonde.noise.detector.wake import CELLS

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999)
# Root attributes that /summary repeats.
COPIED = (
    "op",
    "size",
    "alpha",
    "matters",
    "period_s",
    "block_s",
    "study",
    "rounds",
    "shares",
    "variant_sources",
    "variant_periods_s",
    "agent",
    "oversubscribed",
    "crowded_kernel",
    "grain_s",
)


def analyse(raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
    """The complete /summary of a noise run.

    Parameters
    ----------
    raw : /raw in the layout of `sonde.noise.detector.schema`; its attrs are the root attributes
    deadline : the analysis ends by it: first the verdict, then the smallest detectable burst, from coarse to fine

    Returns
    -------
    Dataset over variant (all but "off"), block, quantile, scale, cell: `summary.SUMMARY`.
    """
    attrs = raw.attrs
    numbers = numbers_of(raw)
    names = [str(name) for name in np.atleast_1d(raw["variant_name"].values)]
    known: dict[float, dict[str, float]] = {}
    time = deadline or Deadline()
    rows = [
        results_of(raw, numbers, variant, known, time.part(1 / (len(names) - variant)))
        for variant in range(1, len(names))
    ]
    data: dict[str, Any] = {key: [row[key] for row in rows] for key in (rows[0] if rows else ())}
    if rows:
        data["p_adjusted"] = adjusted = holm([row["p"] for row in rows])
        data["detected"] = np.array([p <= float(attrs["alpha"]) for p in adjusted], "i1")
    off = numbers.variant == 0
    data |= {
        "block_variant": numbers.variant.astype("i4"),
        "block_segment": numbers.segment.astype("i4"),
        "block_begin": numbers.begin,
        "block_length": numbers.length,
        "block_mean": numbers.mean,
        "block_median": numbers.median,
        "block_lost": numbers.lost,
        "clean_iteration": finite_median(numbers.median[off]),
        "clean_lost": finite_median(numbers.lost[off]),
    }
    edges = np.asarray(raw["class_edge"].values)[reader(raw)]
    counts = counts_of(raw)
    by_case = np.array([counts[numbers.variant == v].sum(0) for v in range(len(names))])
    data["quantile_s"] = quantiles(by_case, edges, QUANTILES)
    data |= case_means(numbers, len(names))
    data |= {
        name: float(np.nanmedian(raw[name].values))
        for name in ("keeping_share", "keeping_low", "keeping_high")
    }
    coords = {
        "variant": names[1:],
        "case": names,
        "quantile": QUANTILES,
        "scale": SCALES,
        "cell": (np.arange(CELLS) + 0.5) / CELLS,
    }
    summary = xr.Dataset(variables(SUMMARY, data), coords=variables(SUMMARY, coords))
    summary.attrs |= {key: attrs[key] for key in COPIED if key in attrs}
    summary.attrs["ranks"] = int(raw.sizes["rank"])
    return summary


def case_means(numbers: Numbers, cases: int) -> dict[str, np.ndarray]:
    """Mean time of an iteration over the blocks of each variant, its spread, and its 99 % interval; "off" is first."""
    rows = []
    for case in range(cases):
        y = numbers.mean[(numbers.variant == case) & np.isfinite(numbers.mean)]
        found, ci = stats.summarise(y), stats.mean_ci(y, SOURCE_LEVEL)
        rows.append((found.mean, found.sd, y.size, ci.low, ci.high))
    table = np.array(rows, dtype=float).reshape(cases, 5)
    return dict(zip(OF_CASE, table.T))


def holm(p: list[float]) -> list[float]:
    """Holm's adjustment of p-values, in their order. Source: Holm 1979."""
    order = sorted(range(len(p)), key=p.__getitem__)
    out, most = [0.0] * len(p), 0.0
    for place, k in enumerate(order):
        most = max(most, min(1.0, (len(p) - place) * p[k]))
        out[k] = most
    return out
