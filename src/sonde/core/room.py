"""The interface of a room to the modules above the rooms, and the list of rooms.

To add a room: create its folder `src/sonde/<room>/` with a `room.py` whose ROOM is a Room, and add its name to NAMES.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, cast

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.diagnosis import Check
    from sonde.core.layout import RoomSchema
    from sonde.core.section import Section
    from sonde.core.survey_entry import SurveyEntry

NAMES = ("net", "noise", "io", "store", "bus", "power")
"""All rooms, in the order in which they are shown and measured."""


@dataclass(frozen=True)
class RunFiles:
    """The files that a room's programs create in a run's folder, next to run.json, the log and block files.

    Only these files are removed when the run is saved: all others belong to a user. Each is a regular expression of
    whole paths below the run's folder, such as "server-0/data.mdb"; "" for none.

    files: files. folders: folders, which are removed if they are empty then. runs: folders that are runs' folders too.
    """

    files: str = ""
    folders: str = ""
    runs: str = ""


class Room(ABC):
    """One question that Sonde answers, and the places of its parts. Its commands are `group` of its `cli.py`.

    A room's module imports only this module; slow imports happen inside the methods.

    name: the name of its folder, its commands and its datasets' schema. title: of its part of a report. help: its line
    in `sonde --help`. version: the newest schema of its datasets that this Sonde reads.

    For `sonde doctor`, names of checks: any_of: at least one must be good, such as one MPI. all_of: all must be good.
    asks: checks whose missing parts are shown next to the room.

    silent: root attributes that describe the run and not the machine, and that the room's section of a report explains.
    differing: root attributes that differ between two runs of one kind on one machine.
    closer: its command that compares two datasets in more detail than `sonde data diff`.
    run_files: what its programs create in the folder of a run.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    help: ClassVar[str]
    version: ClassVar[int] = 1
    any_of: ClassVar[tuple[str, ...]] = ()
    all_of: ClassVar[tuple[str, ...]] = ()
    asks: ClassVar[tuple[str, ...]] = ()
    silent: ClassVar[frozenset[str]] = frozenset()
    differing: ClassVar[frozenset[str]] = frozenset()
    closer: ClassVar[str] = "diff"
    run_files: ClassVar[RunFiles] = RunFiles()

    @abstractmethod
    def schema(self) -> RoomSchema:
        """The layout of its datasets, and their sealing, analysis and validation."""

    @abstractmethod
    def section(self, tree: xr.DataTree, dataset: str) -> Section:
        """Its part of a report about an open dataset. dataset: the file's path, for commands to copy."""

    @abstractmethod
    def survey_entry(self) -> SurveyEntry:
        """Its quick form, for `sonde survey` and `sonde check`."""

    def checks(self) -> Sequence[Check]:
        """Its checks for `sonde doctor`."""
        return ()


def room(name: str) -> Room:
    """A room of NAMES."""
    return cast("Room", import_module(f"sonde.{name}.room").ROOM)


def rooms() -> list[Room]:
    """All rooms, in order."""
    return [room(name) for name in NAMES]


def find_room(name: str) -> Room | None:
    """A room by an unchecked name; None if this Sonde has no such room."""
    return room(name) if name in NAMES else None
