"""Tables: rows with typed fields, and queries with conditions.

    runs = client.define("lab", "runs", {"case": "text", "step": "int64", "residual": "float64"}, indexes=["step"])
    runs.insert([{"case": "cavity", "step": 1, "residual": 0.5}, {"case": "cavity", "step": 2}])
    for row in runs.select(("residual", "<", 1.0), order=["-step"]):
        print(row["_id"], row["case"])

Rows are selected by None (all rows), by a condition (field, comparison, value), or by ("all", [...]) and ("any", [...])
of conditions. Comparisons: == != < <= > >= prefix like "is null" "is not null". A field without a value is None; only
"is null" is true for it. `_id` is the row's number, which the server assigns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

from sonde.core.errors import UsageError

TYPES = ("boolean", "int32", "uint32", "int64", "uint64", "float32", "float64", "text", "blob")
COMPARISONS = ("==", "!=", "<=", ">=", "<", ">", "prefix", "like", "is null", "is not null")
Where = tuple[Any, ...] | None
Name = str | bytes
Safety = Literal["none", "network", "storage"]


class Batches(Protocol):
    """The part of a client (`client.Client`) that tables need."""

    def batch(self, safety: Safety | None = None) -> Any: ...


class Table:
    """A table of a server. fields: {name: type}. indexes: [(names, unique)]."""

    def __init__(self, client: Batches, space: Name, name: Name, schema: Any) -> None:
        self._client, self._space, self._name, self._schema = client, space, name, schema

    @property
    def fields(self) -> dict[str, str]:
        return dict(self._schema.fields)

    @property
    def indexes(self) -> list[tuple[list[str], bool]]:
        return list(self._schema.indexes)

    def insert(self, rows: Sequence[Mapping[str, Any]], *, safety: Safety | None = None) -> int:
        """Inserts rows, all or none. Returns the id of the last one. A field that a row lacks is None there.

        Raises
        ------
        Exists: a unique index has an equal row already. UsageError  store.bad_value: a value does not fit its field.
        """
        if not rows:
            raise UsageError("store.bad_value", "there is no row to insert", "give at least one")
        names = list(dict.fromkeys(name for row in rows for name in row))
        data = self._schema.rows(names, [[row.get(name) for name in names] for row in rows])
        return int(self._one("db.insert", data, safety=safety).value)

    def select(
        self,
        where: Where = None,
        order: Sequence[str] = (),
        fields: Sequence[str] = (),
        limit: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """The rows, as mappings from `_id` and fields to values; read page by page.

        order: names of fields, with "-" in front for descending order; then by `_id`. fields: the fields to return; ()
        for all. limit: maximum number of rows.
        """
        import sonde._store as _store

        by = [(name.removeprefix("-"), name.startswith("-")) for name in order]
        query = self._schema.query(where, by, list(fields))
        at = 0
        while limit is None or at < limit:
            result = self._one("db.query", query, at, 0 if limit is None else limit - at)
            names, ids, rows = _store.rows_of(result.data)
            for number, row in zip(ids, rows):
                yield {"_id": number, **dict(zip(names, row))}
            at += len(rows)
            if not rows or not result.time_ns:
                return

    def update(self, where: Where, values: Mapping[str, Any], *, safety: Safety | None = None) -> int:
        """Gives rows new values. Returns the number of rows."""
        data = self._schema.update(where, list(values), list(values.values()))
        return int(self._one("db.update", data, safety=safety).value)

    def remove(self, where: Where, *, safety: Safety | None = None) -> int:
        """Removes rows. Returns their number. None removes all."""
        return int(self._one("db.remove", self._schema.selector(where), safety=safety).value)

    def drop(self, *, safety: Safety | None = None) -> None:
        """Removes the table and its rows."""
        self._one("db.undefine", b"", safety=safety)

    def _one(
        self, operation: str, data: bytes, offset: int = 0, length: int = 0, safety: Safety | None = None
    ) -> Any:
        return one(self._client, operation, self._space, self._name, data, offset, length, safety)


def one(
    client: Batches,
    operation: str,
    space: Name,
    name: Name,
    data: bytes,
    offset: int = 0,
    length: int = 0,
    safety: Safety | None = None,
) -> Any:
    """The result of one operation on a table. Raises the error if it failed."""
    reads = operation in ("db.query", "db.describe")
    batch = client.batch("network" if reads else safety)
    batch.table(operation, space, name, data, offset, length)
    batch.run()
    if batch.failed:
        batch.fail(0)
    return batch[0]


def condition(text: str, fields: Mapping[str, str]) -> tuple[str, str, Any]:
    """A condition, from text as typed: "step >= 10", "case like cav%", "residual is null".

    fields: {name: type}, to convert the value. A text may be in quotes.

    Raises
    ------
    UsageError  store.bad_condition: there is no such field or comparison, or the value does not fit the field's type.
    """
    comparisons = "|".join(re.escape(comparison) for comparison in COMPARISONS)
    signs = re.fullmatch(r"\s*\w+\s*([=!<>~&|]+).*", text, re.S)
    if signs and signs[1] not in (*COMPARISONS, "="):
        raise UsageError(
            "store.bad_condition",
            f"there is no comparison '{signs[1]}' in '{text}'",
            f"allowed: {', '.join(COMPARISONS)}; put a text that begins with a sign in quotes",
        )
    match = re.fullmatch(rf"\s*(\w+)\s*({comparisons}|=)\s*(.*?)\s*", text, re.S)
    if not match:
        raise UsageError(
            "store.bad_condition",
            f"'{text}' is not a condition",
            "write it like 'step >= 10' or 'case like cav%'",
        )
    field, comparison, value = match[1], "==" if match[2] == "=" else match[2], match[3]
    kind = "uint64" if field == "_id" else fields.get(field)
    if kind is None:
        raise UsageError(
            "store.bad_condition", f"the table has no field '{field}'", f"its fields are {', '.join(fields)}"
        )
    if comparison.startswith("is "):
        if value:
            raise UsageError("store.bad_condition", f"'{text}' has text after '{comparison}'", "leave it out")
        return field, comparison, None
    return field, comparison, _typed_value(value, kind, field)


def _typed_value(text: str, kind: str, field: str) -> Any:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    try:
        if kind == "boolean":
            return {"true": True, "false": False}[text.lower()]
        if kind == "text":
            return text
        if kind == "blob":
            return bytes.fromhex(text)
        return float(text) if kind.startswith("float") else int(text)
    except (KeyError, ValueError):
        hint = {"boolean": "true or false", "blob": "hexadecimal digits"}.get(kind, "a number")
        raise UsageError(
            "store.bad_condition", f"field {field} is {kind}, and '{text}' is not", f"allowed: {hint}"
        ) from None
