"""`sonde io run`: run the user's command under the tracer, and make a dataset of the trace."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from sonde.core import provenance, run_folder, seal
from sonde.core.errors import EnvironmentFailure, UsageError, Warning, reason_not_written
from sonde.core.launch import session
from sonde.core.launch.start import mpi_environment
from sonde.core.layout import SealedFile
from sonde.core.owned_files import Identity
from sonde.core.units import format_duration
from sonde.io.maps.layers import KINDS, NOTHING, table_of
from sonde.io.maps.table import compiled, rule_names
from sonde.io.record import (
    run_attach,
    run_command,
    run_gluster,
    run_probe,
    run_request,
    run_tracefs,
    run_untraced,
    run_watch,
)
from sonde.io.record.run_request import STARTERS, TABLE, Request
from sonde.io.trace import run_close
from sonde.io.trace.schema import NAME
from sonde.io.trace.sealing import TraceSchema


@dataclass(frozen=True)
class Traced:
    """The result of a run. status: the command's exit status as a shell reports it (128 and more: by a signal); 0
    without a command.

    asked: whether this process received a signal to end. interrupted: whether that signal also ended the command, which
    a launcher may hide. length_s: the command's run time.
    """

    file: SealedFile
    status: int
    interrupted: bool
    length_s: float
    asked: bool


@dataclass(frozen=True)
class Watching:
    """Processes and probes that the kernel records in addition to system calls."""

    processes: Sequence[run_attach.Process] = ()
    probes: Sequence[run_probe.Probe] = ()
    warnings: Sequence[Warning] = ()

    @classmethod
    def of(cls, request: Request) -> Watching:
        """Find the functions to probe in what is traced.

        Raises
        ------
        UsageError  io.no_process, io.own_process. EnvironmentFailure  io.no_root, io.other_namespace, io.cannot_attach,
        io.nothing_to_probe.
        """
        if not request.attach and not request.uprobes:
            return cls()
        run_attach.check_rights()
        processes = [run_attach.process(number) for number in dict.fromkeys(request.attach)]
        attached = run_probe.different(file for one in processes for file in one.files)
        wanted = [layer for layer in request.layers if layer.name not in request.spared]
        probes = run_probe.of_files(wanted, attached.values(), attached=True)
        if request.uprobes and request.command:
            started = run_probe.different(
                run_probe.files_of_command(request.command, request.layers, STARTERS)
            )
            others = [file for key, file in started.items() if key not in attached]
            probes += run_probe.of_files(request.layers, others, attached=False)
        warnings = [] if probes else [_nothing_to_probe(request, processes)]
        return cls(processes, probes, warnings)


def _nothing_to_probe(request: Request, processes: Sequence[run_attach.Process]) -> Warning:
    """The warning that no function was found to probe.

    Raises
    ------
    EnvironmentFailure  io.nothing_to_probe: nothing else is traced in these processes either.
    """
    layers = ", ".join(layer.name for layer in request.layers if layer.name != run_watch.KERNEL)
    reason = "; a stripped program has no symbols to find them by"
    system_calls = run_watch.asked(request.layers)
    if processes:
        named = ", ".join(f"{one.number} ({Path(one.program).name})" for one in processes)
        message = f"process {named} has no function of {layers} that can be found{reason}"
        if not system_calls:
            raise EnvironmentFailure(
                "io.nothing_to_probe", message, "--kernel shows its system calls, which need no symbols"
            )
    else:
        message = (
            f"--uprobes found nothing to probe: no function of {layers} that cannot be interposed is in the programs "
            f"of this command or in the libraries of this machine{reason}"
        )
    hint = (
        "its system calls are traced; to trace more, install its symbols (packages *-dbgsym, *-debuginfo)"
        if system_calls
        else "--kernel traces system calls, which need no symbols"
    )
    return Warning("io.nothing_to_probe", message, hint)


def trace(
    request: Request,
    output: IO[Any] | None = None,
    say: Callable[[str], None] = lambda _: None,
    errors: IO[Any] | None = None,
) -> Traced:
    """Run the command to its end, or watch running processes, and make the trace a dataset, however the run ended.

    The standard streams are the command's, unless `output` or `errors` is given; with both it has no input either.
    Ctrl-C also reaches the command: whether or not it ends then, its trace is saved. If this process is killed, the
    command goes on, and `sonde data recover` makes the dataset. Without a command Ctrl-C ends the tracing; `say` gets a
    message about this when the tracing begins.

    Raises
    ------
    UsageError  io.no_program. EnvironmentFailure  io.nothing_traced, io.not_built, core.cannot_write, core.disk_full.
    Interrupted  the user ended it before anything was traced.
    Errors of `Watching.of`, `run_watch.watching` and `run_gluster.counting`.
    """
    tracing = _Tracing(request, output, say, errors)
    begin = tracing.starting()
    with (
        session.unless_interrupted(tracing.run_dir, "io", begin) as made,
        run_folder.hold(tracing.run_dir, made) as held,
    ):
        tracing.write_table()
        ended = tracing.run()
        warnings = tracing.warnings(ended)
        run_close.unpack(tracing.run_dir)
        tracing.refuse_empty(ended, warnings)
        with session.saving(tracing.run_dir, "io") as leaving:
            files = seal.seal(
                tracing.run_dir,
                request.out,
                TraceSchema(),
                attrs={
                    "stop_reason": ended.stop_reason,
                    "status": ended.status,
                    "elapsed_s": ended.length_s,
                },
                warnings=warnings,
                held=held,
                progress=leaving.leave,
            )
    return Traced(files[0], ended.status, ended.interrupted, ended.length_s, ended.asked)


@dataclass(frozen=True)
class _Ended:
    """How tracing ended. status, asked, interrupted, length_s: as of `Traced`. warnings: of the watchers."""

    status: int
    asked: bool
    interrupted: bool
    length_s: float
    stop_reason: str
    warnings: Sequence[Warning]


class _Tracing:
    """One run under the tracer, in its folder."""

    def __init__(
        self, request: Request, output: IO[Any] | None, say: Callable[[str], None], errors: IO[Any] | None
    ) -> None:
        """Prepare everything that may be refused, before anything is created."""
        self.request, self.say = request, say
        self.run_dir = run_folder.folder_of(request.out)
        run_tracefs.remove_stale()
        variables = partial(run_request.environment, self.run_dir, request.starters)
        self.words = (
            run_request.line(request, self.run_dir) if request.start is None else request.start(variables())
        )
        if request.gluster:
            run_gluster.check()
        self.watching = Watching.of(request)
        self.env = os.environ | dict(request.env) | variables()
        if request.start is not None:  # the program that starts the command must not be traced
            self.env = dict(request.env or os.environ)
        self.output, self.errors = output, errors
        self.stdin = None if output is None or errors is None else subprocess.DEVNULL
        self.host = socket.gethostname()

    def starting(self) -> Callable[[], Identity]:
        """A function that makes the run's folder."""
        request = self.request
        traced = [*request.command] or [f"{one.number} {one.program}" for one in self.watching.processes]
        return partial(
            run_folder.start,
            self.run_dir,
            room="io",
            schema=NAME,
            attrs={
                **provenance.attrs(command=request.typed, seed=0, hostlist=self.host),
                "system_calls": int(run_watch.asked(request.layers)),
                "uprobes": len(self.watching.probes),
                "run_id": secrets.token_hex(8),
                "traced": " ".join(traced),
                "max_trace": request.most_bytes,
                **request.attrs,
            },
            plan=self._plan(),
            env=mpi_environment(os.environ),
        )

    def _plan(self) -> dict[str, Any]:
        """The numbers that `TraceSchema.layout` needs."""
        layers = self.request.layers
        return {
            "layers": list(table_of(layers)),
            "own": len(layers),
            "rules": [
                [
                    number,
                    KINDS.index(function.kind),
                    int(function.request != NOTHING),
                    function.copies,
                    int(function.path != NOTHING),
                    int(function.file != NOTHING and function.file.width == "i32"),
                    int(function.stream),
                ]
                for number, function, _, _ in rule_names(layers)
            ],
            "clocks": [_clock(self.host)],
            "open": [
                [self.host, one.number, handle, name]
                for one in self.watching.processes
                for handle, name in one.open
            ],
        }

    def write_table(self) -> None:
        """Write what the tracer reads.

        Raises
        ------
        EnvironmentFailure  core.cannot_write; the folder is removed.
        """
        try:
            (self.run_dir / TABLE).write_bytes(compiled(self.request.layers, self.request.most_bytes))
            run_close.account(self.run_dir, self.host)
        except OSError as error:
            session.forget(self.run_dir)
            raise EnvironmentFailure(
                "core.cannot_write",
                f"cannot write into {self.run_dir}: {reason_not_written(error)}",
                "choose another --output",
            ) from None

    def run(self) -> _Ended:
        """Run the command to its end, or watch the processes.

        Raises
        ------
        UsageError, EnvironmentFailure  the command did not start; the folder is removed.
        """
        try:
            return self._run_command() if self.words else self._watch()
        except (UsageError, EnvironmentFailure):
            session.forget(self.run_dir)
            raise

    def _run_command(self) -> _Ended:
        request = self.request
        # This order keeps `gluster`, a child of this process, out of the kernel's events.
        with self._counting() as counted, self._watching() as watched:
            began = time.monotonic()
            status, asked = run_command.run(
                self.words, self.env, self.output, self.errors, self.stdin, request.cwd, request.limit_s
            )
            length_s = time.monotonic() - began
        # A launcher that ends on request has an exit status of its own.
        interrupted = asked and (
            status in (130, 143, 128 + signal.SIGHUP) or (status != 0 and request.starts_ranks)
        )
        stop_reason = "interrupted" if interrupted else "ended"
        warnings = [*watched.warnings, *counted.warnings]
        return _Ended(status, asked, interrupted, length_s, stop_reason, warnings)

    def _watch(self) -> _Ended:
        began = time.monotonic()
        with (
            run_command.stop_requested() as stopped,
            self._counting() as counted,
            self._watching() as watched,
        ):
            self.say(_begun(self.watching, self.request.seconds))
            with run_attach.ends_of(self.watching.processes) as wait:
                stop_reason = wait(self.request.seconds, stopped)
        length_s = time.monotonic() - began
        return _Ended(0, False, False, length_s, stop_reason, [*watched.warnings, *counted.warnings])

    def _watching(self) -> AbstractContextManager[run_watch.Watched]:
        request, watching = self.request, self.watching
        if not run_watch.asked(request.layers) and not watching.probes and not watching.processes:
            return nullcontext(run_watch.Watched())
        return run_watch.watching(
            request.layers,
            self.run_dir,
            self.host,
            request.most_bytes,
            STARTERS,
            watching.probes,
            watching.processes,
        )

    def _counting(self) -> AbstractContextManager[run_gluster.Counting]:
        if not self.request.gluster:
            return nullcontext(run_gluster.Counting())
        return run_gluster.counting(self.request.gluster, self.run_dir)

    def warnings(self, ended: _Ended) -> list[Warning]:
        """The warnings for the dataset."""
        failed = run_untraced.of_status(ended.status, self.request.command, ended.interrupted)
        return [
            *self.watching.warnings,
            *ended.warnings,
            *(failed if self.words else []),
            *run_untraced.not_exported(self.request, self.run_dir),
        ]

    def refuse_empty(self, ended: _Ended, warnings: Sequence[Warning]) -> None:
        """Remove the folder of a run without a trace.

        Raises
        ------
        EnvironmentFailure  io.nothing_traced. Interrupted  the signal came before the program did anything.
        """
        if any(self.run_dir.glob("*.blk")):
            return
        refused = run_close.not_traced(self.run_dir)
        session.forget(self.run_dir)
        if ended.asked and ended.status:
            raise session.interrupted("io")
        why = run_untraced.nothing_traced(self.request, ended.status, refused)
        why.beside([warning for warning in warnings if warning.code == "io.layer_not_found"])
        raise why


def _begun(watching: Watching, seconds: float | None) -> str:
    names = ", ".join(f"{one.number} ({Path(one.program).name})" for one in watching.processes)
    end = "Ctrl-C ends it" if seconds is None else f"for {format_duration(seconds)}, or until Ctrl-C"
    files = run_probe.different(probe.file for probe in watching.probes)
    others = run_probe.others_running(files, [one.number for one in watching.processes])
    slowed = f"; {others} other processes run the same files and are slowed, too" if others else ""
    return f"tracing {names}: {len(watching.probes)} functions probed; {end}{slowed}"


def _clock(host: str) -> list[Any]:
    from sonde._core import clock_pair

    ns, ticks = clock_pair()
    return [host, ticks, ns]
