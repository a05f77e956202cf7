"""sonde io: the commands. Each returns an Outcome; nothing is printed here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonde.core.errors import Exit, SondeError, UsageError, Warning
from sonde.core.options import A_NC, B_NC, FILE, MATTERS, BuiltinType, Duration, Whole, common, settings
from sonde.core.outcome import Outcome
from sonde.io.maps.cli_options import LAYERS, MAPS, chosen

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from sonde.io.record import run_request


@click.group()
def group() -> None:
    """Measure where the time goes in the parallel I/O stack, layer by layer; nothing is recompiled."""


# Commands that have a module of their own: (module, command).
ELSEWHERE: tuple[tuple[str, str], ...] = (
    ("cli_files", "convert"),
    ("cli_files", "join"),
    ("maps.cli", "layers"),
    ("predict.cli", "predict"),
    ("study.cli", "study"),
)


class Bytes(BuiltinType):
    """A size in bytes: "1GiB". Value: int."""

    name, allowed = "size", "sizes such as 1GiB"

    def read(self, text: str) -> int:
        from sonde.core.units import parse_size

        return parse_size(text)


class Processes(BuiltinType):
    """Process numbers: "4711,4712". Value: tuple of int."""

    name, allowed = "processes", "process numbers, comma-separated"

    def read(self, text: str) -> tuple[int, ...]:
        numbers = [part.strip() for part in text.split(",") if part.strip()]
        if not numbers or not all(
            number.isascii() and number.isdigit() and int(number) for number in numbers
        ):
            raise UsageError(
                "io.no_process",
                f"'{text}' does not name processes",
                "give their numbers, for example --attach 4711,4712",
            )
        return tuple(map(int, numbers))


@group.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@common("output", "launcher", "hosts", "ntasks", "dry_run")
@LAYERS
@MAPS
@click.option("--kernel", is_flag=True, help="Also trace system calls, as the kernel sees them; needs root.")
@click.option(
    "--uprobes",
    is_flag=True,
    help="Also trace functions that cannot be interposed: not exported, or linked statically. Needs root, "
    "and adds 1.6 us to a call.",
)
@click.option(
    "-p",
    "--attach",
    type=Processes(),
    default=(),
    metavar="PID[,PID...]",
    help="Trace running processes with uprobes, until they end, Ctrl-C, or the end of COMMAND. Needs root.",
)
@click.option(
    "--for", "seconds", type=Duration(), metavar="TIME", help="How long to trace the processes of --attach."
)
@click.option(
    "--gluster",
    metavar="VOLUME",
    help="Also read what the bricks of this GlusterFS volume count; run it on one of the volume's servers.",
)
@click.option(
    "--starters",
    is_flag=True,
    help="Also trace shells, env, nice and the like, whose own calls are left out by default.",
)
@click.option(
    "--max-trace",
    "most_bytes",
    type=Bytes(),
    default="1GiB",
    show_default=True,
    metavar="SIZE",
    help="Limit for the trace on a node's disk; 0: no limit.",
)
@click.option(
    "--try",
    "pairs",
    type=Whole(6),
    is_flag=False,
    flag_value="6",
    metavar="[N]",
    help="Then try the suggestions of the findings, in N rounds with and without each.  [default: 6]",
)
@click.argument("command", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED)
def run(
    output: Path | None,
    launcher: str,
    hosts: str | None,
    ntasks: int | None,
    dry_run: bool,
    names: tuple[str, ...] | None,
    maps: tuple[Path, ...],
    kernel: bool,
    uprobes: bool,
    attach: tuple[int, ...],
    seconds: float | None,
    gluster: str | None,
    starters: bool,
    most_bytes: int,
    pairs: int | None,
    command: tuple[str, ...],
) -> Outcome:
    """Trace a command, mpirun lines included, and show where its time went.

    The program runs as it is: nothing is recompiled or linked. It keeps its standard streams, and the result goes to
    standard error. With --json the program's standard output goes to standard error, and standard output has only the
    result. Sonde ends with the command's exit status.

    The command starts its ranks itself. If it is a plain program, Sonde starts the ranks, with --ntasks, --hosts, or a
    --launcher that is mpirun or srun.

    With --try the command is repeated, as it is and with each hint that a finding suggests; its output is not shown
    again.
    """
    from sonde.core import hostlist
    from sonde.core.launch.start import output_path
    from sonde.io.record import run_request, run_trace

    _check_run(command, attach, seconds, pairs)
    # Probes in the C library slow every process on this machine. So, unless the user names that layer, attached
    # processes are traced by their system calls instead, which the kernel reports for them alone.
    spared = ("posix",) if attach and names is None else ()
    layers = chosen(names, maps, kernel or bool(spared))
    where = tuple(hostlist.expand(hosts)) if hosts else ()
    request = run_request.Request(
        command,
        layers if command else [layer for layer in layers if layer.name not in spared],
        output_path("io", output),
        most_bytes,
        ["sonde", *sys.argv[1:]],
        launcher,
        run_request.ranks_of(command, launcher, ntasks, where),
        where,
        uprobes,
        attach,
        seconds,
        spared,
        gluster or "",
        starters,
    )
    if dry_run:
        return _plan_of_run(request, pairs)
    done = run_trace.trace(request, sys.stderr if settings().json else None, settings().say)
    outcome = told_of(done.file.path, "run")
    outcome.values["status"] = done.status
    outcome.beside = bool(command)
    outcome.exit = Exit.INTERRUPTED if done.interrupted else done.status
    if pairs and not done.status:
        _try(request, done.file.path, pairs, outcome)
    return outcome


def _check_run(
    command: Sequence[str], attach: Sequence[int], seconds: float | None, pairs: int | None
) -> None:
    """Refuse options of `run` that do not fit together.

    Raises
    ------
    NoSuchOption. UsageError  io.no_program, io.for_without_attach, io.try_without_command.
    """
    if command and command[0].startswith("-"):  # click passes unknown options on to the command
        raise click.NoSuchOption(command[0], ctx=click.get_current_context())
    if not command and not attach:
        raise UsageError(
            "io.no_program",
            "there is nothing to trace",
            "give a program and its arguments after --, or --attach PID",
        )
    if seconds is not None and (command or not attach):
        raise UsageError(
            "io.for_without_attach",
            "--for limits how long the processes of --attach are traced; a command is traced to its end",
            "leave one of them out; 'timeout 30s COMMAND' ends a command",
        )
    if pairs and (attach or not command):
        raise UsageError(
            "io.try_without_command",
            "--try repeats a command, but --attach traces running processes",
            "leave --attach out",
        )


def _plan_of_run(request: run_request.Request, pairs: int | None) -> Outcome:
    """The outcome of --dry-run: what would be traced, and the line that would start it."""
    from sonde.core import run_folder
    from sonde.io.record import run_request, run_trace

    folder = run_folder.folder_of(request.out)
    words = run_request.line(request, folder)
    watching = run_trace.Watching.of(request)
    rows = [("layers", ", ".join(layer.name for layer in request.layers)), ("dataset", str(request.out))]
    rows += [("process", f"{one.number} {one.program}") for one in watching.processes]
    rows += [("servers", f"GlusterFS volume {request.gluster}")] if request.gluster else []
    if request.attach or request.uprobes:
        rows.append(("probes", f"{len(watching.probes)}"))
    if pairs:
        rows.append(("then", f"{pairs} rounds with and without each hint of a finding"))
    variables = run_request.environment(folder, request.starters)
    started = ["env", *(f"{name}={value}" for name, value in variables.items()), *words]
    return Outcome.dry_run(
        "io",
        "run",
        [rows],
        [started] if words else [],
        {
            "layers": [layer.name for layer in request.layers],
            "dataset": str(request.out),
            "probes": [[str(one.file.path), one.symbol] for one in watching.probes],
        },
        watching.warnings,
    )


def _try(request: run_request.Request, path: Path, pairs: int, outcome: Outcome) -> None:
    """Try the suggestions of the findings, and add the result to the outcome."""
    import sonde
    from sonde.core import dataset_file
    from sonde.io.record import run_whatif
    from sonde.io.trace import whatif, whatif_verdict

    with sonde.open(path) as tree:
        summary = tree["summary"].to_dataset().load()
    result = run_whatif.try_all(request, summary, pairs, settings().say)
    whatif_verdict.tell(result, outcome)
    found = whatif.written(result)
    try:
        dataset_file.add_variables(path, {"raw": found, "summary": found})
    except SondeError as error:  # the trace itself is saved
        outcome.warnings.append(
            Warning(error.code, f"the results of --try are not saved: {error.what}", error.hint)
        )
    if result.interrupted:
        outcome.exit = Exit.INTERRUPTED


@group.command()
@common()
@FILE
@click.option("--all", "every", is_flag=True, help="Show all functions and all processes.")
def show(file: Path, every: bool) -> Outcome:
    """Show a trace: time, calls and requests by layer, function and rank."""
    return told_of(file, "show", every)


@group.command()
@common()
@FILE
def check(file: Path) -> Outcome:
    """Check whether a trace shows something that may need a change; exit 1 if it does."""
    outcome = told_of(file, "check")
    outcome.exit = Exit.FINDING if outcome.findings else outcome.exit
    return outcome


@group.command()
@common()
@A_NC
@B_NC
@MATTERS
def diff(a: Path, b: Path, matters: float) -> Outcome:
    """Compare two traces: which layers take longer in B, and which get other requests. Or two studies: which cells are
    slower.

    Exit 1 if some are. Studies are compared cell by cell, by benchmark and configuration.
    """
    import sonde
    from sonde.core import dataset
    from sonde.io.trace import compare

    with sonde.open(a) as first, sonde.open(b) as second:
        if first.attrs.get("kind") == second.attrs.get("kind") == "study":
            from sonde.io.study import compare as study_compare

            machines = dataset.attrs(first), dataset.attrs(second)
            pair = [dataset.summary_of(tree, "io", path) for tree, path in ((first, a), (second, b))]
            return study_compare.diff(pair[0], pair[1], (str(a), str(b)), matters, machines).outcome(
                "io", "diff", b
            )
        compare.check_kinds(*(str(tree.attrs.get("kind", "trace")) for tree in (first, second)))
        before, after = (dataset.summary_of(tree, "io", path) for tree, path in ((first, a), (second, b)))
        found = compare.findings(before, after, matters)
        return Outcome(
            "io",
            "diff",
            compare.sentence(before, after),
            schema=str(second.attrs["schema"]),
            dataset=str(b),
            findings=found,
            warnings=[*dataset.warnings_of(first), *dataset.warnings_of(second), compare.ONCE],
            values=compare.values(before, after),
            tables=compare.tables(before, after),
            exit=Exit.FINDING if found else Exit.DONE,
        )


def told_of(path: Path, verb: str, every: bool = False) -> Outcome:
    """The outcome that shows a dataset. every: show all rows."""
    import sonde
    from sonde.core import dataset
    from sonde.io.trace import not_seen, whatif, whatif_verdict
    from sonde.io.trace import verdict as trace_verdict
    from sonde.io.trace.findings import findings

    with sonde.open(path) as tree:
        summary = dataset.summary_of(tree, "io", path)
        if tree.attrs.get("kind") == "study":
            return _told_of_study(tree, summary, path, verb)
        elapsed_s = trace_verdict.elapsed(tree)
        tables = trace_verdict.tables(summary, every)
        badly = int(tree.attrs.get("status", 0)) or not int(tree.attrs.get("complete", 1))
        if badly and trace_verdict.under_way(summary):
            tables.append(trace_verdict.under_way_table(summary, every))
        outcome = Outcome(
            "io",
            verb,
            trace_verdict.sentence(summary, elapsed_s),
            schema=str(tree.attrs["schema"]),
            dataset=str(path),
            complete=bool(tree.attrs.get("complete", 1)),
            findings=findings(summary),
            warnings=[*dataset.warnings_of(tree), *not_seen.warnings(summary)],
            values={
                **trace_verdict.values(summary),
                "stop_reason": str(tree.attrs.get("stop_reason", "unknown")),
                "elapsed_s": elapsed_s,
            },
            tables=tables,
            sound=not trace_verdict.dropped(summary),
        )
        if result := whatif.read(summary):
            whatif_verdict.tell(result, outcome)
        return outcome


def _told_of_study(tree: xr.DataTree, summary: xr.Dataset, path: Path, verb: str) -> Outcome:
    from sonde.core import dataset
    from sonde.io.study import verdict as study_verdict

    return Outcome(
        "io",
        verb,
        study_verdict.sentence(summary),
        schema=str(tree.attrs["schema"]),
        dataset=str(path),
        complete=bool(tree.attrs.get("complete", 1)),
        warnings=[*dataset.warnings_of(tree), *study_verdict.warnings(summary)],
        values=study_verdict.values(summary) | {"stop_reason": str(tree.attrs.get("stop_reason", "unknown"))},
        tables=study_verdict.tables(summary),
        sound=study_verdict.sound(summary),
    )


def _mount() -> None:
    """Add the commands of the modules that import this one."""
    from importlib import import_module

    for module, name in ELSEWHERE:
        group.add_command(getattr(import_module(f"sonde.io.{module}"), name))


_mount()
