"""The quick form of a room: the request of a survey, and the room's answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sonde.core.errors import Finding
from sonde.core.events import Progress

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.launch.measured import Measured

Bar = Callable[[str, float | None], Progress]


@dataclass(frozen=True)
class Call:
    """The request of a survey to one room.

    folder: for the datasets; the names of a room's datasets begin with its name. launcher, hosts, ntasks, command: as
    the user gave them. budget_s: this room's share, all included, since `began` (time.monotonic). bar: makes the object
    that shows the room's events.
    """

    room: str
    folder: Path
    launcher: str
    hosts: str | None
    ntasks: int | None
    seed: int
    command: tuple[str, ...]
    budget_s: float
    began: float
    bar: Bar

    def progress(self) -> Progress:
        """The object that shows the room's events."""
        return self.bar(f"survey: {self.room}", self.budget_s)


@dataclass(frozen=True)
class Judgement:
    """The verdict on one dataset. line: one sentence. sound: False if too little is known for "no findings" to mean
    much.
    """

    line: str
    findings: Sequence[Finding] = ()
    sound: bool = True


@dataclass(frozen=True)
class Compared:
    """One dataset compared with an earlier one. doubt: the reason why "no findings" says little, "" if it is
    reliable.
    """

    findings: Sequence[Finding] = ()
    doubt: str = ""


class SurveyEntry(ABC):
    """The quick form of a room.

    weight: its share of the time beyond the needs of all rooms. spread: how much slower one run of the same machine may
    be than another, if there are too few baselines to know; inf: unknown.
    """

    weight: float
    spread: float

    @abstractmethod
    def needs_s(self, call: Call) -> float:
        """The time for a result on an ordinary machine, s, at least. It is asked before any room is measured, and must
        answer at once.

        Raises a SondeError if the room cannot run here; `measure` raises the same.
        """

    @abstractmethod
    def measure(self, call: Call) -> Measured:
        """Measure; raise a SondeError if the room cannot run here, which the survey then skips."""

    @abstractmethod
    def judge(self, tree: xr.DataTree, name: str) -> Judgement:
        """The verdict on an open dataset of the room. name: its path, for commands to copy."""

    @abstractmethod
    def compare(self, before: xr.DataTree, now: xr.DataTree, names: tuple[str, str]) -> Compared:
        """Findings about slower results in `now`. names: their paths."""

    def unfit(self, finding: Finding) -> bool:
        """Whether a finding means that the machine could not be judged now, not that it is at fault."""
        return False

    def drains(self, finding: Finding) -> bool:
        """Whether a finding is a reason to take the hosts in its evidence out of service."""
        return False
