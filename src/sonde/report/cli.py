"""`sonde report`: datasets in, one HTML page out; with --static also figures for a paper."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from sonde.core.errors import DataError, UsageError, nearest
from sonde.core.options import common
from sonde.core.outcome import Outcome

if TYPE_CHECKING:
    from sonde.report.page import Report


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE.nc...", type=click.Path(path_type=Path))
@click.option("--title", default="", help="Title of the page, instead of room and hosts.")
@click.option(
    "--static",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also write every figure to DIR, for papers.",
)
@click.option(
    "--format", "form", default="pdf", show_default=True, metavar="png|svg|pdf", help="Format of --static."
)
@click.option("--at", multiple=True, metavar="DIM=VALUE", help="Position of the sliders, e.g. size=1KiB.")
@common("output")
def command(
    files: tuple[Path, ...],
    title: str,
    static: Path | None,
    form: str,
    at: tuple[str, ...],
    output: Path | None,
) -> Outcome:
    """One self-contained HTML page from datasets: verdict, machine, findings, figures, method.

    The page needs no network and can be mailed or archived as it is. Without --output it is named after the dataset, or
    report.html if there are several.

    \b
    sonde report net-alpha-20261120T214757Z-3f9a.nc
    sonde report a.nc b.nc -o both.html --static figures --at size=1KiB
    """
    from datetime import UTC, datetime

    from sonde.core import dataset
    from sonde.report import collect, page, publish, render_static

    where = _positions(at)
    if output is None:
        output = Path(files[0].name).with_suffix(".html") if len(files) == 1 else Path("report.html")
    publish.check(output, files)
    if static is not None:
        render_static.check(form)
    with ExitStack() as opened:
        trees = {}
        named = _named(files)
        for name, file in named.items():
            tree = dataset.open(file)
            opened.callback(tree.close)
            trees[name] = tree
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        report = collect.collect(trees, now, title, {name: quote(str(file)) for name, file in named.items()})
        _move(report, where)
        publish.write(report, output)
        drawn: list[Path] = []
        if static is not None:
            anchors = page.anchors(report.sections)
            for anchor, section in zip(anchors, report.sections):
                folder = static / anchor if len(anchors) > 1 else static
                drawn += render_static.save_all(section.figures, folder, form)
    return Outcome(
        room="report",
        verb="write",
        verdict=report.verdict,
        dataset=str(files[0]) if len(files) == 1 else None,
        sound=not any(section.doubt for section in report.sections),
        complete=all(bool(dataset.attrs(tree).get("complete", 1)) for tree in trees.values()),
        findings=report.findings,
        warnings=[group.as_one() for group in page.group_warnings(report)],
        values={"report": str(output), "figures": [str(path) for path in drawn]},
        lines=[f"figures: {len(drawn)} in {static}"] if drawn else [],
    )


def _named(files: tuple[Path, ...]) -> dict[str, Path]:
    """Files by distinct names: the file's own name, or its path if two files share the name."""
    names = [file.name for file in files]
    named: dict[str, Path] = {}
    for file in files:
        name = file.name if names.count(file.name) == 1 else str(file)
        if name in named:
            raise UsageError("report.twice", f"'{file}' is given twice", "name each dataset once")
        named[name] = file
    return named


def _positions(at: tuple[str, ...]) -> dict[str, str]:
    where = {}
    for text in at:
        dim, sign, value = text.partition("=")
        if not (dim and sign and value):
            raise UsageError("report.bad_position", f"--at '{text}' is not DIM=VALUE", "e.g. --at size=1KiB")
        where[dim] = value
    return where


def _move(report: Report, where: dict[str, str]) -> None:
    """Start the controls at the requested positions; a figure without that position keeps its own.

    Raises
    ------
    UsageError  report.no_such_dim: no figure has a control along it.
    DataError  report.no_such_position: no figure has that position.
    """
    from sonde.report import prepare

    figures = [figure for section in report.sections for figure in section.figures]
    for dim, value in where.items():
        movable = sorted({slider.dim for figure in figures for slider in figure.controls})
        if dim not in movable:
            raise UsageError(
                "report.no_such_dim",
                f"--at {dim}={value}: no figure has a control along '{dim}'{nearest(dim, movable)}",
                f"allowed: {', '.join(movable)}" if movable else "",
            )
        refusal: DataError | None = None
        moved = 0
        for section in report.sections:
            for k, figure in enumerate(section.figures):
                if dim in [slider.dim for slider in figure.controls]:
                    try:
                        section.figures[k] = prepare.at(figure, {dim: value})
                        moved += 1
                    except DataError as error:
                        refusal = refusal or error
        if refusal is not None and not moved:
            raise refusal
