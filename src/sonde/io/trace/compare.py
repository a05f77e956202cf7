"""Compare two traces: what took longer, and what was done differently. Pure.

One run of each does not show how much such runs vary, so a warning goes with the times. Calls, requests and bytes are
counts, and a difference in them is real."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.errors import DataError, Finding, Warning
from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_share, format_size
from sonde.io.trace.verdict import BESIDE, traced_s

if TYPE_CHECKING:
    import xarray as xr

LEAST_SHARE = 0.05  # of the traced time of either: the time of smaller layers and functions is not reported
FUNCTIONS_SHOWN = 12

ONCE = Warning(
    "io.one_run_each",
    "one run of each was compared, so the variation between such runs is unknown",
    "trace each several times, and first compare the traces of one with each other",
)


def check_kinds(a: str, b: str) -> None:
    """Raise an error if one is a trace and the other a study. DataError  io.not_comparable."""
    if a != b:
        raise DataError(
            "io.not_comparable",
            f"the first dataset is a {a}, the second a {b}",
            "compare two traces, or two studies",
        )


def of_layers(summary: xr.Dataset) -> dict[str, dict[str, float]]:
    """Title, own time, calls, requests and bytes of each called layer, by its name."""
    found = {}
    calls = summary["calls"].values.sum(axis=0)
    layer_of = summary["function_layer"].values
    for k, name in enumerate(summary["layer_name"].values):
        count = int(calls[layer_of == k].sum())
        if count and name not in BESIDE:
            found[str(name)] = {
                "self_s": float(summary["layer_self_time"].values[:, k].sum()),
                "calls": count,
                "requests": int(summary["requests"].values[:, k].sum()),
                "bytes": int(summary["request_bytes"].values[:, k].sum()),
            }
    return found


def of_functions(summary: xr.Dataset) -> dict[tuple[str, str], dict[str, float]]:
    """Own time, calls and bytes of each function, by layer and name, summed over all libraries that define it."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    layers = summary["layer_name"].values[summary["function_layer"].values]
    sums = {
        "self_s": summary["self_time"].values.sum(axis=0),
        "calls": summary["calls"].values.sum(axis=0),
        "bytes": summary["bytes"].values.sum(axis=0),
    }
    for k, name in enumerate(summary["function_name"].values):
        if layers[k] not in BESIDE:
            one = found.setdefault((str(layers[k]), str(name)), dict.fromkeys(sums, 0.0))
            for what, values in sums.items():
                one[what] += float(values[k])
    return found


def findings(a: xr.Dataset, b: xr.Dataset, matters: float) -> list[Finding]:
    """Layers in which B spends more time than A, by more than `matters` of A's and a relevant share of the run; and
    layers with other requests, by more than `matters` in number or bytes."""
    titles = {str(n): str(t) for s in (a, b) for n, t in zip(s["layer_name"].values, s["layer_title"].values)}
    layers = of_layers(a), of_layers(b)
    total = max(traced_s(a), traced_s(b))
    found = []
    for name in dict.fromkeys((*layers[0], *layers[1])):
        before, after = (
            of.get(name, {"self_s": 0.0, "calls": 0, "requests": 0, "bytes": 0}) for of in layers
        )
        more = after["self_s"] - before["self_s"]
        if more > matters * before["self_s"] and more > LEAST_SHARE * total:
            ratio = after["self_s"] / before["self_s"] if before["self_s"] else float("inf")
            found.append(
                Finding(
                    "io.slower",
                    f"{titles[name]} takes {format_duration(after['self_s'])} instead of "
                    f"{format_duration(before['self_s'])}"
                    + (
                        f", {ratio:.3g} times as long"
                        if np.isfinite(ratio)
                        else ", and was not called before"
                    ),
                    {"layer": name, "before_s": before["self_s"], "after_s": after["self_s"]},
                    "",
                )
            )
        if before["requests"] and after["requests"] and _differs(before, after, matters):
            sizes = [format_size(round(one["bytes"] / one["requests"])) for one in (before, after)]
            found.append(
                Finding(
                    "io.other_requests",
                    f"{titles[name]} gets {after['requests']:.0f} requests of {sizes[1]} on average instead of "
                    f"{before['requests']:.0f} of {sizes[0]}",
                    {
                        "layer": name,
                        "before": before["requests"],
                        "after": after["requests"],
                        "bytes_before": before["bytes"],
                        "bytes_after": after["bytes"],
                    },
                    "",
                )
            )
    return found


