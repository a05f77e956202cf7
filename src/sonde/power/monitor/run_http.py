"""The monitor's page, its events and its metrics over HTTP; with a token if other hosts can reach it.

    GET /          the live page (live.html live.css live.js)
    GET /events    server-sent events, one a second
    GET /now       the same once, as JSON
    GET /metrics   OpenMetrics or Prometheus' text
    GET /health    "ok"; needs no token and reveals nothing

A token comes as `Authorization: Bearer TOKEN`; a browser opens /?token=TOKEN once, and the token becomes a cookie.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import math
import socket
import ssl
import stat
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.power.monitor import openmetrics
from sonde.power.stack.config import Listen

PAGE = Path(__file__).with_name("page")
FILES = {
    "/": ("live.html", "text/html; charset=utf-8"),
    "/live.css": ("live.css", "text/css; charset=utf-8"),
    "/live.js": ("live.js", "text/javascript; charset=utf-8"),
}
# Connections that may be open, by what they do. An idle one has sent no request, or none since its last answer, or no
# valid token; a request is being answered; a follower receives the events. No kind takes another kind's places.
IDLE, REQUEST, FOLLOWER = "idle", "request", "follower"
PLACES = {IDLE: 16, REQUEST: 16, FOLLOWER: 32}
MAX_CONNECTIONS = sum(PLACES.values())
_MAX_THREADS = 4 * MAX_CONNECTIONS  # including those that just lost their places, whose threads are ending
PATIENCE_S = 10.0  # for a client to send its whole request, and to receive an event
ANSWER_S = 30.0  # for a client to receive an answer
# Bytes that wait here for a slow follower, besides what its own kernel buffers; beyond that it has PATIENCE_S.
_FOLLOWER_BYTES = 1 << 16
_WAIT_S = {IDLE: PATIENCE_S, REQUEST: ANSWER_S, FOLLOWER: math.inf}
LEAST_TOKEN = 16
COOKIE = "sonde_power"
_SAFE = {
    # style-src and script-src allow this page's own files alone: nothing in a sample can run.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Content:
    """The content that is served. metrics(openmetrics) and first() return texts. wait(n, seconds) returns the number
    and text of an event after number n, or None if none came.
    """

    metrics: Callable[[bool], str]
    first: Callable[[], tuple[int, str]]
    wait: Callable[[int, float], tuple[int, str] | None]
    now: Callable[[], str]


def read_token(path: str) -> str:
    """A token from its file, which only its owner may read.

    Raises
    ------
    UsageError  power.bad_token.
    """
    if not path:
        return ""
    try:
        mode = Path(path).stat().st_mode
        token = Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            "power.bad_token",
            f"the token file {path} cannot be read: {why}",
            "create it: openssl rand -hex 16",
        ) from None
    if mode & (stat.S_IRGRP | stat.S_IROTH | stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            "power.bad_token",
            f"users other than its owner can read or write the token file {path}",
            f"chmod 600 {path}",
        )
    if (
        len(token) < LEAST_TOKEN
        or not token.isascii()
        or not token.isprintable()
        or " " in token
        or ";" in token
    ):
        raise UsageError(
            "power.bad_token",
            f"the token in {path} has {len(token)} characters; allowed: {LEAST_TOKEN} or more, printable, "
            "without spaces and semicolons",
            "create one: openssl rand -hex 16",
        )
    return token


def token_of(authorization: str, cookies: str) -> str:
    """The token in a request's fields; "" if there is none.

    http.cookies is unsafe for untrusted input: its time for a quoted value grows with the square of the length (seconds
    for 60 kB, in Python before 3.11.10). A token is not quoted.
    """
    kind, _, token = authorization.partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    for one in cookies.split(";"):
        name, _, value = one.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def peer_of(address: str) -> str:
    """The peer of an address. All of loopback is one peer, and so are IPv6 addresses with the same first 64 bits: one
    host can have any number of these.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return "loopback" if found.is_loopback else str(ipaddress.ip_network((found, 64), strict=False))
        found = found.ipv4_mapped
    return "loopback" if found.is_loopback else str(found)


@dataclass
class _Place:
    peer: str
    kind: str
    until_s: float  # time.monotonic(); from then on the place is lost


