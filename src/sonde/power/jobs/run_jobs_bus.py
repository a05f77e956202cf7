"""The bus of a power stack with the types of jobs added: servers and clients of job services open this one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

from sonde.bus.errors import Refused, TimedOut
from sonde.core.errors import EnvironmentFailure, from_code
from sonde.power.jobs import jobs, run_proof
from sonde.power.stack.run_bus import _power

if TYPE_CHECKING:
    from sonde.bus.client import Bus, Client, Reply, Server
    from sonde.power.stack.config import Stack, Users

WHO = {
    "JobScheduler": "job-scheduler",
    "ResourceManager": "resource-manager",
    "JobManager": "job-manager",
}


def open_bus(stack: Stack, participant: str = "") -> Bus:
    """run_bus.open_bus, with jobs.idl.

    Raises
    ------
    UsageError: a fault in the bus profile. BusError: bus.open. EnvironmentFailure  bus.not_built.
    """
    from sonde.bus import client as bus

    profile = _power.bus_profile(stack.path, participant)
    head, end, tail = profile.rpartition("</profile>")
    text = f"{head}<types idl={quoteattr(str(jobs.IDL.absolute()))}/>{end}{tail}"
    return bus.open_text(text, folder=Path(stack.path).absolute().parent)


def serve(bus: Bus, service: str, handler: Callable[[Any], Any], name: str, threads: int = 1) -> Server:
    """Serve a job service. handler(body) -> body. It refuses by raising what refused() returns."""
    request, reply = jobs.SERVICES[service]
    return bus.serve(service, handler, name, request, reply, threads)


def client(bus: Bus, service: str) -> Client:
    return bus.client(service, *jobs.SERVICES[service])


def refused(word: str, what: str) -> Refused:
    """A refusal with one of jobs.CODES, or of the bus."""
    return Refused(f"power.{word}", what, "", word, "", jobs.NUMBERS.get(word, 0))


def check_proof(users: Users, service: str, body: dict[str, Any]) -> None:
    """Check that the sender of an order may give it; called where the order is carried out.

    Raises
    ------
    Refused.
    """
    try:
        run_proof.check(users, service, body)
    except run_proof.NotProven as no:
        raise refused("cannot_prove" if no.cannot else "not_proven", no.what) from None


def call(
    asking: Client, service: str, body: dict[str, Any], timeout_s: float = 5.0, target: str = ""
) -> Reply:
    """The service's answer.

    Raises
    ------
    UsageError  power.<code> if the request is at fault; EnvironmentFailure  power.<code>, power.no_answer.
    """
    try:
        return asking.call(body, target, timeout_s)
    except TimedOut:
        role = WHO[service.partition("_")[0]]
        raise EnvironmentFailure(
            "power.no_answer",
            f"no {role} answered within {timeout_s:g} s",
            f"is it running, and on this bus? 'sonde power serve {role}' starts one",
        ) from None
    except Refused as no:
        word = jobs.CODES.get(no.number, no.reply)
        # The bus puts service and server before the server's message; the user asked for neither.
        what = no.what.partition(" refused: ")[2] or no.what
        raise from_code(f"power.{word}", what, no.hint) from None


def ask(bus: Bus, service: str, body: dict[str, Any], timeout_s: float = 5.0) -> Reply:
    """One call, with a client of its own; see call()."""
    with client(bus, service) as asking:
        return call(asking, service, body, timeout_s)
