"""Conversion of block files to datasets of bus/1: layout, place, analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.bus.variants import RAW as RAW_IMPLEMENTATION
from sonde.bus.variants import discovery_of, transports
from sonde.core import described
from sonde.core.allowed import COUNT
from sonde.core.described import Described, Tables, attribute
from sonde.core.errors import DataError, Finding, Warning
from sonde.core.layout import Layout
from sonde.core.status import DRIFT, ENDED_EARLY, UNDECIDED, status_flags

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile
    from sonde.core.deadline import Deadline
from sonde.bus.schema import DECISION, RAW, SAMPLE, SAMPLES, SERIES, SUMMARY, validate

RECORD_FIELDS = ("kind", "variant", "case", "quantity", "epoch", "n", "code", "t0", "value", "offset")
Key = tuple[int, int, int]  # variant, case, quantity, as the probe counts them
CHUNK = 32768  # samples
PENDING = 8192  # samples of a series that are buffered before they are written
ATTRIBUTES = {
    **described.ROOT,
    "hosts": attribute("hosts that were measured", COUNT),
    "epoch_length": attribute("samples of a burst", COUNT),
    "cycles_per_s": attribute("rate of the counter of cycles"),
    "load": attribute("load of the machine before and after", listed=True),
}


@dataclass
class BusLayout(Layout):
    """Layout with additional data for place(): the row of each series, the variants in the dataset, and counts."""

    rows: dict[Key, int] = field(default_factory=dict)
    included: list[int] = field(default_factory=list)
    n: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    status: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int8))
    facts: dict[str, np.ndarray] = field(default_factory=dict)


class BusSchema:
    """RoomSchema of bus/1 (`sonde.core.seal`). Plan keys: docs of `layout`."""

    room = "bus"
    version = 1

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        return [""]

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> BusLayout:
        """The layout for the records in the probe's file.

        plan: variants, list of {name, implementation, transport, options, without, asked}, where `without` names the
        cases that are not measured on the variant; cases, list of {spec, test, size, subscribers, entities, treatment}.
        The file's header lists the quantities and the available variants. An unavailable variant has no row unless the
        user asked for it.

        Raises
        ------
        DataError  bus.no_blocks, bus.not_bus_blocks, bus.plan_mismatch.
        """
        if not files:
            raise DataError(
                "bus.no_blocks",
                "the folder has no block file",
                "nothing was measured: read the log of the run, then measure again",
            )
        if len(files) > 1:
            raise DataError(
                "bus.plan_mismatch",
                f"the folder has {len(files)} block files, but a run of the bus has one",
                "keep only the file of this run in its folder",
            )
        (file,) = files
        _check_header(plan, file)
        header = file.header
        variants, cases = plan["variants"], plan["cases"]
        present = list(header.get("present") or [True] * len(variants))
        included = [v for v, variant in enumerate(variants) if present[v] or variant.get("asked")]
        counts: dict[Key, int] = {}
        decided: dict[Key, int] = {}
        bad = 0
        for records in file:
            valid = _valid(records, included, len(cases), len(header["quantities"]))
            bad += len(records) - int(valid.sum())
            for record in records[valid]:
                key = _key(record)
                if record["kind"] == SAMPLES:
                    counts[key] = counts.get(key, 0) + int(record["n"])
                else:
                    decided[key] = int(record["code"])
        keys = sorted((key for key in counts if counts[key]), key=lambda key: (key[1], key[2], key[0]))
        n = np.array([counts[key] for key in keys], np.int32)
        deciding = {int(case): int(quantity) for case, quantity in reversed(header.get("deciding") or [])}
        # All quantities of a case have the status of the deciding one, because they are measured together.
        of_case = [decided.get((v, c, deciding.get(c, -1)), UNDECIDED) for v, c, _ in keys]
        status = np.array(
            [decided.get(key, other) or UNDECIDED for key, other in zip(keys, of_case)], np.int8
        )
        longest = max(1, int(n.max(initial=0)))
        facts = _facts(plan, header, included, keys)
        layout = BusLayout(
            dims={
                "series": len(keys),
                "sample": longest,
                "variant": len(included),
                "case": len(cases),
                "quantity": len(header["quantities"]),
            },
            coords={},
            variables={name: _variable(name, what, longest) for name, what in RAW.items()},
            attrs=_attrs(header)
            | {"transport": transports(zip(facts["implementation"], facts["transport"]))},
            rows={key: row for row, key in enumerate(keys)},
            n=n,
            status=status,
            included=included,
            facts=facts,
        )
        if bad:
            layout.warnings.append(
                Warning(
                    "bus.bad_record",
                    f"{bad} records name variants, cases, quantities or counts that this run does not have",
                    "these records are left out; check whether the folder contains files of another run",
                )
            )
        measured = {key[:2] for key in keys}
        wanted = [
            (v, c)
            for v in included
            for c, case in enumerate(cases)
            if case["test"] in variants[v]["tests"] and case["spec"] not in variants[v].get("without", ())
        ]
        missing = [cell for cell in wanted if cell not in measured]
        if missing:
            layout.complete = False
            early = ENDED_EARLY.get(str(plan.get("stop_reason")), "")
            evidence = f"{len(missing)} of {len(wanted)} cells have no data"
            evidence += f", as {early}: " if early else ": "
            names = [f"{variants[v]['name']}, {cases[c]['spec']}" for v, c in missing]
            evidence += "; ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
            hint = (
                "run it again"
                if early
                else "see the other warnings for the reason, or give a longer --budget"
            )
            layout.warnings.append(Warning("bus.cells_without_data", evidence, hint))
        return layout

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        """The samples of each series in order of time, a few thousand at once."""
        assert isinstance(layout, BusLayout)
        for name, values in layout.facts.items():
            yield name, (slice(0, len(values)),), values
        yield "n", (), layout.n
        yield "status", (), layout.status
        cases, quantities = len(plan["cases"]), len(file.header["quantities"])
        pending: dict[int, _Series] = {}
        for records in file:
            valid = _valid(records, layout.included, cases, quantities)
            for record in records[valid & (records["kind"] == SAMPLES) & (records["n"] > 0)]:
                row = layout.rows[_key(record)]
                one = pending.setdefault(row, _Series(row))
                one.add(record)
                if one.held >= PENDING:
                    yield from one.pieces()
        for one in pending.values():
            yield from one.pieces()

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        """Compute /summary from /raw: `sonde.bus.analyse.analyse`."""
        from sonde.bus.analyse import analyse

        return analyse(raw)

    def leading_dims(self, tree: xr.DataTree) -> Sequence[tuple[str, ...]]:
        """The leading dimensions of the table that `data convert` writes to a file with one table."""
        return [SERIES]

    def tables(self, tree: xr.DataTree) -> Tables:
        """The declared variables and root attributes; `dataset.open` checks a file against them."""
        return {"raw": RAW, "summary": SUMMARY, "": ATTRIBUTES}

    def validate(self, tree: xr.DataTree) -> list[Finding]:
        """The defects of a dataset; [] for a valid one."""
        return validate(tree)


def _key(record: np.void) -> Key:
    return int(record["variant"]), int(record["case"]), int(record["quantity"])


class _Series:
    """Buffered samples of one series, and their destination."""

    def __init__(self, row: int) -> None:
        self.row, self.sample, self.held = row, 0, 0
        self.records: list[np.void] = []

    def add(self, record: np.void) -> None:
        self.records.append(record)
        self.held += int(record["n"])

    def pieces(self) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        if not self.records:
            return
        counts = [int(record["n"]) for record in self.records]
        where = (self.row, slice(self.sample, self.sample + self.held))
        pairs = list(zip(self.records, counts))
        yield "value", where, np.concatenate([record["value"][:n] for record, n in pairs])
        yield "epoch", where, np.repeat(np.array([int(r["epoch"]) for r in self.records], np.int32), counts)
        starts = [float(record["t0"]) + record["offset"][:n].astype(float) for record, n in pairs]
        yield "t_start", where, np.concatenate(starts)
        self.sample, self.held, self.records = self.sample + self.held, 0, []


def _valid(records: np.ndarray, included: Sequence[int], cases: int, quantities: int) -> np.ndarray:
    """A mask of the valid records."""
    samples = records["kind"] == SAMPLES
    return np.asarray(
        np.isin(records["variant"], included)
        & (records["case"] < cases)
        & (records["quantity"] < quantities)
        & (records["n"] <= records["value"].shape[1])
        & (samples | (records["code"] <= DRIFT))
        & (records["kind"] <= DECISION)
    )


def _variable(name: str, what: Described, samples: int) -> Any:
    chunks = (1, min(samples, CHUNK)) if what.dims == SAMPLE else None
    fill = -1 if name == "epoch" else None
    return what.variable(fill, chunks, status_flags() if name == "status" else None)


def _attrs(header: Mapping[str, Any]) -> dict[str, Any]:
    """Root attributes from the probe: its counters, the load of the machine, and for each case the number of programs
    that run its subscribers, participants or clients; -1: not applicable.
    """
    out: dict[str, Any] = {
        "cycles_per_s": float(header.get("cycles_per_s", float("nan"))),
        "cycles_by": str(header.get("cycles_by", "")),
        "instructions": str(header.get("instructions", "not reported")),
    }
    if load := header.get("load"):
        out["load"] = [float(value) for value in load]
    if processes := header.get("processes"):
        out["processes"] = [int(value) for value in processes]
    return out


def _way(planned: Mapping[str, Any], transport: str, discovery: str) -> tuple[str, str]:
    """Transport and options of a variant, as the probe reported them: the plan does not know a profile's content."""
    options = str(planned["options"])
    if planned["implementation"] != RAW_IMPLEMENTATION and discovery not in ("", discovery_of(options)):
        options = ",".join(filter(None, (options, f"discovery={discovery}")))
    return transport or str(planned["transport"]), options


