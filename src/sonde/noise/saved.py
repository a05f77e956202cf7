"""What a dataset of this room says of itself, opened once for whoever puts it into words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sonde.core.errors import Exit, Warning
from sonde.core.outcome import Outcome

if TYPE_CHECKING:
    from types import ModuleType

    import xarray as xr

    from sonde.noise.run_programs import Measured


@dataclass(frozen=True)
class Saved:
    """/summary, and what stands beside it. kind: of dataset. warnings: those kept in it."""

    path: Path
    kind: str
    summary: xr.Dataset
    warnings: list[Warning]
    complete: bool
    stop_reason: str


def read(path: Path) -> Saved:
    """What the file holds beside its samples. Errors of `sonde.open` and `dataset.summary_of`."""
    import sonde
    from sonde.core import dataset

    with sonde.open(path) as tree:
        return Saved(
            path,
            str(tree.attrs.get("kind", "run")),
            dataset.summary_of(tree, "noise", path),
            dataset.warnings_of(tree),
            bool(tree.attrs.get("complete", 1)),
            str(tree.attrs.get("stop_reason", "unknown")),
        )


def told(
    saved: Saved, verb: str, words: ModuleType, lines: Callable[[xr.Dataset], list[str]] = lambda summary: []
) -> Outcome:
    """What a dataset says, put into words by a module with sentence, warnings, values and tables of a /summary."""
    summary = saved.summary
    return Outcome(
        "noise",
        verb,
        words.sentence(summary),
        schema="noise/1",
        dataset=str(saved.path),
        complete=saved.complete,
        warnings=[*saved.warnings, *words.warnings(summary)],
        values={"stop_reason": saved.stop_reason, **words.values(summary)},
        tables=words.tables(summary),
        lines=lines(summary),
    )


def end(outcome: Outcome, measured: Measured, alone: bool = True) -> Outcome:
    """The outcome of programs that are over: what went wrong is raised, an early end is told.

    alone: whether one program was all there was; of several, one that failed is a warning.
    """
    if measured.error is not None and not measured.interrupted and alone:
        error = measured.error
        error.hint = f"{error.hint}; what was recorded is in {measured.file.path}".removeprefix("; ")
        raise error
    if measured.interrupted:
        outcome.tell_interrupted([measured.file.path])
    elif not outcome.complete:
        outcome.exit = Exit.INCOMPLETE
    return outcome
