"""Runs sonde-noise. The one module of the detector's side that touches the machine."""

from __future__ import annotations

import math
import os
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from sonde.core.deadline import within
from sonde.core.errors import UsageError, Warning
from sonde.core.events import Event, Progress
from sonde.core.launch import libexec, session
from sonde.core.launch.cpus import parse_cpu_list
from sonde.core.launch.measured import Measured
from sonde.core.launch.session import Job
from sonde.core.launch.start import Start
from sonde.core.layout import RoomSchema
from sonde.noise.agents.recipes import AgentPlan
from sonde.noise.detector.plan import (
    MIN_PAIRS,
    OFF,
    Plan,
    Variant,
    block_length,
    design_for,
    end_s,
    needed_budget,
)
from sonde.noise.detector.sealing import SCHEMA
from sonde.noise.detector.verdict import SURVEY

# Measuring an agent's period: the watching time, its step, and the pause that separates two wake-ups.
WATCH_S, WATCH_STEP_S, APART_S = 8.0, 0.04, 0.15
STEADY = 0.25  # gaps count as one period up to this spread, a share of their median
# The noise source that a survey switches on and off to measure the sensitivity of the machine.
QUICK_LEVEL, QUICK_PERIOD_S = 0.01, 1.0
# The share of its time that a survey plans: a busy machine starts slowly, and a run that ends before a look has no
# result.
QUICK_SHARE = 0.85


@dataclass(frozen=True)
class Request:
    """The plan of a measurement, its programs and its dataset; as `sonde.net.run.Request`. schema: of its records."""

    plan: Plan
    start: Start
    out: Path
    command: tuple[str, ...]
    budget_s: float | None
    began: float
    timeout_s: float = 60.0
    schema: RoomSchema = SCHEMA

    def job(self) -> Job:
        """The job of sonde-noise for this request."""
        plan = self.plan
        return Job(
            schema=self.schema,
            start=self.start,
            ntasks=plan.ntasks,
            words=plan.argv,
            plan=plan.document(),
            out=self.out,
            command=self.command,
            seed=plan.seed,
            time_s=self.left_s,
            deadline=within(self.budget_s, self.began),
            timeout_s=self.timeout_s + plan.design.block_s,
            attrs=plan.attrs(),
            warnings=plan.warnings(),
        )

    def left_s(self) -> float:
        """The time left for measuring, s; 0: no limit."""
        if self.budget_s is None:
            return 0.0
        rest = end_s(self.budget_s, scanning=len(self.plan.design.periods_s) > 1)
        return max(0.2, self.budget_s - (time.monotonic() - self.began) - rest)


class Listener(session.Listener):
    """The listener for sonde-noise: besides the events that every probe reports, it takes the result of each look."""

    room = "noise"
    sample_kinds = (0,)  # blocks
    poll_s = 2.0
    crowded = (
        "the kernel switches between them, and this noise hides the agent's",
        "give no more ranks than cores",
    )
    dropped = ("records", "give a shorter --budget, or leave out --keep")
    patience = "raise --timeout, or leave out the host that hangs with --hosts '^NAME'"

    def take(self, event: Event) -> None:
        super().take(event)
        if event["event"] == "look":
            self.attrs["p_live"] = float(event["p_so_far"])
            if event["detected"] and "detected_s" not in self.attrs:
                self.attrs["detected_s"] = float(event["elapsed_s"])


def measure(request: Request, progress: Progress) -> Measured:
    """Measure, and seal the data whether or not the run succeeded. Returns and raises as `session.run`."""
    return session.run(request.job(), Listener(progress))


def source_plan(
    level: float, period_s: float, words: int, seed: int, *, aligned: bool = True, phase_s: float = 0.0
) -> AgentPlan:
    """The noise source as an agent. aligned: bursts start `phase_s` after multiples of the period of the wall clock."""
    line = [
        str(libexec() / "sonde-agent"),
        *(
            "--level",
            f"{level:.9g}",
            "--period-s",
            f"{period_s:.9g}",
            "--words",
            str(words),
            "--seed",
            str(seed),
        ),
        *(("--phase-s", f"{phase_s:.9g}") if aligned else ("--unsync",)),
    ]
    return AgentPlan("exec " + shlex.join(line), name="noise source", period_s=period_s, ready="for:0.05")


def last_cpu() -> int:
    """The last CPU that this process may use. An agent is pinned to it, because the last rank is bound to it, too."""
    return max(os.sched_getaffinity(0))


