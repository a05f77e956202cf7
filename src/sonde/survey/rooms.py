"""Rooms that a survey visits, how it asks each of them, and what each visit came to.

To add a room: a module `sonde.survey.visit_<room>` with a VISIT that has the methods of `Visit`, and its name
in ROOMS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from sonde.core import hostlist
from sonde.core.errors import Finding, Warning
from sonde.core.events import Progress

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.launch.session import Measured
    from sonde.core.launch.start import Start

ROOMS = ("net", "noise", "io", "store", "bus", "power")

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

    def start(self, program: str) -> Start:
        """How the room's ranks are started.

        Raises
        ------
        EnvironmentFailure  <room>.no_mpi, <room>.no_probe.
        """
        from sonde.core.launch.start import prepare

        return prepare(self.room, program, self.launcher, hostlist.expand(self.hosts) if self.hosts else ())

    @property
    def ranks(self) -> int:
        """Ranks asked for, or as many as there are by default."""
        from sonde.core.launch.start import default_ntasks

        return default_ntasks() if self.ntasks is None else self.ntasks

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


class Visit(Protocol):
    """The quick form of a room.

    weight: its share of the time that is beyond what all rooms need. spread: how many times as slow as another a run of
    the same machine may be, where too few baselines show that; inf: nobody knows.
    """

    weight: float
    spread: float

    def needs_s(self, call: Call) -> float:
        """What a result takes at least on an ordinary machine, s; asked before any room is visited, and quick to say.

        Raises a SondeError where the room cannot run here; `measure` raises the same.
        """

    def measure(self, call: Call) -> Measured:
        """Measures; raises a SondeError where the room cannot run here, which the survey then skips."""

    def judge(self, tree: xr.DataTree, name: str) -> Judgement:
        """What an open dataset of the room says. name: its path, for commands to copy."""

    def compare(self, before: xr.DataTree, now: xr.DataTree, names: tuple[str, str]) -> Compared:
        """What is worse in `now`. names: their paths."""

    def unfit(self, finding: Finding) -> bool:
        """Whether a finding says that the machine could not be judged now, and not that it is at fault."""

    def drains(self, finding: Finding) -> bool:
        """Whether a finding is a reason to take the hosts that its evidence names out of service."""


def visit(room: str) -> Visit:
    """How a survey visits a room of ROOMS."""
    return cast(Visit, import_module(f"sonde.survey.visit_{room}").VISIT)


@dataclass
class RoomResult:
    """One room's part of a survey. skipped: why it did not run, or ""; lines: its few words for the terminal."""

    room: str
    verdict: str = ""
    datasets: list[Path] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    warnings: list[Warning] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    skipped: str = ""
    hint: str = ""
    complete: bool = True
    interrupted: bool = False
    sound: bool = True  # False: too little is known for "no findings" to mean much
    comparable: bool = True  # False: nor does finding nothing beside the earlier survey
    suspects: list[Finding] = field(
        default_factory=list
    )  # worse than before, and not a finding yet, or never
    others: float = 0.0  # share of the processors' time that other programs took meanwhile
    seconds: float = 0.0  # that measuring took
    baselines: int = 0  # that have this room

    def as_json(self) -> dict[str, Any]:
        return {
            "room": self.room,
            "verdict": self.verdict,
            "findings": [finding.as_json() for finding in self.findings],
            "suspects": [finding.as_json() for finding in self.suspects],
            "dataset": [str(path) for path in self.datasets],
            "skipped": self.skipped or None,
            "others": self.others,
        }
