"""The storage client for Python.

    with sonde.store.connect("127.0.0.1:5440") as client:
        client.put("runs", "42/input", b"alpha")          # one operation, sent at once
        client.get("runs", "42/input")                    # b"alpha"
        client.write("fields", "pressure", array)         # from the array's own memory
        again = client.read("fields", "pressure", dtype="f8").reshape(array.shape)

        with client.batch(safety="storage") as batch:     # one message for all of it, on stable storage at the end
            for step in range(1000):
                batch.put("runs", f"42/step/{step}", results[step])

Spaces, keys and names of objects are str or bytes. A name that is not UTF-8 is returned as a str with lone surrogates,
like names of files, and can be passed in this form again. Data is any object with a contiguous buffer: bytes,
bytearray, memoryview, numpy array. It is not copied: do not change it until the batch is done. Needs libsonde-store:
`sonde doctor` shows whether this build has it.

A client may be used from any thread, a batch by one thread at a time; both only by the process that created them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sonde.core.errors import EnvironmentFailure, SondeError, UsageError, nearest
from sonde.store import tables
from sonde.store.errors import BatchError, of_status
from sonde.store.server_status import ServerStatus
from sonde.store.tables import Name, Safety, Table

try:
    import sonde._store as _store
except ImportError as error:
    raise EnvironmentFailure(
        "store.not_built",
        "this build of Sonde has no storage client"
        if isinstance(error, ModuleNotFoundError)
        else f"the storage client does not load: {error}",
        "'sonde doctor' shows what to install; then 'make setup' builds it",
    ) from None


OPTIONS = (
    "transport",
    "provider",
    "auth",
    "token_file",
    "tls",
    "checksum",
    "connect_timeout_s",
    "timeout_s",
    "connections",
    "nodelay",
    "cork",
    "spin_s",
)


@dataclass(frozen=True)
class ObjectStatus:
    """The status of one object. size: B. changed_ns: last change, ns since 1970, by the server's clock."""

    size: int
    changed_ns: int


def connect(*servers: str, safety: Safety = "network", **options: Any) -> Client:
    """A client of one or more servers.

    servers: "host:port"; "kv@host:port" for a server that is used for this role only. All clients must name the same
    servers in the same order, because the order determines where keys and objects are stored.
    safety: the promise of an acknowledgement, unless an operation asks for another. "none": the operation is queued;
    "network": the server has executed it, and every client sees it; "storage": it survives power loss.
    options: transport ("tcp"), provider, auth, token_file, tls (False), checksum (True), connect_timeout_s (15),
    timeout_s (30; for a batch, 0: no limit), connections (8; maximum to each server), nodelay, cork, spin_s.
    auth: "user", "token", "munge" or "none". The default is user or token, whichever the server requests; with the
    others a server does not prove its owner. tls: everything over TCP in TLS 1.3, with keys from the secret of user or
    token; the server must offer it.

    Raises
    ------
    Unreachable, TimedOut, Denied; UsageError for an address or an option that is not valid.
    """
    if not servers:
        raise UsageError("store.no_server", "no server was named", 'connect("127.0.0.1:5440")')
    return Client(list(servers), [], safety, options)


def embedded(safety: Safety = "network", **backends: str) -> Client:
    """A client without a server: the backends are in this process.

    backends: by role, `data="posix,path=/scratch/objects"`, `kv="lmdb,path=/scratch/keys"`, `db=...`.

    Raises
    ------
    UsageError: there is no such backend or setting. StoreError  store.cannot_open.
    """
    if not backends:
        raise UsageError("store.no_server", "no backend was named", 'embedded(kv="memory", data="memory")')
    return Client([], [(role, text) for role, text in backends.items()], safety, {})


def providers(transport: str, limit_s: float = 15.0) -> list[dict[str, Any]]:
    """The providers of a transport, each tested on this machine within limit_s.

    Each: provider, works, why (the reason why it does not work, or its requirements), half_round_trip_s (for 64 B). []
    for "tcp".
    """
    return list(_store.providers(transport, limit_s))


