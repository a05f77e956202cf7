"""Runs sonde-storebench beside servers of its own, or against servers that run already, and seals what it recorded."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from sonde.core.errors import EnvironmentFailure, SondeError, UsageError, nearest
from sonde.core.events import Event, Progress
from sonde.core.events import parse as parse_event
from sonde.core.launch import libexec, session
from sonde.core.launch.process import with_tail
from sonde.core.launch.session import Job, Measured
from sonde.core.launch.start import prepare_alone
from sonde.store.plan import Plan
from sonde.store.schema import BURST, SCHEMA

SERVER = "sonde-stored"
START_S, STOP_S = 20.0, 5.0
MOST_FAILED = 8  # cases that are named when they fail; more are counted
# What --backend means: what keeps objects, keys and tables. Keys that nobody keeps could not be got, so with `null`
# they are kept in memory.
BACKENDS = {
    "null": {"data": "null", "kv": "memory", "db": "null"},
    "memory": {"data": "memory", "kv": "memory", "db": "memory"},
    "posix+lmdb": {"data": "posix,path={}/objects", "kv": "lmdb,path={}/keys"},
    "posix+rocksdb": {"data": "posix,path={}/objects", "kv": "rocksdb,path={}/keys"},
}


def program(name: str = SERVER) -> Path:
    """A program of this room. EnvironmentFailure  store.not_built."""
    path = libexec() / name
    if not os.access(path, os.X_OK):
        raise EnvironmentFailure(
            "store.not_built",
            "this build of Sonde has no storage server",
            "'sonde doctor' says what to install; then 'make setup' builds it",
        )
    return path


def offers() -> dict[str, list[str]]:
    """What this build has: backends by role, "transports", "auth".

    Raises
    ------
    EnvironmentFailure  store.not_built, store.broken: the server does not start.
    """
    try:
        ran = subprocess.run(
            [str(program()), "--list"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        return {name: list(values) for name, values in json.loads(ran.stdout).items()}
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFailure(
            "store.broken", f"{SERVER} does not start: {error}", "build it again with 'make setup'"
        ) from None


def backends_of(name: str, there: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What a server is to keep things in, by role. there: backends by role, of `offers`. A role whose backend this
    build lacks is left out where it is not needed.

    Raises
    ------
    UsageError  store.unknown_backend: it is no name, or not in this build.
    """
    if name not in BACKENDS:
        raise UsageError(
            "store.unknown_backend",
            f"there is no backend '{name}'{nearest(name, list(BACKENDS))}; there are: {', '.join(BACKENDS)}",
            "leave --backend out for null, which shows transports alone",
        )
    wanted = BACKENDS[name]
    lacking = [role for role, text in wanted.items() if text.partition(",")[0] not in there.get(role, ())]
    if needed := [wanted[role].partition(",")[0] for role in lacking if role != "db"]:
        raise UsageError(
            "store.unknown_backend",
            f"this build has no backend {', '.join(needed)}",
            "'sonde doctor' says what to install; --backend memory needs nothing",
        )
    return {role: text for role, text in wanted.items() if role not in lacking}


@dataclass
class Servers:
    """Servers on loopback that live as long as a run. died: called once, from another thread, when one ends by itself.

    backends: as BACKENDS, {} stands for a folder of the server's own, which goes with it.
    """

    count: int
    backends: Mapping[str, str]
    died: Callable[[SondeError], None]
    addresses: list[str] = field(default_factory=list)
    _children: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _folders: list[Path] = field(default_factory=list)
    _ending: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def working(self, run_dir: Path) -> Iterator[Servers]:
        """Starts them; stops them and removes what they kept, however the run ends.

        Raises
        ------
        EnvironmentFailure  store.server_failed: one did not start.
        """
        try:
            with (run_dir / "log").open("ab") as log:
                for number in range(self.count):
                    self._start(number, run_dir, log)
            yield self
        finally:
            self.stop()

    def stop(self) -> None:
        """Ends them all, in order where they let us, and removes their folders. Safe to call twice."""
        self._ending.set()
        for child in self._children:
            assert child.stdin is not None
            with suppress(OSError):
                child.stdin.close()
        for child in self._children:
            for ask in (lambda: None, child.terminate, child.kill):
                ask()
                with suppress(subprocess.TimeoutExpired):
                    child.wait(STOP_S)
                    break
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self, number: int, run_dir: Path, log: IO[bytes]) -> None:
        words = [str(program()), "--listen", "127.0.0.1:0", "--with-parent"]
        if any("{}" in text for text in self.backends.values()):
            folder = (run_dir / f"server-{number}").resolve()
            self._folders.append(folder)
            folder.mkdir(mode=0o700)
            for below in ("objects", "keys"):
                (folder / below).mkdir(mode=0o700)
        for role, text in self.backends.items():
            words += ["--backend", f"{role}={text.format(folder) if '{}' in text else text}"]
        # A session of its own: Ctrl-C reaches Sonde alone, which ends the probe first. When Sonde dies, however, its
        # end of the pipe closes, and the server ends.
        child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
        self._children.append(child)
        self.addresses.append(str(_ready(child, run_dir)["listen"]))
        threading.Thread(target=self._watch, args=(child, run_dir), daemon=True).start()

    def _watch(self, child: subprocess.Popen[bytes], run_dir: Path) -> None:
        assert child.stdout is not None
        with suppress(OSError, ValueError):
            while child.stdout.read(1 << 16):
                pass
        status = child.wait()
        if not self._ending.is_set():
            self._ending.set()
            self.died(_death(status, run_dir))


