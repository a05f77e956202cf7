"""The plan of a run of the bus: from options to a command line of sonde-busprobe. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sonde.bus.cases import PAUSE, STEADY, Case
from sonde.bus.variants import Variant, transports
from sonde.core import hostlist
from sonde.core.errors import Warning
from sonde.core.rules import check_rule
from sonde.core.units import format_duration

EPOCHS = 8  # epochs that a plan should have time for; the interval of a ratio needs six
SELDOM = {"discovery": 2}  # epochs of slow tests
FEWEST_CASES = 2
BURST_S = (0.02, 0.2)
RESERVE_S, RESERVE_SHARE, RESERVE_CELL_S, RESERVE_MOST = 1.5, 0.05, 0.004, 0.4


@dataclass(frozen=True)
class Host:
    """A host on which programs run. start: the command that starts a program there; (): this host."""

    name: str
    start: tuple[str, ...] = ()


def step_s(case: Case, burst_s: float = BURST_S[0]) -> float:
    """Estimated time of one step, a case on a variant, on an ordinary machine, s."""
    match case.test:
        case "fanout":
            return burst_s + 0.05 + 0.01 * case.subscribers
        case "throughput":
            return burst_s + 0.2 + 0.01 * case.subscribers
        case "partitions":
            return burst_s + 0.05 + 0.002 * case.entities
        case "discovery":
            return 2.5 + 0.1 * case.entities
        case "first-message":
            return 0.4 if case.treatment.startswith((STEADY, PAUSE)) else 1.2
        case "calls":
            return burst_s + 0.1 + 0.02 * case.entities
    return burst_s + 0.02


def _epochs(case: Case) -> int:
    return SELDOM.get(case.test, EPOCHS)


def measuring_s(left_s: float, cells: int) -> float:
    """The time for measuring this number of cells if `left_s` of the budget remain, s."""
    reserve = RESERVE_S + RESERVE_SHARE * left_s + RESERVE_CELL_S * cells
    return max(0.5, left_s - min(reserve, RESERVE_MOST * left_s))


def fitting(cases: Sequence[Case], variants: Sequence[Variant], time_s: float) -> list[Case]:
    """The cases that fit into `time_s` of measuring, in order; cases that take too long are skipped."""
    chosen: list[Case] = []
    left_s = time_s
    for case in cases:
        need_s = _epochs(case) * step_s(case) * sum(variant.takes(case) for variant in variants)
        first = sum(other.test == case.test for other in chosen) < FEWEST_CASES
        if need_s <= left_s or first:
            chosen.append(case)
            left_s -= need_s
    return chosen


@dataclass(frozen=True)
class Plan:
    """Everything that determines what is measured, in which order, and when it ends.

    hosts: where programs run; (): only this host. launcher: starts them there. interfaces: those between hosts;
    (): those of the routes to the other hosts. left_out: cases without enough time. notes: warnings for the user who
    starts the run, which are not stored.
    """

    variants: tuple[Variant, ...]
    cases: tuple[Case, ...]
    rule: str = "ci:2%"
    seed: int = 1
    cap: int = 100_000
    epoch_length: int = 50
    hosts: tuple[Host, ...] = ()
    launcher: str = "local"
    interfaces: tuple[str, ...] = ()
    left_out: tuple[Case, ...] = ()
    notes: tuple[Warning, ...] = ()

    def __post_init__(self) -> None:
        check_rule(self.rule)

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(case.test for case in self.cases))

    @property
    def hostlist(self) -> str:
        """The folded host list; "" for only this host."""
        return hostlist.listed([host.name for host in self.hosts])

    @property
    def cells(self) -> int:
        return sum(variant.takes(case) for variant in self.variants for case in self.cases)

    def measuring_s(self, left_s: float) -> float:
        """The time for measuring if `left_s` of the budget remain; the rest is for sealing and analysis."""
        return measuring_s(left_s, self.cells)

    def burst_s(self, time_s: float) -> float:
        """The longest burst with which each cell gets EPOCHS bursts in `time_s`."""
        if time_s <= 0:
            return BURST_S[1]
        return min(max(time_s / (2 * EPOCHS * max(1, self.cells)), BURST_S[0]), BURST_S[1])

    def argv(self, run_dir: str, time_s: float) -> list[str]:
        """The arguments of sonde-busprobe, without its name. time_s: the time for measuring."""
        words = [
            "run",
            "--dir",
            run_dir,
            "--rule",
            self.rule,
            "--seed",
            str(self.seed),
            "--cap",
            str(self.cap),
        ]
        words += ["--epoch-length", str(self.epoch_length), "--burst-s", f"{self.burst_s(time_s):.6g}"]
        words += ["--budget-s", f"{time_s:.6g}"]
        return [*words, *self.cells_argv()]

    def cells_argv(self) -> list[str]:
        """The arguments that are also valid for `check`: hosts, variants and cases."""
        words = []
        for host in self.hosts:
            words += ["--host", host.name, *(part for word in host.start for part in ("--start", word))]
        words += ["--interfaces", ",".join(self.interfaces)] if self.interfaces else []
        words += [word for variant in self.variants for word in ("--variant", variant.spec)]
        return [*words, *(word for case in self.cases for word in ("--case", case.spec))]

    def document(self) -> dict[str, Any]:
        """The plan as stored in run.json and read by `BusSchema.layout`."""
        return {
            "variants": [
                {
                    "name": v.name,
                    "implementation": v.implementation,
                    "transport": v.transport,
                    "options": v.options,
                    "tests": list(v.tests),
                    "asked": v.asked,
                    "without": [case.spec for case in self.cases if not v.takes(case)],
                }
                for v in self.variants
            ],
            "cases": [case.document() for case in self.cases],
            "epoch_length": self.epoch_length,
        }

    def labels(self) -> dict[str, Any]:
        """The root attributes of this room."""
        where = {"hostlist": self.hostlist, "launcher": self.launcher} if self.hosts else {}
        return where | {
            "rule": self.rule,
            "epoch_length": self.epoch_length,
            "tests": ", ".join(self.tests),
            "transport": transports((v.implementation, v.transport) for v in self.variants),
        }

    def warnings(self) -> list[Warning]:
        """Warnings for a reader of the result, as far as they follow from the plan alone."""
        if not self.left_out:
            return []
        tests = ", ".join(dict.fromkeys(case.test for case in self.left_out))
        return [
            Warning(
                "bus.cases_postponed",
                f"the budget is too short for {len(self.left_out)} of {len(self.left_out) + len(self.cases)} cases "
                f"({tests})",
                f"give --budget {self.full_budget_s():.0f}s for all cases, or name fewer numbers",
            )
        ]

    def full_budget_s(self) -> float:
        """A budget that is enough for all cases, including those left out, s."""
        cases = (*self.cases, *self.left_out)
        need = sum(_epochs(case) * step_s(case) for v in self.variants for case in cases if v.takes(case))
        need += RESERVE_CELL_S * len(self.variants) * len(cases) + RESERVE_S + 2
        return 5 * math.ceil(need / (1 - RESERVE_SHARE) / 5)

    def rows(self, time_s: float) -> list[tuple[str, str]]:
        """The rows of a dry run."""
        return [
            ("tests", ", ".join(self.tests)),
            ("variants", ", ".join(variant.name for variant in self.variants)),
            ("cases", str(len(self.cases))),
            ("cells", str(self.cells)),
            ("rule", self.rule),
            *((("hosts", f"{self.hostlist}, by {self.launcher}"),) if self.hosts else ()),
            ("measuring", format_duration(time_s)),
        ]
