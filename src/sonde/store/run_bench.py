"""Runs sonde-storebench with servers of its own, or against servers that run already, and seals its records."""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from sonde.core.deadline import within
from sonde.core.errors import EnvironmentFailure, SondeError, UsageError, Warning, nearest
from sonde.core.events import Event, Progress
from sonde.core.events import parse as parse_event
from sonde.core.launch import session
from sonde.core.launch.measured import Measured
from sonde.core.launch.process import with_tail, without_log
from sonde.core.launch.session import Job
from sonde.core.launch.start import prepare_alone
from sonde.core.owned_files import make_folder
from sonde.core.surroundings import place_of_ranks
from sonde.store import run_hdf5
from sonde.store.plan import CLIENT_NAMES, HDF5, ROLES, Case, Plan
from sonde.store.run import program
from sonde.store.schema import BURST
from sonde.store.sealing import SCHEMA

PROBE = "sonde-storebench"
START_S, STOP_S = 20.0, 5.0
ASK_S = 2.0
# When no sample came for QUIET_S, each server is asked whether it is alive, and again every LOOK_S. A server that does
# not answer for SILENT_S counts as stopped; when the budget ended LATE_S ago, it counts as stopped at once.
QUIET_S, LOOK_S, SILENT_S, LATE_S = 3.0, 1.0, 10.0, 1.0
MAX_FAILED = 8  # failed cells that are reported by name; more are only counted
# The values of --backend: the backends for objects, keys and tables. Keys and rows that are not stored could not be
# read, so `null` stores them in memory; rows always go to SQLite.
BACKENDS = {
    "null": {"data": "null", "kv": "memory", "db": "memory"},
    "memory": {"data": "memory", "kv": "memory", "db": "memory"},
    "posix+lmdb": {"data": "posix,path={}/objects", "kv": "lmdb,path={}/keys", "db": "sqlite,path={}/tables"},
    "posix+rocksdb": {
        "data": "posix,path={}/objects",
        "kv": "rocksdb,path={}/keys",
        "db": "sqlite,path={}/tables",
    },
}


def backends_of(name: str, available: Mapping[str, Sequence[str]], safety: str = "network") -> dict[str, str]:
    """The backends of a server, by role, for a value of --backend.

    available: backends by role, from `run.has`. When this build has no backend for tables, that role is left out.

    Raises
    ------
    UsageError  store.unknown_backend: there is no such name, or this build lacks a backend; store.bad_safety: the
    backends do not provide this safety.
    """
    if name not in BACKENDS:
        raise UsageError(
            "store.unknown_backend",
            f"there is no backend '{name}'{nearest(name, list(BACKENDS))}; there are: {', '.join(BACKENDS)}",
            "leave --backend out for null, which shows transports alone",
        )
    wanted = BACKENDS[name]
    if safety == "storage" and not _durable(name):
        able = [other for other in BACKENDS if _durable(other) and not {*_lacking(other, available)} - {"db"}]
        raise UsageError(
            "store.bad_safety",
            f"--backend {name} stores nothing on stable storage, but --safety storage promises that",
            f"add --backend {' or '.join(able)}, or leave --safety out"
            if able
            else "leave --safety out: 'sonde doctor' shows what to install for backends that store data on disk",
        )
    lacking = _lacking(name, available)
    if needed := [wanted[role].partition(",")[0] for role in lacking if role != "db"]:
        raise UsageError(
            "store.unknown_backend",
            f"this build has no backend {', '.join(needed)}",
            "'sonde doctor' shows what to install; --backend memory needs nothing",
        )
    return {role: text for role, text in wanted.items() if role not in lacking}


def _durable(name: str) -> bool:
    return "{}" in BACKENDS[name]["data"]


def _lacking(name: str, available: Mapping[str, Sequence[str]]) -> list[str]:
    """The roles whose backend this build lacks."""
    return [
        role for role, text in BACKENDS[name].items() if text.partition(",")[0] not in available.get(role, ())
    ]


def roles_of(addresses: Sequence[str], token_file: Path | None, auth: str | None = None) -> set[str] | None:
    """The roles of running servers taken together. None when they cannot be asked; the probe will report why."""
    try:
        return _asked(addresses, token_file, auth)
    except SondeError:
        return None


def _answers(address: str, token_file: Path | None, auth: str | None) -> bool:
    """Whether a server answers within ASK_S. A refusal is an answer, too."""
    from sonde.store.errors import TimedOut, Unreachable

    try:
        _asked((address,), token_file, auth)
    except (TimedOut, Unreachable):
        return False
    except SondeError:
        return True
    return True