class Places:
    """The places and their connections. Any thread may call it.

    If all places of a kind are taken, a new connection takes one from the peer that has most of them: the connection
    that does not read, or else the oldest. So no peer can shut out another, or another program at its own address,
    however many connections it opens. A connection that lost its place is shut down, which ends its thread.
    """

    def __init__(
        self, limits: Mapping[str, int] = PLACES, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits, self._now_s = limits, now_s
        self._all: dict[socket.socket, _Place] = {}  # the oldest of a kind comes first
        self.changed = threading.Condition()  # notified when a place is lost

    def take(self, connection: socket.socket, peer: str, kind: str) -> bool:
        """Give the connection a place of this kind instead of its earlier one. Only an idle one needs no earlier place.

        False: it has lost that place; or it wants to follow, all places are taken, and no peer has two of them.
        """
        with self.changed:
            if kind != IDLE and connection not in self._all:
                return False
            same = {
                one: place for one, place in self._all.items() if place.kind == kind and one is not connection
            }
            if len(same) >= self._limits[kind]:
                counts = Counter([peer, *(place.peer for place in same.values())])
                most = max(counts.values())
                if kind == FOLLOWER and most == 1:
                    return False
                givers = (
                    {peer} if counts[peer] == most > 1 else {one for one, n in counts.items() if n == most}
                )
                self._lose(
                    min((one for one in same if same[one].peer in givers), key=lambda one: same[one].until_s)
                )
            self._all.pop(connection, None)
            self._all[connection] = _Place(peer, kind, self._now_s() + _WAIT_S[kind])
            return True

    def has(self, connection: socket.socket) -> bool:
        with self.changed:
            return connection in self._all

    def sends(self, connection: socket.socket, wait_s: float) -> None:
        """Start the time limit for sending an event to a follower; math.inf: the follower has received it."""
        with self.changed:
            if (place := self._all.get(connection)) is not None:
                place.until_s = self._now_s() + wait_s

    def give_back(self, connection: socket.socket) -> None:
        with self.changed:
            self._all.pop(connection, None)

    def end_late(self) -> None:
        """Take the places of all connections whose time is over."""
        with self.changed:
            for late in [one for one, place in self._all.items() if place.until_s < self._now_s()]:
                self._lose(late)

    def count(self, kind: str) -> int:
        with self.changed:
            return sum(place.kind == kind for place in self._all.values())

    def _lose(self, connection: socket.socket) -> None:
        del self._all[connection]
        # shut down the plain socket: another thread may be in the middle of its TLS
        with suppress(OSError):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)
        self.changed.notify_all()


