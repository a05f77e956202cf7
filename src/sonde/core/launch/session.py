"""One run of a room's probe: start, listen, stop in time, seal. The room supplies its own parts.

class Listener(session.Listener):
    room = "net"
    ...
measured = session.run(Job(...), Listener(bar))
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sonde.core import provenance, run_folder, seal
from sonde.core.blocks import BlockFile
from sonde.core.deadline import Deadline
from sonde.core.errors import DataError, EnvironmentFailure, Interrupted, SondeError, Warning, typed
from sonde.core.events import Event, Progress
from sonde.core.interrupt import PutOff, put_off, signals
from sonde.core.launch.measured import Measured
from sonde.core.launch.process import Ending, ProbeProcess, with_tail, without_log
from sonde.core.launch.start import Start, mpi_environment, transport
from sonde.core.layout import RoomSchema
from sonde.core.owned_files import Identity
from sonde.core.surroundings import place_of_ranks


@dataclass(frozen=True)
class Job:
    """The measurement: what runs, with which settings, into which dataset.

    schema     the room's; with several parts, the datasets are <stem>-<part>.nc.
    start      from `prepare`. ntasks: ranks. env: variables for each of them, stored in /env.
    words      makes the probe's arguments from the run's folder and the time for measuring (s; 0: no limit).
    plan       the information that the schema needs to read the records.
    out        the dataset. command: the user's command line, for the dataset, and so is `seed`.
    time_s     gives the time for measuring (s; 0: no limit); called just before the probe starts.
    timeout_s  how long the probe may be silent before it counts as stuck.
    attrs      further root attributes of the room. warnings: those known before the start.
    beside     a program that runs next to the probe, such as a server; entered with the run's folder before `words`
               and `time_s` are called, left before the run is sealed. It removes its own files from the folder.
    deadline   the end of everything, with saving and analysis.
    """

    schema: RoomSchema
    start: Start
    ntasks: int
    words: Callable[[str, float], Sequence[str]]
    plan: Mapping[str, Any]
    out: Path
    command: Sequence[str]
    seed: int
    time_s: Callable[[], float]
    timeout_s: float = 60.0
    attrs: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[Warning] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    beside: Callable[[Path], AbstractContextManager[object]] = nullcontext
    deadline: Deadline = field(default_factory=Deadline)

    @property
    def run_dir(self) -> Path:
        return run_folder.folder_of(self.out)

    def line(self, time_s: float) -> list[str]:
        """The complete command line that measures for `time_s`."""
        return self.start.line(self.words(str(self.run_dir.resolve()), time_s), self.ntasks, self.env)


class Listener:
    """Takes a probe's events: shows them, and stores those that belong in the dataset.

    A room derives its own class: it sets the texts below, and handles its own events in `take`, after
    `super().take(event)`.

    room          prefix of codes.
    sample_kinds  values of a record's `kind` for samples: a run without samples is removed when it fails or is
                  interrupted. None: every record is a sample.
    crowded       the meaning of ranks that share cores, and what to do.
    dropped       the things that are too many for their files, and what to do.
    patience      the hint when ranks were silent for longer than --timeout. who: the name of the ranks in the error.
    poll_s        how often the parent wakes up to check the probe: its own work disturbs the measurement.
    """

    room: str
    sample_kinds: tuple[int, ...] | None = None
    crowded: tuple[str, str]
    dropped: tuple[str, str]
    patience = "raise --timeout, or leave out the host that hangs with --hosts '^NAME'"
    who = "the ranks were"
    poll_s = 0.2

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.process: ProbeProcess | None = None
        self.started: Event | None = None
        self.ended: Event | None = None
        self.error: SondeError | None = None
        self.interrupted = False
        self.warnings: list[Warning] = []
        self.attrs: dict[str, Any] = {}
        self.heard = time.monotonic()

    def take(self, event: Event) -> None:
        """Handle an event, in the thread that called `run`; an exception ends the run and is passed on."""
        self.heard = time.monotonic()
        self.progress.show(event)
        match event["event"]:
            case "start":
                self.started = event
                self.attrs["mpi_library"] = event["mpi_version"]
                self.attrs["oversubscribed"] = event["oversubscribed"]
                self.attrs["clock_cost_s"] = event.get("clock_cost_s", float("nan"))
                if event["oversubscribed"]:
                    meaning, hint = self.crowded
                    ranks = event.get("ranks_on_node")
                    self.warn("oversubscribed", f"{ranks} ranks share fewer cores on a host: {meaning}", hint)
                elif event.get("crowded_kernel"):
                    self.attrs["crowded_kernel"] = True
                    meaning, hint = self.crowded
                    self.warn(
                        "crowded_kernel",
                        f"nodes that share one kernel (containers, virtual clusters) have "
                        f"{event.get('ranks_on_kernel')} ranks on {event.get('kernel_cores')} cores: {meaning}",
                        hint,
                    )
                if forwarding := event.get("forwarding_ranks"):
                    self.attrs["forwarding_ranks"] = forwarding
            case "warning":
                self.warnings.append(Warning(event["code"], event["evidence"], event["hint"]))
            case "error":
                self.error = EnvironmentFailure(event["code"], event["what"], event["hint"])
            case "end":
                self.ended = event
                if event["dropped"]:
                    things, hint = self.dropped
                    evidence = f"{event['dropped']} {things} are lost, because there was no room"
                    self.warn("records_dropped", evidence, hint)

    def warn(self, code: str, evidence: str, hint: str) -> None:
        """Add a warning with the room's code to the dataset."""
        self.warnings.append(Warning(f"{self.room}.{code}", evidence, hint))

    def stop(self) -> None:
        """Ask the probe to finish and to save its data. No effect if no probe runs."""
        if self.process is not None:
            self.process.stop()

    def stop_reason(self, ending: Ending) -> str:
        """The reason why measuring ended, for the dataset."""
        if self.interrupted:
            return "interrupted"
        if self.ended is not None:
            return str(self.ended["stop_reason"])
        return "timeout" if ending.reason == "timeout" else "failed"


