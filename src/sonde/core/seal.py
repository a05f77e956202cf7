"""From block files to a dataset, streaming. `recover` does the same with the remains of a kill -9.

A run works in a folder: `start_run` makes it, probes fill it, `end_run` records how it ended, `seal` turns it into
datasets and removes it. Whenever a process dies in between, the folder or the dataset exists, and is whole:

- datasets are built next to their place as `NAME.….part`, fsynced, and renamed only when all of them are finished;
- the folder is removed only after that; from the beginning of its removal it names the datasets, so that a half-removed
  folder never overwrites them;
- one process at a time holds the folder (`hold`); the kernel frees it when that process dies;
- files in the folder are reached as in `owned_files`, and only names that Sonde creates are removed: the user who
  recovers a folder need not be the one who made it.

The records of a run may fill the disk. Therefore `start_run` reserves room for the final run.json, in the file that
`end_run` writes and renames: a run that ended properly is never mistaken for a killed one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sonde.core.blocks import BlockFile
from sonde.core.dataset import ROOT_ATTRIBUTES
from sonde.core.deadline import Deadline, LeftOut
from sonde.core.errors import DataError, EnvironmentFailure, Warning, reason_not_written, typed
from sonde.core.layout import Layout, RoomSchema, SealedFile
from sonde.core.owned_files import Folder, NewFile, is_part
from sonde.core.printable import encodable, encodable_within, name_text
from sonde.core.values import pieces, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr

    from sonde.core.netcdf import netCDF4

RUN_FILE = "run.json"
_PART_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_LOCK_FILE = ".lock"
_SEALED_FILE = "sealed.json"
_OWNER_ONLY = 0o700  # mode of a run's folder, which contains command lines and paths
_END_BYTES = 16 << 10  # reserved on the disk for the additions of `end_run` to run.json
_CACHE_BYTES = 48 << 20  # for the chunks of all variables of the group that is written
_READ_CACHE_BYTES = 8 << 20  # for each variable that analyse reads
_FINISH_S = 0.5  # minimum for the steps after an analysis: writing /summary, and reading it for the result


# All names that Sonde creates in a run's folder. All other files belong to a user, and are not removed.
_FILES = re.compile(
    # files of every room
    r"run\.json|sealed\.json|\.lock|log|\.seen-by-rank-0|remains-.+|.+\.blk"
    # io: the tracer and the watcher; servers; runs of a study
    r"|table|.+\.(tail|functions|shared|refused)|watch\.spec|servers\.json"
    r"|results\.json|out|err|hints|trace\.nc|[a-z]+-[0-9]{5}\.part"
    # unfinished files, as earlier versions named them
    r"|(run|sealed)\.json\.part|\.servers\.json\.part|trace\.nc\.part",
    re.DOTALL,
)
# Folders of a store's servers in a run's folder.
_SERVER = re.compile(r"objects|keys|tables|db")
_SERVER_FILES = re.compile(
    # files of the stores; posix: `<space>+<key>`, and folders of a name's first pieces; lmdb, SQLite, RocksDB
    r"sonde-store|LOCK|[A-Za-z0-9._%-]*\+[A-Za-z0-9._%+-]*"
    r"|(data|lock)\.mdb|rows\.db(-wal|-shm|-journal)?"
    r"|[0-9]+\.(sst|log|blob|ldb|dbtmp)|CURRENT|IDENTITY|LOG(\.old\.[0-9]+)?|(MANIFEST|OPTIONS)-[0-9]+(\.dbtmp)?"
)
_SERVER_PIECE = re.compile(
    r"[A-Za-z0-9._%+-]+"
)  # for a long name, below a folder of its first pieces: `<piece>~`
_POSIX = re.compile(r"[0-9a-f]{2}|[A-Za-z0-9._%+-]+~")


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


def run_folder(dataset: str | PathLike[str]) -> Path:
    """The folder in which the run for `dataset` works: "a.nc" gives "a.run"."""
    return Path(dataset).with_suffix(".run")


def start_run(
    run_dir: str | PathLike[str],
    *,
    room: str,
    schema: str,
    attrs: Mapping[str, Any],
    plan: Mapping[str, Any],
    env: Mapping[str, Any] | None = None,
    warnings: Iterable[Warning] = (),
) -> None:
    """Make a run's folder with its run.json and room for its final version, before anything is measured.

    run_dir: must not exist. schema: "net/1". attrs: root attributes of the dataset. plan: the information that the
    room's schema needs to read the records. env: attributes of /env. warnings: those known already.

    Raises
    ------
    EnvironmentFailure  core.cannot_write (the folder exists, or its parent does not), core.disk_full; a new folder is
    removed.
    """
    folder = Path(run_dir)
    try:
        folder.mkdir(mode=_OWNER_ONLY)
    except FileExistsError:
        raise EnvironmentFailure(
            "core.cannot_write",
            f"{folder} exists already: another run works in it, or was killed in it",
            f"{typed('sonde', 'data', 'recover', folder)}, or choose another name with --output",
        ) from None
    except OSError as error:
        raise cannot_write(folder, error, "choose another folder with --output") from None
    with _opened(folder) as files:
        try:
            _write_run(files, Run(room, schema, dict(attrs), dict(plan), dict(env or {}), list(warnings)))
            _reserve_room(files)
        except EnvironmentFailure:
            with contextlib.suppress(OSError):
                _clear(files)
                folder.rmdir()
            raise


def end_run(run_dir: str | PathLike[str], attrs: Mapping[str, Any], warnings: Iterable[Warning] = ()) -> None:
    """Record how a run ended: add root attributes (`stop_reason` at least) and warnings to its run.json.

    The first record needs only the disk space that `start_run` reserved, unless it is longer than that. A run.json
    without `stop_reason` is the sign of a killed run.

    Raises
    ------
    DataError  core.not_a_run. EnvironmentFailure  core.cannot_write, core.disk_full, core.unsafe_folder,
    core.unsafe_file.
    """
    with _opened(Path(run_dir)) as files:
        run = _read_run(files)
        run.attrs |= attrs
        run.warnings += warnings
        files.refuse_unless_own("record how the run ended", _copied(files.path))
        _write_run(files, run)


def read_run(run_dir: str | PathLike[str]) -> Run:
    """The content of a run's run.json.

    Raises
    ------
    DataError  core.not_a_run: there is no run.json, or it is not one of Sonde's.
    EnvironmentFailure  core.unsafe_file: it is a link, or does not belong to the folder's owner.
    """
    with _opened(Path(run_dir)) as files:
        return _read_run(files)


_NO_RUN = "give the folder of a run; it has the name of its dataset, but ends in .run"


def _opened(folder: Path) -> Folder:
    """DataError  core.not_a_run: there is no such folder, or it cannot be read."""
    try:
        return Folder(folder)
    except OSError as error:
        raise DataError(
            "core.not_a_run", f"{folder} is not the folder of a run: {error.strerror or error}", _NO_RUN
        ) from None


def _copied(folder: Path) -> str:
    """The command to copy and recover a folder of another user. It copies links as links, so that none is followed."""
    own = f"own-{folder.name}"
    return f"{typed('cp', '-r', folder, own)}; {typed('sonde', 'data', 'recover', own)}"


def _read_run(files: Folder) -> Run:
    path, hint = files.path / RUN_FILE, _NO_RUN
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


def _write_run(files: Folder, run: Run) -> None:
    content = {
        "room": run.room,
        "schema": run.schema,
        "attrs": run.attrs,
        "plan": run.plan,
        "env": run.env,
        "warnings": [warning.as_json() for warning in run.warnings],
    }
    _write_json(files, RUN_FILE, content, "choose another folder with --output")


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


def _write_json(files: Folder, name: str, content: Any, hint: str) -> None:
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
def hold(run_dir: str | PathLike[str]) -> Iterator[Hold]:
    """Keep other processes from sealing a run's folder while it is filled or sealed.

    The kernel frees the folder when the holding process dies. A folder that cannot be written, or that belongs to
    another user, needs no lock and gets none; nor does one on a file system without locks.

    Raises
    ------
    EnvironmentFailure  core.busy: another process holds it; core.unsafe_folder: everybody can write in it;
    core.unsafe_file: for example, its lock or run.json is a link. DataError  core.not_a_run.
    """
    folder = Path(run_dir)
    with _opened(folder) as files:
        if files.facts(_SEALED_FILE) is None:
            _read_run(files)  # before it leaves a lock file in somebody's folder
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


def seal(
    run_dir: str | PathLike[str],
    out: str | PathLike[str],
    schema: RoomSchema,
    *,
    attrs: Mapping[str, Any] | None = None,
    warnings: Iterable[Warning] = (),
    analyse: bool = True,
    keep: bool = False,
    held: Hold | None = None,
    progress: Callable[[int, int], None] | None = None,
    deadline: Deadline | None = None,
) -> list[SealedFile]:
    """Turn a run's folder into its datasets, in bounded memory, and remove the folder.

    A run that did not record its `stop_reason` was killed: its datasets get "killed", `complete` 0 and a warning.
    Damaged block files lose only the damaged part, with a warning in the dataset. If `analyse` fails, /raw is saved all
    the same.

    Parameters
    ----------
    run_dir : the folder
    out : the dataset's path; or a folder, where the dataset gets the name of the run. Each of several parts is named
    <stem>-<part>.nc. An existing file is replaced.
    schema : the room's
    attrs, warnings : as for `end_run`, which is called with them first
    analyse : compute /summary; without it the dataset holds only /raw, and a warning about this
    keep : leave the folder
    held : the result of `hold`, if the caller holds the folder; otherwise it is held here
    progress : called with (files placed, files to place)
    deadline : the end of the command's --budget; None: never. Parts that an analysis leaves out are reported by a
    warning in the dataset

    Returns
    -------
    One SealedFile for each part.

    Raises
    ------
    EnvironmentFailure  core.disk_full, core.cannot_write, core.busy, core.unsafe_file, core.unsafe_folder; the folder
    is unchanged.
    DataError  core.not_a_run, core.wrong_schema, core.no_records (nothing was ever recorded).
    """
    folder = Path(run_dir)
    pace = _Pace(deadline or Deadline())
    with contextlib.ExitStack() as stack:
        hold_ = held or stack.enter_context(hold(folder))
        if (done := finish(folder, hold_)) is not None:
            return done
        noted = dict(attrs or {}), list(warnings)
        if any(noted):
            # A full disk must not prevent saving elsewhere; seal has the attributes as arguments anyway.
            with contextlib.suppress(EnvironmentFailure):
                end_run(folder, *noted)
        run = _read_run(hold_.files)
        run.attrs |= noted[0]
        run.warnings += [warning for warning in noted[1] if warning not in run.warnings]
        if run.schema != f"{schema.room}/{schema.version}":
            raise DataError(
                "core.wrong_schema",
                f"{folder} was recorded as {run.schema}; this Sonde writes {schema.room}/{schema.version}",
                "save it with the version of Sonde that recorded it",
            )
        if (close := getattr(schema, "close", None)) is not None:
            with fitting(folder):
                gained, reported = close(folder, "stop_reason" in run.attrs)
            run.plan |= gained
            run.warnings += reported
        sealed, parts = [], []
        try:
            files, unread = _block_files(hold_.files)
            names = parts_of(folder, run, schema)
            for number, (part, target) in enumerate(targets(folder, Path(out), names)):
                report = _scaled(progress, number, len(names), len(files))
                parts.append(draft := _Draft(target, folder))
                mine = pace.part(number, len(names)) if analyse else None
                sealed.append(_seal_part(draft, run, schema, part, files, unread, report, mine))
            for draft in parts:
                draft.publish()
        except BaseException:
            for draft in parts:
                draft.discard()
            raise
        if not keep:
            _remove(folder, sealed, hold_)
        return sealed


class _Pace:
    """Shares the time until a deadline between the parts of a run, and between each analysis and the steps after it."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = replace(deadline, left_out=[])  # for this dataset only
        self._began = deadline.clock()

    def part(self, number: int, parts: int) -> _Pace:
        """The deadline of one dataset, at the beginning of its analysis."""
        return _Pace(self.deadline.part(1 / (parts - number)))

    def placed(self) -> Deadline:
        """The end of the analysis, now that /raw is written: the steps after it take about as long again."""
        return self.deadline.earlier(max(_FINISH_S, self.deadline.clock() - self._began))


