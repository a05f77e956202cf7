"""`sonde doctor`: what is built, what works here, and what to install for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from sonde.cli.diagnosis import checks
from sonde.core.diagnosis import FACT, GOOD, NONE, POOR, Answer, Here, ask
from sonde.core.errors import Warning
from sonde.core.options import common
from sonde.core.outcome import Outcome, Table
from sonde.core.room import rooms as all_rooms

# Parts of Sonde that are not rooms: checks that must be good, and checks whose missing parts are shown next to them.
PARTS = {
    "data": (("netcdf",), ("netcdf", "parquet")),
    "report": (("netcdf", "report"), ("report", "paper", "browser")),
}

# The names of the marks in JSON.
MARKS = {GOOD: "good", POOR: "poor", NONE: "none", FACT: "fact"}


@click.command()
@common()
def command() -> Outcome:
    """Show what is built, what works here, and what to install for the rest.

    Everything is tried, not guessed: each MPI starts two ranks, one process reads another's memory, a file is written
    and read back. It takes a few seconds and changes nothing.
    """
    here = Here()
    _ = here.machine  # once, before the threads that need it
    return diagnose(ask(list(checks().values()), here), here.machine)


def diagnose(answers: Mapping[str, Answer], machine: Mapping[str, Any]) -> Outcome:
    """The outcome from the answers of all checks and the description of the machine."""
    rooms = [_state(room.name, room.any_of, room.all_of, room.asks, answers) for room in all_rooms()]
    rooms += [_state(name, (), all_of, asks, answers) for name, (all_of, asks) in PARTS.items()]
    working = [room["room"] for room in rooms if room["works"]]
    broken = [room["room"] for room in rooms if not room["works"]]
    mpis = [
        checks()[n].title + f" {answers[n].values['version']}"
        for n in ("openmpi", "mpich")
        if _works(answers[n])
    ]
    verdict = (
        f"{_listed(working)} {'works' if len(working) == 1 else 'work'} here"
        if working
        else "Nothing works here"
    )
    verdict += f", with {_listed(mpis)}" if mpis else ""
    verdict += f"; {_listed(broken)} {'does' if len(broken) == 1 else 'do'} not" if broken and working else ""

    columns = ["room", "built", "works"]
    rows = [[room["room"], _mark(room["built"]), _mark(room["works"])] for room in rooms]
    if any(room["missing"] for room in rooms):
        columns.append("missing: how to get it")
        rows = [[*row, _needs(room)] for row, room in zip(rows, rooms)]
    tables = [Table("Rooms", columns, rows)]
    widest = max(len(check.title) for check in checks().values())
    for group in dict.fromkeys(check.group for check in checks().values()):
        found = [(check.title, answers[name]) for name, check in checks().items() if check.group == group]
        lines = [[answer.mark, title.ljust(widest), answer.text] for title, answer in found]
        tables.append(Table(group, ("", "", ""), lines))
    return Outcome(
        room="doctor",
        verb="",
        verdict=verdict + ".",
        warnings=[
            Warning(f"doctor.{name}", f"{checks()[name].title}: {answer.text}", answer.advice)
            for name, answer in answers.items()
            if answer.mark in (POOR, NONE) and answer.advice
        ],
        values={
            "rooms": rooms,
            "machine": dict(machine),
            "checks": {
                name: {"mark": MARKS[answer.mark], "text": answer.text, **answer.values}
                for name, answer in answers.items()
            },
        },
        tables=tables,
    )


def _state(
    name: str,
    any_of: Sequence[str],
    all_of: Sequence[str],
    asks: Sequence[str],
    answers: Mapping[str, Answer],
) -> dict[str, Any]:
    """Whether a part of Sonde works here, and what is missing. any_of, all_of, asks: as in `core.room.Room`."""
    built = not any_of or any(answers[check].values.get("built") for check in any_of)
    works = built and (not any_of or any(_works(answers[check]) for check in any_of))
    works = works and all(_works(answers[check]) for check in all_of)
    needs = list(dict.fromkeys(need for check in asks for need in answers[check].needs))
    return {
        "room": name,
        "built": built,
        "works": works,
        "missing": [{"what": need.what, "install": need.install} for need in needs],
    }


def _works(answer: Answer) -> bool:
    return bool(answer.values.get("works"))


def _mark(yes: bool) -> str:
    return GOOD if yes else NONE


def _needs(room: Mapping[str, Any]) -> str:
    return "\n".join(f"{need['what']}: {need['install']}" for need in room["missing"])


def _listed(names: list[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
