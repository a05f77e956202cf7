"""Controls of a figure, and its data at each combination of their positions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sonde.core.errors import DataError
from sonde.core.figure import Figure
from sonde.report import scale
from sonde.report.prepare.quantities import capital

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Control:
    """A slider: dim, label, the text of every position, its start, whether the positions are numbers."""

    dim: str
    label: str
    positions: tuple[str, ...]
    start: int
    numeric: bool


def controls(figure: Figure) -> list[Control]:
    """The figure's sliders with the text of every position."""
    sliders = []
    for slider in figure.controls:
        n = figure.data.sizes[slider.dim]
        if slider.dim in figure.data.coords:
            coordinate = figure.data[slider.dim]
            unit = slider.unit or str(coordinate.attrs.get("units", ""))
            numeric = coordinate.dtype.kind in "iuf"
            texts = [scale.quantity(v, unit) if numeric else str(v) for v in coordinate.values]
        else:
            numeric, texts = True, [str(k) for k in range(n)]
        sliders.append(
            Control(
                slider.dim, capital(slider.label), tuple(texts), min(max(slider.start, 0), n - 1), numeric
            )
        )
    return sliders


def at_frame(figure: Figure) -> Iterator[xr.Dataset]:
    """The data at every combination of control positions, the last control running fastest."""
    moved = [c.dim for c in figure.controls]
    for where in itertools.product(*(range(figure.data.sizes[d]) for d in moved)):
        yield figure.data.isel(dict(zip(moved, where)))


def start_frame(figure: Figure) -> int:
    """The index of the frame at the start positions of all controls."""
    index = 0
    for control in controls(figure):
        index = index * len(control.positions) + control.start
    return index


def at(figure: Figure, where: Mapping[str, str]) -> Figure:
    """The figure with its controls starting at named positions.

    where: dim -> text of the position, or the coordinate's bare value ("1024" for 1 KiB). Dims that the figure does not
    have are ignored.

    Raises
    ------
    DataError  report.no_such_position: lists the valid positions.
    """
    sliders = []
    for slider, control in zip(figure.controls, controls(figure)):
        if (wanted := where.get(slider.dim)) is not None:
            plain = (
                [str(v) for v in figure.data[slider.dim].values] if slider.dim in figure.data.coords else []
            )
            texts = [p.replace("\u00a0", " ").replace("\u2009", "") for p in control.positions]
            found = [k for k, t in enumerate(texts) if wanted in (t, t.replace(" ", ""))]
            found += [k for k, t in enumerate(plain) if t == wanted]
            if not found:
                raise DataError(
                    "report.no_such_position",
                    f"figure '{figure.id}' has no {slider.dim} '{wanted}'; allowed: {', '.join(texts[:12])}"
                    + (" …" if len(texts) > 12 else ""),
                )
            slider = replace(slider, start=found[0])
        sliders.append(slider)
    return replace(figure, controls=tuple(sliders))
