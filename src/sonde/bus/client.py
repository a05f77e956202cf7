"""The bus for Python.

    import sonde.bus.client as bus

    with bus.open("bus.xml") as here:                                 # a profile: docs/reference/bus-profile.md
        writer = here.writer("Monitor_report_node_telemetry")
        writer.write(node="n017", power_w=211.5)
        for sample in here.reader("Monitor_report_cluster_telemetry").samples(timeout_s=5):
            sample["power_w"]
        here.client("NodeManager_get").call({"what": "power"}, target="n017")

    with bus.open(idl="power.idl", topics={"Power": "regale::NodePower"}, domain=3) as here: ...

A sample is a dict with the field names of the IDL: structures are dicts, sequences and arrays are lists (numpy arrays
are accepted), octets are bytes, enumerations are their names. A field that a sample leaves out is zero or empty.
SONDE_BUS=cyclonedds|fastdds|null chooses the implementation unless `implementation` or the profile does. All
threads may call all functions, but only one thread at a time may take from a reader. close() may run during a call of
another thread: that call fails with bus.closed or ends normally.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from sonde.bus.errors import Refused
from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.core.lines import utf8_path

try:
    import sonde._bus as _bus
except ImportError as error:
    raise EnvironmentFailure(
        "bus.not_built",
        "this build of Sonde has no bus"
        if isinstance(error, ModuleNotFoundError)
        else f"the bus does not load: {error}",
        "'sonde doctor' says what to install; then 'make setup' builds it",
    ) from None

Body = Mapping[str, Any] | bytes


@dataclass(frozen=True)
class Sample:
    """One sample. sample["power_w"] is a field.

    value: its fields. writer: GUID of the writer, 32 hexadecimal digits. source_ns, received_ns: CLOCK_REALTIME at the
    writer and here, 0: unknown. state: "alive", "disposed", "no_writers". has_data: False if only the key
    fields are valid.
    """

    value: dict[str, Any]
    writer: str
    source_ns: int
    received_ns: int
    state: str
    has_data: bool

    def __getitem__(self, field: str) -> Any:
        return self.value[field]


@dataclass(frozen=True)
class Reply:
    """The answer of a server. server: its name. tries: how often the request was sent. message: an additional text."""

    body: Any
    server: str
    tries: int
    message: str = ""


class _Closing:
    """Base of objects with close(); a `with` statement closes them at its end."""

    _native: Any

    def close(self) -> None:
        self._native.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Endpoint(_Closing):
    @property
    def topic(self) -> str:
        return str(self._native.topic)

    def wait_matched(self, n: int = 1, timeout_s: float | None = None) -> bool:
        """Wait until n endpoints match. False: fewer matched in time. timeout_s: None: no time limit."""
        return bool(self._native.wait_matched(n, -1.0 if timeout_s is None else timeout_s))

    def status(self) -> dict[str, Any]:
        """matched, matched_ever, incompatible, incompatible_policy, lost, rejected, deadline_missed, liveliness_lost,
        alive (-1: not counted by the implementation); samples, bytes, malformed, other_type, too_large, last_error."""
        return dict(self._native.status())


class Writer(_Endpoint):
    """A writer of a topic, created by Bus.writer()."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def write(self, value: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        """Publish one sample: a dict, or its fields. Raises UsageError (bus.bad_value), TimedOut, BusError."""
        self._native.write({**(value or {}), **fields})

    def dispose(self, value: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        """Dispose of the instance with these key fields."""
        self._native.dispose({**(value or {}), **fields})

    def wait_acknowledged(self, timeout_s: float | None = None) -> bool:
        """Wait until all matched reliable readers have all samples. False: not all had them in time."""
        return bool(self._native.wait_acknowledged(-1.0 if timeout_s is None else timeout_s))

    def flush(self) -> None:
        """Send samples that a latency budget delays."""
        self._native.flush()


class Reader(_Endpoint):
    """A reader of a topic, created by Bus.reader()."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def take(self, most: int = 4096) -> list[Sample]:
        """The samples that have arrived, oldest first, without waiting.

        Raises UsageError (bus.too_large) for a sample with too many values. The samples before it are returned first,
        in an earlier call; the samples after it are returned by the next call.
        """
        return [Sample(value, **info) for value, info in self._native.take(most)]

    def samples(self, timeout_s: float | None = None) -> Iterator[Sample]:
        """Iterate over samples as they arrive, until none arrives for timeout_s or the reader is closed."""
        self._native.wait(0.0)  # raises an error if the reader is closed already
        try:
            while self._native.wait(-1.0 if timeout_s is None else timeout_s):
                yield from self.take()
        except UsageError as error:
            if error.code != "bus.closed":
                raise


