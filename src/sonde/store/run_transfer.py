"""Files and streams to and from a store: what put, get, ls, rm and stat do with an address."""

from __future__ import annotations

import base64
import os
import signal
import stat as stats
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

import sonde._store as _store
from sonde.core.errors import EnvironmentFailure, Interrupted, UsageError, reason_not_written, typed
from sonde.core.interrupt import signals
from sonde.core.owned_files import NewFile
from sonde.store import errors
from sonde.store.address import Address

if TYPE_CHECKING:
    from sonde.store.client import Batch, Client

AT_ONCE = 1000  # keys or objects in a batch
UNFINISHED = "sonde.unfinished"  # in an item's metadata until the put of it has ended
PIECE = 8 << 20  # B; what is sent while the next is read
VALUE = int(_store.LIMITS["value_bytes"])


@contextmanager
def source(file: Path) -> Iterator[Iterator[bytes]]:
    """The content of a file, or of stdin for "-", in pieces of PIECE bytes; the last may be shorter.

    Raises
    ------
    EnvironmentFailure  store.bad_file: it cannot be read.
    """
    try:
        stream: IO[bytes] = sys.stdin.buffer if str(file) == "-" else file.open("rb")
    except OSError as error:
        raise EnvironmentFailure(
            "store.bad_file", f"{file} cannot be read: {(error.strerror or str(error)).lower()}", "- is stdin"
        ) from None
    try:
        yield iter(lambda: stream.read(PIECE), b"")
    except OSError as error:
        if error.errno is None or isinstance(error, errors.StoreError):
            raise
        raise EnvironmentFailure(
            "store.bad_file", f"{file} cannot be read to its end: {(error.strerror or str(error)).lower()}"
        ) from None
    finally:
        if str(file) != "-":
            stream.close()


@contextmanager
def sink(file: Path) -> Iterator[Callable[[bytes], object]]:
    """A function that writes to a file. The file appears under its name when everything is written, not before.

    A file that is not regular, such as /dev/null or a named pipe, is written to directly.

    Raises
    ------
    EnvironmentFailure  core.cannot_write.
    """
    new: NewFile | None = None
    making = True
    asked: list[int] = []

    def end(number: int, _: object) -> None:
        """Ends this process on SIGTERM and SIGHUP without leaving a file. (Ctrl-C is an exception like any other.)"""
        asked.append(number)
        if making:  # the file may exist already while `new` is not assigned yet
            return
        if new:
            new.discard()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    with signals(end, (signal.SIGTERM, signal.SIGHUP)):
        try:
            if not file.exists() or stats.S_ISREG(file.stat().st_mode):
                new = NewFile(file)
            making = False
            if asked:
                end(asked[0], None)
            with new.file() if new else file.open("wb") as stream:
                yield stream.write
            if new:
                new.publish()
        except OSError as error:
            if isinstance(error, errors.StoreError):
                raise
            raise EnvironmentFailure(
                "core.cannot_write",
                f"cannot write {file}: {reason_not_written(error)}",
                "choose another place",
            ) from None
        finally:
            if new:
                new.discard()


@contextmanager
def about(what: Address) -> Iterator[None]:
    """Replaces NotFound and Exists by errors that name the address as typed, with a hint that fits."""
    try:
        yield
    except errors.NotFound:
        raise not_there(what) from None
    except errors.Exists:
        raise errors.Exists(
            "store.exists", f"{what} exists already", "leave --exclusive out to replace it"
        ) from None


def not_there(what: Address, more: str = "") -> errors.NotFound:
    """The error for an address without data. more: text to append to the message."""
    if what.kind == "table":
        hint = "correct its name, or name the servers on which it was created, in the same order"
    else:
        hint = f"{typed('sonde', 'store', 'ls', what.at(b''))} lists what there is"
    return errors.NotFound("store.not_found", f"there is no {what}{more}", hint)


def put(client: Client, to: Address, pieces: Iterator[bytes], exclusive: bool) -> int:
    """Stores pieces under an address, and replaces old data. Returns the number of bytes stored.

    An item is marked UNFINISHED until everything is written. When writing a new item fails while its servers answer,
    the item is removed again.

    Raises
    ------
    Exists, with exclusive. StoreError: the message has the number of bytes written, because an object's pieces are
    stored one by one. UsageError  store.bad_address: the space is reserved.
    """
    _refuse_reserved(to)
    item, is_new = None, False
    if to.kind == "kv":
        return _put_key(client, to, pieces, exclusive)
    if to.kind == "object":
        with about(to):
            client.create(to.space, to.name, exclusive=exclusive)
        write: Callable[[int, bytes], None] = _Written(client, to)
        resize = lambda n: client.truncate(to.space, to.name, n)  # noqa: E731
    else:
        item, is_new = _item_to_write(client, to, exclusive)
        striped, safety = item.data, client.safety
        write = lambda at, piece: striped.write(at, piece, safety)  # noqa: E731
        resize = lambda n: striped.truncate(n, safety)  # noqa: E731
    at = 0
    try:
        for piece in pieces:
            write(at, piece)
            at += len(piece)
        write(at, b"")
        resize(at)
        if item is not None:
            item.describe(_without_mark(item), client.safety)
    except EnvironmentFailure as error:
        if is_new and _removed_again(client, to, error):
            error.what += f"; {at} B of the new content were written, and {to} was removed again"
            raise
        stands = write.stands if isinstance(write, _Written) else at
        if isinstance(error, errors.StoreError):
            error.what += f"; the first {stands} B of the new content are written" if stands else ""
        error.what += f"; {to} is not complete" if item is not None else ""
        raise
    except KeyboardInterrupt:
        raise Interrupted(
            "store.interrupted",
            f"interrupted: {to} is new up to byte {at} at most, and unchanged after that",
            "put it again, or remove it with 'sonde store rm'",
        ) from None
    return at


