"""Jobs whose start was refused: when each is tried again, and when it fails. Pure. Times by a monotonic clock."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from sonde.power.jobs.jobs import FAILED, STARTING, WAITING, Run
from sonde.power.jobs.queue import Queue

# A refused start is tried again after AGAIN_S. The pause doubles up to LONGEST_S. After GIVE_UP_S the job fails, if
# another job was started since the last attempt: then the fault is in this job, and not, for example, a full disk.
AGAIN_S, LONGEST_S, GIVE_UP_S = 10.0, 600.0, 3600.0


@dataclass
class RefusedStart:
    """The latest refused start of a job, and the earlier ones.

    first_s, at_s: the first refusal, and the latest. others: whether another job was started between the last two
    refusals. looked: whether the job manager was asked since then if it has the job anyway. again_s: the job waits
    until then.
    """

    why: str
    first_s: float
    at_s: float
    pause_s: float = AGAIN_S
    others: bool = False
    looked: bool = False
    again_s: float = math.inf


class RefusedStarts:
    """by_job: the jobs that were refused. accepted_s: when the job manager last accepted a start."""

    def __init__(self) -> None:
        self.by_job: dict[str, RefusedStart] = {}
        self.accepted_s = -math.inf

    def __bool__(self) -> bool:
        return bool(self.by_job)

    def add(self, job: str, why: str, now_s: float) -> None:
        """Record a refused start. The job manager may have the job anyway: this is checked before others get its
        resources.
        """
        before = self.by_job.get(job)
        if before is None:
            self.by_job[job] = RefusedStart(why, now_s, now_s)
            return
        pause_s, others = min(2 * before.pause_s, LONGEST_S), self.accepted_s > before.at_s
        self.by_job[job] = RefusedStart(why, before.first_s, now_s, pause_s, others)

    def retry_now(self, job: str) -> None:
        """End the pause of a job, because its user released it."""
        if job in self.by_job:
            self.by_job[job].again_s = -math.inf

    def delayed(self, now_s: float) -> set[str]:
        """Jobs that are not tried again yet."""
        return {job for job, no in self.by_job.items() if no.again_s > now_s}

    def put_back(self, queue: Queue, runs: Collection[str], now_ns: int, now_s: float) -> None:
        """Put jobs back that the job manager does not have: they wait again, and their resources are free for others
        meanwhile. runs: the jobs that it has.
        """
        for job, no in list(self.by_job.items()):
            one = queue.entries.get(job)
            if one is None or one.state.state not in (STARTING, WAITING):
                del self.by_job[job]
            elif one.state.state == STARTING and not no.looked and job not in runs:
                no.looked = True
                if no.others and now_s - no.first_s >= GIVE_UP_S:
                    queue.take_run(Run(job, FAILED, no.why[:1024]), now_ns)
                    del self.by_job[job]
                else:
                    no.again_s = now_s + no.pause_s
                    queue.refused(job, f"the start is tried again: {no.why}")

    @property
    def trouble(self) -> str:
        """The first of them, with its reason; "" if there is none."""
        return next((f"{job}: {no.why}" for job, no in self.by_job.items()), "")