class Site:
    """The service, with its own threads; close() ends them.

    Raises
    ------
    UsageError  power.bad_token. EnvironmentFailure  power.cannot_listen, power.bad_certificate.
    """

    def __init__(self, listen: Listen, content: Content) -> None:
        self._token = read_token(listen.token_file)
        self._tls = _context(listen)
        self.content = content
        self.places = Places()
        self.closing = threading.Event()
        self._event = (-1, "")  # the newest event, by number; guarded by places.changed
        site = self

        class Handler(_Handler):
            pass

        Handler.site = site
        family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        server_type = type("_Server", (_Server,), {"address_family": family})
        try:
            self._server = server_type((listen.host, listen.port), Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise EnvironmentFailure(
                "power.cannot_listen",
                f"cannot listen at {listen.host}:{listen.port}: {why}",
                "set another address in [monitor] listen",
            ) from None
        self._server.tls, self._server.places = self._tls, self.places
        self._threads = [
            threading.Thread(target=self._server.serve_forever, args=(0.5,), daemon=True),
            threading.Thread(target=self._hear, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def asks_token(self) -> bool:
        return bool(self._token)

    def admits(self, offered: str) -> bool:
        return hmac.compare_digest(offered.encode("utf-8", "replace"), self._token.encode())

    @property
    def watchers(self) -> int:
        return self.places.count(FOLLOWER)

    def _hear(self) -> None:
        """Wait for events on behalf of the followers; they wait for this, and for the loss of their places."""
        number = -1
        while not self.closing.is_set():
            if (came := self.content.wait(number, 0.5)) is None:
                self.closing.wait(0.01)  # limits the rate, however soon wait() answers
                continue
            number = came[0]
            with self.places.changed:
                self._event = came
                self.places.changed.notify_all()

    def event_after(self, number: int, connection: socket.socket, wait_s: float) -> tuple[int, str] | None:
        """The newest event after a number, for a follower. None: none came, it lost its place, or the service ends."""
        with self.places.changed:
            self.places.changed.wait_for(
                lambda: self._event[0] > number or self.closing.is_set() or not self.places.has(connection),
                wait_s,
            )
            return self._event if self._event[0] > number else None

    def close(self) -> None:
        self.closing.set()
        with self.places.changed:
            self.places.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join(5)


def _context(listen: Listen) -> ssl.SSLContext | None:
    if not listen.tls_certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(listen.tls_certificate, listen.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise EnvironmentFailure(
            "power.bad_certificate",
            f"the certificate {listen.tls_certificate} with the key {listen.tls_key} cannot be used: {error}",
            "set a PEM certificate and its unencrypted key",
        ) from None
    return context


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 32
    tls: ssl.SSLContext | None = None
    places: Places

    def __init__(self, *arguments: Any) -> None:
        self._free = threading.BoundedSemaphore(_MAX_THREADS)
        super().__init__(*arguments)

    def service_actions(self) -> None:
        """Called by serve_forever() between two requests, and twice a second."""
        self.places.end_late()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._free.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        peer = peer_of(client_address[0])
        try:
            if self.tls is not None:
                request.settimeout(PATIENCE_S)
                try:
                    request = self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
                    self.places.take(request, peer, IDLE)
                    request.do_handshake()
                except (OSError, ValueError):
                    self.shutdown_request(request)
                    return
            else:
                self.places.take(request, peer, IDLE)
            super().process_request_thread(request, client_address)
        finally:
            self.places.give_back(request)
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the client went away


class _Handler(BaseHTTPRequestHandler):
    site: Site
    timeout = ANSWER_S  # of its socket; places have their own time limits
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "Sonde", ""

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        with suppress(OSError, ValueError):
            self._get()
        if not self.close_connection and not self._moves(IDLE):
            self.close_connection = True

    def _moves(self, kind: str) -> bool:
        """Move to a place of another kind. False: there is none."""
        places = self.site.places
        if not places.has(self.connection):
            return False
        return places.take(self.connection, peer_of(self.client_address[0]), kind)

    def _get(self) -> None:
        if not self._from_here():
            return self._text(403, "this host name is not one of the monitor's\n")
        address = urllib.parse.urlsplit(self.path)
        if address.path == "/health":
            return self._text(200, "ok\n")
        if self.site.asks_token:
            asked = urllib.parse.parse_qs(address.query).get("token")
            if address.path == "/" and asked and self.site.admits(asked[0]):
                # Redirect, so that the address does not contain the token: addresses appear in histories and logs.
                return self._send(
                    303, "", "text/plain", {"Location": "/", "Set-Cookie": self._cookie(asked[0])}
                )
            if not self.site.admits(
                token_of(self.headers.get("Authorization", ""), self.headers.get("Cookie", ""))
            ):
                return self._text(
                    401,
                    "a token is needed: /?token=TOKEN, or Authorization: Bearer TOKEN\n",
                    {"WWW-Authenticate": "Bearer"},
                )
        content = self.site.content
        if address.path == "/events":
            return self._events()
        if not self._moves(REQUEST):
            self.close_connection = True
            return
        if address.path in FILES:
            name, kind = FILES[address.path]
            return self._send(200, (PAGE / name).read_text("utf-8"), kind)
        if address.path == "/metrics":
            wanted = openmetrics.accepted(self.headers.get("Accept", ""))
            kind = openmetrics.OPENMETRICS if wanted else openmetrics.TEXT
            return self._send(200, content.metrics(wanted), kind)
        if address.path == "/now":
            return self._send(200, content.now(), "application/json")
        self._text(404, "available: / /events /now /metrics /health\n")

    def _events(self) -> None:
        if not self._moves(FOLLOWER):
            return self._text(503, f"{PLACES[FOLLOWER]} browsers follow this page already\n")
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _FOLLOWER_BYTES)
        self.send_response(200)
        for name, value in {**_SAFE, "Content-Type": "text/event-stream", "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        number, text = self.site.content.first()
        self._event(f"data: {text}")
        while self.site.places.has(self.connection) and not self.site.closing.is_set():
            came = self.site.event_after(number, self.connection, 5.0)
            if came is None:
                self._event(": nothing new")  # this write detects a browser that is gone
                continue
            number, text = came
            self._event(f"data: {text}")

    def _event(self, text: str) -> None:
        self.site.places.sends(self.connection, PATIENCE_S)
        self.wfile.write(text.encode() + b"\n\n")
        self.wfile.flush()
        self.site.places.sends(self.connection, math.inf)

    def _cookie(self, token: str) -> str:
        secure = "; Secure" if self.site._tls is not None else ""
        return f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/{secure}"

    def _from_here(self) -> bool:
        """Without a token only names of loopback are answered: a page on the web must not reach the monitor by a name
        of its own that resolves to 127.0.0.1.
        """
        if self.site.asks_token:
            return True
        host = urllib.parse.urlsplit(f"//{self.headers.get('Host', 'localhost')}").hostname or ""
        if host == "localhost":
            return True
        with suppress(ValueError):
            return ipaddress.ip_address(host).is_loopback
        return False

    def _text(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        self._send(status, text, "text/plain; charset=utf-8", headers)

    def _send(self, status: int, text: str, kind: str, headers: dict[str, str] | None = None) -> None:
        body = text.encode()
        self.send_response(status)
        fields = {**_SAFE, "Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def as_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
