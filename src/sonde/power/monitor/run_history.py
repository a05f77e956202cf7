"""A monitor's history in SQLite: bounded, intact after kill -9, and usable even if a disk is full.

A sample that cannot be written waits in memory, the latest MOST_WAITING at most; older ones are dropped and counted.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from sonde.core.errors import DataError, EnvironmentFailure
from sonde.power.stack import run_state
from sonde.power.stack.telemetry import NAN, ClusterSample, JobSample, NodeSample

# version 1 lacks the columns of _LATER: it is read as it is, and gets them when something is added
VERSION = 2
MOST_WAITING = 20_000  # samples; some 10 MB
SWEEP_ROWS = 20_000  # rows removed at once: a sweep must not delay readers
_VACUUM_PAGES = 2_000  # least number of pages that a sweep gives back, if that many are free

NODE_COLUMNS = (
    *("node", "at_ns", "source", "period_s", "power_w", "energy_j", "cap_w", "lease_w", "left_s"),
    *("leased", "epoch", "manager", "trouble", "cap_since_ns"),
)
JOB_COLUMNS = (
    *("job", "at_ns", "user", "name", "nodes", "power_w", "energy_j", "iteration_s", "progress", "state"),
    "node_iteration_s",
)
CLUSTER_COLUMNS = (
    *("cluster", "at_ns", "manager", "epoch", "budget_version", "state", "policy", "period_s", "lease_s"),
    *(
        "budget_w",
        "safe_w",
        "committed_w",
        "power_w",
        "nodes",
        "heard",
        "leased",
        "restored_w",
        "shed_left_s",
        "unknown_nodes",
        "unknown_w",
    ),
)
_TEXT = {"node", "job", "cluster", "source", "manager", "trouble", "user", "name", "nodes", "state", "policy"}
_TEXT |= {"node_iteration_s"}
_WHOLE = {"at_ns", "leased", "epoch", "budget_version", "heard", "cap_since_ns", "unknown_nodes"}
# columns that a row of version 1 lacks
_LATER = {"cap_since_ns", "node_iteration_s", "unknown_nodes", "unknown_w"}
_TABLES = {"node": NODE_COLUMNS, "job": JOB_COLUMNS, "cluster": CLUSTER_COLUMNS}

Sample = NodeSample | JobSample | ClusterSample
# UnicodeDecodeError: SQLite's own message may contain the damage
_DAMAGED = (sqlite3.DatabaseError, UnicodeDecodeError)


def _column(table: str, column: str) -> str:
    # For a cluster `nodes` is their number, for a job their names.
    if column in _WHOLE or (table, column) == ("cluster", "nodes"):
        return f"{column} INTEGER"
    return f"{column} {'TEXT' if column in _TEXT else 'REAL'}"


def _table(name: str, columns: Sequence[str]) -> str:
    column_list = ", ".join(_column(name, column) for column in columns)
    return (
        f"CREATE TABLE IF NOT EXISTS {name} ({column_list}, PRIMARY KEY ({columns[0]}, at_ns)) WITHOUT ROWID"
    )


_SCHEMA = (
    *(_table(name, columns) for name, columns in _TABLES.items()),
    *(f"CREATE INDEX IF NOT EXISTS {name}_at ON {name} (at_ns)" for name in _TABLES),
)


class History:
    """One database, for one thread; other readers use `read`.

    Attributes
    ----------
    trouble : why samples wait, "" if they do not. lost : number of dropped samples. written : samples in the file.
    behind : the last sweep left rows that are too old.

    Raises
    ------
    DataError  power.not_a_history, power.newer_history. EnvironmentFailure  power.cannot_keep, power.already_running:
    another monitor writes it.
    """

    def __init__(self, path: str | Path, keep_s: float) -> None:
        self.path, self.keep_s = Path(path), keep_s
        self.trouble, self.lost, self.written = "", 0, 0
        self.behind = False
        self._waiting: deque[Sample] = deque()
        try:
            # Besides the daemon only its group may read it: it shows who ran what.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640))
        except OSError as error:
            raise EnvironmentFailure(
                "power.cannot_keep",
                f"the history {self.path} cannot be written: {error.strerror}",
                "create its folder, or set another file in [monitor] history",
            ) from None
        with ExitStack() as undo:
            real = self.path.resolve()  # the lock belongs to the database, not to one of its names
            self._lock = run_state.held(real.parent, "monitor", lock=f"{real.name}.lock", key="history")
            undo.callback(os.close, self._lock)
            try:
                self._db = self._opened()
            except _DAMAGED as error:
                raise _unreadable(self.path, error) from None
            undo.pop_all()

    def _opened(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=5, isolation_level=None)
        db.execute("PRAGMA auto_vacuum=INCREMENTAL")
        db.execute("PRAGMA journal_mode=WAL")
        # with WAL the file is intact after a crash; the last commits may be lost
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("PRAGMA journal_size_limit=8388608")
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if version > VERSION:
            raise _newer(self.path, version)
        for statement in _SCHEMA:
            db.execute(statement)
        for table, columns in _TABLES.items():
            for column in columns[len(_columns_of(db, table)) :]:
                db.execute(f"ALTER TABLE {table} ADD COLUMN {_column(table, column)}")
        db.execute(f"PRAGMA user_version={VERSION}")
        return db

    def add(self, samples: Iterable[Sample]) -> bool:
        """Write samples, earlier waiting ones first. False: they wait, and `trouble` gives the reason. It
        never raises.
        """
        self._waiting.extend(samples)
        if not self._waiting:
            return not self.trouble
        try:
            with self._transaction():
                for sample in self._waiting:
                    table, row = _row(sample)
                    marks = ",".join("?" * len(row))
                    self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)
        except (sqlite3.Error, OverflowError, ValueError) as error:
            self.trouble = f"the history {self.path} cannot be written: {error}"
            while len(self._waiting) > MOST_WAITING:
                self._waiting.popleft()
                self.lost += 1
            return False
        self.written += len(self._waiting)
        self._waiting.clear()
        self.trouble = ""
        return True

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def sweep(self, now_ns: int) -> int:
        """Remove rows older than keep_s, some at a time, and give their space back. Returns the number of rows removed.

        `behind` is set if there may be more: then sweep again soon.
        """
        before = now_ns - int(self.keep_s * 1e9)
        removed, self.behind = 0, False
        # a full disk: old rows are removed once there is room for that transaction
        with suppress(sqlite3.Error):
            free = self._free_pages()
            for table, columns in _TABLES.items():
                who = columns[0]
                with self._transaction():
                    gone = self._db.execute(
                        f"DELETE FROM {table} WHERE ({who}, at_ns) IN"
                        f" (SELECT {who}, at_ns FROM {table} WHERE at_ns < ? LIMIT {SWEEP_ROWS})",
                        (before,),
                    ).rowcount
                removed += gone
                self.behind = self.behind or gone >= SWEEP_ROWS
            if removed:
                # Give back everything that this sweep freed, or the file grows by the rest. Each step frees one page,
                # and execute() would take only one step.
                pages = max(_VACUUM_PAGES, self._free_pages() - free)
                self._db.executescript(f"PRAGMA incremental_vacuum({pages})")
        return removed

    def _free_pages(self) -> int:
        return int(self._db.execute("PRAGMA freelist_count").fetchone()[0])

    def close(self) -> None:
        if self._lock < 0:
            return
        lock, self._lock = self._lock, -1
        try:
            self.add(())
            self._db.close()
        finally:
            os.close(lock)

    def _transaction(self) -> _Transaction:
        return _Transaction(self._db)


def _columns_of(db: sqlite3.Connection, table: str) -> tuple[str, ...]:
    """The columns of a file's table; newer versions have more, at the end."""
    return tuple(row[1] for row in db.execute(f"PRAGMA table_info({table})"))


