"""Parse the output of `gluster volume …`: a volume's bricks and their counters. Pure.

Written for the output of GlusterFS 10.3. It is XML (`--xml`), except for the unit of durations, which only the text
has.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass, field

# The units of durations as the text writes them behind each number: ns since GlusterFS 10, us before.
UNITS_S = {"ns": 1e-9, "us": 1e-6}
_UNIT = re.compile(r"\d\s+(ns|us)\s+\d")


@dataclass(frozen=True)
class Answer:
    """The result of a command. why: the error message of `gluster`; "" if it succeeded."""

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
        """A description such as "GlusterFS volume data, Distribute, shards of 4MB"."""
        text = f"GlusterFS volume {self.name}, {self.kind}"
        if self.options.get("features.shard") in ("on", "enable", "true", "1"):
            text += f", shards of {self.options.get('features.shard-block-size', '64MB')}"
        return text


@dataclass(frozen=True)
class Counted:
    """The counters of a brick. operations: by name: calls, mean, shortest and longest duration, in the unit of the
    text.

    read, written: B. sizes: lower bound of a class of sizes -> (reads, writes).
    """

    operations: Mapping[str, tuple[int, float, float, float]] = field(default_factory=dict)
    read: int = 0
    written: int = 0
    sizes: Mapping[int, tuple[int, int]] = field(default_factory=dict)


def answer(text: str) -> Answer:
    """Parse the output of `gluster --xml`, whose exit status is always 0."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return Answer(" ".join(text.split())[:300] or "it printed nothing")
    if root.findtext("opRet", "-1").strip() == "0":
        return Answer("", root)
    return Answer((root.findtext("opErrstr") or "").strip() or f"error {root.findtext('opErrno', '?')}", root)


def volume(root: ElementTree.Element) -> Volume | None:
    """The volume in the output of `volume info NAME`; None if there is no such volume."""
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
    """The names in the output of `volume list`."""
    return [one.text or "" for one in root.iterfind("volList/volume")]


def counted(root: ElementTree.Element, which: str) -> dict[str, Counted]:
    """Counters by brick from `volume profile NAME info`, without bricks that are down. which: "interval" or
    "cumulative"."""
    return {
        brick.findtext("brickName", ""): _counted(stats)
        for brick in root.iterfind("volProfile/brick")
        if (stats := brick.find(f"{which}Stats")) is not None
    }


def _counted(stats: ElementTree.Element) -> Counted:
    def number(element: ElementTree.Element, name: str) -> float:
        """The value of an element; 0 if it is no number, or no possible value of a counter."""
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
    """The unit of durations in the text of `volume profile NAME info`; None if it names none."""
    found = _UNIT.search(text)
    return UNITS_S[found[1]] if found else None


def since(before: Counted, after: Counted) -> Counted:
    """The difference of two readings of running counters. The shortest and longest durations are NaN after earlier
    calls."""
    nan = float("nan")
    operations = {}
    for name, (calls, mean, least, most) in after.operations.items():
        calls_before, mean_before, *_ = before.operations.get(name, (0, 0.0, 0.0, 0.0))
        if calls < calls_before:  # the brick was restarted in between
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
    """All bricks of the volume in the form that a run's folder stores (`sonde.io.trace.servers.FILE`). unit: None if
    unknown."""
    rows: list[dict[str, object]] = []
    for name in bricks:
        one = found.get(name, Counted())
        rows.append(
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
    return rows


def _seconds(value: float, unit: float | None) -> float | None:
    """A duration in s. Operations without durations, such as RELEASE, have 0 in the counters: None."""
    return None if unit is None or not value > 0 else value * unit
