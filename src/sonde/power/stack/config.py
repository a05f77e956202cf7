"""The configuration of a power stack as typed Python values, from `sonde._power.load_config`. Pure.

`native/power/config.hpp` is the only parser; docs/reference/power-config.md is its manual.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sonde.core.errors import UsageError
from sonde.power.stack.telemetry import known


@dataclass(frozen=True)
class NodeLimits:
    """The caps of a node, W. safe_w: its cap when no manager leads."""

    name: str
    min_w: float
    max_w: float
    safe_w: float
    rack: str = ""
    cores: int = 0
    memory_bytes: int = 0
    disks: int = 0
    nics: int = 0


@dataclass(frozen=True)
class Listen:
    """The address of the monitor's page. token_file: "" if viewers need no token."""

    host: str
    port: int
    token_file: str = ""
    tls_certificate: str = ""
    tls_key: str = ""

    @property
    def loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # a host name, which may resolve to any address
            return False


@dataclass(frozen=True)
class Jobs:
    """[job-scheduler], [resource-manager], grace of [job-manager]. queues, shares: as load_config returns them."""

    kind: str = "auto"
    state: str = ""
    resources_state: str = ""
    period_s: float = 1.0
    fairness: float = 1.0
    half_life_s: float = 7 * 86400.0
    age_s: float = 86400.0
    keep_s: float = 7 * 86400.0
    max_waiting: int = 10_000
    max_waiting_user: int = 2_500
    grace_s: float = 10.0
    queues: tuple[Mapping[str, Any], ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Jobs:
        scheduler = config.get("scheduler", {})
        if "period_s" not in scheduler:
            return cls()
        return cls(
            kind=str(scheduler["kind"]),
            state=str(scheduler["state"]),
            resources_state=str(config["resource_manager"]["state"]),
            period_s=known(scheduler["period_s"]),
            fairness=known(scheduler["fairness"]),
            half_life_s=known(scheduler["fairness_half_life_s"]),
            age_s=known(scheduler["age_s"]),
            keep_s=known(scheduler["keep_s"]),
            max_waiting=int(scheduler["max_waiting"]),
            max_waiting_user=int(scheduler["max_waiting_user"]),
            grace_s=known(config["job_manager"]["grace_s"]),
            queues=tuple(scheduler["queues"]),
            shares={str(one["user"]): known(one["share"]) for one in scheduler["shares"]},
        )


@dataclass(frozen=True)
class Users:
    """[users]: how the sender of an order is identified; cluster: its name."""

    proof: str = "none"
    may_speak_for_others: tuple[str, ...] = ()
    cluster: str = ""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Users:
        section = config.get("users", {})
        if "proof" not in section:
            return cls()
        others = tuple(str(one) for one in section["may_speak_for_others"])
        return cls(str(section["proof"]), others, str(config["cluster"]))


@dataclass(frozen=True)
class Stack:
    """One power.toml, as far as Python needs it."""

    path: str
    cluster: str
    bus_profile: str
    bus_name: str
    budget_w: float
    policy: str
    lease_s: float
    period_s: float
    nodes: tuple[NodeLimits, ...]
    listen: Listen
    history: str
    keep_s: float
    telemetry_s: float
    racks: Mapping[str, float] = field(default_factory=dict)
    jobs: Jobs = field(default_factory=Jobs)
    users: Users = field(default_factory=Users)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Stack:
        """Build it from load_config's result.

        Raises
        ------
        UsageError  power.bad_value: the monitor's address is invalid, or a file that it needs is not named.
        """
        bus, budget, monitor = config["bus"], config["budget"], config["monitor"]
        return cls(
            path=str(config.get("path", "")),
            cluster=str(config["cluster"]),
            bus_profile=str(bus["profile"]),
            bus_name=str(bus["name"]),
            budget_w=known(budget["power_limit_w"]),
            policy=str(budget["policy"]),
            lease_s=known(budget["lease_s"]),
            period_s=known(budget["period_s"]),
            nodes=tuple(
                NodeLimits(
                    str(node["name"]),
                    known(node["min_w"]),
                    known(node["max_w"]),
                    known(node["safe_w"]),
                    str(node.get("rack", "")),
                    *(int(node.get(key, 0)) for key in ("cores", "memory_bytes", "disks", "nics")),
                )
                for node in config["nodes"]
            ),
            listen=listen_of(monitor),
            history=str(monitor["history"]),
            keep_s=known(monitor["keep_s"]),
            telemetry_s=known(config["node_manager"]["telemetry_s"]),
            racks={
                name: min(limits, default=math.inf)
                for name, rack in config.get("racks", {}).items()
                for limits in [[v for v in map(known, (rack["power_limit_w"], rack["cooling_w"])) if v == v]]
            },
            jobs=Jobs.of(config),
            users=Users.of(config),
        )


def listen_of(monitor: Mapping[str, Any]) -> Listen:
    """The address to listen at. Beyond loopback a token is required.

    Raises
    ------
    UsageError  power.bad_value, power.no_token.
    """
    text = str(monitor["listen"])
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise UsageError(
            "power.bad_value",
            f"[monitor] listen is '{text}'; allowed: HOST:PORT, PORT 0 to 65535",
            'write it like "127.0.0.1:9440"',
        )
    listen = Listen(
        host.strip("[]"),
        int(port),
        str(monitor.get("token_file") or ""),
        str(monitor.get("tls_certificate") or ""),
        str(monitor.get("tls_key") or ""),
    )
    if bool(listen.tls_certificate) != bool(listen.tls_key):
        raise UsageError(
            "power.bad_value",
            "[monitor] has only one of tls_certificate and tls_key; allowed: both, or neither",
            "name the missing file",
        )
    if not listen.loopback and not listen.token_file:
        raise UsageError(
            "power.no_token",
            f"[monitor] listens at {text}, which other hosts can reach, without a token",
            'set token_file, a file with 16 characters or more, or listen at "127.0.0.1:9440"',
        )
    return listen
