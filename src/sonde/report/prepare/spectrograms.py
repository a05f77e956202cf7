"""SPECTROGRAM as a Field of powers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sonde.core.figure import Figure
from sonde.report import scale, thin
from sonde.report.prepare import limits
from sonde.report.prepare.frames import at_frame
from sonde.report.prepare.quantities import Quantity, axis_of, positions, quantity_of
from sonde.report.prepare.requirements import check


@dataclass(frozen=True)
class Field:
    x: Quantity
    y: Quantity
    power: Quantity
    xs: np.ndarray
    ys: np.ndarray
    frames: list[np.ndarray]  # (x, frequency), shown units
    notes: list[str]


def spectrogram(figure: Figure) -> Field:
    """SPECTROGRAM, reduced to tiles that show their largest power."""
    check(figure)
    frames, notes, shape = [], [], (1, 1)
    xs = ys = np.empty(0)
    tiles = limits.TILES if len(figure.controls) == 0 else tuple(max(40, t // 2) for t in limits.TILES)
    for f in at_frame(figure):
        power = np.asarray(f["power"].transpose("x", "frequency").values, float)
        if axis_of(figure, "power").log:
            power = np.where(power > 0, power, np.nan)
        reduced, r, c = thin.maxima(power, *tiles)
        shape = (r, c)
        xs = positions(f, "x", power.shape[0])
        ys = positions(f, "frequency", power.shape[1])
        frames.append(reduced)
    n_x, n_y = xs.size, ys.size
    x = quantity_of(axis_of(figure, "x"), xs)
    y = quantity_of(axis_of(figure, "frequency"), ys)
    power_q = quantity_of(axis_of(figure, "power"), np.concatenate([f.ravel() for f in frames]))
    if shape != (1, 1):
        notes.append(
            f"{scale.number(n_x)} × {scale.number(n_y)} powers are drawn as tiles of "
            f"{shape[0]} × {shape[1]}; each tile shows its largest power."
        )
        xs, ys = xs[:: shape[0]], ys[:: shape[1]]
    return Field(x, y, power_q, xs * x.factor, ys * y.factor, [f * power_q.factor for f in frames], notes)
