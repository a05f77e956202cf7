"""power/1: telemetry of a power stack over a stretch of time, and how its block file becomes /raw.

Dims: node and sample (reports of one node), report (of managers), job and turn (reports of one job), topic and tick
(what readers had received), event (what daemons were seen to do). Rows of unequal length are filled with NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import described
from sonde.core.allowed import COUNT, FINITE, SHARE, Allowed
from sonde.core.described import Described, Tables
from sonde.core.described import optional as _of
from sonde.core.errors import DataError, Finding, Warning
from sonde.core.printable import name_text
from sonde.core.seal import Layout

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile
    from sonde.core.deadline import Deadline

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
"""Variables of /summary. Every variable is optional, and others are allowed beside them."""


ATTRIBUTES = {**described.ROOT}


class PowerSchema:
    """RoomSchema of power/1 (`sonde.core.seal`). Plan keys: `nodes`, names that were expected."""

    room = "power"
    version = 1

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        return [""]

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> Layout:
        """Counts what the recorder's file holds.

        Raises
        ------
        DataError  power.not_power_blocks.
        """
        if len(files) != 1 or files[0].dtype != RECORD:
            raise DataError(
                "power.not_power_blocks",
                f"there are {len(files)} block files, and a recording of this room is one of its own form",
                "keep the file of one run in its folder, and only this",
            )
        table = _Table(files[0])
        dims = {
            "node": max(1, len(table.nodes)),
            "sample": max(1, *(len(rows) for rows in table.nodes.values())) if table.nodes else 1,
            "report": max(1, len(table.reports)),
            "topic": max(1, len(table.topics)),
            "tick": max(1, len(table.ticks)),
        }
        if table.jobs:
            dims |= {"job": len(table.jobs), "turn": max(len(rows) for rows in table.jobs.values())}
        if len(table.events):
            dims["event"] = len(table.events)
        layout = Layout(
            dims=dims,
            coords={},
            variables={
                name: what.variable(None if what.dtype == "str" else np.nan)
                for name, what in RAW.items()
                if set(what.dims) <= set(dims)
            },
            attrs={"cluster": str(plan.get("cluster", "")), "kind": str(plan.get("kind", "run"))},
        )
        silent = sorted({str(name) for name in plan.get("nodes", ())} - set(table.nodes))
        if silent or not len(table.reports):
            layout.complete = False
            told = [f"nothing was heard of {', '.join(silent[:8])}"] if silent else []
            told += [] if len(table.reports) else ["no system manager was heard"]
            layout.warnings.append(
                Warning(
                    "power.not_heard",
                    "; ".join(told),
                    "are they running? 'sonde power status' shows who is heard",
                )
            )
        return layout

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        table = _Table(file)
        everything = (slice(None),)
        for row, (name, rows) in enumerate(table.nodes.items()):
            where = (row, slice(0, len(rows)))
            of = {"time": "at", "power": "power", "energy": "energy", "cap": "cap", "leased": "leased"}
            of |= {"cap_since": "since"}
            for what, key in {**of, "left": "left", "epoch": "epoch"}.items():
                yield f"node_{what}", where, rows[key].astype(float)
            source = SOURCES[min(int(rows["source"][-1]), len(SOURCES) - 1)]
            yield "node_name", (slice(row, row + 1),), np.array([name], object)
            yield "node_source", (slice(row, row + 1),), np.array([source], object)
        reports = table.reports
        if len(reports):
            keys = {"time": "at", "budget": "budget", "committed": "cap", "safe": "safe", "power": "power"}
            for what, key in {
                **keys,
                "lease": "lease",
                "unknown": "unknown",
                "period": "left",
                "epoch": "epoch",
                "heard": "heard",
                "leased": "leases",
            }.items():
                yield what, everything, reports[key].astype(float)
            yield "manager", everything, _texts(reports["who"])
            yield "state", everything, _texts(reports["state"])
        for row, (name, rows) in enumerate(table.jobs.items()):
            where = (row, slice(0, len(rows)))
            for what, key in {"time": "at", "power": "power", "energy": "energy"}.items():
                yield f"job_{what}", where, rows[key].astype(float)
            one = (slice(row, row + 1),)
            yield "job_name", one, np.array([name], object)
            yield "job_user", one, _texts(rows["whom"][-1:])
            yield "job_state", one, _texts(rows["state"][-1:])
            yield "job_nodes", one, rows["nodes"][-1:].astype(float)
        if table.topics:
            yield "topic_name", everything, np.array(list(table.topics), object)
            yield "traffic_time", everything, np.array(table.ticks, float)
            place = {t: k for k, t in enumerate(table.ticks)}
            for row, rows in enumerate(table.topics.values()):
                ticks = np.array([place[float(t)] for t in rows["t"]])
                for what, key in (("samples", "count"), ("bytes", "bytes")):
                    values = np.full(len(table.ticks), np.nan)
                    values[ticks] = rows[key]
                    yield f"traffic_{what}", (row, slice(0, len(values))), values
        if len(table.events):
            yield "event_time", everything, table.events["t"].astype(float)
            yield "event_who", everything, _texts(table.events["who"])
            yield "event_what", everything, _texts(table.events["state"])

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        """/raw to /summary: `sonde.power.recording.analyse.analyse`."""
        from sonde.power.recording.analyse import analyse

        return analyse(raw)

    def leading_dims(self, tree: xr.DataTree) -> Sequence[tuple[str, ...]]:
        """Dims of the table that a file of one table is made of, as `data convert` asks."""
        return [COURSE]

    def tables(self, tree: xr.DataTree) -> Tables:
        """The declared variables and root attributes, which `dataset.open` holds a file against."""
        return {"raw": RAW, "summary": SUMMARY, "": ATTRIBUTES}

    def validate(self, tree: xr.DataTree) -> list[Finding]:
        """What is wrong with a dataset; [] for a valid one."""
        found = []
        for group, table in (("raw", RAW), ("summary", SUMMARY)):
            if group in tree.children:
                found += described.check(
                    "power", f"/{group}", tree.children[group].to_dataset(inherit=False), table
                )
        return found


class _Table:
    """Records by what they are about: nodes, jobs and topics by name, each in the order of the sender's clock."""

    def __init__(self, file: BlockFile) -> None:
        pieces = list(file)
        all_ = np.concatenate(pieces) if pieces else np.zeros(0, RECORD)
        self.nodes = _by_name(all_[all_["kind"] == NODE])
        self.jobs = _by_name(all_[all_["kind"] == JOB])
        reports = all_[all_["kind"] == CLUSTER]
        self.reports = reports[np.argsort(reports["at"], kind="stable")]
        traffic = all_[all_["kind"] == TRAFFIC]
        self.topics = {name: traffic[traffic["who"] == name.encode()] for name in _names(traffic)}
        self.ticks = sorted({float(t) for t in traffic["t"]})
        self.events = all_[all_["kind"] == EVENT]


def _names(records: np.ndarray) -> list[str]:
    return sorted(name_text(name) for name in set(records["who"].tolist()))


def _by_name(records: np.ndarray) -> dict[str, np.ndarray]:
    out = {}
    for name in sorted(set(records["who"].tolist())):
        rows = records[records["who"] == name]
        out[name_text(name)] = rows[np.argsort(rows["at"], kind="stable")]
    return out


def _texts(values: np.ndarray) -> np.ndarray:
    return np.array([value.decode("utf-8", "backslashreplace") for value in values.tolist()], object)


SCHEMA = PowerSchema()
