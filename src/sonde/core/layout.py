"""What a room tells `seal` about its records: variables, their layout, the schema that makes a dataset of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sonde.core.blocks import BlockFile
from sonde.core.deadline import Deadline
from sonde.core.errors import Warning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr


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
    """What a room tells `seal` about its records. All methods are pure.

    One whose writers cannot finish their files themselves has besides `close(folder, ended)`: it makes block files in
    a run's folder whole, however often it is called; it returns what the plan gains, and warnings. ended: the run noted
    how. One may have `tables(tree)`, the `described.Tables` of a dataset of its: what it refuses when it is opened.
    """

    room: str
    version: int

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        """Names of the datasets one run becomes; [""] for one, else e.g. one per mode."""

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> Layout:
        """Scans the files once (they can be iterated again) and says what /raw will hold.

        plan: the run's, and `stop_reason`, the root attribute.
        """

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        """Pieces of variables, one file's at a time: name, where, values. Memory: one file's row at most."""

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        """/raw to /summary. `raw` is opened lazily: take it piecewise. Its attrs hold the root attributes.

        What takes long is done in pieces that end by the deadline (None: never), the verdict first; what is left out is
        reported to it.
        """


@dataclass(frozen=True)
class SealedFile:
    """A dataset that `seal` made. complete: whether every requested cell has data."""

    path: Path
    complete: bool
    warnings: list[Warning]
