"""`sonde io run`: run the user's command under the tracer, and make a dataset of the trace."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from sonde.core import launch, provenance, seal
from sonde.core.errors import EnvironmentFailure, UsageError, Warning, nearest, reason_not_written, typed
from sonde.core.interrupt import signals
from sonde.core.launch import session
from sonde.core.launch.mpirun import COMMANDS
from sonde.core.launch.start import default_ntasks, mpi_environment
from sonde.core.layout import SealedFile
from sonde.core.lines import kernel_lines
from sonde.core.printable import one_line
from sonde.core.units import format_duration
from sonde.io.maps.layers import KINDS, NOTHING, Layer, table_of
from sonde.io.maps.run_elf import Program, why_not
from sonde.io.maps.table import compiled, rule_names
from sonde.io.record import run_attach, run_gluster, run_probe, run_tracefs, run_watch
from sonde.io.trace import run_close
from sonde.io.trace.schema import NAME
from sonde.io.trace.sealing import TraceSchema

TRACER = "libsonde-io.so"
TABLE = "table"
TOO_LONG = 124  # the exit status of a command that was ended at its time limit, as for timeout(1)
GRACE_S = 10.0  # between SIGTERM and SIGKILL
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # signals that ask a command to end
SETTLE_S = 0.02  # after this time a signal to a group has reached all of its members
LAUNCHERS = (*COMMANDS, "srun")
# Programs that only start others. In the trace their own calls would look like calls of the job.
_OF_RANKS = (
    *COMMANDS, "orterun", "orted", "prte", "prted", "prterun", "hydra_pmi_proxy", "hydra_bstrap_proxy", "srun",
    "slurmstepd",
)  # fmt: skip
_TOOLS = (
    "env", "timeout", "nice", "nohup", "time", "setsid", "stdbuf", "taskset", "numactl", "sh", "bash", "dash", "zsh",
    "ssh", "rsh",
)  # fmt: skip
STARTERS = (*_OF_RANKS, *_TOOLS)
# The folders where a system has its tools. A program of the same name in another folder is the user's own.
_SYSTEM = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin")


@dataclass(frozen=True)
class Request:
    """A description of what to trace.

    command : the user's words; () if only `attach` is traced. layers: from the application down. out: the path of the
    dataset. most_bytes: the limit of the trace on each node; 0: no limit. launcher: "auto", or the launcher whose
    command line `command` is. ranks, hosts: how many ranks `launcher` starts of `command`, and where; 0: `command` is
    the launcher's line already. typed: the command line of Sonde itself. uprobes: also trace functions that cannot be
    interposed. attach: numbers of running processes. seconds: how long to trace if there is no command; None: until the
    processes end. spared: names of layers that are not probed in attached processes.
    starters: also trace programs that mostly start others, such as shells.
    gluster: a volume whose bricks' counters are read; "" for none.
    start: makes the line to start from the variables that its program must get; None: the line is `command`, which
    passes them on. env: more variables, which `command` already contains; with `start`, all variables. cwd: the working
    directory; None: the current one. limit_s: the time after which the command is ended; None: never.
    """

    command: Sequence[str]
    layers: Sequence[Layer]
    out: Path
    most_bytes: int
    typed: Sequence[str]
    launcher: str = "auto"
    ranks: int = 0
    hosts: Sequence[str] = ()
    uprobes: bool = False
    attach: Sequence[int] = ()
    seconds: float | None = None
    spared: Sequence[str] = ()
    gluster: str = ""
    starters: bool = False
    attrs: Mapping[str, Any] = field(default_factory=dict)
    start: Callable[[Mapping[str, str]], Sequence[str]] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    limit_s: float | None = None


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


def library() -> Path:
    """The path of the tracer. EnvironmentFailure  io.not_built."""
    path = launch.libexec() / TRACER
    if not path.exists():
        raise EnvironmentFailure(
            "io.not_built",
            f"this build of Sonde has no tracer ({path})",
            "it is written for x86-64; 'sonde doctor' lists what is missing",
        )
    return path


def environment(folder: Path, starters: bool = False) -> dict[str, str]:
    """The environment variables that trace a program into a run's folder.

    starters : also trace shells and other programs that mostly start others
    """
    before = os.environ.get("LD_PRELOAD", "")
    return {
        "LD_PRELOAD": f"{library()}{':' if before else ''}{before}",
        "SONDE_IO_FOLDER": str(folder.resolve()),
        "SONDE_IO_TABLE": str(folder.resolve() / TABLE),
        "SONDE_IO_SKIP": ":".join([*_OF_RANKS, *([] if starters else _tools())]),
        "SONDE_IO_SECCOMP": _filters(),
    }


def _tools() -> list[str]:
    """The files of the system's tools that start other programs, under the names that the kernel gives them when they
    run."""
    found = {(Path(folder) / name).resolve() for folder in _SYSTEM for name in _TOOLS}
    # Where one file is all tools (busybox), it cannot be distinguished from the tools that do I/O.
    return sorted(str(path) for path in found if path.name in _TOOLS and path.is_file())


def _filters() -> str:
    """The seccomp state of this process, as "mode:count" ("2:1" in a container). A traced program may have more
    filters, which nobody saw."""
    with suppress(OSError):
        status = dict(line.split(":", 1) for line in kernel_lines(Path("/proc/self/status")) if ":" in line)
        mode, count = (status.get(key, "0").strip() for key in ("Seccomp", "Seccomp_filters"))
        return f"{mode}:{count}"
    return "0:0"


def line(request: Request, folder: Path) -> list[str]:
    """The command line to start: the user's own; an mpirun or srun line gets options that pass the tracer's variables
    on.

    Raises
    ------
    UsageError  io.no_program. EnvironmentFailure  io.not_built. Errors of `Launcher.inject`.
    """
    command = list(request.command)
    if not command:
        return []
    found = shutil.which(command[0])
    if found is None:
        path = Path(command[0])
        if path.exists():
            problem = "is a folder" if path.is_dir() else "is not executable"
            raise UsageError(
                "io.no_program", f"'{command[0]}' {problem}", "give a program and its arguments after --"
            )
        names = (
            {entry.name for entry in path.parent.iterdir()}
            if path.parent.is_dir() and "/" in command[0]
            else ()
        )
        raise UsageError(
            "io.no_program",
            f"no program '{command[0]}' was found{nearest(path.name, tuple(names))}",
            "give a program and its arguments after --, as you would start it",
        )
    return with_variables(request, environment(folder, request.starters))


def ranks_of(command: Sequence[str], launcher: str, ntasks: int | None, hosts: Sequence[str]) -> int:
    """How many ranks of a command Sonde starts through `launcher`; 0 if the command runs as it is.

    Raises
    ------
    UsageError  io.two_launchers: ranks were requested, but the command starts its own; io.no_program: no command given.
    """
    own = next((word for word in command if Path(word).name in LAUNCHERS), "")
    if ntasks is None and not hosts:
        return default_ntasks() if launcher in ("mpirun", "srun") and command and not own else 0
    if not command:
        raise UsageError("io.no_program", "--ntasks and --hosts need a program to start", "give one after --")
    if own:
        raise UsageError(
            "io.two_launchers",
            f"--ntasks and --hosts are for a program whose ranks Sonde starts, but '{own}' starts its own "
            "ranks",
            f"leave these options out, or leave out {own}",
        )
    return default_ntasks() if ntasks is None else ntasks


def with_variables(request: Request, env: Mapping[str, str]) -> list[str]:
    """The line to start; an mpirun or srun line gets options that pass `env` on.

    Errors of `launch.launcher`, `Launcher.command` and `Launcher.inject`.
    """
    command = list(request.command)
    if request.ranks:
        return launch.launcher(request.launcher).command(command, request.hosts, request.ranks, env)
    name = Path(command[0]).name
    how = request.launcher
    if how == "auto":
        how = "mpirun" if name in COMMANDS else "srun" if name == "srun" else "local"
    if how == "local" or not env:
        return command
    return launch.launcher(how).inject(command, env)


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
        warnings = []
        if not probes:
            layers = ", ".join(layer.name for layer in request.layers if layer.name != run_watch.KERNEL)
            reason = "; a stripped program has no symbols to find them by"
            if processes:
                named = ", ".join(f"{one.number} ({Path(one.program).name})" for one in processes)
                message = f"process {named} has no function of {layers} that can be found{reason}"
                if not run_watch.asked(request.layers):
                    raise EnvironmentFailure(
                        "io.nothing_to_probe",
                        message,
                        "--kernel shows its system calls, which need no symbols",
                    )
            else:
                message = (
                    f"--uprobes found nothing to probe: no function of {layers} that cannot be interposed "
                    f"is in the programs of this command or in the libraries of this machine{reason}"
                )
            hint = (
                "its system calls are traced; to trace more, install its symbols (packages *-dbgsym, "
                "*-debuginfo)"
                if run_watch.asked(request.layers)
                else "--kernel traces system calls, which need no symbols"
            )
            warnings.append(Warning("io.nothing_to_probe", message, hint))
        return cls(processes, probes, warnings)


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
    run_dir = seal.run_folder(request.out)
    run_tracefs.remove_stale()
    # This may refuse, so it comes before anything is created.
    words = (
        line(request, run_dir)
        if request.start is None
        else request.start(environment(run_dir, request.starters))
    )
    if request.gluster:
        run_gluster.check()
    watching = Watching.of(request)
    env = os.environ | dict(request.env) | environment(run_dir, request.starters)
    if request.start is not None:  # the program that starts the command must not be traced
        env = dict(request.env or os.environ)
    stdin = None if output is None or errors is None else subprocess.DEVNULL
    host = socket.gethostname()
    clocks = [_clock(host)]
    plan = {
        "layers": list(table_of(request.layers)),
        "own": len(request.layers),
        "rules": [
            [
                number,
                KINDS.index(function.kind),
                int(function.request != NOTHING),
                function.copies,
                int(function.path != NOTHING),
                int(function.file != NOTHING and function.file.width == "i32"),
            ]
            for number, function, _, _ in rule_names(request.layers)
        ],
        "clocks": clocks,
        "open": [[host, one.number, handle, name] for one in watching.processes for handle, name in one.open],
    }
    traced = [*request.command] or [f"{one.number} {one.program}" for one in watching.processes]
    begin = partial(
        seal.start_run,
        run_dir,
        room="io",
        schema=NAME,
        attrs={
            **provenance.attrs(command=request.typed, seed=0, hostlist=host),
            "system_calls": int(run_watch.asked(request.layers)),
            "uprobes": len(watching.probes),
            "run_id": secrets.token_hex(8),
            "traced": " ".join(traced),
            "max_trace": request.most_bytes,
            **request.attrs,
        },
        plan=plan,
        env=mpi_environment(os.environ),
    )
    with session.unless_interrupted(run_dir, "io", begin), seal.hold(run_dir) as held:
        try:
            (run_dir / TABLE).write_bytes(compiled(request.layers, request.most_bytes))
            run_close.account(run_dir, host)
        except OSError as error:
            session.forget(run_dir)
            raise EnvironmentFailure(
                "core.cannot_write",
                f"cannot write into {run_dir}: {reason_not_written(error)}",
                "choose another --output",
            ) from None
        try:
            began = time.monotonic()
            if words:
                # This order keeps `gluster`, a child of this process, out of the kernel's events.
                with (
                    _counting(request, run_dir) as counted,
                    _watching(request, watching, run_dir, host) as watched,
                ):
                    began = time.monotonic()
                    status, asked = run_command(
                        words, env, output, errors, stdin, request.cwd, request.limit_s
                    )
                    length_s = time.monotonic() - began
                stop_reason = "ended"
            else:
                status, asked = 0, False
                with (
                    _stop_requested() as stopped,
                    _counting(request, run_dir) as counted,
                    _watching(request, watching, run_dir, host) as watched,
                ):
                    say(_begun(watching, request.seconds))
                    stop_reason = _wait(watching.processes, request.seconds, stopped)
                length_s = time.monotonic() - began
        except (UsageError, EnvironmentFailure):  # the command never started
            session.forget(run_dir)
            raise
        clocks.append(_clock(host))
        # A launcher that ends on request has an exit status of its own.
        interrupted = asked and (
            status in (130, 143, 128 + signal.SIGHUP) or (status != 0 and _launches(request))
        )
        warnings = [
            *watching.warnings,
            *watched.warnings,
            *counted.warnings,
            *(_of_status(status, request.command, interrupted) if words else []),
            *_not_exported(request, run_dir),
        ]
        run_close.unpack(run_dir)
        if not any(run_dir.glob("*.blk")):
            refused = run_close.not_traced(run_dir)
            session.forget(run_dir)
            if asked and status:  # the signal came before the program did anything
                raise session.interrupted("io")
            why = _nothing(request, status, refused)
            why.beside([warning for warning in warnings if warning.code == "io.layer_not_found"])
            raise why
        with session.saving(run_dir, "io") as leaving:
            files = seal.seal(
                run_dir,
                request.out,
                TraceSchema(),
                attrs={
                    "stop_reason": "interrupted" if interrupted else stop_reason,
                    "status": status,
                    "elapsed_s": length_s,
                },
                warnings=warnings,
                held=held,
                progress=leaving.leave,
            )
    return Traced(files[0], status, interrupted, length_s, asked)


def _launches(request: Request) -> bool:
    """Whether ranks are started, by Sonde or by the typed command."""
    return bool(request.ranks) or any(Path(word).name in LAUNCHERS for word in request.command)


def _watching(
    request: Request, watching: Watching, run_dir: Path, host: str
) -> AbstractContextManager[run_watch.Watched]:
    if not run_watch.asked(request.layers) and not watching.probes and not watching.processes:
        return nullcontext(run_watch.Watched())
    return run_watch.watching(
        request.layers, run_dir, host, request.most_bytes, STARTERS, watching.probes, watching.processes
    )


def _begun(watching: Watching, seconds: float | None) -> str:
    names = ", ".join(f"{one.number} ({Path(one.program).name})" for one in watching.processes)
    end = "Ctrl-C ends it" if seconds is None else f"for {format_duration(seconds)}, or until Ctrl-C"
    files = run_probe.different(probe.file for probe in watching.probes)
    others = run_probe.others_running(files, [one.number for one in watching.processes])
    slowed = f"; {others} other processes run the same files and are slowed, too" if others else ""
    return f"tracing {names}: {len(watching.probes)} functions probed; {end}{slowed}"


@contextmanager
def _stop_requested() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a signal has asked this process to end. The process then ends in order."""
    received: list[int] = []
    with signals(lambda number, _: received.append(number), END_SIGNALS):
        yield lambda: bool(received)


