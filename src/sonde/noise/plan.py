"""What a run of sonde-noise is to do, before anything is started. Pure: from wishes to a design and a command line."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sonde import _core
from sonde.core.errors import UsageError, Warning
from sonde.core.units import format_duration, format_share
from sonde.noise.agents import AgentPlan

OPS = ("alltoall", "barrier", "allreduce", "bcast", "reduce", "allgather", "halo")
NO_SIZE = ("barrier",)  # operations without a message

# Folded at when the period is not known: what fits into a block of them is tried.
COMMON_PERIODS_S = (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0)
KNOWN_WEIGHT, SCAN_WEIGHT = 0.8, 0.5  # share of alpha for the fold

LOOK_PAIRS = (8, 13, 20, 40, 80, 160, 320)  # pairs of blocks after which a look is taken
FIRST_SPEND = 0.4
LEAST_PAIRS = 6  # fewer cannot reach alpha 1 %: 1 / C(12, 6) is the least p of six pairs
FRESH_ROUNDS = 10  # pairs after a detection
LEAST_PERMUTATIONS = 1999

RUN_FOLDER = "@RUN_FOLDER@"  # stands for the run's folder in an agent's command, quoted for the shell

SHORTEST_BLOCK_S = 1.0
SETTLE_S = 0.05
# Shares of a budget: starting Python, MPI and the agent and calibrating; then sealing and analysis, which ends by the
# deadline with what it has; per block, toggling it.
START_S, END_S, END_SHARE, TOGGLE_S = 3.5, 3.0, 0.05, 0.02
# Where the period is not known: the last look at many periods, which comes when the last block is over, and which
# native/noise/detector/run.cpp ends after a twentieth of the budget; and the search for what would have been found.
SCAN_SHARE = 0.15


def level_text(share: float) -> str:
    """As people write levels: "1 %", "0.05 %"."""
    return format_share(share, 6, trim=True)


@dataclass(frozen=True)
class Variant:
    """What is on in some blocks. agent: None for nothing. cpus: where it may run, empty for anywhere.

    level: of the noise source, a share; NaN of anything else. share: blocks of it in a round. period_s: how often it
    works; 0: as the plan says. sources: noise sources of that level on each node.
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
    """Blocks of a run: rounds of each segment, a look's share of alpha after each, periods to fold at."""

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
    """Everything that decides what is measured and how it is judged.

    variants: the first is OFF. fresh_rounds: pairs after a detection; 0 where variants are compared, which has
    no early end. matters: the slowdown that counts, a share. grain_s: what an application computes between two
    collectives, for the model of scale.
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
                f"a collective needs two ranks, and --ntasks is {self.ntasks}",
                "give --ntasks 2 or more",
            )
        if self.op not in OPS:
            raise UsageError(
                "noise.unknown_op", f"there is no operation '{self.op}'; there are: {', '.join(OPS)}", ""
            )

    @property
    def sequential(self) -> bool:
        """Whether the run looks at itself and may end early."""
        return len(self.variants) == 2

    @property
    def permutations(self) -> int:
        """Enough that the least p is an eighth of what the poorest look has to spend."""
        if not self.design.spend:
            return LEAST_PERMUTATIONS
        wanted = 8 / (self.alpha * min(self.design.spend))
        return min(99999, max(LEAST_PERMUTATIONS, math.ceil(wanted)))

    @property
    def shares(self) -> tuple[int, ...]:
        return tuple(variant.share for variant in self.variants)

    @property
    def blocks(self) -> int:
        """Blocks planned, those after a detection not counted."""
        return self.design.pairs * sum(self.shares)

    @property
    def expected_s(self) -> float:
        """What measuring all blocks takes."""
        return self.blocks * pitch(self.design.block_s, self.design.settle_s)

    def argv(self, run_dir: str, budget_s: float) -> list[str]:
        """sonde-noise's arguments. budget_s: s that measuring may take; 0: no limit."""
        design = self.design
        words = {
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
            words["--periods"] = ",".join(f"{period:.9g}" for period in design.periods_s)
        if self.sequential:
            words["--spend"] = ",".join(f"{share:.9g}" for share in design.spend)
            words["--fresh-rounds"] = str(self.fresh_rounds)
        line = [word for pair in words.items() for word in pair]
        for variant in self.variants:
            line += ["--variant", variant.name, "--share", str(variant.share)]
            if variant.agent is not None:
                command = variant.agent.command.replace(RUN_FOLDER, shlex.quote(run_dir))
                line += replace(variant.agent, command=command).argv()
            if variant.cpus:
                line += ["--cpus", ",".join(map(str, variant.cpus))]
        return line

    def attrs(self) -> dict[str, Any]:
        """Root attributes of the dataset: all that judging it again needs."""
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
        """The plan as run.json keeps it."""
        return {
            "kind": "run",
            "ranks": self.ntasks,
            "blocks": [list(block) for block in _core.noise_plan(self.shares, self.design.rounds, self.seed)],
            "variants": [variant.name for variant in self.variants],
            "attrs": self.attrs(),
        }

    def warnings(self) -> list[Warning]:
        """What a reader must know, as far as the plan alone tells."""
        out = []
        if self.op in NO_SIZE and self.size not in (0, 1024):
            out.append(
                Warning(
                    "noise.size_unused", f"{self.op} sends no message; --size {self.size} means nothing", ""
                )
            )
        return out


def pitch(block_s: float, settle_s: float = SETTLE_S) -> float:
    """From the begin of one block to that of the next, s."""
    return block_s + settle_s + TOGGLE_S


def block_length(period_s: float) -> float:
    """The shortest block, of SHORTEST_BLOCK_S at least, that holds whole periods; s. period_s 0: not known."""
    if period_s <= 0:
        return SHORTEST_BLOCK_S
    return period_s * max(1, math.ceil(SHORTEST_BLOCK_S / period_s - 1e-9))


def periods_to_fold(period_s: float, block_s: float) -> tuple[float, ...]:
    """The period where it is known, else the common ones of which a block holds at least one."""
    if period_s > 0:
        return (period_s,)
    return tuple(period for period in COMMON_PERIODS_S if period <= block_s + 1e-9)


def looks(pairs: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Segments (pairs of each) and what the look after each may spend of alpha, for a run of so many pairs.

    One look where there are few. The last look comes at the end; one that would come shortly before is left out.
    """
    at = [count for count in LOOK_PAIRS if count <= 0.75 * pairs]
    at.append(pairs)
    rounds = tuple(b - a for a, b in zip([0, *at], at))
    if len(at) == 1:
        return rounds, (1.0,)
    rest = (1 - FIRST_SPEND) / (len(at) - 1)
    return rounds, (FIRST_SPEND, *[rest] * (len(at) - 1))


def end_s(budget_s: float, scanning: bool) -> float:
    """Time after the last block, s, within the budget. scanning: many periods are folded at, as none is known."""
    return END_S + (END_SHARE + SCAN_SHARE * scanning) * budget_s


def affordable_pairs(
    budget_s: float,
    block_s: float,
    settle_s: float = SETTLE_S,
    variants: int = 2,
    scanning: bool = False,
    spent_s: float = 0.0,
) -> int:
    """Pairs (rounds, where there are more variants) of blocks that a budget has time for; may be 0."""
    left = budget_s - spent_s - START_S - end_s(budget_s, scanning)
    # needed_budget() of so many has time for them, whatever both round.
    return max(0, math.floor(left / (variants * pitch(block_s, settle_s)) + 1e-9))


def needed_budget(
    pairs: int,
    block_s: float,
    settle_s: float = SETTLE_S,
    variants: int = 2,
    scanning: bool = False,
    spent_s: float = 0.0,
) -> float:
    """The budget that has time for so many pairs, s."""
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
    """Blocks that fit a budget.

    period_s: the agent's; 0: not known. shares: blocks of each variant in a round. looking: more than one look.
    block_s: length of a block, by default what holds whole periods.
    spent_s: of the budget already, on finding the period.

    Raises
    ------
    UsageError  noise.budget_too_short: fewer than LEAST_PAIRS rounds fit; the hint names the budget needed.
    """
    block_s = block_s or block_length(period_s)
    count = sum(shares)
    scanning = period_s <= 0
    pairs = affordable_pairs(budget_s, block_s, settle_s, count, scanning, spent_s)
    if pairs < LEAST_PAIRS:
        needed = math.ceil(needed_budget(LEAST_PAIRS, block_s, settle_s, count, scanning, spent_s))
        raise UsageError(
            "noise.budget_too_short",
            f"{format_duration(budget_s)} have time for {pairs} of the {LEAST_PAIRS} rounds that a verdict needs at "
            f"least; a round is {count} blocks of {format_duration(block_s)}, one period of the agent or more",
            f"give --budget {needed}s or more; or a shorter --period",
        )
    rounds, spend = looks(pairs) if looking else ((pairs,), (1.0,))
    weight = KNOWN_WEIGHT if period_s > 0 else SCAN_WEIGHT
    return Design(rounds, spend, block_s, settle_s, periods_to_fold(period_s, block_s), weight)