def _asked(addresses: Sequence[str], token_file: Path | None, auth: str | None) -> set[str]:
    """The roles of running servers taken together. Raises SondeError when a server cannot be asked."""
    from sonde.store.client import connect

    options: dict[str, Any] = {"token_file": str(token_file)} if token_file else {}
    options |= {"auth": auth} if auth else {}
    with connect(*addresses, connect_timeout_s=ASK_S, timeout_s=ASK_S, **options) as client:
        return {role for server in client.status() for role in server.roles}


def runnable(cases: Sequence[Case], roles: Collection[str] | None) -> tuple[list[Case], list[Warning], str]:
    """The cases that servers with these roles, and the HDF5 of this machine, can run.

    roles: None when they are unknown; then all cases are tried.

    Returns the cases, a warning for each reason why others are left out, and the path of libhdf5 when it is needed.

    Raises
    ------
    UsageError  store.no_case; EnvironmentFailure  store.no_hdf5: no case can run.
    """
    chosen = [case for case in cases if roles is None or set(ROLES.get(case.client, ("data",))) <= set(roles)]
    notes = []
    if out := [case for case in cases if case not in chosen]:
        clients = ", ".join(dict.fromkeys(CLIENT_NAMES[case.client] for case in out))
        has = f"have only the role{'s' if len(roles or ()) != 1 else ''} {', '.join(sorted(roles or ()))}"
        if not chosen:
            raise UsageError("store.no_case", f"nothing can be measured: the servers {has}", "see --backend")
        evidence = f"{len(out)} cases ({clients}) are left out: the servers {has}"
        notes.append(
            Warning(
                "store.cases_left_out",
                evidence,
                "start servers with the other roles; 'sonde doctor' shows what this build lacks",
            )
        )
    if not any(case.client in HDF5 for case in chosen):
        return chosen, notes, ""
    try:
        return chosen, notes, str(run_hdf5.library())
    except EnvironmentFailure as error:
        out, chosen = chosen, [case for case in chosen if case.client not in HDF5]
        if not chosen:
            raise
        evidence = f"{len(out) - len(chosen)} cases of HDF5 are left out: {error.what}"
        return chosen, [*notes, Warning("store.cases_left_out", evidence, error.hint)], ""


