"""The results of trying hints as text. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sonde.core import stats
from sonde.core.comparison import MATTERS
from sonde.core.outcome import Table
from sonde.core.units import format_duration
from sonde.io.trace import whatif

if TYPE_CHECKING:
    from sonde.core.outcome import Outcome
    from sonde.io.trace.whatif import Result, Tried


def answer(gain: tuple[float, float, float]) -> str:
    """ "faster", "slower", "no gain" or "not settled", from the speed-up of a command and its interval."""
    _, low, high = gain
    if not (math.isfinite(low) and math.isfinite(high)):
        return "not settled"
    if low > 1:
        return "faster"
    if high < 1:
        return "slower"
    return "no gain" if high < 1 + MATTERS else "not settled"


def table(result: Result) -> Table | None:
    """A table of the attempts, with the sentences of `lines` below it; None if there are none."""
    if not result.tried:
        return None
    rounds = max(len(one.after) for one in result.tried)
    return Table(
        "Tried: the command without and with a hint, alternating",
        ("hint", "without", "with", "gain", "95 %", "command"),
        [_row(one) for one in result.tried],
        right=(1, 2, 3, 4, 5),
        note="\n".join(
            [
                f"Time in I/O of the slowest rank, median over {rounds} traced rounds. gain: how many times "
                "faster I/O is with the hint; command: the same for the whole command.",
                *lines(result),
            ]
        ),
    )


def name_of(one: Tried) -> str:
    """ "romio_ds_write=disable" """
    settings = [
        *one.attempt.hints,
        *((key.removeprefix("OMPI_MCA_"), value) for key, value in one.attempt.variables),
    ]
    return ", ".join(f"{key}={value}" for key, value in settings)


def _row(one: Tried) -> tuple[str, ...]:
    gain, low, high = one.gain
    whole = one.whole_gain[0]
    return (
        name_of(one),
        *(_time(times) for times in (one.before, one.after)),
        f"{gain:.3g}" if math.isfinite(gain) else "–",
        f"{low:.3g} to {high:.3g}" if math.isfinite(low) else "–",
        f"{whole:.3g}" if math.isfinite(whole) else "–",
    )


def _time(values_s: Sequence[float]) -> str:
    known = [value for value in values_s if math.isfinite(value)]
    return format_duration(stats.median(known)) if known else "–"


def lines(result: Result) -> list[str]:
    """A line for each hint, and one for each finding that cannot be tried."""
    out = []
    for one in result.tried:
        if one.failed:
            out.append(f"{name_of(one)}: ended early: {one.failed}.")
        elif one.reached is False:
            out.append(
                f"{name_of(one)}: no process read the hint file, so the hint had no effect: this MPI-IO is "
                "not ROMIO."
            )
        elif one.after:
            out.append(f"{name_of(one)}, {one.attempt.channel}: {_answer(one)}.")
    out += [f"{one.code} cannot be tried without changing the program: {one.why}." for one in result.untried]
    if not result.tried and not result.untried:
        out.append("There is no finding that suggests a hint.")
    if result.interrupted:
        out.append("Trying was interrupted; only complete rounds count.")
    return out


def _answer(one: Tried) -> str:
    gain, low, high = one.gain
    word = answer(one.gain)
    between = f"{low:.3g} to {high:.3g}"
    text = {
        "faster": f"I/O is {gain:.3g} times as fast ({between})",
        "slower": f"do not set it: I/O takes {1 / gain:.3g} times as long ({1 / high:.3g} to {1 / low:.3g})"
        if math.isfinite(low)
        else "",
        "no gain": f"no gain: {between} times as fast",
        "not settled": f"{len(one.after)} rounds show no significant gain; try more with --try N",
    }[word]
    rounds = len(one.after)
    finding = (
        "no longer occurs"
        if one.gone == rounds
        else "stays"
        if not one.gone
        else f"does not occur in {one.gone} rounds"
    )
    return f"{text}; {_finding(one)} {finding}"


def _finding(one: Tried) -> str:
    """The finding that suggested the attempt."""
    return one.attempt.code + (f" of {one.attempt.direction}s" if one.attempt.direction else "")


def tell(result: Result, outcome: Outcome) -> None:
    """Add the results to the outcome of a trace."""
    if made := table(result):
        outcome.tables.append(made)
    else:
        outcome.lines += lines(result)
    outcome.values["tries"] = as_values(result)


def as_values(result: Result) -> list[dict[str, Any]]:
    """The results as data: `whatif.values_of`, with an answer for each."""
    results = whatif.values_of(result)
    answers = [None if one.failed else answer(one.gain) for one in result.tried]
    return [
        {**one, "answer": word} for one, word in zip(results, [*answers, *(None for _ in result.untried)])
    ]