def check_cpus(cpus: Sequence[int], start: Start) -> None:
    """Check that an agent may use these CPUs. This is possible only for runs on this machine alone.

    On other hosts the supervisor checks it later.

    Raises
    ------
    UsageError  noise.no_such_core.
    """
    open_here = sorted(os.sched_getaffinity(0))
    if start.only_here and (closed := sorted(set(cpus) - set(open_here))):
        raise UsageError(
            "noise.no_such_core",
            f"CPU {','.join(map(str, closed))} cannot be used; this process may use: {','.join(map(str, open_here))}",
            "choose some of these with --cpus, or omit it",
        )


def siblings(cpu: int, root: Path = Path("/")) -> tuple[int, ...]:
    """The other hardware threads of a CPU's core that this process may use; () without SMT."""
    path = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    try:
        text = path.read_text().strip()
    except OSError:
        return ()
    return tuple(sorted((set(parse_cpu_list(text)) & os.sched_getaffinity(0)) - {cpu}))


def find_period(agent: AgentPlan) -> float:
    """The period at which an agent wakes up by itself, s; 0 if there is no steady period within WATCH_S.

    The agent is started, and its CPU time is read in short steps. Work after a pause of APART_S is a wake-up.

    Raises
    ------
    SondeError  the agent does not start.
    """
    from sonde.noise.agents.run import SupervisorProcess

    with SupervisorProcess(agent) as supervisor:
        supervisor.ask("start")
        onsets = wake_ups(lambda: float(supervisor.ask("usage")["cpu_s"]))
        supervisor.ask("stop")
    return steady_gap(onsets)


def wake_ups(
    used_s: Callable[[], float],
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> list[float]:
    """The times at which work began after a pause, s of `now_s`. used_s: CPU time so far."""
    onsets: list[float] = []
    before = used_s()
    last_work = float("-inf")
    end = now_s() + WATCH_S
    while (now := now_s()) < end:
        used = used_s()
        if used > before:
            if now - last_work > APART_S:
                onsets.append(now)
            last_work = now
        before = used
        sleep(WATCH_STEP_S)
    return onsets


def steady_gap(onsets: list[float]) -> float:
    """The gap between times at steady intervals, exact to WATCH_STEP_S; 0 if they are not steady or fewer than 4."""
    if len(onsets) < 4:
        return 0.0
    gaps = sorted(b - a for a, b in pairwise(onsets))
    middle = gaps[len(gaps) // 2]
    spread = gaps[(3 * len(gaps)) // 4] - gaps[len(gaps) // 4]
    if spread > STEADY * middle:
        return 0.0
    # After a missed wake-up, one gap has two periods.
    mean = (onsets[-1] - onsets[0]) / sum(max(1, round(gap / middle)) for gap in gaps)
    for nice in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0):
        if abs(mean - nice) < 0.02 * nice:
            return nice
    return mean


def measure_quickly(
    start: Start,
    out: Path,
    *,
    ntasks: int,
    seed: int,
    command: tuple[str, ...],
    budget_s: float,
    began: float,
    progress: Progress,
) -> Measured:
    """The quick measurement of a survey: whether 1 % of noise is detected, the smallest detectable burst, lost time.

    Raises
    ------
    UsageError  noise.budget_too_short.
    """
    pairs_s = needed_budget(MIN_PAIRS, block_length(QUICK_PERIOD_S))
    planned_s = max(QUICK_SHARE * budget_s, min(budget_s, math.ceil(pairs_s)))
    agent = source_plan(QUICK_LEVEL, QUICK_PERIOD_S, 250_000, seed)
    plan = Plan(
        (OFF, Variant("noise source 1 %", agent, (last_cpu(),), QUICK_LEVEL)),
        design_for(planned_s, QUICK_PERIOD_S),
        ntasks,
        matters=QUICK_LEVEL,
        seed=seed,
        period_s=QUICK_PERIOD_S,
        study=SURVEY,
        labels={"level": QUICK_LEVEL, "words": 250_000},
    )
    return measure(Request(plan, start, out, command, budget_s, began), progress)


def no_smt(cpu: int) -> Warning:
    """The warning that a CPU has no sibling for this placement."""
    return Warning(
        "noise.no_sibling",
        f"CPU {cpu} has no second hardware thread here, so --compare sibling is left out",
        "run it where SMT is on",
    )
