"""sonde io: the commands. Each returns an Outcome; nothing is printed here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonde.core.errors import Exit, UsageError
from sonde.core.options import A_NC, B_NC, FILE, MATTERS, HouseType, common, settings
from sonde.core.outcome import Outcome

if TYPE_CHECKING:
    from sonde.io.layers import Layer


@click.group()
def group() -> None:
    """Where the time goes in the parallel I/O stack, layer by layer; nothing is recompiled."""


# Commands that have a module of their own: (module, command).
ELSEWHERE: tuple[tuple[str, str], ...] = (("cli_convert", "convert"), ("cli_layers", "layers"))


class Names(HouseType):
    """Names of layers: "mpiio,posix". Value: tuple of str."""

    name, allowed = "names", "names of layers, comma-separated"

    def read(self, text: str) -> tuple[str, ...]:
        names = tuple(part.strip() for part in text.split(",") if part.strip())
        if not names:
            raise UsageError(
                "io.no_such_layer", "it names no layer", "as mpiio,posix; 'sonde io layers list' tells of all"
            )
        return names


class Bytes(HouseType):
    """A size in bytes: "1GiB". Value: int."""

    name, allowed = "size", "sizes such as 1GiB"

    def read(self, text: str) -> int:
        from sonde.core.units import parse_size

        return parse_size(text)


LAYERS = click.option(
    "--layers", "names", type=Names(), metavar="NAMES", help="Trace these layers: mpiio,posix."
)
MAPS = click.option(
    "--map",
    "maps",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE.toml",
    help="A layer map of your own; may be repeated.",
)


def chosen(names: tuple[str, ...] | None, maps: tuple[Path, ...], kernel: bool = False) -> list[Layer]:
    """The layers of a command."""
    from sonde.io import run_maps

    return run_maps.chosen(names or (), maps, kernel)


@group.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@common("output", "launcher", "dry_run")
@LAYERS
@MAPS
@click.option("--kernel", is_flag=True, help="System calls as the kernel sees them, too; takes root.")
@click.option(
    "--max-trace",
    "most_bytes",
    type=Bytes(),
    default="1GiB",
    show_default=True,
    metavar="SIZE",
    help="What the trace may take on a node's disk; 0: all of it.",
)
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    output: Path | None,
    launcher: str,
    dry_run: bool,
    names: tuple[str, ...] | None,
    maps: tuple[Path, ...],
    kernel: bool,
    most_bytes: int,
    command: tuple[str, ...],
) -> Outcome:
    """Traces a command, mpirun lines included, and says where its time went.

    The program is the one that you have: nothing is recompiled or linked. It keeps its standard streams; with --json
    its standard output goes to standard error, so that the result stands alone. Sonde ends with the command's exit
    status.
    """
    from sonde.core.launch.start import output_path
    from sonde.io import run_trace

    request = run_trace.Request(
        command,
        chosen(names, maps, kernel),
        output_path("io", output),
        most_bytes,
        ["sonde", *sys.argv[1:]],
        launcher,
    )
    if dry_run:
        from sonde.core import seal

        folder = seal.run_folder(request.out)
        words = run_trace.line(request, folder)
        return Outcome.dry_run(
            "io",
            "run",
            [[("layers", ", ".join(layer.name for layer in request.layers)), ("dataset", str(request.out))]],
            [["env", *(f"{name}={value}" for name, value in run_trace.environment(folder).items()), *words]],
            {"layers": [layer.name for layer in request.layers], "dataset": str(request.out)},
        )
    done = run_trace.trace(request, sys.stderr if settings().json else None)
    outcome = told_of(done.file.path, "run")
    outcome.values["status"] = done.status
    outcome.exit = Exit.INTERRUPTED if done.interrupted else done.status
    return outcome


@group.command()
@common()
@FILE
@click.option("--all", "every", is_flag=True, help="All functions and all processes.")
def show(file: Path, every: bool) -> Outcome:
    """What a trace says: time, calls and requests by layer, function and rank."""
    return told_of(file, "show", every)


@group.command()
@common()
@FILE
def check(file: Path) -> Outcome:
    """Whether a trace shows something that somebody may want to change; exit 1 when it does."""
    outcome = told_of(file, "check")
    outcome.exit = Exit.FINDING if outcome.findings else outcome.exit
    return outcome


@group.command()
@common()
@A_NC
@B_NC
@MATTERS
def diff(a: Path, b: Path, matters: float) -> Outcome:
    """Two traces: which layers take longer in B, and which get other requests; exit 1 when some do."""
    import sonde
    from sonde.core import dataset
    from sonde.io import compare

    with sonde.open(a) as first, sonde.open(b) as second:
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
    """What a dataset says of itself. every: without leaving rows out."""
    import sonde
    from sonde.core import dataset
    from sonde.io import words
    from sonde.io.findings import findings

    with sonde.open(path) as tree:
        summary = dataset.summary_of(tree, "io", path)
        return Outcome(
            "io",
            verb,
            words.sentence(summary),
            schema=str(tree.attrs["schema"]),
            dataset=str(path),
            complete=bool(tree.attrs.get("complete", 1)),
            findings=findings(summary),
            warnings=dataset.warnings_of(tree),
            values=words.values(summary) | {"stop_reason": str(tree.attrs.get("stop_reason", "unknown"))},
            tables=words.tables(summary, every),
        )


def _mount() -> None:
    """Adds the commands of the modules that import this one."""
    from importlib import import_module

    for module, name in ELSEWHERE:
        group.add_command(getattr(import_module(f"sonde.io.{module}"), name))


_mount()
