"""The keeper of one job: starts its commands, one a node, sees them end, and writes down how. A program of its own.

    python -I run_job_keeper.py FOLDER      (its standard input says "go", or ends: then nothing is started)

It outlives the job manager, which finds it by the number that stands in keeper.json. FOLDER/start.json tells what to
start; `begun` is there before anything is, exit.json when nothing is left of it. SIGTERM ends the job: TERM to its
processes, and KILL when stop.json's grace_s is over. Whatever its commands leave behind is ended with them: what
loses its parent becomes a child of the keeper's. Standard library alone: it starts quickly, and is there for long.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_SUBREAPER, _DIE_WITH_PARENT = 36, 1  # prctl(2): PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG
_HELD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_AFTER_KILL_S = 5.0  # then a process that cannot be killed is told instead of waited for
_PIPE = 1 << 20  # of a launcher's standard input, B: an environment is written at once or not at all


def kept(path: Path, text: str) -> None:
    """A file that is there as a whole, and on the disk, or not at all. Ours alone: it may have secrets in it."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)  # never one that somebody else has open
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _below(pid: int) -> list[int]:
    """Children of a process and theirs."""
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                for child in file.read().split():
                    found += [int(child), *_below(int(child))]
    return found


def _write(fd: int, text: str) -> bool | None:
    """Writes into an empty pipe without waiting, so that one slow launcher does not delay the others.

    True: all was written; False: not all; None: the reader has closed it.
    """
    data = os.fsencode(text)
    with suppress(OSError):
        if len(data) > fcntl.fcntl(
            fd, fcntl.F_GETPIPE_SZ
        ):  # no more than is needed: a user has so many pages of pipes
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, min(len(data), _PIPE))
    os.set_blocking(fd, False)
    try:
        return os.write(fd, data) == len(data)
    except BrokenPipeError:
        return None
    except OSError:
        return False


class Keeper:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan: dict[str, Any] = json.loads((folder / "start.json").read_text("utf-8"))
        self.running: dict[int, str] = {}  # pid of a node's command: the node
        self.processes: list[Any] = []
        self.pipes: list[Any] = []
        self.unread: set[str] = set()  # nodes whose launcher closed its standard input
        self.ended: dict[str, int] = {}  # node: status as waitpid has it
        self.first: tuple[str, int] | None = None  # who failed first
        self.asked = False
        self.why = ""

    def begin(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_SUBREAPER, 1, 0, 0, 0)
        self.libc = libc
        # Taken by sigtimedwait alone: none comes between a look and a wait. Children get an empty mask.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        kept(self.folder / "begun", f"{time.time_ns()}\n")
        for start in self.plan["starts"]:
            if not self._start(start):
                break

    @contextmanager
    def _as_user(self) -> Iterator[None]:
        """Files and folders are opened with no other rights than the job's."""
        if self.plan.get("uid") is None:
            yield
            return
        groups = os.getgroups()
        os.setgroups(self.plan["groups"])
        os.setegid(self.plan["gid"])
        os.seteuid(self.plan["uid"])
        try:
            yield
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)

    def _start(self, start: dict[str, Any]) -> bool:
        who: dict[str, Any] = {}
        if self.plan.get("uid") is not None:
            who = {"user": self.plan["uid"], "group": self.plan["gid"], "extra_groups": self.plan["groups"]}

        def before() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            # Where the keeper is killed, its commands are not left to themselves.
            self.libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)

        try:
            with self._as_user():
                os.chdir(start["folder"])
                output = os.open(
                    start["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666
                )
            with os.fdopen(output, "ab") as file:
                # A launcher's other end reads its environment here, and ends its command when this pipe ends.
                process = subprocess.Popen(
                    start["words"],
                    env=start["environment"],
                    stdin=subprocess.PIPE if start["remote"] else subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=before,
                    **who,
                )
        except (OSError, subprocess.SubprocessError) as error:
            told = getattr(error, "filename", None) or start["words"][0]
            reason = getattr(error, "strerror", None) or str(error)
            self.why = f"on {start['node']} '{os.fsdecode(told)}' cannot be used: {reason}"
            self.first = self.first or (start["node"], 127 << 8)
            return False
        self.processes.append(process)  # one that is collected waits for its process itself
        self.running[process.pid] = start["node"]
        if process.stdin is None:
            return True
        self.pipes.append(process.stdin)
        written = _write(process.stdin.fileno(), start["told"])
        if written is None:
            self.unread.add(start["node"])  # its exit status gives the reason
        if written is not False:
            return True
        self.why = f"on {start['node']} '{start['words'][0]}' takes no environment of more than {_PIPE} B"
        self.first = self.first or (start["node"], 127 << 8)
        return False

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                node = self.running.pop(pid, None)
                if node is not None:
                    if status == 0 and node in self.unread:
                        self.why = self.why or f"on {node} the launcher ended without reading its environment"
                        status = 127 << 8
                    self.ended[node] = status
                    if status and self.first is None:
                        self.first = (node, status)

    def _signal(self, number: int) -> None:
        groups = set(self.running)
        for pid in (*groups, *_below(os.getpid())):
            with suppress(OSError):
                if pid in groups:
                    os.killpg(pid, number)
                else:
                    os.kill(pid, number)

    def run(self) -> None:
        """Until nothing is left of the job."""
        limit = self.plan["limit_s"]
        over_at = time.monotonic() + limit if limit > 0 else float("inf")
        while self.running and self.first is None and not self.asked and time.monotonic() < over_at:
            self._wait(over_at)
            self._reap()
        if self.asked and self.running:
            self.why = self._stop().get("reason", "") or "it was told to end"
        elif self.running and self.first is None:
            self.why = f"its time limit of {limit:g} s is over"
        elif self.first is not None and self.running:
            self.why = self.why or f"its command on {self.first[0]} failed: the others were ended"
        # Also after a command that ended well: what it left in the background is part of the job.
        if self.running or _below(os.getpid()):
            self._end()

    def _stop(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.folder / "stop.json").read_text("utf-8")))
        except (OSError, ValueError):
            return {}

    def _wait(self, until: float) -> None:
        told = signal.sigtimedwait(_HELD, max(0.0, min(60.0, until - time.monotonic())))
        self.asked = self.asked or (told is not None and told.si_signo == signal.SIGTERM)

    def _end(self) -> None:
        grace = float(self._stop().get("grace_s") or self.plan["grace_s"])
        for pipe in self.pipes:
            with suppress(OSError):
                pipe.close()
        for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, _AFTER_KILL_S)):
            end = time.monotonic() + seconds
            self._signal(number)
            while True:
                self._reap()
                if not self.running and not _below(os.getpid()):
                    return
                if time.monotonic() >= end:
                    break
                if number == signal.SIGKILL:
                    self._signal(number)  # also what was forked meanwhile
                time.sleep(0.02)

    def tell(self) -> None:
        node, status = self.first if self.first is not None else ("", 0)
        told = {
            "ended_ns": time.time_ns(),
            "exit_status": os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1,
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
            "node": node,
            "why": self.why,
            "asked": self.asked,
            "left": len(_below(os.getpid())),
        }
        kept(self.folder / "exit.json", json.dumps(told))


def main(folder: str) -> None:
    try:
        told = os.read(0, 2)
    except OSError:
        told = b""
    if told[:1] != b"g":
        return  # who was to say so is no more: it never noted that it began
    keeper = Keeper(Path(folder))
    keeper.begin()
    keeper.run()
    keeper.tell()


if __name__ == "__main__":
    main(sys.argv[1])
