"""sonde power status, top, set-budget, shed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonde.core.options import DURATION, Whole, common, settings
from sonde.core.outcome import Outcome, Table
from sonde.core.units import format_duration, format_power
from sonde.power.cli_options import CONFIG, Part, Power, Span

if TYPE_CHECKING:
    from sonde.bus.client import Reply

WAIT = click.option(
    "--wait",
    "wait_s",
    type=DURATION,
    default="60s",
    show_default=True,
    metavar="TIME",
    help="How long to wait until nodes comply.",
)
REASON = click.option("--reason", default="", metavar="TEXT", help="Reason, for the audit log.")


@click.command()
@common(own_config=True)
@CONFIG
@click.option(
    "--within",
    "within_s",
    type=DURATION,
    default="5s",
    show_default=True,
    metavar="TIME",
    help="Longest time to listen.",
)
def status(config_path: Path, within_s: float) -> Outcome:
    """Show the nodes and the manager, power drawn and lent, and whether the budget was held in the last hour.

    The numbers are the leading manager's; if none answers, those of the nodes' own reports. Exit 1: no manager leads, a
    node is not heard, caps are above the budget, or a node is counted at its highest power.

    \b
    sonde power status --config power.toml
    """
    from sonde.core.errors import Exit
    from sonde.power.monitor import live, run_live, verdict
    from sonde.power.stack import run_bus

    stack = run_bus.load(config_path)
    with run_live.listening(stack) as (bus, subscriber):
        now, whole = run_live.look(subscriber, stack, within_s)
        # A node that was not heard may report rarely; if it is present, the bus knows it by now.
        answer = _asked(bus, within_s if now["cluster"]["managed"] else min(within_s, 1.0))
        if answer is not None:
            now = live.informed(now, answer)
    before = run_live.past(stack)
    values = {**verdict.values(before), **now["cluster"], "nodes": now["nodes"], "jobs": now["jobs"]}
    values["lease_s"] = now["cluster"].get("lease_s", values["lease_s"])
    outcome = Outcome("power", "status", live.summary(now), values=values)
    outcome.tables.append(_nodes(now["nodes"]))
    outcome.findings = live.found(now)
    outcome.exit = Exit.FINDING if outcome.findings else Exit.DONE
    if before is not None:
        outcome.lines.append(f"In the last hour: {verdict.sentence(before)}.")
        outcome.tables.append(verdict.table(before))
    else:
        outcome.lines.append(f"There is no history at {stack.history}: a monitor writes it.")
    outcome.sound = not outcome.findings and (whole or answer is not None)
    return outcome


def _asked(bus: Any, within_s: float) -> dict[str, Any] | None:
    """The leading manager's table of the cluster and of each node; None if no manager answers."""
    from contextlib import suppress

    from sonde.core.errors import SondeError
    from sonde.power.stack import run_bus

    with suppress(SondeError):
        body: dict[str, Any] = run_bus.ask(
            bus, "SystemPowerManager_get", {"ask": "GET_POWER"}, timeout_s=within_s
        ).body
        return body
    return None


def _nodes(nodes: list[dict[str, Any]]) -> Table:
    def watts(value: Any) -> str:
        return format_power(value) if isinstance(value, float) and value == value else "–"

    rows = []
    for node in nodes:
        if not node["up"]:
            age = node.get("age_s")
            heard = "not heard" if age is None else f"not heard for {format_duration(age)}"
            rows.append(
                (node["node"], heard, "–", watts(node.get("committed_w")), "–", node["trouble"] or "–")
            )
            continue
        lease = "leased" if node["leased"] else "safe cap"
        if node["leased"] and node["left_s"] is not None:
            lease = format_duration(max(0.0, node["left_s"]))
        rows.append(
            (
                node["node"],
                watts(node["power_w"]),
                watts(node["cap_w"]),
                watts(node.get("committed_w")),
                lease,
                node["trouble"] or node["source"],
            )
        )
    return Table("Nodes", ("node", "power", "cap", "counted at", "lease left", "source"), rows, (1, 2, 3, 4))


