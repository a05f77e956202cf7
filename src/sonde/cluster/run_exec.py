"""Commands in nodes for a person at a terminal: what they print, how signals reach them, how they end."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sonde.cluster.run import Cluster, NodeProcess
from sonde.core.interrupt import signals

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE_S = 5.0  # between SIGTERM, or SIGHUP, and SIGKILL
_LINE_BYTES = 1 << 16  # a longer line is printed in pieces


@dataclass(frozen=True)
class Ended:
    """How a command in a node ended. status: its exit status, 128 and its number for a signal. out, err: if kept."""

    node: int
    status: int
    out: str = ""
    err: str = ""


class Ending:
    """Signals that came for this process, passed on to commands: each next one is told more firmly.

    A first Ctrl-C is a Ctrl-C for the commands, a second one SIGTERM, a third SIGKILL; SIGTERM and SIGHUP are
    themselves at first, and SIGKILL after a grace. tell: is given what a person at a terminal must know.
    """

    def __init__(self, tell: Callable[[str], None], by_terminal: bool = False) -> None:
        self.came: list[int] = []
        self.tell = tell
        self._by_terminal = by_terminal
        self._passed = 0
        self._kill_at_s: float | None = None

    def note(self, number: int, _frame: object) -> None:
        self.came.append(number)

    def pass_on(self, processes: Sequence[NodeProcess]) -> None:
        """To be called now and then while they run."""
        while self._passed < len(self.came):
            number = self.came[self._passed]
            self._passed += 1
            if number == signal.SIGINT and self._by_terminal:
                continue  # the terminal has told the command, which may be a shell, and goes on
            firmly = signal.SIGTERM if number == signal.SIGINT else signal.SIGKILL
            told = (number, firmly, signal.SIGKILL)[min(self._passed, 3) - 1]
            if number == signal.SIGINT and self._passed == 1:
                self.tell("told the commands to end; Ctrl-C again does so firmly")
            if told != signal.SIGINT and self._kill_at_s is None:
                self._kill_at_s = time.monotonic() + _GRACE_S
            _send(processes, told)
        if self._kill_at_s is not None and time.monotonic() > self._kill_at_s:
            _send(processes, signal.SIGKILL)

    def clear(self, processes: Sequence[NodeProcess]) -> None:
        """After the end: whoever interrupted a command wants nothing of it to stay, daemons neither."""
        if self.came and not self._by_terminal:
            for process in processes:
                process.sweep()


def _send(processes: Sequence[NodeProcess], number: int) -> None:
    for process in processes:
        process.send_signal(number)


def attached(cluster: Cluster, node: int, command: Sequence[str], tell: Callable[[str], None]) -> Ended:
    """Runs a command in a node with this process's own stdin, stdout and stderr.

    At a terminal it stays in this process's group, so that shells and editors work, and Ctrl-C reaches it from there.
    """
    terminal = os.isatty(0)
    ending = Ending(tell, terminal)
    with signals(ending.note, ENDING):
        process = cluster.popen(node, command, start_new_session=not terminal)
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


def together(
    cluster: Cluster,
    nodes: Sequence[int],
    command: Sequence[str],
    tell: Callable[[str], None],
    keep: bool = False,
) -> list[Ended]:
    """Runs a command in several nodes at once, without input.

    What they print goes to this process's stdout and stderr, whole lines, each with its host's name in front; with
    `keep` to the result instead.
    """
    ending = Ending(tell)
    processes: list[NodeProcess] = []
    kept: dict[tuple[int, int], list[bytes]] = {(node, to): [] for node in nodes for to in (1, 2)}
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
                    take = kept[node, to].append if keep else _Lines(to, head).take
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
    texts = {key: b"".join(pieces).decode("utf-8", "replace") for key, pieces in kept.items()}
    return [
        Ended(node, _status(process.returncode), texts[node, 1], texts[node, 2])
        for node, process in zip(nodes, processes)
    ]


def _pump(selector: selectors.BaseSelector, look: Callable[[], None], over: Callable[[], bool]) -> None:
    """Hands on what comes until all commands are over. A daemon that one of them left may hold a pipe open for ever."""
    while True:
        ended = over()
        ready = selector.select(0 if ended else 0.1) if selector.get_map() else []
        for key, _ in ready:
            piece = os.read(key.fd, 1 << 16)
            try:
                key.data(piece)
            except (
                BrokenPipeError
            ):  # nobody reads our stdout: the command is told so as it would be without us
                piece = b""
            if not piece:
                selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
        if ended and not ready:
            return
        if not ended and not selector.get_map():
            time.sleep(0.02)
        look()


class _Lines:
    """Writes whole lines to a descriptor, each with `head` in front. An empty piece ends the last one."""

    def __init__(self, to: int, head: bytes) -> None:
        self._to, self._head, self._rest = to, head, b""

    def take(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if self._rest and (not piece or len(self._rest) > _LINE_BYTES):
            lines.append(self._rest)
            self._rest = b""
        left = memoryview(b"".join(self._head + line + b"\n" for line in lines))
        while left:
            left = left[os.write(self._to, left) :]


def _status(code: int) -> int:
    """As a shell tells it."""
    return 128 - code if code < 0 else code
