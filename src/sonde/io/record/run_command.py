"""Run a command with the user's streams, pass signals on to it, and end it at its time limit."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from sonde.core.errors import UsageError
from sonde.core.interrupt import signals
from sonde.core.surroundings import place_of_ranks

TOO_LONG = 124  # the exit status of a command that was ended at its time limit, as for timeout(1)
GRACE_S = 10.0  # between SIGTERM and SIGKILL
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # signals that ask a command to end
SETTLE_S = 0.02  # after this time a signal to a group has reached all of its members


@contextmanager
def stop_requested() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a signal has asked this process to end. The process then ends in order."""
    received: list[int] = []
    with signals(lambda number, _: received.append(number), END_SIGNALS):
        yield lambda: bool(received)


def run(
    words: Sequence[str],
    env: Mapping[str, str],
    output: IO[Any] | int | None = None,
    errors: IO[Any] | int | None = None,
    stdin: int | None = None,
    cwd: Path | None = None,
    limit_s: float | None = None,
) -> tuple[int, bool]:
    """The command's exit status, TOO_LONG if it ran longer than `limit_s`, and whether this process was asked to end.

    Raises
    ------
    UsageError  io.no_program.
    """
    received: list[int] = []
    pending: set[int] = set()
    child: list[subprocess.Popen[bytes]] = []
    passing = False

    def on_signal(number: int, _frame: object) -> None:
        nonlocal passing
        received.append(number)
        pending.add(number)
        if passing or not child:  # the call that runs already handles this signal, too
            return
        passing = True
        while pending:
            time.sleep(SETTLE_S)
            numbers = set(pending)
            pending.clear()
            for one in numbers - witness.received():
                child[0].send_signal(one)
        passing = False

    with _Witness() as witness, signals(on_signal, END_SIGNALS):
        try:
            child.append(
                # The command inherits other open descriptors, as from `7>file` or `<(…)` in a shell.
                subprocess.Popen(
                    list(words),
                    env=dict(env),
                    stdin=stdin,
                    stdout=output,
                    stderr=errors,
                    cwd=cwd,
                    close_fds=False,
                )
            )
        except OSError as error:
            raise UsageError(
                "io.no_program",
                f"cannot start '{words[0]}': {error.strerror or error}",
                "give a program that this machine can run; a script needs a first line that names its "
                "interpreter",
            ) from None
        pending.clear()
        if received:
            child[0].send_signal(received[0])
        code = _ended(child[0], limit_s)
    if code is None:
        return TOO_LONG, bool(received)
    return (128 - code if code < 0 else code), bool(received)


def _ended(child: subprocess.Popen[bytes], limit_s: float | None) -> int | None:
    """The child's return code; None for one that was ended at the limit."""
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        child.terminate()  # a launcher then ends its ranks
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    return None


class _Witness:
    """Distinguishes signals that reached this process's whole group, the command included, from signals to this process
    alone.

    A signal carries no information about its other receivers. So a helper process in the group waits with these signals
    blocked: a signal that reached the whole group is pending there.
    """

    def __enter__(self) -> _Witness:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def received(self) -> set[int]:
        """The signals that have reached the whole group since the last call."""
        status = Path(f"/proc/{self._process.pid}/status").read_text("utf-8", "replace")
        pending = 0
        for mask in re.findall(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)$", status, re.MULTILINE):
            pending |= int(mask, 16)
        found = {int(number) for number in END_SIGNALS if pending >> (number - 1) & 1}
        if found:
            self._end()
            self._start()
        return found

    def _start(self) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
        try:
            # The shell ends when its input ends, also if Sonde is killed. --kernel does not trace shells:
            # see run_request.STARTERS.
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", "read _"],
                cwd=place_of_ranks(),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
