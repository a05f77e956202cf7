"""Runs sonde-net: start, listen, stop in time, seal. The only module of the room that touches the machine."""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonde.core import provenance, seal
from sonde.core.errors import EnvironmentFailure, SondeError, UsageError, Warning
from sonde.core.events import Event, Progress
from sonde.core.launch import Launcher, launcher, probe
from sonde.core.launch.cpus import available
from sonde.core.launch.mpirun import Mpirun
from sonde.core.launch.process import Ending, ProbeProcess
from sonde.net.plan import Plan
from sonde.net.schema import NAME, SCHEMA

# Of a budget, what is kept for the end: sealing and analysis. Measured on two cores: 5 ms a cell, 60 MB/s.
RESERVE_SHARE, RESERVE_S, RESERVE_CELL_S = 0.05, 1.0, 0.004


@dataclass
class Measured:
    """What a run left: datasets, one a mode; how it ended; whether the user interrupted it."""

    files: list[seal.SealedFile]
    stop_reason: str
    interrupted: bool
    error: SondeError | None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> list[Path]:
        return [file.path for file in self.files]


@dataclass
class Start:
    """How the ranks are started, settled before anything is measured."""

    launcher: Launcher
    hosts: tuple[str, ...]
    flavour: str
    program: Path
    mpi: str


def default_ntasks() -> int:
    """Ranks when nobody says: what Slurm gave, else a rank a core, two at least."""
    given = os.environ.get("SLURM_NTASKS", "")
    return max(2, int(given) if given.isdigit() else available().cores)


def output_path(output: Path | None) -> Path:
    """Where the dataset goes: as asked, or a new name here.

    Raises
    ------
    EnvironmentFailure  core.cannot_write: its folder is not there. UsageError  net.bad_output: it is a folder.
    """
    if output is None:
        return Path(seal.dataset_name("net", provenance.cluster()))
    if output.is_dir():
        raise UsageError(
            "net.bad_output",
            f"--output {output} is a folder",
            f"name the dataset: -o {output / 'net.nc'}",
        )
    if not output.parent.is_dir():
        raise EnvironmentFailure(
            "core.cannot_write",
            f"cannot write {output}: there is no folder {output.parent}",
            "make it, or choose another with --output",
        )
    return output if output.suffix == ".nc" else output.with_name(output.name + ".nc")


def prepare(name: str, hosts: Sequence[str]) -> Start:
    """Finds launcher, MPI and probe.

    Raises
    ------
    EnvironmentFailure  net.no_mpi, net.no_probe.
    """
    chosen = launcher(name)
    if chosen.name == "local":
        chosen = launcher("mpirun")  # raises what is missing: delays need ranks
    mpi = chosen.mpi if isinstance(chosen, Mpirun) else Mpirun().mpi
    return Start(chosen, tuple(hosts), mpi.flavour, probe("sonde-net", mpi.flavour), str(mpi))


def command(plan: Plan, start: Start, run_dir: Path, budget_s: float) -> list[str]:
    """The whole command line that measures."""
    argv = [str(start.program), *plan.argv(str(run_dir.resolve()), budget_s)]
    return start.launcher.command(argv, start.hosts, plan.ntasks, {})


@dataclass(frozen=True)
class Request:
    """What is to be measured, with what, into which dataset (of several modes, <stem>-<mode>.nc).

    command_line: what the user typed, for the dataset. budget_s: time for all of it since `began`
    (time.monotonic), start-up and analysis included; None: no limit. timeout_s: how long the probe may be silent
    before it is taken for stuck.
    """

    plan: Plan
    start: Start
    out: Path
    command_line: str
    budget_s: float | None
    began: float
    timeout_s: float = 60.0


def measure(request: Request, progress: Progress) -> Measured:
    """Measures, and seals what was measured, however it ended. progress: where events are shown.

    Returns
    -------
    Measured. `error` is what went wrong while measuring, when something was measured all the same.

    Raises
    ------
    EnvironmentFailure  nothing could be measured or written; the hint says how to recover what was.
    """
    plan, start = request.plan, request.start
    run_dir = seal.run_folder(request.out)
    placement = start.launcher.placement(start.hosts, plan.ntasks)
    facts: dict[str, Any] = {
        "transport": transport(os.environ),
        "run_id": secrets.token_hex(8),
        "launcher": start.launcher.name,
        "binding": placement.bind,
        "oversubscribed": placement.oversubscribed,
        "pairing": plan.pairing,
        **plan.labels,
    }
    seal.start_run(
        run_dir,
        room="net",
        schema=NAME,
        attrs=provenance.attrs(command=request.command_line, seed=plan.seed, mpi=start.mpi) | _typed(facts),
        plan=plan.document({}),
        env=provenance.machine(),
        warnings=plan.warnings(),
    )
    listener = _Listener(progress)
    left = 0.0 if request.budget_s is None else _left(plan, request.budget_s, request.began)
    with seal.hold(run_dir) as held:
        ending = _listen(command(plan, start, run_dir, left), run_dir, listener, left, request.timeout_s)
        stop_reason = "interrupted" if listener.interrupted else listener.stop_reason(ending)
        error = ending.error or listener.error
        if listener.started is None and error is not None:
            _forget(run_dir)
            raise error
        files = seal.seal(
            run_dir,
            request.out,
            SCHEMA,
            attrs={"stop_reason": stop_reason} | _typed(listener.attrs),
            warnings=listener.warnings,
            held=held,
        )
    return Measured(files, stop_reason, listener.interrupted, error, listener.attrs)