def _cut_short(room: str, left: LeftOut) -> Warning:
    """The warning about an analysis that --budget ended."""
    return Warning(
        f"{room}.analysis_cut_short", f"--budget was over: {left.text()}", "give a longer --budget"
    )


_NOT_ANALYSED = Warning(
    "core.not_analysed", "/summary was not computed, as requested", "analyse /raw with sonde.open(FILE)"
)


def _scaled(
    progress: Callable[[int, int], None] | None, part: int, parts: int, files: int
) -> Callable[[int], None]:
    return lambda done: progress(part * files + done, parts * files) if progress else None


def _block_files(run: Folder) -> tuple[list[BlockFile], list[Warning]]:
    """The folder's readable block files, and warnings about the others."""
    files, unread, folder = [], [], run.path
    for name in run.names():
        if not name.endswith(".blk"):
            continue
        try:
            files.append(BlockFile(folder / name, run))
        except DataError as error:
            unread.append(Warning("core.unreadable_block_file", error.what, error.hint))
    if not files:
        why = "; ".join(warning.evidence for warning in unread) or "it has no block file"
        raise DataError(
            "core.no_records",
            f"nothing in {folder} can be saved: {why}",
            f"see {folder / 'log'}; then measure again",
        )
    return files, unread


def parts_of(folder: Path, run: Run, schema: RoomSchema) -> list[str]:
    """Names of the datasets that a run's folder becomes, from its plan, which a stranger may have written.

    Raises
    ------
    DataError  core.not_a_run: the plan names no dataset, one twice, or a name that is unsafe in a file name.
    """
    with fitting(folder):
        names = list(schema.parts(run.plan))
    whole = len(names) == 1
    bad = [name for name in names if not _is_part_name(name, whole)]
    if bad or not names or len(set(names)) < len(names):
        what = f"names the datasets {names!r:.200}" if names else "names no dataset"
        raise DataError(
            "core.not_a_run",
            f"{folder}: the plan in {RUN_FILE} {what}; allowed: words of letters, digits, '_' and '-', each once",
            "copy the folder again from where it was measured",
        )
    return names


