"""The jobs of the job manager that are over: what is stored of them, and which ones are removed."""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from sonde.core.owned_files import write_whole
from sonde.power.jobs import jobs
from sonde.power.jobs.retention import Bounds, Tally
from sonde.power.jobs.run_job_folder import Job, job_text
from sonde.power.jobs.run_job_settings import Settings
from sonde.power.stack.run_events import line

SWEEP_S = 600.0
OVER = Bounds(of_user=5_000, of_all=20_000, size_of_user=32 << 20, size_of_all=128 << 20)
"""Bounds for jobs that are over. Beyond them the oldest jobs are removed before `keep` has passed, with what they wrote
into their folder. Their output belongs to their user and counts against the quotas of the file system, not here.
"""
NO_ROOM = "jobs that are over exceeded the storage limit: see docs/reference/power-jobs.md for the limits"
GONE = ".gone-"  # folders that are being removed; no job has such a name


class Archive:
    """all_jobs: the manager's, which this one removes jobs from. Its callers hold the manager's lock.

    removed: number of jobs that were removed early for lack of room.
    """

    def __init__(self, all_jobs: dict[str, Job], settings: Settings) -> None:
        self._jobs, self._settings = all_jobs, settings
        self._over = Tally(OVER)
        self._swept_s = -float("inf")
        self.removed = 0

    def add(self, job: Job, cgroup_left: bool) -> None:
        """Remove what a job that is over no longer needs, in memory and in its folder: its environment, and all but the
        beginning of its command. cgroup_left: a process is still ending in its cgroup.
        """
        if job.counted_b >= 0:
            return
        if (spec := job.spec.trimmed) != job.spec or (job.folder / "start.json").exists():
            job.spec = spec
            with suppress(OSError):  # the next start repeats it
                write_whole(job.folder / "job.json", job_text(job).encode(), 0o600, sync=True)
                (job.folder / "start.json").unlink(missing_ok=True)
                if cgroup_left:  # after a restart it must still be removed
                    write_whole(job.folder / "start.json", json.dumps({"cgroup": job.cgroup}).encode(), 0o600)
        job.counted_b = job.spec.size_b + jobs.size_of_parts(job.parts)
        self._over.add(job.spec.user, job.counted_b)

    def surplus(self) -> tuple[list[Path], list[bytes]]:
        """Drop the oldest jobs that exceed the bounds. Returns the folders to remove, and events."""
        gone = self._over.surplus((job.spec.user, job.spec.job, job.counted_b) for job in self._oldest())
        self.removed += len(gone)
        users = Counter(self._jobs[name].spec.user for name in gone)
        events = [
            line("forgotten", jobs=number, user=user, why=NO_ROOM, total=self.removed)
            for user, number in users.most_common(20)
        ]
        return [self._drop(name) for name in gone], events

    def late(self) -> list[Path]:
        """Drop the forgotten jobs that were stored long enough. Returns the folders to remove."""
        now = time.monotonic()
        if now - self._swept_s < SWEEP_S:
            return []
        self._swept_s = now
        keep_ns = self._settings.keep_s * 1e9
        late = [
            name
            for name, job in self._jobs.items()
            if job.forgotten and job.over and time.time_ns() - job.ended_ns > keep_ns
        ]
        return [self._drop(name) for name in late]

    def _oldest(self) -> Iterator[Job]:
        """Jobs that may be removed: the scheduler has recorded their end."""
        those = [job for job in self._jobs.values() if job.over and job.forgotten]
        yield from sorted(those, key=lambda job: job.ended_ns)

    def _drop(self, name: str) -> Path:
        """Rename the job's folder and return its new path: the old name may belong to another job from now on."""
        job = self._jobs.pop(name)
        self._over.add(job.spec.user, -job.counted_b, -1)
        to = self._settings.state / f"{GONE}{secrets.token_hex(8)}"
        with suppress(OSError):
            job.folder.rename(to)
            return to
        return job.folder


def remove(folders: Iterable[Path]) -> None:
    """Remove folders. The caller holds no lock: there may be thousands."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
