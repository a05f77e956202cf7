"""`sonde data validate`: what a dataset breaks of what its format promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from sonde.core import dataset
from sonde.core.errors import DataError, Finding
from sonde.data import rooms

if TYPE_CHECKING:
    import xarray as xr


def validate(path: Path, values: bool = True, any_size: bool = False) -> list[Finding]:
    """Violations of what every dataset promises, and of what its room's schema does. [] for a sound one.

    path: the file. values: also read every value. any_size: also of a file that claims far more values than it can
    hold. A file that does not open as a dataset is one finding, with
    the error's code; the hint is its `next`.
    """
    try:
        return dataset.validate(path, room_check(path, any_size), values, any_size)
    except DataError as error:
        return [Finding(error.code, error.what, {"file": str(path)}, error.hint)]


def room_check(path: Path, any_size: bool = False) -> Callable[[xr.DataTree], Iterable[Finding]]:
    """What the dataset's room checks: `validate` of its schema, or nothing where the schema has none.

    Raises
    ------
    DataError  as `sonde.open`, and data.unknown_room.
    """
    with dataset.open(path, any_size, any_values=True) as tree:
        room, _ = dataset.schema_of(tree)
    check = getattr(rooms.schema(room), "validate", None)
    return check or (lambda tree: ())
