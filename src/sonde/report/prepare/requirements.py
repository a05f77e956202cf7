"""The variables and dims that each kind of figure requires."""

from __future__ import annotations

import numpy as np

from sonde.core.errors import DataError
from sonde.core.figure import Figure, Kind
from sonde.report.prepare.quantities import axis_of

REQUIRED: dict[Kind, dict[str, tuple[str, ...]]] = {
    Kind.MATRIX: {"value": ("row", "col")},
    Kind.STATUS: {"value": ("row", "col")},
    Kind.SERIES: {"y": ("series", "x")},
    Kind.SPECTROGRAM: {"power": ("x", "frequency")},
    Kind.CDF: {"x": ("series", "point"), "p": ("series", "point")},
    Kind.DENDROGRAM: {"merge": ("link", "merge")},
    Kind.SCATTER: {"x": ("series", "point"), "y": ("series", "point")},
    Kind.BAR: {"y": ("bar",)},
    Kind.ICICLE: {"parent": ("node",), "value": ("node",), "label": ("node",)},
    Kind.STACK: {"y": ("part", "x")},
}


def check(figure: Figure) -> None:
    """Refuse a figure whose data does not fit its kind.

    Raises
    ------
    DataError  report.figure_data: a variable or dim is missing or superfluous; the text names the required ones.
    """

    def bad(what: str) -> DataError:
        needs = ", ".join(f"{v}({', '.join(d)})" for v, d in REQUIRED[figure.kind].items())
        return DataError(
            "report.figure_data",
            f"figure '{figure.id}' ({figure.kind.value}): {what}; "
            f"allowed: {needs} and the dims of its controls",
            "see sonde.core.figure.Kind",
        )

    moved = [c.dim for c in figure.controls]
    for dim in moved:
        if dim not in figure.data.dims:
            raise bad(f"its control moves along '{dim}', which is not in the data")
        if figure.data.sizes[dim] == 0:
            raise bad(f"its control moves along '{dim}', which is empty")
    for name, dims in REQUIRED[figure.kind].items():
        if name not in figure.data:
            raise bad(f"variable '{name}' is missing")
        have = [d for d in figure.data[name].dims if d not in moved]
        if figure.kind is Kind.DENDROGRAM:
            if len(have) != 2 or have[0] != "link" or figure.data[name].shape[-1] != 4:
                raise bad(f"'{name}' has dims {tuple(have)}")
        elif figure.kind is Kind.BAR:
            if have not in (["bar"], ["bar", "series"], ["series", "bar"]):
                raise bad(f"'{name}' has dims {tuple(have)}")
        elif sorted(map(str, have)) != sorted(dims) and not (name in ("x", "p") and have == ["point"]):
            raise bad(f"'{name}' has dims {tuple(have)}")
    if figure.kind is Kind.ICICLE:
        parent = np.asarray(figure.data["parent"].values)
        if (
            parent.ndim != 1
            or np.count_nonzero(parent < 0) != 1
            or parent.max() >= parent.size
            or _circles(parent)
        ):
            raise bad("its nodes do not form a tree with one root")
    if figure.kind is Kind.STACK and "x" not in figure.data.coords:
        raise bad("its coordinate 'x' is missing")
    if figure.kind is Kind.STATUS and not axis_of(figure, "value").labels:
        raise bad('axes["value"].labels, the names of its codes, are missing')


def _circles(parent: np.ndarray) -> bool:
    """Whether the parents form a loop."""
    around = parent.copy()
    for _ in range(parent.size.bit_length()):
        around = np.where(around >= 0, around[around], -1)
    return bool((around >= 0).any())
