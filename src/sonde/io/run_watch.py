"""What only the kernel sees: system calls, while a command runs. Through tracefs, which takes root.

An instance of tracefs of our own holds the ring buffer; sonde-io-watch empties it. The instance goes with the run, and
one whose Sonde was killed goes with the next.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonde.core import launch
from sonde.core.errors import EnvironmentFailure, Warning
from sonde.io.layers import Layer, Value
from sonde.io.table import rule_names

PROGRAM = "sonde-io-watch"
KERNEL = "kernel"  # the library of system calls in layer maps
PLACES = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
EVENTS = ("raw_syscalls/sys_enter", "raw_syscalls/sys_exit", "task/task_newtask", "sched/sched_process_exec")
BUFFER_KIB = 8192  # of each processor: what comes between two looks, 20 ms apart, must fit
END_S = 30.0


@dataclass
class Watched:
    """What watching came to. warnings: what was lost."""

    warnings: list[Warning] = field(default_factory=list)


def asked(layers: Sequence[Layer]) -> bool:
    """Whether a layer is of the kernel."""
    return any(KERNEL in function.libraries for layer in layers for function in layer.functions)


def known_calls() -> dict[str, int]:
    """System calls of this machine by name. EnvironmentFailure  io.not_built."""
    path = _program()
    told = subprocess.run([str(path), "--calls"], capture_output=True, text=True, check=True, timeout=20)
    return {name: int(number) for name, number in (line.split() for line in told.stdout.splitlines())}


@contextmanager
def watching(
    layers: Sequence[Layer], folder: Path, host: str, most_bytes: int, skipped: Sequence[str]
) -> Iterator[Watched]:
    """System calls of children that this process starts meanwhile, and of theirs, go into `folder`.

    Raises
    ------
    EnvironmentFailure  io.no_tracefs, io.no_root, io.cannot_watch.
    """
    told = Watched()
    with _instance() as instance:
        spec = _spec(layers, instance, folder, host, most_bytes, skipped)
        path = folder / "watch.spec"
        path.write_text(spec)
        child = subprocess.Popen(
            [str(_program()), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            _first_word(child)
            # This process's children are watched from their first instruction; its own calls are left out.
            _write(instance / "set_event_pid", f"{os.getpid()}\n")
            for event in EVENTS:
                _write(instance / "events" / event / "enable", "1\n")
            yield told
        finally:
            for event in EVENTS:
                with suppress(EnvironmentFailure):
                    _write(instance / "events" / event / "enable", "0\n")
            told.warnings += _ended(child)
            path.unlink(missing_ok=True)


def _program() -> Path:
    path = launch.libexec() / PROGRAM
    if not os.access(path, os.X_OK):
        raise EnvironmentFailure(
            "io.not_built", f"this build of Sonde has no {PROGRAM}", "build it again with 'make setup'"
        )
    return path


def _spec(
    layers: Sequence[Layer], instance: Path, folder: Path, host: str, most_bytes: int, skipped: Sequence[str]
) -> str:
    """What sonde-io-watch reads (native/io/watch/spec.hpp); writes the table of functions beside it."""
    calls = known_calls()
    enter, leave, task, exec_ = (_number(instance, event) for event in EVENTS)
    lines = [
        f"tracing {instance}",
        f"folder {folder.resolve()}",
        f"host {host}",
        f"most {most_bytes}",
        *(f"skip {name}" for name in skipped),
        f"calls {enter} {leave}",
        f"task {task} {_place(instance, EVENTS[2], 'pid')} {_place(instance, EVENTS[2], 'clone_flags')}",
        f"exec {exec_} {_place(instance, EVENTS[3], 'filename')}",
    ]
    table: list[str] = []
    ids: list[int] = []
    for rule, (_, function, library, name) in enumerate(rule_names(layers)):
        if library == KERNEL and name in calls:
            number = len(table)
            table.append(f"{number}\t{rule}\t{name}\t{KERNEL}\n")
            ids.append(calls[name])
            values = " ".join(map(_where, (function.size, function.offset, function.file)))
            lines.append(f"call {number} {calls[name]} {values}")
    (folder / "watch.functions").write_text("".join(table))
    wanted = " || ".join(f"id == {number}" for number in sorted(set(ids)))
    own = f"common_pid != {os.getpid()}"
    for event in EVENTS[:2]:
        _write(instance / "events" / event / "filter", f"{own} && ({wanted})\n")
    return "\n".join(lines) + "\n"


def _where(value: Value) -> str:
    """Where raw_syscalls has it: its six arguments follow common fields and the call's number."""
    if value.how == "result":
        return "r"
    return f"@{16 + 8 * value.a}" if value.how == "arg" and value.a < 6 else "-"


