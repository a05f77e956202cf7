"""The job shim, a program of its own: starts the commands of one job, one on each node, waits for them, and writes the
result.

    python -I run_job_shim.py FOLDER      (it waits for "g" on standard input; at end of file it starts nothing)

The shim outlives the job manager, which finds it by the process id in keeper.json. FOLDER/start.json holds what to
start. The shim writes `begun` before it starts anything, and exit.json when no process of the job is left. SIGTERM ends
the job: the shim sends TERM to its processes, and KILL when the grace_s of stop.json is over. The shim also ends what
the commands leave behind: such processes are in the job's cgroup, if it has one, and orphans become children of the
shim. It uses the standard library alone, as core/processes.py does, which it imports: so it starts quickly, and it
stays small for as long as the job runs.

The job's user chooses the folder and the output file. The job's own process opens them: they may be a pipe that nobody
reads, or on a file server that does not answer, and the shim waits for neither.
"""

from __future__ import annotations

import ctypes
import errno
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

if __name__ == "__main__":  # -I ignores PYTHONPATH, through which Sonde may have been found
    sys.path.append(str(Path(__file__).resolve().parents[3]))
from sonde.core.processes import signal_found

_SUBREAPER, _DIE_WITH_PARENT = 36, 1  # prctl(2): PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG
_JOIN_SESSION_KEYRING = 1  # keyctl(2)
_KEYCTL = {"x86_64": 250, "aarch64": 219, "ppc64le": 271, "riscv64": 219, "s390x": 280}
"""The number of keyctl(2) by machine: it has no wrapper in the C library. Source: syscalls(2), the kernel's tables."""
_HELD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_AFTER_KILL_S = 5.0  # after it, a process that cannot be killed is reported and no longer waited for
# The largest pipe to a launcher's standard input, B: the environment is written at once or not at all.
_PIPE = 1 << 20


def write_durably(path: Path, text: str) -> None:
    """Write a file atomically and flush it to disk. Only the owner may read it: it may hold secrets."""
    part = path.with_name(
        f"{path.name}.{secrets.token_hex(8)}.part"
    )  # as core/owned_files.py does, which is not imported here
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
    """The descendants of a process. Their depth is not limited: a job may be a chain of thousands."""
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


def end_group(cgroup: str) -> bool:
    """Kill all processes of a job's cgroup at once, also new forks. Source: cgroups(7), cgroup.kill.

    False: the job has no cgroup, or the kernel has no cgroup.kill (before Linux 5.14).
    """
    if cgroup:
        with suppress(OSError):
            Path(cgroup, "cgroup.kill").write_text("1")
            return True
    return False


def in_group(cgroup: str) -> list[int]:
    """The processes of a job's cgroup; [] if the job has no cgroup."""
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
        ):  # no more than needed: the pages in a user's pipes are limited
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, min(len(data), _PIPE))
    os.set_blocking(fd, False)
    try:
        return os.write(fd, data) == len(data)
    except BrokenPipeError:
        return None
    except OSError:
        return False


