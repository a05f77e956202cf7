"""sonde io predict: replay a traced run with the costs of calls on another configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonde.core.errors import UsageError
from sonde.core.options import common
from sonde.core.outcome import Outcome

if TYPE_CHECKING:
    import xarray as xr

    from sonde.io.predict.replay import Trace


class _Several(click.Command):
    """A command that accepts several files behind one --on, as a shell's pattern gives them: --on y*.nc."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words: list[str] = []
        within = first = False
        for word in args:
            if word.startswith("-"):
                within = first = word == "--on"
            elif within and not first:
                words.append("--on")
            elif within:
                first = False
            words.append(word)
        return super().parse_args(ctx, words)


@click.command(cls=_Several)
@common()
@click.argument("file", metavar="A.nc", type=click.Path(path_type=Path))
@click.option(
    "--on",
    "on",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    metavar="Y.nc...",
    help="Traces of the other configuration, for the costs of calls there.",
)
@click.option(
    "--at",
    metavar="LAYER",
    help="Replay calls where they enter this layer.  [default: the topmost that both call]",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="C.nc",
    help="A run of A's program there, to compare the model with a measurement.",
)
def predict(file: Path, on: tuple[Path, ...], at: str | None, against: Path | None) -> Outcome:
    """Predict how long a traced run would take on another configuration, by layer: a model.

    A.nc is a run of your program here. Y.nc is a trace of a cheap run there that calls the same functions, with sizes
    around those of A. Each call of A gets the time that such calls took there. Time above that layer stays as in A, and
    waiting between ranks is recomputed.

    \b
    sonde io run -o y.nc -- mpirun -n 4 sonde-ioload -a MPIIO -c -t 64k -b 8m
    sonde io predict a.nc --on y.nc
    """
    from contextlib import ExitStack

    import sonde
    from sonde.core import dataset
    from sonde.io.predict import replay as model
    from sonde.io.predict import verdict

    if file.resolve() in [one.resolve() for one in on] and against is None and len(on) == 1:
        raise UsageError(
            "io.same_trace",
            f"{file} would be replayed on itself",
            "give a trace of another configuration with --on, or --against to see how well the model "
            "reproduces its own run",
        )
    with ExitStack() as opened:
        trees = {path: opened.enter_context(sonde.open(path)) for path in dict.fromkeys((file, *on))}
        if against is not None:
            trees.setdefault(against, opened.enter_context(sonde.open(against)))
        traces = {path: _trace(tree, path) for path, tree in trees.items()}
        measured = traces[against] if against is not None else None
        found = model.predict(traces[file], [traces[path] for path in dict.fromkeys(on)], at, measured)
        warnings = [warning for tree in trees.values() for warning in dataset.warnings_of(tree)]
        if measured is not None:
            warnings += verdict.other_program(traces[file].summary, measured.summary, found.at)
        return Outcome(
            "io",
            "predict",
            verdict.sentence(found, str(file), [str(path) for path in dict.fromkeys(on)]),
            schema=str(trees[file].attrs["schema"]),
            dataset=str(file),
            findings=verdict.findings(found, str(file)),
            warnings=list(dict.fromkeys([*verdict.warnings(found, str(file)), *warnings])),
            values=verdict.values(found)
            | {"on": list(map(str, on)), "against": str(against) if against else None},
            tables=verdict.tables(found),
        )


def _trace(tree: xr.DataTree, path: Path) -> Trace:
    """A trace's events and summary.

    Raises
    ------
    UsageError  io.no_events.
    """
    from sonde.core import dataset
    from sonde.io.predict.replay import Trace

    dataset.expect_room(tree, "io")
    if "raw" not in tree.children or "begin" not in tree["raw"].variables:
        raise UsageError("io.no_events", f"{path} holds no events", "give traces of 'sonde io run'")
    return Trace(str(path), tree["raw"].to_dataset(), dataset.summary_of(tree, "io", path))