def _facts(
    plan: Mapping[str, Any], header: Mapping[str, Any], included: Sequence[int], keys: Sequence[Key]
) -> dict[str, np.ndarray]:
    variants, cases = [plan["variants"][v] for v in included], plan["cases"]
    unknown = [""] * len(plan["variants"])
    versions = list(header.get("versions") or unknown)
    # A probe that reports no discovery uses other names for transports.
    discoveries = list(header.get("discoveries") or unknown)
    reported = list(header["transports"]) if header.get("discoveries") else unknown
    ways = [_way(plan["variants"][v], str(reported[v]), str(discoveries[v])) for v in included]
    text = {
        "variant_name": [v["name"] for v in variants],
        "implementation": [v["implementation"] for v in variants],
        "transport": [transport for transport, _ in ways],
        "options": [options for _, options in ways],
        "version": [versions[v] for v in included],
        **{name: [case[name] for case in cases] for name in ("test", "treatment")},
        "quantity_name": header["quantities"],
        "quantity_unit": header["units"],
    }
    facts = {name: np.array([str(value) for value in values], object) for name, values in text.items()}
    for name in ("size", "subscribers", "entities"):
        facts[name] = np.array([int(case[name]) for case in cases], np.int64)
    rows = {v: row for row, v in enumerate(included)}
    facts["series_variant"] = np.array([rows[v] for v, _, _ in keys], np.int32)
    facts["series_case"] = np.array([c for _, c, _ in keys], np.int32)
    facts["series_quantity"] = np.array([q for _, _, q in keys], np.int32)
    return facts


def _check_header(plan: Mapping[str, Any], file: BlockFile) -> None:
    if not set(RECORD_FIELDS) <= set(file.dtype.names or ()) or not {"quantities", "units"} <= set(
        file.header
    ):
        raise DataError(
            "bus.not_bus_blocks",
            f"{file.path.name} was not written by sonde-busprobe",
            "keep only the file of this run in its folder",
        )
    for key, wanted in (
        ("variants", [v["name"] for v in plan["variants"]]),
        ("cases", [case["spec"] for case in plan["cases"]]),
    ):
        if file.header.get(key) != wanted:
            raise DataError(
                "bus.plan_mismatch",
                f"{file.path.name} has other {key} than run.json in its folder",
                "keep only the file of this run in its folder",
            )


SCHEMA = BusSchema()
