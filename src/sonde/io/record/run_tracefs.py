"""The kernel's tracefs: where it is, an instance of our own in it, and what a Sonde left there that was killed.

All of ours has a name: instances and groups of probes one with the process that made them and when that began
(core/tracefs.py); a mount of tracefs has OURS for its device. Instance, probes and mount go with the run, and those
whose Sonde was killed with the next run.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sonde.core import tracefs as names
from sonde.core.errors import EnvironmentFailure
from sonde.core.lines import kernel_lines
from sonde.core.tracefs import INSTANCE, is_over, mark
from sonde.io.record import run_probe
from sonde.io.record.run_attach import check_rights
from sonde.io.record.run_probe import Probes

PLACES = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
OURS = "sonde"  # in the place of a mount's device
BUFFER_KIB = 8192  # of each processor: what comes between two looks, 20 ms apart, must fit
MOUNT_TRIES = 10  # each of which another Sonde's end may undo
WITHOUT = "trace without it: leave out --kernel, --uprobes and --attach"


@contextmanager
def instance_of_ours() -> Iterator[tuple[Path, Probes]]:
    """A tracefs instance, with the clock that the tracer's ticks are of, and room for probes.

    Raises
    ------
    EnvironmentFailure  io.no_tracefs, io.no_root, io.other_namespace, io.cannot_watch.
    """
    from sonde._core import tick_kind

    check_rights()
    with mounted() as tracefs:
        instance = tracefs / "instances" / f"{INSTANCE}{mark()}"
        try:
            instance.mkdir()
        except OSError as error:
            raise EnvironmentFailure(
                "io.no_tracefs", f"cannot make {instance}: {error.strerror}", WITHOUT
            ) from None
        placed = Probes(tracefs, mark())
        try:
            write(instance / "trace_clock", "x86-tsc\n" if tick_kind() == "tsc" else "mono\n")
            write(instance / "buffer_size_kb", f"{BUFFER_KIB}\n")
            write(instance / "options/event-fork", "1\n")
            yield instance, placed
        finally:
            _remove(instance)
            run_probe.remove(tracefs, placed.group)
            remove_left(tracefs)  # of Sondes that were killed meanwhile: nobody looks where it is not mounted


@contextmanager
def mounted() -> Iterator[Path]:
    """Where tracefs is; mounted meanwhile where it is not. EnvironmentFailure  io.no_tracefs."""
    kept, said = _hold(), ""
    # Another Sonde may mount it in the same moment, which fails ours, or unmount it when it has ended.
    for _ in range(MOUNT_TRIES):
        if kept is not None:
            break
        words = ["mount", "-t", "tracefs", OURS, str(PLACES[0])]
        said = subprocess.run(
            words, capture_output=True, text=True, errors="replace", check=False
        ).stderr.strip()
        kept = _hold()
    if kept is None:
        raise EnvironmentFailure(
            "io.no_tracefs",
            f"tracefs cannot be mounted at {PLACES[0]}: {said or 'this kernel has none'}",
            f"{WITHOUT}; calls that go through the C library are in the layer posix",
        )
    place, descriptor = kept
    try:
        yield place
    finally:
        os.close(descriptor)
        _unmount(place)


def where() -> Path | None:
    """Where tracefs is mounted, if it is and may be looked into."""
    return next((place for place in PLACES if (place / "instances").is_dir()), None)


def is_mounted_by_sonde(place: Path, mounts: str) -> bool:
    """Whether the uppermost mount at a place is one of Sonde's. mounts: the text of /proc/self/mounts."""
    at = [line.split(" ") for line in mounts.split("\n") if line.split(" ")[1:2] == [str(place)]]
    return bool(at) and at[-1][0] == OURS


def left_over(tracefs: Path) -> list[str]:
    """Instances, also those of `sonde noise host`, and groups of probes of processes that are gone."""
    groups = [name for name in run_probe.groups(tracefs) if is_over(name.removeprefix(run_probe.GROUP))]
    return [*names.left_over(tracefs), *groups]


def remove_stale() -> None:
    """What a Sonde left that was killed: probes that are on cost every program that comes by."""
    if os.geteuid() != 0 or (kept := _hold()) is None:
        return
    place, descriptor = kept
    try:
        remove_left(place)
    finally:
        os.close(descriptor)
        _unmount(place)


def remove_left(tracefs: Path) -> None:
    """Of one tracefs; its mount stays."""
    names.remove_left_osnoise(tracefs)
    for name in left_over(tracefs):
        if name.startswith(INSTANCE):
            _remove(tracefs / "instances" / name)
        else:
            run_probe.remove(tracefs, name)


def write(path: Path, text: str) -> None:
    """EnvironmentFailure  io.cannot_watch: the kernel does not take it."""
    try:
        path.write_text(text)
    except OSError as error:
        raise EnvironmentFailure(
            "io.cannot_watch",
            f"cannot write '{text.strip()[:60]}' to {path}: {error.strerror}",
            WITHOUT,
        ) from None


def _hold() -> tuple[Path, int] | None:
    """Where tracefs is, and a descriptor of it: while one is open nobody can unmount it, as another Sonde might that
    had mounted it and comes to its end."""
    for place in PLACES:
        with suppress(OSError):
            descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.stat("instances", dir_fd=descriptor)
            except OSError:
                os.close(descriptor)
                continue
            return place, descriptor
    return None


def _unmount(place: Path) -> None:
    """Takes a mount of Sonde's away, whose ever it was, unless somebody uses it: then it is busy, and stays."""
    if is_mounted_by_sonde(place, "\n".join(kernel_lines(Path("/proc/self/mounts")))):
        subprocess.run(["umount", str(place)], capture_output=True, check=False)


def _remove(instance: Path) -> None:
    with suppress(EnvironmentFailure):
        write(instance / "events/enable", "0\n")
    names.remove(instance)