def run(job: Job, listener: Listener) -> Measured:
    """Measure, and seal the data, however the measurement ended.

    Raises
    ------
    EnvironmentFailure  nothing could be measured or written; the hint gives the command to recover the data.
    Interrupted         <room>.interrupted: before there was a sample; no file is left.
    """
    run_dir, start, schema = job.run_dir, job.start, job.schema
    placement = start.launcher.placement(start.hosts, job.ntasks)
    facts: dict[str, Any] = {
        "transport": transport(os.environ),
        "run_id": secrets.token_hex(8),
        "launcher": start.launcher.name,
        "binding": placement.bind,
        "oversubscribed": placement.oversubscribed,
        **job.attrs,
    }
    begin = partial(
        run_folder.start,
        run_dir,
        room=schema.room,
        schema=f"{schema.room}/{schema.version}",
        attrs=provenance.attrs(command=job.command, seed=job.seed, hostlist=start.hostlist, mpi=start.mpi)
        | _storable(facts),
        plan=job.plan,
        env=mpi_environment(os.environ) | dict(job.env),
        warnings=job.warnings,
    )
    with (
        unless_interrupted(run_dir, listener.room, begin, listener.sample_kinds) as made,
        run_folder.hold(run_dir, made) as held,
    ):
        try:
            with job.beside(run_dir):
                time_s = job.time_s()
                ending = listen(job.line(time_s), run_dir, listener, time_s, job.timeout_s)
        except SondeError as failed:
            if nothing_in(run_dir, listener.sample_kinds):  # the program next to the probe did not start
                forget(run_dir)
                without_log(failed)
            raise
        stop_reason = listener.stop_reason(ending)
        error = ending.error or listener.error
        if listener.interrupted and nothing_in(run_dir, listener.sample_kinds):
            forget(run_dir)
            raise interrupted(listener.room)
        if error is not None:
            error.beside([*job.warnings, *listener.warnings])
        if error is not None and (listener.started is None or nothing_in(run_dir, listener.sample_kinds)):
            forget(run_dir)
            raise without_log(error)
        with saving(run_dir, listener.room) as asked:
            files = seal.seal(
                run_dir,
                job.out,
                schema,
                attrs={"stop_reason": stop_reason} | _storable(listener.attrs),
                warnings=listener.warnings,
                held=held,
                progress=asked.leave,
                deadline=job.deadline,
            )
        if error is not None and not Path(error.log).is_file():
            without_log(error)  # the folder was removed when the dataset was complete
    return Measured(files, stop_reason, listener.interrupted or asked.came, error, listener.attrs)


