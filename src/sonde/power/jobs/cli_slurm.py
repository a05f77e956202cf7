"""sonde power slurm: the commands that Slurm's prolog and epilog call."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from sonde.core.errors import UsageError, Warning
from sonde.core.options import DURATION, common
from sonde.core.outcome import Outcome
from sonde.core.units import format_power
from sonde.power.cli_options import CONFIG, Power

WITHIN = click.option(
    "--within",
    "within_s",
    type=DURATION,
    default="5s",
    show_default=True,
    metavar="TIME",
    help="Timeout for the system manager's answer.",
)


@click.group()
def slurm() -> None:
    """Report to the system manager which jobs Slurm starts and ends: for PrologSlurmctld and EpilogSlurmctld."""


@slurm.command()
@common(own_config=True)
@CONFIG
@click.option(
    "--power",
    "power_w",
    type=Power(),
    metavar="POWER",
    help="Power of each node, if the job's comment gives none.",
)
@click.option(
    "--guaranteed",
    "guaranteed_w",
    type=Power(),
    metavar="POWER",
    help="Guaranteed power of each node, if the job's comment gives none.",
)
@WITHIN
def prolog(config_path: Path, power_w: float | None, guaranteed_w: float | None, within_s: float) -> Outcome:
    """Report that a Slurm job begins: its nodes, and its power from its comment or from --power.

    It reads the environment that Slurm gives to PrologSlurmctld.

    \b
    sbatch --comment='power=350W guaranteed=250W' job.sh
    sonde power slurm prolog --config /etc/sonde/power.toml --power 300W
    """
    from sonde.power.jobs import slurm_job
    from sonde.power.stack import run_bus

    job = slurm_job.job_of(os.environ)
    stack = run_bus.load(config_path)
    wish, wrong = slurm_job.wish_of(job.comment, slurm_job.Wish(power_w or 0.0, guaranteed_w or 0.0))
    order = slurm_job.command(job, wish, [node.name for node in stack.nodes])
    warnings = [
        Warning("power.bad_comment", what, "--comment='power=350W guaranteed=250W'") for what in wrong
    ]
    if order is None:
        text = f"{job.job} has no node of the power stack: nothing to report"
        return Outcome(
            "power", "slurm prolog", text, values={"job": job.job, "told": False}, warnings=warnings
        )
    _tell(stack, order, within_s)
    nodes = order["nodes"]
    assert isinstance(nodes, list)
    power = f"would draw {format_power(wish.demand_w)}" if wish.demand_w else "gave no power"
    text = f"{job.job} of {job.user or 'nobody'} begins on {len(nodes)} nodes and {power} on each"
    values = {"job": job.job, "told": True, "nodes": nodes, "demand_w": wish.demand_w or None}
    values |= {"guaranteed_w": wish.guaranteed_w, "weight": wish.weight}
    return Outcome("power", "slurm prolog", text, values=values, warnings=warnings)


@slurm.command()
@common(own_config=True)
@CONFIG
@WITHIN
def epilog(config_path: Path, within_s: float) -> Outcome:
    """Report that a Slurm job is over.

    It reads the environment that Slurm gives to EpilogSlurmctld. It is no fault if the system manager does not know the
    job: another manager may lead by now, or the job's time was over.

    \b
    sonde power slurm epilog --config /etc/sonde/power.toml
    """
    from sonde.power.jobs import slurm_job
    from sonde.power.stack import run_bus

    job = slurm_job.job_of(os.environ)
    known = True
    try:
        _tell(
            run_bus.load(config_path),
            {"order": "END_JOB", "job": job.job, "reason": "Slurm's epilog"},
            within_s,
        )
    except UsageError as error:
        if error.code != "power.not_found":
            raise
        known = False
    text = f"{job.job} is over" if known else f"{job.job} is over, and the system manager did not know it"
    return Outcome("power", "slurm epilog", text, values={"job": job.job, "told": known})


def _tell(stack: Any, order: dict[str, Any], within_s: float) -> None:
    from sonde.core.errors import EnvironmentFailure
    from sonde.power.stack import run_bus

    try:
        with run_bus.open_bus(stack, "slurm") as bus:
            run_bus.ask(bus, "SystemPowerManager_set", order, timeout_s=within_s)
    except EnvironmentFailure as error:
        if error.code == "power.not_found":
            raise UsageError(error.code, error.what, error.hint) from None
        raise


COMMANDS = (slurm,)
