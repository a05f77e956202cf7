"""What the survey of one room came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonde.core.errors import Finding, Warning


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