class _Transaction:
    """All or nothing, also if a disk is full: SQLite then rolls back by itself."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            try:
                self._db.execute("COMMIT")
                return
            except sqlite3.Error:
                self._rollback()
                raise
        self._rollback()

    def _rollback(self) -> None:
        if self._db.in_transaction:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")


def _row(sample: Sample) -> tuple[str, tuple[Any, ...]]:
    match sample:
        case NodeSample():
            table = "node"
        case JobSample():
            table = "job"
        case _:
            table = "cluster"
    values = []
    for column in _TABLES[table]:
        value = getattr(sample, column)
        if isinstance(value, tuple):
            value = json.dumps([None if one != one else one for one in value])  # JSON has no NaN
        elif column in ("epoch", "budget_version"):
            value = value if value < 1 << 63 else value - (1 << 64)  # SQLite's integers have a sign
        values.append(value)
    return table, tuple(values)


def read(
    path: str | Path, kind: str, since_ns: int = 0, until_ns: int = (1 << 63) - 1, name: str = ""
) -> Iterator[Sample]:
    """Samples of a kind ("node", "job", "cluster") in the order of time. The file is not changed.

    Raises
    ------
    EnvironmentFailure  core.cannot_read. DataError  power.not_a_history, power.newer_history.
    """
    path = Path(path)
    if not path.is_file():
        raise EnvironmentFailure(
            "core.cannot_read", f"there is no history {path}", "the file is set by [monitor] history"
        )
    db = None
    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if version > VERSION:
            raise _newer(path, version)
        columns = tuple(column for column in _columns_of(db, kind) if column in _TABLES[kind])
        if not columns:
            raise sqlite3.DatabaseError(f"it has no table {kind}")
        which = f"WHERE at_ns BETWEEN ? AND ?{f' AND {columns[0]} = ?' if name else ''}"
        rows = db.execute(
            f"SELECT {', '.join(columns)} FROM {kind} {which} ORDER BY at_ns",
            (since_ns, until_ns, *([name] if name else [])),
        )
        for row in rows:
            try:
                sample = _sample(kind, dict(zip(columns, row)))
            except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
                raise sqlite3.DatabaseError(f"a row of {kind} is invalid: {str(error)[:200]}") from None
            yield sample
    except _DAMAGED as error:
        raise _unreadable(path, error) from None
    finally:
        if db is not None:
            db.close()


def _sample(kind: str, row: dict[str, Any]) -> Sample:
    """Raises KeyError, TypeError, ValueError and RecursionError for a row of another program."""
    for column, value in list(row.items()):
        whole = column in _WHOLE or (kind, column) == ("cluster", "nodes")
        # a row from before this column existed
        if value is None and (whole or column in _TEXT or column in _LATER):
            del row[column]
        elif whole:
            if not isinstance(value, int):
                raise TypeError(f"{column} is not a whole number")
            if column in ("epoch", "budget_version") and value < 0:
                row[column] = value + (1 << 64)
        elif column in _TEXT:
            if not isinstance(value, str):
                raise TypeError(f"{column} is not a text")
        else:
            row[column] = NAN if value is None else float(value)
    match kind:
        case "node":
            return NodeSample(**{**row, "leased": bool(row["leased"])})
        case "job":
            times = (NAN if s is None else float(s) for s in json.loads(row.pop("node_iteration_s", "[]")))
            return JobSample(
                **{**row, "nodes": tuple(json.loads(row["nodes"])), "node_iteration_s": tuple(times)}
            )
        case _:
            return ClusterSample(**row)


def _newer(path: Path, version: int) -> DataError:
    return DataError(
        "power.newer_history",
        f"{path} is of version {version}; this Sonde reads up to {VERSION}",
        "use the Sonde that wrote it, or a newer one",
    )


def _unreadable(path: Path, error: Exception) -> DataError | EnvironmentFailure:
    if isinstance(error, sqlite3.OperationalError):
        return EnvironmentFailure(
            "power.cannot_keep",
            f"the history {path} cannot be opened: {error}",
            "check its folder's permissions and path, or set another file in [monitor] history",
        )
    return DataError(
        "power.not_a_history",
        f"{path} is not the history of a monitor: {error}",
        "move it away, or set another file in [monitor] history",
    )
