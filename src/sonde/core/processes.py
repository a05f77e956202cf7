"""Signals to processes that were found by their number.

The kernel reuses a process id after its process has ended. A number from a list or a file may therefore belong to
another user's process when the signal is sent. The functions here open a pidfd of the process, check it again, and only
then send the signal: to the checked process, or to nobody.

Standard library alone: the job shim (power/jobs/run_job_shim.py) uses this module, and must start quickly.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

_BATCH = 256  # processes with an open pidfd at a time; by default a program may have 1024 descriptors open


def stat_fields(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name, the state first; [] if there is no such process.

    Source: proc_pid_stat(5); the name may hold blanks and brackets.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def began(pid: int) -> int:
    """The start time of a process, in ticks since the machine's start: pid and start time together are unique.

    0: there is no such process, or it has ended and nobody has waited for it.
    """
    fields = stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else 0


def signal_found(pids: Iterable[int], number: int, find: Callable[[], Collection[int]]) -> None:
    """Send a signal to those of `pids` that find() still names once their pidfds are open.

    A process keeps its number while it lives. If find() names a number while its pidfd is open, the process that gets
    the signal is the one that find() saw. Without pidfds (before Linux 5.3) a process may end after the check, and
    another may get its number.
    """
    wanted = list(dict.fromkeys(pids))
    for start in range(0, len(wanted), _BATCH):
        descriptors: dict[int, int] = {}
        try:
            for pid in wanted[start : start + _BATCH]:
                with suppress(ProcessLookupError):
                    descriptors[pid] = _pidfd(pid)
            found = set(find()) if descriptors else set()
            for pid, descriptor in descriptors.items():
                if pid in found:
                    with suppress(OSError):  # it has ended, or belongs to another user
                        _send(pid, descriptor, number)
        finally:
            for descriptor in descriptors.values():
                if descriptor >= 0:
                    os.close(descriptor)


def signal_one(pid: int, number: int, is_it: Callable[[], bool]) -> None:
    """Send a signal to a process if is_it() is True once its pidfd is open.

    Example
    -------
    >>> recorded = (4711, 123456)                                        # doctest: +SKIP
    >>> signal_one(recorded[0], signal.SIGTERM, lambda: began(recorded[0]) == recorded[1])
    """
    signal_found([pid], number, lambda: [pid] if is_it() else [])


def _pidfd(pid: int) -> int:
    """A descriptor of a process; -1 if the system has none. ProcessLookupError  there is no such process."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):  # a Python or a kernel without it; no descriptor left
        return -1


def _send(pid: int, descriptor: int, number: int) -> None:
    if descriptor >= 0:
        signal.pidfd_send_signal(descriptor, number)
    else:
        os.kill(pid, number)
