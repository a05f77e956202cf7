"""Turns records of block files into datasets of power/1: layout, placement, analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import described
from sonde.core.described import Tables
from sonde.core.errors import DataError, Finding, Warning
from sonde.core.layout import Layout
from sonde.core.printable import name_text

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile
    from sonde.core.deadline import Deadline
from sonde.power.recording.schema import (
    CLUSTER,
    COURSE,
    EVENT,
    JOB,
    NODE,
    RAW,
    RECORD,
    SOURCES,
    SUMMARY,
    TRAFFIC,
)

ATTRIBUTES = {**described.ROOT}


class PowerSchema:
    """RoomSchema of power/1 (`sonde.core.seal`). Plan keys: `nodes`, the names of expected nodes."""

    room = "power"
    version = 1

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        return [""]

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> Layout:
        """Count the contents of the recorder's file.

        Raises
        ------
        DataError  power.not_power_blocks.
        """
        if len(files) != 1 or files[0].dtype != RECORD:
            raise DataError(
                "power.not_power_blocks",
                f"there are {len(files)} block files, but a recording of this room is one file in its own format",
                "leave only the file of one run in its folder",
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
            missing = [f"no reports of {', '.join(silent[:8])}"] if silent else []
            missing += [] if len(table.reports) else ["no system manager was heard"]
            layout.warnings.append(
                Warning(
                    "power.not_heard",
                    "; ".join(missing),
                    "are they running? 'sonde power status' shows which daemons are heard",
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
        """Dims of the table from which a flat file is made, as `data convert` asks."""
        return [COURSE]

    def tables(self, tree: xr.DataTree) -> Tables:
        """The declared variables and root attributes, which `dataset.open` checks a file against."""
        return {"raw": RAW, "summary": SUMMARY, "": ATTRIBUTES}

    def validate(self, tree: xr.DataTree) -> list[Finding]:
        """The faults of a dataset; [] for a valid one."""
        found = []
        for group, table in (("raw", RAW), ("summary", SUMMARY)):
            if group in tree.children:
                found += described.check(
                    "power", f"/{group}", tree.children[group].to_dataset(inherit=False), table
                )
        return found


class _Table:
    """Records by subject: nodes, jobs and topics by name, each in the order of the sender's clock."""

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
