"""The options of all commands with a timed loop: the operation of the loop, and the noise source's level."""

from __future__ import annotations

from typing import Any

import click

from sonde.core.errors import Exit, UsageError
from sonde.core.options import DURATION, SHARE, SIZE, TIMEOUT, BuiltinType, Share, Whole
from sonde.noise.detector.plan import NO_SIZE, OPS

PLACEMENTS = ("pinned", "free", "sibling", "sync")
WORDS = 250_000  # size of the noise source's array, as in the source thesis


class TooShort(UsageError):
    """The budget is too short for a verdict. Raised before anything starts, with the exit code of missing data."""

    exit = Exit.INCOMPLETE


class Placements(BuiltinType):
    """Placements to compare. Value: tuple of names."""

    name, allowed = "placements", ", ".join(PLACEMENTS)

    def read(self, text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
        for name in names:
            if name not in PLACEMENTS:
                raise UsageError(
                    "noise.unknown_placement",
                    f"there is no placement '{name}'; there are: {', '.join(PLACEMENTS)}",
                    "write them like pinned,free",
                )
        return names


LEVEL = Share(zero=True)  # of the noise source; 0: no noise
DETECTOR = (
    click.option(
        "--op",
        type=click.Choice(OPS),
        default="alltoall",
        show_default=True,
        help="Operation that the loop repeats.",
    ),
    click.option(
        "--size", type=SIZE, default="1KiB", show_default=True, metavar="SIZE", help="Size of its messages."
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
        help="Slowdown from which on the agent is a finding.",
    ),
    click.option(
        "--grain",
        "grain_s",
        type=DURATION,
        default="1ms",
        show_default=True,
        metavar="TIME",
        help="Computing time between two collectives, for the model of many nodes.",
    ),
    click.option(
        "--poll",
        is_flag=True,
        help="Poll non-blocking operations: shows late ranks without the kernel's data.",
    ),
    click.option(
        "--keep", is_flag=True, help="Store every iteration in the dataset, not only the distribution."
    ),
    click.option(
        "--every",
        type=click.Choice(["auto", "1", "2", "4", "8", "16"]),
        default="auto",
        help="Iterations that share one reading of the clock; auto: depends on its cost.",
    ),
    TIMEOUT,
)
SOURCE = (
    click.option(
        "--words",
        type=Whole(1),
        default=WORDS,
        show_default=True,
        metavar="N",
        help="Words that the source sums.",
    ),
    click.option("--unsync", is_flag=True, help="Sources on several nodes burst at independent times."),
)


def options(*sets: tuple[Any, ...]) -> Any:
    """A decorator that adds sets of options to a command."""

    def decorate(command: Any) -> Any:
        for option in reversed([option for each in sets for option in each]):
            command = option(command)
        return command

    return decorate


def loop_settings(op: str, values: dict[str, Any]) -> dict[str, Any]:
    """The settings of a Plan from the options of DETECTOR besides --op and --timeout; a study may lack some."""
    every = values["every"]
    return {
        "size": 0 if op in NO_SIZE else values["size"],
        **{name: values[name] for name in ("alpha", "matters", "grain_s") if name in values},
        "poll": values["poll"],
        "keep": values["keep"],
        "every": 0 if every == "auto" else int(every),
    }
