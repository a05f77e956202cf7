"""A room's description of its records for `seal`: variables, their layout, the schema that makes a dataset of them."""

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
    """The content of /raw: lengths of dims, coordinate values, variables, root attributes that it adds."""

    dims: dict[str, int]
    coords: dict[str, tuple[Any, Mapping[str, Any]]]  # values, attributes
    variables: dict[str, Variable]
    attrs: dict[str, Any] = field(default_factory=dict)
    complete: bool = True  # False when a requested cell has no data
    warnings: list[Warning] = field(default_factory=list)


class RoomSchema(Protocol):
    """A room's description of its records for `seal`. All methods are pure.

    A room whose writers cannot finish their files themselves also has `close(folder, ended)`. It completes block files
    in a run's folder, and may be called more than once; it returns additions to the plan, and warnings. ended: whether
    the run recorded how it ended. A room may have `tables(tree)`: the `described.Tables` of its dataset, by which a
    dataset is refused at opening.
    """

    room: str
    version: int

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        """Names of the datasets that one run becomes; [""] for one, otherwise e.g. one per mode."""

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> Layout:
        """Scan the files once (they can be iterated again) and describe the content of /raw.

        plan: the run's plan, and `stop_reason`, the root attribute.
        """

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        """Pieces of variables, one file at a time: name, where, values. Memory: at most one file's row."""

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        """Compute /summary from /raw. `raw` is opened lazily: read it piecewise. Its attrs hold the root attributes.

        Long work is done in pieces that end by the deadline (None: never), the verdict first; parts that are left out
        are reported to it.
        """


@dataclass(frozen=True)
class SealedFile:
    """A dataset that `seal` wrote. complete: whether every requested cell has data."""

    path: Path
    complete: bool
    warnings: list[Warning]
