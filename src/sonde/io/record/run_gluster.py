"""`sonde io run --gluster VOLUME`: the bricks' own counters over a command, by `gluster volume profile`.

Profiling is a setting of the volume, for all its clients. It is left as it was found: switched off again where this run
switched it on. Where it was on, somebody else reads its intervals; then the counters since the bricks' start are taken,
before and after, which disturbs nobody.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonde.core import distribution
from sonde.core.errors import EnvironmentFailure, UsageError, Warning, nearest, typed
from sonde.core.lines import kernel_lines
from sonde.core.owned_files import Folder
from sonde.io.record import gluster
from sonde.io.record.gluster import Counted, Volume
from sonde.io.trace.servers import FILE

PROGRAM = "gluster"
COMMAND_S = 120.0  # gluster itself gives up on servers that do not answer after as long
_ON = "already started"


@dataclass
class Counting:
    """What reading counters came to. warnings: what is missing of it."""

    warnings: list[Warning] = field(default_factory=list)


def check() -> None:
    """EnvironmentFailure  io.no_gluster."""
    if not shutil.which(PROGRAM, path=_path()):
        raise EnvironmentFailure(
            "io.no_gluster",
            f"there is no program '{PROGRAM}' here, which --gluster needs",
            f"run it on a server of the volume, or leave --gluster out; {distribution.install('glusterfs')}",
        )


@contextmanager
def counting(name: str, folder: Path) -> Iterator[Counting]:
    """What the bricks of a volume do meanwhile is put into a run's folder, for `close`.

    Raises
    ------
    EnvironmentFailure  io.no_gluster, io.gluster_failed. UsageError  io.no_volume, io.volume_stopped.
    """
    check()
    volume = _volume(name)
    told = Counting()
    why = _said("volume", "profile", name, "start")[0]
    if why and _ON not in why:
        raise _failed(f"volume profile {name} start", why)
    ours = not why
    state: dict[str, Any] = {"volume": name, "profiling": "ours" if ours else "found", "servers": None}
    try:
        _keep(folder, state)
        which = "incremental" if ours else "cumulative"
        before = _counters(name, which)
        if absent := [brick for brick in volume.bricks if brick not in before]:
            told.warnings.append(_down(absent, "was down before the command began"))
        if not ours:
            told.warnings.append(
                Warning(
                    "io.gluster_profiled",
                    f"profiling of the volume {name} was on, and is left on; the shortest and longest durations of "
                    "operations that bricks had done before are not known",
                    f"{typed(PROGRAM, 'volume', 'profile', name, 'stop')}, if nobody else reads it, and run it again",
                )
            )
        try:
            yield told
        finally:
            _finish(volume, folder, state, before, which, told)
    finally:
        if ours:
            told.warnings += _switched_off(name)


def _finish(
    volume: Volume,
    folder: Path,
    state: dict[str, Any],
    before: Mapping[str, Counted],
    which: str,
    told: Counting,
) -> None:
    """Reads the counters again and keeps what they gained; where they cannot be read, that is said."""
    name = volume.name
    try:
        # Only the text names the unit of durations; it is read first, as reading an interval begins the next.
        text = _run("volume", "profile", name, "info", which, *(("peek",) if which == "incremental" else ()))
        after = _counters(name, which)
        _take(volume, folder, state, before, after, gluster.unit_s(text), told)
    except EnvironmentFailure as error:  # the trace is to be kept all the same
        told.warnings.append(
            Warning(
                "io.no_server_counters",
                f"what servers counted is not in the dataset: {error.what}",
                error.hint,
            )
        )
        with suppress(EnvironmentFailure):
            _keep(folder, state | {"servers": []})


def _take(
    volume: Volume,
    folder: Path,
    state: dict[str, Any],
    before: Mapping[str, Counted],
    after: Mapping[str, Counted],
    unit: float | None,
    told: Counting,
) -> None:
    if lost := [brick for brick in volume.bricks if brick in before and brick not in after]:
        told.warnings.append(_down(lost, "went down while the command ran; what it did is not known"))
    if state["profiling"] == "found":
        after = {brick: gluster.since(before.get(brick, Counted()), one) for brick, one in after.items()}
    state |= {
        "system": volume.describe(),
        "mounts": _mounts(volume.name),
        "cwd": os.getcwd(),
        "servers": gluster.as_servers(volume.bricks, after, unit),
    }
    _keep(folder, state)


def _keep(folder: Path, state: Mapping[str, Any]) -> None:
    try:
        with Folder(folder) as run:
            run.write(FILE, json.dumps(state).encode())
    except OSError as error:
        raise EnvironmentFailure(
            "core.cannot_write", f"cannot write {folder / FILE}: {error.strerror}", "choose another --output"
        ) from None


def _volume(name: str) -> Volume:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise UsageError(
            "io.no_volume",
            f"'{name}' is no name of a volume",
            "give the volume's name alone, as in --gluster data",
        )
    why, root = _said("volume", "info", name)
    found = gluster.volume(root) if root is not None else None
    if found is None:
        if "does not exist" not in why and why:
            raise _failed(f"volume info {name}", why)
        listed = _said("volume", "list")[1]
        known = gluster.volumes(listed) if listed is not None else []
        there = f"there are: {', '.join(known)}" if known else "there is none"
        raise UsageError(
            "io.no_volume",
            f"these servers have no volume '{name}'{nearest(name, known)}; {there}",
            "name one of them with --gluster",
        )
    if not found.started:
        raise UsageError(
            "io.volume_stopped",
            f"the volume '{name}' is not started",
            typed(PROGRAM, "volume", "start", name),
        )
    return found


def _counters(name: str, which: str) -> dict[str, Counted]:
    why, root = _said("volume", "profile", name, "info", which)
    if why or root is None:
        raise _failed(f"volume profile {name} info", why)
    return gluster.counted(root, {"incremental": "interval"}.get(which, which))


def _said(*words: str) -> tuple[str, ElementTree.Element | None]:
    found = gluster.answer(_run("--xml", *words))
    return found.why, found.root


def _run(*words: str) -> str:
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"} | {"PATH": _path()}
    try:
        ran = subprocess.run(
            [PROGRAM, "--mode=script", *words],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_S,
            check=False,
            start_new_session=True,  # a Ctrl-C is the command's
        )
    except subprocess.TimeoutExpired:
        raise _failed(" ".join(words), f"it said nothing for {COMMAND_S:g} s") from None
    except OSError as error:
        raise _failed(" ".join(words), error.strerror or str(error)) from None
    return ran.stdout or ran.stderr


def _failed(what: str, why: str) -> EnvironmentFailure:
    return EnvironmentFailure(
        "io.gluster_failed",
        f"'{PROGRAM} {what}' failed: {why}",
        "run it as root on a server of the volume, where glusterd runs; or leave --gluster out",
    )


def _down(bricks: list[str], how: str) -> Warning:
    named = ", ".join(bricks[:4]) + (", …" if len(bricks) > 4 else "")
    return Warning(
        "io.brick_down",
        f"{'bricks' if len(bricks) > 1 else 'brick'} {named} {how}",
        "see 'gluster volume status' and the brick's log in /var/log/glusterfs/bricks",
    )


def _switched_off(name: str) -> list[Warning]:
    """Switches profiling off; never an error, for by now there is a trace to be kept."""
    try:
        why = _said("volume", "profile", name, "stop")[0]
    except EnvironmentFailure as error:
        why = error.what
    return [
        Warning(
            "io.gluster_left_on",
            f"profiling of the volume {name} could not be switched off again: {why}",
            typed(PROGRAM, "volume", "profile", name, "stop"),
        )
    ] * bool(why)


def _mounts(name: str) -> list[str]:
    """Where this host has the volume, or a folder of it, mounted."""
    return mounts_of(kernel_lines(Path("/proc/self/mounts")), name)


def mounts_of(lines: Iterable[str], name: str) -> list[str]:
    """Where a volume is mounted, by lines of /proc/self/mounts."""
    found = []
    for line in lines:
        source, where, kind = (*line.split(" "), "", "", "")[:3]
        volume = source.rpartition(":")[2].strip("/").partition("/")[0]
        if kind == "fuse.glusterfs" and volume == name:
            found.append(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), where))
    return found


def _path() -> str:
    """gluster is where an ordinary user does not look."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
