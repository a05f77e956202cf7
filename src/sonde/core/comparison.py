"""One run compared with another, cell by cell. Pure: medians and their errors in, differences out.

Two medians differ if their difference passes Benjamini and Hochberg's step over all compared cells (1995), with p from
the normal law on log medians, *and* is more than `matters`. Without the second condition a busy machine would give
differences that matter to nobody in every run. Each room defines its cells, which of them drifted, and the text of its
findings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sonde.core.errors import Exit, Finding, Warning
from sonde.core.outcome import Outcome, Table

BLUNT = 1.0  # a test that misses larger changes says nothing: twice as slow is noticed without a tool
LEVEL = 0.05  # false-discovery level
MATTERS = 0.05  # smaller relative differences are not reported
MOST_FINDINGS = 20

# No clock and no model is better than this: the smallest error of a log median that a test uses.
LEAST_ERROR = 0.002

Machines = tuple[Mapping[str, Any], Mapping[str, Any]]

# Attributes that may explain a difference; times, counters and names differ between any two runs.
_MACHINE = (
    "kernel", "governor", "cpufreq_driver", "turbo", "clock_source", "microcode", "bios", "cpu", "cores",
    "threads_per_core", "smt", "infiniband", "network", "virtualised", "transparent_hugepages", "numa_balancing",
    "mitigations", "hostlist",
)  # fmt: skip


@dataclass(frozen=True)
class Cells:
    """Run B compared with run A, by cell; arrays have the shape of the cells.

    ratio : B over A; NaN if the two were not compared
    q : p, corrected for the number of cells; NaN if not compared
    slower, faster : bool, cells of B that differ
    drifted : number of cells left out because their level moved in either run
    median_ratio : over all compared cells; NaN without any
    detectable : the relative difference of a median cell that is detected with 80 % power; NaN without any
    """

    ratio: np.ndarray
    q: np.ndarray
    slower: np.ndarray
    faster: np.ndarray
    drifted: int
    median_ratio: float
    detectable: float

    @property
    def compared(self) -> np.ndarray:
        compared: np.ndarray = np.isfinite(self.ratio)
        return compared


def compare(
    x: np.ndarray, y: np.ndarray, error: np.ndarray, drifted: np.ndarray, matters: float = MATTERS
) -> Cells:
    """The cells of run B that differ from those of run A.

    Parameters
    ----------
    x, y : medians of A and B, s, of one shape; only cells that are finite and above zero in both are compared
    error : standard errors of log(y / x); NaN: not compared
    drifted : bool, cells whose level moved in either run: their interval holds only for its own time
    matters : the largest relative difference that is not reported

    Source: Benjamini and Hochberg 1995.
    """
    from scipy import stats as sps  # slow to import: only when runs are compared

    both = np.isfinite(x) & np.isfinite(y) & np.isfinite(error)
    both[both] = (x[both] > 0) & (y[both] > 0)
    left_out = both & drifted
    both &= ~drifted
    ratio, q = np.full(x.shape, np.nan), np.full(x.shape, np.nan)
    different = np.zeros(x.shape, bool)
    middle = detectable = float("nan")
    if both.any():
        ratio[both] = y[both] / x[both]
        log_ratio = np.log(ratio[both])
        q[both] = sps.false_discovery_control(2 * sps.norm.sf(np.abs(log_ratio) / error[both]))
        different[both] = (q[both] <= LEVEL) & (np.abs(log_ratio) > np.log1p(matters))
        middle = float(np.median(ratio[both]))
        # 80 % power at the first step of the correction, which a single different cell must pass.
        cut = sps.norm.isf(LEVEL / int(both.sum()) / 2) + sps.norm.isf(0.2)
        detectable = float(np.expm1(cut * np.median(error[both])))
    slower, faster = different & (ratio > 1), different & (ratio < 1)
    return Cells(ratio, q, slower, faster, int(left_out.sum()), middle, detectable)


@dataclass(frozen=True)
class Difference:
    """The difference of two runs: a room's findings and table, and the numbers of `Cells` behind them."""

    findings: list[Finding]
    table: Table
    cells: int
    slower: int
    faster: int
    drifted: int
    median_ratio: float
    detectable: float
    warnings: list[Warning]

    @classmethod
    def of(
        cls, cells: Cells, findings: list[Finding], table: Table, warnings: Sequence[Warning] = ()
    ) -> Difference:
        n, slower, faster = (int(mask.sum()) for mask in (cells.compared, cells.slower, cells.faster))
        return cls(
            findings,
            table,
            n,
            slower,
            faster,
            cells.drifted,
            cells.median_ratio,
            cells.detectable,
            [*warnings],
        )

    def sentence(self, b: str) -> str:
        """The result in one sentence. b: the name of the later run."""
        if not self.cells:
            return f"no cell could be compared: {self.drifted} drifted"
        found = f"smallest detectable change {self.detectable:.1%}"
        if self.blunt:
            found = "the runs are too short or too unsteady: not even a cell that is twice as slow is detectable, "
            found += "only a much larger change"
        return (
            f"{self.slower} of {self.cells} cells are slower in {b}, {self.faster} faster; "
            f"median ratio {self.median_ratio:.3f} ({found})"
        )

    @property
    def blunt(self) -> bool:
        """Whether "no findings" says nothing: no cell could be compared, or only a very large change was detectable."""
        return not self.detectable <= BLUNT

    def values(self) -> dict[str, Any]:
        """The same for JSON, which has no NaN: None if no cell was compared."""
        return {
            "cells": self.cells,
            "drifted": self.drifted,
            "slower": self.slower,
            "faster": self.faster,
            "median_ratio": self.median_ratio if self.cells else None,
            "detectable": self.detectable if self.cells else None,
        }

    def outcome(self, room: str, verb: str, b: Path) -> Outcome:
        """The result of `diff`. b: the file of the later run."""
        return Outcome(
            room,
            verb,
            self.sentence(str(b)),
            schema=f"{room}/1",
            dataset=str(b),
            findings=self.findings,
            warnings=self.warnings,
            tables=[self.table],
            values=self.values(),
            sound=not self.blunt,
            exit=self.exit(self.findings),
        )

    def exit(self, findings: Sequence[Finding]) -> Exit:
        """The exit code with these findings; a `check` may have more than the comparison's own."""
        if findings:
            return Exit.FINDING
        return Exit.INCOMPLETE if self.blunt else Exit.DONE


def changed(machines: Machines | None, also: Sequence[str] = ()) -> dict[str, str]:
    """Possible reasons for a difference: name -> "before → after" for each attribute that differs between the machines.

    machines : root attributes of both datasets; None: unknown, which gives {}
    also : further attributes that the room wants compared
    """
    if machines is None:
        return {}
    a, b = machines
    return {
        name: f"{a[name]} → {b[name]}"
        for name in (*_MACHINE, *also)
        if name in a and name in b and a[name] != b[name]
    }


def cut_short(found: Sequence[Finding], what: str, hint: str) -> list[Finding]:
    """The first MOST_FINDINGS, and one that counts the rest.

    what : the rest in words: "links are slower in b.nc". hint : the command that shows all of them
    """
    if len(found) <= MOST_FINDINGS:
        return list(found)
    rest = len(found) - MOST_FINDINGS
    more = Finding(found[0].code, f"{rest} more {what}", {"more": rest}, hint)
    return [*found[:MOST_FINDINGS], more]
