"""Instances of the kernel's tracefs that Sonde makes: whose they are, and what a killed Sonde left of them.

A name says which process made an instance and when that process began, so that the next Sonde can tell what nobody uses
any more. The osnoise tracer has an option that holds for the whole kernel; an instance whose name ends in WORKLOAD says
that the option was set before, and whoever removes the last instance sets it again.
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
OSNOISE = "-osnoise"  # after it
WORKLOAD = "-osnoise-workload"  # the same, and OSNOISE_WORKLOAD was set before
BUSY_S = 2.0  # how long to try to remove an instance of which somebody has a file open
_MARK = re.compile(r"(?P<pid>\d{1,10})_(?P<began>\d{0,20})(?P<kind>-osnoise(-workload)?)?")


def mark() -> str:
    """What this process puts into the names of its instances and probes."""
    return f"{os.getpid()}_{_began(os.getpid())}"


def is_over(mark: str) -> bool:
    """Whether the process of a mark is gone. False for what is no mark."""
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
    """Names of instances of processes that are gone."""
    return [name for name in instances(tracefs) if is_over(name.removeprefix(INSTANCE))]


def is_osnoise(name: str) -> bool:
    """Whether an instance is of the osnoise tracer."""
    return name.endswith((OSNOISE, WORKLOAD))


def make_osnoise(tracefs: Path) -> Path:
    """An instance of this process for the osnoise tracer, which runs without the kernel's own workload from here on.

    OSError  the kernel does not let it be made; nothing has changed then.
    """
    with _one_at_a_time(tracefs):
        _remove_left_osnoise(tracefs)
        options = tracefs / "osnoise" / "options"
        was_on = "OSNOISE_WORKLOAD" in options.read_text().split()
        was_on = was_on or any(name.endswith(WORKLOAD) for name in instances(tracefs))
        made = tracefs / "instances" / f"{INSTANCE}{mark()}{WORKLOAD if was_on else OSNOISE}"
        # The instance comes first: killed between the two, it tells the next one what to set.
        made.mkdir(exist_ok=True)
        try:
            options.write_text("NO_OSNOISE_WORKLOAD")
        except OSError:
            _remove_osnoise(tracefs, made.name)
            raise
    return made


def remove_osnoise(tracefs: Path, name: str) -> None:
    """Removes an instance of the osnoise tracer. After the last one the kernel's option is as it was before."""
    with suppress(OSError), _one_at_a_time(tracefs):
        _remove_osnoise(tracefs, name)


def remove_left_osnoise(tracefs: Path) -> None:
    """The same for all instances of processes that are gone."""
    if any(is_osnoise(name) for name in left_over(tracefs)):
        with suppress(OSError), _one_at_a_time(tracefs):
            _remove_left_osnoise(tracefs)


def remove(instance: Path) -> None:
    """Removes an instance with all that is in it. Whoever has a file of it open, such as another Sonde that looks for
    what was left, keeps it: then again, for two seconds.
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
    # The option first: killed between the two, the instance is still there to tell.
    if name.endswith(WORKLOAD) and not others:
        with suppress(OSError):
            (tracefs / "osnoise" / "options").write_text("OSNOISE_WORKLOAD")
    remove(instance)


@contextmanager
def _one_at_a_time(tracefs: Path) -> Iterator[None]:
    """Only root can open the folder, so nobody else can hold the lock."""
    descriptor = os.open(tracefs / "instances", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _began(process: int) -> str:
    """When a process began, in the kernel's ticks; "" if there is none."""
    return str(began(process) or "")
