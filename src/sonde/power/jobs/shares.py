"""The shares of power that the scheduler has the system manager guarantee to jobs. Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass

from sonde.power.jobs.entry import Entry


@dataclass(frozen=True)
class Share:
    """The report to the system manager about a job's nodes; values for each node."""

    nodes: tuple[str, ...]
    user: str
    guaranteed_w: float
    demand_w: float = math.nan
    weight: float = 1.0


def shares_of(active: Iterable[Entry]) -> dict[str, Share]:
    """The shares that the system manager should have: for each job its whole nodes; for each shared node one share
    of its own. active: the jobs that have resources.
    """
    out: dict[str, Share] = {}
    shared: dict[str, list[Entry]] = {}
    for one in active:
        if not one.asked:
            continue
        whole = tuple(part.node for part in one.state.parts if part.whole)
        if whole:
            spec = one.spec
            out[one.state.job] = Share(
                whole, spec.user, spec.guaranteed_w, one.wants_w or math.nan, spec.weight
            )
        for part in one.state.parts:
            if not part.whole:
                shared.setdefault(part.node, []).append(one)
    for node, those in shared.items():
        demands = [one.wants_w for one in those]
        out[name_of_node(node)] = Share(
            (node,),
            those[0].spec.user if len({one.spec.user for one in those}) == 1 else "",
            math.fsum(one.spec.guaranteed_w for one in those),
            math.fsum(demands) if all(demands) else math.nan,
            max(one.spec.weight for one in those),
        )
    return out


def name_of_node(node: str) -> str:
    """The name of a shared node's share at the system manager, which names shares by jobs.

    No job of a user has such a name: jobs.RESERVED. A hash distinguishes node names that are too long.
    """
    name = f"on:{node}"
    if len(name) <= 64:
        return name
    return f"{name[:47]}~{hashlib.blake2s(node.encode(), digest_size=8).hexdigest()}"
