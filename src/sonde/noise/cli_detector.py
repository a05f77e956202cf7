"""Options that every command with a timed loop has: what the loop does, and the noise source's level."""

from __future__ import annotations

import re
from typing import Any

import click

from sonde.core.errors import Exit, UsageError
from sonde.core.options import DURATION, SHARE, SIZE, TIMEOUT, HouseType, Whole
from sonde.core.provenance import parse_cpu_list
from sonde.noise.plan import OPS

PLACEMENTS = ("pinned", "free", "sibling", "sync")
WORDS = 250_000  # of the noise source's array; the source thesis's


class TooShort(UsageError):
    """A budget without time for a verdict: told before anything starts, with the exit code of missing data."""

    exit = Exit.INCOMPLETE


class Level(HouseType):
    """Level of the noise source: a share from 0 to below 1; 0 means no source at all. Value: float."""

    name, allowed = "level", "levels such as 1%, 0.01%, or 0 for none"

    def read(self, text: str) -> float:
        bare = text.strip()
        try:
            value = float(bare.removesuffix("%")) / (100 if bare.endswith("%") else 1)
        except ValueError:
            value = float("nan")
        if not 0 <= value < 1:
            raise UsageError(
                "noise.bad_level",
                f"'{text}' is no level of noise; allowed: 0 for none, and up to below 100%",
                "write it like 1% or 0.03%",
            )
        return value


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


LEVEL = Level()
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


def places(cpus: str | None, default: tuple[int, ...]) -> tuple[int, ...]:
    """CPUs for the agent; () for all."""
    if cpus is None:
        return default
    if cpus.strip() == "all":
        return ()
    bare = "".join(cpus.split())
    found = parse_cpu_list(bare) if re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", bare, re.ASCII) else []
    if not found:
        raise UsageError(
            "noise.bad_cpus", f"--cpus '{cpus}' is no list of CPUs", "write it like 0,2-5, or all"
        )
    return tuple(dict.fromkeys(found))
