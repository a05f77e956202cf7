"""The configuration of a power stack as Python sees it: what `sonde._power.load_config` told, typed. Pure.

`native/power/config.hpp` is the one parser; docs/reference/power-config.md its manual.
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
    """What a node can be given, W. safe_w: where it is when nobody manages it."""

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
    """Where the monitor's page is. token_file: "" where who looks needs none."""

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
        except ValueError:  # a name, which may lead anywhere
            return False


@dataclass(frozen=True)
class Jobs:
    """[job-scheduler], [resource-manager], grace of [job-manager]. queues, shares: as load_config told them."""

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
    def of(cls, told: Mapping[str, Any]) -> Jobs:
        said = told.get("scheduler", {})
        if "period_s" not in said:
            return cls()
        return cls(
            kind=str(said["kind"]),
            state=str(said["state"]),
            resources_state=str(told["resource_manager"]["state"]),
            period_s=known(said["period_s"]),
            fairness=known(said["fairness"]),
            half_life_s=known(said["fairness_half_life_s"]),
            age_s=known(said["age_s"]),
            keep_s=known(said["keep_s"]),
            max_waiting=int(said["max_waiting"]),
            max_waiting_user=int(said["max_waiting_user"]),
            grace_s=known(told["job_manager"]["grace_s"]),
            queues=tuple(said["queues"]),
            shares={str(one["user"]): known(one["share"]) for one in said["shares"]},
        )


@dataclass(frozen=True)
class Users:
    """[users]: how it is known who orders; cluster: where."""

    proof: str = "none"
    may_speak_for_others: tuple[str, ...] = ()
    cluster: str = ""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Users:
        said = told.get("users", {})
        if "proof" not in said:
            return cls()
        others = tuple(str(one) for one in said["may_speak_for_others"])
        return cls(str(said["proof"]), others, str(told["cluster"]))


@dataclass(frozen=True)
class Stack:
    """One power.toml, as far as this part of the room asks."""

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
    def of(cls, told: Mapping[str, Any]) -> Stack:
        """From what load_config told.

        Raises
        ------
        UsageError  power.bad_value: an address of the monitor that is none, or a file that it needs is not named.
        """
        bus, budget, monitor = told["bus"], told["budget"], told["monitor"]
        return cls(
            path=str(told.get("path", "")),
            cluster=str(told["cluster"]),
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
                for node in told["nodes"]
            ),
            listen=listen_of(monitor),
            history=str(monitor["history"]),
            keep_s=known(monitor["keep_s"]),
            telemetry_s=known(told["node_manager"]["telemetry_s"]),
            racks={
                name: min(limits, default=math.inf)
                for name, rack in told.get("racks", {}).items()
                for limits in [[v for v in map(known, (rack["power_limit_w"], rack["cooling_w"])) if v == v]]
            },
            jobs=Jobs.of(told),
            users=Users.of(told),
        )


def listen_of(monitor: Mapping[str, Any]) -> Listen:
    """Where to listen. Nothing listens beyond loopback without a token.

    Raises
    ------
    UsageError  power.bad_value, power.no_token.
    """
    text = str(monitor["listen"])
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise UsageError(
            "power.bad_value",
            f"[monitor] listen is '{text}'; allowed: HOST:PORT, a port of 0 to 65535",
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
            "[monitor] has one of tls_certificate and tls_key; allowed: both, or none",
            "name the file that is missing",
        )
    if not listen.loopback and not listen.token_file:
        raise UsageError(
            "power.no_token",
            f"[monitor] listens at {text}, which others can reach, and asks them for no token",
            'give token_file, a file with 16 characters or more, or listen at "127.0.0.1:9440"',
        )
    return listen
