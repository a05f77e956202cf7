"""sonde noise: the commands. Each returns an Outcome; nothing is printed here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from sonde.core.errors import Exit
from sonde.core.options import common
from sonde.core.outcome import Outcome
from sonde.noise import saved
from sonde.noise.agents import cli as agents
from sonde.noise.detector import cli as detector
from sonde.noise.host import cli as host
from sonde.noise.kinds import is_study
from sonde.noise.source import cli as source
from sonde.noise.studies import cli as studies


@click.group()
def group() -> None:
    """The cost of a monitoring agent for the jobs on the same nodes."""


for command in (
    detector.run,
    agents.agents,
    source.source,
    host.host,
    studies.sensitivity,
    studies.stability,
):
    group.add_command(command)


FILES = click.argument(
    "files", nargs=-1, required=True, metavar="FILE.nc...", type=click.Path(path_type=Path)
)


@group.command()
@common()
@FILES
def show(files: tuple[Path, ...]) -> Outcome:
    """Show the results of datasets of this room: verdict, size of the effect, smallest detectable cost."""
    outcomes = [outcome_of(path, "show") for path in files]
    first = outcomes[0]
    if len(outcomes) == 1:
        first.exit = Exit.DONE
        return first
    unique = len({path.name for path in files}) == len(files)  # otherwise only the folders differ
    named = [(path.name if unique else str(path), each) for path, each in zip(files, outcomes)]
    return Outcome(
        "noise",
        "show",
        " ".join(f"{name}: {each.verdict}" for name, each in named),
        schema=first.schema,
        dataset=first.dataset,
        complete=all(each.complete for each in outcomes),
        findings=[
            replace(finding, text=f"{name}: {finding.text}")
            for name, each in named
            for finding in each.findings
        ],
        warnings=[
            replace(warning, evidence=f"{name}: {warning.evidence}")
            for name, each in named
            for warning in each.warnings
        ],
        tables=[
            replace(table, title=f"{name}: {table.title}" if table.title else name)
            for name, each in named
            for table in each.tables
        ],
        # A line that begins with a blank is a command to copy. It belongs to the line before it.
        lines=[
            line if line.startswith(" ") else f"{name}: {line}" for name, each in named for line in each.lines
        ],
        values={"datasets": [{"dataset": str(path), **each.values} for path, each in zip(files, outcomes)]},
        sound=all(each.sound for each in outcomes),
    )


def outcome_of(path: Path, verb: str) -> Outcome:
    """The outcome of a dataset of this room, of any kind."""
    read = saved.read(path)
    if read.kind == "host":
        return host.outcome_of(path, verb)
    if read.kind == "source":
        return source.outcome_of(path, verb)
    return (studies if is_study(read.summary.attrs) else detector).outcome_of(path, verb)
