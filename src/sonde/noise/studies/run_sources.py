"""Noise sources for studies: they record their bursts in the run's folder; a node may have several sources."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from sonde.core.launch import libexec
from sonde.noise.agents.recipes import AgentPlan
from sonde.noise.detector.plan import RUN_FOLDER


def recorded_source(
    name: str,
    level: float,
    period_s: float,
    words: int,
    seed: int,
    *,
    aligned: bool = True,
    cores: Sequence[int] = (),
) -> AgentPlan:
    """The noise source as an agent that records its bursts in agent-NAME-HOST.blk in the run's folder.

    On a node that cannot access this folder, the source works without a record.

    aligned: bursts at multiples of the period of the wall clock. cores: one source for each core, pinned to it; without
    cores there is one source, and the supervisor places it.
    """
    program = str(libexec() / "sonde-agent")
    phase = ["--phase-s", "0"] if aligned else ["--unsync"]
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")
    pieces = []
    for core in cores or (None,):
        line = [program, "--level", f"{level:.9g}", "--period-s", f"{period_s:.9g}", "--words", str(words)]
        line += ["--seed", str(seed), *phase, *(["--core", str(core)] if core is not None else [])]
        part = f"{slug}-{core}" if core is not None else slug
        record = f'{RUN_FOLDER}/agent-{part}-"$(uname -n)".blk'
        pieces.append(
            f'set --; [ ! -w {RUN_FOLDER} ] || set -- --record {record}; exec {shlex.join(line)} "$@"'
        )
    if len(pieces) == 1:
        command = pieces[0]
    else:
        # The shell ignores the signal that ends all, so it lives longer than the sources. If it ended first, they would
        # be killed.
        command = "trap : TERM; " + " ".join(f"({piece}) &" for piece in pieces) + " wait; wait"
    return AgentPlan(command, name=name, period_s=period_s, ready="for:0.05")


def rank_cpus(count: int, root: Path = Path("/")) -> tuple[int, ...]:
    """The CPUs of `count` ranks on this host: one for each core while there are cores, then their other threads."""
    cpus = sorted(os.sched_getaffinity(0))
    seen: set[tuple[str, str]] = set()
    first: list[int] = []
    others: list[int] = []
    for cpu in cpus:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        core = (_read(topology / "physical_package_id"), _read(topology / "core_id") or f"cpu{cpu}")
        (others if core in seen else first).append(cpu)
        seen.add(core)
    return tuple([*first, *others][:count])


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
