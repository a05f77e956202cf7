"""From block files to a dataset, streaming. `recover` is the same on what a kill -9 left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    import xarray as xr

    from sonde.core.blocks import BlockFile
    from sonde.core.errors import Warning


@dataclass(frozen=True)
class Variable:
    """One variable of /raw: dims by name, numpy dtype ("<f8", or "str"), attributes, chunk lengths by dim."""

    dims: tuple[str, ...]
    dtype: str
    attrs: Mapping[str, Any]
    fill: float | int | None = None
    chunks: tuple[int, ...] | None = None


@dataclass
class Layout:
    """What /raw will hold: lengths of dims, coordinate values, variables, root attributes it adds."""

    dims: dict[str, int]
    coords: dict[str, tuple[Any, Mapping[str, Any]]]  # values, attributes
    variables: dict[str, Variable]
    attrs: dict[str, Any] = field(default_factory=dict)
    complete: bool = True  # False when a requested cell has no data
    warnings: list[Warning] = field(default_factory=list)


class RoomSchema(Protocol):
    """What a room tells `seal` about its records. All methods are pure."""

    room: str
    version: int

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        """Names of the datasets one run becomes; [""] for one, else e.g. one per mode."""

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> Layout:
        """Scans the files once (they can be iterated again) and says what /raw will hold."""

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        """Pieces of variables, one file's at a time: name, where, values. Memory is bounded by one file's row."""

    def analyse(self, raw: xr.Dataset) -> xr.Dataset:
        """/raw to /summary. `raw` is opened lazily: take it piecewise."""
