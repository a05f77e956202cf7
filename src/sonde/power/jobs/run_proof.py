"""Proves with MUNGE who gives an order, and checks the proof."""

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
    """The text that a credential signs. It names the cluster, since others may have the same MUNGE key.

    Its beginning differs from everything else that Sonde has MUNGE sign: a server of the store also has its clients
    sign a text, which the server chooses, and which has no end of line.
    """
    return f"sonde power order 1\n{users.cluster}\n{proof.digest(service, body)}"


class NotProven(Exception):
    """Why an order is refused. cannot: nothing can be checked here, whoever sent the order."""

    def __init__(self, what: str, cannot: bool = False) -> None:
        super().__init__(what)
        self.what, self.cannot = what, cannot


def proven(users: Users, service: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """An order with a credential of this process's user, if the configuration asks for one.

    Raises
    ------
    EnvironmentFailure  power.cannot_prove: MUNGE's daemon gives no credential.
    """
    if users.proof == "none":
        return dict(body)
    return {**body, "credential": _credential(_payload(users, service, body))}


def threads(users: Users) -> int:
    """The number of threads that answer orders: one that waits for MUNGE delays no other."""
    return 1 if users.proof == "none" else 4


def trial(users: Users) -> None:
    """Check at the start of a role that credentials can be made at all, rather than at each request.

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
    """Check that the sender of an order is the user whom it names, or may speak for others.

    Raises
    ------
    NotProven
    """
    if users.proof == "none":
        return
    claimed, credential = proof.claimed(service, body), str(body["credential"])
    if not credential:
        asks = "the order has no credential, and this role requires one"
        raise NotProven(f'{asks}: set proof = "munge" under [users] also in the power.toml of the sender')
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
    who = f"'{name}'" if name else f"user {uid}, unknown on this host,"
    if not claimed:
        raise NotProven(
            f"the credential belongs to {who}, and may_speak_for_others under [users] does not name it"
        )
    raise NotProven(f"the credential belongs to {who}, but the order is in the name of '{claimed}'")
