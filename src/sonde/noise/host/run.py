"""Run sonde-detour on this machine, and list the other programs that ran on the measured cores."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sonde.core.deadline import Deadline
from sonde.core.errors import EnvironmentFailure, from_code
from sonde.core.events import Event, Progress, Reader
from sonde.core.surroundings import place_of_ranks
from sonde.noise.host.run_osnoise import Osnoise
from sonde.noise.host.sealing import SCHEMA
from sonde.noise.run_programs import Measured, Program, Request, measure, program

PROC = Path("/proc")
MAX_PROCESSES = 32


@dataclass(frozen=True)
class View:
    """The settings of a measurement. cpus: None for all that this process may use. threshold_s: 0: nine loop steps."""

    cpus: tuple[int, ...] | None
    method: str
    threshold_s: float
    window_s: float = 0.1

    def argv(self) -> list[str]:
        out = [
            "--method",
            self.method,
            "--threshold-s",
            repr(self.threshold_s),
            "--window-s",
            repr(self.window_s),
        ]
        return out if self.cpus is None else [*out, "--cpus", ",".join(map(str, self.cpus))]

    @property
    def measured_cpus(self) -> tuple[int, ...]:
        return tuple(sorted(os.sched_getaffinity(0))) if self.cpus is None else self.cpus


def check(view: View) -> None:
    """Check that these cores can be measured.

    Raises
    ------
    UsageError  noise.no_such_core, noise.bad_option. EnvironmentFailure  noise.no_program.
    """
    done = subprocess.run(
        [str(program("sonde-detour")), *view.argv(), "--check"],
        cwd=place_of_ranks(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    for event in Reader().events(done.stdout.splitlines()):
        if event["event"] == "error":
            raise from_code(str(event["code"]), str(event["what"]), str(event["hint"]))
    if done.returncode != 0:
        raise EnvironmentFailure(
            "noise.no_program",
            f"sonde-detour --check ends with status {done.returncode}",
            "install Sonde again",
        )


def command(view: View, run_dir: Path, duration_s: float) -> list[str]:
    """The whole command line of the measurement."""
    where = ["--dir", str(run_dir.resolve()), "--duration-s", f"{duration_s:.3f}"]
    return [str(program("sonde-detour")), *view.argv(), *where]


def run(
    view: View,
    out: Path,
    words: tuple[str, ...],
    duration_s: float,
    progress: Progress,
    deadline: Deadline,
    tracing: Osnoise | None = None,
) -> Measured:
    """Measure for duration_s. Save the detours and the list of other programs by the deadline.

    Raises
    ------
    As `run_programs.measure`.
    """
    cpus = view.measured_cpus
    tracer = tracing or Osnoise()
    before = threads()
    tracer.start()

    def after(events: Sequence[Event]) -> dict[str, Any]:
        devices = [
            {"cpu": int(event["cpu"]), "name": name, "count": int(count)}
            for event in events
            if event["event"] == "devices"
            for name, count in zip(event["names"], event["counts"])
        ]
        seen = tracer.stop(cpus)
        return {
            "processes": json.dumps(used(before, threads(), cpus)),
            "devices": json.dumps(devices),
            "osnoise": json.dumps(seen) if not tracer.why_not else f"absent: {tracer.why_not}",
        }

    request = Request(
        schema=SCHEMA,
        programs=(Program(""),),
        out=out,
        plan={"kind": "host", "cpus": list(cpus)},
        attrs={"kind": "host", "method": view.method, "cpus": ",".join(map(str, cpus))},
        command=words,
        seed=0,
        hosts=(socket.gethostname(),),
        duration_s=duration_s,
        deadline=deadline,
    )
    try:
        return measure(request, lambda run_dir, _: command(view, run_dir, duration_s), progress, after)
    finally:
        tracer.stop(())  # also after a failure


Threads = Mapping[tuple[int, int], tuple[str, int, float]]


def threads(root: Path = PROC) -> Threads:
    """(pid, tid) to name, last CPU and CPU time in s, for all visible threads.

    CPU time comes from schedstat, in ns. A kernel without schedstat gives whole ticks of 10 ms.
    """
    found: dict[tuple[int, int], tuple[str, int, float]] = {}
    with suppress(OSError):
        for process in root.iterdir():
            if not process.name.isdigit():
                continue
            with suppress(OSError):
                for task in (process / "task").iterdir():
                    with suppress(OSError, ValueError, IndexError):
                        found[int(process.name), int(task.name)] = _thread(task)
    return found


def _thread(task: Path) -> tuple[str, int, float]:
    front, _, rest = (task / "stat").read_text("utf-8", "backslashreplace").rpartition(")")
    fields = rest.split()
    time_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    with suppress(OSError, ValueError, IndexError):
        time_s = int((task / "schedstat").read_text().split()[0]) * 1e-9
    return front.partition("(")[2], int(fields[36]), time_s


def used(before: Threads, after: Threads, cpus: Sequence[int]) -> list[dict[str, Any]]:
    """The CPU time that processes used between `before` and `after`, by process and its last CPU; most first.

    It misses threads that began and ended in between. A thread that moved counts on its last CPU. The measuring
    threads are left out.
    """
    sums: dict[tuple[int, int], tuple[str, float]] = {}
    wanted = set(cpus)
    for (pid, tid), (name, cpu, time_s) in after.items():
        spent = time_s - before.get((pid, tid), ("", 0, 0.0))[2]
        if cpu not in wanted or spent <= 0 or name.startswith("sonde-detour"):
            continue
        known = sums.get((pid, cpu), (name, 0.0))
        sums[pid, cpu] = (name if tid == pid else known[0], known[1] + spent)
    found: list[dict[str, Any]] = [
        {"pid": pid, "cpu": cpu, "name": name, "cpu_s": round(spent, 9)}
        for (pid, cpu), (name, spent) in sums.items()
    ]
    return sorted(found, key=lambda one: -one["cpu_s"])[:MAX_PROCESSES]
