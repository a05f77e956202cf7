"""Running processes that are to be traced: their programs, their open files, and when they end."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.core.printable import name_text
from sonde.io.record.run_probe import File, files_of

# The namespace of the process numbers in the kernel's events (PROC_PID_INIT_INO, linux/proc_ns.h).
_FIRST_NAMESPACE = "pid:[4026531836]"
_LOOK_S = 0.1
_STANDARD = 2  # the last descriptor that every program is given


@dataclass(frozen=True)
class Process:
    """program : its executable, under the process's own name for it. files : the mapped files with code. open :
    (descriptor, path), path "" for sockets, pipes and the like."""

    number: int
    program: str
    files: tuple[File, ...]
    open: tuple[tuple[int, str], ...]


def process(number: int) -> Process:
    """A process that runs.

    Raises
    ------
    UsageError  io.no_process, io.own_process. EnvironmentFailure  io.cannot_attach: it has no program (a kernel thread,
    or a process that has just ended), or the system forbids it.
    """
    folder = Path(f"/proc/{number}")
    if not folder.exists():
        raise UsageError(
            "io.no_process", f"no process has the number {number}", "'ps -e' lists the running processes"
        )
    if number == os.getpid():
        raise UsageError(
            "io.own_process", f"{number} is this Sonde itself", "give the number of the process to trace"
        )
    name = _text(folder / "comm").strip()
    files = tuple(files_of(number))
    if not files and (reason := _refused(folder / "maps")):
        raise EnvironmentFailure(
            "io.cannot_attach",
            f"process {number} ({name}) cannot be inspected: {reason}",
            "the system forbids tracing it, even for root; choose another process",
        )
    if not files:
        raise EnvironmentFailure(
            "io.cannot_attach",
            f"process {number} ({name}) has no program: it belongs to the kernel, or has ended",
            "give the number of a process that runs a program",
        )
    try:
        program = name_text(os.readlink(folder / "exe")).removesuffix(" (deleted)")
    except OSError:
        program = name
    return Process(number, program, files, tuple(_open_files(folder)))


def check_rights() -> None:
    """EnvironmentFailure  io.no_root; io.other_namespace: process numbers here differ from those of the kernel's
    events."""
    if os.geteuid() != 0:
        raise EnvironmentFailure(
            "io.no_root",
            "the kernel shows system calls and probed functions only to root",
            "run it as root, or leave out --kernel, --uprobes and --attach",
        )
    with suppress(OSError):
        if os.readlink("/proc/self/ns/pid") != _FIRST_NAMESPACE:
            raise EnvironmentFailure(
                "io.other_namespace",
                "this container has its own process numbers, but the kernel's events have the numbers of "
                "the host",
                "run Sonde on the host: it can trace in containers, by the numbers that 'ps' shows on the "
                "host",
            )


def _open_files(folder: Path) -> Iterator[tuple[int, str]]:
    """Files that a process has open. Path "": sockets, pipes and the like, except the three standard descriptors."""
    with suppress(OSError):
        for entry in (folder / "fd").iterdir():
            with suppress(OSError):
                name = os.readlink(entry)
                if name.startswith("/") or int(entry.name) > _STANDARD:
                    yield int(entry.name), name_text(name) if name.startswith("/") else ""


@contextmanager
def ends_of(processes: Sequence[Process]) -> Iterator[Callable[[float | None, Callable[[], bool]], str]]:
    """Yield a function that waits: wait(seconds, asked) until all processes have ended, `seconds` have passed, or
    asked() is true.

    It returns "ended", "budget" or "stopped". It does not wait for a later process with a reused number.
    """
    ends = select.poll()
    left: dict[int, int] = {}
    try:
        for one in processes:
            with suppress(ProcessLookupError):
                descriptor = os.pidfd_open(one.number)
                left[descriptor] = one.number
                ends.register(descriptor, select.POLLIN)

        def wait(seconds: float | None, asked: Callable[[], bool]) -> str:
            until = None if seconds is None else time.monotonic() + seconds
            gone: set[int] = set()
            while True:
                if asked():
                    return "stopped"
                if gone == set(left):
                    return "ended"
                now = time.monotonic()
                if until is not None and now >= until:
                    return "budget"
                look = _LOOK_S if until is None else min(_LOOK_S, until - now)
                for descriptor, _ in ends.poll(look * 1000):
                    gone.add(descriptor)
                    ends.unregister(descriptor)

        yield wait
    finally:
        for descriptor in left:
            os.close(descriptor)


def _refused(path: Path) -> str:
    """The reason why a file cannot be read; "" if it can."""
    try:
        path.read_bytes()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
