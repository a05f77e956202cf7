"""Durable storage for roles of jobs: JSON by name, in SQLite, on the disk before save() returns."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sonde.core.errors import DataError, EnvironmentFailure
from sonde.power.stack import run_state

VERSION = 1
MAX_JOURNAL_B = 16 << 20  # of the write-ahead log after a transaction
MAX_FREE = 4096  # most pages of removed rows in the file: 16 MiB
COMPACTED = 2048  # pages that are given back at a time, so that no order waits long for it
_DAMAGE = (
    sqlite3.DatabaseError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RecursionError,
)


class CannotKeep(Exception):
    """The disk cannot be written: the changes were not stored."""


class Store:
    """One file and its lock, for one process. Any thread may call it.

    Raises
    ------
    EnvironmentFailure  power.cannot_keep, power.already_running. DataError  power.not_a_store.
    """

    def __init__(self, folder: str | Path, role: str) -> None:
        self.path = Path(folder) / f"{role}.sqlite"
        self._mutex = threading.Lock()
        self._lock = run_state.held(self.path.parent, role, lock=f"{role}.lock")
        try:
            self._open()
        except BaseException:
            os.close(self._lock)
            raise

    def _open(self) -> None:
        wrong = f"{self.path} is damaged"
        try:
            with suppress(FileExistsError):  # it holds commands and environments
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=10)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")  # a commit is on the disk when it returns
            self._db.execute(f"PRAGMA journal_size_limit={MAX_JOURNAL_B}")
            found = int(self._db.execute("PRAGMA user_version").fetchone()[0])
            if found not in (0, VERSION):
                raise DataError(
                    "power.not_a_store", f"{self.path} is of version {found}", "use a newer Sonde"
                )
            self._db.execute("CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, text TEXT NOT NULL)")
            self._db.execute(f"PRAGMA user_version={VERSION}")
            if self._db.execute("PRAGMA auto_vacuum").fetchone()[0] != 2:
                self._db.execute("PRAGMA auto_vacuum=INCREMENTAL")
                with suppress(
                    sqlite3.OperationalError
                ):  # the disk is full: the next start may have room for a copy
                    self._db.execute("VACUUM")
        except (
            sqlite3.DatabaseError,
            UnicodeDecodeError,
        ) as error:  # SQLite's message may contain the damage
            kind = EnvironmentFailure if isinstance(error, sqlite3.OperationalError) else DataError
            raise kind(
                "power.cannot_keep" if kind is EnvironmentFailure else "power.not_a_store",
                f"{wrong}: {error}" if kind is DataError else f"{self.path}: {error}",
                "move it away to start with an empty file; the jobs in it are lost then"
                if kind is DataError
                else "check the free space",
            ) from None
        except OSError as error:
            raise EnvironmentFailure(
                "power.cannot_keep", f"{self.path}: {error.strerror}", "check the free space"
            ) from None

    def load(self) -> dict[str, Any]:
        """Raises DataError  power.not_a_store."""
        with self.decoding():
            rows = self._db.execute("SELECT name, text FROM kept").fetchall()
            return {str(name): json.loads(text) for name, text in rows}

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Context in which a role builds its own types from load()'s values.

        Raises
        ------
        DataError  power.not_a_store: the values are not what was saved.
        """
        try:
            yield
        except _DAMAGE as error:
            raise DataError(
                "power.not_a_store",
                f"{self.path} is damaged: {str(error)[:200] or type(error).__name__}",
                "move it away to start with an empty file; the jobs in it are lost then",
            ) from None

    def save(self, changed: Mapping[str, Any], gone: Iterable[str] = ()) -> None:
        """Save all of it, or nothing. Raises CannotKeep."""
        rows = [
            (name, json.dumps(value, separators=(",", ":"), default=str)) for name, value in changed.items()
        ]
        with self._mutex:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", rows)
                self._db.executemany("DELETE FROM kept WHERE name = ?", [(name,) for name in gone])
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise CannotKeep(f"{self.path}: {error}") from None
            with suppress(sqlite3.Error):  # the rows are stored; the next save compacts further
                self._compact()

    def _compact(self) -> None:
        """Give the room of many removed rows back to the file system."""
        if self._db.execute("PRAGMA freelist_count").fetchone()[0] > MAX_FREE:
            # execute() takes one step of a statement without columns, which is one page.
            self._db.executescript(f"PRAGMA incremental_vacuum({COMPACTED})")
            # The file shrinks when the log is written into it; by itself SQLite does that only for a long log.
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        with self._mutex, suppress(sqlite3.Error):
            self._db.close()
        os.close(self._lock)