class _Written:
    """Sends a piece while the next one is read. stands: number of bytes, from the beginning, that the server has."""

    def __init__(self, client: Client, to: Address) -> None:
        self.client, self.to = client, to
        self.under_way: Batch | None = None
        self.stands = 0

    def __call__(self, at: int, piece: bytes) -> None:
        """Sends a piece at an offset; b"" waits for the last one."""
        batch = None
        if piece:
            batch = self.client.batch()
            batch.write(self.to.space, self.to.name, at, piece)
            batch.start()
        if self.under_way is not None:
            self.under_way.wait()
            if batch is not None and self.under_way.failed:
                with suppress(errors.StoreError):
                    batch.wait()  # it was sent already: its effect must be complete before the error is raised
            self.stands += int(self.under_way[0].value)
            if self.under_way.failed:
                # The caller adds to the message how much of the whole content is written.
                raise self.under_way._failure(0, written=False)
        self.under_way = batch


def _put_key(client: Client, to: Address, pieces: Iterator[bytes], exclusive: bool) -> int:
    value = bytearray()
    for piece in pieces:
        value += piece
        if len(value) > VALUE:
            raise UsageError(
                "store.too_large",
                f"a key's value may have {VALUE >> 20} MiB, but this has more",
                f"store it as an object: {Address('object', to.space, to.name)}",
            )
    with about(to):
        client.put(to.space, to.name, value, exclusive=exclusive)
    return len(value)


def _item_to_write(client: Client, to: Address, exclusive: bool) -> tuple[Any, bool]:
    """The item to write, marked as unfinished, and whether it is new."""
    mark: dict[Any, Any] = {UNFINISHED: "put"}
    if not exclusive:
        try:
            item = client.item(to.space, to.name)
        except errors.NotFound:
            pass
        else:
            item.describe(dict(item.metadata) | mark, client.safety)
            return item, False
    with about(to):
        return client.create_item(to.space, to.name, mark), True


def _without_mark(item: Any) -> dict[str, str]:
    return {name: value for name, value in item.metadata.items() if name != UNFINISHED}


def _removed_again(client: Client, item: Address, why: EnvironmentFailure) -> bool:
    """Removes an item after an error; returns whether it is removed.

    Does not try when a server is silent: that would only make the user wait a second time.
    """
    if isinstance(why, (errors.Unreachable, errors.TimedOut)):
        return False
    with suppress(errors.StoreError):
        client.remove_item(item.space, item.name)
        return True
    return False


def _refuse_reserved(to: Address) -> None:
    if to.kind == "item" or not (to.space == b"sonde.items" or to.space.startswith(b"h5.")):
        return
    purpose = "descriptions of items" if to.space == b"sonde.items" else "files of the HDF5 connector"
    raise UsageError(
        "store.bad_address",
        f"{to} is in a reserved space for {purpose}",
        "choose a space other than sonde.items that does not begin with h5.",
    )


def pieces(client: Client, what: Address) -> Iterator[bytes]:
    """The content of an address, in pieces. When an object grows or shrinks meanwhile, its current data are read.

    Raises
    ------
    NotFound.
    """
    if what.kind == "kv":
        with about(what):
            value = client.get(what.space, what.name)
        yield value
        return
    if what.kind == "item":
        with about(what):
            data = client.item(what.space, what.name).data
        size = _size_of_item(data)
        room = np.empty(min(size, PIECE), np.uint8)
        at = 0
        while at < size:
            n = data.read_into(at, room[: size - at])
            if n == 0:
                return
            yield room[:n].tobytes()
            at += n
        return
    with about(what):
        size = client.stat(what.space, what.name).size
    at, ahead = 0, None
    while at < size or ahead is not None:
        batch = None
        if at < size:  # requested before the current piece is written
            batch = client.batch()
            batch.read(what.space, what.name, at, min(PIECE, size - at))
            batch.start()
            at += PIECE
        if ahead is not None:
            ahead.wait()
            ahead.check()
            yield bytes(ahead[0])
        ahead = batch


def _size_of_item(data: Any) -> int:
    try:
        return int(data.status()[0])
    except errors.NotFound:  # the item is described, but not yet written
        return 0


