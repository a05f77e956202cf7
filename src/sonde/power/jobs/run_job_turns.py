"""Reads the turns of jobs from files that belong to the jobs.

A read of such a file may never end: its user may have mounted a FUSE file system on it that does not answer, or the
folder is on a server that hangs. No signal ends such a read, and no flag of open(2) prevents it. So one thread for each
user reads the files, without a lock: a user who makes a read hang delays only their own jobs. Such a thread ends when
the file system answers or is unmounted. It does not prevent this process from starting to exit, but the kernel may let
the process end only then.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sonde.power.jobs.job_target import Turns

MAX_OF_FILE = 1 << 20  # bytes of a file that are read at a look
MAX_OF_JOB = 4 << 20  # bytes of all files of a job; the rest is read at the next look
MAX_READERS = 64  # most users whose files are read at the same time
WAIT_S = 0.5  # longest wait for the reads of a look; a local disk takes much less


class Progress:
    """The progress files of one job, progress.0 and so on, and their content. One thread at a time reads them."""

    def __init__(self, folder: Path, parts: int) -> None:
        self._folder = folder
        self.turns = [Turns() for _ in range(parts)]
        """Each look puts new values in place, so that other threads may read them meanwhile."""
        self._offsets = [0] * parts
        self._next = 0

    def read(self) -> None:
        """Read what was written since the last time, in a thread that may hang."""
        left, parts = MAX_OF_JOB, len(self.turns)
        for k in [(self._next + n) % parts for n in range(parts)]:
            self._next = k
            if left <= 0:
                return
            left -= self._read(k, min(left, MAX_OF_FILE))
        self._next = (self._next + 1) % parts

    def _read(self, k: int, most: int) -> int:
        try:
            # The file belongs to the job, which may have replaced it by a link or a pipe.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(self._folder / f"progress.{k}", flags)
        except OSError:
            return 0
        try:
            added = os.pread(fd, most, self._offsets[k])
            written = os.fstat(fd).st_mtime_ns / 1e9
        except OSError:
            return 0
        finally:
            with suppress(OSError):
                os.close(fd)
        self._offsets[k] += len(added)
        if added:
            turns = replace(self.turns[k])
            turns.take(added, written)
            self.turns[k] = turns
        return len(added)


class TurnReader:
    """Reads progress of jobs, with one thread for each user. Only one thread calls look()."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy: set[str] = set()
        self._missed: dict[str, int] = {}  # number of looks at which a user got no thread

    @property
    def busy(self) -> frozenset[str]:
        """Users whose files are being read."""
        with self._changed:
            return frozenset(self._busy)

    def look(self, jobs: Iterable[tuple[str, Progress]], wait_s: float = WAIT_S) -> None:
        """Start reads for the users whose earlier reads have ended. jobs: with their users.

        It waits a short time for the reads that it starts, and not at all for reads that hung before.
        """
        of: dict[str, list[Progress]] = {}
        for user, progress in jobs:
            of.setdefault(user, []).append(progress)
        begun = set()
        with self._changed:
            # If there are more users than threads, those who have waited longest come first.
            wanted = sorted(of.keys() - self._busy, key=lambda user: -self._missed.get(user, 0))
            for user in wanted[: max(0, MAX_READERS - len(self._busy))]:
                with suppress(RuntimeError):  # no thread can be started now
                    threading.Thread(target=self._read, args=(user, of[user]), daemon=True).start()
                    begun.add(user)
                    self._busy.add(user)
            self._missed = {user: self._missed.get(user, 0) + 1 for user in wanted if user not in begun}
            until = time.monotonic() + wait_s
            while self._busy & begun and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)

    def _read(self, user: str, those: list[Progress]) -> None:
        try:
            for progress in those:
                progress.read()
        finally:
            with self._changed:
                self._busy.discard(user)
                self._changed.notify_all()
