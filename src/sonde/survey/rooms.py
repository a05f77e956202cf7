"""Rooms that a survey visits, and what each visit came to. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonde.core.errors import Finding, Warning

ROOMS = ("net",)  # a room has a module `survey` in its folder: sonde.<room>.survey.visit


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

    def as_json(self) -> dict[str, Any]:
        return {
            "room": self.room,
            "verdict": self.verdict,
            "findings": [finding.as_json() for finding in self.findings],
            "dataset": [str(path) for path in self.datasets],
            "skipped": self.skipped or None,
        }
