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
from sonde.store.schema import BURST, BURSTS, CELL, RAW, SERIES, STAGES, SUMMARY, VERDICT, validate

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
PENDING = 8192  # samples of a cell that are held before they are written
ATTRIBUTES = {**described.ROOT, "epoch_length": attribute("samples of a burst", COUNT)}


@dataclass
class StoreLayout(Layout):
    """Layout, with what place() needs besides: rows of the variants kept, counts of cells, their facts."""

    rows: dict[int, int] = field(default_factory=dict)
    n: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    bursts: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    status: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int8))
    facts: dict[str, np.ndarray] = field(default_factory=dict)


class StoreSchema:
    """RoomSchema of store/1 (`sonde.core.seal`). Plan keys: docs of `layout`."""

    room = "store"
    version = 1

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        return [""]

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> StoreLayout:
        """Counts what the probe's file holds.

        plan: variants, list of {name, style, transport, options, clients}, of which `clients` names those that are
        measured on it ([]: all), and `without` the cases that are not; cases, list of specifications; epoch_length;
        asked_variants: whether the user named the variants, so that one that is absent is missed. A variant that could
        not be connected has no row where it was not asked for. A cell that is slow on purpose, and was so slow that it
        gave nothing, leaves the run complete.

        Raises
        ------
        DataError  store.no_blocks, store.not_store_blocks, store.plan_mismatch.
        """
        if not files:
            raise DataError(
                "store.no_blocks",
                "there is no block file to read",
                "nothing was measured: look at the run's log, then measure again",
            )
        if len(files) > 1:
            raise DataError(
                "store.plan_mismatch",
                f"there are {len(files)} block files, and a run of the store has one",
                "keep the file of one run in its folder, and only this",
            )
        file = files[0]
        _check_header(plan, file)
        variants, cases = plan["variants"], [_case(spec) for spec in plan["cases"]]
        connected = list(file.header.get("connected", [True] * len(variants)))
        asked = bool(plan.get("asked_variants", False))
        kept = [k for k in range(len(variants)) if asked or connected[k]]
        rows = {k: row for row, k in enumerate(kept)}
        shape = (len(kept), len(cases))
        n, bursts = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        status = np.full(shape, NOT_MEASURED, np.int8)
        bad = 0
        for records in file:
            good = _sound(records, len(variants), len(cases), rows)
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
            dims={"variant": len(kept), "case": len(cases), "sample": longest, "burst": most},
            coords={
                "variant": (
                    [variants[k]["name"] for k in kept],
                    {"long_name": "variant: how the server was reached"},
                ),
                "case": (list(plan["cases"]), {"long_name": "case: client.operation:bytes:batch:depth"}),
            },
            variables={name: _variable(name, what, longest, most) for name, what in RAW.items()},
            rows=rows,
            n=n,
            bursts=bursts,
            status=status,
            facts=_facts(variants, kept, file.header, cases),
        )
        if bad:
            layout.warnings.append(
                Warning(
                    "store.bad_record",
                    f"{bad} records name variants, cases or counts that this run does not have",
                    "they are left out; was the folder mixed with that of another run?",
                )
            )
        asked_for = np.array([[_wanted(variants[k], case) for case in cases] for k in kept])
        styles = [variants[k].get("style") for k in kept]
        # Where nothing else was measured, they are what the run was made for.
        beside = any(style not in (*SLOW, "raw") for style in styles)
        early = ENDED_EARLY.get(str(plan.get("stop_reason")), "")
        patient = beside and not early  # of a run that ended early nobody knows what was too slow
        slow = np.array([patient and connected[k] and s in SLOW for k, s in zip(kept, styles)], bool)
        missing = (n == 0) & asked_for
        if (lacking := missing & ~slow[:, None]).any():
            layout.complete = False
            evidence = f"{int(lacking.sum())} of {int(asked_for.sum())} cells have no data"
            evidence += f", as {early}: " if early else ": "
            evidence += _named(lacking, variants, kept, plan["cases"])
            hint = "run it again" if early else "other warnings may say why; else give a longer --budget"
            layout.warnings.append(Warning("store.cells_without_data", evidence, hint))
        if (hopeless := missing & slow[:, None]).any():
            evidence = "cells that are slow on purpose were too slow to be measured: "
            evidence += _named(hopeless, variants, kept, plan["cases"])
            layout.warnings.append(Warning("store.cells_left_out", evidence, "give a longer --budget"))
        return layout

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        """Samples of a cell in the order of time, a few thousand at once."""
        assert isinstance(layout, StoreLayout)
        for name, values in layout.facts.items():
            yield name, (slice(0, len(values)),), values
        yield "n", (), layout.n
        yield "bursts", (), layout.bursts
        yield "status", (), layout.status
        cells: dict[tuple[int, int], _Cell] = {}
        for records in file:
            good = _sound(records, len(plan["variants"]), len(plan["cases"]), layout.rows)
            for record in records[good & (records["kind"] == BURST)]:
                where = (layout.rows[int(record["variant"])], int(record["case"]))
                cell = cells.setdefault(where, _Cell(where))
                cell.add(record)
                if cell.held >= PENDING:
                    yield from cell.pieces()
        for cell in cells.values():
            yield from cell.pieces()

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        """/raw to /summary: `sonde.store.analyse.analyse`."""
        from sonde.store.analyse import analyse

        return analyse(raw)

    def leading_dims(self, tree: xr.DataTree) -> Sequence[tuple[str, ...]]:
        """Dims of the table that a file of one table is made of, as `data convert` asks."""
        return [CELL]

    def tables(self, tree: xr.DataTree) -> Tables:
        """The declared variables and root attributes, which `dataset.open` holds a file against."""
        return {"raw": RAW, "summary": SUMMARY, "": ATTRIBUTES}

    def validate(self, tree: xr.DataTree) -> list[Finding]:
        """What is wrong with a dataset; [] for a valid one."""
        return validate(tree)


