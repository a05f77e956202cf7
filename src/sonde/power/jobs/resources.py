"""The free resources of a cluster: nodes, cores, memory, disks, NICs, and power within the racks and the budget. Pure.

Power is counted by guarantees. A node counts at the higher of two values: its safe cap, which holds whenever no manager
lends it more, and the sum of its jobs' guarantees. So the system manager can lend at once whatever fits here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from sonde.core.errors import nearest
from sonde.core.units import format_power, format_size
from sonde.power.jobs.jobs import Part, Spec

EPSILON_W = 1e-6


@dataclass(frozen=True)
class Node:
    """The resources of a node. cores 0: unknown, and a job can only have the whole node."""

    name: str
    safe_w: float = 0.0
    max_w: float = math.inf
    rack: str = ""
    cores: int = 0
    memory_bytes: int = 0
    disks: int = 0
    nics: int = 0


@dataclass(frozen=True)
class Lack:
    """Why a job cannot have what it asks for. kind: nodes, rack, power. what: the text after "waits for: "."""

    kind: str
    what: str


@dataclass(frozen=True)
class Held:
    """The resources of a job. guaranteed_w: on each of its nodes."""

    job: str
    parts: tuple[Part, ...]
    guaranteed_w: float = 0.0


class Conflict(Exception):
    """Parts that another job has, or that the node does not have."""


class _Use:
    """The resources of one node that are in use."""

    __slots__ = ("cores", "disks", "guaranteed_w", "jobs", "memory_bytes", "nics", "whole")

    def __init__(self) -> None:
        self.jobs: set[str] = set()
        self.whole = False
        self.cores: set[int] = set()
        self.disks: set[int] = set()
        self.nics: set[int] = set()
        self.memory_bytes = 0
        self.guaranteed_w = 0.0

    def copy(self) -> _Use:
        copied = _Use()
        copied.jobs, copied.whole = set(self.jobs), self.whole
        copied.cores, copied.disks, copied.nics = set(self.cores), set(self.disks), set(self.nics)
        copied.memory_bytes, copied.guaranteed_w = self.memory_bytes, self.guaranteed_w
        return copied


class Resources:
    """A cluster and what is in use of it.

    racks: what each can supply, W; a rack that is not named has no limit. at_least_w: the least at which a node counts
    whatever its guarantees, if it is more than the safe cap: the node draws more than its lease.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        racks: Mapping[str, float] | None = None,
        at_least_w: Mapping[str, float] | None = None,
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.racks = dict(racks or {})
        self._least = {
            node.name: max(node.safe_w, (at_least_w or {}).get(node.name, 0.0))
            for node in self.nodes.values()
        }
        self._use: dict[str, _Use] = {}
        self._held: dict[str, Held] = {}
        self._rack_w: dict[str, float] = {}
        self.total_w = math.fsum(self._least.values())
        """The sum at which all nodes count, W."""
        for name, node in self.nodes.items():
            self._rack_w[node.rack] = self._rack_w.get(node.rack, 0.0) + self._least[name]

    def copy(self) -> Resources:
        copied = Resources.__new__(Resources)
        copied.nodes, copied.racks, copied._least = self.nodes, self.racks, self._least
        copied._use = {name: use.copy() for name, use in self._use.items()}
        copied._held, copied._rack_w, copied.total_w = dict(self._held), dict(self._rack_w), self.total_w
        return copied

    @property
    def held(self) -> Mapping[str, Held]:
        return self._held

    def jobs_of(self, node: str) -> list[str]:
        return sorted(self._use[node].jobs) if node in self._use else []

    def guaranteed_w(self, node: str) -> float:
        """Guarantees of all jobs of a node together."""
        return self._use[node].guaranteed_w if node in self._use else 0.0

    def rack_w(self, rack: str) -> float:
        """The sum at which the nodes of a rack count."""
        return self._rack_w.get(rack, 0.0)

    def free(self, node: str) -> tuple[int, int, int, int]:
        """Free cores, bytes of memory, disks, NICs."""
        has, use = self.nodes[node], self._use.get(node)
        if use is None:
            return has.cores, has.memory_bytes, has.disks, has.nics
        if use.whole:
            return 0, 0, 0, 0
        return (
            has.cores - len(use.cores),
            has.memory_bytes - use.memory_bytes,
            has.disks - len(use.disks),
            has.nics - len(use.nics),
        )

    def fits(self, spec: Spec, node: str) -> bool:
        """Whether this node has enough free resources for the job."""
        has, use = self.nodes[node], self._use.get(node)
        if spec.whole and use is not None and use.jobs:
            return False
        if self.guaranteed_w(node) + spec.guaranteed_w > has.max_w + EPSILON_W:
            return False
        free = self.free(node)
        asked = (spec.cores, spec.memory_bytes, spec.disks, spec.nics)
        return (use is None or not use.whole) and all(a <= f for a, f in zip(asked, free))

    def more_w(self, node: str, guaranteed_w: float) -> float:
        """By how much more a node counts with this guarantee added."""
        before = self.guaranteed_w(node)
        least = self._least[node]
        return max(least, before + guaranteed_w) - max(least, before)

    def find(
        self, spec: Spec, budget_w: float = math.inf, usable: Collection[str] | None = None
    ) -> tuple[Part, ...] | Lack:
        """Parts for a job, or what is lacking. usable: the nodes that may be used; None: all.

        Among the nodes that fit, those that cost the least power come first, then those with the least room left.
        """
        wanted = len(spec.hosts) or spec.nodes
        names = spec.hosts or self.nodes
        present = [name for name in names if name in self.nodes and (usable is None or name in usable)]
        good = [name for name in present if self.fits(spec, name)]
        if len(good) < wanted:
            return Lack("nodes", self._nodes_lacking(spec, wanted, present, good))
        order = {name: k for k, name in enumerate(self.nodes)}
        cost = {name: self.more_w(name, spec.guaranteed_w) for name in good}
        good.sort(key=lambda name: (cost[name], self.free(name), order[name]))
        chosen: list[str] = []
        racks: dict[str, float] = {}
        full = ""
        for name in good:
            rack = self.nodes[name].rack
            more = racks.get(rack, 0.0) + cost[name]
            if cost[name] > 0 and self.rack_w(rack) + more > self.racks.get(rack, math.inf) + EPSILON_W:
                full = full or rack
                continue
            racks[rack] = more
            chosen.append(name)
            if len(chosen) == wanted:
                break
        if len(chosen) < wanted:
            left = max(0.0, self.racks[full] - self.rack_w(full))
            return Lack(
                "rack",
                f"power of rack {full}: {format_power(left)} of {format_power(self.racks[full])} are left",
            )
        more = math.fsum(cost[name] for name in chosen)
        if more > 0 and self.total_w + more > budget_w + EPSILON_W:
            left = max(0.0, budget_w - self.total_w)
            return Lack(
                "power",
                f"power: it needs {format_power(more)}, {format_power(left)} of {format_power(budget_w)} are left",
            )
        return tuple(self.part(spec, name) for name in sorted(chosen, key=order.__getitem__))

    def _nodes_lacking(self, spec: Spec, wanted: int, present: list[str], good: list[str]) -> str:
        if spec.hosts:
            names = [name for name in spec.hosts if name not in good]
            silent = [name for name in names if name not in present]
            some = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
            verb = "which do not answer" if len(silent) == len(names) else "which are in use"
            return f"nodes {some}, {verb}"
        lost = len(self.nodes) - len(present)
        silent_too = f"; {lost} nodes do not answer" if lost else ""
        of_each = [f"{spec.cores} cores"] if spec.cores else []
        of_each += [format_size(spec.memory_bytes)] if spec.memory_bytes else []
        of_each += [f"{spec.disks} disks"] if spec.disks else []
        of_each += [f"{spec.nics} NICs"] if spec.nics else []
        what = f"with {', '.join(of_each)} free" if of_each else "that are free"
        return f"nodes: needs {wanted} {what}, {len(good)} available{silent_too}"

    def part(self, spec: Spec, node: str) -> Part:
        """The part of a node that the job gets: the lowest free numbers."""
        if spec.whole:
            return Part(node)
        has, use = self.nodes[node], self._use.get(node) or _Use()

        def lowest(number: int, of: int, used: set[int]) -> tuple[int, ...]:
            free = (k for k in range(of) if k not in used)
            return tuple(k for k, _ in zip(free, range(number)))

        return Part(
            node,
            False,
            lowest(spec.cores, has.cores, use.cores),
            spec.memory_bytes,
            lowest(spec.disks, has.disks, use.disks),
            lowest(spec.nics, has.nics, use.nics),
        )

    def present(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """The parts that the configuration still has, of parts that may have been allocated under another one."""
        left = []
        for part in parts:
            has, use = self.nodes.get(part.node), self._use.get(part.node)
            if has is None:
                continue
            free = has.memory_bytes - (use.memory_bytes if use else 0)
            left.append(
                replace(
                    part,
                    cores=tuple(k for k in part.cores if k < has.cores),
                    memory_bytes=max(0, min(part.memory_bytes, free)),
                    disks=tuple(k for k in part.disks if k < has.disks),
                    nics=tuple(k for k in part.nics if k < has.nics),
                )
            )
        return tuple(left)

    def take(self, job: str, parts: tuple[Part, ...], guaranteed_w: float = 0.0) -> None:
        """Allocate these parts to a job. Power is not checked here: find() does.

        Raises
        ------
        Conflict: another job has the parts, or this job has some already.
        """
        if job in self._held:
            raise Conflict(f"the job {job} has nodes already")
        for part in parts:
            has = self.nodes.get(part.node)
            if has is None:
                raise Conflict(f"no node is called '{part.node}'{nearest(part.node, list(self.nodes))}")
            use = self._use.get(part.node)
            if use is None:
                use = _Use()
            free = has.memory_bytes - use.memory_bytes
            beyond = [
                k
                for of, numbers in ((has.cores, part.cores), (has.disks, part.disks), (has.nics, part.nics))
                for k in numbers
                if not 0 <= k < of
            ]
            if (
                use.whole
                or (part.whole and use.jobs)
                or (not part.whole and (beyond or part.memory_bytes > free))
                or use.cores & set(part.cores)
                or use.disks & set(part.disks)
                or use.nics & set(part.nics)
            ):
                raise Conflict(f"the parts of {part.node} for the job {job} are in use, or do not exist")
        if len({part.node for part in parts}) < len(parts):
            raise Conflict(f"the job {job} names a node twice")
        for part in parts:
            self._rack_w[self.nodes[part.node].rack] += self.more_w(part.node, guaranteed_w)
            self.total_w += self.more_w(part.node, guaranteed_w)
            use = self._use.setdefault(part.node, _Use())
            use.jobs.add(job)
            use.whole = part.whole
            use.cores |= set(part.cores)
            use.disks |= set(part.disks)
            use.nics |= set(part.nics)
            use.memory_bytes += part.memory_bytes
            use.guaranteed_w += guaranteed_w
        self._held[job] = Held(job, parts, guaranteed_w)

    def give_back(self, job: str) -> bool:
        """Free a job's resources. False: it had none."""
        released = self._held.pop(job, None)
        if released is None:
            return False
        for part in released.parts:
            use = self._use[part.node]
            use.jobs.discard(job)
            if not use.jobs:
                less = max(self._least[part.node], use.guaranteed_w) - self._least[part.node]
                del self._use[part.node]
            else:
                after = use.guaranteed_w - released.guaranteed_w
                least = self._least[part.node]
                less = max(least, use.guaranteed_w) - max(least, after)
                use.guaranteed_w = after
                use.cores -= set(part.cores)
                use.disks -= set(part.disks)
                use.nics -= set(part.nics)
                use.memory_bytes -= part.memory_bytes
            self.total_w -= less
            self._rack_w[self.nodes[part.node].rack] -= less
        return True
