"""How a budget is shared among nodes: the interface of `native/power/policy.hpp`, used live and in replays. Pure.

All power in W. NaN: unknown.
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

    min_w, max_w : the range of its caps. guaranteed_w : never less than this, if the budget allows it for all nodes.
    weight : above 0. power_w : its recent power. demand_w : its power without a cap. cap_w : its present cap.
    iteration_s : the time of its part of the job's loop, s. job : nodes of the same number wait for each other; 0:
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
    """One policy; it may remember data from one period to the next.

    name : one of policies(). margin : greedy's reserve above a node's power, as a share of it. step : share of a
    difference that slack corrects in a period.

    Raises
    ------
    UsageError  power.unknown_policy.
    """

    def __init__(self, name: str, margin: float = 0.05, step: float = 0.25) -> None:
        self.name = name
        self._native = _core.PowerPolicy(name, margin, step)

    def share(self, budget_w: float, nodes: Sequence[Node]) -> list[float]:
        """A cap for each node, within its range; the sum is at most the budget.

        Raises
        ------
        UsageError  power.budget_too_small: below the sum of the lowest caps; power.bad_node.
        """
        rows = np.array([astuple(node) for node in nodes], dtype=np.float64).reshape(
            len(nodes), len(fields(Node))
        )
        return list(self._native.share(budget_w, np.ascontiguousarray(rows))[0])


def policies() -> dict[str, str]:
    """Names of the policies, with a description of each."""
    return dict(_core.power_policies())
