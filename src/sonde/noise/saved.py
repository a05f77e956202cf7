"""The content of a saved dataset of this room, and the outcome of a command from it."""

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
    """The /summary of a dataset, and its root attributes. warnings: those stored in the dataset."""

    path: Path
    kind: str
    summary: xr.Dataset
    warnings: list[Warning]
    complete: bool
    stop_reason: str


def read(path: Path) -> Saved:
    """Read a dataset without its samples. It raises the errors of `sonde.open` and `dataset.summary_of`."""
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


def outcome_of(
    saved: Saved, verb: str, texts: ModuleType, lines: Callable[[xr.Dataset], list[str]] = lambda summary: []
) -> Outcome:
    """The outcome of a dataset. texts: a module with sentence, warnings, values and tables of a /summary."""
    summary = saved.summary
    return Outcome(
        "noise",
        verb,
        texts.sentence(summary),
        schema="noise/1",
        dataset=str(saved.path),
        complete=saved.complete,
        warnings=[*saved.warnings, *texts.warnings(summary)],
        values={"stop_reason": saved.stop_reason, **texts.values(summary)},
        tables=texts.tables(summary),
        lines=lines(summary),
    )


def end(outcome: Outcome, measured: Measured, alone: bool = True) -> Outcome:
    """The outcome of programs that have ended. It raises their error and reports an early end.

    alone: whether there was only one program. With several, the failure of one is only a warning.
    """
    if measured.error is not None and not measured.interrupted and alone:
        error = measured.error
        error.hint = f"{error.hint}; the recorded data is in {measured.file.path}".removeprefix("; ")
        raise error
    if measured.interrupted:
        outcome.tell_interrupted([measured.file.path])
    elif not outcome.complete:
        outcome.exit = Exit.INCOMPLETE
    return outcome