def _number(instance: Path, event: str) -> int:
    return int((instance / "events" / event / "id").read_text())


def _place(instance: Path, event: str, name: str) -> int:
    """Where a field stands in an event."""
    text = (instance / "events" / event / "format").read_text()
    found = re.search(rf"field:[^;]*\b{name}(?:\[[^;]*\])?;\s*offset:(\d+);", text)
    if found is None:
        raise EnvironmentFailure(
            "io.cannot_watch", f"the kernel's event {event} has no field {name}", "leave out --kernel"
        )
    return int(found[1])


@contextmanager
def _instance() -> Iterator[Path]:
    """A tracefs instance of our own, and the clock that the tracer's ticks are of."""
    from sonde._core import tick_kind

    if os.geteuid() != 0:
        raise EnvironmentFailure(
            "io.no_root",
            "the kernel shows its system calls to root only",
            "run it as root, or leave out --kernel",
        )
    with _tracefs() as tracefs:
        _remove_stale(tracefs)
        instance = tracefs / "instances" / f"sonde-{os.getpid()}"
        try:
            instance.mkdir()
        except OSError as error:
            raise EnvironmentFailure(
                "io.no_tracefs", f"cannot make {instance}: {error.strerror}", "leave out --kernel"
            ) from None
        try:
            _write(instance / "trace_clock", "x86-tsc\n" if tick_kind() == "tsc" else "mono\n")
            _write(instance / "buffer_size_kb", f"{BUFFER_KIB}\n")
            _write(instance / "options/event-fork", "1\n")
            yield instance
        finally:
            _remove(instance)


@contextmanager
def _tracefs() -> Iterator[Path]:
    """Where tracefs is; mounted meanwhile where it is not."""
    for place in PLACES:
        if (place / "instances").is_dir():
            yield place
            return
    place = PLACES[0]
    made = subprocess.run(
        ["mount", "-t", "tracefs", "tracefs", str(place)], capture_output=True, text=True, check=False
    )
    if made.returncode != 0 or not (place / "instances").is_dir():
        raise EnvironmentFailure(
            "io.no_tracefs",
            f"tracefs cannot be mounted at {place}: {made.stderr.strip() or 'this kernel has none'}",
            "leave out --kernel; calls that go through the C library are in the layer posix",
        )
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], capture_output=True, check=False)  # another may use it by now


def _remove_stale(tracefs: Path) -> None:
    for path in (tracefs / "instances").glob("sonde-*"):
        number = path.name.removeprefix("sonde-")
        if number.isdigit() and not Path(f"/proc/{number}").exists():
            _remove(path)


def _remove(instance: Path) -> None:
    with suppress(EnvironmentFailure):
        _write(instance / "events/enable", "0\n")
    with suppress(OSError):
        instance.rmdir()


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise EnvironmentFailure(
            "io.cannot_watch",
            f"cannot write '{text.strip()[:60]}' to {path}: {error.strerror}",
            "leave out --kernel",
        ) from None


def _first_word(child: subprocess.Popen[str]) -> None:
    assert child.stdout
    line = child.stdout.readline()
    event = json.loads(line) if line.startswith("{") else {}
    if event.get("event") != "start":
        child.wait()
        raise EnvironmentFailure(
            str(event.get("code", "io.cannot_watch")),
            str(event.get("what", f"{PROGRAM} ended with status {child.returncode}")),
            str(event.get("hint", "leave out --kernel")),
        )


def _ended(child: subprocess.Popen[str]) -> list[Warning]:
    """Has it take the rest, and tells what was lost."""
    try:
        out, _ = child.communicate("stop\n", timeout=END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        out, _ = child.communicate()
    last: dict[str, Any] = next(
        (json.loads(line) for line in reversed(out.splitlines()) if line.startswith("{")), {}
    )
    if last.get("event") != "end":
        return [
            Warning(
                "io.watch_died",
                f"{PROGRAM} ended with status {child.returncode} before it was told to; system calls may be missing",
                "run it again; leave out --kernel to trace without it",
            )
        ]
    found = []
    if last["lost"] or last["lost_unknown"]:
        number = f"{last['lost']}{' and more' if last['lost_unknown'] else ''}"
        found.append(
            Warning(
                "io.kernel_events_lost",
                f"{number} events of the kernel were overwritten before they could be read",
                "trace fewer calls: a map of your own with fewer names, --map",
            )
        )
    if last["failed"]:
        found.append(
            Warning(
                "io.watch_failed",
                f"{last['failed']} times a file for system calls could not be written",
                "free space",
            )
        )
    return found