def _is_part_name(name: object, whole: bool) -> bool:
    """Whether a part's name is safe in a file name. whole: the run becomes one dataset, which needs no name."""
    return isinstance(name, str) and (bool(_PART_NAME.fullmatch(name)) or (whole and not name))


def targets(folder: Path, out: Path, parts: Sequence[str]) -> list[tuple[str, Path]]:
    """The datasets that a run's folder becomes: (part, path) each. out: as for `seal`.

    Raises
    ------
    EnvironmentFailure  core.cannot_write: their folder does not exist.
    """
    target = out / f"{folder.name.removesuffix('.run')}.nc" if out.is_dir() else out
    if not target.parent.is_dir():
        raise EnvironmentFailure(
            "core.cannot_write",
            f"cannot write {target}: there is no folder {target.parent}",
            f"create it, or save elsewhere: {typed('sonde', 'data', 'recover', folder, '-o', 'ELSEWHERE')}",
        )
    return [(part, target.with_stem(f"{target.stem}-{part}") if len(parts) > 1 else target) for part in parts]


def _seal_part(
    draft: _Draft,
    run: Run,
    schema: RoomSchema,
    part: str,
    files: Sequence[BlockFile],
    unread: Sequence[Warning],
    report: Callable[[int], None],
    pace: _Pace | None,
) -> SealedFile:
    """pace: for the analysis; None: no analysis."""
    stop_reason = str(run.attrs.get("stop_reason", "killed"))
    with fitting(files[0].path.parent):
        layout = schema.layout({**run.plan, "stop_reason": stop_reason}, files, part)
    ended = "stop_reason" in run.attrs
    complete = bool(layout.complete and ended and run.attrs.get("complete", 1))
    reported = [
        *run.warnings,
        *_folded([*unread, *(w for file in files for w in file.warnings)]),
        *layout.warnings,
    ]
    if not ended:
        reported.append(
            Warning(
                "core.run_was_killed",
                f"the run did not record its end; {_counted(sum(file.records for file in files), 'record')} in "
                f"{_counted(len(files), 'file')} were saved",
                "measure again for the missing part",
            )
        )
    root = (
        dict.fromkeys(ROOT_ATTRIBUTES, "") | _defaults() | {"schema": run.schema} | run.attrs | layout.attrs
    )
    root["stop_reason"] = stop_reason
    root["complete"] = complete

    with draft.opened("w") as file:
        _write_attrs(file, root)
        group = file.createGroup("raw")
        places = _define(draft, group, layout)
        for done, blocks in enumerate(files):
            with fitting(files[0].path.parent):
                for name, where, values in schema.place(run.plan, layout, blocks, part):
                    with draft.writing():
                        _assign(places[name], where, values)
            report(done + 1)
    summary, missing = _analysed(draft, root, schema, pace.placed()) if pace else (None, [_NOT_ANALYSED])
    reported += missing
    with draft.opened("a") as file:
        _finish(draft, file, summary, run.env, reported)
    return SealedFile(draft.target, complete, reported)


