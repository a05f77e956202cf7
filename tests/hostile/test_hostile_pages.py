"""SECURITY.md agrees with the code and the units on everything that listens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()
UNITS = {unit.stem: unit.read_text() for unit in (ROOT / "deploy/systemd").glob("*.service")}


def rows() -> dict[str, list[str]]:
    """The table of listening programs: first cell, the other cells."""
    section = PAGE.partition("## What listens, and as whom")[2].partition("\n## ")[0]
    cells = [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in section.splitlines()
        if "|" in line
    ]
    return {first: rest for first, *rest in cells[2:]}


def test_each_unit_stands_there_with_its_user():
    said = {}
    for first, (_, user, _) in rows().items():
        for role in re.findall(r"`sonde power serve ([\w-]+)`", first):
            said[f"sonde-power-{role}"] = user.strip("`")
        if "`sonde store serve`" in first:
            said["sonde-stored"] = user.strip("`")
    (users,) = [{name: re.findall(r"^User=(\S+)$", text, re.M)[0] for name, text in UNITS.items()}]
    assert said == users


def test_addresses_are_those_of_the_code():
    from sonde.store.cli_client import DEFAULT_SERVER

    where = {first: rest[0] for first, rest in rows().items()}
    assert where["`sonde store serve`"] == DEFAULT_SERVER
    power = pytest.importorskip("sonde._power", reason="the power stack is not built")
    told = power.parse_config(
        '[[nodes]]\nhosts = "n1"\nmin = 50\nmax = 300\nsafe = 100\n', "/etc/sonde/power.toml"
    )
    assert where["`sonde power serve monitor`"] == told["monitor"]["listen"]


def test_every_role_of_the_stack_stands_there():
    from sonde.power.stack.roles import ROLES

    said = {role for first in rows() for role in re.findall(r"`sonde power serve ([\w-]+)`", first)}
    assert said >= {str(role) for role in ROLES}
    assert {f"sonde-power-{role}" for role in said} == {name for name in UNITS if name != "sonde-stored"}


def test_what_is_said_to_be_there_is_there():
    for path in re.findall(r"`((?:deploy|tests|src|docs)/[\w./-]+)`", PAGE) + re.findall(
        r"\]\(([\w./-]+)\)", PAGE
    ):
        assert (ROOT / path).exists(), path