def listen(line: Sequence[str], run_dir: Path, listener: Listener, time_s: float, timeout_s: float) -> Ending:
    """Run a probe to its end; Ctrl-C and SIGTERM ask it to finish, a second one kills it.

    time_s: the planned time of measuring; 0: no limit. timeout_s: how long it may be silent, and how much longer than
    `time_s` it may take.
    """
    process = ProbeProcess(
        line, run_dir, listener.take, cwd=place_of_ranks(), room=listener.room, poll_s=listener.poll_s
    )
    over = threading.Event()

    def watch() -> None:
        while not over.wait(max(0.5, listener.poll_s)):
            if time.monotonic() - listener.heard > timeout_s:
                process.stop("timeout")
                return

    def ask(_signal: int, _frame: Any) -> None:
        again, listener.interrupted = listener.interrupted, True
        process.interrupt(again)

    watcher = threading.Thread(target=watch, daemon=True)
    with signals(ask), listener.progress, process:
        listener.process = process
        listener.heard = time.monotonic()
        watcher.start()
        if listener.interrupted:  # before there was a process to stop
            process.stop()
        try:
            ending = process.wait(None if time_s == 0 else time_s + timeout_s)
        finally:
            over.set()
            listener.process = None
    if ending.reason == "timeout":
        silent = time.monotonic() - listener.heard
        ending = Ending(
            ending.reason,
            ending.status,
            EnvironmentFailure(
                f"{listener.room}.peer_timeout",
                f"{listener.who} silent for {silent:.0f} s, and --timeout is {timeout_s:.0f} s",
                with_tail(listener.patience, process.own_log()),
                str(process.log),
            ),
        )
    return ending


def nothing_in(run_dir: Path, kinds: Sequence[int] | None = None) -> bool:
    """Whether no rank has written a record of these kinds; None: of any kind."""
    for path in run_dir.glob("*.blk"):
        with suppress(DataError, EnvironmentFailure, OSError):  # not even its head exists
            file = BlockFile(path)
            if kinds is not None and "kind" not in (file.dtype.names or ()):
                continue  # from a program next to the ranks
            if any(kinds is None or np.isin(records["kind"], kinds).any() for records in file):
                return False
    return True


def forget(run_dir: Path) -> None:
    """Remove the folder of a run that never began; `without_log` reports its log."""
    run_folder.forget(run_dir)


@contextmanager
def unless_interrupted(
    run_dir: Path,
    room: str,
    begin: Callable[[], Identity],
    kinds: Sequence[int] | None = None,
) -> Iterator[Identity]:
    """Handle a Ctrl-C before programs listen, or while they are saved; a folder with samples stays, for `recover`.

    begin: creates the folder with its run.json, and returns its identity, which the context gives. A signal waits until
    this is done, because nobody could tell the owner of a half-made folder.
    """
    begun = False
    try:
        with put_off(f"{room}: interrupted; remove {run_dir} if it exists") as asked:
            made = begin()
            begun = True
        asked.leave()
        yield made
    except KeyboardInterrupt:
        if not begun or not (run_dir / run_folder.RUN_FILE).exists():
            raise
        if nothing_in(run_dir, kinds):
            forget(run_dir)
            raise interrupted(room) from None
        raise Interrupted(f"{room}.interrupted", _not_saved(run_dir), _recover(run_dir)) from None


def saving(run_dir: Path, room: str) -> AbstractContextManager[PutOff]:
    """A context for `seal.seal`, whose `progress` must call `leave`: a first Ctrl-C waits for it, a second one does
    not.
    """
    return put_off(f"{room}: {_not_saved(run_dir)}\n  hint: {_recover(run_dir)}")


def _not_saved(run_dir: Path) -> str:
    return f"interrupted before the dataset was saved; the measurements are in {run_dir}"


def _recover(run_dir: Path) -> str:
    return typed("sonde", "data", "recover", run_dir)


def interrupted(room: str) -> Interrupted:
    """The error of a run that was interrupted and left nothing."""
    return Interrupted(f"{room}.interrupted", "interrupted before anything was measured; no file is left")


def _storable(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Truth values as 0 and 1, because NetCDF attributes have no truth values."""
    return {name: int(value) if isinstance(value, bool) else value for name, value in facts.items()}
