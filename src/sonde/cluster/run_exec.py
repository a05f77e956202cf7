"""Commands in nodes for a person at a terminal: output, signals and exit status."""

from __future__ import annotations

import fcntl
import os
import select
import selectors
import signal
import subprocess
import termios
import time
import tty
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sonde.cluster.run import Cluster, NodeProcess
from sonde.core.interrupt import signals

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE_S = 5.0  # between SIGTERM, or SIGHUP, and SIGKILL
_DRAIN_S = 1.0  # for the last output of commands, once they have ended
_LINE_BYTES = 1 << 16  # a longer line is printed in pieces


@dataclass(frozen=True)
class Ended:
    """How a command in a node ended. status: its exit status, 128 plus its number for a signal. out, err: output, if
    stored.
    """

    node: int
    status: int
    out: str = ""
    err: str = ""


class Ending:
    """Signals that this process received, passed on to commands: each further one is more forceful.

    The first Ctrl-C reaches the commands as SIGINT, the second as SIGTERM, the third as SIGKILL. SIGTERM and SIGHUP are
    passed on as they are at first; SIGKILL follows after a grace period. report: is called with messages for a person
    at a terminal.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self.came: list[int] = []
        self.report = report
        self._passed = 0
        self._kill_at_s: float | None = None

    def note(self, number: int, _frame: object) -> None:
        self.came.append(number)

    def pass_on(self, processes: Sequence[NodeProcess]) -> None:
        """To be called now and then while the commands run."""
        while self._passed < len(self.came):
            number = self.came[self._passed]
            self._passed += 1
            firmly = signal.SIGTERM if number == signal.SIGINT else signal.SIGKILL
            signal_to_send = (number, firmly, signal.SIGKILL)[min(self._passed, 3) - 1]
            if number == signal.SIGINT and self._passed == 1:
                self.report("asked the commands to end; Ctrl-C again sends SIGTERM, then SIGKILL")
            if signal_to_send != signal.SIGINT and self._kill_at_s is None:
                self._kill_at_s = time.monotonic() + _GRACE_S
            _send(processes, signal_to_send)
        if self._kill_at_s is not None and time.monotonic() > self._kill_at_s:
            _send(processes, signal.SIGKILL)

    def clear(self, processes: Sequence[NodeProcess]) -> None:
        """After the end: a user who interrupted a command wants none of its processes to stay, daemons neither."""
        if self.came:
            for process in processes:
                process.sweep()


def _send(processes: Sequence[NodeProcess], number: int) -> None:
    for process in processes:
        process.send_signal(number)


def attached(cluster: Cluster, node: int, command: Sequence[str], report: Callable[[str], None]) -> Ended:
    """Run a command in a node with this process's own stdin, stdout and stderr; at a terminal, in a new terminal."""
    ending = Ending(report)
    with signals(ending.note, ENDING):
        if os.isatty(0) and os.isatty(1):
            process = _at_terminal(cluster, node, command, ending)
        else:
            process = cluster.popen(node, command)
        try:
            while process.poll() is None:
                ending.pass_on([process])
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
        except BaseException:
            process.sweep()
            raise
        ending.clear([process])
    return Ended(node, _status(process.returncode))


def _at_terminal(cluster: Cluster, node: int, command: Sequence[str], ending: Ending) -> NodeProcess:
    """Run a command in a terminal of its own, and pass on input and output until it ends.

    A shell must lead the session of its terminal, and ours is not accessible from another pid namespace. All typed
    keys, Ctrl-C included, go to the command.
    """
    here, theirs = os.openpty()
    resized = [True]
    before = termios.tcgetattr(0)
    old = signal.signal(signal.SIGWINCH, lambda *_: resized.append(True))
    try:
        process = cluster.popen(
            node, ["setsid", "--ctty", *command], stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        try:
            tty.setraw(0, termios.TCSADRAIN)  # keys that were typed already are not lost
            sources = [0, here]
            while here in sources:
                if resized:
                    resized.clear()
                    fcntl.ioctl(here, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))
                ended = process.poll() is not None
                ready = select.select(sources, [], [], 0 if ended else 0.1)[0]
                for source in ready:
                    if piece := _piece(source):
                        _write(here if source == 0 else 1, piece)
                    else:
                        sources.remove(source)
                if ended and here not in ready:  # a background process may still hold the terminal
                    break
                ending.pass_on([process])
        except BaseException:
            process.sweep()
            raise
        return process
    finally:
        signal.signal(signal.SIGWINCH, old)
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        os.close(here)


