"""Rooms by name: what generic verbs must know of the room whose dataset they are given."""

from __future__ import annotations

import importlib
from typing import cast

from sonde.core.errors import DataError
from sonde.core.seal import RoomSchema


def schema(room: str) -> RoomSchema:
    """The SCHEMA of sonde.<room>.schema.

    Raises
    ------
    DataError  data.unknown_room: this Sonde has no such room.
    """
    try:
        module = importlib.import_module(f"sonde.{room}.schema")
    except ModuleNotFoundError as error:
        if error.name is None or not f"sonde.{room}.schema".startswith(error.name):
            raise
        raise DataError(
            "data.unknown_room",
            f"the dataset is of room '{room}', which this Sonde does not have",
            "use the Sonde that made it, or a newer one: pip install --upgrade sonde-hpc",
        ) from None
    return cast(RoomSchema, module.SCHEMA)
