"""sonde bus: the commands. Each returns an Outcome; nothing is printed here."""

from __future__ import annotations

import click

from sonde.bus import cli_advise, cli_run
from sonde.bus.cli_conformance import conformance
from sonde.bus.cli_keys import keys


@click.group()
def group() -> None:
    """Measure what a data-distribution bus costs, and which variant suits."""


for command in (*cli_run.COMMANDS, *cli_advise.COMMANDS, conformance, keys):
    group.add_command(command)
