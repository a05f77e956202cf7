"""Turns of jobs, read from files that belong to the jobs.

A read of such a file may never end: its user may have mounted a file system of FUSE on it, which does not answer, or
the folder is on a server that hangs. No signal ends such a read, nor does a flag of open(2). So files are read by
threads, one for each user, with no lock held: whoever makes a read hang waits alone, with all jobs of theirs. Such a
thread ends when the file system answers or is unmounted; it keeps no exit of this process from beginning, but the
kernel may let the process end only then.
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
MAX_READERS = 64  # users whose files are read at one time
WAIT_S = 0.5  # for what is read at a look; a local disk takes much less


class Progress:
    """The files of one job, progress.0 and so on, and what they say. Read by one thread at a time."""

    def __init__(self, folder: Path, parts: int) -> None:
        self._folder = folder
        self.turns = [Turns() for _ in range(parts)]
        """Values: each look puts new ones in their places, so that others may read them meanwhile."""
        self._offsets = [0] * parts
        self._next = 0

    def read(self) -> None:
        """Takes in what was written since the last time, in a thread that may hang."""
        left, parts = MAX_OF_JOB, len(self.turns)
        for k in [(self._next + n) % parts for n in range(parts)]:
            self._next = k
            if left <= 0:
                return
            left -= self._read(k, min(left, MAX_OF_FILE))
        self._next = (self._next + 1) % parts

    def _read(self, k: int, most: int) -> int:
        try:
            # It belongs to the job, which may have put a link or a pipe in its place.
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
    """Reads progress of jobs, with a thread for each user. look() is one thread's."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy: set[str] = set()
        self._missed: dict[str, int] = {}  # for how many looks users had no place

    @property
    def busy(self) -> frozenset[str]:
        """Users whose files are being read."""
        with self._changed:
            return frozenset(self._busy)

    def look(self, jobs: Iterable[tuple[str, Progress]], wait_s: float = WAIT_S) -> None:
        """Reads files of jobs of those users whose files are not being read still. jobs: with their users.

        It waits for what it begins, but not for long, and not at all for what hung before.
        """
        of: dict[str, list[Progress]] = {}
        for user, progress in jobs:
            of.setdefault(user, []).append(progress)
        begun = set()
        with self._changed:
            # Where users are more than places, those who have waited longest come first.
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
