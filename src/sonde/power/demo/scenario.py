"""The scenario of `sonde power demo`: its configuration, and the times of its events. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from sonde.core.errors import UsageError

NODES = ("n1", "n2", "n3", "n4")
BUDGET_W, MIN_W, MAX_W, SAFE_W = 1000.0, 100.0, 400.0, 150.0
LEADER, STANDBY = "m1", "m2"
LEAST_S, LONGEST_LEASE_S = 2.0, 3.0

IDLE = 0.05
WORKFLOW = "demo"
# Jobs of its workflow: name, load of their nodes, part of the demo's length, nodes, guarantee of each node, preceding
# jobs.
STEPS = (
    ("mesh", 0.5, 0.08, 1, 0.0, ()),
    ("lbm", 0.95, 0.35, 2, 200.0, ("mesh",)),
    ("fft", 0.7, 0.2, 2, 160.0, ("mesh",)),
    ("render", 0.6, 0.06, 1, 0.0, ("lbm", "fft")),
)
STEP_S = 0.2
WORK = f"""#!/bin/sh
# work LOAD STEPS: what a job makes of its simulated node.
load="load-$SONDE_JOB_NODE"
tell() {{ echo "$1" > "$load.job" && mv "$load.job" "$load"; }}
trap 'tell {IDLE}; exit 143' TERM
tell "$1"
step=0
while [ "$step" -lt "$2" ]; do
  sleep {STEP_S}
  step=$((step + 1))
  printf '%d.%02d\\n' $((step / $2)) $((step % $2 * 100 / $2)) >> "$SONDE_JOB_PROGRESS"
done
tell {IDLE}
"""
"""The program of the demo's jobs, in the demo's folder: simulated nodes read their load from a file."""

LOADS = (  # for each node and stretch, in a demo without a workflow: the load from its two jobs
    (0.05, 0.05, 0.05, 0.05),
    (1.0, 0.9, 0.3, 0.1),
    (1.0, 0.9, 0.3, 0.1),
    (0.1, 0.1, 0.9, 0.7),
)


@dataclass(frozen=True)
class Timing:
    """lease_s, renew_s, period_s, takeover_s, telemetry_s: of the configuration. at_s: when the stretches of LOADS
    begin. kill_s: when the leading manager is killed.
    """

    lease_s: float
    renew_s: float
    period_s: float
    takeover_s: float
    telemetry_s: float
    at_s: tuple[float, ...]
    kill_s: float
    length_s: float


def timing(length_s: float) -> Timing:
    """Short leases for a short demo, so that every phase is visible: jobs, the kill, and the leases of the next
    manager.

    Raises
    ------
    UsageError  power.budget_too_short.
    """
    if length_s < LEAST_S:
        raise UsageError(
            "power.budget_too_short",
            f"the demo's time is {length_s:.3g} s; allowed: {LEAST_S:g} s or more",
            f"give --budget {LEAST_S:g}s or more",
        )
    lease = min(LONGEST_LEASE_S, max(0.8, length_s / 5))
    return Timing(
        lease_s=lease,
        renew_s=lease / 3,
        period_s=max(0.2, lease / 6),
        takeover_s=lease / 2,
        telemetry_s=0.1,
        at_s=(0.0, 0.1 * length_s, 0.4 * length_s, 0.75 * length_s),
        kill_s=0.4 * length_s,
        length_s=length_s,
    )


def configuration(
    name: str, timing: Timing, loads: Sequence[str] = (), node: int = -1, broker: str = "", user: str = ""
) -> str:
    """One daemon's power.toml. All daemons have the same file except for their own state and load.

    user: whose jobs are started; "": no jobs are started.
    """

    def seconds(value: float) -> str:
        return f'"{value * 1000:.0f}ms"'

    lines = [
        'cluster = "demo"',
        "[bus]",
        'profile = "bus.xml"',
        "[budget]",
        f'power_limit = "{BUDGET_W:g}W"',
        'policy = "fair"',
        f"lease = {seconds(timing.lease_s)}",
        f"renew = {seconds(timing.renew_s)}",
        f"period = {seconds(timing.period_s)}",
        "[[nodes]]",
        f'hosts = "{",".join(NODES)}"',
        f'min = "{MIN_W:g}W"',
        f'max = "{MAX_W:g}W"',
        f'safe = "{SAFE_W:g}W"',
        "[node-manager]",
        f"telemetry = {seconds(timing.telemetry_s)}",
        f'state = "state-{name}"',
    ]
    if node >= 0:
        lines += [
            "[[node-manager.hardware]]",
            'kind = "simulated"',
            'idle = "80W"',
            'busy = "390W"',
            'noise = "2W"',
            'lag = "200ms"',
            f'load_file = "{loads[node]}"',
            f"seed = {node + 1}",
            f'min = "{MIN_W:g}W"',
            f'max = "{MAX_W:g}W"',
        ]
    lines += [
        "[system-manager]",
        f'name = "{name}"',
        f'state = "state-{name}"',
        f'audit = "audit-{name}.jsonl"',
        f"takeover = {seconds(timing.takeover_s)}",
        f"priority = {0 if name != STANDBY else 1}",
        "[monitor]",
        'listen = "127.0.0.1:0"',
        'history = "history.sqlite"',
    ]
    if user:
        lines += [
            "[job-scheduler]",
            'kind = "built-in"',
            'state = "queue"',
            'period = "250ms"',
            "[resource-manager]",
            'state = "resources"',
            "[job-manager]",
            'state = "runs"',
            'report = "250ms"',
            'grace = "1s"',
            f"users = [{json.dumps(user)}]",
            "[workflow-engine]",
            'state = "workflows"',
            'look = "250ms"',
        ]
    if broker:
        lines += [
            "[mqtt-bridge]",
            f'broker = "{broker}"',
            'to_mqtt = ["Monitor_report_*"]',
        ]
    return "\n".join(lines) + "\n"


def workflow(timing: Timing) -> str:
    """The demo's workflow as a TOML file."""
    lines = [f'name = "{WORKFLOW}"']
    for name, load, part, nodes, guaranteed, after in STEPS:
        steps = max(1, round(part * timing.length_s / STEP_S))
        lines += [f"[jobs.{name}]", f'command = ["./work", "{load}", "{steps}"]', f"nodes = {nodes}"]
        if guaranteed:
            lines.append(f'guaranteed = "{guaranteed:g}W"')
        if after:
            lines.append(f"after = {json.dumps(after)}")
    return "\n".join(lines) + "\n"


def job_power(power_w: Sequence[float]) -> float:
    """The power of a job's nodes together; NaN if one of them is unknown."""
    return math.fsum(power_w) if power_w and all(map(math.isfinite, power_w)) else float("nan")


JOBS = (("lbm", ("n1", "n2"), 1, 3), ("fft", ("n3", "n4"), 3, 4))
"""Jobs of a demo without a workflow: name, nodes, and the stretches of LOADS at which it starts and ends."""
