"""A stack on a bus with keys, as the operator's page says: one power.toml, one bus.xml; the environment says who."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

from sonde._bus import caps

from power_daemons import DAEMON, Daemon, Rapl, make_bus, powerd, until
from sonde.bus.client import implementations
from sonde_shell import Typed

WITH_KEYS = [one for one in ("cyclonedds", "fastdds") if one in implementations() and caps(one)["security"]]
ROLES = json.loads(subprocess.run([DAEMON, "--list"], capture_output=True).stdout)["roles"]
pytestmark = [
    pytest.mark.skipif(not WITH_KEYS, reason="no DDS here has security"),
    pytest.mark.skipif(
        not {"node-manager", "system-manager"} <= set(ROLES), reason="this build lacks a manager"
    ),
]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Daemon]]:
    daemons: list[Daemon] = []
    yield daemons
    for one in daemons:
        one.end()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("over", WITH_KEYS)
def test_roles_share_one_profile_and_the_operator_orders(
    tmp_path: Path, started: list[Daemon], typed: Typed, over: str
):
    def run(*words: str, identity: str = "") -> tuple[int, dict[str, Any]]:
        told = typed(*words, "--json", SONDE_BUS_IDENTITY=identity)
        return told.code, told.json

    assert run("bus", "keys", "init", "keys")[0] == 0
    for role in ("node-manager", "system-manager", "monitor", "operator"):
        assert run("bus", "keys", "add", "keys", role, "--role", role)[0] == 0
    make_bus(tmp_path, over)
    plain = (tmp_path / "bus.xml").read_text()
    own = '<security folder="keys" identity="operator"/></profile>'
    (tmp_path / "bus.xml").write_text(plain.replace("</profile>", own))
    tree = Rapl(tmp_path / "sys")
    config = tmp_path / "power.toml"
    config.write_text(
        'cluster = "t"\n[bus]\nprofile = "bus.xml"\n'
        '[budget]\npower_limit = 170\nlease = "3s"\nrenew = "1s"\nperiod = "300ms"\n'
        '[[nodes]]\nhosts = "n1"\nmin = 60\nmax = 190\nsafe = 80\n'
        '[node-manager]\nname = "n1"\ntelemetry = "300ms"\nstate = "state"\n'
        f"[[node-manager.hardware]]\n{tree.toml}"
        '[system-manager]\nname = "m1"\nstate = "state"\naudit = "audit.jsonl"\ntakeover = "1s"\n'
    )
    for role in ("node-manager", "system-manager"):
        words = ["/usr/bin/env", f"SONDE_BUS_IDENTITY={role}", *powerd(role, config)]
        started.append(Daemon(words, tmp_path / f"{role}.log"))
    started[1].said("leading")
    until(lambda: tree.cap_w == 170, "all of the budget is lent")

    code, told = run("power", "status", "--config", str(config))
    assert (code, [node["node"] for node in told["nodes"]]) == (0, ["n1"])
    assert run("power", "set-budget", "120W", "--config", str(config))[0] == 0
    assert tree.cap_w <= 120

    # A monitor's keys do not do for an order, and an identity that is not there for nothing.
    words = ("power", "set-budget", "160W", "--config", str(config))
    code, told = run(*words, identity="monitor")
    assert code == 3, told
    assert tree.cap_w <= 120
    code, told = run(*words, identity="nobody")
    assert (code, told["error"]["code"][:4]) in ((2, "bus."), (3, "bus.")), told
    assert tree.cap_w <= 120