class Client(_Closing):
    """A client of a service, created by Bus.client()."""

    def __init__(self, native: Any, service: str) -> None:
        self._native, self._service = native, service

    def call(self, body: Body = b"", target: str = "", timeout_s: float = 5.0, retry_s: float = 0.5) -> Reply:
        """Send a request, wait for the first answer. target: name of the server, `*` and `?` allowed; "": any server.

        retry_s: time after which the same request is sent again; it doubles each time. The server does not execute a
        request twice. 0: never send again.
        Raises Refused (the server's code and message), TimedOut, UsageError (the body), BusError.
        """
        answer = self._native.call(body, target, timeout_s, retry_s)
        if answer["number"]:
            server = f"server '{answer['server']}'" if answer["server"] else "the server"
            raise Refused(
                f"bus.{answer['code']}",
                f"{self._service}: {server} refused: {answer['message'] or answer['code']}",
                "",
                answer["code"],
                answer["server"],
                answer["number"],
            )
        return Reply(answer["body"], answer["server"], answer["tries"], answer["message"])

    def call_all(
        self, body: Body = b"", target: str = "", timeout_s: float = 1.0, most: int = 65536
    ) -> list[dict[str, Any]]:
        """The answers of all servers that arrive in time: {code, number, message, server, tries, body}."""
        return list(self._native.call_all(body, target, timeout_s, most))

    def wait_for_server(self, timeout_s: float | None = None) -> bool:
        """Wait for a server. False: no server was found in time."""
        return bool(self._native.wait_for_server(-1.0 if timeout_s is None else timeout_s))

    def counts(self) -> dict[str, int]:
        """calls, answered, timed_out, retried, late, duplicate, unasked, malformed."""
        return dict(self._native.counts())


class Server(_Closing):
    """A server of a service, created by Bus.serve(). Its handler runs in a separate thread until close()."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def counts(self) -> dict[str, int]:
        """requests, answered, repeated, expired, busy, malformed, not_for_us, failed, clients."""
        return dict(self._native.counts())


class Bus(_Closing):
    """A participant of a bus, created by open()."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def writer(self, topic: str, type: str = "") -> Writer:
        """type: name of the type in the IDL, for a topic that the profile does not have."""
        return Writer(_bus.Writer(self._native, topic, type))

    def reader(self, topic: str, type: str = "") -> Reader:
        return Reader(_bus.Reader(self._native, topic, type))

    def client(self, service: str, request: str = "", reply: str = "") -> Client:
        """request, reply: types of the bodies; "": bytes."""
        return Client(_bus.Client(self._native, service, request, reply), service)

    def serve(
        self,
        service: str,
        handler: Callable[[Any], Any],
        name: str = "",
        request: str = "",
        reply: str = "",
        threads: int = 1,
    ) -> Server:
        """Answer requests of a service. handler(body) -> body of the answer.

        An exception of the handler gives an answer with the code `failed`; Refused gives its own code.

        name: the server's name, which is compared with the clients' targets.
        """

        def answered(body: Any, target: str, client: str) -> Any:
            try:
                return handler(body)
            except Refused as refused:
                return (refused.number or _REPLY_NUMBERS.get(refused.reply, _FAILED), refused.what, None)
            except Exception as error:
                return (_FAILED, f"{error.__class__.__name__}: {error}", None)

        return Server(_bus.Server(self._native, service, answered, name, request, reply, threads))

    @property
    def implementation(self) -> str:
        return str(self._native.implementation)

    @property
    def version(self) -> str:
        return str(self._native.version)

    @property
    def guid(self) -> str:
        return str(self._native.guid)

    def caps(self) -> dict[str, bool]:
        """The features of the implementation."""
        return dict(self._native.caps())

    def topics(self) -> list[str]:
        """The topics of the profile."""
        return list(self._native.topics())

    def peers(self) -> list[dict[str, Any]]:
        """The other participants known now: {guid, name, host, pid}."""
        return list(self._native.peers())

    def endpoints(self) -> list[dict[str, Any]]:
        """The endpoints of the other participants: {guid, participant, writes, topic, type, partitions, reliable,
        transient_local}.
        """
        return list(self._native.endpoints())


# As in native/bus/request.hpp: the numbers on the wire.
_REPLY_NUMBERS = {
    "bad_request": 1,
    "denied": 2,
    "not_found": 3,
    "busy": 4,
    "failed": 5,
    "expired": 6,
    "unsupported": 7,
    "closing": 8,
}
_FAILED = _REPLY_NUMBERS["failed"]


def open(
    profile: str | Path | None = None,
    name: str = "",
    *,
    implementation: str = "",
    idl: str | Path | None = None,
    topics: Mapping[str, str] | None = None,
    domain: int = 0,
) -> Bus:
    """Join a bus.

    profile: a file; name: one of its profiles. Or without a file, on this machine's loopback: idl: the file that
    declares the types, topics: {name: type}, domain.

    Raises
    ------
    UsageError: the profile or the IDL is wrong, or the implementation is absent or lacks a feature. BusError: bus.open.
    """
    if profile is not None:
        if idl is not None or topics is not None or domain:
            raise UsageError(
                "bus.bad_profile",
                "a profile file was given together with idl, topics or domain",
                "write them into the profile",
            )
        return Bus(_bus.open(utf8_path(profile), name, implementation))
    types = f"<types idl={quoteattr(str(Path(idl).absolute()))}/>" if idl is not None else ""
    listed = "".join(
        f"<topic name={quoteattr(topic)} type={quoteattr(kind)}/>" for topic, kind in (topics or {}).items()
    )
    inside = f'<profile name="default" domain="{escape(str(domain))}">{types}{listed}</profile>'
    return Bus(_bus.open_text(f'<sonde-bus version="1">{inside}</sonde-bus>', "", ".", implementation))


def open_text(profile: str, name: str = "", folder: str | Path = ".", implementation: str = "") -> Bus:
    """Join a bus with a profile as text. `folder`: where files that the profile names are searched."""
    return Bus(_bus.open_text(profile, name, str(folder), implementation))


def implementations() -> list[str]:
    """The names of the available implementations."""
    return list(_bus.implementations())
