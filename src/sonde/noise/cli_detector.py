"""Options that every command with a timed loop has: what the loop does, and the noise source's level."""

from __future__ import annotations

from typing import Any

import click

from sonde.core.errors import Exit, UsageError
from sonde.core.options import DURATION, SHARE, SIZE, TIMEOUT, HouseType, Share, Whole
from sonde.noise.plan import OPS

PLACEMENTS = ("pinned", "free", "sibling", "sync")
WORDS = 250_000  # of the noise source's array; the source thesis's


class TooShort(UsageError):
    """A budget without time for a verdict: told before anything starts, with the exit code of missing data."""

    exit = Exit.INCOMPLETE


class Placements(HouseType):
    """Placements to compare. Value: tuple of names."""

    name, allowed = "placements", ", ".join(PLACEMENTS)

    def read(self, text: str) -> tuple[str, ...]:
        asked = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
        for word in asked:
            if word not in PLACEMENTS:
                raise UsageError(
                    "noise.unknown_placement",
                    f"there is no placement '{word}'; there are: {', '.join(PLACEMENTS)}",
                    "write them like pinned,free",
                )
        return asked


LEVEL = Share(zero=True)  # of the noise source; 0: nothing at all
DETECTOR = (
    click.option(
        "--op", type=click.Choice(OPS), default="alltoall", show_default=True, help="What the loop repeats."
    ),
    click.option(
        "--size", type=SIZE, default="1KiB", show_default=True, metavar="SIZE", help="Length of its messages."
    ),
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
