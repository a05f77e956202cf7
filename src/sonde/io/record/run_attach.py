"""Processes that run already and are to be traced: what they are, what they have open, and when they end."""

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

# Of the namespace that the kernel's events tell numbers of processes in (PROC_PID_INIT_INO, linux/proc_ns.h).
_FIRST_NAMESPACE = "pid:[4026531836]"
_LOOK_S = 0.1
_STANDARD = 2  # the last descriptor that every program is given


@dataclass(frozen=True)
class Process:
    """program : its executable, as it sees it. files : with code, that it has mapped. open : (descriptor, path),
    "" for what is no file."""

    number: int
    program: str
    files: tuple[File, ...]
    open: tuple[tuple[int, str], ...]


def process(number: int) -> Process:
    """A process that runs.

    Raises
    ------
    UsageError  io.no_process, io.own_process. EnvironmentFailure  io.cannot_attach: it has no program, of the kernel
    or ended as it is.
    """
    folder = Path(f"/proc/{number}")
    if not folder.exists():
        raise UsageError("io.no_process", f"there is no process {number}", "'ps -e' lists those that are")
    if number == os.getpid():
        raise UsageError("io.own_process", f"{number} is this sonde itself", "name the process to be traced")
    name = _text(folder / "comm").strip()
    files = tuple(files_of(number))
    if not files and (reason := _refused(folder / "maps")):
        raise EnvironmentFailure(
            "io.cannot_attach",
            f"process {number} ({name}) cannot be looked into: {reason}",
            "the system keeps it from being traced, root or not; name another",
        )
    if not files:
        raise EnvironmentFailure(
            "io.cannot_attach",
            f"process {number} ({name}) runs no program: it is the kernel's own, or has ended",
            "name a process with a program",
        )
    try:
        program = name_text(os.readlink(folder / "exe")).removesuffix(" (deleted)")
    except OSError:
        program = name
    return Process(number, program, files, tuple(_open_files(folder)))


def check_rights() -> None:
    """EnvironmentFailure  io.no_root; io.other_namespace: numbers of processes mean others here than to the kernel."""
    if os.geteuid() != 0:
        raise EnvironmentFailure(
            "io.no_root",
            "the kernel shows system calls, and what uprobes see, to root only",
            "run it as root, or leave out --kernel, --uprobes and --attach",
        )
    with suppress(OSError):
        if os.readlink("/proc/self/ns/pid") != _FIRST_NAMESPACE:
            raise EnvironmentFailure(
                "io.other_namespace",
                "this is a container with process numbers of its own, and the kernel's events have the host's",
                "run Sonde on the host: it sees into containers, by the numbers that 'ps' shows there",
            )


def _open_files(folder: Path) -> Iterator[tuple[int, str]]:
    """Files that a process has open. "": sockets, pipes and the like, but of the three that each program is given."""
    with suppress(OSError):
        for entry in (folder / "fd").iterdir():
            with suppress(OSError):
                name = os.readlink(entry)
                if name.startswith("/") or int(entry.name) > _STANDARD:
                    yield int(entry.name), name_text(name) if name.startswith("/") else ""


@contextmanager
def ends_of(processes: Sequence[Process]) -> Iterator[Callable[[float | None, Callable[[], bool]], str]]:
    """A function that waits: wait(seconds, asked) until all have ended, for so long, or until asked() is true.

    It returns "ended", "budget" or "stopped". A number that another process gets meanwhile is not waited for.
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
    """Why a file cannot be read; "" for one that can."""
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
