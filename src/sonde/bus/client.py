"""The bus for Python.

    import sonde.bus.client as bus

    with bus.open("bus.xml") as here:                                 # a profile: docs/reference/bus-profile.md
        writer = here.writer("Monitor_report_node_telemetry")
        writer.write(node="n017", power_w=211.5)
        for sample in here.reader("Monitor_report_cluster_telemetry").samples(timeout_s=5):
            sample["power_w"]
        here.client("NodeManager_get").call({"what": "power"}, target="n017")

    with bus.open(idl="power.idl", topics={"Power": "regale::NodePower"}, domain=3) as here: ...

Samples are dicts by the names of IDL: structures are dicts, sequences and arrays lists (numpy arrays are taken as
well), octets bytes, enumerations their names. What a sample leaves out is zero or empty.
SONDE_BUS=cyclonedds|fastdds|null chooses the implementation unless `implementation` or the profile does. Any-thread;
one thread at a time takes from a reader. close() may come beside another thread's call: that ends with bus.closed, or
as it would have.
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

    value: its fields. writer: whose, 32 hexadecimal digits. source_ns, received_ns: CLOCK_REALTIME there and here,
    0: not told. state: "alive", "disposed", "no_writers". has_data: False where only the key fields mean something.
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
    """What a server answered. server: its name. tries: how often the request was sent. message: said besides."""

    body: Any
    server: str
    tries: int
    message: str = ""


class _Closing:
    """What can be closed, and is at the end of a `with`."""

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
        """False: fewer than n others were there by then. timeout_s: None: without end."""
        return bool(self._native.wait_matched(n, -1.0 if timeout_s is None else timeout_s))

    def status(self) -> dict[str, Any]:
        """matched, matched_ever, incompatible, incompatible_policy, lost, rejected, deadline_missed, liveliness_lost,
        alive (-1: not counted by the implementation); samples, bytes, malformed, other_type, too_large, last_error."""
        return dict(self._native.status())


class Writer(_Endpoint):
    """Made by Bus.writer()."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def write(self, value: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        """Publishes one sample: a dict, or its fields. Raises UsageError (bus.bad_value), TimedOut, BusError."""
        self._native.write({**(value or {}), **fields})

    def dispose(self, value: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        """Says that the instance with these key fields is no more."""
        self._native.dispose({**(value or {}), **fields})

    def wait_acknowledged(self, timeout_s: float | None = None) -> bool:
        """False: not every matched reliable reader had all by then."""
        return bool(self._native.wait_acknowledged(-1.0 if timeout_s is None else timeout_s))

    def flush(self) -> None:
        """Sends what a latency budget holds back."""
        self._native.flush()


class Reader(_Endpoint):
    """Made by Bus.reader()."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def take(self, most: int = 4096) -> list[Sample]:
        """What is there now, oldest first; it does not wait.

        Raises UsageError (bus.too_large) for a sample of too many values, and for that one alone: what came before it
        is given first, what came behind it by the next call.
        """
        return [Sample(value, **info) for value, info in self._native.take(most)]

    def samples(self, timeout_s: float | None = None) -> Iterator[Sample]:
        """Samples as they come; ends when none came for timeout_s, or the reader is closed meanwhile."""
        self._native.wait(0.0)  # of one that is closed already it is an error
        try:
            while self._native.wait(-1.0 if timeout_s is None else timeout_s):
                yield from self.take()
        except UsageError as error:
            if error.code != "bus.closed":
                raise


class Client(_Closing):
    """Made by Bus.client()."""

    def __init__(self, native: Any, service: str) -> None:
        self._native, self._service = native, service

    def call(self, body: Body = b"", target: str = "", timeout_s: float = 5.0, retry_s: float = 0.5) -> Reply:
        """Asks, and waits for the first answer. target: which server, `*` and `?` allowed; "": any.

        retry_s: after how long the same request is sent again, doubling; it is not executed twice. 0: never.
        Raises Refused (the server's code and words), TimedOut, UsageError (the body), BusError.
        """
        answer = self._native.call(body, target, timeout_s, retry_s)
        if answer["number"]:
            who = f"server '{answer['server']}'" if answer["server"] else "the server"
            raise Refused(
                f"bus.{answer['code']}",
                f"{self._service}: {who} refused: {answer['message'] or answer['code']}",
                "",
                answer["code"],
                answer["server"],
                answer["number"],
            )
        return Reply(answer["body"], answer["server"], answer["tries"], answer["message"])

    def call_all(
        self, body: Body = b"", target: str = "", timeout_s: float = 1.0, most: int = 65536
    ) -> list[dict[str, Any]]:
        """Every server's answer that came in time: {code, number, message, server, tries, body}."""
        return list(self._native.call_all(body, target, timeout_s, most))

    def wait_for_server(self, timeout_s: float | None = None) -> bool:
        """False: there was none by then."""
        return bool(self._native.wait_for_server(-1.0 if timeout_s is None else timeout_s))

    def counts(self) -> dict[str, int]:
        """calls, answered, timed_out, retried, late, duplicate, unasked, malformed."""
        return dict(self._native.counts())


class Server(_Closing):
    """Made by Bus.serve(). Its handler runs in a thread of its own until close()."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def counts(self) -> dict[str, int]:
        """requests, answered, repeated, expired, busy, malformed, not_for_us, failed, clients."""
        return dict(self._native.counts())


class Bus(_Closing):
    """Made by open()."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def writer(self, topic: str, type: str = "") -> Writer:
        """type: of a topic that the profile does not have, by its name in IDL."""
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
        """Answers requests. handler(body) -> body of the answer.

        What it raises becomes the code `failed`, Refused its own code.

        name: what clients' targets are compared with.
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
        """What the implementation can do."""
        return dict(self._native.caps())

    def topics(self) -> list[str]:
        """Those of the profile."""
        return list(self._native.topics())

    def peers(self) -> list[dict[str, Any]]:
        """Other participants that are known now: {guid, name, host, pid}."""
        return list(self._native.peers())

    def endpoints(self) -> list[dict[str, Any]]:
        """Theirs: {guid, participant, writes, topic, type, partitions, reliable, transient_local}."""
        return list(self._native.endpoints())


# Of native/bus/request.hpp, where the numbers are those of the wire.
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
    """Joins a bus.

    profile: a file; name: which of its profiles. Or without a file: idl, where types are declared, topics {name: type},
    domain; on this machine's loopback.

    Raises
    ------
    UsageError: the profile, the IDL, an implementation that is not there or lacks what is asked. BusError: bus.open.
    """
    if profile is not None:
        if idl is not None or topics is not None or domain:
            raise UsageError(
                "bus.bad_profile",
                "a profile file was given, and idl, topics or domain beside it",
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
    """The same with a profile's text; files that it names are looked for in `folder`."""
    return Bus(_bus.open_text(profile, name, str(folder), implementation))


def implementations() -> list[str]:
    """Names that can be opened here."""
    return list(_bus.implementations())