def _differs(before: dict[str, float], after: dict[str, float], matters: float) -> bool:
    """Whether the number of requests, or their bytes, changed by more than `matters`."""
    return any(abs(after[what] - before[what]) > matters * before[what] for what in ("requests", "bytes"))


def sentence(a: xr.Dataset, b: xr.Dataset) -> str:
    """The time that each run spent in traced calls."""
    before, after = traced_s(a), traced_s(b)
    if before <= 0 or after <= 0:
        return f"{format_duration(after)} in traced calls instead of {format_duration(before)}"
    change = after / before - 1
    word = "longer" if change > 0 else "less"
    return (
        f"{format_duration(after)} in traced calls instead of {format_duration(before)}: "
        f"{format_share(abs(change))} {word}"
    )


def tables(a: xr.Dataset, b: xr.Dataset) -> list[Table]:
    """A table of layers side by side, and one of the functions whose time differs most."""
    titles = {str(n): str(t) for s in (a, b) for n, t in zip(s["layer_name"].values, s["layer_title"].values)}
    layers, functions = (of_layers(a), of_layers(b)), (of_functions(a), of_functions(b))
    rows = [
        (titles[name], *(_time(of.get(name)) for of in layers), _ratio(*(of.get(name) for of in layers)),
         *(_count(of.get(name), "calls") for of in layers))
        for name in dict.fromkeys((*layers[0], *layers[1]))
    ]  # fmt: skip
    keys = list(dict.fromkeys((*functions[0], *functions[1])))
    moved = {key: abs(_self(functions[1].get(key)) - _self(functions[0].get(key))) for key in keys}
    most = sorted(keys, key=lambda key: -moved[key])[:FUNCTIONS_SHOWN]
    function_rows = [
        (key[1], key[0], *(_time(of.get(key)) for of in functions), _ratio(*(of.get(key) for of in functions)),
         *(_count(of.get(key), "calls") for of in functions))
        for key in most
    ]  # fmt: skip
    return [
        Table(
            "Time in each layer itself",
            ("layer", "A", "B", "B/A", "calls A", "calls B"),
            rows,
            right=(1, 2, 3, 4, 5),
        ),
        Table(
            "Functions whose time differs most",
            ("function", "layer", "A", "B", "B/A", "calls A", "calls B"),
            function_rows,
            right=(2, 3, 4, 5, 6),
        ),
    ]


def values(a: xr.Dataset, b: xr.Dataset) -> dict[str, Any]:
    """The comparison as data."""
    layers = of_layers(a), of_layers(b)
    return {
        "traced_s": {"a": traced_s(a), "b": traced_s(b)},
        "layers": [
            {"layer": name, "a": layers[0].get(name), "b": layers[1].get(name)}
            for name in dict.fromkeys((*layers[0], *layers[1]))
        ],
    }


def _self(one: dict[str, float] | None) -> float:
    return one["self_s"] if one else 0.0


def _time(one: dict[str, float] | None) -> str:
    return format_duration(one["self_s"]) if one else "–"


def _count(one: dict[str, float] | None, what: str) -> str:
    return f"{one[what]:.0f}" if one else "–"


def _ratio(before: dict[str, float] | None, after: dict[str, float] | None) -> str:
    return f"{_self(after) / _self(before):.2f}" if _self(before) > 0 and after else "–"