def _wait(processes: Sequence[run_attach.Process], seconds: float | None, stopped: Callable[[], bool]) -> str:
    """Wait until the processes end, `seconds` have passed or `stopped` is true. Returns the reason: "ended", "budget",
    "stopped"."""
    with run_attach.ends_of(processes) as wait:
        return wait(seconds, stopped)


def _counting(request: Request, run_dir: Path) -> AbstractContextManager[run_gluster.Counting]:
    return (
        run_gluster.counting(request.gluster, run_dir)
        if request.gluster
        else nullcontext(run_gluster.Counting())
    )


def _clock(host: str) -> list[Any]:
    from sonde._core import clock_pair

    ns, ticks = clock_pair()
    return [host, ticks, ns]


def run_command(
    words: Sequence[str],
    env: Mapping[str, str],
    output: IO[Any] | int | None = None,
    errors: IO[Any] | int | None = None,
    stdin: int | None = None,
    cwd: Path | None = None,
    limit_s: float | None = None,
) -> tuple[int, bool]:
    """The command's exit status, TOO_LONG if it ran longer than `limit_s`, and whether this process was asked to end.

    Raises
    ------
    UsageError  io.no_program.
    """
    received: list[int] = []
    pending: set[int] = set()
    child: list[subprocess.Popen[bytes]] = []
    passing = False

    def on_signal(number: int, _frame: object) -> None:
        nonlocal passing
        received.append(number)
        pending.add(number)
        if passing or not child:  # the call that runs already handles this signal, too
            return
        passing = True
        while pending:
            time.sleep(SETTLE_S)
            numbers = set(pending)
            pending.clear()
            for one in numbers - witness.received():
                child[0].send_signal(one)
        passing = False

    with _Witness() as witness, signals(on_signal, END_SIGNALS):
        try:
            child.append(
                # The command inherits other open descriptors, as from `7>file` or `<(…)` in a shell.
                subprocess.Popen(
                    list(words),
                    env=dict(env),
                    stdin=stdin,
                    stdout=output,
                    stderr=errors,
                    cwd=cwd,
                    close_fds=False,
                )
            )
        except OSError as error:
            raise UsageError(
                "io.no_program",
                f"cannot start '{words[0]}': {error.strerror or error}",
                "give a program that this machine can run; a script needs a first line that names its "
                "interpreter",
            ) from None
        pending.clear()
        if received:
            child[0].send_signal(received[0])
        try:
            code = child[0].wait(limit_s)
        except subprocess.TimeoutExpired:
            child[0].terminate()  # a launcher then ends its ranks
            try:
                child[0].wait(GRACE_S)
            except subprocess.TimeoutExpired:
                child[0].kill()
                child[0].wait()
            return TOO_LONG, bool(received)
    return (128 - code if code < 0 else code), bool(received)