class Batch(_store.Batch):
    """Operations that are sent, executed and answered together; see native/store/store.hpp.

    The methods put get remove · create write read read_into status truncate remove_object each queue one operation and
    return its index. run() sends them and waits. As a context manager a batch runs at the end of the block, and raises
    BatchError if any operation failed. batch[k] is the outcome of operation k: `status`, `value`, `time_ns`, `data`.
    `statuses` and `values` are arrays over all operations. The kv operations of a batch on one server are executed all
    or not at all; each object operation is executed by itself.
    """

    def __enter__(self) -> Batch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.clear()  # a batch whose construction failed is not sent
        elif len(self):
            self.run()
            self.check()

    def check(self) -> None:
        """Raises BatchError if operations failed, with the first error that is not a consequence of another."""
        if not self.failed:
            return
        statuses = self.statuses
        failed = [int(k) for k in np.flatnonzero((statuses != 0) & (statuses != int(_store.Status.pending)))]
        own = [k for k in failed if self[k].status != _store.Status.aborted]
        first = (own or failed)[0]
        error = self._failure(first)
        if len(failed) > 1:
            error.what += f" (operation {first}; {len(failed)} of {len(self)} failed)"
        raise BatchError(error.code, error.what, error.hint, failed) from None

    def fail(self, k: int) -> NoReturn:
        """Raises the error of an operation that failed: NotFound, Exists, …"""
        raise self._failure(k)

    def _failure(self, k: int, written: bool = True) -> SondeError:
        """The error of operation k. written: whether to add how many bytes of a write were written."""
        operation, space, key = self.operation(k)
        result = self[k]
        text = f"{operation} {space}/{key}: {self.why(k)}"
        if written and operation == "object.write" and result.value:
            text += f"; {result.value} B of it were written"
        return of_status(result.status.name, text)


