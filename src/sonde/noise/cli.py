"""sonde noise: the commands. Each returns an Outcome; nothing is printed here."""

from __future__ import annotations

import click


@click.group()
def group() -> None:
    """What a monitoring agent costs the jobs beside it."""


# Commands that have a module of their own: (module, command).
ELSEWHERE: tuple[tuple[str, str], ...] = (("cli_agents", "agents"), ("cli_source", "source"))


def _mount() -> None:
    from importlib import import_module

    for module, name in ELSEWHERE:
        group.add_command(getattr(import_module(f"sonde.noise.{module}"), name))


_mount()