class _Cell:
    """Samples of one cell that are not yet written, and where they go."""

    def __init__(self, where: tuple[int, int]) -> None:
        self.where, self.sample, self.burst, self.held = where, 0, 0, 0
        self.records: list[np.void] = []

    def add(self, record: np.void) -> None:
        self.records.append(record)
        self.held += int(record["n"])

    def pieces(self) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        if not self.records:
            return
        counts = [int(record["n"]) for record in self.records]
        samples, bursts = (
            slice(self.sample, self.sample + self.held),
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
        self.sample, self.burst, self.held, self.records = samples.stop, bursts.stop, 0, []


def _wanted(variant: Mapping[str, Any], case: Case) -> bool:
    """Whether a case was to be measured on a variant of the plan."""
    only = variant.get("clients")
    return (not only or case.client in only) and case.spec not in variant.get("without", ())


def _named(
    cells: np.ndarray, variants: Sequence[Mapping[str, Any]], kept: Sequence[int], cases: Sequence[str]
) -> str:
    """The first of some cells, and how many more there are."""
    names = [f"{variants[kept[v]]['name']}, {cases[c]}" for v, c in np.argwhere(cells)]
    return "; ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _sound(records: np.ndarray, variants: int, cases: int, rows: Mapping[int, int]) -> np.ndarray:
    """Which records can be believed."""
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
    kept: Sequence[int],
    header: Mapping[str, Any],
    cases: Sequence[Case],
) -> dict[str, np.ndarray]:
    def of(key: str) -> np.ndarray:
        told = header.get(key) or [""] * len(variants)
        return np.array([str(told[k]) for k in kept], object)

    facts = {
        name: np.array([str(variants[k].get(name, "")) for k in kept], object)
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
            "store.plan_mismatch", f"the run's plan holds a case that is none: {error.what}", ""
        ) from None


def _check_header(plan: Mapping[str, Any], file: BlockFile) -> None:
    if not set(RECORD_FIELDS) <= set(file.dtype.names or ()):
        raise DataError(
            "store.not_store_blocks",
            f"{file.path.name} was not written by sonde-storebench",
            "keep the file of one run in its folder, and only this",
        )
    for key, wanted in (("variants", [v["name"] for v in plan["variants"]]), ("cases", list(plan["cases"]))):
        if file.header.get(key) != wanted:
            raise DataError(
                "store.plan_mismatch",
                f"{file.path.name} has other {key} than run.json of its folder",
                "keep the file of one run in its folder, and only this",
            )


SCHEMA = StoreSchema()