class Client:
    """A client of servers, or of backends in this process; see connect() and embedded()."""

    def __init__(
        self,
        servers: Sequence[str],
        backends: Sequence[tuple[str, str]],
        safety: Safety = "network",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        given = {name: value for name, value in (options or {}).items() if value is not None}
        for name in given:
            if name not in OPTIONS:
                raise UsageError(
                    "store.bad_value",
                    f"connect() has no option {name}{nearest(name, OPTIONS)}",
                    f"allowed: {', '.join(OPTIONS)}",
                )
        if "tls" in given:
            given["tls"] = bool(given["tls"])
        for name in ("connect_timeout_s", "timeout_s", "spin_s"):
            if name in given:
                given[name] = float(given[name])
        if "token_file" in given:
            given["token_file"] = str(given["token_file"])
        self.safety = safety
        self._native = _store.Client(list(servers), list(backends), given)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections when the last batch is gone. Operations with safety "none" may be lost: flush()."""
        self._native.close()

    @property
    def closed(self) -> bool:
        return bool(self._native.closed)

    def batch(self, safety: Safety | None = None) -> Batch:
        """A new batch, to be filled and run. safety: see connect()."""
        return Batch(self._native, safety or self.safety)

    # ---- keys

    def put(
        self, space: Name, key: Name, value: Any, *, exclusive: bool = False, safety: Safety | None = None
    ) -> None:
        """Stores a value of up to 16 MiB under a key. exclusive: raises Exists if the key exists."""
        self._one("put", space, key, value, exclusive, safety=safety)

    def get(self, space: Name, key: Name) -> bytes:
        """The value of a key, as a copy. A batch's `get` reads without this copy.

        Raises
        ------
        NotFound (a KeyError): there is no such key.
        """
        return bytes(self._one("get", space, key)[0])

    def remove(self, space: Name, key: Name, *, safety: Safety | None = None) -> None:
        """Removes a key. NotFound when it does not exist."""
        self._one("remove", space, key, safety=safety)

    def keys(self, space: Name, prefix: Name = "") -> Iterator[str]:
        """The keys of a space that begin with `prefix`, in byte order, from all servers."""
        return self._pages(lambda after: self._native.keys(space, prefix, after, True), lambda key: key)

    def scan(self, space: Name, prefix: Name = "") -> Iterator[tuple[str, bytes]]:
        """The keys of a space that begin with `prefix`, with their values."""
        return self._pages(
            lambda after: self._native.keys(space, prefix, after, False), lambda entry: entry[0]
        )

    # ---- objects

    def create(
        self, space: Name, name: Name, *, exclusive: bool = False, safety: Safety | None = None
    ) -> None:
        """Creates an empty object. exclusive: raises Exists if the object exists."""
        self._one("create", space, name, exclusive, safety=safety)

    def write(
        self,
        space: Name,
        name: Name,
        data: Any,
        offset: int = 0,
        *,
        must_exist: bool = False,
        safety: Safety | None = None,
    ) -> None:
        """Writes data at an offset (B) of an object, and creates the object if it does not exist.

        A gap before the offset reads as zeros. must_exist: raises NotFound if the object does not exist.
        """
        self._one("write", space, name, _checked(offset, "offset"), data, must_exist, safety=safety)

    def read(
        self,
        space: Name,
        name: Name,
        offset: int = 0,
        length: int | None = None,
        *,
        into: Any = None,
        dtype: DTypeLike = np.uint8,
    ) -> NDArray[Any]:
        """Reads up to `length` bytes from an offset (B); None: to the end. Reads fewer at the object's end.

        into: a writable buffer to read into; its size (B) is then the length. Returns a 1-D array of dtype over the
        bytes that were read; it shares the memory into which they were received.

        Raises
        ------
        NotFound: there is no such object. UsageError  store.bad_value: the bytes are not a whole number of dtype.
        """
        offset = _checked(offset, "offset")
        if into is not None:
            batch = self._one("read_into", space, name, offset, into)
        else:
            if length is None:
                length = max(0, self.stat(space, name).size - offset)
            batch = self._one("read", space, name, offset, _checked(length, "length"))
        data: NDArray[np.uint8] = batch[0].data
        wanted = np.dtype(dtype)
        if data.size % wanted.itemsize:
            name_text = "/".join(batch.operation(0)[1:])
            raise UsageError(
                "store.bad_value",
                f"{data.size} B of {name_text} are not a whole number of {wanted} ({wanted.itemsize} B each)",
                "read them as dtype='u1', or give another length",
            )
        return data.view(wanted)

    def stat(self, space: Name, name: Name) -> ObjectStatus:
        """The size and last change of an object. NotFound when it does not exist."""
        result = self._one("status", space, name)[0]
        return ObjectStatus(int(result.value), int(result.time_ns))

    def truncate(self, space: Name, name: Name, size: int, *, safety: Safety | None = None) -> None:
        """Cuts an object to `size` bytes, or lengthens it with zeros."""
        self._one("truncate", space, name, _checked(size, "size"), safety=safety)

    def remove_object(self, space: Name, name: Name, *, safety: Safety | None = None) -> None:
        """Removes an object. NotFound when it does not exist."""
        self._one("remove_object", space, name, safety=safety)

    def objects(self, space: Name, prefix: Name = "") -> Iterator[str]:
        """The names of the objects of a space that begin with `prefix`, in byte order, from all servers."""
        return self._pages(lambda after: self._native.objects(space, prefix, after), lambda name: name)

    # ---- objects over several servers, and items

    def striped(
        self, space: Name, name: Name, distribution: str = "round-robin,block=1MiB"
    ) -> _store.Striped:
        """An object whose blocks are stored on several data servers. This call sends nothing.

        distribution: "round-robin,block=1MiB,start=0", "single,server=2", "weighted,block=4MiB,weights=1:2:1". It is
        not stored: readers must name the same distribution as the writer. (An item stores its distribution.)
        The object's methods: create write(offset, data) read_into(offset, buffer) status truncate remove.
        """
        return _store.striped(self._native, space, name, distribution)

    def create_item(
        self,
        collection: Name,
        name: Name,
        metadata: Mapping[Name, Name] | None = None,
        distribution: str = "round-robin,block=1MiB",
        *,
        safety: Safety | None = None,
    ) -> _store.Item:
        """Creates an item: a named, striped object of a collection, with metadata. Exists if the item exists.

        The item has `data` (like the result of striped()), `metadata`, `created_ns` and describe(metadata).
        """
        return _store.create_item(
            self._native, collection, name, distribution, dict(metadata or {}), safety or self.safety
        )

    def item(self, collection: Name, name: Name) -> _store.Item:
        """An existing item. NotFound when it does not exist."""
        return _store.open_item(self._native, collection, name)

    def items(self, collection: Name, prefix: Name = "") -> Iterator[str]:
        """The names of a collection that begin with `prefix`, in byte order."""
        yield from _store.list_items(self._native, collection, prefix)

    def remove_item(self, collection: Name, name: Name, *, safety: Safety | None = None) -> None:
        """Removes an item with its data. NotFound when it does not exist."""
        _store.remove_item(self._native, collection, name, safety or self.safety)

    # ---- tables

    def define(
        self,
        space: Name,
        name: Name,
        fields: Mapping[str, str],
        indexes: Sequence[str | Sequence[str]] = (),
        unique: Sequence[str | Sequence[str]] = (),
        *,
        safety: Safety | None = None,
    ) -> Table:
        """Creates a table, or opens an existing one with the same definition. Exists when its definition differs.

        fields: {name: type}; types: boolean int32 uint32 int64 uint64 float32 float64 text blob.
        indexes: names of fields, or sequences of them. unique: indexes in which no two rows may have equal values.
        """
        both = [([by] if isinstance(by, str) else list(by), False) for by in indexes]
        both += [([by] if isinstance(by, str) else list(by), True) for by in unique]
        schema = _store.Schema(list(fields.items()), both)
        tables.one(self, "db.define", space, name, schema.encoded(), safety=safety)
        return tables.Table(self, space, name, schema)

    def table(self, space: Name, name: Name) -> Table:
        """An existing table; see tables.py for its methods. NotFound when it does not exist."""
        described = tables.one(self, "db.describe", space, name, b"")
        return tables.Table(self, space, name, _store.Schema.decoded(described.data))

    # ---- the whole store

    def flush(self) -> None:
        """Sends all queued operations. StoreError  store.lost: some with safety "none" failed since the last flush."""
        self._native.flush()

    def sync(self) -> None:
        """Waits until all earlier operations, of any client, are on stable storage on every server."""
        self._native.sync()

    def servers(self, role: Literal["data", "kv", "db"]) -> int:
        """The number of servers, or backends, of a role."""
        return int(self._native.servers(role))

    def status(self) -> list[ServerStatus]:
        """The status of each server; empty for embedded backends.

        StoreError  store.bad_report: a report that this version cannot read.
        """
        from sonde.store.server_status import report_of

        found = []
        for one in self._native.status():
            report = report_of(one.pop("status"), str(one["address"]))
            found.append(ServerStatus(report=report, **one))
        return found

    def _one(self, operation: str, *arguments: Any, safety: Safety | None = None) -> Batch:
        """Runs a batch of one operation, and returns it. Raises the error if the operation failed."""
        batch = Batch(self._native, safety or self.safety if operation not in _READS else "network")
        getattr(batch, operation)(*arguments)
        batch.run()
        if batch.failed:
            batch.fail(0)
        return batch

    @staticmethod
    def _pages(page: Any, key: Any) -> Iterator[Any]:
        after: Name = ""
        more = True
        while more:
            entries, more = page(after)
            yield from entries
            if entries:
                after = key(entries[-1])


_READS = ("get", "read", "read_into", "status")


def _checked(number: int, what: str) -> int:
    if number < 0:
        raise UsageError("store.bad_value", f"{what} is {number} B; allowed: 0 B and above")
    return number


__all__ = ["Batch", "Client", "ObjectStatus", "ServerStatus", "connect", "embedded"]
