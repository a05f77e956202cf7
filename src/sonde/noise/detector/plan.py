"""The plan of a run of sonde-noise, before anything starts. Pure: from the options to a design and a command line."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sonde import _core
from sonde.core.errors import UsageError, Warning
from sonde.core.units import format_duration, format_share
from sonde.noise.agents.recipes import AgentPlan

OPS = ("alltoall", "barrier", "allreduce", "bcast", "reduce", "allgather", "halo")
NO_SIZE = ("barrier",)  # operations without a message

# The periods to fold at when the agent's period is unknown. Those that fit into a block are tried.
COMMON_PERIODS_S = (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0)
KNOWN_WEIGHT, SCAN_WEIGHT = 0.8, 0.5  # share of alpha for the fold

LOOK_PAIRS = (8, 13, 20, 40, 80, 160, 320)  # pairs of blocks after which there is a look
FIRST_SPEND = 0.4
MIN_PAIRS = 6  # fewer pairs cannot reach alpha 1 %: 1 / C(12, 6) is the least p of six pairs
FRESH_ROUNDS = 10  # pairs after a detection
MIN_PERMUTATIONS = 1999

RUN_FOLDER = "@RUN_FOLDER@"  # stands for the run's folder in an agent's command, quoted for the shell

SHORTEST_BLOCK_S = 1.0
SETTLE_S = 0.05
# Parts of a budget. START_S: starting Python, MPI and the agent, and calibrating. END_S and END_SHARE: sealing and
# analysis, which ends by the deadline with the results it has. TOGGLE_S: switching the agent in each block.
START_S, END_S, END_SHARE, TOGGLE_S = 3.5, 3.0, 0.05, 0.02
# The additional share when the period is unknown. The last look folds at many periods; it comes after the last block,
# and native/noise/detector/run.cpp ends it after a twentieth of the budget. Then comes the search for the smallest
# detectable burst.
SCAN_SHARE = 0.15


def level_text(share: float) -> str:
    """A level as people write it: "1 %", "0.05 %"."""
    return format_share(share, 6, trim=True)


@dataclass(frozen=True)
class Variant:
    """The agent that is on in some blocks. agent: None for nothing. cpus: CPUs it may use; empty for all.

    level: level of the noise source, a share; NaN for any other agent. share: number of its blocks in a round.
    period_s: its period; 0: that of the plan. sources: noise sources of that level on each node.
    """

    name: str
    agent: AgentPlan | None = None
    cpus: tuple[int, ...] = ()
    level: float = math.nan
    share: int = 1
    period_s: float = 0.0
    sources: int = 1


OFF = Variant("off")


@dataclass(frozen=True)
class Design:
    """The blocks of a run: rounds of each segment, the share of alpha of the look after each, periods to fold at."""

    rounds: tuple[int, ...]
    spend: tuple[float, ...]
    block_s: float
    settle_s: float = SETTLE_S
    periods_s: tuple[float, ...] = ()
    fold_weight: float = KNOWN_WEIGHT

    @property
    def pairs(self) -> int:
        return sum(self.rounds)


@dataclass(frozen=True)
class Plan:
    """All settings that decide what a run measures and how it is judged.

    variants: the first is OFF. fresh_rounds: pairs after a detection; 0 when variants are compared, because such a run
    has no early end. matters: the slowdown that counts, a share. grain_s: the time that an application computes
    between two collectives, for the model of scale.
    """

    variants: tuple[Variant, ...]
    design: Design
    ntasks: int
    op: str = "alltoall"
    size: int = 1024
    alpha: float = 0.01
    matters: float = 0.001
    grain_s: float = 0.001
    seed: int = 1
    fresh_rounds: int = FRESH_ROUNDS
    poll: bool = False
    keep: bool = False
    every: int = 0
    period_s: float = 0.0
    forward: bool = False
    study: str = "run"
    labels: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.ntasks < 2:
            raise UsageError(
                "noise.too_few_ranks",
                f"a collective needs at least two ranks, but --ntasks is {self.ntasks}",
                "give --ntasks 2 or more",
            )
        if self.op not in OPS:
            raise UsageError(
                "noise.unknown_op", f"there is no operation '{self.op}'; there are: {', '.join(OPS)}", ""
            )

    @property
    def sequential(self) -> bool:
        """Whether the run has interim looks and may end early."""
        return len(self.variants) == 2

    @property
    def permutations(self) -> int:
        """The number of permutations: the least p is an eighth of the smallest share of alpha of a look."""
        if not self.design.spend:
            return MIN_PERMUTATIONS
        wanted = 8 / (self.alpha * min(self.design.spend))
        return min(99999, max(MIN_PERMUTATIONS, math.ceil(wanted)))

    @property
    def shares(self) -> tuple[int, ...]:
        return tuple(variant.share for variant in self.variants)

    @property
    def blocks(self) -> int:
        """The number of planned blocks, without those after a detection."""
        return self.design.pairs * sum(self.shares)

    @property
    def expected_s(self) -> float:
        """The time to measure all blocks, s."""
        return self.blocks * pitch(self.design.block_s, self.design.settle_s)

    def argv(self, run_dir: str, budget_s: float) -> list[str]:
        """The arguments of sonde-noise. budget_s: time that the measurement may take; 0: no limit."""
        design = self.design
        options = {
            "--dir": run_dir,
            "--op": self.op,
            "--size": str(self.size),
            "--block-s": f"{design.block_s:.9g}",
            "--settle-s": f"{design.settle_s:.9g}",
            "--rounds": ",".join(map(str, design.rounds)),
            "--alpha": f"{self.alpha:.9g}",
            "--seed": str(self.seed),
            "--budget-s": f"{budget_s:.6g}",
            "--fold-weight": f"{design.fold_weight:.9g}",
            "--permutations": str(self.permutations),
            "--every": str(self.every),
            "--poll": "yes" if self.poll else "no",
            "--keep": "yes" if self.keep else "no",
            "--forward": "yes" if self.forward else "no",
        }
        if design.periods_s:
            options["--periods"] = ",".join(f"{period:.9g}" for period in design.periods_s)
        if self.sequential:
            options["--spend"] = ",".join(f"{share:.9g}" for share in design.spend)
            options["--fresh-rounds"] = str(self.fresh_rounds)
        line = [word for pair in options.items() for word in pair]
        for variant in self.variants:
            line += ["--variant", variant.name, "--share", str(variant.share)]
            if variant.agent is not None:
                command = variant.agent.command.replace(RUN_FOLDER, shlex.quote(run_dir))
                line += replace(variant.agent, command=command).argv()
            if variant.cpus:
                line += ["--cpus", ",".join(map(str, variant.cpus))]
        return line

    def attrs(self) -> dict[str, Any]:
        """The root attributes of the dataset: all settings that are needed to judge it again."""
        design = self.design
        return {
            "kind": "run",
            "study": self.study,
            "op": self.op,
            "size": self.size,
            "block_s": design.block_s,
            "settle_s": design.settle_s,
            "rounds": list(design.rounds),
            "spend": list(design.spend),
            "periods_s": list(design.periods_s),
            "fold_weight": design.fold_weight,
            "permutations": self.permutations,
            "shares": list(self.shares),
            "fresh_rounds": self.fresh_rounds if self.sequential else 0,
            "period_s": self.period_s,
            "alpha": self.alpha,
            "matters": self.matters,
            "grain_s": self.grain_s,
            "polled": int(self.poll),
            "agent": next((v.agent.name or v.agent.command for v in self.variants if v.agent), "none"),
            "levels": [variant.level for variant in self.variants],
            "variant_periods_s": [variant.period_s or self.period_s for variant in self.variants],
            "variant_sources": [variant.sources for variant in self.variants],
            "placements": [",".join(map(str, v.cpus)) or "anywhere" for v in self.variants],
            **self.labels,
        }

    def document(self) -> dict[str, Any]:
        """The plan in the form that run.json stores."""
        return {
            "kind": "run",
            "ranks": self.ntasks,
            "blocks": [list(block) for block in _core.noise_plan(self.shares, self.design.rounds, self.seed)],
            "variants": [variant.name for variant in self.variants],
            "attrs": self.attrs(),
        }

    def warnings(self) -> list[Warning]:
        """The warnings that follow from the plan alone."""
        out = []
        if self.op in NO_SIZE and self.size not in (0, 1024):
            out.append(
                Warning(
                    "noise.size_unused", f"{self.op} sends no message; --size {self.size} has no effect", ""
                )
            )
        return out


def pitch(block_s: float, settle_s: float = SETTLE_S) -> float:
    """The time from the begin of one block to that of the next, s."""
    return block_s + settle_s + TOGGLE_S


def block_length(period_s: float) -> float:
    """The length of the shortest block with whole periods, at least SHORTEST_BLOCK_S; s. period_s 0: unknown."""
    if period_s <= 0:
        return SHORTEST_BLOCK_S
    return period_s * max(1, math.ceil(SHORTEST_BLOCK_S / period_s - 1e-9))


def periods_to_fold(period_s: float, block_s: float) -> tuple[float, ...]:
    """The period where it is known, else the common periods that fit into a block."""
    if period_s > 0:
        return (period_s,)
    return tuple(period for period in COMMON_PERIODS_S if period <= block_s + 1e-9)


def looks(pairs: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The segments (pairs of each) of a run of `pairs` pairs, and the share of alpha of the look after each.

    A run with few pairs has one look. The last look comes at the end; a look shortly before the end is left out.
    """
    at = [count for count in LOOK_PAIRS if count <= 0.75 * pairs]
    at.append(pairs)
    rounds = tuple(b - a for a, b in zip([0, *at], at))
    if len(at) == 1:
        return rounds, (1.0,)
    rest = (1 - FIRST_SPEND) / (len(at) - 1)
    return rounds, (FIRST_SPEND, *[rest] * (len(at) - 1))


