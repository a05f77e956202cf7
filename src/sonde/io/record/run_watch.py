"""Watch system calls, and functions under uprobes, while a command runs or in running processes. Through tracefs, which
needs root.

An instance of tracefs of our own (run_tracefs.py) holds the ring buffer; sonde-io-watch empties it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonde.core import launch
from sonde.core.errors import EnvironmentFailure, Warning
from sonde.core.lines import encoded
from sonde.core.owned_files import Folder
from sonde.core.surroundings import place_of_ranks
from sonde.io.maps.layers import Layer, Value
from sonde.io.maps.table import rule_names
from sonde.io.record import run_probe
from sonde.io.record.run_attach import Process
from sonde.io.record.run_probe import Probe, Probes
from sonde.io.record.run_tracefs import WITHOUT, instance_of_ours, left_over, remove_left, where, write

PROGRAM = "sonde-io-watch"
SPEC = "watch.spec"
KERNEL = "kernel"  # the library of system calls in layer maps
CALLS = ("raw_syscalls/sys_enter", "raw_syscalls/sys_exit")
TASKS = ("task/task_newtask", "sched/sched_process_exec")
END_S = 30.0


@dataclass
class Watched:
    """The result of watching. warnings: lost events and other problems."""

    warnings: list[Warning] = field(default_factory=list)


def asked(layers: Sequence[Layer]) -> bool:
    """Whether a layer contains system calls."""
    return any(KERNEL in function.libraries for layer in layers for function in layer.functions)


def known_calls() -> dict[str, int]:
    """The system calls of this machine by name. EnvironmentFailure  io.not_built."""
    path = _program()
    listed = subprocess.run(
        [str(path), "--calls"],
        cwd=place_of_ranks(),
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
        timeout=20,
    )
    return {name: int(number) for name, number in (line.split() for line in listed.stdout.splitlines())}


@contextmanager
def watching(
    layers: Sequence[Layer],
    folder: Path,
    host: str,
    most_bytes: int,
    skipped: Sequence[str],
    probes: Sequence[Probe] = (),
    processes: Sequence[Process] = (),
) -> Iterator[Watched]:
    """Write calls of children started meanwhile, of their children, and of `processes` into `folder`: system calls if a
    layer contains them, and the functions of `probes`.

    Raises
    ------
    EnvironmentFailure  io.no_tracefs, io.no_root, io.cannot_watch, io.other_namespace, io.no_uprobes.
    """
    watched = Watched()
    with instance_of_ours() as (instance, placed), ExitStack() as opened:
        remove_left(placed.tracefs)
        placed.add(probes)
        # Events report threads of running processes that begin from here on; the others are listed.
        threads = _follow(instance, processes, {})
        if processes:
            _enable_task_events(instance)
            threads = _follow(instance, processes, threads)
        # The helper gets the folder's descriptor: its name may lead to another folder when a file is created later.
        run = opened.enter_context(Folder(folder))
        spec = _spec(layers, instance, run, host, most_bytes, skipped, placed)
        spec += [f"attached {one.number} {encoded(one.program)}" for one in processes]
        spec += [f"thread {thread} {process}" for thread, process in threads.items()]
        run.write(SPEC, ("\n".join(spec) + "\n").encode())
        child = subprocess.Popen(
            [str(_program()), f"{_path_of(run)}/{SPEC}"],
            cwd=place_of_ranks(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            pass_fds=(run.fileno(),),
        )
        calls = CALLS if asked(layers) else ()
        try:
            _first_report(child)
            # This process's children are watched from their first instruction; its own calls are left out.
            run_probe.append(instance / "set_event_pid", str(os.getpid()))
            _enable_task_events(instance)
            for event in calls:
                write(instance / "events" / event / "enable", "1\n")
            placed.on(instance)
            yield watched
        finally:
            placed.off(instance)
            for event in (*calls, *TASKS):
                with suppress(EnvironmentFailure):
                    write(instance / "events" / event / "enable", "0\n")
            last, warnings = _ended(child)
            lost = bool(not last or last["lost"] or last["lost_unknown"])
            watched.warnings += warnings + placed.warnings(last.get("entries", 0), lost)
            with suppress(OSError):
                run.remove(SPEC)


@dataclass(frozen=True)
class Sight:
    """Results of `tried`. place : where tracefs is. is_mounted : whether it is always mounted. left : names of
    what a killed Sonde left. calls, uprobes : why system calls and functions cannot be watched; "" if they can"""

    place: Path
    is_mounted: bool
    left: Sequence[str]
    calls: str
    uprobes: str


def tried() -> Sight:
    """Test what can be watched: make an instance, have the kernel count how often a program begins, and remove both.
    What an earlier run left stays. Errors of `instance_of_ours`; EnvironmentFailure  io.not_built."""
    began = where()
    with instance_of_ours() as (instance, placed):
        left = left_over(placed.tracefs)
        absent = [event for event in (*CALLS, *TASKS) if not (instance / "events" / event).is_dir()]
        program = _program()
        try:
            placed.add([run_probe.start_of(program)])
            placed.on(instance)
            subprocess.run(
                [str(program), "--calls"],
                cwd=place_of_ranks(),
                stdout=subprocess.DEVNULL,
                check=True,
                timeout=20,
            )
            why = (
                ""
                if placed.hits()
                else ", ".join(placed.refused.values()) or "the kernel counts no hits of probes"
            )
        except EnvironmentFailure as error:
            why = error.what
        finally:
            placed.off(instance)
    calls = f"this kernel has no event {absent[0]}" if absent else ""
    return Sight(placed.tracefs, began is not None, left, calls, why)


def _enable_task_events(instance: Path) -> None:
    """Enable the events of new threads, new processes and new programs."""
    for event in TASKS:
        write(instance / "events" / event / "enable", "1\n")


def _follow(instance: Path, processes: Sequence[Process], known: dict[int, int]) -> dict[int, int]:
    """Enable events for threads of `processes` that are not known yet. Returns all threads with their processes."""
    found = dict(known)
    while True:
        new = {
            thread: one.number
            for one in processes
            for thread in run_probe.each_thread(one.number)
            if thread not in found
        }
        if not new:
            return found
        for thread in new:
            with suppress(OSError):  # it has ended
                run_probe.append(instance / "set_event_pid", str(thread))
        found |= new


def _program() -> Path:
    path = launch.libexec() / PROGRAM
    if not os.access(path, os.X_OK):
        raise EnvironmentFailure(
            "io.not_built", f"this build of Sonde has no {PROGRAM}", "build it again with 'make setup'"
        )
    return path


def _spec(
    layers: Sequence[Layer],
    instance: Path,
    run: Folder,
    host: str,
    most_bytes: int,
    skipped: Sequence[str],
    placed: Probes,
) -> list[str]:
    """The specification for sonde-io-watch (native/io/watch/spec.hpp). Also writes the table of functions.

    A program or library may have any name: names from outside go through `encoded`.
    """
    task, exec_ = (_number(instance, event) for event in TASKS)
    lines = [
        f"tracing {encoded(instance)}",
        f"folder {encoded(_path_of(run))}",
        f"host {encoded(host)}",
        f"most {most_bytes}",
        *(f"skip {encoded(name)}" for name in skipped),
        f"task {task} {_place(instance, TASKS[0], 'pid')} {_place(instance, TASKS[0], 'clone_flags')}",
        f"exec {exec_} {_place(instance, TASKS[1], 'filename')}",
    ]
    table: list[str] = []
    fields = {
        event: {name: _place(instance, event, name) for name in _names(instance, event)}
        for event in (*placed.entries.values(), *placed.exits.values())
    }
    for kind, events in (("entry", placed.entries), ("exit", placed.exits)):
        lines += [
            f"{kind} {_number(instance, event)} {fields[event]['function']}" for event in events.values()
        ]
    for number, definition in placed.known.items():
        probe = definition.probe
        entry, exit_ = placed.entry_event(definition), placed.exit_event(definition)
        lines.append(definition.line(number, fields[entry], fields.get(exit_, {})))
        table.append(f"{number}\t{probe.rule}\t{encoded(probe.symbol)}\t{encoded(probe.file.path)}\n")
    if asked(layers):
        calls = known_calls()
        enter, leave = (_number(instance, event) for event in CALLS)
        lines.append(f"calls {enter} {leave}")
        ids: list[int] = []
        first = max(placed.known, default=-1) + 1
        for rule, (_, function, library, name) in enumerate(rule_names(layers)):
            if library == KERNEL and name in calls:
                number = first + len(ids)
                table.append(f"{number}\t{rule}\t{name}\t{KERNEL}\n")
                ids.append(calls[name])
                values = " ".join(map(_where, (function.amount, function.at, function.file)))
                lines.append(f"call {number} {calls[name]} {values}")
        wanted = " || ".join(f"id == {number}" for number in sorted(set(ids)))
        own = f"common_pid != {os.getpid()}"
        for event in CALLS:
            write(instance / "events" / event / "filter", f"{own} && ({wanted})\n")
    run.write("watch.functions", "".join(table).encode())
    return lines


def _path_of(run: Folder) -> str:
    """The path under which the helper, which inherits the descriptor, opens files in the folder."""
    return f"/proc/self/fd/{run.fileno()}"


def _where(value: Value) -> str:
    """Where raw_syscalls has the value: its six arguments follow the common fields and the call's number."""
    if value.how == "result":
        return "r"
    width = "" if value.width == "i64" else f":{value.width}"
    return f"@{16 + 8 * value.a}{width}" if value.how == "arg" and value.a < 6 else "-"


