"""The results of trying hints, and their storage in the dataset of the trace that suggested them. Pure.

/raw has the times of each round, and /summary has a copy; the statistics are computed when the results are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.described import Described, variables
from sonde.core.described import optional as _of
from sonde.io.trace.hints import Attempt, Untried
from sonde.io.trace.ratios import ratio_of_pairs

if TYPE_CHECKING:
    import xarray as xr

HINTS = "sonde-hints-"  # the names of hint files begin with this
_UNKNOWN = -1

_TRIAL, _ROUND, _UNTRIED = ("trial",), ("trial", "try_round"), ("untried",)
RAW: dict[str, Described] = {
    "try_code": _of(_TRIAL, "", "finding that suggested what was tried", "str"),
    "try_direction": _of(
        _TRIAL, "", "read or write, where the finding is of one of them; empty: of both", "str"
    ),
    "try_text": _of(_TRIAL, "", "what was tried, in words", "str"),
    "try_hints": _of(_TRIAL, "", "hints given through the file of ROMIO_HINTS", "str"),
    "try_variables": _of(_TRIAL, "", "environment variables given", "str"),
    "try_failed": _of(_TRIAL, "", "why it was given up; empty: it was not", "str"),
    "try_reached": _of(_TRIAL, "1", "whether a process read the file of hints; -1: there was none", "|i1"),
    "try_gone": _of(_TRIAL, "1", "rounds in which the finding was not there with it", "<i8"),
    "try_io": _of(_ROUND, "s", "time in I/O of the slowest rank, the command as it is"),
    "try_io_with": _of(_ROUND, "s", "the same with what was tried"),
    "try_whole": _of(_ROUND, "s", "time of the whole command as it is"),
    "try_whole_with": _of(_ROUND, "s", "the same with what was tried"),
    "untried_code": _of(_UNTRIED, "", "finding for which nothing can be tried", "str"),
    "untried_why": _of(_UNTRIED, "", "why", "str"),
}
_TIMES = {
    "try_io": "before",
    "try_io_with": "after",
    "try_whole": "whole_before",
    "try_whole_with": "whole_after",
}


@dataclass(frozen=True)
class Seen:
    """The results of one run's trace.

    io_s: time in I/O. whole_s: of the command. found: code and direction of each finding. read: files.
    """

    io_s: float
    whole_s: float
    found: set[tuple[str, str]]
    read: set[str]


@dataclass
class Tried:
    """The results of one attempt, round by round.

    before, after: time in I/O without and with the hint, s; whole_before, whole_after: time of the whole command. gone:
    rounds with the hint in which the finding did not occur. reached: whether a process read the hint file in any round;
    None if nothing was read, or there was no file. failed: why the attempt was ended; "" if it was not.
    """

    attempt: Attempt
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    whole_before: list[float] = field(default_factory=list)
    whole_after: list[float] = field(default_factory=list)
    gone: int = 0
    reached: bool | None = None
    failed: str = ""

    def add(self, as_it_is: Seen, with_it: Seen) -> None:
        """Add a round."""
        self.before.append(as_it_is.io_s)
        self.after.append(with_it.io_s)
        self.whole_before.append(as_it_is.whole_s)
        self.whole_after.append(with_it.whole_s)
        self.gone += (self.attempt.code, self.attempt.direction) not in with_it.found
        if self.attempt.hints:
            read = any(PurePosixPath(path).name.startswith(HINTS) for path in with_it.read)
            self.reached = bool(self.reached) or read

    @property
    def gain(self) -> tuple[float, float, float]:
        """How many times faster I/O is with the hint, and the 95 % confidence interval."""
        return ratio_of_pairs(np.array(self.after), np.array(self.before))

    @property
    def whole_gain(self) -> tuple[float, float, float]:
        """The same for the whole command."""
        return ratio_of_pairs(np.array(self.whole_after), np.array(self.whole_before))


@dataclass
class Result:
    """All attempts, and the findings that cannot be tried. interrupted: the user ended them."""

    tried: list[Tried]
    untried: list[Untried]
    interrupted: bool = False


def values_of(result: Result) -> list[dict[str, Any]]:
    """The results as data."""

    def number(value: float) -> float | None:
        return value if value == value else None

    def with_interval(gain: tuple[float, float, float]) -> dict[str, Any]:
        return {"gain": number(gain[0]), "ci95": [number(gain[1]), number(gain[2])]}

    return [
        {
            "code": one.attempt.code,
            "direction": one.attempt.direction or None,
            "tried": one.attempt.text,
            "hints": dict(one.attempt.hints),
            "variables": dict(one.attempt.variables),
            "rounds": len(one.after),
            "io": with_interval(one.gain),
            "whole": with_interval(one.whole_gain),
            "reached": one.reached,
            "finding_gone_in": one.gone,
            "failed": one.failed or None,
        }
        for one in result.tried
    ] + [{"code": one.code, "tried": None, "why": one.why} for one in result.untried]


def written(result: Result) -> xr.Dataset:
    """The variables of RAW."""
    import xarray as xr

    tried, rounds = result.tried, max((len(one.after) for one in result.tried), default=0)
    made: dict[str, Any] = {
        "try_code": _texts(one.attempt.code for one in tried),
        "try_direction": _texts(one.attempt.direction for one in tried),
        "try_text": _texts(one.attempt.text for one in tried),
        "try_hints": _texts(_joined(one.attempt.hints) for one in tried),
        "try_variables": _texts(_joined(one.attempt.variables) for one in tried),
        "try_failed": _texts(one.failed for one in tried),
        "try_reached": np.array([_UNKNOWN if one.reached is None else one.reached for one in tried], np.int8),
        "try_gone": np.array([one.gone for one in tried], np.int64),
        "untried_code": _texts(one.code for one in result.untried),
        "untried_why": _texts(one.why for one in result.untried),
    }
    for name, key in _TIMES.items():
        made[name] = np.full((len(tried), rounds), np.nan)
        for k, one in enumerate(tried):
            made[name][k, : len(one.after)] = getattr(one, key)
    return xr.Dataset(variables(RAW, made))


def read(summary: xr.Dataset) -> Result | None:
    """The results in a dataset; None if nothing was tried."""
    if "try_code" not in summary:
        return None
    values = {name: summary[name].values for name in RAW}
    tried = []
    for k, code in enumerate(values["try_code"].tolist()):
        # A round has both times of the command, whatever is known of its I/O.
        rounds = int(np.isfinite(values["try_whole_with"][k]).sum())
        times = {key: values[name][k, :rounds].tolist() for name, key in _TIMES.items()}
        reached = int(values["try_reached"][k])
        attempt = Attempt(
            str(code),
            str(values["try_text"][k]),
            _split(str(values["try_hints"][k])),
            _split(str(values["try_variables"][k])),
            str(values["try_direction"][k]),
        )
        tried.append(
            Tried(
                attempt,
                **times,
                gone=int(values["try_gone"][k]),
                reached=None if reached == _UNKNOWN else bool(reached),
                failed=str(values["try_failed"][k]),
            )
        )
    pairs = zip(values["untried_code"].tolist(), values["untried_why"].tolist())
    return Result(tried, [Untried(str(code), str(why)) for code, why in pairs])


def _joined(pairs: Sequence[tuple[str, str]]) -> str:
    return ",".join(f"{name}={value}" for name, value in pairs)


def _split(text: str) -> tuple[tuple[str, str], ...]:
    pairs = (part.partition("=") for part in text.split(",") if part)
    return tuple((name, value) for name, _, value in pairs)


def _texts(values: Any) -> np.ndarray:
    listed = list(values)
    out = np.empty(len(listed), object)
    out[:] = listed
    return out
