"""power/1: telemetry of a power stack over a stretch of time, and how its block file becomes /raw.

Dims: node and sample (reports of one node), report (of managers), job and turn (reports of one job), topic and tick
(what readers had received), event (what daemons were seen to do). Rows of unequal length are filled with NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sonde.core.allowed import COUNT, FINITE, SHARE, Allowed
from sonde.core.described import Described
from sonde.core.described import optional as _of

if TYPE_CHECKING:
    pass

NAME = "power/1"

NODE, CLUSTER, JOB, TRAFFIC, EVENT = range(5)  # kinds of record
SOURCES = ("none", "powercap", "cpufreq", "nvml", "redfish", "ipmi", "simulated")

RECORD = np.dtype(
    [
        *(("kind", "|u1"), ("source", "|u1"), ("leased", "|u1"), ("pad", "|u1")),
        *(("heard", "<i4"), ("nodes", "<i4"), ("leases", "<i4"), ("t", "<f8"), ("at", "<f8")),
        *(("epoch", "<u8"), ("power", "<f8"), ("energy", "<f8"), ("cap", "<f8"), ("budget", "<f8")),
        *(("safe", "<f8"), ("lease", "<f8"), ("left", "<f8"), ("count", "<i8"), ("bytes", "<i8")),
        *(("since", "<f8"), ("unknown", "<f8")),
        *(("who", "|S64"), ("whom", "|S64"), ("state", "|S32")),
    ]
)

SAMPLE, REPORT, TURN, TICK, EVENTS = (
    ("node", "sample"),
    ("report",),
    ("job", "turn"),
    ("topic", "tick"),
    ("event",),
)
RAW: dict[str, Described] = {
    "node_name": Described(("node",), "str", "", "node"),
    "node_source": Described(
        ("node",),
        "str",
        "",
        f"where its power comes from: {', '.join(SOURCES)}",
        allowed=Allowed(texts=("", *SOURCES)),
    ),
    "node_time": Described(
        SAMPLE,
        "<f8",
        "s",
        "when a report was made since the run began, by the node's clock",
        allowed=Allowed(rises="sample"),
    ),
    "node_power": Described(SAMPLE, "<f8", "W", "power of a node", allowed=FINITE),
    "node_energy": Described(
        SAMPLE, "<f8", "J", "energy of a node since its node manager began", allowed=FINITE
    ),
    "node_cap": Described(SAMPLE, "<f8", "W", "cap that its hardware was read back to have", allowed=FINITE),
    "node_cap_since": _of(
        SAMPLE,
        "s",
        "since when it has that cap: at the latest if it is lower than before, else at the earliest",
        allowed=FINITE,
    ),
    "node_leased": Described(SAMPLE, "<f8", "1", "1: its cap is a lease, 0: its safe cap", allowed=SHARE),
    "node_left": Described(SAMPLE, "<f8", "s", "time that its lease had left", allowed=FINITE),
    "node_epoch": Described(SAMPLE, "<f8", "1", "highest epoch that the node had obeyed", allowed=COUNT),
    "time": Described(
        REPORT,
        "<f8",
        "s",
        "when a manager reported since the run began, by its clock",
        allowed=Allowed(rises="report"),
    ),
    "budget": Described(REPORT, "<f8", "W", "budget of the cluster", allowed=FINITE),
    "committed": Described(
        REPORT, "<f8", "W", "what nodes may be at, at most, by the manager's word", allowed=FINITE
    ),
    "unknown": _of(
        REPORT,
        "W",
        "what nodes that a new manager does not know yet may be at beyond `committed`",
        allowed=FINITE,
    ),
    "safe": Described(
        REPORT, "<f8", "W", "what nodes come to together when nobody manages them", allowed=FINITE
    ),
    "power": Described(REPORT, "<f8", "W", "power of the nodes that the manager hears", allowed=FINITE),
    "lease": Described(REPORT, "<f8", "s", "length of a lease", allowed=FINITE),
    "period": Described(REPORT, "<f8", "s", "time between two decisions", allowed=FINITE),
    "epoch": Described(REPORT, "<f8", "1", "epoch of the manager", allowed=COUNT),
    "heard": Described(REPORT, "<f8", "1", "nodes that the manager hears", allowed=COUNT),
    "leased": Described(REPORT, "<f8", "1", "nodes that have a lease", allowed=COUNT),
    "manager": Described(REPORT, "str", "", "who reports"),
    "state": Described(REPORT, "str", "", "its state: active, observing, stepping-back"),
    "topic_name": Described(("topic",), "str", "", "topic"),
    "traffic_time": Described(
        ("tick",), "<f8", "s", "when readers were asked, since the run began", allowed=Allowed(rises="tick")
    ),
    "traffic_samples": Described(
        TICK, "<f8", "1", "samples that were received since the run began", allowed=COUNT
    ),
    "traffic_bytes": Described(TICK, "<f8", "B", "bytes of them", allowed=COUNT),
    "job_name": _of(("job",), "", "job", "str"),
    "job_user": _of(("job",), "", "whose it is", "str"),
    "job_state": _of(("job",), "", "its last state", "str"),
    "job_nodes": _of(("job",), "1", "nodes that it has", allowed=COUNT),
    "job_time": _of(
        TURN, "s", "when a job's report was made since the run began", allowed=Allowed(rises="turn")
    ),
    "job_power": _of(TURN, "W", "power of its nodes", allowed=FINITE),
    "job_energy": _of(TURN, "J", "energy since it began", allowed=FINITE),
    "event_time": _of(EVENTS, "s", "when it was seen, since the run began", allowed=FINITE),
    "event_who": _of(EVENTS, "", "which daemon", "str"),
    "event_what": _of(EVENTS, "", "what it did, or what was done to it", "str"),
}

COURSE = ("moment",)
OF_RUN = ()
TAKEOVER = ("takeover",)
SUMMARY: dict[str, Described] = {
    "budget": _of(OF_RUN, "W", "budget in the end"),
    "max_sum_caps": _of(OF_RUN, "W", "largest sum of caps that lasted from one report to the next"),
    "max_possible": _of(OF_RUN, "W", "largest sum of caps that may have been there between reports"),
    "max_power": _of(OF_RUN, "W", "largest sum of power"),
    "max_committed": _of(OF_RUN, "W", "most that was lent, by the manager's word"),
    "max_unknown": _of(OF_RUN, "W", "most that nodes may have had that a new manager did not know yet"),
    "over_budget": _of(OF_RUN, "s", "time for which power was above the budget"),
    "violations": _of(OF_RUN, "1", "times that the sum of caps was surely above the budget"),
    "violation": _of(OF_RUN, "s", "time for which it was"),
    "unknown": _of(OF_RUN, "s", "time for which it may have been: what reports do not say"),
    "lease": _of(OF_RUN, "s", "length of a lease"),
    "report": _of(OF_RUN, "s", "usual time between two reports of the node that reports most seldom"),
    "period": _of(OF_RUN, "s", "time between two decisions of the manager"),
    "comply": _of(OF_RUN, "s", "longest time from a lower budget until no more was lent than it"),
    "expired": _of(OF_RUN, "1", "leases that ended without another"),
    "energy": _of(OF_RUN, "J", "energy of all nodes"),
    "length": _of(OF_RUN, "s", "time between the first and the last report"),
    "reports": _of(OF_RUN, "1", "reports of nodes"),
    "simulated": _of(OF_RUN, "1", "1: a node is simulated"),
    "takeover_time": _of(TAKEOVER, "s", "when another manager first led"),
    "takeover_gap": _of(TAKEOVER, "s", "time since the one before was there"),
    "takeover_epoch": _of(TAKEOVER, "1", "its epoch"),
    "takeover_before": _of(TAKEOVER, "", "who led before", "str"),
    "takeover_after": _of(TAKEOVER, "", "who led then", "str"),
    "course_time": _of(COURSE, "s", "moments of the course"),
    "course_power": _of(COURSE, "W", "sum of power"),
    "course_caps": _of(COURSE, "W", "sum of caps, the lower of what reports allow"),
    "course_caps_most": _of(COURSE, "W", "sum of caps, the higher of what reports allow"),
    "course_budget": _of(COURSE, "W", "budget"),
    "course_committed": _of(COURSE, "W", "what was lent at most, by the manager's word"),
    "course_unknown": _of(COURSE, "W", "the same with what nodes may have that it did not know yet"),
    "course_leased": _of(COURSE, "1", "nodes whose cap is a lease"),
    "node_name": _of(("node",), "", "node", "str"),
    "node_source": _of(("node",), "", "where its power comes from", "str"),
    "node_mean": _of(("node",), "W", "mean power"),
    "node_max": _of(("node",), "W", "largest power"),
    "node_energy": _of(("node",), "J", "energy"),
    "node_cap_mean": _of(("node",), "W", "mean cap"),
    "node_leased": _of(("node",), "1", "share of its reports in which its cap was a lease"),
    "node_reports": _of(("node",), "1", "reports"),
    "job_name": _of(("job",), "", "job", "str"),
    "job_user": _of(("job",), "", "whose it is", "str"),
    "job_state": _of(("job",), "", "its last state", "str"),
    "job_energy": _of(("job",), "J", "energy"),
    "job_mean": _of(("job",), "W", "mean power of its nodes together"),
    "job_nodes": _of(("job",), "1", "nodes that it has"),
    "topic_name": _of(("topic",), "", "topic", "str"),
    "topic_rate": _of(("topic",), "1/s", "samples a second"),
    "topic_bytes_rate": _of(("topic",), "B/s", "bytes a second"),
}
"""Variables of /summary. Every variable is optional, and other variables are allowed."""
