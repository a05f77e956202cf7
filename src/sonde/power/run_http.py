"""The monitor's page, its events and its metrics over HTTP; with a token where others than this machine reach it.

    GET /          the live page (live.html live.css live.js)
    GET /events    server-sent events, one a second
    GET /now       the same once, as JSON
    GET /metrics   OpenMetrics or Prometheus' text
    GET /health    "ok"; asks for no token and tells nothing

A token comes as `Authorization: Bearer TOKEN`; a browser is given /?token=TOKEN once, which becomes a cookie.
"""

from __future__ import annotations

import hmac
import http.cookies
import ipaddress
import json
import socket
import ssl
import stat
import threading
import time
import urllib.parse
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.power import openmetrics
from sonde.power.config import Listen

PAGE = Path(__file__).with_name("page")
FILES = {
    "/": ("live.html", "text/html; charset=utf-8"),
    "/live.css": ("live.css", "text/css; charset=utf-8"),
    "/live.js": ("live.js", "text/javascript; charset=utf-8"),
}
MOST_CONNECTIONS, MOST_WATCHERS = 96, 32
# Those that have proved nothing yet, or wait to ask again, are no more than these: of one more the oldest is dropped,
# so that silent strangers shut nobody out.
MOST_WAITING = 32
PATIENCE_S = 10.0  # for a client to say all of what it wants, and to take what it is sent
LEAST_TOKEN = 16
COOKIE = "sonde_power"
_SAFE = {
    # style-src and script-src of this page's own files alone: nothing a sample says can run.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Content:
    """What is served. metrics(openmetrics) and first() make texts; wait(n, seconds) gives the number and text of an
    event after number n, or None where none came."""

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
            "power.bad_token", f"the token file {path} cannot be read: {why}", "make it: openssl rand -hex 16"
        ) from None
    if mode & (stat.S_IRGRP | stat.S_IROTH | stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            "power.bad_token",
            f"others than its owner can read or write the token file {path}",
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
            "without blanks and semicolons",
            "make one: openssl rand -hex 16",
        )
    return token


class Site:
    """The service. Its threads are its own; close() ends them.

    Raises
    ------
    UsageError  power.bad_token. EnvironmentFailure  power.cannot_listen, power.bad_certificate.
    """

    def __init__(self, listen: Listen, content: Content) -> None:
        self._token = read_token(listen.token_file)
        self._tls = _context(listen)
        self.content = content
        self.watchers = 0
        self.closing = threading.Event()
        self._lock = threading.Lock()
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
                "give another address by [monitor] listen",
            ) from None
        self._server.tls = self._tls
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.5,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def asks_token(self) -> bool:
        return bool(self._token)

    def admits(self, offered: str) -> bool:
        return hmac.compare_digest(offered.encode("utf-8", "replace"), self._token.encode())

    def watch(self, more: int) -> bool:
        """Counts who follows the page; False: there are as many as may be."""
        with self._lock:
            if more > 0 and self.watchers >= MOST_WATCHERS:
                return False
            self.watchers += more
            return True

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


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
            "give a PEM certificate and its unencrypted key",
        ) from None
    return context


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 32
    tls: ssl.SSLContext | None = None

    def __init__(self, *arguments: Any) -> None:
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._waiting: dict[socket.socket, float] = {}  # since when, time.monotonic(): the oldest comes first
        self._lock = threading.Lock()
        super().__init__(*arguments)

    def waits(self, connection: socket.socket) -> None:
        """It has a request to make, and until it has proved that it may, it can be dropped."""
        with self._lock:
            self._waiting.pop(connection, None)
            while len(self._waiting) >= MOST_WAITING:
                self._drop(next(iter(self._waiting)))
            self._waiting[connection] = time.monotonic()

    def waits_no_more(self, connection: socket.socket) -> None:
        """It has proved that it may, or has ended."""
        with self._lock:
            self._waiting.pop(connection, None)

    def _drop(self, connection: socket.socket) -> None:
        del self._waiting[connection]
        with suppress(OSError):  # of the plain one: another thread may be in the middle of its TLS
            socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def service_actions(self) -> None:
        """Called by serve_forever() between two requests, and twice a second."""
        with self._lock:
            late = [one for one, since_s in self._waiting.items() if time.monotonic() - since_s > PATIENCE_S]
            for one in late:
                self._drop(one)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)  # who holds all connections must not take all memory, too
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            if self.tls is not None:
                request.settimeout(PATIENCE_S)
                try:
                    request = self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
                    self.waits(request)
                    request.do_handshake()
                except (OSError, ValueError):
                    self.shutdown_request(request)
                    return
            else:
                self.waits(request)
            super().process_request_thread(request, client_address)
        finally:
            self.waits_no_more(request)
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that went away


