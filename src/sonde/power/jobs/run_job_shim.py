"""The keeper of one job: starts its commands, one a node, sees them end, and writes down how. A program of its own.

    python -I run_job_shim.py FOLDER      (its standard input says "go", or ends: then nothing is started)

It outlives the job manager, which finds it by the number that stands in keeper.json. FOLDER/start.json tells what to
start; `begun` is there before anything is, exit.json when nothing is left of it. SIGTERM ends the job: TERM to its
processes, and KILL when stop.json's grace_s is over. Whatever its commands leave behind is ended with them: it is in
the job's cgroup, where there is one, and what loses its parent becomes a child of the keeper's. Standard library alone:
it starts quickly, and is there for long. core/processes.py, which it imports, keeps to that.

What the job's user chose, folder and output, is opened by the job's own process: it may be a pipe that nobody reads, or
on a file server that does not answer, and the keeper waits for neither.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import secrets
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

if __name__ == "__main__":  # -I ignores PYTHONPATH, by which Sonde may have been found
    sys.path.append(str(Path(__file__).resolve().parents[3]))
from sonde.core.processes import signal_found

_SUBREAPER, _DIE_WITH_PARENT = 36, 1  # prctl(2): PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG
_HELD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_AFTER_KILL_S = 5.0  # then a process that cannot be killed is told instead of waited for
_PIPE = 1 << 20  # of a launcher's standard input, B: an environment is written at once or not at all


def kept(path: Path, text: str) -> None:
    """A file that is there as a whole, and on the disk, or not at all. Ours alone: it may have secrets in it."""
    part = path.with_name(
        f"{path.name}.{secrets.token_hex(8)}.part"
    )  # as core/owned_files.py, which is not here
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
    """Children of a process and theirs. Nobody says how deep they are: a job may be a chain of thousands."""
    found: list[int] = []
    wanted = [pid]
    while wanted:
        parent = wanted.pop()
        with suppress(OSError):
            for task in os.listdir(f"/proc/{parent}/task"):
                with suppress(OSError), open(f"/proc/{parent}/task/{task}/children") as file:
                    children = [int(child) for child in file.read().split()]
                    found += children
                    wanted += children
    return found


def end_group(cgroup: str) -> None:
    """Ends all that is in a job's cgroup, at once: what forks meanwhile, too. Source: cgroups(7), cgroup.kill."""
    if cgroup:
        with suppress(OSError):
            Path(cgroup, "cgroup.kill").write_text("1")


def in_group(cgroup: str) -> list[int]:
    """Processes of a job's cgroup; [] if the job has no cgroup."""
    with suppress(OSError, ValueError):
        return [int(pid) for pid in Path(cgroup, "cgroup.procs").read_text().split()] if cgroup else []
    return []


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
        self.pipes: list[int] = []
        self.troubles: dict[int, int] = {}  # pid: where it says why it became nothing
        self.cgroup = str(self.plan.get("cgroup", ""))
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

    def _start(self, start: dict[str, Any]) -> bool:
        """A process that becomes a node's command; it says by a pipe why it could not."""
        told, tell = os.pipe2(os.O_CLOEXEC)
        source, sink = (
            os.pipe2(os.O_CLOEXEC)
            if start["remote"]
            else (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), -1)
        )
        try:
            keeper = os.getpid()
            pid = os.fork()
            if pid == 0:
                self._become(start, source, tell, keeper)
        except OSError as error:
            self.why = f"on {start['node']} nothing can be started: {error.strerror}"
            self.first = self.first or (start["node"], 127 << 8)
            os.close(told)
            if sink >= 0:
                os.close(sink)
            return False
        finally:
            os.close(source)
            os.close(tell)
        self.running[pid] = start["node"]
        self.troubles[pid] = told
        if sink < 0:
            return True
        # A launcher's other end reads its environment here, and ends its command when this pipe ends.
        self.pipes.append(sink)
        written = _write(sink, start["told"])
        if written is None:
            self.unread.add(start["node"])  # its exit status gives the reason
        if written is not False:
            return True
        self.why = f"on {start['node']} '{start['words'][0]}' takes no environment of more than {_PIPE} B"
        self.first = self.first or (start["node"], 127 << 8)
        return False

    def _become(self, start: dict[str, Any], stdin: int, tell: int, keeper: int) -> NoReturn:
        """In a process of its own: the command, which opens nothing with other rights than the job's."""
        about = start["words"][0]
        try:
            os.setsid()
            if self.cgroup:
                about = self.cgroup
                Path(self.cgroup, "cgroup.procs").write_text("0")
            if (most := int(self.plan.get("max_tasks", 0))) > 0:
                about = f"a limit of {most} tasks"
                allowed = resource.getrlimit(resource.RLIMIT_NPROC)[1]
                most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
                resource.setrlimit(resource.RLIMIT_NPROC, (most, most))  # of its user's, all together
            if self.plan.get("uid") is not None:
                os.setgroups(self.plan["groups"])
                os.setgid(self.plan["gid"])
                os.setuid(self.plan["uid"])
            # After the user, whose change takes it back. Where the keeper is killed, its commands are not left to
            # themselves.
            self.libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != keeper:
                os._exit(127)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            about = start["folder"]
            os.chdir(about)
            about = start["output"]
            # A pipe that nobody reads is an error here, and nothing to wait for.
            output = os.open(
                about, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY, 0o666
            )
            os.set_blocking(output, True)
            for there, here in ((stdin, 0), (output, 1), (output, 2)):
                os.dup2(there, here)
            about = start["words"][0]
            os.execvpe(about, start["words"], start["environment"])
        except BaseException as error:
            reason = getattr(error, "strerror", None) or str(error)
            with suppress(OSError):
                os.write(
                    tell,
                    f"on {start['node']} '{about}' cannot be used: {reason}"[:1000].encode(
                        "utf-8", "replace"
                    ),
                )
        finally:
            os._exit(127)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                node = self.running.pop(pid, None)
                if node is not None:
                    told = self._told(pid)
                    self.why = self.why or told
                    if status == 0 and node in self.unread:
                        self.why = self.why or f"on {node} the launcher ended without reading its environment"
                        status = 127 << 8
                    self.ended[node] = status
                    if status and self.first is None:
                        self.first = (node, status)

    def _told(self, pid: int) -> str:
        """Why it did not become its command; "": it did, or its keeper cannot know."""
        told = self.troubles.pop(pid)
        try:
            os.set_blocking(told, False)  # it ends with the process, but for one that it left behind
            return os.read(told, 4096).decode("utf-8", "replace")
        except OSError:
            return ""
        finally:
            os.close(told)

    def _left(self) -> list[int]:
        return list(dict.fromkeys([*_below(os.getpid()), *in_group(self.cgroup)]))

    def _signal(self, number: int) -> None:
        if number == signal.SIGKILL:
            end_group(self.cgroup)
        # The keeper has not waited for these children yet, so their numbers and groups are still theirs.
        for pid in self.running:
            with suppress(OSError):
                try:
                    os.killpg(pid, number)
                except ProcessLookupError:  # it has no group of its own yet
                    os.kill(pid, number)
        signal_found([pid for pid in self._left() if pid not in self.running], number, self._left)

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
        if self.running or self._left():
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
                os.close(pipe)
        self.pipes.clear()
        for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, _AFTER_KILL_S)):
            end = time.monotonic() + seconds
            self._signal(number)
            while True:
                self._reap()
                if not self.running and not self._left():
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
            "left": len(self._left()),
        }
        if self.cgroup and not told["left"]:
            with suppress(OSError):
                os.rmdir(self.cgroup)
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
