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
    """A power budget that is enforced over the bus: its daemons, the budget, and reports on it."""


@group.command()
@common(own_config=True)
@click.argument("role", metavar="ROLE")
@CONFIG
@click.option(
    "--name", default="", metavar="NAME", help="Use this name instead of the role's name in the file."
)
@click.option(
    "--observe",
    is_flag=True,
    help="Change nothing: a system-manager reports what it would set, a node-manager leaves its hardware unchanged.",
)
@click.option("--restore", is_flag=True, help="node-manager: restore the earlier settings at the end.")
@click.option("--with-parent", is_flag=True, help="End when standard input ends.")
def serve(
    role: str, config_path: Path, name: str, observe: bool, restore: bool, with_parent: bool
) -> Outcome:
    """Run one of the power stack's daemons until a signal ends it.

    \b
    Events go to stdout as JSON lines, the log to stderr. Roles:
      node-manager      one on each node: reads and caps its hardware
      system-manager    one for the cluster, and standbys: enforces the budget
      mqtt-bridge       connects the stack to an MQTT broker
      monitor           receives all telemetry: history, metrics, live page
      job-scheduler     queues jobs, and starts them under the budget
      resource-manager  allocates nodes, cores, memory; limits of racks
      job-manager       starts jobs, meters them, steers them to targets
      workflow-engine   runs jobs that depend on each other

    \b
    sonde power serve monitor --config power.toml
    """
    check(role)
    if role in NATIVE:
        from sonde.core.launch import libexec

        program = libexec() / "sonde-powerd"
        command = [str(program), role, "--config", str(config_path)]
        command += ["--name", name] if name else []
        command += [
            flag
            for flag, given in (
                ("--observe", observe),
                ("--restore", restore),
                ("--with-parent", with_parent),
            )
            if given
        ]
        try:
            os.execv(program, command)
        except OSError as error:
            raise EnvironmentFailure(
                "power.not_built",
                f"cannot start {program}: {error.strerror}",
                "'sonde doctor' shows what to install; then 'make setup' builds it",
            ) from None
    from sonde.power.stack.run_bus import load

    stack = load(config_path)
    try:
        module = importlib.import_module(module_of(role))
    except ModuleNotFoundError as error:
        if error.name != module_of(role):
            raise
        raise EnvironmentFailure(
            "power.no_role", f"this build of Sonde has no {role}: {ROLES[role]}", "install a newer version"
        ) from None
    return Outcome("power", "serve", stream=module.serve(stack, name, with_parent), meant=True)


for module in (
    *(jobs, monitor, recording, demo),
    *(cli_slurm, cli_whatif, workflows),
):
    for command in module.COMMANDS:
        group.add_command(command)
