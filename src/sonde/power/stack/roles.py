"""The roles of a power stack, and the program of each. Pure.

To add a role in Python, write a module `run_<role>` in a package of `sonde.power` with `serve(stack: Stack, name: str,
with_parent: bool) -> Iterator[bytes]`. It yields events as JSON lines and returns when a signal ends it. Add a line to
PYTHON and to PACKAGES.
"""

from __future__ import annotations

from sonde.core.errors import UsageError, nearest

NATIVE = {
    "node-manager": "one on each node: reads and caps its hardware",
    "system-manager": "one for the cluster, and standbys: enforces the budget",
    "mqtt-bridge": "connects the stack to an MQTT broker",
}
"""Roles of sonde-powerd itself."""

PYTHON = {
    "monitor": "receives all telemetry: history, metrics, live page",
    "job-scheduler": "queues jobs, and starts them under the budget",
    "resource-manager": "allocates nodes, cores, memory; limits of racks",
    "job-manager": "starts jobs, meters them, steers them to targets",
    "workflow-engine": "runs jobs that depend on each other",
}
PACKAGES = {
    "monitor": "monitor",
    "job-scheduler": "jobs",
    "resource-manager": "jobs",
    "job-manager": "jobs",
    "workflow-engine": "workflows",
}
"""The packages of the roles of PYTHON."""

ROLES = {**NATIVE, **PYTHON}


def check(role: str) -> str:
    """A role's name. Raises UsageError  power.unknown_role."""
    if role not in ROLES:
        raise UsageError(
            "power.unknown_role",
            f"there is no role '{role}'{nearest(role, list(ROLES))}; there are: {', '.join(ROLES)}",
            "sonde power serve --help describes each",
        )
    return role


def module_of(role: str) -> str:
    """The module of a role of PYTHON."""
    return f"sonde.power.{PACKAGES[role]}.run_{role.replace('-', '_')}"