@dataclass
class Servers:
    """Servers on loopback that live as long as a run.

    backends: as in BACKENDS; {} stands for a folder of the server's own, which is removed with it. died: called once,
    from another thread, when a server ends by itself. silent: addresses of servers that no longer answer; nobody waits
    for them to end. providers: the libfabric providers that variants name; the servers allow each of them.
    """

    count: int
    backends: Mapping[str, str]
    died: Callable[[SondeError], None]
    addresses: list[str] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)
    providers: Sequence[str] = ()
    _children: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _folders: list[Path] = field(default_factory=list)
    _ending: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def working(self, run_dir: Path) -> Iterator[Servers]:
        """Starts the servers for a with block. At its end, stops them and removes their data, however the run ends.

        Raises
        ------
        EnvironmentFailure  store.server_failed: a server did not start.
        """
        try:
            with (run_dir / "log").open("ab") as log:
                for number in range(self.count):
                    self._start(number, run_dir, log)
            yield self
        finally:
            self.stop()

    def stop(self) -> None:
        """Ends all servers, cleanly if possible, and removes their folders. Safe to call twice."""
        self._ending.set()
        for child, address in zip(self._children, self.addresses, strict=False):
            if address in self.silent:
                child.kill()
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
        argv = [str(program()), "--listen", "127.0.0.1:0", "--with-parent", "--tls", "offer"]
        if any("{}" in text for text in self.backends.values()):
            folder = (run_dir / f"server-{number}").resolve()
            self._folders.append(folder)
            make_folder(folder, 0o700)
            for text in self.backends.values():
                if "path={}/" in text:
                    make_folder(folder / text.rpartition("/")[2], 0o700)
        argv += [word for name in self.providers for word in ("--allow-provider", name)]
        for role, text in self.backends.items():
            argv += ["--backend", f"{role}={text.format(folder) if '{}' in text else text}"]
        # The server gets a session of its own: Ctrl-C reaches Sonde alone, which ends the probe first. When Sonde dies,
        # its end of the pipe closes, and the server ends.
        child = subprocess.Popen(
            argv,
            cwd=place_of_ranks(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
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
    """The event with which a server reports the address at which it listens."""
    assert child.stdout is not None
    deadline, output = time.monotonic() + START_S, b""
    os.set_blocking(child.stdout.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if not selector.select(left):
                continue
            piece = os.read(child.stdout.fileno(), 1 << 16)
            output += piece
            for line in output.split(b"\n")[:-1]:
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
    """Handles the events of sonde-storebench, and the unexpected end of a server.

    servers: HOST:PORT of servers that were named. variants: the variants that should reach them, without raw limits.
    When none of these reaches a server there is nothing to measure: raw limits are those of this machine.
    """

    room = "store"
    sample_kinds = (BURST,)
    dropped = ("bursts", "a shorter --epoch-length or a coarser --precision (such as 5%) needs less room")
    patience = "raise --timeout for very large batches, or look at the server"
    who = "the probe was"

    def __init__(
        self, progress: Progress, servers: Sequence[str] = (), variants: Collection[str] = ()
    ) -> None:
        super().__init__(progress)
        self.died: SondeError | None = None
        self.failed = 0
        self.began = self.alive = time.monotonic()
        # Set when a case has failed, until a server answers: the samples may come from raw limits alone.
        self.in_doubt = False
        self._samples = 0
        self._followed: list[
            Warning
        ] = []  # failures since the last sign of life; a server's end may explain them
        self.servers, self.expected = tuple(servers), set(variants)

    def take(self, event: Event) -> None:
        self._note(event)
        failed = event["event"] == "warning" and event.get("code") == "store.case_failed"
        if failed and self.died is not None:
            return
        self.failed += failed
        if failed and self.failed > MAX_FAILED:
            self.progress.show(event)
            return
        super().take(event)
        if failed:
            self._followed.append(self.warnings[-1])
        if self.servers and event.get("code") == "store.variant_absent":
            self._absent(event)
        self.attrs.pop("mpi_library", None)  # this probe uses no MPI
        if event["event"] == "end" and self.failed > MAX_FAILED and not self.died:
            hint = "see the warnings about the first cells"
            self.warn("case_failed", f"and {self.failed - MAX_FAILED} more cells failed", hint)
            if self.in_doubt:
                self._followed.append(self.warnings[-1])

    def _absent(self, event: Event) -> None:
        """Handles a variant that did not reach its server; EnvironmentFailure  store.unreachable after the last one."""
        self.expected.discard(name := str(event["variant"]))
        if self.expected or self.interrupted:
            return
        servers = f"server{'s' * (len(self.servers) > 1)} at {', '.join(self.servers)}"
        why = str(event["evidence"]).removeprefix(f"{name}: ")
        raise EnvironmentFailure(
            "store.unreachable", f"no variant reached the {servers}: {why}", str(event["hint"])
        )

    def _note(self, event: Event) -> None:
        """Records when a server last did something. A failed case, or progress without samples, does not count."""
        if event["event"] == "warning" and event.get("code") == "store.case_failed":
            self.in_doubt = True
        if self.in_doubt:
            return
        match event["event"]:
            case "start":
                self.began = self.alive = time.monotonic()
            case "progress":
                if (samples := event["samples"]) > self._samples or not samples:
                    self.alive = time.monotonic()
                self._samples = samples
            case "variant":
                self.alive = time.monotonic()

    def answered(self, asked_s: float) -> None:
        """Records that all servers answered a question of `asked_s` (time.monotonic)."""
        self.alive = max(self.alive, asked_s)
        self.in_doubt = False
        self._followed.clear()

    def lost(self, error: SondeError) -> None:
        """Records the death of a server, and asks the probe to end. Failures that it caused are not reported."""
        self.died = error
        self.failed -= sum(warning in self._followed for warning in self.warnings)
        self.warnings = [warning for warning in self.warnings if warning not in self._followed]
        self.warnings.append(Warning(error.code, error.what, error.hint))
        self.stop()

    def silenced(self, servers: Sequence[str]) -> None:
        """Records that servers no longer answer, and ends the probe, which waits for them. Its records stay."""
        after, since = self.alive - self.began, time.monotonic() - self.alive
        many = len(servers) > 1
        what = f"server{'s' * many} {', '.join(servers)} stopped answering after {after:.0f} s"
        if since >= 1:
            what += f", and {'have' if many else 'has'} been silent for {since:.0f} s"
        self.lost(
            EnvironmentFailure(
                "store.server_silent",
                what,
                "check whether it has ended or is stopped ('ps' shows T), or its host is overloaded or down; then run "
                "this again",
            )
        )

    def stop_reason(self, ending: Any) -> str:
        return "failed" if self.died is not None else super().stop_reason(ending)


@contextmanager
def watched(
    listener: Listener, answers: Callable[[str], bool], servers: Servers, end_s: float
) -> Iterator[None]:
    """Watches servers while they are measured. Otherwise the probe would wait for a dead server in each of its cells.

    answers: whether the server at an address answers. servers: their addresses; servers that do not answer are recorded
    in it, and in the listener. end_s: when the budget ends, as time.monotonic. When a server refuses connections, the
    probe is often done before the silence was long enough; so when cases have failed at the end, the servers are asked
    once more.
    """
    over = threading.Event()

    def silence(gone: Sequence[str]) -> None:
        servers.silent.update(gone)
        listener.silenced(gone)

    def look() -> None:
        since: dict[str, float] = {}
        while not over.wait(min(LOOK_S, QUIET_S)):
            quiet = listener.in_doubt or time.monotonic() - listener.alive >= QUIET_S
            if not quiet or listener.interrupted or listener.died is not None:
                since.clear()
                continue
            began = time.monotonic()
            for address in servers.addresses:
                asked = time.monotonic()
                if answers(address):
                    since.pop(address, None)
                else:
                    since.setdefault(address, asked)
            if not since:
                listener.answered(began)
                continue
            now = time.monotonic()
            patience_s = SILENT_S if now < end_s + LATE_S else 0.0
            gone = [address for address, asked in since.items() if now - asked >= patience_s]
            if gone and (listener.in_doubt or now - listener.alive >= QUIET_S) and not over.is_set():
                silence(gone)
                return

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    if listener.in_doubt and not listener.interrupted and listener.died is None:
        gone = [address for address in servers.addresses if not answers(address)]
        if (
            gone and listener.died is None
        ):  # the end of a server started here may have been reported meanwhile
            silence(gone)


@dataclass(frozen=True)
class Request:
    """The measurement to make: its plan, its servers, its dataset.

    servers: HOST:PORT of servers that run already; () starts `plan.servers` here.
    token_file: their secret. auth: how this client proves its identity; None: as the server requests.
    command: the command line of the user. budget_s: time for everything since `began` (time.monotonic).
    """

    plan: Plan
    out: Path
    command: tuple[str, ...]
    budget_s: float
    began: float
    servers: tuple[str, ...] = ()
    token_file: Path | None = None
    timeout_s: float = 60.0
    auth: str | None = None

    @property
    def proof(self) -> tuple[str, ...]:
        """The arguments of the probe for authentication."""
        argv = ("--auth", self.auth) if self.auth else ()
        return (*argv, "--token-file", str(self.token_file)) if self.token_file else argv

    def left_s(self) -> float:
        """The time that measuring may still take, s."""
        return self.plan.measuring_s(self.budget_s - (time.monotonic() - self.began))

    def line(self, run_dir: Path, addresses: Sequence[str]) -> list[str]:
        """The command line of the probe, as a dry run shows it."""
        return [
            str(prepare_alone("store", PROBE).program),
            *self.plan.argv(str(run_dir), self.left_s(), addresses, self.proof),
        ]


def measure(request: Request, progress: Progress) -> Measured:
    """Measures and seals the result, even after a failure. progress: where events are shown.

    Raises
    ------
    As `session.run`; EnvironmentFailure  store.server_died: a server died before there was a sample;
    store.unreachable: only raw limits reached a server that was named, and no file is left; store.server_silent: a
    server stopped answering before there was a sample.
    """
    plan = request.plan
    stored = [variant.name for variant in plan.variants if variant.style != "raw"]
    listener = Listener(progress, request.servers, stored)
    named = list(dict.fromkeys(variant.provider for variant in plan.variants if variant.provider))
    own = Servers(plan.servers, plan.backends, listener.lost, list(request.servers), providers=named)

    @contextmanager
    def beside(run_dir: Path) -> Iterator[None]:
        answers = partial(_answers, token_file=request.token_file, auth=request.auth)
        with (
            nullcontext() if request.servers else own.working(run_dir),
            watched(listener, answers, own, request.began + request.budget_s),
        ):
            yield

    job = Job(
        schema=SCHEMA,
        start=prepare_alone("store", PROBE),
        ntasks=1,
        words=lambda folder, time_s: plan.argv(folder, time_s, own.addresses, request.proof),
        plan=plan.document(),
        out=request.out,
        command=request.command,
        seed=plan.seed,
        time_s=request.left_s,
        deadline=within(request.budget_s, request.began),
        timeout_s=request.timeout_s,
        attrs=plan.labels() | ({"server": ", ".join(request.servers)} if request.servers else {}),
        warnings=plan.warnings(),
        beside=beside,
    )
    try:
        measured = session.run(job, listener)
    except EnvironmentFailure as failed:
        if failed.code == "store.unreachable":  # any samples come from raw limits
            session.forget(job.run_dir)
            without_log(failed)
        if listener.died is not None and not listener.interrupted:
            listener.died.beside([*plan.warnings(), *listener.warnings])
            raise listener.died from None  # the probe's error is only a consequence of it
        raise
    if listener.died is not None:
        measured.error = listener.died
    return measured
