"""The order that a user's credential stands for. Pure: run_proof.py makes and checks credentials."""

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
"""The services whose orders need a credential, if the configuration asks for one."""


def claimed(service: str, body: Mapping[str, Any]) -> str:
    """The user in whose name an order is: the job's own user for a submission, else the user who gives the order.

    "": no user. Roles that carry out orders accept them from the scheduler, whoever owns the job.
    """
    if service in (jobs.RESOURCES_SET, jobs.JOB_SET):
        return ""
    if service == jobs.SCHEDULER_SET and body["order"] == "SUBMIT_JOB":
        return str(body["spec"]["user"])
    return str(body["user"])


def digest(service: str, body: Mapping[str, Any]) -> str:
    """SHA-256, in hexadecimal, of everything in an order. It is the same before and after sending, and differs for any
    other order.

    A field that the sender leaves out counts with the default that the bus fills in.
    """
    claim: dict[str, Any] = {name: body.get(name, "") for name in _FIELDS[service]}
    if body["order"] in ("SUBMIT_JOB", "ALLOCATE", "START_JOB"):
        claim["spec"] = jobs.to_plain(jobs.Spec.of(body["spec"]))
    if service == jobs.JOB_SET:
        claim["parts"] = [jobs.to_plain(jobs.Part.of(part)) for part in body.get("parts", ())]
        claim["target"] = jobs.to_plain(jobs.Target.of(body.get("target", {})))
        claim["grace_s"] = float(body.get("grace_s", 0.0))
    return _hashed([service, _plain(claim)])


def of_spec(spec: jobs.Spec) -> str:
    """SHA-256, in hexadecimal, of a submission: the same if it is sent again."""
    return _hashed(_plain(jobs.to_plain(spec)))


def _hashed(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode("utf-8")).hexdigest()


def _plain(value: Any) -> Any:
    """A value with numbers as the bus sends them: an integer may come back as a float."""
    if isinstance(value, Mapping):
        return {name: _plain(value[name]) for name in sorted(value)}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() else value.hex()
    return value
