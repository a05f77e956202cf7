"""`sonde data convert`: a dataset as CSV, JSON, Parquet or Markdown, in long form and bounded memory."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from sonde.core import dataset, distribution
from sonde.core.errors import DataError, EnvironmentFailure, UsageError, nearest
from sonde.core.owned_files import NewFile
from sonde.data import rooms
from sonde.data.tables import LongTable, tables

if TYPE_CHECKING:
    import xarray as xr

SUFFIXES = {"csv": ".csv", "json": ".json", "parquet": ".parquet", "markdown": ".md"}
ONE_TABLE = ("csv", "parquet")  # formats with a single table per file
LONGEST_TEXT_CELLS = 1 << 20  # largest number of cells of a table for stdout, which is built in memory
_ROW_GROUP = 1 << 20


@dataclass(frozen=True)
class Written:
    """A file that was written: its table's name ("" if it contains all tables of the group) and its rows."""

    path: Path
    table: str
    rows: int


@dataclass(frozen=True)
class Converted:
    """The results for a group: files, and the tables that did not fit into a single file."""

    files: list[Written]
    left_out: list[LongTable]


def format_of(to: str | None, out: Path | None) -> str:
    """The requested format: by name, else by the output's ending.

    Raises
    ------
    UsageError  data.no_format.
    """
    if to is not None:
        return to
    for name, suffix in SUFFIXES.items():
        if out is not None and out.suffix == suffix:
            return name
    raise UsageError(
        "data.no_format",
        "no format is given" if out is None else f"the ending of {out} names no format",
        "add --to csv, json, parquet or markdown",
    )


def group_tables(tree: xr.DataTree, group: str | None) -> list[LongTable]:
    """Tables of /summary, or of the named group, the most informative first.

    For /summary that is the table that the room names; without one, the table with the most dims. Tables without rows
    come last: a file with one table must not be empty while another table has values.

    Raises
    ------
    DataError  data.no_group: the dataset has no such group, or the group is empty.
    """
    here = [name for name in ("summary", "raw") if name in tree.children]
    chosen = group or (here[0] if here else "summary")
    found = tables(tree.children[chosen].to_dataset(), chosen) if chosen in tree.children else []
    if not found:
        raise DataError(
            "data.no_group",
            f"the dataset has no {'' if group is None else f'/{group} with '}values{nearest(chosen, here)}",
            f"it has {', '.join(f'/{name}' for name in tree.children) or 'no group'}",
        )
    leading = rooms.leading_dims(tree) if chosen == "summary" else []
    place = {dims: number for number, dims in enumerate(leading)}
    found.sort(key=lambda table: place.get(table.dims, len(place)))
    if not found[0].empty:
        return found
    return sorted(found, key=lambda table: table.empty)


def to_text(tree: xr.DataTree, found: list[LongTable], to: str) -> str:
    """Tables as text for stdout: all of them as JSON or Markdown, the first as CSV.

    Raises
    ------
    UsageError  data.needs_output: Parquet is not text; data.too_long: more than 2^20 values.
    """
    if to == "parquet":
        raise UsageError("data.needs_output", "Parquet is not text", "name a file: -o OUT.parquet")
    if to in ONE_TABLE:
        found = found[:1]
    cells = sum(table.cells * len(table.columns) for table in found)
    if cells > LONGEST_TEXT_CELLS:
        raise UsageError(
            "data.too_long",
            f"/{found[0].group} has up to {cells} values, which is too many for the terminal",
            f"write a file: -o OUT{SUFFIXES[to]}, or --group summary",
        )
    text = io.StringIO(newline="")
    _TEXT[to](text, tree, found)
    return text.getvalue()


def to_files(
    tree: xr.DataTree, found: list[LongTable], to: str, out: Path, stem: str, folder: bool = False
) -> Converted:
    """Write tables to `out`, each file completely or not at all.

    out: a file, which gets the first table (CSV, Parquet) or all of them (JSON, Markdown); or a folder, which gets a
    file for each table, named <stem>-<group>-<dims>.<ending>. folder: whether `out` is a folder; it is created with its
    parents if it does not exist.

    Raises
    ------
    EnvironmentFailure  core.cannot_write, core.disk_full; data.no_pyarrow.
    """
    if to == "parquet":
        _pyarrow()
    if folder:
        with _told(out):
            out.mkdir(parents=True, exist_ok=True)
    if out.is_dir():
        files = []
        for table in found:
            path = out / f"{stem}-{table.group}-{table.name}{SUFFIXES[to]}"
            files.append(Written(path, table.name, _write(path, tree, [table], to)))
        return Converted(files, [])
    written = found[:1] if to in ONE_TABLE else found
    name = written[0].name if to in ONE_TABLE else ""
    return Converted([Written(out, name, _write(out, tree, written, to))], found[len(written) :])


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise EnvironmentFailure(
            "core.disk_full" if full else "core.cannot_write",
            f"cannot write {path}: {error.strerror or error}",
            "free space there, or choose another place with -o" if full else "choose another place with -o",
        ) from None


