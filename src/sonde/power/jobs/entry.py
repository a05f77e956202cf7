"""A job of the queue: the job, and the scheduler's own data about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from sonde.power.jobs.jobs import HELD, WAITING, JobState, Spec, to_plain
from sonde.power.jobs.proof import of_spec


@dataclass(frozen=True)
class Entry:
    """A job, and the scheduler's own data about it.

    digest: of the job as it was submitted (proof.of_spec). stop: why it is being stopped, "cancelled" or "time"; "": it
    is not. asked: the job manager may have received the order to start it. clean: its resources were given back.
    charged_ns, charged_j: up to where its user was charged. energy_j: as the job manager reports it. demand_w: what its
    target needs, as the job manager reports it; 0: unknown.
    """

    state: JobState
    digest: str
    number: int
    stop: str = ""
    asked: bool = False
    clean: bool = False
    charged_ns: int = 0
    charged_j: float = 0.0
    energy_j: float = 0.0
    demand_w: float = 0.0

    @property
    def wants_w(self) -> float:
        """Demand of each node; 0: unknown."""
        return self.demand_w or self.spec.demand_w

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Entry:
        known = {one.name: row[one.name] for one in fields(cls) if one.name in row}
        state = JobState.of(row["state"])
        known["state"] = replace(state, spec=state.spec.trimmed) if state.over else state
        # A queue of an older version holds the whole submission instead.
        known["digest"] = str(row["digest"]) if "digest" in row else of_spec(Spec.of(row["sent"]))
        return cls(**known)

    @property
    def spec(self) -> Spec:
        return self.state.spec

    @property
    def waits(self) -> bool:
        return self.state.state in (WAITING, HELD)

    @property
    def charged(self) -> bool:
        """Whether its user was charged for all its resources, or it had none yet."""
        state = self.state
        if not state.started_ns:
            return True
        nothing = not self.charged_ns and state.started_ns >= state.ended_ns and self.energy_j <= 0
        return state.over and (nothing or self.charged_ns >= state.ended_ns)


def as_text(entry: Entry) -> dict[str, Any]:
    """An entry as it is stored."""
    return dict(to_plain(entry))
