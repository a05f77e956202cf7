"""Signals to processes that were found by their number.

The kernel reuses a process id after its process has ended. A number from a list or a file may therefore belong to
another user's process when the signal is sent. The functions here open a pidfd of the process, check it again, and only
then send the signal: to the checked process, or to nobody.

Standard library alone: the job shim (power/jobs/run_job_shim.py) uses this module, and must start quickly.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sonde.core.surroundings import place_of_ranks

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


def of_user(user: int, proc: Path = Path("/proc")) -> list[int]:
    """The processes that a user started: those with this real user id, also where they run a setuid program."""
    found = []
    for name in os.listdir(proc):
        if name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                status = (proc / name / "status").read_bytes().partition(b"\nUid:")[2]
                if int(status.split(maxsplit=1)[0]) == user:
                    found.append(int(name))
    return found


@dataclass
class Carriers:
    """Processes whose environment, as it was at their start, has an entry. unread: those that could not be examined."""

    found: list[int] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)


STILL_S, ALL_S = 1.0, 10.0  # limits for one environment, and for all

_LOOK = """
import sys
proc, entry, *pids = sys.stdin.buffer.read().split(b"\\0\\n")
print("r", flush=True)
for pid in pids:
    try:
        with open(proc + b"/" + pid + b"/environ", "rb") as file:
            carries = any(one.startswith(entry) for one in file.read().split(b"\\0"))
    except OSError:
        carries = False
    print(int(carries), flush=True)
"""


def carriers(entry: str, pids: Iterable[int], proc: Path = Path("/proc")) -> Carriers:
    """The processes whose environment has an entry that begins with this text, such as "NAME=value".

    To read an environment, the kernel takes the lock of the process's memory. Its user can hold that lock for ever, and
    the reader then waits for ever. So a child process reads; one that stands still is killed.
    """
    left, out, until = list(pids), Carriers(), time.monotonic() + ALL_S
    while left and time.monotonic() < until:
        words = [os.fsencode(proc), os.fsencode(entry), *(str(pid).encode() for pid in left)]
        with subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LOOK],
            cwd=place_of_ranks(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as child:
            try:
                assert child.stdin is not None
                assert child.stdout is not None
                with suppress(BrokenPipeError):
                    child.stdin.write(b"\0\n".join(words))
                    child.stdin.close()
                examined, ready = 0, False
                while examined < len(left):
                    allowed_s = min(STILL_S if ready else ALL_S, until - time.monotonic())
                    if not select.select([child.stdout], [], [], max(0.0, allowed_s))[0]:
                        break
                    answers = os.read(child.stdout.fileno(), 1 << 16).replace(b"\n", b"")
                    if not answers:
                        break
                    for answer in answers.decode("ascii"):
                        if answer == "r":  # Python has started, which can take seconds on a busy machine
                            ready = True
                            continue
                        if answer == "1":
                            out.found.append(left[examined])
                        examined += 1
            finally:
                child.kill()
        if examined < len(left):
            out.unread.append(left[examined])
        left = left[examined + 1 :]
    out.unread += left
    return out


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
