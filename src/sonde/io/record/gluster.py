"""What `gluster volume …` prints, read: a volume's bricks, and what each counted. Pure.

Written after the output of GlusterFS 10.3; XML (`--xml`) but for the unit of durations, which only the text names.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass, field

# Of durations, as the text has them behind each number: nanoseconds since GlusterFS 10, microseconds before.
UNITS_S = {"ns": 1e-9, "us": 1e-6}
_UNIT = re.compile(r"\d\s+(ns|us)\s+\d")


@dataclass(frozen=True)
class Answer:
    """What a command came to. why: what `gluster` said of it; "" where it worked."""

    why: str
    root: ElementTree.Element | None = None


@dataclass(frozen=True)
class Volume:
    """kind: "Distribute". bricks: "host:/path". options: those that were set."""

    name: str
    kind: str
    started: bool
    bricks: tuple[str, ...]
    options: Mapping[str, str]

    def describe(self) -> str:
        """ "GlusterFS volume data, Distribute, shards of 4MB"."""
        text = f"GlusterFS volume {self.name}, {self.kind}"
        if self.options.get("features.shard") in ("on", "enable", "true", "1"):
            text += f", shards of {self.options.get('features.shard-block-size', '64MB')}"
        return text


@dataclass(frozen=True)
class Counted:
    """What a brick counted. operations: by name, calls, mean, shortest and longest duration, in the text's unit.

    read, written: B. sizes: (least size of a class, reads, writes).
    """

    operations: Mapping[str, tuple[int, float, float, float]] = field(default_factory=dict)
    read: int = 0
    written: int = 0
    sizes: Mapping[int, tuple[int, int]] = field(default_factory=dict)


def answer(text: str) -> Answer:
    """Of `gluster --xml`, whose exit status is 0 whatever happened."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return Answer(" ".join(text.split())[:300] or "it said nothing")
    if root.findtext("opRet", "-1").strip() == "0":
        return Answer("", root)
    return Answer((root.findtext("opErrstr") or "").strip() or f"error {root.findtext('opErrno', '?')}", root)


def volume(root: ElementTree.Element) -> Volume | None:
    """Of `volume info NAME`; None where there is no such volume."""
    found = root.find("volInfo/volumes/volume")
    if found is None:
        return None
    options = {
        one.findtext("name", ""): one.findtext("value", "") for one in found.iterfind("options/option")
    }
    return Volume(
        found.findtext("name", ""),
        found.findtext("typeStr", "?"),
        found.findtext("status", "") == "1",
        tuple(one.findtext("name", "") for one in found.iterfind("bricks/brick")),
        options,
    )


def volumes(root: ElementTree.Element) -> list[str]:
    """Of `volume list`."""
    return [one.text or "" for one in root.iterfind("volList/volume")]


def counted(root: ElementTree.Element, which: str) -> dict[str, Counted]:
    """Of `volume profile NAME info`, by brick; one that is down is left out. which: "interval" or "cumulative"."""
    return {
        brick.findtext("brickName", ""): _counted(stats)
        for brick in root.iterfind("volProfile/brick")
        if (stats := brick.find(f"{which}Stats")) is not None
    }


def _counted(stats: ElementTree.Element) -> Counted:
    def number(element: ElementTree.Element, name: str) -> float:
        """0 where it is none, or none that a counter has."""
        try:
            found = float(element.findtext(name, "0"))
        except ValueError:
            return 0.0
        return found if 0 <= found < 2**63 else 0.0

    operations = {
        fop.findtext("name", "?"): (
            int(number(fop, "hits")),
            number(fop, "avgLatency"),
            number(fop, "minLatency"),
            number(fop, "maxLatency"),
        )
        for fop in stats.iterfind("fopStats/fop")
    }
    sizes = {
        int(number(block, "size")): (int(number(block, "reads")), int(number(block, "writes")))
        for block in stats.iterfind("blockStats/block")
    }
    return Counted(
        operations,
        int(number(stats, "totalRead")),
        int(number(stats, "totalWrite")),
        {size: counts for size, counts in sizes.items() if any(counts)},
    )


def unit_s(text: str) -> float | None:
    """The unit of durations, from the text of `volume profile NAME info`; None where it has none."""
    found = _UNIT.search(text)
    return UNITS_S[found[1]] if found else None


def since(before: Counted, after: Counted) -> Counted:
    """What was counted in between, of counters that go on. NaN: the shortest and longest, with calls before."""
    nan = float("nan")
    operations = {}
    for name, (calls, mean, least, most) in after.operations.items():
        calls_before, mean_before, *_ = before.operations.get(name, (0, 0.0, 0.0, 0.0))
        if calls < calls_before:  # it was started again meanwhile
            calls_before, mean_before = 0, 0.0
        if (new := calls - calls_before) > 0:
            own = (calls * mean - calls_before * mean_before) / new
            operations[name] = (new, max(own, 0.0), *((nan, nan) if calls_before else (least, most)))
    again = after.read < before.read or after.written < before.written
    old = Counted() if again else before
    sizes = {}
    for size, counts in after.sizes.items():
        had = old.sizes.get(size, (0, 0))
        sizes[size] = (counts[0] - had[0], counts[1] - had[1])
    return Counted(operations, after.read - old.read, after.written - old.written, sizes)


def as_servers(
    bricks: tuple[str, ...], found: Mapping[str, Counted], unit: float | None
) -> list[dict[str, object]]:
    """Every brick of the volume, as a run's folder stores them (`sonde.io.trace.servers.FILE`). unit: None: unknown."""
    told: list[dict[str, object]] = []
    for name in bricks:
        one = found.get(name, Counted())
        told.append(
            {
                "name": name,
                "answered": int(name in found),
                "bytes": [one.read, one.written],
                "sizes": [[size, list(counts)] for size, counts in sorted(one.sizes.items())],
                "operations": {
                    operation: [calls, *(_seconds(value, unit) for value in durations)]
                    for operation, (calls, *durations) in sorted(one.operations.items())
                },
            }
        )
    return told


def _seconds(value: float, unit: float | None) -> float | None:
    """Of what has no duration, as RELEASE, the counters say 0."""
    return None if unit is None or not value > 0 else value * unit
