"""The present, as the page and a terminal show it."""

from __future__ import annotations

import json
import math

from sonde.power import live
from sonde.power.telemetry import ClusterSample, JobSample, Latest, NodeSample


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


def test_caps_above_the_budget_are_said():
    now = live.present(known(budget_w=400.0), "demo", 101.0)
    assert "above the budget by 60 W" in live.verdict(now)


def test_nobody_leads():
    now = live.present(known(), "demo", 120.0)
    assert not now["cluster"]["managed"]
    assert live.verdict(now).startswith("No node is heard")
    assert live.verdict(live.present(Latest(), "demo", 1.0)) == "Nobody is heard"
    assert "no system manager" in live.verdict(live.present(Latest(), "demo", 1.0, ["n1"]))


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