def _piece(source: int) -> bytes:
    """The bytes that can be read; empty at the end, which a terminal without other users reports as an error."""
    try:
        return os.read(source, 1 << 16)
    except OSError:
        return b""


def _write(to: int, text: bytes) -> None:
    left = memoryview(text)
    while left:
        left = left[os.write(to, left) :]


def together(
    cluster: Cluster,
    nodes: Sequence[int],
    command: Sequence[str],
    report: Callable[[str], None],
    keep: bool = False,
) -> list[Ended]:
    """Run a command in several nodes at once, without input.

    Their output goes to this process's stdout and stderr in whole lines, each with the host's name in front; with
    `keep` it goes into the result instead.
    """
    ending = Ending(report)
    processes: list[NodeProcess] = []
    stored: dict[tuple[int, int], list[bytes]] = {(node, to): [] for node in nodes for to in (1, 2)}
    width = max(len(cluster.hostname(node)) for node in nodes)
    with signals(ending.note, ENDING), selectors.DefaultSelector() as selector:
        try:
            for node in nodes:
                pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
                process = cluster.popen(node, command, bufsize=0, **pipes)
                processes.append(process)
                head = f"{cluster.hostname(node):<{width}} | ".encode()
                for to, pipe in ((1, process.stdout), (2, process.stderr)):
                    assert pipe
                    take = stored[node, to].append if keep else _Lines(to, head).take
                    selector.register(pipe, selectors.EVENT_READ, take)
            _pump(
                selector,
                lambda: ending.pass_on(processes),
                lambda: all(p.poll() is not None for p in processes),
            )
        except BaseException:
            for process in processes:
                process.sweep()
            raise
        finally:
            for key in list(selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
        ending.clear(processes)
    texts = {key: b"".join(pieces).decode("utf-8", "replace") for key, pieces in stored.items()}
    return [
        Ended(node, _status(process.returncode), texts[node, 1], texts[node, 2])
        for node, process in zip(nodes, processes)
    ]


def _pump(selector: selectors.BaseSelector, look: Callable[[], None], over: Callable[[], bool]) -> None:
    """Pass on output until all commands have ended, and the output that is present by then.

    A daemon that one of the commands left may hold a pipe open, or write into it, for ever.
    """
    until_s = None
    while True:
        if until_s is None and over():
            until_s = time.monotonic() + _DRAIN_S
        ready = selector.select(0.1 if until_s is None else 0) if selector.get_map() else []
        for key, _ in ready:
            piece = os.read(key.fd, 1 << 16)
            try:
                key.data(piece)
            except BrokenPipeError:  # nobody reads our stdout: the command gets the same error as without us
                piece = b""
            if not piece:
                selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
        if until_s is not None and (not ready or time.monotonic() > until_s):
            break
        if until_s is None and not selector.get_map():
            time.sleep(0.02)
        look()
    for key in selector.get_map().values():
        key.data(b"")


class _Lines:
    """Writes whole lines to a descriptor, each with `head` in front. An empty piece ends the last line."""

    def __init__(self, to: int, head: bytes) -> None:
        self._to, self._head, self._rest = to, head, b""

    def take(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if self._rest and (not piece or len(self._rest) > _LINE_BYTES):
            lines.append(self._rest)
            self._rest = b""
        _write(self._to, b"".join(self._head + line + b"\n" for line in lines))


def _status(code: int) -> int:
    """The exit status as a shell reports it."""
    return 128 - code if code < 0 else code
