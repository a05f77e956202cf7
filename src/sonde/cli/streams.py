"""Standard streams that a command can rely on, even if the shell passed them closed, full, without a reader, or slow.

A closed descriptor below 3 is dangerous: the next opened file gets its number, and a library that prints then writes
into a dataset.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from typing import TextIO

STDOUT = "standard output"


class ReaderGone(BrokenPipeError):
    """The reader of standard output has ended, as in `sonde ... | head -1`. This is not a fault of the command."""


class Descriptor(io.FileIO):
    """One of the two descriptors that a command prints to.

    A write waits even if the descriptor does not (O_NONBLOCK, which another program may have set for all that share
    it). After the first failure the descriptor leads to /dev/null, so that the interpreter's end does not fail again.
    must_arrive: whether a failure is raised, as ReaderGone or OSError; otherwise the text is lost and the command goes
    on.
    """

    def __init__(self, number: int, must_arrive: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._must_arrive = must_arrive

    def write(self, data: object, /) -> int:
        text = memoryview(data).cast("B")  # type: ignore[arg-type]
        while True:
            try:
                written: int | None = super().write(text)
            except OSError as error:
                discard(self.fileno())
                if not self._must_arrive:
                    return len(text)
                if error.errno == errno.EPIPE:
                    raise ReaderGone(error.errno, error.strerror, STDOUT) from None
                raise OSError(error.errno, error.strerror, STDOUT) from None
            if written is not None:
                return written
            waiting = select.poll()
            waiting.register(self.fileno(), select.POLLOUT)
            waiting.poll()


def discard(number: int) -> None:
    """Redirect a descriptor to /dev/null."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, number)
    os.close(nothing)


def secure() -> None:
    """Open the standard streams that are closed, and turn the others into a `Descriptor`.

    The replacement of a closed stream ends with exec: a traced program finds closed the streams that the user closed.
    Standard input fails when it is read, as a closed one does: an empty input would count as data.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDWR, os.O_RDWR)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # gets the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = _stream(sys.stdout, 1, must_arrive=True)
    sys.stderr = _stream(sys.stderr, 2, must_arrive=False)


def _stream(old: TextIO | None, number: int, must_arrive: bool) -> TextIO:
    if old is not None and not (isinstance(old, io.TextIOWrapper) and old.fileno() == number):
        return old  # it has been replaced, and its reader uses it
    raw = Descriptor(number, must_arrive)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=old.encoding if old else "utf-8",
        errors=old.errors if old else "backslashreplace",
        line_buffering=old.line_buffering or old.write_through if old else not must_arrive,
    )
