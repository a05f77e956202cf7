"""sonde store: the commands. Each returns an Outcome; nothing is printed here."""

from __future__ import annotations

import click

from sonde.store import cli_run


@click.group()
def group() -> None:
    """What a storage service gains or loses by its transport."""


for command in cli_run.COMMANDS:
    group.add_command(command)
