"""System managers and node managers as they are used: two of the one, four of the other, each over its powercap tree.

What counts are the limits in those trees. They are added up all the time, whatever is killed meanwhile.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

import sonde._power as _power

import sonde.bus.client as bus
from power_daemons import DAEMON, Daemon, Rapl, make_bus, powerd, until
from sonde.power.stack import run_bus
from sonde_shell import Typed

ROLES = json.loads(subprocess.run([DAEMON, "--list"], capture_output=True).stdout)["roles"]
pytestmark = [
    pytest.mark.skipif("cyclonedds" not in bus.implementations(), reason="no Cyclone DDS is here"),
    pytest.mark.skipif(
        not {"node-manager", "system-manager"} <= set(ROLES), reason="this build lacks a manager"
    ),
]
NODES = ("n1", "n2", "n3", "n4")
SAFE_W, BUDGET_W, LEASE_S = 80.0, 500.0, 2.0


class Cluster:
    def __init__(self, folder: Path, first: int = 0) -> None:
        self.folder = folder
        make_bus(folder, first=first)
        self.trees = {node: Rapl(folder / node) for node in NODES}
        self.daemons: dict[str, Daemon] = {}
        self.most_w = 0.0
        self.watching = threading.Event()

    def config(self, name: str, takeover: str = "1500ms") -> Path:
        path = self.folder / f"{name}.toml"
        path.write_text(
            f'cluster = "t"\n[bus]\nprofile = "bus.xml"\n'
            f'[budget]\npower_limit = {BUDGET_W}\nlease = "{LEASE_S}s"\nrenew = "700ms"\nperiod = "500ms"\n'
            f'[[nodes]]\nhosts = "n[1-4]"\nmin = 60\nmax = 190\nsafe = {SAFE_W}\n'
            f'[node-manager]\nname = "{name}"\ntelemetry = "500ms"\nstate = "{name}-state"\n'
            f'[[node-manager.hardware]]\nkind = "powercap"\nroot = "{self.folder / name}"\n'
            f'[system-manager]\nname = "{name}"\nstate = "{name}-state"\naudit = "{name}.jsonl"\n'
            f'takeover = "{takeover}"\n'
        )
        return path

    def start(self, role: str, name: str, takeover: str = "1500ms") -> Daemon:
        made = Daemon(powerd(role, self.config(name, takeover)), self.folder / f"{name}.log")
        self.daemons[name] = made
        made.said("ready")
        return made

    def kill(self, name: str) -> None:
        assert self.daemons.pop(name).end(signal.SIGKILL) == -signal.SIGKILL

    def caps_w(self) -> list[float]:
        """The limits in the trees."""
        return [tree.cap_w for tree in self.trees.values()]

    def watch(self) -> None:
        while not self.watching.is_set():
            before = self.caps_w()
            if before == self.caps_w():  # else they were not so at one time
                self.most_w = max(self.most_w, sum(before))
            time.sleep(0.003)

    def close(self) -> None:
        for daemon in self.daemons.values():
            daemon.end(signal.SIGKILL)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


RUN = {"capture_output": True, "check": True, "text": True, "timeout": 120}
LATE = """
import json, sys, time
import sonde.bus.client as bus
with bus.open(sys.argv[1]) as here:
    while len(here.peers()) < 3:
        time.sleep(0.05)
    time.sleep(1)
    print(json.dumps([peer["name"] for peer in here.peers()]))
