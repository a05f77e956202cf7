"""Sonde: see, steer and swap the layers between a parallel application and the hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    import xarray as xr

__version__ = "0.1.0"


def open(path: str | PathLike[str], any_size: bool = False) -> xr.DataTree:
    """Open a dataset as an xarray DataTree, lazily. See `sonde.core.dataset.open`."""
    from sonde.core import dataset  # heavy: only when a dataset is opened

    return dataset.open(path, any_size)
