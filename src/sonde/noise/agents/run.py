"""Agents on this machine: the installed ones, the running ones, and an attempt with one through `sonde-keeper`."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonde.core import distribution, launch
from sonde.core.errors import EnvironmentFailure, from_code
from sonde.core.launch.process import MARK, marked
from sonde.core.processes import stat_fields
from sonde.core.surroundings import place_of_ranks
from sonde.noise.agents.recipes import AgentPlan, Recipe

if TYPE_CHECKING:
    from types import TracebackType

_MARGIN_S = 60.0  # added to the supervisor's own deadlines: it always answers, unless it has ended
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def is_program(word: str, *folders: str) -> bool:
    """Whether a word can be run here: it is on PATH, in a folder of daemons or in `folders`, or is an existing path."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_SBIN, *folders])
    return shutil.which(word, path=path) is not None or (word.startswith("/") and os.path.exists(word))


def missing(recipe: Recipe) -> list[str]:
    """The programs that the recipe needs and this machine lacks; each entry has all names that are accepted."""
    own = str(launch.libexec())
    return [
        " or ".join(group)
        for group in recipe.programs
        if not any(is_program(program, own) for program in group)
    ]


def check_here(recipe: Recipe) -> None:
    """Check that this machine has the programs that the recipe needs.

    Raises
    ------
    EnvironmentFailure  noise.agent_missing, with the command that installs them.
    """
    if not (lacks := missing(recipe)):
        return
    install = recipe.install(distribution.family())
    raise EnvironmentFailure(
        "noise.agent_missing",
        f"{recipe.name} is not installed on this machine; missing: {', '.join(lacks)}",
        f"install it as root on every node that is measured: {install}"
        if install
        else "install it from its makers, or load the module that provides it",
    )


def running(recipe: Recipe) -> list[int]:
    """The process ids of the same agent that already runs here, for example as a service."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                words = Path(entry.path, "cmdline").read_bytes().split(b"\0")
                if os.path.basename(words[0]).decode(errors="replace") in recipe.daemons:
                    found.append(int(entry.name))
    return sorted(found)


class SupervisorProcess:
    """`sonde-keeper`, the supervisor program, with one agent: it gets commands and gives answers.

        with SupervisorProcess(plan) as supervisor:
            supervisor.ask("start")
            usage = supervisor.ask("usage")

    Leaving the block ends the agent with all processes that it started. env: variables besides those of this process.
    An answer with "ok": false is raised as an error.
    """

    def __init__(self, plan: AgentPlan, *, env: dict[str, str] | None = None) -> None:
        self.program = launch.libexec() / "sonde-keeper"
        self.mark = uuid.uuid4().hex
        self.plan = plan
        self._env = {**os.environ, **(env or {}), MARK: self.mark}
        self._child: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self.pid = 0  # of the supervisor process below sonde-keeper

    def __enter__(self) -> SupervisorProcess:
        try:
            self._child = subprocess.Popen(
                [str(self.program), *self.plan.argv()],
                cwd=place_of_ranks(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self._env,
                start_new_session=True,
            )
        except OSError as error:
            raise EnvironmentFailure(
                "noise.no_keeper", f"cannot start {self.program}: {error.strerror}", "install Sonde again"
            ) from error
        self.pid = int(self._answer()["keeper"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._child is not None
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with suppress(OSError):
            self._child.stdin.close()
        try:
            self._child.wait(_MARGIN_S + 2 * self.plan.grace_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._child is not None, "not started"
        return self._child

    def ask(self, command: str) -> dict[str, Any]:
        """Run one command: start, pause, resume, "place 0,2", usage, stop.

        Raises
        ------
        SondeError  the command failed (UsageError for a spec that is not accepted), or noise.agent_keeper_died.
        """
        with suppress(OSError):  # if it has ended, there is no answer, and _answer() raises
            os.write(self.process.stdin.fileno(), command.encode() + b"\n")  # type: ignore[union-attr]
        return self._answer()

    def left(self) -> list[int]:
        """The processes that have this one's mark and are no zombies."""
        return [pid for pid in marked(self.mark, everybody=True) if _state(pid) not in ("Z", "")]

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        stream = self.process.stdout.fileno()
        until = time.monotonic() + _MARGIN_S + self.plan.ready_deadline_s + 3 * self.plan.grace_s
        while b"\n" not in self._pending:
            ready, _, _ = select.select([stream], [], [], max(0.0, until - time.monotonic()))
            piece = os.read(stream, 1 << 16) if ready else b""
            if not piece:
                raise EnvironmentFailure(
                    "noise.agent_keeper_died",
                    "sonde-keeper " + ("has ended" if ready else "does not answer"),
                    "run it again",
                )
            self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if not answer["ok"]:
            raise from_code(answer["code"], answer["what"], answer["hint"])
        return answer