"""


# It waits for leases: two managers and a node are killed, and each time a lease has to run out.
@pytest.mark.timeout(300)
def test_whoever_is_killed_the_limits_in_the_hardware_stay_within_the_budget(cluster: Cluster):
    for node in NODES:
        cluster.start("node-manager", node)
    assert cluster.caps_w() == [SAFE_W] * 4
    watcher = threading.Thread(target=cluster.watch)
    watcher.start()
    try:
        first = cluster.start("system-manager", "m1")
        first.said("leading")
        cluster.start("system-manager", "m2", takeover="3s").said("following")
        until(lambda: sum(cluster.caps_w()) > BUDGET_W - 0.1, "the budget is lent")

        profile = cluster.folder / "client.xml"
        profile.write_text(_power.bus_profile(str(cluster.folder / "m1.toml"), "test"))
        with bus.open(profile) as client:
            types = "sonde::power::NodeQuery", "sonde::power::NodeAnswer"
            nodes = client.client("NodeManager_get", *types)
            types = "sonde::power::SystemCommand", "sonde::power::SystemAnswer"
            system = client.client("SystemPowerManager_set", *types)

            # What is left out of an order means what the message says it does.
            answer = system.call({"order": "SET_POWER", "budget_w": 440.0, "wait_s": 50.0}, "active", 60).body
            assert answer["cluster"]["budget_w"] == 440.0
            assert sum(cluster.caps_w()) <= 440.0
            assert answer["comply_s"] >= 0
            order = {"order": "SET_JOB", "job": "j", "nodes": ["n1"], "for_s": 60.0, "weight": 1.0}
            assert system.call(order, "active", 60).body["cluster"]["manager"] == "m1"

            cluster.kill("m1")
            time.sleep(LEASE_S + 1)
            for node, cap_w in zip(NODES, cluster.caps_w(), strict=True):
                # A lease of the other one is as good; the limits were read before.
                seen = nodes.call({"ask": "GET_POWERCAP_NODE"}, node, 60).body["lease"]["seen_manager"]
                assert cap_w == SAFE_W or seen.startswith("m2#")
            cluster.daemons["m2"].said("leading")
            until(
                lambda: 439.9 < sum(cluster.caps_w()) < 440.1, "the budget that was set is lent by the other"
            )

            cluster.kill("n4")
            until(lambda: cluster.caps_w()[3] == SAFE_W, "its guardian has set its safe cap")
            until(lambda: cluster.caps_w()[0] == pytest.approx(120), "others have what it left")

        cluster.kill("m2")
        time.sleep(LEASE_S + 1)
        assert cluster.caps_w() == [SAFE_W] * 4
    finally:
        cluster.watching.set()
        watcher.join()
    assert BUDGET_W - 0.1 < cluster.most_w < BUDGET_W + 0.01
    audit = [json.loads(line) for line in (cluster.folder / "m1.jsonl").read_text().splitlines()]
    assert {"takeover", "SET_POWER", "SET_JOB", "cap", "complied"} <= {line["what"] for line in audit}
    assert next(line for line in audit if line["what"] == "SET_POWER")["who"]["pid"] > 0


def test_an_order_where_no_manager_runs_is_not_waited_for(
    typed: Typed, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_bus, "FOUND_S", 0.5)
    told = typed("power", "set-budget", "450W", "--config", cluster.config("m1"), "--json").expect(3).json
    assert told["error"]["code"] == "power.no_answer"
    assert "no system manager was found" in told["error"]["what"]


@pytest.mark.timeout(300)
def test_nodes_that_meet_the_managers_and_not_each_other_are_lent_the_budget_by_both(tmp_path):
    cluster = Cluster(tmp_path, first=3)
    try:
        with bus.open(tmp_path / "bus.xml") as client:
            cluster.start("system-manager", "m1").said("leading")
            cluster.start("system-manager", "m2").said("following")
            for node in NODES:
                cluster.start("node-manager", node)
            until(lambda: sum(cluster.caps_w()) > BUDGET_W - 0.1, "the budget is lent")
            until(lambda: len(client.peers()) == 6, "all are met")
            # Who comes after the first three, as a node does, meets those and no node.
            met = json.loads(subprocess.run([sys.executable, "-c", LATE, tmp_path / "bus.xml"], **RUN).stdout)
            assert len(met) == 3
            assert not [name for name in met if "node-manager" in name]
            cluster.kill("m1")
            cluster.daemons["m2"].said("leading")
            until(lambda: sum(cluster.caps_w()) > BUDGET_W - 0.1, "the other one has lent it")
    finally:
        cluster.close()
