"""How a budget is shared over nodes: the face of `native/power/policy.hpp`, which runs live and in replays alike. Pure.

All power in W. What is unknown is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

import numpy as np

import sonde._core as _core

UNKNOWN = float("nan")


@dataclass(frozen=True)
class Node:
    """A node as a policy sees it.

    min_w, max_w : caps that it can be given. guaranteed_w : never less than this, where the budget allows it for all.
    weight : above 0. power_w : what it drew of late. demand_w : what it would draw without a cap. cap_w : what it has
    now. iteration_s : how long its part of the job's loop takes, s. job : nodes of one number wait for each other; 0:
    idle.
    """

    min_w: float
    max_w: float
    guaranteed_w: float = 0.0
    weight: float = 1.0
    power_w: float = UNKNOWN
    demand_w: float = UNKNOWN
    cap_w: float = UNKNOWN
    iteration_s: float = UNKNOWN
    job: int = 0


class Policy:
    """One policy, which may remember from one period to the next.

    name : one of policies(). margin : greedy's room above what a node draws, a share of its power. step : how much of a
    difference slack mends in a period.

    Raises
    ------
    UsageError  power.unknown_policy.
    """

    def __init__(self, name: str, margin: float = 0.05, step: float = 0.25) -> None:
        self.name = name
        self._native = _core.PowerPolicy(name, margin, step)

    def share(self, budget_w: float, nodes: Sequence[Node]) -> list[float]:
        """A cap for each node, within its range; together at most the budget.

        Raises
        ------
        UsageError  power.budget_too_small: below the sum of the least caps; power.bad_node.
        """
        rows = np.array([astuple(node) for node in nodes], dtype=np.float64).reshape(
            len(nodes), len(fields(Node))
        )
        return list(self._native.share(budget_w, np.ascontiguousarray(rows))[0])


def policies() -> dict[str, str]:
    """Names of the policies, and what each does."""
    return dict(_core.power_policies())
