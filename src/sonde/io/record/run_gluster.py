"""`sonde io run --gluster VOLUME`: the bricks' own counters over a command, by `gluster volume profile`.

Profiling is a setting of the volume, for all its clients. This module restores the setting: it switches profiling off
again only if it switched it on. If profiling was on before, somebody else reads its intervals; then we read the
counters since the bricks' start, before and after the command, which disturbs nobody.
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
from sonde.core.surroundings import place_of_ranks
from sonde.io.record import gluster
from sonde.io.record.gluster import Counted, Volume
from sonde.io.trace.servers import FILE

PROGRAM = "gluster"
COMMAND_S = 120.0  # gluster itself waits this long for servers that do not answer
_ON = "already started"


@dataclass
class Counting:
    """The result of reading counters. warnings: about missing counters."""

    warnings: list[Warning] = field(default_factory=list)


def check() -> None:
    """EnvironmentFailure  io.no_gluster."""
    if not shutil.which(PROGRAM, path=_path()):
        raise EnvironmentFailure(
            "io.no_gluster",
            f"--gluster needs the program '{PROGRAM}', which is not installed here",
            f"run it on a server of the volume, or leave --gluster out; {distribution.install('glusterfs')}",
        )


@contextmanager
def counting(name: str, folder: Path) -> Iterator[Counting]:
    """Store what the bricks of a volume count meanwhile in a run's folder, for `close`.

    Raises
    ------
    EnvironmentFailure  io.no_gluster, io.gluster_failed. UsageError  io.no_volume, io.volume_stopped.
    """
    check()
    volume = _volume(name)
    counting_result = Counting()
    why = _answer("volume", "profile", name, "start")[0]
    if why and _ON not in why:
        raise _failed(f"volume profile {name} start", why)
    ours = not why
    state: dict[str, Any] = {"volume": name, "profiling": "ours" if ours else "found", "servers": None}
    try:
        _store(folder, state)
        which = "incremental" if ours else "cumulative"
        before = _counters(name, which)
        if absent := [brick for brick in volume.bricks if brick not in before]:
            counting_result.warnings.append(_down(absent, "was down before the command began"))
        if not ours:
            counting_result.warnings.append(
                Warning(
                    "io.gluster_profiled",
                    f"profiling of the volume {name} was on, and stays on; the shortest and longest "
                    "durations are unknown for operations that bricks had done before",
                    f"if nobody else reads it, {typed(PROGRAM, 'volume', 'profile', name, 'stop')}, and run "
                    "it again",
                )
            )
        try:
            yield counting_result
        finally:
            _finish(volume, folder, state, before, which, counting_result)
    finally:
        if ours:
            counting_result.warnings += _switched_off(name)


def _finish(
    volume: Volume,
    folder: Path,
    state: dict[str, Any],
    before: Mapping[str, Counted],
    which: str,
    counting_result: Counting,
) -> None:
    """Read the counters again and store what they gained. If they cannot be read, add a warning."""
    name = volume.name
    try:
        # Only the text names the unit of durations. It is read first, because reading an interval begins the next one.
        text = _run("volume", "profile", name, "info", which, *(("peek",) if which == "incremental" else ()))
        after = _counters(name, which)
        _store_gain(volume, folder, state, before, after, gluster.unit_s(text), counting_result)
    except EnvironmentFailure as error:  # the trace must be saved all the same
        counting_result.warnings.append(
            Warning(
                "io.no_server_counters",
                f"the dataset has no server counters: {error.what}",
                error.hint,
            )
        )
        with suppress(EnvironmentFailure):
            _store(folder, state | {"servers": []})


def _store_gain(
    volume: Volume,
    folder: Path,
    state: dict[str, Any],
    before: Mapping[str, Counted],
    after: Mapping[str, Counted],
    unit: float | None,
    counting_result: Counting,
) -> None:
    if lost := [brick for brick in volume.bricks if brick in before and brick not in after]:
        counting_result.warnings.append(
            _down(lost, "went down while the command ran; what it did is not known")
        )
    if state["profiling"] == "found":
        after = {brick: gluster.since(before.get(brick, Counted()), one) for brick, one in after.items()}
    state |= {
        "system": volume.describe(),
        "mounts": _mounts(volume.name),
        "cwd": os.getcwd(),
        "servers": gluster.as_servers(volume.bricks, after, unit),
    }
    _store(folder, state)


def _store(folder: Path, state: Mapping[str, Any]) -> None:
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
            f"'{name}' is not a valid name of a volume",
            "give only the volume's name, as in --gluster data",
        )
    why, root = _answer("volume", "info", name)
    found = gluster.volume(root) if root is not None else None
    if found is None:
        if "does not exist" not in why and why:
            raise _failed(f"volume info {name}", why)
        listed = _answer("volume", "list")[1]
        known = gluster.volumes(listed) if listed is not None else []
        existing = f"volumes here: {', '.join(known)}" if known else "there are no volumes"
        raise UsageError(
            "io.no_volume",
            f"these servers have no volume '{name}'{nearest(name, known)}; {existing}",
            "give the name of one of them to --gluster",
        )
    if not found.started:
        raise UsageError(
            "io.volume_stopped",
            f"the volume '{name}' is not started",
            typed(PROGRAM, "volume", "start", name),
        )
    return found


def _counters(name: str, which: str) -> dict[str, Counted]:
    why, root = _answer("volume", "profile", name, "info", which)
    if why or root is None:
        raise _failed(f"volume profile {name} info", why)
    return gluster.counted(root, {"incremental": "interval"}.get(which, which))


def _answer(*words: str) -> tuple[str, ElementTree.Element | None]:
    found = gluster.answer(_run("--xml", *words))
    return found.why, found.root


def _run(*words: str) -> str:
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"} | {"PATH": _path()}
    try:
        ran = subprocess.run(
            [PROGRAM, "--mode=script", *words],
            cwd=place_of_ranks(),
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_S,
            check=False,
            start_new_session=True,  # a Ctrl-C is for the command
        )
    except subprocess.TimeoutExpired:
        raise _failed(" ".join(words), f"no answer for {COMMAND_S:g} s") from None
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
    """Switch profiling off. This never raises, for there is a trace to save by now."""
    try:
        why = _answer("volume", "profile", name, "stop")[0]
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
    """The paths where this host has the volume, or a folder of it, mounted."""
    return mounts_of(kernel_lines(Path("/proc/self/mounts")), name)


def mounts_of(lines: Iterable[str], name: str) -> list[str]:
    """The paths where a volume is mounted, from lines of /proc/self/mounts."""
    found = []
    for line in lines:
        source, where, kind = (*line.split(" "), "", "", "")[:3]
        volume = source.rpartition(":")[2].strip("/").partition("/")[0]
        if kind == "fuse.glusterfs" and volume == name:
            found.append(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), where))
    return found


def _path() -> str:
    """The search path for gluster, which is not on an ordinary user's PATH."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
