"""The kernel's osnoise tracer, if the kernel has it: the time that each interrupt, softirq and thread took on a core.

It runs without its own workload (Linux 5.18 or newer); sonde-detour is the workload. It has its own tracing instance,
which is removed afterwards. Source: Documentation/trace/osnoise-tracer.rst of the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sonde.core import tracefs

TRACING = Path("/sys/kernel/tracing")
EVENTS = ("irq_noise", "softirq_noise", "nmi_noise", "thread_noise")
# "… irq_noise: local_timer:236 start 123.456789012 duration 2503 ns", "… nmi_noise: start 123.4 duration 12 ns"
_LINE = re.compile(
    r"\[(?P<cpu>\d{1,9})\].*?\b(?P<kind>irq|softirq|nmi|thread)_noise:\s+(?P<name>.*?)\s*start\s+[\d.]+\s+"
    r"duration\s+(?P<ns>\d{1,18})\s+ns"
)


def absent(root: Path = TRACING) -> str:
    """The reason why the tracer cannot be used; "" when it can."""
    try:
        tracers = (root / "available_tracers").read_text().split()
    except PermissionError:
        return f"only root may read {root}"
    except OSError:
        return f"there is no {root}"
    if "osnoise" not in tracers:
        return "this kernel was built without the osnoise tracer"
    try:
        options = (root / "osnoise" / "options").read_text()
    except OSError:
        return "this kernel's osnoise tracer cannot run without its workload (before Linux 5.18)"
    return (
        ""
        if "OSNOISE_WORKLOAD" in options
        else "this kernel's osnoise tracer cannot run without its workload"
    )


class Osnoise:
    """A trace between `start` and `stop`. It leaves nothing behind and never raises, because tracing is optional.

    The next start, here or by `sonde io run`, removes what a killed Sonde left behind (core/tracefs.py).
    """

    def __init__(self, root: Path = TRACING) -> None:
        self.root = root
        self.instance: Path | None = None
        self.why_not = absent(root)

    def start(self) -> bool:
        """Start tracing. False if that is not possible; `why_not` then has the reason."""
        if self.why_not:
            return False
        try:
            self.instance = tracefs.make_osnoise(self.root)
            (self.instance / "current_tracer").write_text("osnoise")
            for event in EVENTS:
                (self.instance / "events" / "osnoise" / event / "enable").write_text("1")
            (self.instance / "tracing_on").write_text("1")
        except OSError as error:
            self.why_not = f"the osnoise tracer cannot be started: {error.strerror or error}"
            self._clear()
            return False
        return True

    def stop(self, cpus: Sequence[int]) -> list[dict[str, Any]]:
        """Stop, and return the trace of these CPUs: cpu, kind, name, count, total_s; the largest total first."""
        if self.why_not or self.instance is None:
            return []
        found: list[dict[str, Any]] = []
        try:
            (self.instance / "tracing_on").write_text("0")
            with (self.instance / "trace").open(errors="replace") as lines:
                found = totals(lines, cpus)
        except OSError as error:
            self.why_not = f"the trace of the osnoise tracer cannot be read: {error.strerror or error}"
        self._clear()
        return found

    def _clear(self) -> None:
        if self.instance is not None:
            tracefs.remove_osnoise(self.root, self.instance.name)
            self.instance = None


def totals(lines: Iterable[str], cpus: Sequence[int]) -> list[dict[str, Any]]:
    """The sums of the events of a trace by CPU, kind and name. Other lines are ignored."""
    wanted = set(cpus)
    sums: dict[tuple[int, str, str], list[int]] = {}
    for line in lines:
        if (match := _LINE.search(line)) is None or int(match["cpu"]) not in wanted:
            continue
        name = re.sub(r":\d+$", "", match["name"]) or match["kind"]
        one = sums.setdefault((int(match["cpu"]), match["kind"], name), [0, 0])
        one[0] += 1
        one[1] += int(match["ns"])
    return sorted(
        (
            {"cpu": cpu, "kind": kind, "name": name, "count": count, "total_s": ns * 1e-9}
            for (cpu, kind, name), (count, ns) in sums.items()
        ),
        key=lambda one: -one["total_s"],
    )
