"""`sonde io run --try`: the command again with what its findings suggest, interleaved with the command as it is."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.errors import EnvironmentFailure, Interrupted
from sonde.io import hints, run_trace
from sonde.io.findings import findings
from sonde.io.hints import Trial, Untried
from sonde.io.study_analyse import TOPS, ratio_of_pairs

if TYPE_CHECKING:
    import xarray as xr

LEAST_PAIRS = 6  # with five, the signed-rank interval of 95 % is not there
HINTS = "sonde-hints-"  # begins the names of files of hints
MOST_TRIALS = 3  # of the findings with the largest shares


@dataclass(frozen=True)
class Seen:
    """What one run's trace says. io_s: time in I/O. whole_s: of the command. codes: of findings. read: files."""

    io_s: float
    whole_s: float
    codes: set[str]
    read: set[str]


@dataclass
class Tried:
    """What came of one trial, round by round.

    before, after: time in I/O as it is and with the hint, s; whole_before, whole_after: time of the whole command.
    gone: rounds in which the finding was not there with the hint. read: files that were read with it, in any round.
    failed: why it was given up, "" where it was not.
    """

    trial: Trial
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    whole_before: list[float] = field(default_factory=list)
    whole_after: list[float] = field(default_factory=list)
    gone: int = 0
    read: set[str] = field(default_factory=set)
    failed: str = ""

    def add(self, as_it_is: Seen, with_it: Seen) -> None:
        """Takes a round."""
        self.before.append(as_it_is.io_s)
        self.after.append(with_it.io_s)
        self.whole_before.append(as_it_is.whole_s)
        self.whole_after.append(with_it.whole_s)
        self.gone += self.trial.code not in with_it.codes
        self.read |= with_it.read

    @property
    def gain(self) -> tuple[float, float, float]:
        """How many times as fast I/O is with it, and the 95 % interval."""
        return ratio_of_pairs(np.array(self.after), np.array(self.before))

    @property
    def whole_gain(self) -> tuple[float, float, float]:
        """The same of the whole command."""
        return ratio_of_pairs(np.array(self.whole_after), np.array(self.whole_before))

    @property
    def reached(self) -> bool | None:
        """Whether a process read the file of hints; None where nothing was read, or there was none."""
        if not self.trial.hints or not self.after:
            return None
        return any(Path(path).name.startswith(HINTS) for path in self.read)


@dataclass
class Result:
    """All that was tried, and what could not be. interrupted: the user ended it."""

    tried: list[Tried]
    untried: list[Untried]
    interrupted: bool = False


def middle_of(summary: xr.Dataset) -> str:
    """Which layer is under MPI-IO in a trace: "romio", "ompio", or "" where neither was called."""
    names = [str(name) for name in summary["layer_name"].values]
    calls, layer_of = summary["calls"].values.sum(axis=0), summary["function_layer"].values
    return next(
        (name for name in ("romio", "ompio") if name in names and calls[layer_of == names.index(name)].any()),
        "",
    )


def variables_of(trial: Trial, folder: Path, number: int) -> dict[str, str]:
    """The variables that give a command a trial's hint; a file of hints is made in `folder`.

    Hints that the user's own file has stay, but those that are tried.
    """
    if not trial.hints:
        return dict(trial.variables)
    own = os.environ.get(hints.VARIABLE)
    text = ""
    if own:
        try:
            text = Path(own).read_text("utf-8", "replace")
        except OSError:
            text = ""  # ROMIO finds none either
    path = folder / f"{HINTS}{number}"
    path.write_text(hints.merged(text, dict(trial.hints)))
    return {hints.VARIABLE: str(path)}


def try_all(
    request: run_trace.Request, summary: xr.Dataset, pairs: int, say: Callable[[str], None]
) -> Result:
    """Tries what a trace's findings suggest.

    Each round runs the command once as it is and once with each hint, in a drawn order, all of them traced: how long it
    was in I/O, whether the hint reached the MPI, and what became of the finding is seen in the traces. The command must
    be one that can be repeated; what it prints is not shown again.

    Raises
    ------
    UsageError, EnvironmentFailure  as `run_trace.trace`.
    """
    found = findings(summary)
    trials, untried = hints.trials(found, middle_of(summary))
    tried = [Tried(trial) for trial in trials[:MOST_TRIALS]]
    untried += [Untried(trial.code, f"{MOST_TRIALS} others were tried") for trial in trials[MOST_TRIALS:]]
    result = Result(tried, untried)
    if not tried:
        return result
    with tempfile.TemporaryDirectory(prefix="sonde-try-") as name:
        folder = Path(name)
        ways = [{}, *(variables_of(one.trial, folder, k) for k, one in enumerate(tried))]
        for number in range(pairs):
            began = time.monotonic()
            seen: list[Seen | None] = [None] * len(ways)
            for k in np.random.default_rng([0x7472, number]).permutation(len(ways)).tolist():
                if k and tried[k - 1].failed:
                    continue
                seen[k], status, interrupted = _once(request, ways[k], folder)
                if interrupted:
                    result.interrupted = True
                    return result  # half a round is no pair
                if status and not k:
                    for one in tried:
                        one.failed = (
                            f"the command itself ended with exit status {status} when it was repeated"
                        )
                    return result
                if status:
                    tried[k - 1].failed = f"with it the command ends with exit status {status}"
            for one, now in zip(tried, seen[1:]):
                if now is not None and seen[0] is not None:
                    one.add(seen[0], now)
            if not number:
                left_s = (pairs - 1) * (time.monotonic() - began)
                say(
                    f"trying {len(tried)} hint{'s' * (len(tried) > 1)} in {pairs} rounds: about {left_s:.0f} s more"
                )
    return result


def _once(request: run_trace.Request, way: Mapping[str, str], folder: Path) -> tuple[Seen | None, int, bool]:
    """One run of the command with variables: what its trace says, its status, whether it was interrupted."""
    import sonde

    again = replace(
        request,
        command=run_trace.with_variables(request, way),
        ranks=0,
        out=folder / "again.nc",
        env=way,
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
        Seen(io_time(summary), done.length_s, {one.code for one in findings(summary)}, paths),
        0,
        False,
    )


def io_time(summary: xr.Dataset) -> float:
    """Time in I/O of the rank that spent most, s: in the highest layer of I/O that was called, and below it."""
    names = [str(name) for name in summary["layer_name"].values]
    calls, layer_of = summary["calls"].values.sum(axis=0), summary["function_layer"].values
    for name in (*TOPS, "posix"):
        if name in names and calls[layer_of == names.index(name)].any():
            return float(summary["layer_time"].values[:, names.index(name)].max())
    return float("nan")


def told(result: Result) -> list[dict[str, Any]]:
    """The same as data."""

    def number(value: float) -> float | None:
        return value if value == value else None

    def told_of(gain: tuple[float, float, float]) -> dict[str, Any]:
        return {"gain": number(gain[0]), "ci95": [number(gain[1]), number(gain[2])]}

    return [
        {
            "code": one.trial.code,
            "tried": one.trial.text,
            "hints": dict(one.trial.hints),
            "variables": dict(one.trial.variables),
            "rounds": len(one.after),
            "io": told_of(one.gain),
            "whole": told_of(one.whole_gain),
            "reached": one.reached,
            "finding_gone_in": one.gone,
            "failed": one.failed or None,
        }
        for one in result.tried
    ] + [{"code": one.code, "tried": None, "why": one.why} for one in result.untried]
