"""The processor time that other programs use during a measurement, from /proc/stat. Touches the machine."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

# Columns of /proc/stat: user, nice, steal. Not system: the kernel's own threads, which write back Sonde's data, belong
# to nobody.
COUNTED = (0, 1, 7)


@dataclass(frozen=True)
class Sample:
    """Processor time outside the kernel so far, s: of all programs on the processors that this process may use, and its
    own.
    """

    at_s: float
    all_s: float
    own_s: float
    processors: int


def sample(stat: Path = Path("/proc/stat")) -> Sample | None:
    """None if the kernel does not report it. Own: of this process and its children that have ended."""
    mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    try:
        lines = [line.split() for line in stat.read_text().splitlines()]
        rows = [fields[1:] for fields in lines if fields and fields[0] in mine]
        ticks = sum(int(row[column]) for row in rows for column in COUNTED if column < len(row))
    except (OSError, ValueError):
        return None
    if not rows:
        return None
    own = (resource.getrusage(scope) for scope in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own_s = sum(usage.ru_utime for usage in own)
    return Sample(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), own_s, len(rows))


def share(before: Sample | None, after: Sample | None) -> float:
    """The share of the processors' time that others used between two samples; 0 if unknown."""
    if before is None or after is None or after.at_s <= before.at_s or before.processors != after.processors:
        return 0.0
    others_s = (after.all_s - before.all_s) - (after.own_s - before.own_s)
    return max(0.0, others_s / (after.at_s - before.at_s) / after.processors)