def transport(environment: Mapping[str, str]) -> str:
    """What the user told the MPI about its transport; "default" when nothing. What it then took is its secret."""
    names = ("OMPI_MCA_pml", "OMPI_MCA_btl", "OMPI_MCA_mtl", "UCX_TLS", "UCX_NET_DEVICES", "FI_PROVIDER", "MPIR_CVAR_CH4_NETMOD")
    told = [f"{name}={environment[name]}" for name in names if environment.get(name)]
    return " ".join(told) or "default"


def _typed(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: int(value) if isinstance(value, bool) else value for name, value in facts.items()}


def _left(plan: Plan, budget_s: float, began: float) -> float:
    """Time that measuring may take. Never nothing: a budget too short for the end still gets its first epoch."""
    reserve = RESERVE_S + RESERVE_SHARE * budget_s + RESERVE_CELL_S * plan.cells
    return max(0.2, budget_s - (time.monotonic() - began) - min(reserve, budget_s / 2))


def _forget(run_dir: Path) -> None:
    """Removes the folder of a run that never began; its log has been told."""
    for name in ("run.json", "log", ".lock", ".seen-by-rank-0"):
        (run_dir / name).unlink(missing_ok=True)
    for block in run_dir.glob("*.blk"):
        block.unlink()
    try:
        run_dir.rmdir()
    except OSError:
        pass  # somebody keeps something there; it stays


class _Listener:
    """Takes the probe's events: shows them, and keeps what belongs into the dataset."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.started: Event | None = None
        self.ended: Event | None = None
        self.error: SondeError | None = None
        self.interrupted = False
        self.warnings: list[Warning] = []
        self.attrs: dict[str, Any] = {}
        self.heard = time.monotonic()

    def take(self, event: Event) -> None:
        self.heard = time.monotonic()
        self.progress.show(event)
        match event["event"]:
            case "start":
                self.started = event
                self.attrs["mpi_library"] = event["mpi_version"]
                self.attrs["oversubscribed"] = event["oversubscribed"]
                self.attrs["clock_cost_s"] = event.get("clock_cost_s", float("nan"))
                if event["oversubscribed"]:
                    self.warnings.append(
                        Warning(
                            "net.oversubscribed",
                            f"{event.get('ranks_on_node')} ranks share fewer cores on a host: delays hold the "
                            "kernel's switching between them",
                            "give no more ranks than cores to know the interconnect alone",
                        )
                    )
                if forwarding := event.get("forwarding_ranks"):
                    self.attrs["forwarding_ranks"] = forwarding
            case "pairing":
                self._pairing(event)
            case "warning":
                self.warnings.append(Warning(event["code"], event["evidence"], event["hint"]))
            case "error":
                self.error = EnvironmentFailure(event["code"], event["what"], event["hint"])
            case "end":
                self.ended = event
                if event["dropped"]:
                    self.warnings.append(
                        Warning(
                            "net.records_dropped",
                            f"{event['dropped']} bursts found no room and are lost",
                            "fewer sizes or a shorter --epoch-length need less room",
                        )
                    )

    def _pairing(self, event: Event) -> None:
        self.attrs["pairing"] = event["pairing"]
        self.attrs["steps"] = event["steps"]
        if (ratio := event.get("interference_median")) is None:
            return
        worst = event.get("interference_worst", ratio)
        self.attrs["interference_ratio"] = ratio
        self.attrs["interference_worst"] = worst
        if event["pairing"] == "serial":
            self.warnings.append(
                Warning(
                    "net.pairs_interfere",
                    f"pairs measured at the same time cost each other a factor of {ratio:.2f} (worst {worst:.2f}), "
                    "so they were measured one by one",
                    "--pairing parallel measures them together all the same",
                )
            )

    def stop_reason(self, ending: Ending) -> str:
        if self.ended is not None:
            return str(self.ended["stop_reason"])
        return "timeout" if ending.reason == "timeout" else "failed"


def _listen(
    line: list[str], run_dir: Path, listener: _Listener, budget_s: float, timeout_s: float
) -> Ending:
    """Runs the probe to its end; Ctrl-C and SIGTERM ask it to finish."""
    process = ProbeProcess(line, run_dir, listener.take, room="net")
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            if time.monotonic() - listener.heard > timeout_s:
                process.stop("timeout")
                return

    def ask(_signal: int, _frame: Any) -> None:
        listener.interrupted = True
        process.stop()

    watcher = threading.Thread(target=watch, daemon=True)
    with _signals(ask), listener.progress, process:
        listener.heard = time.monotonic()
        watcher.start()
        try:
            ending = process.wait(None if budget_s == 0 else budget_s + timeout_s)
        finally:
            over.set()
    if ending.reason == "timeout":
        silent = time.monotonic() - listener.heard
        ending = Ending(
            ending.reason,
            ending.status,
            EnvironmentFailure(
                "net.peer_timeout",
                f"the ranks were silent for {silent:.0f} s, and --timeout is {timeout_s:.0f} s",
                "raise --timeout for very long messages, or leave out the host that hangs with --hosts '^NAME'",
                str(process.log),
            ),
        )
    return ending


@contextmanager
def _signals(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """SIGINT and SIGTERM go to `handler` meanwhile; only the main thread may ask for that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
