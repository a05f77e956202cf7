"""The cluster's power as the system manager reports it, for the job scheduler. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sonde.power.jobs.schedule import Budget
from sonde.power.stack.telemetry import NAN, known

UNKNOWN = Budget(NAN)


@dataclass(frozen=True)
class ClusterPower:
    """usable: nodes that answer. at_least_w: of nodes that draw more than their lease, or do not answer: they count at
    the most that they may draw. manager: the leader and its term. observes: it changes nothing, so it accepts no
    guarantee. managed: its nodes; None: unknown. shares: names of the shares that it has.
    """

    budget: Budget = UNKNOWN
    committed_w: float = NAN
    usable: frozenset[str] = frozenset()
    at_least_w: Mapping[str, float] = field(default_factory=dict)
    manager: str = ""
    observes: bool = False
    managed: frozenset[str] | None = None
    shares: frozenset[str] = frozenset()

    @classmethod
    def of(cls, answer: Mapping[str, Any], now_s: float) -> ClusterPower:
        """answer: the reply to GET_POWER. now_s: the time of day."""
        cluster, nodes = answer["cluster"], answer["nodes"]
        restored, left = known(cluster["restored_w"]), known(cluster["shed_left_s"])
        later = now_s + left if math.isfinite(restored) and left > 0 else math.inf
        observes = cluster["state"] == "observing"
        return cls(
            Budget(known(cluster["budget_w"]), restored, later),
            known(cluster["committed_w"]),
            frozenset(str(node["node"]) for node in nodes if node["heard"]),
            {
                str(node["node"]): known(node["committed_w"])
                for node in nodes
                if (node["trouble"] or not node["heard"]) and math.isfinite(known(node["committed_w"]))
            },
            f"{cluster['manager']}#{cluster['epoch']}#{cluster['state']}",
            observes,
            frozenset(str(node["node"]) for node in nodes),
            # A manager that only observes does not accept END_JOB either.
            frozenset() if observes else frozenset(str(node["job"]) for node in nodes) - {""},
        )

    def unanswered(self) -> ClusterPower:
        """The same while the system manager does not answer: no budget, no usable node."""
        return replace(self, budget=UNKNOWN, usable=frozenset())