@contextlib.contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Report errors from a plan that does not fit its files. Only the room understands its plan: a plan that somebody
    else wrote, or that is damaged, may name things that do not exist.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise DataError(
            "core.not_a_run",
            f"{folder}: {RUN_FILE} and the block files do not fit together ({type(error).__name__}: {error})",
            "copy the folder again from where it was measured; --debug shows where it failed",
        ) from error


def _defaults() -> dict[str, Any]:
    from sonde import __version__

    return {
        "sonde_version": __version__,
        "command": "",
        "created_utc": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "hostlist": "",
        "job_id": "",
    }


def _analysed(
    draft: _Draft, root: dict[str, Any], schema: RoomSchema, deadline: Deadline
) -> tuple[xr.Dataset | None, list[Warning]]:
    import xarray as xr

    from sonde.core.netcdf import netCDF4

    before = netCDF4.get_chunk_cache()
    netCDF4.set_chunk_cache(_READ_CACHE_BYTES, 1009, 0.75)
    try:
        with xr.open_dataset(
            draft.part,
            group="raw",
            engine="netcdf4",
            mask_and_scale=False,
            decode_times=False,
            decode_timedelta=False,
            cache=False,
        ) as raw:
            raw.attrs = {**{name: _attribute(value) for name, value in root.items()}, **raw.attrs}
            summary = schema.analyse(raw, deadline).load()
            return summary, [_cut_short(schema.room, left) for left in deadline.left_out]
    except Exception as error:  # whatever the error is, it must not cost the measurements
        return None, [
            Warning(
                "core.analysis_failed",
                f"/summary could not be computed: {type(error).__name__}: {error}",
                "the measurements in /raw are complete; a corrected version of Sonde can analyse them",
            )
        ]
    finally:
        netCDF4.set_chunk_cache(*before)


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _folded(warnings: list[Warning], limit: int = 8) -> list[Warning]:
    """At most `limit` warnings of one code, and one that counts the others: a thousand ranks may report the same."""
    shown, count = [], dict[str, int]()
    for warning in warnings:
        count[warning.code] = count.get(warning.code, 0) + 1
        if count[warning.code] <= limit:
            shown.append(warning)
    return shown + [
        Warning(code, f"and {total - limit} more files with {code}")
        for code, total in count.items()
        if total > limit
    ]


