"""Ctrl-C and SIGTERM for code in which Python's exception between any two instructions would do harm."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sonde.core.errors import Exit


@contextmanager
def signals(
    handler: Callable[[int, Any], None], numbers: Sequence[int] = (signal.SIGINT, signal.SIGTERM)
) -> Iterator[None]:
    """Signals go to `handler` during the block, if the main thread asks; in other threads nothing changes.

    Ignored signals, such as SIGHUP under nohup, stay ignored. SIGINT does not: a script's shell ignores it for all
    commands that it starts with &, and a user who sends it to such a process means it.
    """
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            # None: it belonged to a library that was loaded before Python, and cannot be restored from here.
            signal.signal(number, signal.SIG_DFL if old is None else old)


def once(_signal: int, _frame: Any) -> None:
    """A command's handler of SIGINT: it raises KeyboardInterrupt; during its handling a second SIGINT ends the
    process.
    """
    signal.signal(signal.SIGINT, lambda *_: os._exit(Exit.INTERRUPTED))
    raise KeyboardInterrupt


class PutOff:
    """Whether the user wants to stop. Call `leave` where stopping is safe; `came` is the state."""

    def __init__(self) -> None:
        self.came = False

    def leave(self, *_: object) -> None:
        """Raise KeyboardInterrupt if a signal came. It accepts the arguments of progress callbacks."""
        if self.came:
            raise KeyboardInterrupt


@contextmanager
def put_off(last_message: str) -> Iterator[PutOff]:
    """Delay a Ctrl-C or SIGTERM until the work inside calls `leave`. A second one ends the process at once.

    For work inside HDF5, xarray and the imports of both: an exception between taking a lock and the block that frees it
    leaves the lock taken, and the following cleanup then waits for ever.

    last_message: the text on stderr when the second signal ends the process with `Exit.INTERRUPTED`.
    """
    asked = PutOff()

    def ask(_signal: int, _frame: Any) -> None:
        if asked.came:
            os.write(2, f"\n{last_message}\n".encode())  # a stream may be in the middle of a write
            os._exit(Exit.INTERRUPTED)
        asked.came = True

    with signals(ask):
        yield asked
