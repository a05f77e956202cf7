"""Which order a user's credential is for. Pure: run_proof.py makes credentials and checks them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from sonde.power.jobs import jobs

_FIELDS: dict[str, tuple[str, ...]] = {
    jobs.SCHEDULER_SET: ("order", "job", "user", "reason"),
    jobs.RESOURCES_SET: ("order", "job"),
    jobs.JOB_SET: ("order", "job", "reason"),
    "WorkflowEngine_set": ("order", "run", "user", "path", "text", "reason"),
}

SERVICES = frozenset(_FIELDS)
"""Whose orders have a credential where the configuration asks for one."""


def claimed(service: str, body: Mapping[str, Any]) -> str:
    """In whose name an order is: of a job that is handed in its own user's, else that of who orders.

    "": in nobody's. Those that carry out take orders of who schedules, whose job it ever is.
    """
    if service in (jobs.RESOURCES_SET, jobs.JOB_SET):
        return ""
    if service == jobs.SCHEDULER_SET and body["order"] == "SUBMIT_JOB":
        return str(body["spec"]["user"])
    return str(body["user"])


def digest(service: str, body: Mapping[str, Any]) -> str:
    """SHA-256, in hexadecimal, of all that an order says: the same before it is sent and after, another for any other.

    What a sender leaves out counts as what the bus puts in its place.
    """
    said: dict[str, Any] = {name: body.get(name, "") for name in _FIELDS[service]}
    if body["order"] in ("SUBMIT_JOB", "ALLOCATE", "START_JOB"):
        said["spec"] = jobs.said(jobs.Spec.of(body["spec"]))
    if service == jobs.JOB_SET:
        said["parts"] = [jobs.said(jobs.Part.of(part)) for part in body.get("parts", ())]
        said["target"] = jobs.said(jobs.Target.of(body.get("target", {})))
        said["grace_s"] = float(body.get("grace_s", 0.0))
    return _hashed([service, _plain(said)])


def of_spec(spec: jobs.Spec) -> str:
    """SHA-256, in hexadecimal, of a submission: the same of one that is sent again."""
    return _hashed(_plain(jobs.said(spec)))


def _hashed(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode("utf-8")).hexdigest()


def _plain(value: Any) -> Any:
    """Numbers as the bus sends them: a whole one may come back as a float."""
    if isinstance(value, Mapping):
        return {name: _plain(value[name]) for name in sorted(value)}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() else value.hex()
    return value
