"""The kernel's tracefs: where it is, our own instance in it, and what a killed Sonde left there.

Everything that we make has a name: the names of instances and groups of probes contain the process that made them and
its begin (core/tracefs.py); a mount of tracefs has OURS as its device. A run removes its instance, probes and mount at
its end, and those of killed Sondes at its beginning.
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
from sonde.core.surroundings import place_of_ranks
from sonde.core.tracefs import INSTANCE, is_over, mark
from sonde.io.record import run_probe
from sonde.io.record.run_attach import check_rights
from sonde.io.record.run_probe import Probes

PLACES = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
OURS = "sonde"  # shown as the device of a mount
BUFFER_KIB = 8192  # for each processor: it must hold the events between two reads, 20 ms apart
MOUNT_TRIES = 10  # the end of another Sonde may undo each attempt
WITHOUT = "trace without it: leave out --kernel, --uprobes and --attach"


@contextmanager
def instance_of_ours() -> Iterator[tuple[Path, Probes]]:
    """A tracefs instance that uses the clock of the tracer's ticks, and its probes.

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
            remove_left(tracefs)  # left by killed Sondes: nobody looks for them while tracefs is not mounted


@contextmanager
def mounted() -> Iterator[Path]:
    """The path of tracefs, which is mounted for the duration if necessary. EnvironmentFailure  io.no_tracefs."""
    held, message = _hold(), ""
    # At the same moment another Sonde may mount it, so that our mount fails, or unmount it because it has ended.
    for _ in range(MOUNT_TRIES):
        if held is not None:
            break
        words = ["mount", "-t", "tracefs", OURS, str(PLACES[0])]
        message = subprocess.run(
            words, cwd=place_of_ranks(), capture_output=True, text=True, errors="replace", check=False
        ).stderr.strip()
        held = _hold()
    if held is None:
        raise EnvironmentFailure(
            "io.no_tracefs",
            f"tracefs cannot be mounted at {PLACES[0]}: {message or 'this kernel has none'}",
            f"{WITHOUT}; the layer posix has the calls that go through the C library",
        )
    place, descriptor = held
    try:
        yield place
    finally:
        os.close(descriptor)
        _unmount(place)


def where() -> Path | None:
    """The path where tracefs is mounted; None if it is not mounted or not readable."""
    return next((place for place in PLACES if (place / "instances").is_dir()), None)


def is_mounted_by_sonde(place: Path, mounts: str) -> bool:
    """Whether the uppermost mount at a place was made by Sonde. mounts: the text of /proc/self/mounts."""
    at = [line.split(" ") for line in mounts.split("\n") if line.split(" ")[1:2] == [str(place)]]
    return bool(at) and at[-1][0] == OURS


def left_over(tracefs: Path) -> list[str]:
    """Instances, also those of `sonde noise host`, and groups of probes whose processes are gone."""
    groups = [name for name in run_probe.groups(tracefs) if is_over(name.removeprefix(run_probe.GROUP))]
    return [*names.left_over(tracefs), *groups]


def remove_stale() -> None:
    """Remove what a killed Sonde left: enabled probes slow every program that reaches them."""
    if os.geteuid() != 0 or (held := _hold()) is None:
        return
    place, descriptor = held
    try:
        remove_left(place)
    finally:
        os.close(descriptor)
        _unmount(place)


def remove_left(tracefs: Path) -> None:
    """Remove what killed Sondes left in one tracefs; its mount stays."""
    names.remove_left_osnoise(tracefs)
    for name in left_over(tracefs):
        if name.startswith(INSTANCE):
            _remove(tracefs / "instances" / name)
        else:
            run_probe.remove(tracefs, name)


def write(path: Path, text: str) -> None:
    """Write to a file of tracefs. EnvironmentFailure  io.cannot_watch: the kernel refuses the text."""
    try:
        path.write_text(text)
    except OSError as error:
        raise EnvironmentFailure(
            "io.cannot_watch",
            f"cannot write '{text.strip()[:60]}' to {path}: {error.strerror}",
            WITHOUT,
        ) from None


def _hold() -> tuple[Path, int] | None:
    """The path of tracefs, and a descriptor of it. While it is open nobody can unmount tracefs, as another Sonde that
    had mounted it would do at its end."""
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
    """Remove a mount of any Sonde, unless it is in use: then it is busy, and stays."""
    if is_mounted_by_sonde(place, "\n".join(kernel_lines(Path("/proc/self/mounts")))):
        subprocess.run(["umount", str(place)], cwd=place_of_ranks(), capture_output=True, check=False)


def _remove(instance: Path) -> None:
    with suppress(EnvironmentFailure):
        write(instance / "events/enable", "0\n")
    names.remove(instance)
