"""How records of block files become datasets of store/1: layout, place, analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import described
from sonde.core.allowed import COUNT
from sonde.core.described import Described, Tables, attribute
from sonde.core.errors import DataError, Finding, UsageError, Warning
from sonde.core.layout import Layout
from sonde.core.status import DRIFT, ENDED_EARLY, NOT_MEASURED, UNDECIDED, status_flags
from sonde.store.plan import SLOW, Case

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile
    from sonde.core.deadline import Deadline
from sonde.store.schema import (
    BURST,
    BURSTS,
    CELL,
    COORDINATES,
    RAW,
    SERIES,
    STAGES,
    SUMMARY,
    VERDICT,
    validate,
)

RECORD_FIELDS = (
    "kind",
    "variant",
    "case",
    "epoch",
    "n",
    "code",
    "t0",
    "serialise",
    "wait",
    "backend",
    "value",
    "offset",
)
CHUNK = 32768  # samples
PENDING = 8192  # samples of a cell that are buffered before they are written
ATTRIBUTES = {**described.ROOT, "epoch_length": attribute("samples of a burst", COUNT)}


@dataclass
class StoreLayout(Layout):
    """Layout, with further data for place(): rows of the stored variants, counts of cells, facts of both."""

    rows: dict[int, int] = field(default_factory=dict)
    n: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    bursts: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    status: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int8))
    facts: dict[str, np.ndarray] = field(default_factory=dict)


class StoreSchema:
    """RoomSchema of store/1 (`sonde.core.seal`). `layout` documents the keys of the plan."""

    room = "store"
    version = 1

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        return [""]

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> StoreLayout:
        """Counts the records of the probe's file, and lays out the dataset.

        plan: variants, list of {name, style, transport, options, clients, without}: `clients` names those that are
        measured on it ([]: all), `without` the cases that are not measured; cases, list of specifications;
        epoch_length; asked_variants: whether the user named the variants, so that an absent one makes the run
        incomplete. A variant that could not be connected, and that was not asked for, has no row. A cell that is slow
        on purpose, and so slow that it has no data, leaves the run complete.

        Raises
        ------
        DataError  store.no_blocks, store.not_store_blocks, store.plan_mismatch.
        """
        if not files:
            raise DataError(
                "store.no_blocks",
                "there is no block file to read",
                "nothing was measured: see the run's log, then measure again",
            )
        if len(files) > 1:
            raise DataError(
                "store.plan_mismatch",
                f"there are {len(files)} block files, but a run of the store has one",
                "leave only the file of this run in its folder",
            )
        file = files[0]
        _check_header(plan, file)
        variants, cases = plan["variants"], [_case(spec) for spec in plan["cases"]]
        connected = list(file.header.get("connected", [True] * len(variants)))
        asked = bool(plan.get("asked_variants", False))
        stored = [k for k in range(len(variants)) if asked or connected[k]]
        rows = {k: row for row, k in enumerate(stored)}
        shape = (len(stored), len(cases))
        n, bursts = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        status = np.full(shape, NOT_MEASURED, np.int8)
        bad = 0
        for records in file:
            good = _valid(records, len(variants), len(cases), rows)
            bad += len(records) - int(good.sum())
            records = records[good]
            row = np.array([rows[int(k)] for k in records["variant"]], int)
            burst = records["kind"] == BURST
            np.add.at(n, (row[burst], records["case"][burst]), records["n"][burst].astype(np.int32))
            np.add.at(bursts, (row[burst], records["case"][burst]), 1)
            verdict = records["kind"] == VERDICT
            status[row[verdict], records["case"][verdict]] = records["code"][verdict]
        status[n == 0] = NOT_MEASURED
        status[(n > 0) & (status == NOT_MEASURED)] = UNDECIDED
        longest, most = max(1, int(n.max(initial=0))), max(1, int(bursts.max(initial=0)))
        layout = StoreLayout(
            dims={"variant": len(stored), "case": len(cases), "sample": longest, "burst": most},
            coords={
                "variant": ([variants[k]["name"] for k in stored], COORDINATES["variant"].attrs()),
                "case": (list(plan["cases"]), COORDINATES["case"].attrs()),
            },
            variables={name: _variable(name, what, longest, most) for name, what in RAW.items()},
            rows=rows,
            n=n,
            bursts=bursts,
            status=status,
            facts=_facts(variants, stored, file.header, cases),
        )
        if bad:
            layout.warnings.append(
                Warning(
                    "store.bad_record",
                    f"{bad} records have variants, cases or counts that are not in this run",
                    "they are left out; check whether the folder contains files of another run",
                )
            )
        asked_for = np.array([[_wanted(variants[k], case) for case in cases] for k in stored])
        styles = [variants[k].get("style") for k in stored]
        # When only slow variants were measured, they are the purpose of the run.
        others = any(style not in (*SLOW, "raw") for style in styles)
        early = ENDED_EARLY.get(str(plan.get("stop_reason")), "")
        may_lack = others and not early  # in a run that ended early, missing data does not mean too slow
        slow = np.array([may_lack and connected[k] and s in SLOW for k, s in zip(stored, styles)], bool)
        missing = (n == 0) & asked_for
        if (lacking := missing & ~slow[:, None]).any():
            layout.complete = False
            evidence = f"{int(lacking.sum())} of {int(asked_for.sum())} cells have no data"
            evidence += f", because {early}: " if early else ": "
            evidence += _named(lacking, variants, stored, plan["cases"])
            hint = (
                "run it again" if early else "other warnings may give the reason; else give a longer --budget"
            )
            layout.warnings.append(Warning("store.cells_without_data", evidence, hint))
        if (hopeless := missing & slow[:, None]).any():
            evidence = "cells that are slow on purpose were too slow to be measured: "
            evidence += _named(hopeless, variants, stored, plan["cases"])
            layout.warnings.append(Warning("store.cells_left_out", evidence, "give a longer --budget"))
        return layout

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        """The samples of each cell in the order of time, a few thousand at once."""
        assert isinstance(layout, StoreLayout)
        for name, values in layout.facts.items():
            yield name, (slice(0, len(values)),), values
        yield "n", (), layout.n
        yield "bursts", (), layout.bursts
        yield "status", (), layout.status
        cells: dict[tuple[int, int], _Cell] = {}
        for records in file:
            good = _valid(records, len(plan["variants"]), len(plan["cases"]), layout.rows)
            for record in records[good & (records["kind"] == BURST)]:
                where = (layout.rows[int(record["variant"])], int(record["case"]))
                cell = cells.setdefault(where, _Cell(where))
                cell.add(record)
                if cell.pending >= PENDING:
                    yield from cell.pieces()
        for cell in cells.values():
            yield from cell.pieces()

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        """/raw to /summary: `sonde.store.analyse.analyse`."""
        from sonde.store.analyse import analyse

        return analyse(raw)

    def leading_dims(self, tree: xr.DataTree) -> Sequence[tuple[str, ...]]:
        """The dims of the table that `data convert` writes to a file of one table."""
        return [CELL]

    def tables(self, tree: xr.DataTree) -> Tables:
        """The declared variables and root attributes, against which `dataset.open` checks a file."""
        return {"raw": RAW | COORDINATES, "summary": SUMMARY, "": ATTRIBUTES}

    def validate(self, tree: xr.DataTree) -> list[Finding]:
        """The faults of a dataset; [] for a valid one."""
        return validate(tree)


class _Cell:
    """The samples of one cell that are not yet written, and their position in the dataset."""

    def __init__(self, where: tuple[int, int]) -> None:
        self.where, self.sample, self.burst, self.pending = where, 0, 0, 0
        self.records: list[np.void] = []

    def add(self, record: np.void) -> None:
        self.records.append(record)
        self.pending += int(record["n"])

    def pieces(self) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        if not self.records:
            return
        counts = [int(record["n"]) for record in self.records]
        samples, bursts = (
            slice(self.sample, self.sample + self.pending),
            slice(self.burst, self.burst + len(counts)),
        )
        epochs = np.array([record["epoch"] for record in self.records], np.int32)
        starts = [
            record["t0"] + record["offset"][:n].astype(float) for record, n in zip(self.records, counts)
        ]
        yield (
            "duration",
            (*self.where, samples),
            np.concatenate([r["value"][:n] for r, n in zip(self.records, counts)]),
        )
        yield "epoch", (*self.where, samples), np.repeat(epochs, counts)
        yield "t_start", (*self.where, samples), np.concatenate(starts)
        yield "burst_epoch", (*self.where, bursts), epochs
        for stage in STAGES:
            yield stage, (*self.where, bursts), np.array([record[stage] for record in self.records])
        self.sample, self.burst, self.pending, self.records = samples.stop, bursts.stop, 0, []


def _wanted(variant: Mapping[str, Any], case: Case) -> bool:
    """Whether the plan has a case for a variant."""
    only = variant.get("clients")
    return (not only or case.client in only) and case.spec not in variant.get("without", ())


def _named(
    cells: np.ndarray, variants: Sequence[Mapping[str, Any]], stored: Sequence[int], cases: Sequence[str]
) -> str:
    """The names of the first cells, and the number of the others."""
    names = [f"{variants[stored[v]]['name']}, {cases[c]}" for v, c in np.argwhere(cells)]
    return "; ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _valid(records: np.ndarray, variants: int, cases: int, rows: Mapping[int, int]) -> np.ndarray:
    """Which records are valid, as booleans."""
    most = records["value"].shape[1]
    return np.asarray(
        (records["variant"] < variants)
        & np.isin(records["variant"], list(rows))
        & (records["case"] < cases)
        & (records["n"] <= most)
        & np.where(records["kind"] == BURST, records["n"] > 0, records["code"] <= DRIFT)
        & (records["kind"] <= VERDICT)
    )


def _variable(name: str, what: Described, samples: int, bursts: int) -> Any:
    chunks: tuple[int, ...] | None = None
    fill: float | int | None = None
    if what.dims == SERIES:
        chunks = (1, 1, min(samples, CHUNK))
    elif what.dims == BURSTS:
        chunks = (1, 1, min(bursts, CHUNK))
    if name in ("epoch", "burst_epoch"):
        fill = -1
    return what.variable(fill, chunks, status_flags() if name == "status" else None)


def _facts(
    variants: Sequence[Mapping[str, Any]],
    stored: Sequence[int],
    header: Mapping[str, Any],
    cases: Sequence[Case],
) -> dict[str, np.ndarray]:
    def of(key: str) -> np.ndarray:
        texts = header.get(key) or [""] * len(variants)
        return np.array([str(texts[k]) for k in stored], object)

    facts = {
        name: np.array([str(variants[k].get(name, "")) for k in stored], object)
        for name in ("style", "transport", "options")
    }
    facts |= {"provider": of("providers"), "detail": of("details")}
    facts |= {name: np.array([getattr(case, name) for case in cases], object) for name in ("client", "op")}
    return facts | {
        name: np.array([getattr(case, name) for case in cases], np.int64)
        for name in ("size", "batch", "depth")
    }


def _case(spec: str) -> Case:
    try:
        return Case.read(spec)
    except UsageError as error:
        raise DataError(
            "store.plan_mismatch", f"the run's plan has a case that is not valid: {error.what}", ""
        ) from None


def _check_header(plan: Mapping[str, Any], file: BlockFile) -> None:
    if not set(RECORD_FIELDS) <= set(file.dtype.names or ()):
        raise DataError(
            "store.not_store_blocks",
            f"{file.path.name} was not written by sonde-storebench",
            "leave only the file of this run in its folder",
        )
    for key, wanted in (("variants", [v["name"] for v in plan["variants"]]), ("cases", list(plan["cases"]))):
        if file.header.get(key) != wanted:
            raise DataError(
                "store.plan_mismatch",
                f"the {key} of {file.path.name} differ from those in run.json of its folder",
                "leave only the file of this run in its folder",
            )


SCHEMA = StoreSchema()