def _write(path: Path, tree: xr.DataTree, found: list[LongTable], to: str) -> int:
    with _told(path), NewFile(path) as new:
        if to == "parquet":
            rows = _write_parquet(new.path, tree, found[0])
        else:
            with io.TextIOWrapper(new.file(), encoding="utf-8", newline="") as file:
                rows = _TEXT[to](file, tree, found)
        new.publish()
    return rows


def _values(columns: list[np.ndarray]) -> Iterator[tuple[Any, ...]]:
    """Rows of plain Python values; None for NaN."""
    plain = [
        [None if value != value else value for value in column.tolist()]
        if column.dtype.kind == "f"
        else column.tolist()
        for column in columns
    ]
    return zip(*plain)


def _write_csv(file: IO[str], tree: xr.DataTree, found: list[LongTable]) -> int:
    (table,) = found
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([column.head for column in table.columns])
    rows = 0
    for block in table.blocks():
        writer.writerows(_values(block))
        rows += len(block[0]) if block else 0
    return rows


def _write_json(file: IO[str], tree: xr.DataTree, found: list[LongTable]) -> int:
    head = {"schema": tree.attrs.get("schema"), "group": found[0].group, "attributes": dataset.attrs(tree)}
    file.write(_dumps(head)[:-1] + ', "tables": [')
    rows = 0
    for number, table in enumerate(found):
        columns = [{"name": c.name, "units": c.units, "long_name": c.long_name} for c in table.columns]
        file.write(",\n " if number else "\n ")
        file.write(_dumps({"dims": table.dims, "columns": columns})[:-1] + ', "rows": [')
        between = "\n  "
        for block in table.blocks():
            for row in _values(block):
                file.write(between + _dumps(row))
                between, rows = ",\n  ", rows + 1
        file.write("]}")
    file.write("]}\n")
    return rows


def _dumps(value: Any) -> str:
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    """None for NaN and infinity, which JSON does not have."""
    if isinstance(value, float):
        return value if np.isfinite(value) else None if value != value else str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _write_markdown(file: IO[str], tree: xr.DataTree, found: list[LongTable]) -> int:
    rows = 0
    for number, table in enumerate(found):
        title = (
            f"/{table.group} by {', '.join(table.dims)}" if table.dims else f"/{table.group}, one value each"
        )
        file.write(("\n" if number else "") + f"### {title}\n\n")
        file.write("| " + " | ".join(_cell(column.head) for column in table.columns) + " |\n")
        right = ["---" if column.kind == "text" else "--:" for column in table.columns]
        file.write("| " + " | ".join(right) + " |\n")
        for block in table.blocks():
            for row in _values(block):
                file.write("| " + " | ".join(_cell(value) for value in row) + " |\n")
                rows += 1
    return rows


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


_TEXT: dict[str, Callable[[IO[str], Any, list[LongTable]], int]] = {
    "csv": _write_csv,
    "json": _write_json,
    "markdown": _write_markdown,
}


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise EnvironmentFailure(
            "data.no_pyarrow",
            "Parquet needs the package pyarrow, which is not installed",
            distribution.install_python("pyarrow"),
        ) from None
    return pyarrow


def _write_parquet(path: Path, tree: xr.DataTree, table: LongTable) -> int:
    arrow = _pyarrow()
    fields = []
    for column in table.columns:
        kind = {"float": arrow.float64(), "int": arrow.int64(), "text": arrow.string()}[column.kind]
        fields.append(
            arrow.field(column.name, kind, metadata={"units": column.units, "long_name": column.long_name})
        )
    metadata = {"sonde": _dumps({"group": table.group, "attributes": dataset.attrs(tree)})}
    schema = arrow.schema(fields, metadata=metadata)
    rows = pending = 0
    waiting: list[Any] = []
    with arrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:

        def flush() -> None:
            nonlocal pending
            if waiting:
                writer.write_table(arrow.Table.from_batches(waiting, schema))
            waiting.clear()
            pending = 0

        for block in table.blocks():
            arrays = [
                arrow.array(column, type=field.type, from_pandas=column.dtype.kind == "f")
                for column, field in zip(block, schema)
            ]
            waiting.append(arrow.record_batch(arrays, schema=schema))
            rows, pending = rows + len(block[0]), pending + len(block[0])
            if pending >= _ROW_GROUP:
                flush()
        flush()
    return rows
