"""The present, as the page and a terminal show it."""

from __future__ import annotations

import json
import math

from sonde.power.monitor import live
from sonde.power.stack.telemetry import ClusterSample, JobSample, Latest, NodeSample


def known(caps=(230.0, 230.0), budget_w=500.0) -> Latest:
    latest = Latest()
    for k, cap in enumerate(caps):
        latest.take(
            NodeSample(f"n{k + 1}", 1, 1.0, "simulated", 100.0, 7.0, cap, cap, 2.5, True, 3, "m1"), 100.0
        )
    latest.take(
        ClusterSample(
            "demo", 1, "m1", 3, 1, "active", "fair", 1.0, 3.0, budget_w, 200.0, 460.0, 200.0, 2, 2, 2
        ),
        100.0,
    )
    latest.take(JobSample("17", 1, "ada", "lbm", ("n2",), 100.0, state="running", progress=0.5), 100.0)
    return latest


def test_the_present_is_json_and_says_who_was_never_heard():
    now = live.present(known(), "demo", 101.0, ["n1", "n2", "n9"])
    json.dumps(now, allow_nan=False)
    assert [(node["node"], node["up"]) for node in now["nodes"]] == [
        ("n1", True),
        ("n2", True),
        ("n9", False),
    ]
    assert (now["cluster"]["power_w"], now["cluster"]["sum_caps_w"], now["cluster"]["up"]) == (200, 460, 2)
    assert [node["job"] for node in now["nodes"]] == ["", "17", ""]
    assert now["nodes"][0]["left_s"] == 1.5  # a second ago it had 2.5
    assert live.verdict(now) == "200 W of 500 W drawn, caps 460 W (simulated)"


def test_caps_above_the_budget_are_reported():
    now = live.present(known(budget_w=400.0), "demo", 101.0)
    assert "above the budget by 60 W" in live.verdict(now)


def test_nobody_leads():
    now = live.present(known(), "demo", 120.0)
    assert not now["cluster"]["managed"]
    assert live.verdict(now).startswith("No node is heard")
    assert live.verdict(live.present(Latest(), "demo", 1.0)) == "No node and no system manager is heard"
    assert "no system manager" in live.verdict(live.present(Latest(), "demo", 1.0, ["n1"]))


def share(node: str, heard: bool = True, trouble: str = "") -> dict[str, object]:
    nan = math.nan
    return {
        "node": node,
        "heard": heard,
        "leased": heard,
        "power_w": 200.0 if heard else nan,
        "cap_w": 210.0,
        "committed_w": 210.0 if heard else 100.0,
        "age_s": 0.5 if heard else 30.0,
        "job": "",
        "trouble": trouble,
    }


def of_manager(*nodes: dict[str, object]) -> dict[str, object]:
    heard = sum(bool(node["heard"]) for node in nodes)
    cluster = {
        "manager": "m2",
        "state": "active",
        "policy": "fair",
        "epoch": 4,
        "nodes": len(nodes),
        "heard": heard,
        "leased": heard,
        "unknown_nodes": 0,
        "budget_w": 1000.0,
        "committed_w": 900.0,
        "unknown_w": 0.0,
        "safe_w": 300.0,
        "lease_s": 15.0,
        "power_w": 200.0 * heard,
    }
    return {"cluster": cluster, "nodes": list(nodes)}


def test_the_managers_table_counts_also_for_nodes_that_were_not_heard_here():
    names = [f"n{k}" for k in range(1, 6)]
    # Heard here was nobody but n1, as within the first seconds on a large bus.
    latest = Latest()
    latest.take(NodeSample("n1", 1, 1.0, "redfish", 150.0, 7.0, 230.0, 230.0, 2.5, True), 100.0)
    here = live.present(latest, "demo", 101.0, names)
    table = of_manager(*(share(name, heard=name in ("n1", "n4")) for name in names))
    now = live.informed(here, table)
    json.dumps(now, allow_nan=False)
    assert [node["node"] for node in now["nodes"] if node["up"]] == ["n1", "n4"]
    assert now["cluster"]["power_w"] == 400
    assert live.summary(now) == "400 W of 1 kW drawn, caps 420 W; 2 of 5 nodes heard; m2 leads"
    (finding,) = live.found(now)
    assert (finding.code, finding.text) == ("power.not_heard", "3 of 5 nodes not heard: n2, n3, n5")
    # And the other way round: the manager has lost what is heard here.
    lost = live.informed(here, of_manager(*(share(name, heard=name != "n1") for name in names)))
    assert "4 of 5 nodes heard" in live.summary(lost)


def test_what_a_watchdog_has_to_know():
    assert live.found(live.present(known(), "demo", 101.0)) == []
    codes = [one.code for one in live.found(live.present(known(), "demo", 120.0))]
    assert codes == ["power.no_manager", "power.not_heard"]
    assert [one.code for one in live.found(live.present(known(budget_w=400.0), "demo", 101.0))] == [
        "power.above_budget"
    ]
    twice = "power.name_twice: 2 node managers have the name n1: all are counted"
    now = live.informed(
        live.present(known(), "demo", 101.0), of_manager(share("n1", trouble=twice), share("n2"))
    )
    (finding,) = live.found(now)
    assert finding.code == "power.name_twice"
    assert finding.text.startswith("n1: 2 node managers have the name n1")


def test_lines_fit_80_columns_whatever_names_are():
    latest = known()
    latest.take(
        NodeSample("x" * 64, 1, 1.0, "ipmi", 1.0, trouble="power.hardware_failed: " + "y" * 200), 100.0
    )
    now = live.present(latest, "demo", 101.0, [f"m{k}" for k in range(50)])
    lines = live.lines(now, 80, 24)
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    assert any("more nodes" in line for line in lines)
    assert any("job 17 ada lbm: running" in line for line in lines)


def test_bars():
    assert live.bar(0.5, 10) == "█████░░░░░"
    assert live.bar(1.5, 4) == "███!"
    assert live.bar(math.nan, 3) == "···"


def test_the_course_has_gaps_where_nobody_leads():
    course, latest = live.Course(), known()
    assert course.add(latest, "demo", 101.0, 1000.0) == [1000.0, 200, 460, 460, 500, 2]
    assert course.add(latest, "demo", 130.0, 1029.0) == [1029.0, None, None, None, 500, 0]
    assert len(course.points) == 2
