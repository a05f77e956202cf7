"""A power stack's configuration and its bus, as the daemons see them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from sonde.bus.errors import Refused, TimedOut
from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.core.lines import utf8_path
from sonde.power.stack.config import Stack
from sonde.power.stack.telemetry import ACTIVE, CODES, SERVICES, TYPES

if TYPE_CHECKING:
    from sonde.bus.client import Bus, Client, Reader, Reply, Writer


try:
    import sonde._power as _power
except ImportError as error:
    raise EnvironmentFailure(
        "power.not_built",
        "this build of Sonde has no power stack"
        if isinstance(error, ModuleNotFoundError)
        else f"the power stack cannot be loaded: {error}",
        "'sonde doctor' shows what to install; then 'make setup' builds it",
    ) from None


FOUND_S = 10.0  # a server that is present is found long before


def load(path: str | Path) -> Stack:
    """A configuration from its file.

    Raises
    ------
    UsageError  power.no_file, power.bad_toml, power.unknown_key, power.bad_value, power.no_token …
    """
    return Stack.of(_power.load_config(utf8_path(path)))


def open_bus(stack: Stack, participant: str = "") -> Bus:
    """Join the bus that a configuration names, or loopback's bus, with the stack's types and topics.

    Raises
    ------
    UsageError: a fault in the bus profile. BusError: bus.open. EnvironmentFailure  bus.not_built.
    """
    from sonde.bus import client as bus

    folder = Path(stack.path).absolute().parent
    return bus.open_text(_power.bus_profile(stack.path, participant), folder=folder)


def asks_who_joins(stack: Stack) -> bool:
    """Whether participants without keys are refused by the bus."""
    return ElementTree.fromstring(_power.bus_profile(stack.path, "")).find(".//security") is not None


def reader(bus: Bus, topic: str) -> Reader:
    return bus.reader(topic, TYPES[topic])


def writer(bus: Bus, topic: str) -> Writer:
    return bus.writer(topic, TYPES[topic])


def client(bus: Bus, service: str) -> Client:
    return bus.client(service, *SERVICES[service])


def ask(bus: Bus, service: str, body: dict[str, Any], target: str = ACTIVE, timeout_s: float = 5.0) -> Reply:
    """A service's answer.

    Raises
    ------
    UsageError  power.<code> if the request is at fault; EnvironmentFailure  power.<code>, power.no_answer.
    """
    role = "system manager" if service.startswith("System") else f"node manager '{target}'"
    with client(bus, service) as asking:
        if not asking.wait_for_server(min(timeout_s, FOUND_S)):
            raise EnvironmentFailure(
                "power.no_answer",
                f"no {role} was found within {min(timeout_s, FOUND_S):g} s",
                "is one running, and on this bus? 'sonde power status' shows which daemons are heard",
            )
        try:
            return asking.call(body, target, timeout_s)
        except TimedOut:
            raise EnvironmentFailure(
                "power.no_answer",
                f"no {role} answered within {timeout_s:g} s",
                "is it running, and on this bus? 'sonde power status' shows which daemons are heard",
            ) from None
        except Refused as refused:
            # The bus knows only the number of a service's own codes.
            code = CODES.get(refused.number, refused.reply)
            kind = (
                UsageError
                if code in ("bad_request", "out_of_range", "budget_too_small")
                else EnvironmentFailure
            )
            raise kind(f"power.{code}", refused.what, refused.hint) from None
