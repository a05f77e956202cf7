"""The result of one room's part of a survey."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonde.core.errors import Finding, Warning


@dataclass
class RoomResult:
    """One room's part of a survey. skipped: the reason why it did not run, or ""; lines: its few lines for the
    terminal.
    """

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
    comparable: bool = True  # False: "no findings" against the earlier survey means nothing either
    suspects: list[Finding] = field(default_factory=list)  # worse than before, but not findings yet, or never
    others: float = (
        0.0  # share of the processors' time that other programs used, on the host where it was largest
    )
    others_host: str = ""  # that host, if the room reports shares of hosts; "": this one
    seconds: float = 0.0  # duration of the measurement
    baselines: int = 0  # number of baselines with this room

    def as_json(self) -> dict[str, Any]:
        return {
            "room": self.room,
            "verdict": self.verdict,
            "findings": [finding.as_json() for finding in self.findings],
            "suspects": [finding.as_json() for finding in self.suspects],
            "dataset": [str(path) for path in self.datasets],
            "skipped": self.skipped or None,
            "others": self.others,
            "others_host": self.others_host or None,
        }
