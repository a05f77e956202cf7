"""The index of the past runs of a folder, so that each dataset is opened once."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sonde.core.errors import DataError, Warning, typed
from sonde.core.owned_files import Folder
from sonde.core.printable import encodable
from sonde.data.past_runs import PastRun, Scalar, read_run
from sonde.data.slices import HostSlice

INDEX = ".sonde-history.sqlite"
_FORMAT = 3
_COLUMNS = ["file", "size", "mtime_ns", "said", "error"]
_DAMAGE = (
    sqlite3.DatabaseError,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RecursionError,
)


def indexed(folder: Path) -> tuple[list[PastRun], list[Warning], int]:
    """All runs of the folder. Datasets that the index already contains are not opened again."""
    path = folder / INDEX
    ways: list[Callable[[Path], sqlite3.Connection]] = (
        [_kept, _copied, _empty] if _may_keep(folder) else [_empty]
    )
    anew = False
    while True:
        connect = ways.pop(0)
        try:
            with contextlib.closing(connect(path)) as index:
                read = _refresh(index, folder)
                return *_load(index), read
        except (sqlite3.OperationalError, OSError):
            # Locked, or not writable: the next attempt needs fewer rights.
            if not ways:
                raise
        except _DAMAGE:
            # Damaged. An index contains nothing that the datasets do not contain.
            if connect is _kept and not anew and not _removed(path):
                continue
            if connect is _empty:
                raise
            ways = [_kept, _empty] if connect is _kept and not anew else [_empty]
            anew = True


def _may_keep(folder: Path) -> bool:
    """Whether the index may be opened in the folder. SQLite follows links: it would write to their target.

    A group may share a folder and its index. Root stores no index in a folder of another user, who could create a link
    there at any moment.
    """
    try:
        with Folder(folder) as opened:
            facts = [opened.facts(f"{INDEX}{suffix}") for suffix in ("", "-journal", "-wal", "-shm")]
            plain = all(one is None or (stat.S_ISREG(one.st_mode) and one.st_nlink == 1) for one in facts)
            return plain and (opened.is_own or os.geteuid() != 0)
    except OSError:
        return False


def _removed(path: Path) -> bool:
    try:
        for name in (path.name, f"{path.name}-journal"):
            path.with_name(name).unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _kept(path: Path) -> sqlite3.Connection:
    """The index in its file."""
    index = sqlite3.connect(path, timeout=5)
    try:
        index.execute("BEGIN IMMEDIATE")  # fails if it cannot be written, before anything is read
        if not _is_current(index):
            create(index)
    except BaseException:
        index.close()
        raise
    return index


def _copied(path: Path) -> sqlite3.Connection:
    """A copy, in memory, of an index that can only be read."""
    index = sqlite3.connect(":memory:")
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as stored:
            stored.backup(index)
        if not _is_current(index):
            create(index)
    except BaseException:
        index.close()
        raise
    return index


def _empty(_path: Path) -> sqlite3.Connection:
    """A new index in memory."""
    index = sqlite3.connect(":memory:")
    create(index)
    return index


def _is_current(index: sqlite3.Connection) -> bool:
    columns = [row[1] for row in index.execute("PRAGMA table_info(run)")]
    return index.execute("PRAGMA user_version").fetchone()[0] == _FORMAT and columns == _COLUMNS


def create(index: sqlite3.Connection) -> None:
    index.execute("DROP TABLE IF EXISTS run")
    index.execute(
        "CREATE TABLE run (file BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, said TEXT, error TEXT)"
    )
    index.execute(f"PRAGMA user_version = {_FORMAT}")


def _refresh(index: sqlite3.Connection, folder: Path) -> int:
    """Update the index; returns the number of datasets that were opened."""
    rows = index.execute("SELECT file, size, mtime_ns FROM run")
    known = {os.fsdecode(file): (size, time) for file, size, time in rows}  # a name is bytes
    here: dict[str, tuple[int, int]] = {}
    for path in sorted(folder.glob("*.nc")):
        with contextlib.suppress(OSError):
            status = path.stat()
            here[path.name] = status.st_size, status.st_mtime_ns
    for file in known.keys() - here.keys():
        index.execute("DELETE FROM run WHERE file = ?", (os.fsencode(file),))
    fresh = [file for file, stamp in here.items() if known.get(file) != stamp]
    for file in fresh:
        stored, error = None, None
        try:
            stored = json.dumps(_document(read_run(folder / file)))
        except DataError as failed:
            error = encodable(failed.what)
        index.execute(
            "REPLACE INTO run VALUES (?, ?, ?, ?, ?)", (os.fsencode(file), *here[file], stored, error)
        )
    index.commit()
    return len(fresh)


def _load(index: sqlite3.Connection) -> tuple[list[PastRun], list[Warning]]:
    runs, warnings = [], []
    for name, stored, error in index.execute("SELECT file, said, error FROM run ORDER BY file"):
        file = os.fsdecode(name)
        if error is not None:
            warnings.append(Warning("data.unreadable_run", error, typed("sonde", "data", "validate", file)))
            continue
        fields = json.loads(stored)
        for family, kind in (("scalars", Scalar), ("labels", Scalar), ("hosts", HostSlice)):
            fields[family] = {name: kind(**one) for name, one in fields[family].items()}
        runs.append(PastRun(file=file, **fields))
    return runs, warnings


def _document(run: PastRun) -> dict[str, Any]:
    return {
        "schema": run.schema,
        "created": run.created,
        "complete": run.complete,
        "key": run.key,
        "attrs": run.attrs,
        **{
            family: {name: vars(one) for name, one in getattr(run, family).items()}
            for family in ("scalars", "labels", "hosts")
        },
    }
