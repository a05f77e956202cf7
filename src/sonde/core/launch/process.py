"""A running probe: its launcher as a child process, its events, and the removal of its ranks at the end.

How nothing stays behind:
  - The launcher gets its own session, so Ctrl-C in the terminal reaches only Sonde, which then sends `stop`.
  - When Sonde dies, even by SIGKILL, the kernel sends SIGTERM to the launcher (PR_SET_PDEATHSIG), which ends its ranks
    on every host; and the probe's stdin reaches end of file, which means stop.
  - When the launcher has ended, every process of this machine with this run's mark in its environment is killed.
    Process groups are no help: Open MPI gives each rank its own group, MPICH its own session.
  - Then the remains that the launcher had no time to remove (`remains.py`) are removed.
  - A watchdog, a shell that waits on a pipe from Sonde, does both if Sonde died before: MPICH's mpiexec passes SIGTERM
    on once and then waits for ever for a rank that ignores it.
"""

from __future__ import annotations

import ctypes
import os
import re
import selectors
import signal
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sonde.core import processes
from sonde.core.errors import EnvironmentFailure, SondeError
from sonde.core.events import Event
from sonde.core.events import parse as parse_event
from sonde.core.launch import remains, session_files
from sonde.core.surroundings import place_of_ranks

if TYPE_CHECKING:
    from types import TracebackType

MARK = "SONDE_RUN"  # in the environment of every process of a run
_PR_SET_PDEATHSIG = 1
_LINE_BYTES = 1 << 20  # a longer line on stdout is not an event
_TAIL_LINES = 8
SEE_LOG = "see the log"
SEE_SLURM = "see the log of slurmd on that host, and 'scontrol show node' for its state"
_KILL_GRACE_S = 5.0

