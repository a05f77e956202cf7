"""Plans of studies: their levels, groups and designs. Pure."""

from __future__ import annotations

import math

from sonde.core.errors import UsageError
from sonde.core.units import format_duration
from sonde.noise.detector import judge
from sonde.noise.detector.plan import Design, affordable_pairs, block_length, design_for, needed_budget

STUDIES = ("sensitivity", "sweep", "stability")
LEVELS = (0.01, 0.007, 0.005, 0.003, 0.001, 0.0005, 0.0001)  # the source's
SWEEPS = ("sync", "period", "placement", "sibling")
SWEPT_PERIODS_S = (0.01, 0.1, 1.0)
GROUPS, MIN_IN_GROUP = 6, 3
STANDARD_BUDGET_S, STANDARD_PERIOD_S, STANDARD_ALPHA = 60.0, 1.0, 0.01  # the MDE of a clean run is for these


def off_share(levels: int) -> int:
    """The number of "off" blocks in a round with one block of each level. levels: their number.

    All levels are compared with the same off blocks. For a given number of blocks, the intervals of the differences
    are narrowest with sqrt(levels) times as many off blocks as blocks of one level: 3 for 7.

    Source: Dunnett, J. Amer. Statist. Assoc. 50, 1955, 1096-1121.
    """
    return max(1, round(math.sqrt(levels)))


def standard_design() -> tuple[judge.Design, float]:
    """The design of `sonde noise run --budget 60s` for an agent that works each second, and its fold's weight."""
    design = design_for(STANDARD_BUDGET_S, STANDARD_PERIOD_S)
    return judge.Design(design.rounds, design.spend, STANDARD_ALPHA), design.fold_weight


def clean_design(budget_s: float, groups: int, block_s: float | None = None) -> Design:
    """Clean blocks that fit a budget, in groups of the same number of blocks, one after the other.

    Raises
    ------
    UsageError  noise.budget_too_short: fewer than MIN_IN_GROUP blocks a group fit; the hint names the budget needed.
    """
    length_s = block_s or block_length(STANDARD_PERIOD_S)
    each = affordable_pairs(budget_s, length_s, variants=1) // groups
    if each < MIN_IN_GROUP:
        needed = math.ceil(needed_budget(groups * MIN_IN_GROUP, length_s, variants=1))
        raise UsageError(
            "noise.budget_too_short",
            f"in {format_duration(budget_s)} there is time for {each} blocks of {format_duration(length_s)} in each of "
            f"{groups} groups; at least {MIN_IN_GROUP} are needed",
            f"give --budget {needed}s or more, or fewer --groups",
        )
    return Design((each,) * groups, (1.0,), length_s)