class JobShim:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan: dict[str, Any] = json.loads((folder / "start.json").read_text("utf-8"))
        self.running: dict[int, str] = {}  # pid of a node's command: the node
        self.pipes: list[int] = []
        self.troubles: dict[int, int] = {}  # pid: the pipe that carries why it did not become the command
        self.cgroup = str(self.plan.get("cgroup", ""))
        self.unread: set[str] = set()  # nodes whose launcher closed its standard input
        self.ended: dict[str, int] = {}  # node: status as waitpid has it
        self.first: tuple[str, int] | None = None  # the first failure: node, status
        self.asked = False
        self.why = ""

    def begin(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_SUBREAPER, 1, 0, 0, 0)
        self.libc = libc
        # Only sigtimedwait takes these signals: none gets lost between a check and a wait. Children get an empty
        # mask.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        write_durably(self.folder / "begun", f"{time.time_ns()}\n")
        for start in self.plan["starts"]:
            if not self._start(start):
                break

    def _start(self, start: dict[str, Any]) -> bool:
        """Fork a process that becomes a node's command; a pipe carries the reason if it cannot."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        source, sink = (
            os.pipe2(os.O_CLOEXEC)
            if start["remote"]
            else (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), -1)
        )
        try:
            shim = os.getpid()
            pid = os.fork()
            if pid == 0:
                self._become(start, source, writer, shim)
        except OSError as error:
            self.why = f"cannot start a process for node {start['node']}: {error.strerror}"
            self.first = self.first or (start["node"], 127 << 8)
            os.close(reader)
            if sink >= 0:
                os.close(sink)
            return False
        finally:
            os.close(source)
            os.close(writer)
        self.running[pid] = start["node"]
        self.troubles[pid] = reader
        if sink < 0:
            return True
        # The launcher's other end reads its environment from this pipe, and ends its command at the end of the pipe.
        self.pipes.append(sink)
        written = _write(sink, start["told"])
        if written is None:
            self.unread.add(start["node"])  # its exit status gives the reason
        if written is not False:
            return True
        self.why = (
            f"on {start['node']} '{start['words'][0]}' cannot take the environment: it exceeds {_PIPE} B"
        )
        self.first = self.first or (start["node"], 127 << 8)
        return False

    def _become(self, start: dict[str, Any], stdin: int, writer: int, shim: int) -> NoReturn:
        """Become the command, in the child process. It opens files with no other rights than the job's."""
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
                resource.setrlimit(resource.RLIMIT_NPROC, (most, most))  # of all tasks of its user together
            if self.plan.get("uid") is not None:
                os.setgroups(self.plan["groups"])
                os.setgid(self.plan["gid"])
                os.setuid(self.plan["uid"])
            about = "a session keyring of its own"  # its user's, and within that user's quota
            self._leave_keyring()
            # After the change of user, which resets this setting. If the shim is killed, the kernel kills its
            # commands too.
            self.libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != shim:
                os._exit(127)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            about = start["folder"]
            os.chdir(about)
            about = start["output"]
            # With O_NONBLOCK, a pipe that nobody reads is an error and does not block.
            output = os.open(
                about, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY, 0o666
            )
            os.set_blocking(output, True)
            for source, target in ((stdin, 0), (output, 1), (output, 2)):
                os.dup2(source, target)
            about = start["words"][0]
            os.execvpe(about, start["words"], start["environment"])
        except BaseException as error:
            reason = getattr(error, "strerror", None) or str(error)
            with suppress(OSError):
                os.write(
                    writer,
                    f"on {start['node']} '{about}' cannot be used: {reason}"[:1000].encode(
                        "utf-8", "replace"
                    ),
                )
        finally:
            os._exit(127)

    def _leave_keyring(self) -> None:
        """Give up the job manager's session keyring, which all its jobs would share: whoever has it reads and replaces
        the keys of all who put theirs there, such as tokens of AFS and Kerberos. Source: session-keyring(7).
        """
        number = _KEYCTL.get(os.uname().machine)
        if number is None:
            raise OSError(f"the number of keyctl(2) on {os.uname().machine} is not known to Sonde")
        # Null instead of a name: a keyring that nobody else can join.
        if self.libc.syscall(number, _JOIN_SESSION_KEYRING, None) < 0 and ctypes.get_errno() not in (
            errno.ENOSYS,  # a kernel without keyrings
            errno.EPERM,  # a container whose seccomp filter refuses keyrings to all
        ):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                node = self.running.pop(pid, None)
                if node is not None:
                    reason = self._failure(pid)
                    self.why = self.why or reason
                    if status == 0 and node in self.unread:
                        self.why = self.why or f"on {node} the launcher ended without reading its environment"
                        status = 127 << 8
                    self.ended[node] = status
                    if status and self.first is None:
                        self.first = (node, status)

    def _failure(self, pid: int) -> str:
        """The reason why a process did not become its command; "" if it did, or if the shim cannot know."""
        fd = self.troubles.pop(pid)
        try:
            # The pipe ends with the process, unless a child of it still has it open.
            os.set_blocking(fd, False)
            return os.read(fd, 4096).decode("utf-8", "replace")
        except OSError:
            return ""
        finally:
            os.close(fd)

    def _left(self) -> list[int]:
        return list(dict.fromkeys([*_below(os.getpid()), *in_group(self.cgroup)]))

    def _signal(self, number: int) -> None:
        if number == signal.SIGKILL:
            end_group(self.cgroup)
        # The shim has not waited for these children yet, so their process ids and groups are still theirs.
        for pid in self.running:
            with suppress(OSError):
                try:
                    os.killpg(pid, number)
                except ProcessLookupError:  # it has no group of its own yet
                    os.kill(pid, number)
        signal_found([pid for pid in self._left() if pid not in self.running], number, self._left)

    def run(self) -> None:
        """Run until no process of the job is left."""
        limit = self.plan["limit_s"]
        over_at = time.monotonic() + limit if limit > 0 else float("inf")
        while self.running and self.first is None and not self.asked and time.monotonic() < over_at:
            self._wait(over_at)
            self._reap()
        if self.asked and self.running:
            self.why = self._stop().get("reason", "") or "a signal asked it to end"
        elif self.running and self.first is None:
            self.why = f"its time limit of {limit:g} s is over"
        elif self.first is not None and self.running:
            self.why = self.why or f"its command on {self.first[0]} failed: the others were ended"
        # Also after a command that ended well: its background processes are part of the job.
        if self.running or self._left():
            self._end()

    def _stop(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.folder / "stop.json").read_text("utf-8")))
        except (OSError, ValueError):
            return {}

    def _wait(self, until: float) -> None:
        received = signal.sigtimedwait(_HELD, max(0.0, min(60.0, until - time.monotonic())))
        self.asked = self.asked or (received is not None and received.si_signo == signal.SIGTERM)

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
                    self._signal(number)  # also new forks
                time.sleep(0.02)

    def write_result(self) -> None:
        node, status = self.first if self.first is not None else ("", 0)
        result = {
            "ended_ns": time.time_ns(),
            "exit_status": os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1,
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
            "node": node,
            "why": self.why,
            "asked": self.asked,
            "left": len(self._left()),
        }
        if self.cgroup and not result["left"]:
            with suppress(OSError):
                os.rmdir(self.cgroup)
        write_durably(self.folder / "exit.json", json.dumps(result))


def main(folder: str) -> None:
    try:
        word = os.read(0, 2)
    except OSError:
        word = b""
    if word[:1] != b"g":
        return  # the manager that should start the job is gone: it never recorded that the job began
    shim = JobShim(Path(folder))
    shim.begin()
    shim.run()
    shim.write_result()


if __name__ == "__main__":
    main(sys.argv[1])
