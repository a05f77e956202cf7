"""The folder in which a run works: its run.json, the lock of the process that works in it, and its removal.

`start` makes the folder before anything is measured, probes fill it, `end` records how the run ended, and `seal.seal`
turns it into datasets and removes it. One process at a time holds the folder (`hold`); the kernel frees it when that
process dies.

Files in the folder are reached as in `owned_files`, and only names that Sonde creates are removed (`clear`): the user
who recovers a folder need not be the one who made it.

The records of a run may fill the disk. Therefore `start` reserves room for the final run.json, in the file that `end`
writes and renames: a run that ended properly is never mistaken for a killed one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonde.core.disk import cannot_write
from sonde.core.errors import DataError, EnvironmentFailure, Warning, typed
from sonde.core.owned_files import UNSAFE_FOLDER, Folder, Identity, is_part, make_folder
from sonde.core.room import rooms
from sonde.core.values import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

RUN_FILE = "run.json"
SEALED_FILE = "sealed.json"
NO_RUN = "give the folder of a run; it has the name of its dataset, but ends in .run"
_LOCK_FILE = ".lock"
_OWNER_ONLY = 0o700  # mode of a run's folder, which contains command lines and paths
_END_BYTES = 16 << 10  # reserved on the disk for the additions of `end` to run.json
# Names that Sonde creates in the folder of every run. A room's own are the `run_files` of its Room.
_FILES = re.compile(
    r"run\.json|sealed\.json|\.lock|log|\.seen-by-rank-0|remains-[^/]+|[^/]+\.blk"
    # unfinished files, as earlier versions named them
    r"|(run|sealed)\.json\.part"
)


@dataclass
class Run:
    """The content of run.json."""

    room: str
    schema: str
    attrs: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)
    warnings: list[Warning] = field(default_factory=list)


def dataset_name(room: str, cluster: str, when: datetime | None = None) -> str:
    """A name for a new dataset: "net-alpha-20261120T214757Z-3f9a.nc".

    cluster: letters, digits, `_` and `.` stay, runs of anything else become `_`; "" becomes "local".
    when: a time with a time zone; now by default. The four hex digits are random.
    """
    label = re.sub(r"[^A-Za-z0-9_.]+", "_", cluster).strip("_.") or "local"
    stamp = (when or datetime.now(UTC)).astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{room}-{label}-{stamp}-{secrets.token_hex(2)}.nc"


def folder_of(dataset: str | PathLike[str]) -> Path:
    """The folder in which the run for `dataset` works: "a.nc" gives "a.run"."""
    return Path(dataset).with_suffix(".run")


def start(
    run_dir: str | PathLike[str],
    *,
    room: str,
    schema: str,
    attrs: Mapping[str, Any],
    plan: Mapping[str, Any],
    env: Mapping[str, Any] | None = None,
    warnings: Iterable[Warning] = (),
) -> Identity:
    """Make a run's folder with its run.json and room for its final version, before anything is measured.

    run_dir: must not exist. schema: "net/1". attrs: root attributes of the dataset. plan: the information that the
    room's schema needs to read the records. env: attributes of /env. warnings: those known already.

    Returns
    -------
    The identity of the folder, for `hold`.

    Raises
    ------
    EnvironmentFailure  core.cannot_write (the folder exists, or its parent does not), core.disk_full,
    core.folder_of_others; a new folder is removed.
    """
    folder = Path(run_dir)
    try:
        make_folder(folder, _OWNER_ONLY)
    except FileExistsError:
        raise EnvironmentFailure(
            "core.cannot_write",
            f"{folder} exists already: another run works in it, or was killed in it",
            f"{typed('sonde', 'data', 'recover', folder)}, or choose another name with --output",
        ) from None
    except OSError as error:
        raise cannot_write(folder, error, "choose another folder with --output") from None
    with opened(folder) as files:
        try:
            _write(files, Run(room, schema, dict(attrs), dict(plan), dict(env or {}), list(warnings)))
            _reserve_room(files)
        except EnvironmentFailure:
            with contextlib.suppress(OSError):
                clear(files)
                folder.rmdir()
            raise
        return files.identity


def end(run_dir: str | PathLike[str], attrs: Mapping[str, Any], warnings: Iterable[Warning] = ()) -> None:
    """Record how a run ended: add root attributes (`stop_reason` at least) and warnings to its run.json.

    The first record needs only the disk space that `start` reserved, unless it is longer than that. A run.json
    without `stop_reason` is the sign of a killed run.

    Raises
    ------
    DataError  core.not_a_run. EnvironmentFailure  core.cannot_write, core.disk_full, core.unsafe_folder,
    core.unsafe_file.
    """
    with opened(Path(run_dir)) as files:
        end_in(files, attrs, warnings)


def end_in(files: Folder, attrs: Mapping[str, Any], warnings: Iterable[Warning] = ()) -> None:
    """The same as `end` for an open folder."""
    run = read_from(files)
    run.attrs |= attrs
    run.warnings += warnings
    files.refuse_unless_own("record how the run ended", _copied(files.path))
    _write(files, run)


def read(run_dir: str | PathLike[str]) -> Run:
    """The content of a run's run.json.

    Raises
    ------
    DataError  core.not_a_run: there is no run.json, or it is not one of Sonde's.
    EnvironmentFailure  core.unsafe_file: it is a link, or does not belong to the folder's owner.
    """
    with opened(Path(run_dir)) as files:
        return read_from(files)


def opened(folder: Path) -> Folder:
    """DataError  core.not_a_run: there is no such folder, or it cannot be read."""
    try:
        return Folder(folder)
    except OSError as error:
        raise DataError(
            "core.not_a_run", f"{folder} is not the folder of a run: {error.strerror or error}", NO_RUN
        ) from None


def _copied(folder: Path) -> str:
    """The command to copy and recover a folder of another user. It copies links as links, so that none is followed."""
    own = f"own-{folder.name}"
    return f"{typed('cp', '-r', folder, own)}; {typed('sonde', 'data', 'recover', own)}"


def read_from(files: Folder) -> Run:
    path, hint = files.path / RUN_FILE, NO_RUN
    try:
        stored = json.loads(files.read(RUN_FILE).decode("utf-8"))
    except OSError as error:
        raise DataError(
            "core.not_a_run",
            f"{files.path} is not the folder of a run: {path.name}: {error.strerror or error}",
            hint,
        ) from None
    except (ValueError, RecursionError) as error:
        raise DataError("core.not_a_run", f"{path} is damaged: {error}", hint) from None
    match stored:
        case {"room": str(room), "schema": str(schema), "attrs": dict(attrs), "plan": dict(plan)}:
            listed, env = stored.get("warnings"), stored.get("env")
            known = [
                Warning(str(w["code"]), str(w.get("evidence", "")), str(w.get("hint", "")))
                for w in (listed if isinstance(listed, list) else ())
                if isinstance(w, dict) and "code" in w
            ]
            return Run(room, schema, attrs, plan, env if isinstance(env, dict) else {}, known)
    raise DataError("core.not_a_run", f"{path} lacks room, schema, attrs or plan", hint)


def _write(files: Folder, run: Run) -> None:
    content = {
        "room": run.room,
        "schema": run.schema,
        "attrs": run.attrs,
        "plan": run.plan,
        "env": run.env,
        "warnings": [warning.as_json() for warning in run.warnings],
    }
    write_json(files, RUN_FILE, content, "choose another folder with --output")


def _part(name: str) -> str:
    """The file that becomes `name`, and reserves its room. It has a known name, because it is searched later."""
    return f"{name}.part"


def _reserve_room(files: Folder) -> None:
    """Reserve the blocks for the final run.json, in the file that becomes it."""
    path = files.path / RUN_FILE
    try:
        with os.fdopen(files.make(_part(RUN_FILE)), "wb") as file:
            length = facts.st_size if (facts := files.facts(RUN_FILE)) else 0
            os.posix_fallocate(file.fileno(), 0, length + _END_BYTES)
            os.fsync(file.fileno())
    except OSError as error:
        # Some file systems cannot reserve blocks: then the end is recorded if there is room.
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise cannot_write(path, error, "choose another folder with --output") from None


def write_json(files: Folder, name: str, content: Any, hint: str) -> None:
    """Replace a small file in one step: readers see the old or the new one."""
    text = json.dumps(content, indent=1, default=plain).encode()
    part, descriptor = "", -1
    try:
        # The file is not emptied first, so that its reserved blocks are used: a full disk has no others.
        with contextlib.suppress(
            FileNotFoundError, EnvironmentFailure
        ):  # such as a link at this name: then under another name
            part, descriptor = _part(name), files.change(_part(name))
        if descriptor < 0:
            part, descriptor = files.make_part(name)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        files.replace(part, name)
        files.sync()
    except OSError as error:
        if is_part(part):
            with contextlib.suppress(OSError):
                files.remove(part)
        raise cannot_write(files.path / name, error, hint) from None


@dataclass
class Hold:
    """The right to work in a run's folder. `writable` is False if the folder can only be read, such as one of another
    user. files: the folder itself, even if its path changes.
    """

    folder: Path
    writable: bool
    files: Folder


@contextlib.contextmanager
def hold(run_dir: str | PathLike[str], made: Identity | None = None) -> Iterator[Hold]:
    """Keep other processes from sealing a run's folder while it is filled or sealed.

    made: the result of `start`, if the caller made the folder: no other one counts.

    The kernel frees the folder when the holding process dies. A folder that cannot be written, or that belongs to
    another user, needs no lock and gets none; nor does one on a file system without locks.

    Raises
    ------
    EnvironmentFailure  core.busy: another process holds it; core.unsafe_folder: everybody can write in it, or it is
    not the one that was made; core.unsafe_file: for example, its lock or run.json is a link. DataError  core.not_a_run.
    """
    folder = Path(run_dir)
    with opened(folder) as files:
        if made is not None and files.identity != made:
            raise EnvironmentFailure(
                UNSAFE_FOLDER,
                f"{folder} is another folder than the one that this run made: somebody put it in its place",
                "measure again in a folder where only you can rename folders",
            )
        if files.facts(SEALED_FILE) is None:
            read_from(files)  # before it leaves a lock file in somebody's folder
        if not files.is_own:
            yield Hold(folder, False, files)
            return
        files.refuse_unless_own("work in the folder of the run", "")
        try:
            lock = files.change_or_make(_LOCK_FILE, 0o644)
        except OSError as error:
            # ENOSPC: no room even for an empty file; reading is possible all the same.
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT):
                raise cannot_write(folder, error, "check the folder's permissions") from None
            yield Hold(folder, error.errno in (errno.ENOSPC, errno.EDQUOT), files)
            return
        with _locked(folder, lock):
            yield Hold(folder, True, files)


@contextlib.contextmanager
def _locked(folder: Path, lock: int) -> Iterator[None]:
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EnvironmentFailure(
                "core.busy",
                f"{folder} is in use: its run is still active, or another command saves it",
                "wait until it ends",
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
        if os.fstat(lock).st_nlink == 0:
            raise DataError(
                "core.not_a_run",
                f"{folder} was saved and removed just now by another command",
                "look in the folder that contains it",
            )
        yield
    finally:
        os.close(lock)


def forget(run_dir: Path) -> None:
    """Remove the folder of a run that is not to be saved; it stays if it holds files that Sonde did not create."""
    with contextlib.suppress(OSError), Folder(run_dir) as files:
        if files.is_own and not clear(files):
            run_dir.rmdir()


def clear(files: Folder, above: str = "") -> list[str]:
    """Remove the files that Sonde creates in a run's folder; return the names of all others, which belong to a user.

    above: "" for a run's folder itself; "a/b/" for the folder "a/b" in it.
    """
    made = _made_by_rooms()
    # The notes go last: while they are there, what is left of the folder is not taken for a run.
    last = (_LOCK_FILE, SEALED_FILE)
    left: list[str] = []
    for name in sorted(files.names(), key=lambda name: (name in last, name)):
        path = f"{above}{name}"
        # NFS renames a removed file to such a name while a process has it open.
        if (facts := files.facts(name)) is None or (not above and name.startswith(".nfs")):
            continue
        if stat.S_ISDIR(facts.st_mode):
            if made.runs.fullmatch(path):
                left += _clear_below(files, name, "")
            elif made.folders.fullmatch(path):
                left += _clear_below(files, name, f"{path}/")
            else:
                left.append(f"{name}/")
        elif made.files.fullmatch(path) or (not above and (_FILES.fullmatch(name) or is_part(name))):
            files.remove(name)
        else:
            left.append(name)
    return left


def _clear_below(files: Folder, name: str, above: str) -> list[str]:
    """Remove a folder in a folder, if it is empty after `clear`; return the names that are left."""
    with files.folder(name) as folder:
        left = [f"{name}/{one}" for one in clear(folder, above)] if folder.is_own else [f"{name}/"]
    if not left:
        files.remove_folder(name)
    return left


@dataclass(frozen=True)
class _Made:
    """The files that the programs of all rooms create in a run's folder, as `room.RunFiles`."""

    files: re.Pattern[str]
    folders: re.Pattern[str]
    runs: re.Pattern[str]


@cache
def _made_by_rooms() -> _Made:
    """The patterns of all rooms: a folder whose removal was cut short no longer shows which room's it was."""
    made = [room.run_files for room in rooms()]
    return _Made(
        _any_of(one.files for one in made),
        _any_of(one.folders for one in made),
        _any_of(one.runs for one in made),
    )


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """One pattern in place of several; one that matches nothing for none."""
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns if pattern) or "(?!)")
