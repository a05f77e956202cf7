"""Agents on this machine: which are here, which run already, and one tried out through `sonde-keeper`."""

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
from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.core.launch.process import MARK, marked
from sonde.core.printable import json_names
from sonde.core.processes import stat_fields
from sonde.noise.agents import AgentPlan, Recipe

if TYPE_CHECKING:
    from types import TracebackType

_MARGIN_S = 60.0  # beyond the keeper's own deadlines: it always answers, unless it is gone
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def is_program(word: str, *folders: str) -> bool:
    """Whether a word can be run here: on PATH, where daemons are, in one of these folders, or a path that is there."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_SBIN, *folders])
    return shutil.which(word, path=path) is not None or (word.startswith("/") and os.path.exists(word))


def missing(recipe: Recipe) -> list[str]:
    """What the recipe needs and this machine lacks, each as the names that would do."""
    own = str(launch.libexec())
    return [
        " or ".join(group)
        for group in recipe.programs
        if not any(is_program(program, own) for program in group)
    ]


def check_here(recipe: Recipe) -> None:
    """Whether this machine has what the recipe needs.

    Raises
    ------
    EnvironmentFailure  noise.agent_missing, with what to type to install it.
    """
    if not (lacks := missing(recipe)):
        return
    install = recipe.install(distribution.family())
    raise EnvironmentFailure(
        "noise.agent_missing",
        f"{recipe.name} is not on this machine: no {', no '.join(lacks)}",
        f"install it on every node that is measured, as root: {install}"
        if install
        else "install it from its makers, or load the module that brings it",
    )


def running(recipe: Recipe) -> list[int]:
    """Processes of the same agent that run here already, as a service for example."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                words = Path(entry.path, "cmdline").read_bytes().split(b"\0")
                if os.path.basename(words[0]).decode(errors="replace") in recipe.daemons:
                    found.append(int(entry.name))
    return sorted(found)


class KeeperProcess:
    """`sonde-keeper` with one agent: commands in, answers out.

        with KeeperProcess(plan) as keeper:
            keeper.ask("start")
            usage = keeper.ask("usage")

    Leaving the block ends the agent with all it started. env: variables besides those of this process. An
    answer with "ok": false is raised as the error that it tells.
    """

    def __init__(self, plan: AgentPlan, *, env: dict[str, str] | None = None) -> None:
        self.program = launch.libexec() / "sonde-keeper"
        self.mark = uuid.uuid4().hex
        self.plan = plan
        self._env = {**os.environ, **(env or {}), MARK: self.mark}
        self._child: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self.pid = 0  # of the keeper below sonde-keeper

    def __enter__(self) -> KeeperProcess:
        try:
            self._child = subprocess.Popen(
                [str(self.program), *self.plan.argv()],
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
        """Carries out one command: start, pause, resume, "place 0,2", usage, stop.

        Raises
        ------
        SondeError  what the keeper could not do (UsageError for a spec it does not take), or
        noise.agent_keeper_died.
        """
        with suppress(OSError):  # it is gone; the answer that does not come says so
            os.write(self.process.stdin.fileno(), command.encode() + b"\n")  # type: ignore[union-attr]
        return self._answer()

    def left(self) -> list[int]:
        """Processes that carry this one's mark and are no zombies."""
        return [pid for pid in marked(self.mark) if _state(pid) not in ("Z", "")]

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
        answer: dict[str, Any] = json.loads(json_names(line))
        if not answer["ok"]:
            what = UsageError if answer["code"].endswith(("bad_option", "bad_cpus")) else EnvironmentFailure
            raise what(answer["code"], answer["what"], answer["hint"])
        return answer


def _state(pid: int) -> str:
    return next(iter(stat_fields(pid)), "")


def states(pids: Sequence[int]) -> str:
    """State of each process, as /proc has it: "TT" for two that are stopped."""
    return "".join(_state(pid) or "-" for pid in pids)


@dataclass(frozen=True)
class Trial:
    """What one agent did when it was tried. Times in s.

    start_s: until ready. on_s: how long it ran after the pause, whole periods. cpu_s, wakeups, drives: in
    that time. drive_s: median of a drive. work_bytes: by how much what it writes grew. held: whether every
    process was stopped while it was paused. paused_cpu_s: CPU it used nevertheless. left: what was still
    there afterwards, in words.
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


def try_out(plan: AgentPlan, work: str = "", periods: int = 5) -> Trial:
    """Starts an agent, lets it work, pauses it, resumes it and ends it, and says what it used.

    work: files below its folder that grow as it works. periods: how many it works for after the pause.

    Raises
    ------
    EnvironmentFailure  what the keeper says: the agent did not start, could not be paused, died.
    """
    period_s = plan.period_s or plan.drive_period_s
    keeper = KeeperProcess(plan)
    folder = Path()
    try:
        with keeper:
            began = time.monotonic()
            keeper.ask("start")
            start_s = time.monotonic() - began
            time.sleep(2 * period_s)  # what it does once, at its beginning, is not what it costs
            keeper.ask("pause")
            before = keeper.ask("usage")
            folder = Path(before["folder"])
            size = _size(folder, work)
            time.sleep(0.2)
            held = before["pids"] and set(states(before["pids"])) == {"T"}
            keeper.ask("resume")
            began = time.monotonic()
            time.sleep(periods * period_s)
            keeper.ask("pause")
            on_s = time.monotonic() - began
            after = keeper.ask("usage")
            grown = _size(folder, work) - size
            keeper.ask("stop")
    finally:
        left = [f"process {pid}" for pid in keeper.left()]
        if folder != Path() and folder.exists():
            left.append(f"folder {folder}")
    took = sorted(drive["took_s"] for drive in after["drives"] if drive["done"])
    return Trial(
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
        held=bool(held),
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
