"""The power stack's bus from its configuration: types of power.idl beside whatever the profile has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

from sonde.bus.errors import Refused, TimedOut
from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.power.telemetry import ACTIVE, CODES, IDL, SERVICES, TYPES

if TYPE_CHECKING:
    from sonde.bus.client import Bus, Client, Reader, Writer
    from sonde.power.config import Stack


def open_bus(stack: Stack) -> Bus:
    """Joins the bus that a configuration names; without a profile that of loopback, domain 0.

    Raises
    ------
    UsageError: the profile. BusError: bus.open. EnvironmentFailure  bus.not_built.
    """
    from sonde.bus import client as bus

    if not stack.bus_profile:
        return bus.open(idl=IDL, topics=TYPES)
    path = Path(stack.bus_profile)
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise UsageError(
            "bus.no_file", f"the profile {path} cannot be read: {error.strerror}", "see bus.profile in the file"
        ) from None
    return bus.open_text(with_types(text, IDL), stack.bus_name, path.parent)


def with_types(profile: str, idl: Path) -> str:
    """A profile's text whose profiles all know the types of an IDL file. Its lines keep their numbers."""
    begin = profile.find("<sonde-bus")
    end = profile.find(">", begin)
    if begin < 0 or end < 0 or profile[end - 1] == "/":
        return profile  # the parser says what is wrong with it
    return f"{profile[: end + 1]}<types idl={quoteattr(str(idl.absolute()))}/>{profile[end + 1 :]}"


def reader(bus: Bus, topic: str) -> Reader:
    return bus.reader(topic, TYPES[topic])


def writer(bus: Bus, topic: str) -> Writer:
    return bus.writer(topic, TYPES[topic])


def client(bus: Bus, service: str) -> Client:
    return bus.client(service, *SERVICES[service])


def ask(bus: Bus, service: str, body: dict[str, Any], target: str = ACTIVE, timeout_s: float = 5.0) -> Any:
    """What the server of a service answers.

    Raises
    ------
    UsageError  power.<code> where the body is what it refuses; EnvironmentFailure  power.<code>, power.no_answer.
    """
    with client(bus, service) as asking:
        try:
            return asking.call(body, target, timeout_s).body
        except TimedOut:
            who = "system manager" if service.startswith("System") else f"node manager '{target}'"
            raise EnvironmentFailure(
                "power.no_answer",
                f"no {who} answered within {timeout_s:g} s",
                "is it running, and on this bus? 'sonde power status' shows who is heard",
            ) from None
        except Refused as refused:
            # Of a service's own codes the bus knows the number alone.
            word = CODES.get(refused.number, refused.reply)
            kind = UsageError if word in ("bad_request", "out_of_range", "budget_too_small") else EnvironmentFailure
            raise kind(f"power.{word}", refused.what, refused.hint) from None

