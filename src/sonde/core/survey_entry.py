"""The quick form of a room: what a survey asks of it, and what it answers."""

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
    """What a survey asks of one room.

    folder: for the datasets; those of a room begin with its name. launcher, hosts, ntasks, command: as the
    user gave them. budget_s: this room's share, all included, since `began` (time.monotonic). bar: makes what
    shows the room's events.
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
        """What shows the room's events."""
        return self.bar(f"survey: {self.room}", self.budget_s)


@dataclass(frozen=True)
class Judgement:
    """What one dataset says. line: one sentence. sound: False: too little is known for "no findings" to mean much."""

    line: str
    findings: Sequence[Finding] = ()
    sound: bool = True


@dataclass(frozen=True)
class Compared:
    """What one dataset says beside an earlier one. doubt: why finding nothing says little, "" where it is sound."""

    findings: Sequence[Finding] = ()
    doubt: str = ""


class SurveyEntry(ABC):
    """The quick form of a room.

    weight: its share of the time that is beyond what all rooms need. spread: how many times as slow as another a run of
    the same machine may be, where too few baselines show that; inf: nobody knows.
    """

    weight: float
    spread: float

    @abstractmethod
    def needs_s(self, call: Call) -> float:
        """The time that a result takes at least on an ordinary machine, s. It is asked before any room is measured, and
        answers at once.

        Raises a SondeError where the room cannot run here; `measure` raises the same.
        """

    @abstractmethod
    def measure(self, call: Call) -> Measured:
        """Measures; raises a SondeError where the room cannot run here, which the survey then skips."""

    @abstractmethod
    def judge(self, tree: xr.DataTree, name: str) -> Judgement:
        """The verdict on an open dataset of the room. name: its path, for commands to copy."""

    @abstractmethod
    def compare(self, before: xr.DataTree, now: xr.DataTree, names: tuple[str, str]) -> Compared:
        """Findings about what is worse in `now`. names: their paths."""

    def unfit(self, finding: Finding) -> bool:
        """Whether a finding says that the machine could not be judged now, and not that it is at fault."""
        return False

    def drains(self, finding: Finding) -> bool:
        """Whether a finding is a reason to take the hosts that its evidence names out of service."""
        return False