def finish(run_dir: str | PathLike[str], held: Hold) -> list[SealedFile] | None:
    """Remove a folder that was sealed already but not removed completely; return its datasets.

    None, and no change, if the folder is still to be sealed.

    Raises
    ------
    DataError  core.sealed_already: a dataset is no longer where it was saved; core.not_a_run.
    """
    folder = Path(run_dir)
    path = folder / _SEALED_FILE
    if held.files.facts(_SEALED_FILE) is None:
        return None
    try:
        listed = json.loads(held.files.read(_SEALED_FILE).decode("utf-8"))["datasets"]
        if not isinstance(listed, list) or not listed:
            raise ValueError("it names no dataset")
        names = [Path(name) for name in listed]
        missing = [str(name) for name in names if not name.exists()]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError("core.not_a_run", f"{path} is damaged: {error}", _NO_RUN) from None
    if missing:
        raise DataError(
            "core.sealed_already",
            f"{folder} was saved as {', '.join(missing)}, which no longer exists",
            f"if the dataset was moved, the folder is of no further use: {typed('rm', '-r', folder)}",
        )
    from sonde.core import dataset

    done = []
    for name in names:
        with dataset.open(name) as tree:
            complete = plain(tree.attrs.get("complete", 0)) == 1
            done.append(SealedFile(name, complete, dataset.warnings_of(tree)))
    _remove(folder, done, held)
    return done


def _remove(folder: Path, sealed: list[SealedFile], hold_: Hold) -> None:
    """Remove a sealed run's folder. If this fails, the folder stays, with a record that it was sealed.

    Files that Sonde did not create stay, and so does the folder; the first dataset's warnings then list their names.
    """
    if not hold_.writable:
        return
    try:
        content = {"datasets": [str(file.path.resolve()) for file in sealed]}
        _write_json(hold_.files, _SEALED_FILE, content, "")
        if left := _clear(hold_.files):
            shown = ", ".join(left[:8]) + (f" and {len(left) - 8} more" if len(left) > 8 else "")
            sealed[0].warnings.append(
                Warning(
                    FILES_LEFT,
                    f"{folder} is saved, but still holds files that Sonde did not create: {shown}",
                    f"move them elsewhere; then type {typed('rm', '-r', folder)}",
                )
            )
            return
        folder.rmdir()
        _sync_folder(folder.parent)
    except (OSError, EnvironmentFailure):
        return


FILES_LEFT = "core.files_left"


def forget(run_dir: Path) -> None:
    """Remove the folder of a run that is not to be saved; it stays if it holds files that Sonde did not create."""
    with contextlib.suppress(OSError), Folder(run_dir) as files:
        if files.is_own and not _clear(files):
            run_dir.rmdir()


