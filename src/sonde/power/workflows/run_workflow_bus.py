"""The bus of a power stack with the types of jobs and of workflows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

from sonde.bus.errors import Refused, TimedOut
from sonde.core.errors import EnvironmentFailure, SondeError, UsageError
from sonde.power.jobs import jobs
from sonde.power.stack.run_bus import _power

if TYPE_CHECKING:
    from sonde.bus.client import Bus, Server
    from sonde.power.stack.config import Stack

IDL = Path(__file__).with_name("workflow.idl")
GET, SET = "WorkflowEngine_get", "WorkflowEngine_set"
SERVICES = {
    GET: ("sonde::power::WorkflowQuery", "sonde::power::WorkflowAnswer"),
    SET: ("sonde::power::WorkflowCommand", "sonde::power::WorkflowAnswer"),
}
CODES = {
    1200: "no_workflow",
    1201: "bad_workflow",
    1202: "other_workflow",
    1203: "workflow_over",
    1204: "cannot_keep",
    1205: "not_allowed",
    1206: "not_proven",
    1207: "cannot_prove",
    1208: "engine_full",
}
"""Codes of replies in addition to those of the bus and of jobs.CODES."""
_NUMBERS = {word: number for number, word in CODES.items()}


def open_bus(stack: Stack, participant: str = "") -> Bus:
    """run_bus.open_bus, with jobs.idl and workflow.idl.

    Raises
    ------
    UsageError: a fault in the bus profile. BusError: bus.open. EnvironmentFailure  bus.not_built.
    """
    from sonde.bus import client as bus

    head, end, tail = _power.bus_profile(stack.path, participant).rpartition("</profile>")
    types = "".join(f"<types idl={quoteattr(str(idl.absolute()))}/>" for idl in (jobs.IDL, IDL))
    return bus.open_text(f"{head}{types}{end}{tail}", folder=Path(stack.path).absolute().parent)


def serve(bus: Bus, service: str, handler: Callable[[Any], Any], name: str, threads: int = 1) -> Server:
    """Serve a workflow service. handler(body) -> body. It refuses by raising what refused() returns."""
    request, reply = SERVICES[service]
    return bus.serve(service, handler, name, request, reply, threads)


def refused(word: str, what: str) -> Refused:
    return Refused(f"power.{word}", what, "", word, "", _NUMBERS.get(word, 0))


def ask(bus: Bus, service: str, body: dict[str, Any], timeout_s: float = 5.0) -> list[dict[str, Any]]:
    """The workflows in the engine's answer.

    Raises
    ------
    UsageError  power.<code> if the request is at fault; EnvironmentFailure  power.<code>, power.no_answer.
    """
    with bus.client(service, *SERVICES[service]) as asking:
        try:
            return list(asking.call(body, "", timeout_s).body["workflows"])
        except TimedOut:
            raise EnvironmentFailure(
                "power.no_answer",
                f"no workflow-engine answered within {timeout_s:g} s",
                "is it running, and on this bus? 'sonde power serve workflow-engine' starts one",
            ) from None
        except Refused as no:
            word = CODES.get(no.number, no.reply)
            kind: type[SondeError] = (
                EnvironmentFailure
                if word in ("cannot_keep", "cannot_prove", "engine_full", "failed")
                else UsageError
            )
            raise kind(f"power.{word}", no.what.partition(" refused: ")[2] or no.what, no.hint) from None