def _state(pid: int) -> str:
    return next(iter(stat_fields(pid)), "")


def states(pids: Sequence[int]) -> str:
    """The state of each process, as in /proc: "TT" for two stopped processes."""
    return "".join(_state(pid) or "-" for pid in pids)


@dataclass(frozen=True)
class Attempt:
    """The result of an attempt to use one agent. Times in s.

    start_s: time until it was ready. on_s: how long it ran after the pause, whole periods. cpu_s, wakeups, drives: in
    that time. drive_s: median time of a drive. work_bytes: growth of the files that it writes. held: whether every
    process was stopped during the pause. paused_cpu_s: CPU time that it used during the pause. left: what it left
    behind, as texts.
    """

    start_s: float
    on_s: float
    cpu_s: float
    wakeups: int
    processes: int
    threads: int
    rss_bytes: int
    drives: int
    drives_failed: int
    drive_failure: str
    drive_s: float
    drive_bytes: int
    keeper_cpu_s: float
    work_bytes: int
    held: bool
    paused_cpu_s: float
    left: tuple[str, ...]


def try_out(plan: AgentPlan, work: str = "", periods: int = 5) -> Attempt:
    """Start an agent, let it work, pause it, resume it and end it. Return its use of resources.

    work: files below its folder that grow as it works. periods: how many periods it works after the pause.

    Raises
    ------
    EnvironmentFailure  from the supervisor: the agent did not start, could not be paused, or died.
    """
    period_s = plan.period_s or plan.drive_period_s
    supervisor = SupervisorProcess(plan)
    folder = Path()
    try:
        with supervisor:
            began = time.monotonic()
            supervisor.ask("start")
            start_s = time.monotonic() - began
            time.sleep(2 * period_s)  # work that it does only at its start is not part of its cost
            supervisor.ask("pause")
            before = supervisor.ask("usage")
            folder = Path(before["folder"])
            size = _size(folder, work)
            time.sleep(0.2)
            stopped = before["pids"] and set(states(before["pids"])) == {"T"}
            supervisor.ask("resume")
            began = time.monotonic()
            time.sleep(periods * period_s)
            supervisor.ask("pause")
            on_s = time.monotonic() - began
            after = supervisor.ask("usage")
            grown = _size(folder, work) - size
            supervisor.ask("stop")
    finally:
        left = [f"process {pid}" for pid in supervisor.left()]
        if folder != Path() and folder.exists():
            left.append(f"folder {folder}")
    took = sorted(drive["took_s"] for drive in after["drives"] if drive["done"])
    return Attempt(
        start_s=start_s,
        on_s=on_s,
        cpu_s=after["cpu_s"] - before["cpu_s"],
        wakeups=after["wakeups"] - before["wakeups"],
        processes=after["processes"],
        threads=after["threads"],
        rss_bytes=after["rss_bytes"],
        drives=after["drives_done"] - before["drives_done"],
        drives_failed=after["drives_failed"] - before["drives_failed"],
        drive_failure=after["drive_failure"],
        drive_s=took[len(took) // 2] if took else 0.0,
        drive_bytes=after["drive_bytes"] - before["drive_bytes"],
        keeper_cpu_s=after["keeper_cpu_s"] - before["keeper_cpu_s"],
        work_bytes=grown,
        held=bool(stopped),
        paused_cpu_s=after["paused_cpu_s"],
        left=tuple(left),
    )


def _size(folder: Path, pattern: str) -> int:
    total = 0
    if pattern:
        for path in folder.glob(pattern):
            with suppress(OSError):
                total += path.stat().st_size if path.is_file() else 0
    return total
