"""The queue of the job scheduler on its disk: each change is stored before another role gets an order."""

from __future__ import annotations

import threading
from collections import Counter

from sonde.power.jobs.entry import Entry
from sonde.power.jobs.queue import Queue
from sonde.power.jobs.queue_rows import changed_rows, queue_of
from sonde.power.jobs.run_jobs_store import Store
from sonde.power.jobs.shares import Share, shares_of
from sonde.power.stack import run_state
from sonde.power.stack.config import Stack
from sonde.power.stack.run_events import line

MAX_USERS_LOGGED = 20  # most events about forgotten jobs at a time; each has the total number
NO_ROOM = "jobs that are over exceeded the storage limit: see docs/reference/power-jobs.md for the limits"


class StoredQueue:
    """The queue, with the lock that all who use it take, and the events of jobs whose state changed.

    Raises
    ------
    DataError  power.not_a_store: the stored rows are damaged.
    """

    def __init__(self, stack: Stack, store: Store, now_ns: int) -> None:
        self._store = store
        self.mutex = threading.RLock()
        with store.decoding():
            self.queue: Queue = queue_of(store.load(), stack, {"root", run_state.own_user()})
            self.queue.set_back(now_ns)
        self._states: dict[str, str] = {job: one.state.state for job, one in self.queue.entries.items()}
        self._events: list[bytes] = []

    def in_state(self, state: str) -> list[Entry]:
        """The jobs in a state, in the order of their submission."""
        with self.mutex:
            those = [one for one in self.queue.entries.values() if one.state.state == state]
        return sorted(those, key=lambda one: one.number)

    def shares(self) -> dict[str, Share]:
        """The shares that the system manager should have."""
        with self.mutex:
            return shares_of(self.queue.active())

    def keep(self) -> None:
        """Store what changed. Raises CannotKeep: all of it must still be stored."""
        queue = self.queue
        if not queue.changed and not queue.gone:
            return
        forgotten = queue.forget_surplus()
        self._store.save(changed_rows(queue), queue.gone)
        for job in sorted(queue.changed, key=lambda job: queue.entries[job].number):
            state = queue.entries[job].state
            if self._states.get(job) != state.state:
                self._states[job] = state.state
                self._events.append(
                    line("job", job=job, state=state.state, user=state.spec.user, why=state.reason)
                )
        for job in queue.gone:
            self._states.pop(job, None)
        queue.changed.clear()
        queue.gone.clear()
        for user, jobs_of_user in Counter(one.spec.user for one in forgotten).most_common(MAX_USERS_LOGGED):
            self._events.append(
                line("forgotten", jobs=jobs_of_user, user=user, why=NO_ROOM, total=queue.forgotten)
            )

    def events(self) -> list[bytes]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events
