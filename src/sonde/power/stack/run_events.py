"""Common parts of this room's daemons: events as JSON lines, readiness, and how they end."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any


def line(event: str, **values: Any) -> bytes:
    """One event as a line of standard output."""
    return json.dumps({"event": event, **values}, separators=(",", ":")).encode() + b"\n"


def notify(state: str) -> None:
    """Notify systemd, if it started this daemon: "READY=1". Source: sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
            to.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)


class Ending:
    """Whether a daemon must end. why: "" until then."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self.why = ""

    def ask(self, why: str) -> None:
        self.why = self.why or why
        self._asked.set()

    def wait(self, seconds: float) -> bool:
        """Wait; True as soon as the daemon must end."""
        return self._asked.wait(seconds)

    @property
    def asked(self) -> bool:
        return self._asked.is_set()


@contextmanager
def until_ended(with_parent: bool) -> Iterator[Ending]:
    """An Ending that SIGTERM, SIGINT and SIGHUP trigger; with_parent: also the end of standard input."""
    ending = Ending()
    before: Mapping[int, Any] = {}

    def ask(number: int, _frame: Any) -> None:
        ending.ask(signal.Signals(number).name)

    def listen() -> None:
        with suppress(OSError, ValueError):
            while select.select([sys.stdin], [], [], None)[0] and os.read(sys.stdin.fileno(), 4096):
                pass
        ending.ask("parent")

    if threading.current_thread() is threading.main_thread():
        before = {n: signal.signal(n, ask) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    if with_parent:
        threading.Thread(target=listen, daemon=True).start()
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
