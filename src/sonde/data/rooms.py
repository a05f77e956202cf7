"""Rooms by name: what generic verbs need from the room of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from sonde.core import dataset
from sonde.core.errors import DataError
from sonde.core.layout import RoomSchema

if TYPE_CHECKING:
    import xarray as xr


def schema(room: str) -> RoomSchema:
    """The schema of a room.

    Raises
    ------
    DataError  data.unknown_room: this Sonde has no such room.
    """
    found = dataset.room_schema(room)
    if found is None:
        raise DataError(
            "data.unknown_room",
            f"the dataset belongs to the room '{room}', which this Sonde does not have",
            "use the version of Sonde that wrote it, or a newer one",
        )
    return found


def leading_dims(tree: xr.DataTree) -> Sequence[tuple[str, ...]]:
    """Dims of the most informative tables of a dataset's /summary, as its room names them; [] if it names none."""
    try:
        dims_of = getattr(schema(dataset.schema_of(tree)[0]), "leading_dims", None)
    except DataError:  # a room of another Sonde: its numbers can still be read
        return []
    return cast("Sequence[tuple[str, ...]]", dims_of(tree)) if dims_of is not None else []