class _Witness:
    """Distinguishes signals that reached this process's whole group, the command included, from signals to this process
    alone.

    A signal carries no information about its other receivers. So a helper process in the group waits with these signals
    blocked: a signal that reached the whole group is pending there.
    """

    def __enter__(self) -> _Witness:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def received(self) -> set[int]:
        """The signals that have reached the whole group since the last call."""
        status = Path(f"/proc/{self._process.pid}/status").read_text("utf-8", "replace")
        pending = 0
        for mask in re.findall(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)$", status, re.MULTILINE):
            pending |= int(mask, 16)
        found = {int(number) for number in END_SIGNALS if pending >> (number - 1) & 1}
        if found:
            self._end()
            self._start()
        return found

    def _start(self) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
        try:
            # The shell ends when its input ends, also if Sonde is killed. --kernel does not trace shells: see STARTERS.
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", "read _"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()


def _of_status(status: int, command: Sequence[str], interrupted: bool) -> list[Warning]:
    if status == 0 or interrupted:
        return []
    how = f"with exit status {status}"
    if status > 128:
        with suppress(ValueError):
            how = f"by signal {status - 128} ({signal.Signals(status - 128).name})"
    return [
        Warning(
            "io.command_failed",
            f"'{one_line(Path(command[0]).name)}' ended {how}; the trace holds its calls until then",
            "see its own messages above",
        )
    ]


