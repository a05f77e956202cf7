"""sonde power: the commands. Each returns an Outcome; nothing is printed here."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import click

from sonde.core.errors import EnvironmentFailure
from sonde.core.options import common
from sonde.core.outcome import Outcome
from sonde.power.cli_options import CONFIG
from sonde.power.demo import cli as demo
from sonde.power.jobs import cli as jobs
from sonde.power.jobs import cli_slurm
from sonde.power.monitor import cli as monitor
from sonde.power.recording import cli as recording
from sonde.power.recording import cli_whatif
from sonde.power.stack.roles import NATIVE, ROLES, check, module_of
from sonde.power.workflows import cli as workflows


@click.group()
def group() -> None:
    """A power budget that is held over the bus: daemons, their budget, and what they did."""


@group.command()
@common(own_config=True)
@click.argument("role", metavar="ROLE")
@CONFIG
@click.option("--name", default="", metavar="NAME", help="Instead of the role's name in the file.")
@click.option(
    "--observe",
    is_flag=True,
    help="Set nothing: a system-manager says what it would set, a node-manager leaves its hardware as it is.",
)
@click.option("--restore", is_flag=True, help="node-manager: in the end set what was there before it.")
@click.option("--with-parent", is_flag=True, help="End when standard input ends.")
def serve(
    role: str, config_path: Path, name: str, observe: bool, restore: bool, with_parent: bool
) -> Outcome:
    """Be one of the power stack's daemons, until it is told to end.

    \b
    Events go to stdout as JSON lines, the log to stderr. Roles:
      node-manager      one on each node: reads and caps its hardware
      system-manager    one for the cluster, and standbys: holds the budget
      mqtt-bridge       to and from an MQTT broker
      monitor           hears all telemetry: history, metrics, live page
      job-scheduler     queues jobs, and starts them under the budget
      resource-manager  gives jobs nodes, cores, memory; limits of racks
      job-manager       starts jobs, meters them, steers them to targets
      workflow-engine   jobs that wait for each other

    \b
    sonde power serve monitor --config power.toml
    """
    check(role)
    if role in NATIVE:
        from sonde.core.launch import libexec

        program = libexec() / "sonde-powerd"
        words = [str(program), role, "--config", str(config_path)]
        words += ["--name", name] if name else []
        words += [
            flag
            for flag, given in (
                ("--observe", observe),
                ("--restore", restore),
                ("--with-parent", with_parent),
            )
            if given
        ]
        try:
            os.execv(program, words)
        except OSError as error:
            raise EnvironmentFailure(
                "power.not_built",
                f"{program} cannot be started: {error.strerror}",
                "'sonde doctor' says what to install; then 'make setup' builds it",
            ) from None
    from sonde.power.stack.run_bus import load

    stack = load(config_path)
    try:
        module = importlib.import_module(module_of(role))
    except ModuleNotFoundError as error:
        if error.name != module_of(role):
            raise
        raise EnvironmentFailure(
            "power.no_role", f"this build of Sonde has no {role}: {ROLES[role]}", "install a newer one"
        ) from None
    return Outcome("power", "serve", stream=module.serve(stack, name, with_parent), meant=True)


for module in (
    *(jobs, monitor, recording, demo),
    *(cli_slurm, cli_whatif, workflows),
):
    for command in module.COMMANDS:
        group.add_command(command)
