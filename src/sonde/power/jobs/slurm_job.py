"""A Slurm job as it is reported to the system manager: from the environment of Slurm's hooks. Pure.

The job's comment may state, for each of its nodes, the expected power and the guaranteed power: `sbatch
--comment='power=350W guaranteed=250W weight=2'`. Other words of the comment are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sonde.core import hostlist
from sonde.core.errors import UsageError, nearest
from sonde.core.units import parse_power

KEYS = ("power", "guaranteed", "weight")
LONGEST_S = 30 * 86400.0  # the longest time that the system manager accepts
SPARE_S = 600.0  # added to a job's time: its epilog runs after its processes are gone
_WORD = re.compile(r"(?:^|[\s,;])(power|guaranteed|weight)=([^\s,;]*)", re.ASCII)
_MISSPELT = re.compile(r"(?:^|[\s,;])([a-z_-]+)=(\d+(?:\.\d+)?k?W)(?=$|[\s,;])", re.ASCII)


@dataclass(frozen=True)
class Wish:
    """Power of each node, W; 0: not set."""

    demand_w: float = 0.0
    guaranteed_w: float = 0.0
    weight: float = 1.0


@dataclass(frozen=True)
class SlurmJob:
    """job: its name at the system manager. limit_s: 0: unknown."""

    job: str
    user: str
    nodes: tuple[str, ...]
    comment: str = ""
    limit_s: float = 0.0


def job_of(environment: Mapping[str, str]) -> SlurmJob:
    """
    Raises
    ------
    UsageError  power.not_in_slurm.
    """
    number = environment.get("SLURM_JOB_ID", "")
    if not re.fullmatch(r"\d{1,20}", number, re.ASCII):
        raise UsageError(
            "power.not_in_slurm",
            f"SLURM_JOB_ID is '{number}'"
            if number
            else "SLURM_JOB_ID is not set: this is not a hook of Slurm",
            "PrologSlurmctld and EpilogSlurmctld of slurm.conf run this command: docs/howto/power-slurm.md",
        )
    nodes = environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST", "")
    times = [environment.get(f"SLURM_JOB_{name}_TIME", "") for name in ("START", "END")]
    limit = 0.0
    if all(text.isascii() and text.isdigit() for text in times):
        limit = max(0.0, float(times[1]) - float(times[0]))
    return SlurmJob(
        f"slurm-{number}",
        environment.get("SLURM_JOB_USER", "")[:64],
        tuple(hostlist.expand(nodes)) if nodes else (),
        environment.get("SLURM_JOB_COMMENT", ""),
        limit,
    )


def wish_of(comment: str, default: Wish) -> tuple[Wish, list[str]]:
    """The wish in a comment, and its invalid parts as messages. Values that it does not set come from `default`."""
    values = dict(default.__dict__)
    wrong: list[str] = []
    for key, text in _WORD.findall(comment):
        try:
            value = float(text) if key == "weight" else parse_power(text)
        except (UsageError, ValueError):
            value = 0.0
        if not 0 < value <= (1e6 if key == "weight" else 1e9):
            allowed = "a number of 0.001 to 1000000" if key == "weight" else "a power such as 350W"
            wrong.append(f"the job's comment says {key}={text[:40]}; allowed: {allowed}")
            continue
        values["demand_w" if key == "power" else "guaranteed_w" if key == "guaranteed" else key] = value
    for key, text in _MISSPELT.findall(comment):
        near = nearest(key, KEYS)
        if key not in KEYS and near:
            wrong.append(f"the job's comment says {key}={text}, which is not a known word{near}")
    wish = Wish(**values)
    if wish.demand_w and wish.guaranteed_w > wish.demand_w:
        wrong.append(
            "the job's comment guarantees more than its power: the guarantee is reduced to its power"
        )
        wish = Wish(wish.demand_w, wish.demand_w, wish.weight)
    return wish, wrong


def command(job: SlurmJob, wish: Wish, managed: Sequence[str]) -> dict[str, object] | None:
    """SystemCommand for a job that begins; None if the power stack has none of its nodes."""
    nodes = [node for node in job.nodes if node in set(managed)]
    if not nodes:
        return None
    for_s = min(LONGEST_S, job.limit_s + SPARE_S) if job.limit_s else LONGEST_S
    return {
        "order": "SET_JOB",
        "job": job.job,
        "user": job.user,
        "nodes": nodes,
        "for_s": for_s,
        "guaranteed_w": wish.guaranteed_w,
        "demand_w": wish.demand_w or float("nan"),
        "weight": wish.weight,
        "reason": "Slurm's prolog",
    }