@click.command()
@common(own_config=True)
@CONFIG
@click.option(
    "--every",
    "every_s",
    type=DURATION,
    default="1s",
    show_default=True,
    metavar="TIME",
    help="Time between two updates.",
)
@click.option("--turns", type=Whole(1), metavar="N", help="Number of updates; default: until Ctrl-C.")
def top(config_path: Path, every_s: float, turns: int | None) -> Outcome:
    """Show power, caps and leases on a terminal of 80 columns, until Ctrl-C.

    \b
    sonde power top --config power.toml
    """
    from sonde.power.monitor import live, run_live
    from sonde.power.stack import run_bus

    stack = run_bus.load(config_path)
    silent = settings().json
    now = run_live.follow(stack, (lambda lines: None) if silent else settings().screen, every_s, turns)
    values = {**now["cluster"], "nodes": now["nodes"], "jobs": now["jobs"]}
    return Outcome("power", "top", live.verdict(now), values=values, meant=True)


@click.command("set-budget")
@common(own_config=True)
@click.argument("power", type=Power(), metavar="POWER")
@CONFIG
@WAIT
@REASON
def set_budget(power: float, config_path: Path, wait_s: float, reason: str) -> Outcome:
    """Set another budget for the cluster, and wait until its nodes comply.

    \b
    sonde power set-budget 20kW --config power.toml
    """
    order = {"order": "SET_POWER", "budget_w": power, "reason": reason}
    return _ordered("set-budget", config_path, order, wait_s)


@click.command()
@common(own_config=True)
@click.argument("share", type=Part(), metavar="SHARE")
@click.option(
    "--for", "for_s", type=Span(), required=True, metavar="TIME", help="For how long: 30min, or 30m."
)
@CONFIG
@WAIT
@REASON
def shed(share: float, for_s: float, config_path: Path, wait_s: float, reason: str) -> Outcome:
    """Reduce the budget for a while, and report how long it took until the nodes complied.

    \b
    sonde power shed 20% --for 30m --config power.toml
    """
    order = {"order": "SHED", "share": share, "for_s": for_s, "reason": reason}
    return _ordered("shed", config_path, order, wait_s)


def _ordered(verb: str, config_path: Path, order: dict[str, Any], wait_s: float) -> Outcome:
    from sonde.core.errors import Exit, Warning
    from sonde.power.stack import run_bus
    from sonde.power.stack.run_state import own_user

    stack = run_bus.load(config_path)
    with run_bus.open_bus(stack, "sonde") as bus:
        body = {**order, "wait_s": wait_s, "user": own_user()[:64], "reason": order["reason"][:256]}
        reply: Reply = run_bus.ask(bus, "SystemPowerManager_set", body, timeout_s=wait_s + 5)
    cluster, comply = reply.body["cluster"], float(reply.body["comply_s"])
    budget, complied = float(cluster["budget_w"]), comply == comply
    text = f"the budget is {format_power(budget)}"
    if verb == "shed":
        restored = float(cluster["restored_w"])
        again = f" of {format_power(restored)}" if restored == restored else ""
        text += f"{again} for {format_duration(float(cluster['shed_left_s']))}"
    text += (
        f"; all nodes complied after {format_duration(comply)}"
        if complied
        else f"; not all nodes complied within {format_duration(wait_s)}: caps that were lent end with their leases"
    )
    outcome = Outcome(
        "power",
        verb,
        text,
        complete=complied,
        values={
            "budget_w": budget,
            "comply_s": comply if complied else None,
            "committed_w": float(cluster["committed_w"]),
            "manager": str(cluster["manager"]),
            "epoch": int(cluster["epoch"]),
            "restored_w": float(cluster["restored_w"])
            if float(cluster["restored_w"]) == cluster["restored_w"]
            else None,
            "shed_left_s": float(cluster["shed_left_s"]),
        },
    )
    if reply.message:
        outcome.warnings.append(
            Warning("power.not_told", reply.message, "'sonde power status' shows which daemons are heard")
        )
    if not complied:
        outcome.exit = Exit.INCOMPLETE
    return outcome


COMMANDS = (status, top, set_budget, shed)
