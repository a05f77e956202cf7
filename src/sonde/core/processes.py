"""Signals to processes that were found by their number.

The kernel gives a number again after its process has ended. So a number from a list or a file may belong to another
user's process when the signal is sent. The functions here hold the process by a pidfd, look at it again, and only then
send the signal: to what was looked at, or to nothing.

Standard library alone: the keeper of a job (power/run_job_keeper.py) uses it, and starts quickly.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

_BATCH = 256  # processes that are held at a time; a program may have 1024 descriptors open by default


def stat_fields(pid: int) -> list[str]:
    """Fields of /proc/PID/stat behind the name, the state first; [] if there is no such process.

    Source: proc_pid_stat(5); the name may hold blanks and brackets.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def began(pid: int) -> int:
    """When a process began, in ticks since the machine's start: no other process has both this and the number.

    0: there is no such process, or it has ended and nobody has waited for it.
    """
    fields = stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else 0


def signal_found(pids: Iterable[int], number: int, find: Callable[[], Collection[int]]) -> None:
    """Sends a signal to those of `pids` that find() still names once the processes are held.

    A process keeps its number while it lives. So one that takes the signal, and whose number find() named while it was
    held, is the one that find() saw. Where no pidfd can be had (before Linux 5.3) it may end after it was looked at,
    and another may get its number.
    """
    wanted = list(dict.fromkeys(pids))
    for start in range(0, len(wanted), _BATCH):
        held: dict[int, int] = {}
        try:
            for pid in wanted[start : start + _BATCH]:
                with suppress(ProcessLookupError):
                    held[pid] = _pidfd(pid)
            found = set(find()) if held else set()
            for pid, descriptor in held.items():
                if pid in found:
                    with suppress(OSError):  # it has ended, or it is another user's
                        _send(pid, descriptor, number)
        finally:
            for descriptor in held.values():
                if descriptor >= 0:
                    os.close(descriptor)


def signal_one(pid: int, number: int, is_it: Callable[[], bool]) -> None:
    """Sends a signal to a process if is_it() says so once it is held.

    Example
    -------
    >>> recorded = (4711, 123456)                                        # doctest: +SKIP
    >>> signal_one(recorded[0], signal.SIGTERM, lambda: began(recorded[0]) == recorded[1])
    """
    signal_found([pid], number, lambda: [pid] if is_it() else [])


def _pidfd(pid: int) -> int:
    """A descriptor of a process; -1 where none can be had. ProcessLookupError  there is no such process."""
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