def end_s(budget_s: float, scanning: bool) -> float:
    """The part of the budget after the last block, s. scanning: the period is unknown, and many are folded."""
    return END_S + (END_SHARE + SCAN_SHARE * scanning) * budget_s


def affordable_pairs(
    budget_s: float,
    block_s: float,
    settle_s: float = SETTLE_S,
    variants: int = 2,
    scanning: bool = False,
    spent_s: float = 0.0,
) -> int:
    """The number of pairs of blocks (of rounds, with more variants) that a budget has time for; may be 0."""
    left = budget_s - spent_s - START_S - end_s(budget_s, scanning)
    # The 1e-9 makes this consistent with needed_budget(), in spite of rounding in both.
    return max(0, math.floor(left / (variants * pitch(block_s, settle_s)) + 1e-9))


def needed_budget(
    pairs: int,
    block_s: float,
    settle_s: float = SETTLE_S,
    variants: int = 2,
    scanning: bool = False,
    spent_s: float = 0.0,
) -> float:
    """The budget that has time for `pairs` pairs, s."""
    used = pairs * variants * pitch(block_s, settle_s) + spent_s + START_S + END_S
    return used / (1 - END_SHARE - SCAN_SHARE * scanning)


def design_for(
    budget_s: float,
    period_s: float,
    settle_s: float = SETTLE_S,
    shares: Sequence[int] = (1, 1),
    looking: bool = True,
    block_s: float | None = None,
    spent_s: float = 0.0,
) -> Design:
    """The design whose blocks fit a budget.

    period_s: the agent's period; 0: unknown. shares: blocks of each variant in a round. looking: more than one look.
    block_s: length of a block; by default it holds whole periods.
    spent_s: part of the budget already spent on finding the period.

    Raises
    ------
    UsageError  noise.budget_too_short: fewer than MIN_PAIRS rounds fit; the hint names the budget needed.
    """
    block_s = block_s or block_length(period_s)
    count = sum(shares)
    scanning = period_s <= 0
    pairs = affordable_pairs(budget_s, block_s, settle_s, count, scanning, spent_s)
    if pairs < MIN_PAIRS:
        needed = math.ceil(needed_budget(MIN_PAIRS, block_s, settle_s, count, scanning, spent_s))
        raise UsageError(
            "noise.budget_too_short",
            f"in {format_duration(budget_s)} there is time for {pairs} rounds, and a verdict needs at least "
            f"{MIN_PAIRS}; a round is {count} blocks of {format_duration(block_s)}, one period of the agent or more",
            f"give --budget {needed}s or more; or a shorter --period",
        )
    rounds, spend = looks(pairs) if looking else ((pairs,), (1.0,))
    weight = KNOWN_WEIGHT if period_s > 0 else SCAN_WEIGHT
    return Design(rounds, spend, block_s, settle_s, periods_to_fold(period_s, block_s), weight)
