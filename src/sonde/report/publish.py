"""Puts a report on disk, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.core.owned_files import NewFile, write_whole
from sonde.report import render_html
from sonde.report.page import Report


def check(output: Path, datasets: Iterable[Path] = ()) -> None:
    """Asks, before any work, whether a report may go to `output`.

    Raises
    ------
    UsageError  report.output_is_dataset, report.output_is_folder.
    EnvironmentFailure  report.cannot_write.
    """
    if output.suffix == ".nc" or any(output.resolve() == file.resolve() for file in datasets):
        raise UsageError(
            "report.output_is_dataset",
            f"--output '{output}' is the name of a dataset, which a report would overwrite",
            f"--output {output.with_suffix('.html').name}",
        )
    if output.is_dir():
        raise UsageError(
            "report.output_is_folder",
            f"--output '{output}' is a folder; a report is one file",
            f"--output {output / 'report.html'}",
        )
    try:
        NewFile(output).discard()
    except OSError as error:
        raise _cannot_write(output, error) from error


def write(report: Report, output: Path) -> None:
    """Renders a report and puts it at `output`; what was there before stays until all of it is written.

    Raises
    ------
    EnvironmentFailure  report.cannot_write.
    DataError  report.figure_data: a figure's data is not what its kind needs.
    """
    text = render_html.render(report)
    try:
        write_whole(output, text.encode("utf-8", "replace"))
    except OSError as error:
        raise _cannot_write(output, error) from error


def _cannot_write(output: Path, error: OSError) -> EnvironmentFailure:
    return EnvironmentFailure(
        "report.cannot_write",
        f"the report cannot be written to '{output}': {error.strerror or error}",
        "name a place you may write to with --output FILE.html",
    )
