"""The verdict on a summary: one sentence, warnings and rows. Pure."""

from __future__ import annotations

import math
from typing import Any

import xarray as xr

from sonde.bus.cases import TESTS
from sonde.bus.lessons import finite, law_document, laws, lessons, pair
from sonde.bus.texts import capitalised
from sonde.bus.values import LEAST_EPOCHS, Values
from sonde.core.errors import Warning
from sonde.core.status import DRIFT, mostly_converged, status_counts

ENOUGH = 0.5  # smallest share of cells with an interval for a meaningful verdict


def values(summary: xr.Dataset) -> dict[str, Any]:
    """The numbers of `bus run` and `bus show` for --json."""
    results = Values(summary)
    return {
        **status_counts(results.statuses()),
        "lessons": [
            {name: lesson[name] for name in ("code", "text", "evidence")} for lesson in lessons(results)
        ],
        "laws": [law_document(way, law) for way, law in laws(results)],
        "results": rows(results),
    }


def rows(results: Values) -> list[dict[str, Any]]:
    """One mapping for each series with data: `results` in docs/reference/json.md."""
    out = []
    for value in results.all:
        case, base = value.case, value.base
        out.append(
            {
                "test": case.test,
                "implementation": value.way.implementation,
                "transport": value.way.transport,
                "n": _whole(value.number),
                "size": _whole(case.size),
                "value": value.median,
                "unit": value.unit,
                "ci": pair(value.low, value.high),
                "lost": finite(results.lost(value)),
                "quantity": value.quantity,
                "variant": value.way.name,
                "discovery": value.way.discovery if not value.way.raw else None,
                "treatment": case.treatment or None,
                "p99": finite(value.p99),
                "p99_ci": pair(*value.p99_ends),
                "mean": finite(value.mean),
                "ratio": finite(value.ratio[0]),
                "ratio_ci": pair(*value.ratio[1:]),
                "ratio_to": results.ways[base].name if base >= 0 else None,
                "ratio_to_raw": finite(value.ratio_to_raw[0]),
                "ratio_to_raw_ci": pair(*value.ratio_to_raw[1:]),
                "samples": value.n,
                "absent": value.absent,
                "epochs": value.epochs,
                "drift": value.drifted,
            }
        )
    return out


def _whole(value: int) -> int | None:
    return value if value >= 0 else None


def sentence(summary: xr.Dataset, dataset: str = "FILE", hosts: str = "") -> str:
    """The verdict in one sentence. hosts: the hosts of the run, "" for a single one."""
    results = Values(summary)
    counted = status_counts(results.statuses())
    if not counted["cells"]:
        return "Nothing was measured."
    parts = [lesson["text"] for lesson in lessons(results)[:1]]
    if not mostly_converged(counted):
        few = f"only {counted['converged']}" if counted["converged"] else "none"
        parts.append(f"{few} of {counted['cells']} cells converged: give a longer --budget")
    elif counted["drift"]:
        parts.append(f"{counted['drift']} of {counted['cells']} cells drifted")
    text = "; ".join(parts) or f"{counted['cells']} cells were measured"
    if hosts:
        text = f"between {hosts}: {text}"
    return capitalised(f"{text}.")


def sound(summary: xr.Dataset) -> bool:
    """Whether the verdict has enough data: most cells have an interval."""
    cells = Values(summary).cells()
    known = [value for value in cells if math.isfinite(value.low) and value.epochs >= LEAST_EPOCHS]
    return bool(cells) and len(known) >= ENOUGH * len(cells)


def good(summary: xr.Dataset) -> bool:
    """Whether the verdict needs no second look: it has enough data, and most cells reached the requested precision."""
    return sound(summary) and mostly_converged(status_counts(Values(summary).statuses()))


def doubt(summary: xr.Dataset) -> str:
    """The reason why the numbers are unreliable, in a few words; "" where they are reliable."""
    return "" if sound(summary) else "most cells were measured in too few epochs"


def warnings(summary: xr.Dataset) -> list[Warning]:
    """Warnings for a reader of the numbers, as far as they follow from /summary alone."""
    drifted = [value for value in Values(summary).cells() if value.status == DRIFT]
    if not drifted:
        return []
    named = "; ".join(f"{value.way.name}, {value.case.title}" for value in drifted[:3])
    more = f" and {len(drifted) - 3} more" if len(drifted) > 3 else ""
    return [
        Warning(
            "bus.drift",
            f"the level of {len(drifted)} cell{'s' * (len(drifted) > 1)} drifted during the run: {named}{more}",
            "their intervals hold only for the time of this run; ratios are paired by epoch and are more reliable",
        )
    ]


def titles(results: Values) -> list[str]:
    return [case.title for case in results.cases]


def test_titles(results: Values) -> str:
    """The titles of the tests that were run."""
    return "; ".join(TESTS[test].title for test in results.tests)