# $1: the mark; $2: seconds in which the launcher may clean up by itself; $3: the run's folder; $4: the Python that ends
# the remaining processes, by pidfds, which a shell does not have, and removes the recorded remains (remains.py). `read`
# succeeds when Sonde reports that it has finished, and meets end of file when Sonde has died.
_GUARD = """
u=$(id -u)
own="^Uid:[[:space:]]*$u[[:space:]]*$u[[:space:]]*$u[[:space:]]"
left() {
  grep -sl "$own" /proc/[0-9]*/status | sed 's/status$/environ/' | xargs -r grep -slzx "$1" | cut -d/ -f3
}
read word && exit
for turn in 1 2 3 4 5 6 7 8 9 10; do
  sleep "$2"
  [ -n "$(left "$1")" ] || break
done
[ -n "$(left "$1")" ] || [ -f "$5" ] || exit
"$4" -P -c "$6" "$3" "${1#*=}" && exit
# Without a Python that finds Sonde: kill them by process id, looked up just before.
for turn in 1 2 3 4 5 6 7 8 9 10; do
  pids=$(left "$1")
  [ -n "$pids" ] || break
  kill -KILL $pids
  sleep 0.1
done
"""
_CLEAR = """
import signal, sys
from pathlib import Path
from sonde.core.launch.process import sweep
from sonde.core.launch.remains import clear
sweep(sys.argv[2], (signal.SIGKILL,))
clear(Path(sys.argv[1]))
"""


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    reason: "done", "stopped" (asked to stop, and ended by itself), "killed" (asked to stop, and had to be killed),
    "timeout", or the failure: "rank_died", "rank_failed", "launcher_died", "no_program", "no_slots", "no_host",
    "failed". status: the launcher's exit status, negative for a signal. error: None unless something failed.
    """

    reason: str
    status: int
    error: SondeError | None = None

    @property
    def ok(self) -> bool:
        """Whether the run measured everything that was requested, or as much as the time allowed."""
        return self.error is None

    def check(self) -> Ending:
        """Return itself, or raise `error` if there is one."""
        if self.error is not None:
            raise self.error
        return self


class ProbeProcess:
    """Starts a launcher's command and passes its events to `on_event`, in the thread that calls `wait`.

    Parameters
    ----------
    command    the result of `Launcher.command`.
    run_dir    an existing folder; stderr, and lines of stdout that are no events, are appended to run_dir/log.
    on_event   called with each event; an exception from it ends the run and is passed on.
    env        variables for the launcher itself, in addition to this process's own.
    grace_s    how long `stop` waits for the probe to finish by itself before SIGTERM, and then again before
               SIGKILL.
    room       prefix of error codes ("net.rank_died").
    cwd        the start folder; None: that of `place_of_ranks`.
    poll_s     how often `wait` checks while no event comes. Each check costs some 50 µs of a core: a program
               that measures disturbances of cores should be checked less often.

    The thread that starts it must outlive it: PR_SET_PDEATHSIG is tied to the thread, not to the process.

    Example
    -------
    >>> with ProbeProcess(command, run_dir, bar.update) as probe:   # doctest: +SKIP
    ...     ending = probe.wait()
    """

    def __init__(
        self,
        command: Sequence[str],
        run_dir: Path,
        on_event: Callable[[Event], None],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        grace_s: float = 10.0,
        room: str = "net",
        poll_s: float = 0.2,
    ) -> None:
        self.command = list(command)
        self.log = Path(run_dir) / "log"
        self.last_error: Event | None = None  # the last "error" event, which describes the failure best
        self._on_event = on_event
        self._env = {**os.environ, **(env or {})}
        self._mark = uuid.uuid4().hex
        self._env[MARK] = self._mark
        # hwloc, within mpirun and MPIs, looks for displays :0 to :9, and waits for any server at these names, which
        # each user of the machine can start.
        self._env.setdefault("HWLOC_COMPONENTS", "-gl")
        self._made: Path | None = None  # for MPI's session files
        self._cwd = cwd
        self._grace_s = grace_s
        self._room = room
        self._poll_s = poll_s
        self._child: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._log_file: IO[bytes] | None = None
        self._log_start = 0
        self._began = 0.0
        self._pending = b""
        self._asked: str | None = None  # why we stopped it: "stopped" or "timeout"
        self._escalate_at: float | None = None
        self._escalated = 0
        self._hurried = False
        self._ending: Ending | None = None

    # life

    def start(self) -> ProbeProcess:
        """Start the launcher.

        Raises EnvironmentFailure: the launcher is missing or cannot be run, or run_dir cannot be written.
        """
        try:
            self._log_file = self.log.open("ab")
        except OSError as error:
            raise EnvironmentFailure(
                f"{self._room}.unwritable",
                f"cannot write {self.log}: {error.strerror}",
                "choose another --output",
            ) from error
        self._log_start = self._log_file.tell()
        self._began = time.time()
        self._made, variables = session_files.make(self.command, self._env)
        self._env |= variables
        try:
            self._guard = subprocess.Popen(
                [
                    *("/bin/sh", "-c", _GUARD, "sonde-guard", f"{MARK}={self._mark}"),
                    f"{_KILL_GRACE_S / 10:g}",  # it checks ten times
                    str(run_dir := self.log.parent.absolute()),
                    sys.executable,
                    str(remains.note_path(run_dir)),
                    _CLEAR,
                ],
                cwd=place_of_ranks(),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._child = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log_file,
                env=self._env,
                cwd=self._cwd or place_of_ranks(),
                start_new_session=True,
                preexec_fn=die_with_parent(os.getpid()),
            )
        except OSError as error:
            self._log_file.close()
            self._dismiss_guard()
            self._remove_made()
            raise EnvironmentFailure(
                f"{self._room}.no_launcher",
                f"cannot start '{self.command[0]}': {error.strerror}",
                "check --launcher, and load its module",
            ) from error
        if self._made is not None:  # for the process that outlives us
            remains.note(self.log.parent, self.pid, (), self._env, self._began, self._made)
        return self

    def __enter__(self) -> ProbeProcess:
        return self if self._child else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ending is None and self._child is not None:
            self.kill()

    @property
    def pid(self) -> int:
        """Process id of the launcher, which is also its session."""
        assert self._child is not None, "not started"
        return self._child.pid

    def stop(self, reason: str = "stopped") -> None:
        """Ask the probe to finish: it ends its epoch, writes its records and exits. Returns at once; `wait` does the
        rest. Safe in a signal handler and from another thread; a second call is faster: SIGTERM at once.
        """
        if self._ending is not None or self._child is None:
            return
        if self._asked is not None:
            self._escalate_at = 0.0
            return
        self._escalate_at = time.monotonic() + self._grace_s
        self._asked = reason
        assert self._child.stdin is not None
        with suppress(OSError, ValueError):  # it has ended already; wait() finds out how
            os.write(self._child.stdin.fileno(), b"stop\n")
            # The pipe stays open until the launcher has ended: MPICH's mpiexec fails if it must pass on an end of file
            # after the ranks have ended (4.0.2).

    def interrupt(self, again: bool) -> None:
        """`stop` on a user's request. `again`: the user does not wait; ranks without time to stop are then not reported
        as faulty.
        """
        self._hurried = again
        self.stop()

    def kill(self) -> None:
        """End everything, and return when it is over. Data that the probe has flushed stays on disk."""
        if self._ending is not None or self._child is None:
            return
        self._asked = "killed"
        self._signal(signal.SIGTERM)  # a launcher ends ranks on other hosts only while it can still act
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_KILL_GRACE_S)
        self._signal(signal.SIGKILL)
        self._finish()

    def wait(self, timeout_s: float | None = None) -> Ending:
        """Pass on events until the run is over. After `timeout_s` the probe is stopped as by `stop`."""
        if self._ending is not None:
            return self._ending
        assert self._child is not None, "not started"
        assert self._child.stdout is not None
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        stdout = self._child.stdout.fileno()
        os.set_blocking(stdout, False)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(stdout, selectors.EVENT_READ)
                while True:
                    # Short enough to notice that a launcher died while a rank holds its stdout open.
                    if selector.select(self._poll_s) and not self._read(stdout):
                        break
                    if self._child.poll() is not None:
                        self._read(stdout)
                        break
                    self._watch(deadline)
            while self._child.poll() is None:
                self._watch(deadline)
                time.sleep(0.02)
        except BaseException:
            self.kill()
            raise
        return self._finish()

    # inside

    def _watch(self, deadline: float | None) -> None:
        now = time.monotonic()
        if deadline is not None and now > deadline and self._asked is None:
            self.stop("timeout")
        if self._escalate_at is not None and now > self._escalate_at and self._escalated < 2:
            self._signal(signal.SIGTERM if self._escalated == 0 else signal.SIGKILL)
            self._escalated += 1
            self._escalate_at = now + self._grace_s

    def _read(self, stdout: int) -> bool:
        """Read the available data; False at end of file."""
        while True:
            try:
                piece = os.read(stdout, 1 << 16)
            except BlockingIOError:
                return True
            if not piece:
                if self._pending:
                    self._line(self._pending)
                    self._pending = b""
                return False
            *lines, self._pending = (self._pending + piece).split(b"\n")
            for line in lines:
                self._line(line)
            if len(self._pending) > _LINE_BYTES:
                self._to_log(self._pending)
                self._pending = b""

    def _line(self, line: bytes) -> None:
        event = parse_event(line)
        if event is None:
            if line.strip():
                self._to_log(line)
            return
        if event["event"] == "error":
            self.last_error = event
        elif event["event"] == "start":  # all ranks are up, and so are their shared files
            remains.note(self.log.parent, self.pid, marked(self._mark), self._env, self._began, self._made)
        self._on_event(event)

    def _to_log(self, line: bytes) -> None:
        assert self._log_file is not None
        self._log_file.write(line.rstrip(b"\r") + b"\n")
        self._log_file.flush()

    def _signal(self, number: int) -> None:
        """Send a signal to the launcher, which passes SIGTERM on to ranks on all hosts."""
        assert self._child is not None
        self._child.send_signal(number)  # no effect if it has ended

    def _dismiss_guard(self) -> None:
        if self._guard is not None:
            with suppress(subprocess.TimeoutExpired):
                self._guard.communicate(b"through\n", timeout=5)

    def _remove_made(self) -> None:
        if self._made is not None:
            session_files.remove(self._made)

    def _finish(self) -> Ending:
        assert self._child is not None
        assert self._log_file is not None
        status = self._child.wait()
        sweep(self._mark)
        remains.clear(self.log.parent)
        self._remove_made()
        self._dismiss_guard()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._log_file.close()
        self._ending = self._classify(status)
        return self._ending

    def _classify(self, status: int) -> Ending:
        log = self.own_log()
        if self._escalated > 0 and self._hurried:
            return Ending("killed", status)
        if self._escalated > 0:
            return Ending("timeout" if self._asked == "timeout" else "killed", status, self._not_answering())
        if self._asked == "killed":
            return Ending("killed", status)
        if status == 0:
            return Ending(self._asked or "done", 0)
        reason, what, hint = explain(log, status, self.command)
        if self.last_error is not None:  # the probe reported the failure itself
            code = str(self.last_error.get("code") or f"{self._room}.{reason}")
            what = str(self.last_error.get("what") or what)
            hint = str(self.last_error.get("hint") or "")  # the log only shows how ranks ended with it
        else:
            code = f"{self._room}.{reason}"
            hint = with_tail(hint, log)
        return Ending(reason, status, EnvironmentFailure(code, what, hint, str(self.log)))

    def _not_answering(self) -> SondeError:
        return EnvironmentFailure(
            f"{self._room}.not_answering",
            f"the ranks did not stop within {self._grace_s:g} s of the request, and were killed",
            with_tail(SEE_LOG, self.own_log()),
            str(self.log),
        )

    def own_log(self) -> str:
        """The end of this run's part of the log."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._log_start, size - (1 << 16)))
                return file.read().decode("utf-8", errors="replace")
        except OSError:
            return ""


