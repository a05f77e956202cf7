"""Data of figures from the values of a run: lines over a number, bars, ratios. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from sonde.bus import lessons
from sonde.bus.cases import Case
from sonde.bus.texts import capitalised
from sonde.bus.values import Value, Values, Way
from sonde.core.figure import Axis, Figure, Kind, Slider
from sonde.core.units import format_size

SERIES_POINTS = ("series", "point")
QUANTITY = "quantity"  # label of most sliders
WORDS = {
    "rtt": "round trip",
    "publish": "publish: the call of write()",
    "one_way": "one way, one sample per subscriber",
    "first": "until the first subscriber receives it",
    "last": "until the last subscriber receives it",
    "cycles": "cycles of a publish",
    "instructions": "instructions of a publish",
    "datagrams": "datagrams",
    "wire_bytes": "bytes on the wire",
    "cpu": "processor time of all programs",
    "time_to_match": "time until all match",
    "make_cycles": "cycles to create a participant",
    "make_instructions": "instructions to create a participant",
    "message_rate": "messages a second to each subscriber",
    "byte_rate": "bytes a second to each subscriber",
    "publish_rate": "publishes a second",
    "call_rate": "calls a second",
}
MEDIANS = "Medians, with 95 % intervals if there are at least six epochs"
Number = Callable[[Case], float]


def lines_over(
    groups: Mapping[str, Sequence[Value]],
    number: Number,
    series_of: Callable[[Value], str],
    slider: str,
    more: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]] | None = None,
) -> xr.Dataset | None:
    """Data of a SCATTER: one line over a number for each series, with intervals at its points.

    groups: the values for each position of the slider. more: lines of a formula, by name, then by position: x, y.
    """
    names = list(dict.fromkeys(series_of(value) for values in groups.values() for value in values))
    numbers = sorted({number(value.case) for values in groups.values() for value in values})
    if not names or len(numbers) < 2:
        return None
    shape = (len(names), len(numbers), len(groups))
    y, low, high = (np.full(shape, np.nan) for _ in range(3))
    for k, values in enumerate(groups.values()):
        for value in values:
            where = (names.index(series_of(value)), numbers.index(number(value.case)), k)
            y[where], (low[where], high[where]) = value.median, value.ends
    raw = {series_of(v): v.way.raw for values in groups.values() for v in values}
    tone = np.array([int(raw[name]) for name in names])
    hue = np.arange(len(names))
    x = np.tile(np.array(numbers, float)[None, :, None], (len(names), 1, len(groups)))
    nothing = np.full(shape, np.nan)
    parts: dict[str, list[Any]] = {
        "x": [x, x],
        "y": [y, np.where(tone[:, None, None] == 1, np.nan, y)],
        "low": [nothing, low],
        "high": [nothing, high],
        "style": ["line"] * len(names) + ["points"] * len(names),
        "hue": [*hue, *hue],
        "tone": [*tone, *tone],
        "key": [name if t else "line as a guide to the eye" for name, t in zip(names, tone)]
        + [""] * len(names),
        "series": [*(f"{name}, joined" for name in names), *names],
    }
    for j, (name, by_group) in enumerate((more or {}).items()):
        _add_formula(parts, name, by_group, list(groups), len(numbers), len(names) + j)
    widest = max(part.shape[1] for part in parts["x"])
    dims = ("series", "point", "position")
    data = {
        key: (dims, np.concatenate([_padded(part, widest) for part in parts[key]]))
        for key in ("x", "y", "low", "high")
    }
    return xr.Dataset(
        {
            **data,
            **{key: ("series", np.array(parts[key])) for key in ("style", "hue", "tone", "key")},
        },
        coords={"series": parts["series"], "position": list(groups)},
        attrs={"slider": slider},
    )


def _add_formula(
    parts: dict[str, list[Any]],
    name: str,
    by_group: Mapping[str, tuple[np.ndarray, np.ndarray]],
    groups: Sequence[str],
    points: int,
    hue: int,
) -> None:
    longest = max([points, *(len(x) for x, _ in by_group.values())])
    x, y = (np.full((1, longest, len(groups)), np.nan) for _ in range(2))
    for k, group in enumerate(groups):
        if group in by_group:
            own_x, own_y = by_group[group]
            x[0, : len(own_x), k], y[0, : len(own_y), k] = own_x, own_y
    nothing = np.full_like(y, np.nan)
    for key, part in (("x", x), ("y", y), ("low", nothing), ("high", nothing)):
        parts[key].append(part)
    for key, value in (("style", "dashed"), ("hue", hue), ("tone", 0), ("key", "laws"), ("series", name)):
        parts[key].append(value)


def _padded(part: np.ndarray, length: int) -> np.ndarray:
    room = np.full((part.shape[0], length, part.shape[2]), np.nan)
    room[:, : part.shape[1]] = part
    return room


def scatter(
    id_: str, title: str, caption: str, data: xr.Dataset | None, x: Axis, y: Axis, slider: str
) -> Figure | None:
    if data is None:
        return None
    controls = (Slider("position", slider),)
    return Figure(id_, title, caption, Kind.SCATTER, data, {"x": x, "y": y}, controls)


def by_quantity(
    results: Values, test: str, quantities: Sequence[str], **numbers: Any
) -> dict[str, list[Value]]:
    """The values of a test by the label of their quantity, without quantities that were not measured."""
    found = {WORDS[name]: results.find(test, name, **numbers) for name in quantities}
    return {name: values for name, values in found.items() if values}


def paragraphs(results: Values, caption: str, *codes: str) -> str:
    """A caption, followed by one paragraph for each lesson with these codes."""
    texts = [
        lesson["text"]
        for lesson in lessons.merged_lessons(lessons.lessons(results))
        if lesson["code"].removeprefix("bus.") in codes
    ]
    return "\n".join([caption, *(f"{capitalised(text)}." for text in texts)])


def raw_keys(ways: Sequence[Way]) -> dict[str, tuple[str, list[Any]]]:
    """The tone and the key of each variant: raw transports are pale and have their own keys."""
    return {
        "tone": ("series", [int(way.raw) for way in ways]),
        "key": ("series", [way.name if way.raw else "" for way in ways]),
    }


def ratio_matrix(
    id_: str,
    title: str,
    caption: str,
    ratios: Mapping[tuple[int, str], tuple[float, float, float]],
    what: str,
) -> Figure | None:
    """Ratios with their intervals, by size and variant."""
    if not ratios:
        return None
    sizes, ways = sorted({size for size, _ in ratios}), list(dict.fromkeys(name for _, name in ratios))
    names = ("value", "low", "high")
    results = {name: np.full((len(sizes), len(ways)), np.nan) for name in names}
    for (size, way), numbers in ratios.items():
        for name, number in zip(names, numbers):
            results[name][sizes.index(size), ways.index(way)] = number
    words = {"value": what, "low": "95 % from", "high": "95 % to"}
    return Figure(
        id_,
        title,
        caption,
        Kind.MATRIX,
        xr.Dataset(
            {
                name: (("row", "col"), values, {"long_name": words[name], "units": "1"})
                for name, values in results.items()
            },
            coords={"row": [format_size(size, exact=True) for size in sizes], "col": ways},
        ),
        {"row": Axis("Size"), "col": Axis("Variant"), "value": Axis(what, log=True, centre=1.0)},
    )


def bars_of(
    cells: Mapping[str, Mapping[tuple[str, str], tuple[float, float, float]]],
) -> xr.Dataset:
    """Data of a BAR: for each position of the slider, the values with intervals by (bar, series)."""
    bars = list(dict.fromkeys(bar for group in cells.values() for bar, _ in group))
    series = list(dict.fromkeys(name for group in cells.values() for _, name in group))
    shape = (len(bars), len(series), len(cells))
    arrays = {name: np.full(shape, np.nan) for name in ("y", "low", "high")}
    for k, group in enumerate(cells.values()):
        for (bar, name), numbers in group.items():
            for key, number in zip(("y", "low", "high"), numbers):
                arrays[key][bars.index(bar), series.index(name), k] = number
    dims = ("bar", "series", "position")
    return xr.Dataset(
        {name: (dims, values) for name, values in arrays.items()},
        coords={"bar": bars, "series": series, "position": list(cells)},
    )


def median_and_ends(value: Value) -> tuple[float, float, float]:
    return value.median, *value.ends
