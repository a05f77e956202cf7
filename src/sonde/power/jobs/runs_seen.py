"""The runs that the job manager reported, and what they mean for the queue. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from sonde.power.jobs.jobs import HELD, RUNNING, STARTING, WAITING, Run
from sonde.power.jobs.queue import Queue


class RunsSeen:
    """jobs: those that the job manager has. Times by a monotonic clock."""

    def __init__(self) -> None:
        self.jobs: set[str] = set()
        self._since_s: dict[str, float] = {}  # since when each was seen to run

    def take(
        self, queue: Queue, runs: Iterable[Run], now_ns: int, now_s: float, most_s: float
    ) -> list[tuple[str, bool]]:
        """Apply all runs that the job manager has to the queue. Returns jobs that it must stop or forget, with whether
        their run is over.

        most_s: the longest time that can have passed since the last charge.
        """
        by_job = {run.job: run for run in runs}
        self.jobs = set(by_job)
        queue.set_back(now_ns, most_s)
        strays = []
        for job, run in by_job.items():
            entry = queue.take_run(run, now_ns)
            if entry is None:
                continue
            late = entry.state.state in (WAITING, HELD)  # its resources went to other jobs
            if late or (entry.state.over and not (run.over and not entry.clean)):
                # It did not receive the order to stop or to forget the job.
                strays.append((job, run.over))
        for entry in queue.active():
            if entry.asked and entry.state.state != STARTING and entry.state.job not in by_job:
                queue.lost(entry.state.job, now_ns)
        self._since_s = {
            one.state.job: self._since_s.get(one.state.job, now_s)
            for one in queue.active()
            if one.state.state == RUNNING
        }
        queue.over_time(now_ns, {job: now_s - since for job, since in self._since_s.items()})
        return strays
