"""`sonde io run --try`: repeat the command with the changes that its findings suggest, and as it is, in mixed order."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sonde.core.errors import EnvironmentFailure, Interrupted
from sonde.io.maps.layers import TOPS
from sonde.io.record import run_request, run_trace
from sonde.io.trace import hints
from sonde.io.trace.findings import findings
from sonde.io.trace.hints import Attempt, Untried
from sonde.io.trace.whatif import HINTS, Result, Seen, Tried

if TYPE_CHECKING:
    import xarray as xr

MOST_ATTEMPTS = 3  # those for the findings with the largest shares


def middle_of(summary: xr.Dataset) -> str:
    """The layer below MPI-IO in a trace: "romio", "ompio", or "" if neither was called."""
    names = [str(name) for name in summary["layer_name"].values]
    calls, layer_of = summary["calls"].values.sum(axis=0), summary["function_layer"].values
    return next(
        (name for name in ("romio", "ompio") if name in names and calls[layer_of == names.index(name)].any()),
        "",
    )


def variables_of(attempt: Attempt, folder: Path, number: int) -> dict[str, str]:
    """The variables that give a command an attempt's hint. A file with hints is created in `folder`.

    Hints in the user's own file stay, except those that are tried.
    """
    if not attempt.hints:
        return dict(attempt.variables)
    own = os.environ.get(hints.VARIABLE)
    text = ""
    if own:
        try:
            text = Path(own).read_text("utf-8", "replace")
        except OSError:
            text = ""  # ROMIO cannot read it either
    path = folder / f"{HINTS}{number}"
    path.write_text(hints.merged(text, dict(attempt.hints)))
    return {hints.VARIABLE: str(path)}


def try_all(
    request: run_request.Request, summary: xr.Dataset, pairs: int, say: Callable[[str], None]
) -> Result:
    """Try what a trace's findings suggest.

    Each round runs the command once as it is and once with each hint, in random order, always traced. The traces show
    the time in I/O, whether the hint reached the MPI, and whether the finding is still there. The command must be
    repeatable; its output is not shown again.

    Raises
    ------
    UsageError, EnvironmentFailure  as `run_trace.trace`.
    """
    found = findings(summary)
    attempts, untried = hints.attempts(found, middle_of(summary))
    tried = [Tried(attempt) for attempt in attempts[:MOST_ATTEMPTS]]
    untried += [
        Untried(attempt.code, f"only the first {MOST_ATTEMPTS} suggestions were tried")
        for attempt in attempts[MOST_ATTEMPTS:]
    ]
    result = Result(tried, untried)
    if not tried:
        return result
    with tempfile.TemporaryDirectory(prefix="sonde-try-") as name:
        folder = Path(name)
        settings = [{}, *(variables_of(one.attempt, folder, k) for k, one in enumerate(tried))]
        for number in range(pairs):
            began = time.monotonic()
            seen: list[Seen | None] = [None] * len(settings)
            for k in np.random.default_rng([0x7472, number]).permutation(len(settings)).tolist():
                if k and tried[k - 1].failed:
                    continue
                seen[k], status, interrupted = _once(request, settings[k], folder)
                if interrupted:
                    result.interrupted = True
                    return result  # half a round is no pair
                if status and not k:
                    for one in tried:
                        one.failed = (
                            f"the command without any hint ended with exit status {status} when it was "
                            "repeated"
                        )
                    return result
                if status:
                    tried[k - 1].failed = f"with this hint the command ends with exit status {status}"
            for one, now in zip(tried, seen[1:]):
                if now is not None and seen[0] is not None:
                    one.add(seen[0], now)
            if not number:
                left_s = (pairs - 1) * (time.monotonic() - began)
                say(
                    f"trying {len(tried)} hint{'s' * (len(tried) > 1)} in {pairs} rounds: about {left_s:.0f} s more"
                )
    return result


def _once(
    request: run_request.Request, variables: Mapping[str, str], folder: Path
) -> tuple[Seen | None, int, bool]:
    """Run the command once with variables: the result of its trace, its status, whether it was interrupted."""
    import sonde

    again = replace(
        request,
        command=run_request.with_variables(request, variables),
        ranks=0,
        out=folder / "again.nc",
        env=variables,
        attrs={},
    )
    try:
        with open(os.devnull, "wb") as nothing:
            done = run_trace.trace(again, nothing, errors=nothing)
    except EnvironmentFailure as error:
        if error.code != "io.nothing_traced":
            raise
        return None, 1, False
    except Interrupted:
        return None, 130, True
    if done.status or done.asked:
        return None, done.status, done.asked
    with sonde.open(done.file.path) as tree:
        summary = tree["summary"].to_dataset().load()
    read = summary["file_requests"].values.sum(axis=(1, 2)).tolist()
    paths = {str(path) for path, requests in zip(summary["path"].values, read) if requests}
    return (
        Seen(
            io_time(summary),
            done.length_s,
            {(one.code, hints.direction_of(one)) for one in findings(summary)},
            paths,
        ),
        0,
        False,
    )


def io_time(summary: xr.Dataset) -> float:
    """The largest time that a rank spent in I/O, s: in the highest layer of I/O that was called, and below it."""
    names = [str(name) for name in summary["layer_name"].values]
    calls, layer_of = summary["calls"].values.sum(axis=0), summary["function_layer"].values
    for name in (*TOPS, "posix"):
        if name in names and calls[layer_of == names.index(name)].any():
            return float(summary["layer_time"].values[:, names.index(name)].max())
    return float("nan")