def marked(mark: str, everybody: bool = False) -> list[int]:
    """Process ids of this user's processes whose environment contained this run's mark at their start.

    everybody: of all users, as agents change theirs. This starts a process that reads; see `processes.carriers`.
    """
    if everybody:
        every = (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit())
        return processes.carriers(f"{MARK}={mark}", every).found
    return [pid for pid in processes.of_user(os.getuid()) if _carries(pid, mark)]


def _carries(pid: int, mark: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return f"{MARK}={mark}".encode() in environ.read().split(b"\0")
    except OSError:  # another user's, or just ended
        return False


def signal_marked(pid: int, mark: str, number: int) -> None:
    """Send a signal to a process with this run's mark: not to a later process with the same number, and not to one that
    has ended or belongs to another user.
    """
    processes.signal_one(pid, number, lambda: _carries(pid, mark))


def sweep(mark: str, numbers: Sequence[int] = (signal.SIGTERM, signal.SIGKILL)) -> None:
    """End every process of this machine with this run's mark; each has a second to clean up first."""
    asked: set[int] = set()
    for number in numbers:
        for _ in range(50):
            left = marked(mark)
            if not left:
                return
            for pid in left:
                if number == signal.SIGKILL or pid not in asked:
                    asked.add(pid)
                    signal_marked(pid, mark, number)
            time.sleep(0.02)


def with_tail(hint: str, log: str) -> str:
    """`hint` with the last lines of the log below it."""
    lines = deque((line.rstrip() for line in log.splitlines() if re.search(r"\w", line)), maxlen=_TAIL_LINES)
    if not lines:
        return hint
    head = f"{hint}; the log ends with" if hint else "the log ends with"
    return "\n".join([head, *(f"    {line}" for line in lines)])


def without_log(error: SondeError) -> SondeError:
    """An error of a run whose folder is removed with its log: the error contains the lines of the log that it
    mentions.
    """
    error.log = ""
    if error.hint == SEE_LOG or error.hint.startswith(f"{SEE_LOG}; "):
        error.hint = (
            error.hint[len(SEE_LOG) :]
            .removeprefix("; ")
            .replace("the log ends with", "the log ended with", 1)
        )
    return error


# Messages of launchers. White space is reduced to one blank, because launchers break lines anywhere.
_SIGNALLED = (
    re.compile(
        r"process rank (?P<rank>\d+) with PID \d+ on node (?P<node>\S+) exited on signal (?P<number>\d+)"
    ),
    re.compile(r"PID \d+ RUNNING AT (?P<node>\S+) .*?EXIT STRING: [^(]*\(signal (?P<number>\d+)\)"),
    re.compile(
        r"srun: error: (?P<node>\S+): tasks? (?P<rank>[\d,-]+): "
        r"(?P<name>Killed|Segmentation fault|Aborted|Bus error|Illegal instruction|Floating point exception)"
    ),
)
_FAILED = (
    re.compile(r"Process name: \[\S+,(?P<rank>\d+)\] Exit code: (?P<code>\d+)"),
    re.compile(r"srun: error: (?P<node>\S+): tasks? (?P<rank>[\d,-]+): Exited with exit code (?P<code>\d+)"),
    re.compile(r"PID \d+ RUNNING AT (?P<node>\S+) = EXIT CODE: (?P<code>\d+)"),
)
# Ranks that never started: the others are killed because of them, which is no fault of theirs.
_NOT_STARTED = (
    re.compile(
        r"srun: error: Task launch for (?:StepId=)?\S+ failed on node (?P<node>[^\s:]+): (?P<why>.+?)(?: srun: |$)"
    ),
    re.compile(r"srun: error: task (?P<rank>\d+) launch failed: (?P<why>.+?)(?: srun: |$)"),
    re.compile(r"srun: error: Application launch failed: (?P<why>.+?)(?: srun: |$)"),
)
_CAUSES = (
    (
        "no_slots",
        (
            "not enough slots available",
            "binding more processes than cpus",
            "More processors requested than permitted",
            "Requested node configuration is not available",
        ),
        "the launcher has fewer slots than the requested ranks",
        "request fewer with --ntasks, name more hosts with --hosts, or request more tasks from the scheduler",
    ),
    (
        "no_program",
        ("unable to launch the specified application", "execvp error on file", "error: execve(): "),
        "the probe could not be run on every host",
        "install Sonde in a folder that all hosts see under the same path",
    ),
    (
        "no_host",
        (
            "Could not resolve hostname",
            "Permission denied (publickey",
            "Host key verification failed",
            "unable to reliably start one or more daemons",
            "No route to host",
            "Connection refused",
            "Invalid node name specified",
        ),
        "a host could not be reached",
        "check --hosts; each must answer 'ssh HOST true' without a password",
    ),
)


def explain(log: str, status: int, command: Sequence[str]) -> tuple[str, str, str]:
    """(reason, what, hint) for a launcher that ended with `status` on its own, from the messages of launchers.

    Source: messages of Open MPI 4.1.4, 5.0.7 and 5.0.11, of MPICH 4.0.2 and 5.0.2, and of srun of Slurm 24.11.
    """
    log = " ".join(log.split())
    for reason, phrases, what, hint in _CAUSES:
        if any(phrase in log for phrase in phrases):
            return reason, what, hint
    for pattern in _NOT_STARTED:
        if found := pattern.search(log):
            named = found.groupdict()
            return "not_started", f"{_who(named)} could not be started: {named['why']}", SEE_SLURM
    for pattern in _SIGNALLED:
        if found := pattern.search(log):
            named = found.groupdict()
            died = named.get("name") or f"signal {named['number']} ({_signal_name(int(named['number']))})"
            return "rank_died", f"{_who(named)} died: {died}", _death_hint(died)
    for pattern in _FAILED:
        if found := pattern.search(log):
            named = found.groupdict()
            return "rank_failed", f"{_who(named)} ended with exit code {named['code']}", SEE_LOG
    name = Path(command[0]).name
    if status < 0:
        return (
            "launcher_died",
            f"{name} was killed by signal {-status} ({_signal_name(-status)})",
            "run it again",
        )
    if 128 < status < 160:
        died = f"signal {status - 128} ({_signal_name(status - 128)})"
        return "rank_died", f"a rank died: {died}", _death_hint(died)
    return "failed", f"{name} ended with exit status {status}", SEE_LOG


def _who(named: Mapping[str, str | None]) -> str:
    rank = f"rank {named['rank']}" if named.get("rank") else "a rank"
    return f"{rank} on {named['node']}" if named.get("node") else rank


def _death_hint(died: str) -> str:
    if "SIGKILL" in died or "Killed" in died:
        return "out of memory, or killed by a user; look at 'dmesg' on that host, or use fewer ranks"
    return SEE_LOG


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def die_with_parent(parent: int, number: int = signal.SIGTERM) -> Callable[[], None]:
    """Code for a child before it becomes another program: ask for that signal when `parent` dies."""
    libc = ctypes.CDLL(None, use_errno=True)
    asked_for = int(number)

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, asked_for, 0, 0, 0)
        if os.getppid() != parent:  # it died before the request
            os._exit(1)

    return ask
