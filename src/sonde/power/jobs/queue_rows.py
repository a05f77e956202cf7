"""The queue as it is configured and stored: rows by the id of the job. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sonde.power.jobs.entry import Entry, as_text
from sonde.power.jobs.queue import DEFAULT, Queue
from sonde.power.jobs.schedule import Order, QueueRules, Usage
from sonde.power.stack.config import Stack
from sonde.power.stack.telemetry import known

USAGE = "#usage"  # stored next to jobs: no job has such an id


def rules(stack: Stack) -> tuple[QueueRules, ...]:
    """The configured queues; one for all users if there are none."""
    queues = tuple(
        QueueRules(
            str(one["name"]),
            int(one["priority"]),
            bool(one["is_default"]),
            tuple(one["users"]),
            tuple(one["groups"]),
            known(one["default_time_s"]),
            known(one["max_time_s"]),
            int(one["max_nodes"]),
            known(one["max_power_w"]),
        )
        for one in stack.jobs.queues
    )
    return queues or (DEFAULT,)


def queue_of(rows: dict[str, Any], stack: Stack, operators: Collection[str]) -> Queue:
    """The queue from its stored rows, by name. Invalid rows raise errors of any kind."""
    usage = rows.pop(USAGE, None)
    if "had" in rows.get("usage", {}):  # older versions stored it among the jobs' ids
        old = rows.pop("usage")
        usage = usage or old
    usage = usage or {"at_s": 0.0, "had": {}}
    settings = stack.jobs
    queue = Queue(
        rules(stack),
        Order(settings.fairness, settings.age_s, settings.half_life_s, settings.shares),
        Usage(settings.half_life_s, {u: (n, e) for u, (n, e) in usage["had"].items()}, float(usage["at_s"])),
        operators,
        settings.max_waiting,
        settings.grace_s,
        {name: Entry.of(row) for name, row in rows.items()},
        max_waiting_user=settings.max_waiting_user,
    )
    # Rows of older versions hold more than is stored today.
    queue.changed = {job for job, one in queue.entries.items() if as_text(one) != rows[job]}
    return queue


def changed_rows(queue: Queue) -> dict[str, Any]:
    """The rows that must be stored now."""
    rows: dict[str, Any] = {job: as_text(queue.entries[job]) for job in queue.changed}
    rows[USAGE] = {"at_s": queue.usage.at_s, "had": queue.usage.had}
    return rows