def _clear(files: Folder) -> list[str]:
    """Remove the files that Sonde creates in a run's folder; return the names of all others."""
    # The note goes last: while it is there, what is left of the folder is not taken for a run.
    last = (_LOCK_FILE, _SEALED_FILE)
    left = []
    for name in sorted(files.names(), key=lambda name: (name in last, name)):
        if (facts := files.facts(name)) is None or name.startswith(".nfs"):
            continue  # NFS renames a removed file to such a name while a process has it open
        if not stat.S_ISDIR(facts.st_mode):
            if _FILES.fullmatch(name) or is_part(name):
                files.remove(name)
            else:
                left.append(name)
            continue
        below = None
        if name == "trace.run" or re.fullmatch(r"program-[0-9]{5}", name):
            below = _below(files, name, _clear)
        elif re.fullmatch(r"server-[0-9]+", name):
            below = _below(files, name, _clear_server)
        if below is None:
            left.append(f"{name}/")
        else:
            left += below
    return left


def _clear_server(files: Folder) -> list[str]:
    """The same in the folder of a store's server, and in the folders below it."""
    left = []
    for name in files.names():
        if (facts := files.facts(name)) is None:
            continue
        is_folder = stat.S_ISDIR(facts.st_mode)
        if is_folder and (_SERVER.fullmatch(name) or _POSIX.fullmatch(name)):
            left += _below(files, name, _clear_server)
        elif not is_folder and (_SERVER_PIECE if files.path.name.endswith("~") else _SERVER_FILES).fullmatch(
            name
        ):
            files.remove(name)
        else:
            left.append(name)
    return left


def _below(files: Folder, name: str, clear: Callable[[Folder], list[str]]) -> list[str]:
    """Remove a folder in a folder, if it is empty after `clear`; return the names that are left."""
    with files.folder(name) as folder:
        left = [f"{name}/{one}" for one in clear(folder)] if folder.is_own else [f"{name}/"]
    if not left:
        files.remove_folder(name)
    return left


def write_dataset(
    path: str | PathLike[str],
    raw: xr.Dataset | None,
    summary: xr.Dataset | None,
    attrs: Mapping[str, Any],
    env: Mapping[str, Any] | None = None,
    warnings: Iterable[Warning] = (),
) -> Path:
    """Write a dataset from arrays (such as another tool's file) in one step: `path` is whole or does not exist.

    raw, summary: lazy variables are read in pieces. attrs: root attributes, `schema` at least; `sonde_version`,
    `created_utc`, `command`, `hostlist`, `job_id` and `complete` (1) have defaults. env: attributes of /env.

    Raises
    ------
    EnvironmentFailure  core.disk_full, core.cannot_write.
    DataError  core.bad_variable: a type that a dataset cannot hold.
    """
    target = Path(path)
    draft = _Draft(target, None)
    try:
        with draft.opened("w") as file:
            _write_attrs(file, {**_defaults(), "complete": 1, **attrs})
            if raw is not None:
                _write_group(draft, file, "raw", raw)
            _finish(draft, file, summary, env or {}, list(warnings))
        draft.publish()
    except BaseException:
        draft.discard()
        raise
    return target


def add_variables(path: str | PathLike[str], groups: Mapping[str, xr.Dataset]) -> None:
    """Add variables to groups of an existing dataset, in one step: a copy of it takes its place.

    Raises
    ------
    EnvironmentFailure  core.disk_full, core.cannot_write; the dataset is unchanged.
    DataError  core.bad_variable.
    """
    draft = _Draft(Path(path), None)
    try:
        with draft.writing(), draft.target.open("rb") as source, draft.new.file() as copy:
            shutil.copyfileobj(source, copy)
        with draft.opened("a") as file:
            for name, data in groups.items():
                _fill_group(draft, file[name], data)
        draft.publish()
    except BaseException:
        draft.discard()
        raise


