"""The report as a model: its content and order, not its appearance. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sonde.core.errors import Finding, Warning
from sonde.core.section import Method, Section
from sonde.report import scale

__all__ = ["Report", "anchors", "evidence", "merge_machines", "merge_methods", "verdict_of"]

# SI suffixes of bare numbers (`period_s`), and the unit each stands for
SUFFIXES = {
    "_per_s": "/s",
    "_s": "s",
    "_b": "B",
    "_bytes": "B",
    "_hz": "Hz",
    "_w": "W",
    "_j": "J",
    "_pct": "%",
}


@dataclass
class Report:
    """One report, top to bottom: title, verdict, runs and machine, sections, warnings, method.

    runs: one mapping of name -> text per dataset. machine: name -> text. created_utc, generated_by: for the foot.
    measured_utc: the begin of the runs. told_by: (code, evidence) of a warning -> names of its datasets, if it does not
    concern all of them.
    """

    title: str
    verdict: str
    sections: list[Section] = field(default_factory=list)
    machine: Mapping[str, str] = field(default_factory=dict)
    runs: list[Mapping[str, str]] = field(default_factory=list)
    warnings: list[Warning] = field(default_factory=list)
    method: list[Method] = field(default_factory=list)
    generated_by: str = ""
    created_utc: str = ""
    measured_utc: str = ""
    told_by: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)

    @property
    def findings(self) -> list[Finding]:
        return [f for s in self.sections for f in s.findings]

    @property
    def doubt(self) -> str:
        """The reason why "no findings" says little, in a few words; "" if it is reliable."""
        doubts = list(dict.fromkeys(s.doubt for s in self.sections if s.doubt))
        return "; ".join(doubts[:2])


def verdict_of(sections: Sequence[Section]) -> str:
    """The report's one sentence: the verdict of the only section, or the number of findings and their places."""
    if not sections:
        return "Nothing was measured."
    if len(sections) == 1:
        return sections[0].verdict
    struck = [s for s in sections if s.findings]
    if not struck:
        doubted = sum(bool(s.doubt) for s in sections)
        if not doubted:
            return f"No findings in {len(sections)} datasets."
        where = f"{doubted} of {len(sections)} datasets" if doubted < len(sections) else "them"
        return f"No findings in {len(sections)} datasets, but too little is known in {where} to be sure."
    n = sum(len(s.findings) for s in struck)
    titles = list(dict.fromkeys(s.title for s in struck))
    return f"{n} finding{'s' if n > 1 else ''} in {len(struck)} of {len(sections)} datasets: {'; '.join(titles)}."


@dataclass(frozen=True)
class WarningGroup:
    """Warnings of one code and hint: the text of each, with the names of its datasets; `more` of them are not shown."""

    code: str
    hint: str
    said: list[tuple[str, str]]
    more: int = 0

    def as_one(self) -> Warning:
        """The group as one warning, for the terminal and JSON."""
        texts = [f"{text} ({names})" if names else text for names, text in self.said]
        shown = "; ".join(texts)
        if self.more:
            shown = f"{len(texts) + self.more} of one kind: {shown}; and {self.more} more"
        return Warning(self.code, shown, self.hint)


EXAMPLES = 3  # number of warnings of one kind that are shown


def group_warnings(report: Report) -> list[WarningGroup]:
    """Warnings of one kind together, in order of first occurrence."""
    kinds: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for warning in report.warnings:
        names = ", ".join(report.told_by.get((warning.code, warning.evidence), ()))
        kinds.setdefault((warning.code, warning.hint), []).append((names, warning.evidence))
    return [
        WarningGroup(code, hint, texts[:EXAMPLES], max(0, len(texts) - EXAMPLES))
        for (code, hint), texts in kinds.items()
    ]


def split_runs(runs: Sequence[Mapping[str, str]]) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The common part of all runs, and the rest of each; with one run everything is common."""
    if len(runs) < 2:
        return dict(runs[0]) if runs else {}, []
    names = list(dict.fromkeys(name for run in runs for name in run))
    common = {k: runs[0][k] for k in names if all(run.get(k) == runs[0].get(k, "") for run in runs)}
    rest = [k for k in names if k not in common]
    return common, [{k: run.get(k, "–") for k in rest} for run in runs]


def anchors(sections: Sequence[Section]) -> list[str]:
    """A unique, stable HTML id per section: the room's name, then room-2, room-3 …"""
    seen: dict[str, int] = {}
    ids = []
    for section in sections:
        base = slug(section.room) or "section"
        seen[base] = seen.get(base, 0) + 1
        ids.append(base if seen[base] == 1 else f"{base}-{seen[base]}")
    return ids


def slug(text: str) -> str:
    """Lower-case letters, digits and hyphens only: suitable for an id and a file name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def evidence(finding: Finding) -> list[tuple[str, str]]:
    """Evidence as (name, text): a key's SI suffix becomes the unit of its value."""
    texts = []
    for key, value in finding.evidence.items():
        name, unit = key, "B" if key in ("size", "sizes") else ""
        for suffix, known in SUFFIXES.items():
            if key.lower().endswith(suffix) and len(key) > len(suffix):
                name, unit = key[: -len(suffix)], known
                break
        texts.append((name.replace("_", " "), _told(value, unit)))
    return texts


def _told(value: Any, unit: str) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {_told(v, unit)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        if len(value) == 2 and all(isinstance(v, (int, float)) for v in value):
            return " to ".join(_told(v, unit) for v in value)
        shown = [_told(v, unit) for v in value[:12]]
        return ", ".join(shown) + (f" and {len(value) - 12} more" if len(value) > 12 else "")
    return "–" if value is None else scale.quantity(value, unit)


def merge_methods(lists: Iterable[Iterable[Method]]) -> list[Method]:
    """Methods of all sections, without duplicates, in order of first occurrence."""
    merged: dict[str, Method] = {}
    for methods in lists:
        for method in methods:
            merged.setdefault(method.name, method)
    return list(merged.values())


def merge_machines(machines: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """One description from one per dataset. Values that differ are shown with their dataset.

    machines: dataset -> (name -> text).
    """
    names = list(dict.fromkeys(k for m in machines.values() for k in m))
    merged = {}
    for name in names:
        texts = {dataset: m[name] for dataset, m in machines.items() if name in m}
        different = list(dict.fromkeys(texts.values()))
        if len(different) == 1:
            merged[name] = different[0]
        else:
            merged[name] = "; ".join(
                f"{text} ({', '.join(d for d, t in texts.items() if t == text)})" for text in different
            )
    return merged
