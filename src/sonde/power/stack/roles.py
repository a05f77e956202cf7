"""The roles of a power stack, and what plays each. Pure.

To add one in Python: a module `run_<role>` in a package of `sonde.power` with
`serve(stack: Stack, name: str, with_parent: bool) -> Iterator[bytes]`, which gives events as JSON lines and ends when
it is told to, and a line in PYTHON and PACKAGES.
"""

from __future__ import annotations

from sonde.core.errors import UsageError, nearest

NATIVE = {
    "node-manager": "one on each node: reads and caps its hardware",
    "system-manager": "one for the cluster, and standbys: holds the budget",
    "mqtt-bridge": "to and from an MQTT broker",
}
"""Played by sonde-powerd itself."""

PYTHON = {
    "monitor": "hears all telemetry: history, metrics, live page",
    "job-scheduler": "queues jobs, and starts them under the budget",
    "resource-manager": "gives jobs nodes, cores, memory; limits of racks",
    "job-manager": "starts jobs, meters them, steers them to targets",
    "workflow-engine": "jobs that wait for each other",
}
PACKAGES = {
    "monitor": "monitor",
    "job-scheduler": "jobs",
    "resource-manager": "jobs",
    "job-manager": "jobs",
    "workflow-engine": "workflows",
}
"""Where those of PYTHON are."""

ROLES = {**NATIVE, **PYTHON}


def check(role: str) -> str:
    """A role's name. Raises UsageError  power.unknown_role."""
    if role not in ROLES:
        raise UsageError(
            "power.unknown_role",
            f"there is no role '{role}'{nearest(role, list(ROLES))}; there are: {', '.join(ROLES)}",
            "sonde power serve --help tells what each does",
        )
    return role


def module_of(role: str) -> str:
    """The module that plays a role of PYTHON."""
    return f"sonde.power.{PACKAGES[role]}.run_{role.replace('-', '_')}"