class _Draft:
    """An unfinished dataset: a new file next to its place, with readable errors, published by renaming."""

    def __init__(self, target: Path, folder: Path | None) -> None:
        self.target = target
        self._new: NewFile | None = None
        self._hint = (
            f"save it elsewhere: {typed('sonde', 'data', 'recover', folder, '-o', 'ELSEWHERE')}"
            if folder
            else "choose another place"
        )

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """A context for every call that writes: netCDF's errors do not report what failed."""
        try:
            yield
        except (OSError, RuntimeError) as error:
            raise cannot_write(self.target, error, self._hint, probe=True) from error

    @property
    def new(self) -> NewFile:
        """The file, created at the first use. HDF5 locks it itself."""
        if self._new is None:
            with self.writing():
                self._new = NewFile(self.target, locked=False)
        return self._new

    @property
    def part(self) -> Path:
        """The path by which it is opened."""
        return self.new.path

    @contextlib.contextmanager
    def opened(self, mode: Literal["w", "a"]) -> Iterator[netCDF4.Dataset]:
        from sonde.core.netcdf import netCDF4

        with self.writing():
            file = netCDF4.Dataset(str(self.part), mode, format="NETCDF4")
        try:
            yield file
        except BaseException:
            with contextlib.suppress(OSError, RuntimeError):
                file.close()
            raise
        with self.writing():
            file.close()

    def publish(self) -> None:
        with self.writing():
            self.new.publish(sync=True)
            _sync_folder(self.target.parent)

    def discard(self) -> None:
        if self._new is not None:
            self._new.discard()


def cannot_write(
    path: Path, error: OSError | RuntimeError, hint: str, probe: bool = False
) -> EnvironmentFailure:
    """core.disk_full or core.cannot_write, for an error in writing `path`.

    probe: the error comes from netCDF, whose number is unreliable (a full disk may be EACCES)."""
    full = (errno.ENOSPC, errno.EDQUOT)
    number = getattr(error, "errno", None)
    if number not in full and probe and _is_full(path.parent):
        number = errno.ENOSPC
        error = OSError(number, os.strerror(number))
    what = f"cannot write {path}: {reason_not_written(error)}"
    if number in full:
        return EnvironmentFailure("core.disk_full", what, f"free space there; or {hint}")
    return EnvironmentFailure("core.cannot_write", what, hint)


