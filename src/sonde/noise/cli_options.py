"""Options that several commands of `sonde noise` share."""

from __future__ import annotations

from typing import Any

import click

from sonde.core.errors import Exit, UsageError
from sonde.core.options import DURATION, SHARE, SIZE, TIMEOUT, Whole
from sonde.noise.plan import OPS

WORDS = 250_000  # of the noise source's array; the source thesis's

OP = (
    click.option(
        "--op", type=click.Choice(OPS), default="alltoall", show_default=True, help="What the loop repeats."
    ),
)
JUDGE = (
    click.option(
        "--alpha", type=SHARE, default="1%", show_default=True, metavar="SHARE", help="False alarms allowed."
    ),
    click.option(
        "--matters",
        type=SHARE,
        default="0.1%",
        show_default=True,
        metavar="SHARE",
        help="Slowdown that counts.",
    ),
    click.option(
        "--grain",
        "grain_s",
        type=DURATION,
        default="1ms",
        show_default=True,
        metavar="TIME",
        help="What an application computes between two collectives, for the model of scale.",
    ),
)
LOOP = (
    click.option(
        "--size", type=SIZE, default="1KiB", show_default=True, metavar="SIZE", help="Length of its messages."
    ),
    click.option(
        "--poll", is_flag=True, help="Poll non-blocking operations: names late ranks also without the kernel."
    ),
    click.option(
        "--keep", is_flag=True, help="Keep every iteration in the dataset, not its distribution alone."
    ),
    click.option(
        "--every",
        type=click.Choice(["auto", "1", "2", "4", "8", "16"]),
        default="auto",
        help="Iterations that share one reading of the clock; auto: by what reading costs.",
    ),
    TIMEOUT,
)
DETECTOR = (*LOOP, *JUDGE)
SOURCE = (
    click.option(
        "--words", type=Whole(1), default=WORDS, show_default=True, metavar="N", help="Words the source sums."
    ),
    click.option("--unsync", is_flag=True, help="Sources on several nodes burst at independent times."),
)


def options(*sets: tuple[Any, ...]) -> Any:
    """Adds sets of options to a command."""

    def decorate(command: Any) -> Any:
        for option in reversed([option for each in sets for option in each]):
            command = option(command)
        return command

    return decorate


class TooShort(UsageError):
    """A budget that has no time for a verdict: told before anything starts."""

    exit = Exit.INCOMPLETE


def places_of(cpus: str | None, default: tuple[int, ...]) -> tuple[int, ...]:
    """CPUs for the agent; () for all."""
    if cpus is None:
        return default
    if cpus.strip() == "all":
        return ()
    found: list[int] = []
    for part in cpus.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) < int(first):
            raise UsageError(
                "noise.bad_cpus", f"--cpus '{cpus}' is no list of CPUs", "write it like 0,2-5, or all"
            )
        found += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(found))
