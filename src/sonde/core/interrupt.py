"""Ctrl-C and SIGTERM where Python's own way of telling, an exception between any two instructions, does harm."""

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
    """Signals go to `handler` meanwhile, if the main thread asks; another's go where they went.

    What is ignored, as SIGHUP under nohup, stays so. Not SIGINT: a script's shell ignores it for all that it
    starts with &, and who sends it to such a process means it.
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
            signal.signal(number, old)


def once(_signal: int, _frame: Any) -> None:
    """A command's handler of SIGINT: KeyboardInterrupt; while that is dealt with, another one ends the process."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(Exit.INTERRUPTED))
    raise KeyboardInterrupt


class PutOff:
    """Whether the user wants to leave. `leave` goes where that can be done in order; `came` tells."""

    def __init__(self) -> None:
        self.came = False

    def leave(self, *_: object) -> None:
        """Raises KeyboardInterrupt when it was asked for. Takes what callbacks of progress are given."""
        if self.came:
            raise KeyboardInterrupt


@contextmanager
def put_off(last_words: str) -> Iterator[PutOff]:
    """Keeps a Ctrl-C or SIGTERM until the work inside calls `leave`. A second one ends the process at once.

    For work inside HDF5, xarray and the imports of both: an exception that comes between taking a lock and the
    block that frees it leaves the lock taken, and the cleaning up that follows then waits for ever.

    last_words: what the second one says on stderr before the process ends with `Exit.INTERRUPTED`.
    """
    asked = PutOff()

    def ask(_signal: int, _frame: Any) -> None:
        if asked.came:
            os.write(2, f"\n{last_words}\n".encode())  # a stream may be in the middle of a write
            os._exit(Exit.INTERRUPTED)
        asked.came = True

    with signals(ask):
        yield asked
