"""Proves who orders, by MUNGE, and checks it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sonde.core.errors import EnvironmentFailure
from sonde.power.jobs import proof
from sonde.power.stack.run_bus import _power

if TYPE_CHECKING:
    from sonde.power.stack.config import Users


def _payload(users: Users, service: str, body: Mapping[str, Any]) -> str:
    """What a credential is made over. The cluster: others may have the same MUNGE key.

    It begins as nothing else does that Sonde has MUNGE sign: a server of the store, too, has its clients sign a text,
    which it chooses, and which has no end of line.
    """
    return f"sonde power order 1\n{users.cluster}\n{proof.digest(service, body)}"


class NotProven(Exception):
    """Why an order is not taken. cannot: nothing can be checked here, whoever sent it."""

    def __init__(self, what: str, cannot: bool = False) -> None:
        super().__init__(what)
        self.what, self.cannot = what, cannot


def proven(users: Users, service: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """An order with a credential of the user that this process has, where the configuration asks for one.

    Raises
    ------
    EnvironmentFailure  power.cannot_prove: MUNGE's daemon makes none.
    """
    if users.proof == "none":
        return dict(body)
    return {**body, "credential": _credential(_payload(users, service, body))}


def threads(users: Users) -> int:
    """How many answer orders: one that waits for MUNGE holds up no other."""
    return 1 if users.proof == "none" else 4


def trial(users: Users) -> None:
    """Where nobody could prove anything is told when a role starts, and not to each who asks.

    Raises
    ------
    EnvironmentFailure  power.cannot_prove.
    """
    if users.proof != "none":
        _credential("sonde power serve")


def _credential(payload: str) -> str:
    try:
        return str(_power.munge_credential(payload))
    except EnvironmentFailure as error:
        hint = f"{error.hint} [users] proof of power.toml asks for a credential"
        raise EnvironmentFailure("power.cannot_prove", error.what, hint) from None


def check(users: Users, service: str, body: Mapping[str, Any]) -> None:
    """Whether who sent an order is who it names, or may speak for others.

    Raises
    ------
    NotProven
    """
    if users.proof == "none":
        return
    claimed, credential = proof.claimed(service, body), str(body["credential"])
    if not credential:
        asks = "the order has no credential, and this role asks for one"
        raise NotProven(f'{asks}: say proof = "munge" under [users] of the power.toml it was sent with, too')
    try:
        uid = int(_power.munge_user(credential, _payload(users, service, body)))
    except EnvironmentFailure as error:
        raise NotProven(f"{error.what}: {error.hint}", error.code == "munge.silent") from None
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = ""
    if uid in (0, os.geteuid()) or (name and name in (claimed, *users.may_speak_for_others)):
        return
    who = f"'{name}'" if name else f"user {uid}, whom this host does not know,"
    if not claimed:
        raise NotProven(
            f"the credential is of {who}, and may_speak_for_others under [users] does not name it"
        )
    raise NotProven(f"the credential is of {who} and the order in the name of '{claimed}'")