def _not_exported(request: Request, run_dir: Path) -> list[Warning]:
    """Warnings about functions in the user's own maps that no library of the traced processes exports."""
    own = [layer for layer in request.layers if not layer.shipped]
    if not own:
        return []
    from sonde.io.maps import run_exports

    seen = {Path(library) for _, _, _, library in run_close.functions(run_dir)}
    probed = {symbol for _, _, symbol, _ in run_close.functions(run_dir, "watch.functions")}
    lost = run_exports.nowhere(run_exports.found_in(own, sorted(path for path in seen if path.exists())))
    unseen = [
        Warning(
            "io.layer_not_found",
            f"no function of the layer '{layer.name}' was found in the traced programs: "
            f"{run_exports.why_nothing(layer)}",
            f"{typed('sonde', 'io', 'layers', 'check', '--map', layer.source)} lists what the libraries "
            "here export",
        )
        for layer in own
        if not (
            request.uprobes or request.attach or _found(request, run_dir, layer)
        )  # `Watching` reports on these
    ]
    return unseen + [
        Warning(
            "io.not_exported",
            f"no library of the traced programs exports '{name}'{near}, which a layer map lists",
            "correct the map, or delete the name from it",
        )
        for name, near in lost.items()
        if name not in probed
    ]


def _found(request: Request, run_dir: Path, layer: Layer) -> bool:
    """Whether any traced program has a function of a layer."""
    rules = {
        k for k, (number, *_) in enumerate(rule_names(request.layers)) if request.layers[number] is layer
    }
    return any(rule in rules for _, rule, _, _ in run_close.functions(run_dir))