def _number(instance: Path, event: str) -> int:
    return int((instance / "events" / event / "id").read_text())


def _place(instance: Path, event: str, name: str) -> int:
    """The offset of a field in an event."""
    text = (instance / "events" / event / "format").read_text()
    found = re.search(rf"field:[^;]*\b{name}(?:\[[^;]*\])?;\s*offset:(\d+);", text)
    if found is None:
        raise EnvironmentFailure(
            "io.cannot_watch", f"the kernel's event {event} has no field {name}", WITHOUT
        )
    return int(found[1])


def _names(instance: Path, event: str) -> list[str]:
    """The fields of an event of uprobes, without those that all events have."""
    text = (instance / "events" / event / "format").read_text()
    return [name for name in re.findall(r"(\w+);\s*offset:", text) if not name.startswith(("common_", "__"))]


def _first_report(child: subprocess.Popen[str]) -> None:
    assert child.stdout
    line = child.stdout.readline()
    event = json.loads(line) if line.startswith("{") else {}
    if event.get("event") != "start":
        child.wait()
        raise EnvironmentFailure(
            str(event.get("code", "io.cannot_watch")),
            str(event.get("what", f"{PROGRAM} ended with status {child.returncode}")),
            str(event.get("hint", WITHOUT)),
        )


def _ended(child: subprocess.Popen[str]) -> tuple[dict[str, Any], list[Warning]]:
    """Stop the helper and let it read the remaining events. Returns its last report, {} if there is none, and warnings
    about losses."""
    try:
        out, _ = child.communicate("stop\n", timeout=END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        out, _ = child.communicate()
    last: dict[str, Any] = next(
        (json.loads(line) for line in reversed(out.splitlines()) if line.startswith("{")), {}
    )
    if last.get("event") != "end":
        return {}, [
            Warning(
                "io.watch_died",
                f"{PROGRAM} ended early with status {child.returncode}; system calls and probed calls may "
                "be missing",
                "run it again; leave out --kernel and --uprobes to trace without it",
            )
        ]
    found = []
    if last["lost"] or last["lost_unknown"]:
        number = f"{last['lost']}{' and more' if last['lost_unknown'] else ''}"
        found.append(
            Warning(
                "io.kernel_events_lost",
                f"{number} events of the kernel were overwritten before they were read",
                "trace fewer calls: with --map, a map of your own that lists fewer names",
            )
        )
    if last["failed"]:
        found.append(
            Warning(
                "io.watch_failed",
                f"{last['failed']} writes to files for system calls and uprobes failed",
                "free disk space",
            )
        )
    if last["left"]:
        found.append(
            Warning(
                "io.ends_not_seen",
                f"for {last['left']} calls that the kernel saw, only the beginning is known: the program "
                "left them with longjmp, or they were more than 64 deep",
                "they are counted, but have no time",
            )
        )
    return last, found
