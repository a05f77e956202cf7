"""sonde bus keys: who may join a bus, and what each may say there."""

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
_MOST = f"Valid for so many days, at most {MOST_DAYS}."


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
    """Who may join a bus, and what each may say there: keys, certificates and permissions of DDS Security."""


@keys.command()
@common()
@_FOLDER
@click.option("--days", type=Whole(1), default="3650", show_default=True, metavar="N", help=_MOST)
@click.option(
    "--domains", default="0:230", show_default=True, metavar="FIRST:LAST", help="Which domains it is for."
)
@click.option(
    "--protect",
    type=click.Choice(PROTECTIONS),
    default="encrypt",
    show_default=True,
    help="Hide what is said (encrypt), or only make sure of who said it (sign).",
)
def init(folder: Path, days: int, domains: str, protect: str) -> Outcome:
    """Make a folder of keys: what signs identities, and the rules of the bus.

    Nobody without an identity of this folder joins, and each may publish and subscribe to what its permissions name.

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
            "Its folder private/ stays here; of the rest only an identity's own key.pem is secret. Next:",
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
    help=f"What it may do: {', '.join(ROLES)}. May be repeated.",
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
    help="Which domains it is for: 0:230, all; with --renew those that it had.",
)
@click.option(
    "--renew",
    is_flag=True,
    help="In place of the one that is there; it may what that one may, or what is said here.",
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
    """Make an identity: a key, its certificate, and what it may do.

    \b
    sonde bus keys add keys n017 --role node-manager
    sonde bus keys add keys weather --publish 'Weather_*' --subscribe Alarm
    sonde bus keys add keys n017 --renew
    """
    from sonde.bus import run_keys

    as_before = renew and not (roles or publish or subscribe)
    grant = None if as_before else grant_of(roles, publish, subscribe)
    made = run_keys.add(folder, name, grant, days, _domains(domains) if domains is not None else None, renew)
    return Outcome(
        "bus",
        "keys add",
        f"{name} may join until {made.until:%Y-%m-%d}",
        tables=[_granted([made])],
        lines=[
            "In the profile of who is that identity:",
            f'  <security folder="{folder}" identity="{name}"/>',
        ],
        values={
            "folder": str(folder),
            "identity": name,
            "until_utc": made.until.isoformat(),
            "publish": list(made.grant.publish),
            "subscribe": list(made.grant.subscribe),
        },
    )


@keys.command()
@common()
@_FOLDER
def show(folder: Path) -> Outcome:
    """Which identities a folder has, what each may do, and until when."""
    from sonde.bus import run_keys

    until, found = run_keys.identities(folder)
    plural = "1 identity" if len(found) == 1 else f"{len(found)} identities"
    return Outcome(
        "bus",
        "keys show",
        f"{folder} has {plural}; more can be signed until {until:%Y-%m-%d}",
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
