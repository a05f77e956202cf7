"""Rooms by name: what generic verbs must know of the room whose dataset they are given."""

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
            f"the dataset is of room '{room}', which this Sonde does not have",
            "use the Sonde that made it, or a newer one",
        )
    return found


def leading_dims(tree: xr.DataTree) -> Sequence[tuple[str, ...]]:
    """Dims of the tables that say most of a dataset's /summary, by the word of its room; [] where it has none."""
    try:
        told = getattr(schema(dataset.schema_of(tree)[0]), "leading_dims", None)
    except DataError:  # a room of another Sonde: its numbers can be had all the same
        return []
    return cast("Sequence[tuple[str, ...]]", told(tree)) if told is not None else []
