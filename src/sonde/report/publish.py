"""Write a report to disk, completely or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.core.owned_files import NewFile, write_whole
from sonde.report import render_html
from sonde.report.page import Report


def check(output: Path, datasets: Iterable[Path] = ()) -> None:
    """Check, before any work, whether a report may be written to `output`.

    Raises
    ------
    UsageError  report.output_is_dataset, report.output_is_folder.
    EnvironmentFailure  report.cannot_write.
    """
    if output.suffix == ".nc" or any(output.resolve() == file.resolve() for file in datasets):
        raise UsageError(
            "report.output_is_dataset",
            f"--output '{output}' is a dataset, which the report would overwrite",
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
    """Render a report and write it to `output`; an older file stays until the new one is complete.

    Raises
    ------
    EnvironmentFailure  report.cannot_write.
    DataError  report.figure_data: a figure's data does not fit its kind.
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
        "choose a place where you can write: --output FILE.html",
    )