def stat(client: Client, what: Address) -> dict[str, Any]:
    """The facts about an address: address, bytes, and more by its kind.

    Raises
    ------
    NotFound.
    """
    facts: dict[str, Any] = {"address": str(what)}
    if what.kind == "kv":
        batch = client.batch("network")
        batch.get(what.space, what.name, bytearray(1))  # the rest of the value is not transferred
        batch.run()
        if batch[0].status == _store.Status.not_found:
            raise not_there(what)
        batch.check()
        return facts | {"bytes": int(batch[0].value)}
    if what.kind == "hdf5":
        with about(what):
            space = _space_of_file(client, what)
        return facts | {"bytes": _bytes_of_file(client, space), "space": space}
    if what.kind == "object":
        with about(what):
            status = client.stat(what.space, what.name)
        return facts | {"bytes": status.size, "changed": shown(status.changed_ns)}
    with about(what):
        item = client.item(what.space, what.name)
    facts["bytes"] = _size_of_item(item.data)
    if facts["bytes"]:
        facts["changed"] = shown(int(item.data.status()[1]))
    return facts | {
        "created": shown(item.created_ns),
        "distribution": item.data.distribution,
        "metadata": _without_mark(item),
        "complete": UNFINISHED not in item.metadata,
    }


def names(client: Client, prefix: Address, long: bool) -> Iterator[dict[str, Any]]:
    """The entries that begin with an address, in byte order: addresses; with `long` also bytes and last change."""
    if prefix.kind == "kv" or (prefix.kind == "hdf5" and not long):
        if not long:
            yield from ({"address": str(prefix.at(key))} for key in client.keys(prefix.space, prefix.name))
            return
        for key, value in client.scan(prefix.space, prefix.name):
            yield {"address": str(prefix.at(key)), "bytes": len(value)}
        return
    listed = {"object": client.objects, "item": client.items, "hdf5": client.keys}[prefix.kind]
    for name in listed(prefix.space, prefix.name):
        one = prefix.at(name)
        if not long:
            yield {"address": str(one)}
            continue
        try:
            facts: Mapping[str, Any] = stat(client, one)
        except errors.NotFound:  # removed since it was listed
            continue
        yield {name: facts[name] for name in ("address", "bytes", "changed", "complete") if name in facts}


def remove(client: Client, target: Address, recursive: bool) -> tuple[int, list[Address]]:
    """Removes one address, or all that begin with it. Returns how many were removed, and those that did not exist."""
    if not recursive:
        try:
            _remove(client, target)
        except errors.NotFound:
            return 0, [target]
        return 1, []
    listed = {"kv": client.keys, "object": client.objects, "item": client.items, "hdf5": client.keys}[
        target.kind
    ]
    removed = 0
    for name in listed(target.space, target.name):
        try:
            _remove(client, target.at(name))
            removed += 1
        except errors.NotFound:
            continue  # another client removed it first
    return removed, [] if removed else [target]


def _remove(client: Client, target: Address) -> None:
    if target.kind == "hdf5":
        return _remove_file(client, target)
    how = {"kv": client.remove, "object": client.remove_object, "item": client.remove_item}[target.kind]
    how(target.space, target.name)


# An HDF5 file is a key whose value names a space of its own. Only the file's records and objects are in that space
# (native/store/h5/container.hpp).


def _space_of_file(client: Client, file: Address) -> str:
    return client.get(file.space, file.name).decode()


def _bytes_of_file(client: Client, space: str) -> int:
    """The bytes of a file's records and objects on all servers."""
    records = sum(len(value) for _, value in client.scan(space))
    return records + sum(_each_part(client, space, "status"))


def _remove_file(client: Client, file: Address) -> None:
    """Removes a file, its name first. After an interrupted removal, nobody finds the rest, and it is not a file."""
    space = _space_of_file(client, file)
    client.remove(file.space, file.name)
    for keys in _some(client.keys(space)):
        batch = client.batch()
        for key in keys:
            batch.remove(space, key)
        _run(batch)
    for _ in _each_part(client, space, "remove_object"):
        pass


def _each_part(client: Client, space: str, operation: str) -> Iterator[int]:
    """Runs an operation on each object of a space on every server, because they are striped. Yields the values."""
    for names in _some(client.objects(space)):
        batch = client.batch()
        for name in names:
            for server in range(client.servers("data")):
                getattr(batch, operation)(space, name, server)
        _run(batch)
        yield from (int(batch[k].value) for k in range(len(batch)) if batch[k].ok)


def _some(names: Iterator[str]) -> Iterator[list[str]]:
    """The names in lists, each with as many as one batch should have."""
    while some := list(islice(names, AT_ONCE)):
        yield some


def _run(batch: Batch) -> None:
    """Runs a batch; an object that does not exist, or not on that server, is not an error."""
    batch.run()
    for k in np.flatnonzero(batch.statuses):
        if batch[int(k)].status != _store.Status.not_found:
            batch.fail(int(k))


def shown(time_ns: int) -> str:
    """A time as text: UTC, to the second."""
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def as_json(value: Any) -> Any:
    """A field's value for JSON: a blob in base64."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def as_cell(value: Any) -> str:
    """A field's value as text for a table on the terminal."""
    if value is None:
        return "–"
    if isinstance(value, bytes):
        shown = value[:16].hex()
        return f"{shown}… ({len(value)} B)" if len(value) > 16 else shown
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
