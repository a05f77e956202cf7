"""The checks of a submitted job: what every job must be, and what its queue allows. Pure."""

from __future__ import annotations

import math

from sonde.core.units import format_duration, format_power
from sonde.power.jobs.jobs import JOB_ID, RESERVED, Spec
from sonde.power.jobs.schedule import QueueRules

LONGEST_S = 366 * 86400.0
LARGEST = 1 << 20  # characters of command and environment together
# characters of command and environment, counted for each node: each node gets a copy
LARGEST_OF_JOB = 64 << 20


class Refusal(Exception):
    """word: one of jobs.CODES. what: the message for the sender of the request."""

    def __init__(self, word: str, what: str) -> None:
        super().__init__(what)
        self.word, self.what = word, what


def _texts(spec: Spec) -> tuple[str, ...]:
    return (*spec.command, *spec.environment, spec.folder, spec.output)


def _characters(spec: Spec) -> int:
    return sum(map(len, _texts(spec)))


def check(spec: Spec) -> None:
    """Raises Refusal  bad_job: an invalid submission, whatever the queue."""

    def refuse(what: str) -> None:
        raise Refusal("bad_job", what)

    if not JOB_ID.fullmatch(spec.job):
        refuse(
            f"the job's id is '{spec.job[:80]}'; allowed: 1 to 64 letters, digits, '_', '.', ':', '-', "
            "the first a letter or digit"
        )
    if RESERVED.fullmatch(spec.job):
        refuse(
            f"the job's id is '{spec.job}': Sonde names shared nodes 'on:NODE' and Slurm's jobs 'slurm-NUMBER'; choose "
            "another id"
        )
    if not spec.user or not spec.user.isprintable():
        refuse("the job names no user")
    if not spec.command or not spec.command[0]:
        refuse("the job has no command")
    if not spec.name.isprintable() or not spec.queue.isprintable():
        refuse("the job's name or queue has control characters in it")
    texts = _texts(spec)
    if any("\0" in text for text in texts):
        refuse("the command or the environment contains a NUL character")
    if _characters(spec) > LARGEST:
        refuse(f"command and environment have more than {LARGEST} characters together")
    if any("=" not in text[1:] for text in spec.environment):
        refuse("an entry of the environment is not NAME=value")
    if spec.folder and not spec.folder.startswith("/"):
        refuse(f"the folder is '{spec.folder}'; allowed: an absolute path")
    if not spec.hosts and spec.nodes < 1:
        refuse("the job requests no nodes")
    if len(set(spec.hosts)) < len(spec.hosts):
        refuse("the job names a node twice")
    numbers = {
        "time limit": (spec.limit_s, LONGEST_S),
        "grace": (spec.grace_s, 86400.0),
        "guaranteed power": (spec.guaranteed_w, 1e9),
        "demand": (spec.demand_w, 1e9),
        "target's time of a turn": (spec.target.iteration_s, LONGEST_S),
        "target's slowdown": (spec.target.slowdown, 1e3),
        "target's energy": (spec.target.energy_j, 1e18),
    }
    for what, (value, most) in numbers.items():
        if not 0 <= value <= most:
            refuse(f"the job's {what} is {value}; allowed: 0 to {most:g}")
    if not 0 < spec.weight <= 1e6:
        refuse(f"the job's weight is {spec.weight}; allowed: above 0, up to 1000000")


def check_limits(spec: Spec, rules: QueueRules) -> None:
    """Check a job, with all that it did not set, against its queue. Raises Refusal  above_limit, bad_job."""

    def refuse(what: str) -> None:
        raise Refusal("above_limit", f"{what}; see docs/reference/power-jobs.md for the limits of queues")

    if rules.max_time_s > 0 and not 0 < spec.limit_s <= rules.max_time_s:
        refuse(
            f"the job requests {format_duration(spec.limit_s)}; the queue {rules.name} allows "
            f"{format_duration(rules.max_time_s)} at most"
        )
    if rules.max_nodes and spec.nodes > rules.max_nodes:
        refuse(
            f"the job requests {spec.nodes} nodes; the queue {rules.name} allows at most {rules.max_nodes}"
        )
    power = spec.guaranteed_w * spec.nodes
    if math.isfinite(rules.max_power_w) and power > rules.max_power_w:
        refuse(
            f"the job requests {format_power(power)} on all its nodes; the queue {rules.name} guarantees "
            f"{format_power(rules.max_power_w)} at most"
        )
    if _characters(spec) * spec.nodes > LARGEST_OF_JOB:
        raise Refusal(
            "bad_job",
            f"command and environment have {_characters(spec)} characters, copied to {spec.nodes} nodes; "
            f"allowed: {LARGEST_OF_JOB} on all nodes together",
        )
