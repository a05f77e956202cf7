"""A room's part of the report about one dataset. Rooms fill it; only `sonde.report` lays it out.

    def section(tree: xr.DataTree, dataset: str) -> Section: ...      # sonde/<room>/figures.py, pure

`dataset` is the file's path as the user gave it, for the commands that findings name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sonde.core.errors import Finding, Warning
    from sonde.core.figure import Figure
    from sonde.core.outcome import Table


@dataclass(frozen=True)
class Fact:
    """One important number: its name, the finished text with its unit, and the value to compare it with."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Method:
    """One statistic that was used: its name, its use here in one sentence, and its publication."""

    name: str
    text: str
    source: str = ""


MEDIAN = Method(
    "Median and its interval",
    "The 95 % interval of a median comes from the differences between epochs, not between samples of one burst.",
    "Hettmansperger & Sheather, Statistics & Probability Letters 4, 1986",
)


@dataclass
class Section:
    """One room's part of a report, from one dataset.

    room: "net". title: the measured quantity, e.g. "Latency, one_to_one". verdict: one sentence.
    findings: problems, worst first. facts: the few numbers behind the verdict. tables, figures: in reading order.
    numbers: tables of all measured values, behind the figures and folded. method: statistics used; the report merges
    those of all sections by name. runs: extra rows about the run (name -> finished text), shown under "What ran";
    untold: root attributes that are not shown because they mean nothing here.
    warnings: additions to the warnings that the dataset stores in /warnings.
    doubt: in a few words the reason why "no findings" says little here, "" if it is reliable.
    """

    room: str
    title: str
    verdict: str
    findings: list[Finding] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    numbers: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    method: list[Method] = field(default_factory=list)
    warnings: list[Warning] = field(default_factory=list)
    runs: dict[str, str] = field(default_factory=dict)
    doubt: str = ""
    untold: tuple[str, ...] = ()
