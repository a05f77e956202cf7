"""Instances of the kernel's tracefs that Sonde creates: their owners, and the remains of a killed Sonde.

An instance's name contains the process that made it and the start time of that process, so that a later Sonde can
recognise unused instances. The osnoise tracer has an option that holds for the whole kernel; an instance whose name
ends in WORKLOAD records that the option was set before, and the process that removes the last instance sets it again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sonde.core.processes import began

INSTANCE = "sonde-"  # before the mark of the process
OSNOISE = "-osnoise"  # after the mark
WORKLOAD = "-osnoise-workload"  # the same, if OSNOISE_WORKLOAD was set before
BUSY_S = 2.0  # how long to try to remove an instance while somebody has one of its files open
_MARK = re.compile(r"(?P<pid>\d{1,10})_(?P<began>\d{0,20})(?P<kind>-osnoise(-workload)?)?")


def mark() -> str:
    """The part of this process in the names of its instances and probes."""
    return f"{os.getpid()}_{_began(os.getpid())}"


def is_over(mark: str) -> bool:
    """Whether the process of a mark has ended. False for an invalid mark."""
    if (match := _MARK.fullmatch(mark)) is None:
        return False
    now = _began(int(match["pid"]))
    return now != match["began"] and not (now and not match["began"])


def instances(tracefs: Path) -> list[str]:
    """Names of all instances of any Sonde, sorted."""
    return sorted(
        path.name
        for path in (tracefs / "instances").glob(f"{INSTANCE}*")
        if _MARK.fullmatch(path.name.removeprefix(INSTANCE))
    )


def left_over(tracefs: Path) -> list[str]:
    """Names of instances whose process has ended."""
    return [name for name in instances(tracefs) if is_over(name.removeprefix(INSTANCE))]


def is_osnoise(name: str) -> bool:
    """Whether an instance belongs to the osnoise tracer."""
    return name.endswith((OSNOISE, WORKLOAD))


def make_osnoise(tracefs: Path) -> Path:
    """An instance of this process for the osnoise tracer, which from now on runs without the kernel's own workload.

    OSError  the kernel refuses to create it; nothing has changed then.
    """
    with _one_at_a_time(tracefs):
        _remove_left_osnoise(tracefs)
        options = tracefs / "osnoise" / "options"
        was_on = "OSNOISE_WORKLOAD" in options.read_text().split()
        was_on = was_on or any(name.endswith(WORKLOAD) for name in instances(tracefs))
        created = tracefs / "instances" / f"{INSTANCE}{mark()}{WORKLOAD if was_on else OSNOISE}"
        # The instance is created first: after a kill between the two steps, it records what to set.
        created.mkdir(exist_ok=True)
        try:
            options.write_text("NO_OSNOISE_WORKLOAD")
        except OSError:
            _remove_osnoise(tracefs, created.name)
            raise
    return created


def remove_osnoise(tracefs: Path, name: str) -> None:
    """Remove an instance of the osnoise tracer. After the last one the kernel's option is as it was before."""
    with suppress(OSError), _one_at_a_time(tracefs):
        _remove_osnoise(tracefs, name)


def remove_left_osnoise(tracefs: Path) -> None:
    """The same for all instances whose process has ended."""
    if any(is_osnoise(name) for name in left_over(tracefs)):
        with suppress(OSError), _one_at_a_time(tracefs):
            _remove_left_osnoise(tracefs)


def remove(instance: Path) -> None:
    """Remove an instance with all its content. It stays while somebody has one of its files open, such as another Sonde
    that looks for remains: try again for two seconds.
    """
    until_s = time.monotonic() + BUSY_S
    while True:
        try:
            instance.rmdir()
        except OSError as error:
            if error.errno == errno.EBUSY and time.monotonic() < until_s:
                time.sleep(0.02)
                continue
        return


def _remove_left_osnoise(tracefs: Path) -> None:
    for name in left_over(tracefs):
        if is_osnoise(name):
            _remove_osnoise(tracefs, name)


def _remove_osnoise(tracefs: Path, name: str) -> None:
    instance = tracefs / "instances" / name
    for file, text in (("tracing_on", "0"), ("current_tracer", "nop")):
        with suppress(OSError):
            (instance / file).write_text(text)
    others = [one for one in instances(tracefs) if is_osnoise(one) and one != name]
    # The option is set first: after a kill between the two steps, the instance still exists as a record.
    if name.endswith(WORKLOAD) and not others:
        with suppress(OSError):
            (tracefs / "osnoise" / "options").write_text("OSNOISE_WORKLOAD")
    remove(instance)


@contextmanager
def _one_at_a_time(tracefs: Path) -> Iterator[None]:
    """Take the lock of the folder. Only root can open the folder, so nobody else can hold the lock."""
    descriptor = os.open(tracefs / "instances", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _began(process: int) -> str:
    """The start time of a process, in the kernel's ticks; "" if there is no such process."""
    return str(began(process) or "")