class _Handler(BaseHTTPRequestHandler):
    site: Site
    timeout = PATIENCE_S
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "Sonde", ""

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        server: Any = self.server
        with suppress(OSError, ValueError):
            try:
                self._get(server)
            finally:
                server.waits(self.connection)

    def _get(self, server: Any) -> None:
        if not self._from_here():
            return self._text(403, "this address is not one of the monitor's\n")
        address = urllib.parse.urlsplit(self.path)
        if address.path == "/health":
            return self._text(200, "ok\n")
        if self.site.asks_token:
            asked = urllib.parse.parse_qs(address.query).get("token")
            if address.path == "/" and asked and self.site.admits(asked[0]):
                # The address is not to keep the token: it stands in histories and logs.
                return self._send(
                    303, "", "text/plain", {"Location": "/", "Set-Cookie": self._cookie(asked[0])}
                )
            if not self.site.admits(self._offered()):
                return self._text(
                    401,
                    "a token is needed: /?token=TOKEN, or Authorization: Bearer TOKEN\n",
                    {"WWW-Authenticate": "Bearer"},
                )
        server.waits_no_more(self.connection)
        content = self.site.content
        if address.path in FILES:
            name, kind = FILES[address.path]
            return self._send(200, (PAGE / name).read_text("utf-8"), kind)
        if address.path == "/metrics":
            wanted = openmetrics.accepted(self.headers.get("Accept", ""))
            kind = openmetrics.OPENMETRICS if wanted else openmetrics.TEXT
            return self._send(200, content.metrics(wanted), kind)
        if address.path == "/now":
            return self._send(200, content.now(), "application/json")
        if address.path == "/events":
            return self._events()
        self._text(404, "there are / /events /now /metrics /health\n")

    def _events(self) -> None:
        if not self.site.watch(1):
            return self._text(503, f"{MOST_WATCHERS} browsers follow this page already\n")
        try:
            self.close_connection = True
            self.send_response(200)
            for name, value in {**_SAFE, "Content-Type": "text/event-stream", "Connection": "close"}.items():
                self.send_header(name, value)
            self.end_headers()
            number, text = self.site.content.first()
            self._event(text)
            while not self.site.closing.is_set():
                if (came := self.site.content.wait(number, 5.0)) is None:
                    self.wfile.write(b": nothing new\n\n")  # a browser that is gone is noticed by this
                    continue
                number, text = came
                self._event(text)
        finally:
            self.site.watch(-1)

    def _event(self, text: str) -> None:
        self.wfile.write(b"data: " + text.encode() + b"\n\n")
        self.wfile.flush()

    def _offered(self) -> str:
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return token.strip()
        cookies: http.cookies.SimpleCookie = http.cookies.SimpleCookie()
        with suppress(http.cookies.CookieError):
            cookies.load(self.headers.get("Cookie", ""))
        return cookies[COOKIE].value if COOKIE in cookies else ""

    def _cookie(self, token: str) -> str:
        secure = "; Secure" if self.site._tls is not None else ""
        return f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/{secure}"

    def _from_here(self) -> bool:
        """Without a token only names of loopback are answered to: a page of the web must not reach it by a name of its
        own that leads to 127.0.0.1."""
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
        told = {**_SAFE, "Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}
        for name, value in told.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def as_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
