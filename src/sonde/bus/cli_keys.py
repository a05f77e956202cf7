"""sonde bus keys: manage which identities may join a bus, and what each may publish and subscribe to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonde.bus.keys import MOST_DAYS, PROTECTIONS, ROLES, check_domains, grant_of
from sonde.core.errors import UsageError
from sonde.core.options import Whole, common
from sonde.core.outcome import Outcome, Table

if TYPE_CHECKING:
    from sonde.bus.run_keys import Identity

_FOLDER = click.argument("folder", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER")
_MOST = f"Number of days of validity, at most {MOST_DAYS}."


def _domains(text: str) -> tuple[int, int]:
    first, _, last = text.partition(":")
    if not (first.isascii() and first.isdigit()) or (last and not (last.isascii() and last.isdigit())):
        raise UsageError(
            "bus.bad_domain",
            f"--domains: '{text}' is not allowed; allowed: a number, or FIRST:LAST",
            "--domains 0:230",
        )
    return check_domains(int(first), int(last or first))


@click.group()
def keys() -> None:
    """Manage keys and permissions of DDS Security: who may join a bus, and what each may publish and read."""


@keys.command()
@common()
@_FOLDER
@click.option("--days", type=Whole(1), default="3650", show_default=True, metavar="N", help=_MOST)
@click.option(
    "--domains",
    default="0:230",
    show_default=True,
    metavar="FIRST:LAST",
    help="Domains that the keys protect.",
)
@click.option(
    "--protect",
    type=click.Choice(PROTECTIONS),
    default="encrypt",
    show_default=True,
    help="Encrypt messages, or only sign them.",
)
def init(folder: Path, days: int, domains: str, protect: str) -> Outcome:
    """Create a folder of keys: the authorities that sign identities, and the rules of the bus.

    Only identities of this folder can join, and each can publish and subscribe only to the topics in its permissions.

    \b
    sonde bus keys init keys
    sonde bus keys add keys node-manager --role node-manager
    """
    from sonde.bus import run_keys

    until = run_keys.init(folder, days, _domains(domains), protect)
    return Outcome(
        "bus",
        "keys init",
        f"{folder} can sign identities until {until:%Y-%m-%d}",
        lines=[
            "Keep the folder private/ on this machine. Of the other files, only each key.pem is secret. Next:",
            f"  sonde bus keys add {folder} node-manager --role node-manager",
        ],
        values={"folder": str(folder), "until_utc": until.isoformat(), "protection": protect},
    )


@keys.command()
@common()
@_FOLDER
@click.argument("name", metavar="IDENTITY")
@click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="ROLE",
    help=f"Role of the identity: {', '.join(ROLES)}. May be repeated.",
)
@click.option(
    "--publish",
    multiple=True,
    metavar="TOPIC",
    help="A topic that it may publish; * and ? allowed. May be repeated.",
)
@click.option(
    "--subscribe", multiple=True, metavar="TOPIC", help="A topic that it may subscribe to. May be repeated."
)
@click.option("--days", type=Whole(1), default="365", show_default=True, metavar="N", help=_MOST)
@click.option(
    "--domains",
    metavar="FIRST:LAST",
    help="Domains that the identity may join. Default: 0:230, all; with --renew, those of the existing identity.",
)
@click.option(
    "--renew",
    is_flag=True,
    help="Replace the existing identity. Its permissions stay the same unless new ones are given.",
)
def add(
    folder: Path,
    name: str,
    roles: tuple[str, ...],
    publish: tuple[str, ...],
    subscribe: tuple[str, ...],
    days: int,
    domains: str | None,
    renew: bool,
) -> Outcome:
    """Create an identity: a key, its certificate and its permissions.

    \b
    sonde bus keys add keys n017 --role node-manager
    sonde bus keys add keys weather --publish 'Weather_*' --subscribe Alarm
    sonde bus keys add keys n017 --renew
    """
    from sonde.bus import run_keys

    as_before = renew and not (roles or publish or subscribe)
    grant = None if as_before else grant_of(roles, publish, subscribe)
    identity = run_keys.add(
        folder, name, grant, days, _domains(domains) if domains is not None else None, renew
    )
    return Outcome(
        "bus",
        "keys add",
        f"{name} may join until {identity.until:%Y-%m-%d}",
        tables=[_granted([identity])],
        lines=[
            "In the profile of the program that uses this identity:",
            f'  <security folder="{folder}" identity="{name}"/>',
        ],
        values={
            "folder": str(folder),
            "identity": name,
            "until_utc": identity.until.isoformat(),
            "publish": list(identity.grant.publish),
            "subscribe": list(identity.grant.subscribe),
        },
    )


@keys.command()
@common()
@_FOLDER
def show(folder: Path) -> Outcome:
    """List the identities of a folder, with their permissions and expiry dates."""
    from sonde.bus import run_keys

    until, found = run_keys.identities(folder)
    plural = "1 identity" if len(found) == 1 else f"{len(found)} identities"
    return Outcome(
        "bus",
        "keys show",
        f"{folder} has {plural}; new ones can be signed until {until:%Y-%m-%d}",
        tables=[_granted(found)] if found else [],
        values={
            "folder": str(folder),
            "until_utc": until.isoformat(),
            "identities": [
                {
                    "name": one.name,
                    "until_utc": one.until.isoformat(),
                    "domains": list(one.domains),
                    "publish": list(one.grant.publish),
                    "subscribe": list(one.grant.subscribe),
                }
                for one in found
            ],
        },
    )


def _granted(identities: list[Identity]) -> Table:
    return Table(
        "",
        ["identity", "until", "publishes", "subscribes to"],
        [
            [
                one.name,
                f"{one.until:%Y-%m-%d}",
                ", ".join(one.grant.publish) or "nothing",
                ", ".join(one.grant.subscribe) or "nothing",
            ]
            for one in identities
        ],
        names=[0],
    )