def _ready(child: subprocess.Popen[bytes], run_dir: Path) -> Event:
    """The event with which a server says where it listens."""
    assert child.stdout is not None
    deadline, told = time.monotonic() + START_S, b""
    os.set_blocking(child.stdout.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if not selector.select(left):
                continue
            piece = os.read(child.stdout.fileno(), 1 << 16)
            told += piece
            for line in told.split(b"\n")[:-1]:
                event = parse_event(line) or {}
                if event.get("event") == "ready":
                    os.set_blocking(child.stdout.fileno(), True)
                    return event
                if event.get("event") == "error":
                    raise EnvironmentFailure(
                        str(event["code"]), f"the server: {event['what']}", str(event["hint"])
                    )
            if not piece:
                raise _death(child.wait(), run_dir)
    raise EnvironmentFailure(
        "store.server_failed", f"the server was not ready within {START_S:g} s", with_tail("", _log(run_dir))
    )


def _death(status: int, run_dir: Path) -> EnvironmentFailure:
    import signal

    how = f"ended with exit status {status}"
    if status < 0:
        with suppress(ValueError):
            how = f"was ended by signal {-status} ({signal.Signals(-status).name})"
    return EnvironmentFailure(
        "store.server_died", f"the server {how} while it was measured", with_tail("", _log(run_dir))
    )


def _log(run_dir: Path) -> str:
    with suppress(OSError):
        return (run_dir / "log").read_text(errors="replace")[-(1 << 16) :]
    return ""


class Listener(session.Listener):
    """What sonde-storebench says, and the end of a server that should not have ended."""

    room = "store"
    sample_kinds = (BURST,)
    dropped = ("bursts", "a shorter --epoch-length or a longer --precision needs less room")
    patience = "raise --timeout for very large batches, or look at the server"
    who = "the probe was"

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress)
        self.died: SondeError | None = None
        self.failed = 0

    def take(self, event: Event) -> None:
        if event["event"] == "warning" and event.get("code") == "store.case_failed":
            self.failed += 1
            if self.failed > MOST_FAILED:
                self.progress.show(event)
                return
        super().take(event)
        self.attrs.pop("mpi_library", None)  # which this probe has none of
        if event["event"] == "end" and self.failed > MOST_FAILED:
            self.warn("case_failed", f"and {self.failed - MOST_FAILED} more cells failed", "see those named")

    def lost(self, error: SondeError) -> None:
        """Takes the death of a server: the probe is asked to end."""
        self.died = error
        self.stop()

    def stop_reason(self, ending: Any) -> str:
        return "failed" if self.died is not None else super().stop_reason(ending)


@dataclass(frozen=True)
class Request:
    """What is to be measured, with what, into which dataset.

    servers: HOST:PORT of servers that run already; () starts `plan.servers` here. auth: words for the probe.
    command: what the user typed. budget_s: time for all of it since `began` (time.monotonic).
    """

    plan: Plan
    out: Path
    command: tuple[str, ...]
    budget_s: float
    began: float
    servers: tuple[str, ...] = ()
    auth: tuple[str, ...] = ()
    timeout_s: float = 60.0

    def left_s(self) -> float:
        """Time that measuring may take from now on."""
        return self.plan.measuring_s(self.budget_s - (time.monotonic() - self.began))

    def line(self, run_dir: Path, addresses: Sequence[str]) -> list[str]:
        """The command line of the probe, as a dry run shows it."""
        return [
            str(program("sonde-storebench")),
            *self.plan.argv(str(run_dir), self.left_s(), addresses, self.auth),
        ]


def measure(request: Request, progress: Progress) -> Measured:
    """Measures, and seals what was measured, however it ended. progress: where events are shown.

    Raises
    ------
    As `session.run`; EnvironmentFailure  store.server_died before there was a sample.
    """
    plan = request.plan
    listener = Listener(progress)
    own = Servers(plan.servers, plan.backends, listener.lost)
    job = Job(
        schema=SCHEMA,
        start=prepare_alone("store", "sonde-storebench"),
        ntasks=1,
        words=lambda folder, time_s: plan.argv(
            folder, time_s, request.servers or own.addresses, request.auth
        ),
        plan=plan.document(),
        out=request.out,
        command=request.command,
        seed=plan.seed,
        time_s=request.left_s,
        timeout_s=request.timeout_s,
        attrs=plan.labels() | ({"server": ", ".join(request.servers)} if request.servers else {}),
        warnings=plan.warnings(),
        beside=nullcontext if request.servers else own.working,
    )
    try:
        measured = session.run(job, listener)
    except EnvironmentFailure:
        if listener.died is not None and not listener.interrupted:
            raise listener.died from None  # what the probe then met is only what followed
        raise
    if listener.died is not None:
        measured.error = listener.died
    return measured