def _nothing(request: Request, status: int, refused: Sequence[Warning]) -> EnvironmentFailure:
    """The error for a run without a trace. Its exit code is the command's, or an error code after success: the user
    asked for a trace."""
    error = _why_nothing(request, status, refused)
    error.exit = status or error.exit
    return error


def _why_nothing(request: Request, status: int, refused: Sequence[Warning]) -> EnvironmentFailure:
    """The error with a reason: the tracer's own message, the first program that it cannot enter, or no traced call."""
    layers = ", ".join(layer.name for layer in request.layers)
    if not request.command:
        return EnvironmentFailure(
            "io.nothing_traced",
            f"nothing was traced: no function of {layers} was called during that time",
            "trace for longer, or while the processes work; --kernel traces system calls, too",
        )
    nothing = f"nothing was traced (exit status {status})"
    if refused:
        return EnvironmentFailure("io.nothing_traced", f"{nothing}: {refused[0].evidence}", refused[0].hint)
    if clears := _clears(request.command):
        return EnvironmentFailure(
            "io.nothing_traced",
            f"{nothing}: '{clears}' clears the environment, and with it the variables that load the tracer",
            f"leave that out, or put it before Sonde: {typed(*clears.split())} {typed('PATH=…')} sonde io "
            "run -- …",
        )
    own = next((word for word in request.command if word.startswith("LD_PRELOAD=")), "")
    if own or "LD_PRELOAD" in request.command:
        what = own.partition("=")[2] or "LIBRARY"
        return EnvironmentFailure(
            "io.nothing_traced",
            f"{nothing}: the command sets LD_PRELOAD itself, which removes the tracer",
            f"set it for Sonde instead, which adds the tracer to it: {typed('env', f'LD_PRELOAD={what}')} "
            "sonde io run …",
        )
    for word in request.command:
        found = shutil.which(word)
        reason = why_not(Program.read(Path(found))) if found and Path(found).name not in STARTERS else ""
        if reason:
            return EnvironmentFailure(
                "io.nothing_traced",
                f"{nothing}: {found} {reason}",
                "it has no function that a layer map lists, perhaps because it is stripped; --kernel "
                "traces its system calls"
                if request.uprobes
                else "as root, --uprobes traces functions that it contains and names, and --kernel its "
                "system calls",
            )
    left_out = _left_out(request)
    if left_out:
        return EnvironmentFailure(
            "io.nothing_traced",
            f"{nothing}: only {left_out} ran, a program that mostly starts others; its own calls are left "
            "out",
            f"{typed('sonde', 'io', 'run', '--starters', '--', *request.command)} traces it, too",
        )
    return EnvironmentFailure(
        "io.nothing_traced",
        f"{nothing}: no traced process called a function of {layers}",
        f"{typed('sonde', 'io', 'layers', 'check', request.command[0])} shows what can be traced in it",
    )


def _clears(command: Sequence[str]) -> str:
    """The words with which an env in the command removes LD_PRELOAD: "env -i"; "" if there are none."""
    for k, word in enumerate(command):
        if Path(word).name != "env":
            continue
        rest = list(command[k + 1 :])
        for at, option in enumerate(rest):
            if option in ("-", "--ignore-environment") or re.fullmatch(r"-[0v]*i[0iv]*", option):
                return f"env {option}"
            if option in ("-u", "--unset") and rest[at + 1 : at + 2] == ["LD_PRELOAD"]:
                return f"env {option} LD_PRELOAD"
            if option in ("-uLD_PRELOAD", "--unset=LD_PRELOAD"):
                return f"env {option}"
            if not option.startswith("-") and "=" not in option and rest[at - 1 : at] not in (["-u"], ["-C"]):
                break
    return ""


def _left_out(request: Request) -> str:
    """The name of the first program in the command that is left out because it mostly starts others; "" if there is
    none."""
    if request.starters:
        return ""
    tools = set(_tools())
    for word in request.command:
        found = shutil.which(word)
        if found and (Path(found).name in _OF_RANKS or os.path.realpath(found) in tools):
            return Path(word).name
    return ""
