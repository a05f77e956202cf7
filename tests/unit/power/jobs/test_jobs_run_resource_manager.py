"""What is allocated is on disk before it is answered, and comes back after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

from sonde.bus.errors import Refused
from sonde.power.jobs import jobs
from sonde.power.jobs.jobs import Spec, to_plain
from sonde.power.jobs.run_jobs_store import CannotKeep, Store
from sonde.power.jobs.run_resource_manager import Allocations
from sonde.power.stack.config import Listen, NodeLimits, Stack


def stack(nodes: int = 3) -> Stack:
    limits = tuple(NodeLimits(f"n{k}", 60, 400, 100, "r", 4, 1 << 30) for k in range(nodes))
    rest: Any = ("fair", 3, 1, limits, Listen("127.0.0.1", 0), "", 1, 1)
    return Stack("", "demo", "", "", 1000, *rest, racks={"r": 700.0})


class Anew:
    """Resource managers, one after the other, over one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store(folder, "resource-manager")
        self.now = Allocations(stack(), self.store)

    def restart(self, nodes: int = 3) -> None:
        self.store.close()
        self.store = Store(self.folder, "resource-manager")
        self.now = Allocations(stack(nodes), self.store)

    def allocate(self, job: str, **more: Any) -> list[str]:
        answer = self.now.order({"order": "ALLOCATE", "job": job, "spec": to_plain(Spec(job, **more))})
        return [part["node"] for part in answer["allocations"][0]["parts"]]

    def refused(self, job: str, **more: Any) -> str:
        with pytest.raises(Refused) as no:
            self.allocate(job, **more)
        return jobs.CODES[no.value.number]


@pytest.fixture
def here(tmp_path):
    made = Anew(tmp_path)
    yield made
    made.store.close()


def test_what_was_given_is_given_once_also_after_a_restart(here):
    assert here.allocate("a", nodes=2) == ["n0", "n1"]
    here.restart()
    assert here.allocate("a", nodes=2) == ["n0", "n1"]  # asked again: the same
    assert here.refused("b", nodes=2) == "no_room"
    assert here.allocate("b") == ["n2"]
    here.now.order({"order": "RELEASE", "job": "a", "spec": to_plain(Spec(""))})
    here.restart()
    assert here.allocate("c", nodes=2) == ["n0", "n1"]
    with pytest.raises(Refused) as no:
        here.now.order({"order": "RELEASE", "job": "a", "spec": to_plain(Spec(""))})
    assert jobs.CODES[no.value.number] == "no_job"


def test_racks_and_what_can_never_be(here):
    assert here.refused("a", nodes=2, guaranteed_w=350.0) == "above_limit"  # 800 W in a rack of 700
    assert here.allocate("a", guaranteed_w=400.0) == ["n0"]
    assert here.refused("b", guaranteed_w=250.0) == "no_room"
    assert here.refused("b", hosts=("n7",)) == "unknown_node"
    assert here.refused("b", nodes=0) == "no_room"
    assert here.refused("b/c") == "bad_job"
    assert here.refused("b", guaranteed_w=-1.0) == "bad_job"
    told = here.now.query({})
    assert told["racks"] == [{"rack": "r", "limit_w": 700.0, "guaranteed_w": 600.0}]
    assert [(node["node"], node["free_cores"], node["jobs"]) for node in told["nodes"]] == [
        ("n0", 0, ["a"]),
        ("n1", 4, []),
        ("n2", 4, []),
    ]


def test_nothing_is_given_that_cannot_be_kept(here, monkeypatch):
    def full(*_: Any) -> None:
        raise CannotKeep("full")

    here.allocate("a")
    monkeypatch.setattr(here.store, "save", full)
    assert here.refused("b") == "cannot_keep"
    with pytest.raises(Refused):
        here.now.order({"order": "RELEASE", "job": "a", "spec": to_plain(Spec(""))})
    assert [one["job"] for one in here.now.query({})["allocations"]] == ["a"]


def test_nodes_that_are_gone_are_reported_and_no_others_lost(here):
    here.allocate("a", hosts=("n2",))
    here.allocate("b", hosts=("n0",))
    here.restart(nodes=2)
    assert list(here.now.left_out) == ["a"]
    assert [one["job"] for one in here.now.query({})["allocations"]] == ["b"]


def test_of_a_job_on_a_node_that_is_gone_the_rest_is_its_own(here):
    here.allocate("a", hosts=("n1", "n2"), guaranteed_w=250.0)
    here.restart(nodes=2)
    assert list(here.now.left_out) == ["a"]
    told = here.now.query({})
    assert [(node["node"], node["jobs"]) for node in told["nodes"]] == [("n0", []), ("n1", ["a"])]
    assert told["racks"][0]["guaranteed_w"] == 350
    assert here.refused("b", hosts=("n1",)) == "no_room"
    assert here.refused("a", nodes=2) == "unknown_node"  # it would start on one node of two
    here.restart()  # the node is there again, and so is what it has of it
    assert not here.now.left_out
    assert here.refused("b", hosts=("n2",)) == "no_room"


@pytest.mark.parametrize("hosts", [("n2",), ("n1", "n2")])
def test_what_is_released_while_its_node_is_gone_is_not_back_with_the_node(here, hosts):
    here.allocate("a", hosts=hosts)
    here.restart(nodes=2)
    order = {"order": "RELEASE", "job": "a", "spec": to_plain(Spec(""))}
    here.now.order(order)
    with pytest.raises(Refused):
        here.now.order(order)
    here.restart()
    assert not here.now.left_out
    assert here.allocate("b", nodes=3) == ["n0", "n1", "n2"]


def test_a_job_whose_nodes_are_all_gone_can_be_given_others(here):
    here.allocate("a", hosts=("n2",))
    here.restart(nodes=2)
    assert here.allocate("a") == ["n0"]
    assert not here.now.left_out
    here.restart()
    assert [part["node"] for part in here.now.query({})["allocations"][0]["parts"]] == ["n0"]
