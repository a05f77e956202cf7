"""`sonde data validate`: violations of a dataset's format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from sonde.core import dataset
from sonde.core.errors import DataError, Finding, Warning
from sonde.data import rooms

if TYPE_CHECKING:
    import xarray as xr


def validate(path: Path, values: bool = True, any_size: bool = False) -> list[Finding]:
    """Violations of the rules for every dataset, and of its room's schema. [] for a valid one.

    path: the file. values: also read every value. any_size: accept a file that claims far more values than it can hold.
    A file that cannot be opened as a dataset gives one finding, with the error's code; the hint is its `next`.
    """
    try:
        return dataset.validate(path, room_check(path, any_size), values, any_size)
    except DataError as error:
        return [Finding(error.code, error.what, {"file": str(path)}, error.hint)]


def other_titles(path: Path, any_size: bool = False) -> list[Warning]:
    """Warnings for variables whose titles are not those of this version; [] for a file that cannot be opened."""
    try:
        with dataset.open(path, any_size, any_values=True) as tree:
            return dataset.other_titles(tree)
    except DataError:
        return []


def room_check(path: Path, any_size: bool = False) -> Callable[[xr.DataTree], Iterable[Finding]]:
    """The check of the dataset's room: `validate` of its schema, or an empty one if the schema has none.

    Raises
    ------
    DataError  as `sonde.open`, and data.unknown_room.
    """
    with dataset.open(path, any_size, any_values=True) as tree:
        room, _ = dataset.schema_of(tree)
    check = getattr(rooms.schema(room), "validate", None)
    return check or (lambda tree: ())