def _is_full(folder: Path, probe_bytes: int = 32 << 20) -> bool:
    """Whether a full disk or a used-up quota caused an error. HDF5 does not report it: so this is tried."""
    full = (errno.ENOSPC, errno.EDQUOT)
    try:
        probe = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError as failed:
        if failed.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            return failed.errno in full
        room = os.statvfs(folder)
        # A file system without blocks, such as /proc, has no space that can run out.
        return room.f_blocks > 0 and room.f_bavail * room.f_frsize < probe_bytes
    try:
        os.posix_fallocate(probe, 0, probe_bytes)
    except OSError as failed:
        return failed.errno in full
    finally:
        os.close(probe)
    return False


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # some network file systems cannot
        if error.errno not in (errno.EINVAL, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def _attribute(value: Any) -> Any:
    """A value in a form for an attribute: text, number, or a list of these; anything else as JSON text."""
    value = plain(value)
    if isinstance(value, bool):
        return np.int32(value)
    if value is None:
        return ""
    if isinstance(value, int):
        if abs(value) < 2**31:
            return np.int32(value)
        return np.int64(value) if abs(value) < 2**63 else str(value)
    if isinstance(value, str):  # a command line may hold bytes that are not text
        return encodable(value)
    if isinstance(value, float):
        return value
    if isinstance(value, list | tuple) and value:
        if all(isinstance(item, str) for item in value):
            return [encodable(item) for item in value]
        if all(isinstance(item, int | float) for item in value):
            return np.asarray(value)
    return json.dumps(encodable_within(value), default=plain)


def _write_attrs(group: netCDF4.Dataset | netCDF4.Variable[Any], attrs: Mapping[str, Any]) -> None:
    group.setncatts({str(name): _attribute(value) for name, value in attrs.items() if name != "_FillValue"})


def _define(draft: _Draft, group: netCDF4.Group, layout: Layout) -> dict[str, Any]:
    """Creates the dims, coordinates and variables of a layout. Returns the variables by name."""
    with draft.writing():
        for name, length in layout.dims.items():
            group.createDimension(name, length or None)
        for name, (values, attrs) in layout.coords.items():
            array = np.asarray(values)
            kind = "str" if array.dtype.kind in "OUT" else array.dtype.str
            _assign(_create(group, name, (name,), kind, attrs), (slice(0, array.size),), array)
        created = {
            name: _create(group, name, v.dims, v.dtype, v.attrs, v.fill, v.chunks)
            for name, v in layout.variables.items()
        }
        _bound_cache(created.values())
    return created


def _create(
    group: netCDF4.Group,
    name: str,
    dims: tuple[str, ...],
    dtype: str,
    attrs: Mapping[str, Any],
    fill: float | int | None = None,
    chunks: tuple[int, ...] | None = None,
) -> netCDF4.Variable[Any]:
    if dtype == "str":
        variable = group.createVariable(name, str, dims)
    else:
        kind = np.dtype(dtype)
        if fill is None and kind.kind == "f":
            fill = float("nan")
        lengths = [max(1, len(group.dimensions[dim])) for dim in dims]
        packed: dict[str, Any] = {"compression": "zlib", "complevel": 1, "shuffle": True} if dims else {}
        if chunks and dims:
            packed["chunksizes"] = [
                max(1, min(wish, length)) for wish, length in zip(chunks, lengths, strict=True)
            ]
        variable = group.createVariable(name, kind, dims, fill_value=fill, **packed)
        variable.set_auto_maskandscale(False)
    _write_attrs(variable, attrs)
    return variable


def _bound_cache(variables: Iterable[netCDF4.Variable[Any]]) -> None:
    """Divide the cache by chunk size. By default netCDF-C takes 64 MiB for each variable."""
    sized = []
    for variable in variables:
        lengths = variable.chunking()
        if isinstance(lengths, list) and variable.dtype is not str:
            sized.append((variable, math.prod(lengths) * variable.dtype.itemsize))
    total = sum(size for _, size in sized)
    for variable, size in sized:
        # Never 1.0: HDF5 would then hold chunks at the edge, which are never written whole, beyond any limit.
        variable.set_var_chunk_cache(min(_CACHE_BYTES * size // total, 16 * size), 1009, 0.75)


def _assign(variable: netCDF4.Variable[Any], where: tuple[int | slice, ...], values: Any) -> None:
    if variable.dtype is str:
        values = np.asarray(values, dtype=object)
    variable[where or ...] = values


def _write_group(draft: _Draft, file: netCDF4.Dataset, name: str, data: xr.Dataset) -> None:
    with draft.writing():
        group = file.createGroup(name)
        _write_attrs(group, data.attrs)
    _fill_group(draft, group, data)


def _fill_group(draft: _Draft, group: netCDF4.Group, data: xr.Dataset) -> None:
    with draft.writing():
        for dim, length in data.sizes.items():
            group.createDimension(str(dim), length or None)
    for key, variable in data.variables.items():
        _write_variable(draft, group, str(key), variable)


def _write_variable(draft: _Draft, group: netCDF4.Group, name: str, variable: xr.Variable) -> None:
    kind = variable.dtype.kind
    if kind not in "biufOUST":
        raise DataError(
            "core.bad_variable",
            f"variable {name} is of type {variable.dtype}; allowed: integers, floats, booleans, strings",
            "convert it first; times are float seconds",
        )
    text = kind in "OUST"
    dtype = "str" if text else "i1" if kind == "b" else variable.dtype.newbyteorder("<").str
    fill = variable.attrs.get("_FillValue", variable.encoding.get("_FillValue"))
    chunks = variable.encoding.get("chunksizes")
    if chunks is not None and len(chunks) != variable.ndim:
        chunks = None
    dims = tuple(map(str, variable.dims))
    with draft.writing():
        created = _create(group, name, dims, dtype, variable.attrs, None if text else fill, chunks)
        _bound_cache([created])
    for where in pieces(variable):
        values = variable[where].values
        if text:
            values = _texts(name, values)
        with draft.writing():
            _assign(created, where, values)


def _texts(name: str, values: np.ndarray) -> np.ndarray:
    flat = [
        name_text(item) if isinstance(item, bytes) else encodable(item) if isinstance(item, str) else item
        for item in values.ravel().tolist()
    ]
    if not all(isinstance(item, str) for item in flat):
        odd = next(item for item in flat if not isinstance(item, str))
        raise DataError(
            "core.bad_variable", f"variable {name} mixes strings with {odd!r}", "make them all strings"
        )
    texts = np.empty(len(flat), dtype=object)
    texts[:] = flat
    return texts.reshape(values.shape)


def _finish(
    draft: _Draft,
    file: netCDF4.Dataset,
    summary: xr.Dataset | None,
    env: Mapping[str, Any],
    warnings: Sequence[Warning],
) -> None:
    if summary is not None:
        _write_group(draft, file, "summary", summary)
    with draft.writing():
        _write_attrs(file.createGroup("env"), env)
        group = file.createGroup("warnings")
        group.createDimension("warning", None)
        for column, long_name in (
            ("code", "stable name of the warning"),
            ("evidence", "what was seen"),
            ("hint", "advice"),
        ):
            variable = _create(group, column, ("warning",), "str", {"long_name": long_name})
            for row, warning in enumerate(warnings):
                variable[row] = encodable(getattr(warning, column))
