"""The answers of the job scheduler to those who ask for jobs and queues. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sonde.power.jobs.entry import Entry
from sonde.power.jobs.jobs import to_plain
from sonde.power.jobs.schedule import QueueRules

MAX_OVER = 1000  # most jobs that are over in one answer


def shown(entry: Entry, brief: bool = False) -> dict[str, Any]:
    """An entry as others see it: without its environment, which is private to its user. brief: for a list
    of many jobs.
    """
    spec = entry.spec.brief if brief else replace(entry.spec, environment=())
    return dict(to_plain(replace(entry.state, spec=spec)))


def jobs_shown(entries: Iterable[Entry], body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The jobs that a request asks for: those that are over, then those with resources, then those that wait."""
    wanted = [
        one
        for one in entries
        if (not body["user"] or one.spec.user == body["user"])
        and (not body["queue"] or one.spec.queue == body["queue"])
    ]
    over = [one for one in wanted if one.state.over][-MAX_OVER:] if body["over"] else []
    present = [one for one in wanted if not one.state.over]
    present.sort(key=lambda one: (not one.state.active, -one.state.priority, one.number))
    return [shown(one, brief=True) for one in (*over, *present)]


def queues_shown(
    rules: Iterable[QueueRules], default: QueueRules, entries: Iterable[Entry]
) -> list[dict[str, Any]]:
    """Each queue with its limits, and how many of its jobs wait and run."""
    out, entries = [], list(entries)
    for rule in rules:
        those = [one.state for one in entries if one.spec.queue == rule.name]
        out.append(
            {
                "name": rule.name,
                "priority": rule.priority,
                "is_default": rule == default,
                "max_time_s": rule.max_time_s,
                "max_nodes": rule.max_nodes,
                "max_power_w": rule.max_power_w,
                "users": list(rule.users),
                "groups": list(rule.groups),
                "waiting": sum(not one.over and not one.active for one in those),
                "running": sum(one.active for one in those),
            }
        )
    return out
