"""bus/1: what a dataset of `sonde bus run` holds, and how the probe's block file becomes /raw.

ARCHITECTURE.md, "bus/1", is the definition; the tables RAW and SUMMARY here say the same as data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.bus.plan import RAW as RAW_IMPLEMENTATION
from sonde.bus.plan import TESTS, discovery_of, transports
from sonde.core import described
from sonde.core.allowed import COUNT, FINITE, NUMBERED, Allowed, codes, count_of, index
from sonde.core.described import Described, Tables, attribute
from sonde.core.described import optional as _of
from sonde.core.errors import DataError, Finding, Warning
from sonde.core.seal import Layout
from sonde.core.status import DRIFT, ENDED_EARLY, STATUS, UNDECIDED, status_flags

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile
    from sonde.core.deadline import Deadline

NAME = "bus/1"

SAMPLES, DECISION = 0, 1  # kinds of record
RECORD_FIELDS = ("kind", "variant", "case", "quantity", "epoch", "n", "code", "t0", "value", "offset")

Key = tuple[int, int, int]  # variant, case, quantity, as the probe counts them

SERIES = ("series",)
SAMPLE = ("series", "sample")
MIXED = "quantity_unit"  # unit of values of several quantities: the variable that tells it of each
CHUNK = 32768  # samples
PENDING = 8192  # samples of a series that are held before they are written

OF_VARIANT: dict[str, Described] = {
    "variant_name": Described(("variant",), "str", "", "variant: a way over the bus"),
    "implementation": Described(
        ("variant",), "str", "", "implementation; raw: the machine's own sockets and memory"
    ),
    "version": Described(("variant",), "str", "", "version of the implementation"),
    "transport": Described(("variant",), "str", "", "transport; of a profile what it says"),
    "options": Described(
        ("variant",), "str", "", "how the variant differs from its implementation's default"
    ),
}
OF_CASE: dict[str, Described] = {
    "test": Described(("case",), "str", "", f"test: {', '.join(TESTS)}", allowed=Allowed(texts=tuple(TESTS))),
    "size": Described(("case",), "<i8", "B", "bytes of a sample; -1: means nothing here", allowed=NUMBERED),
    "subscribers": Described(
        ("case",), "<i8", "1", "readers of the topic; -1: means nothing here", allowed=NUMBERED
    ),
    "entities": Described(
        ("case",), "<i8", "1", "participants, partitions, clients; -1: means nothing here", allowed=NUMBERED
    ),
    "treatment": Described(("case",), "str", "", "what was done besides; empty: nothing"),
}
OF_QUANTITY: dict[str, Described] = {
    "quantity_name": Described(("quantity",), "str", "", "quantity"),
    "quantity_unit": Described(("quantity",), "str", "", "its unit; 1 for bare numbers"),
}
OF_SERIES: dict[str, Described] = {
    "series_variant": Described(SERIES, "<i4", "1", "variant of a series", allowed=index("variant")),
    "series_case": Described(SERIES, "<i4", "1", "case of a series", allowed=index("case")),
    "series_quantity": Described(SERIES, "<i4", "1", "quantity of a series", allowed=index("quantity")),
}
FACTS = {**OF_VARIANT, **OF_CASE, **OF_QUANTITY, **OF_SERIES}
RAW: dict[str, Described] = {
    "value": Described(SAMPLE, "<f8", MIXED, "value in the quantity's unit", allowed=COUNT),
    "epoch": Described(
        SAMPLE, "<i4", "1", "burst a sample belongs to; -1 where there is none", allowed=NUMBERED
    ),
    "t_start": Described(SAMPLE, "<f8", "s", "begin of the sample since measuring began", allowed=FINITE),
    "n": Described(SERIES, "<i4", "1", "samples kept", allowed=count_of("sample")),
    "status": Described(SERIES, "|i1", "1", "how measuring a series ended", allowed=STATUS),
    **FACTS,
}


def _ends(name: str, units: str, long_name: str) -> dict[str, Described]:
    ends = {"low": "lower", "high": "upper"}
    return {name: _of(SERIES, units, long_name)} | {
        f"{name}_{end}": _of(SERIES, units, f"{word} end of the 95 % interval of the {long_name}")
        for end, word in ends.items()
    }


SUMMARY: dict[str, Described] = {
    "n": _of(SERIES, "1", "samples", "<i4", allowed=COUNT),
    "absent": _of(
        SERIES, "1", "of the samples those without a value: messages that never came", "<i4", allowed=COUNT
    ),
    "epochs": _of(SERIES, "1", "epochs with samples", "<i4", allowed=COUNT),
    "status": _of(SERIES, "1", "how measuring a series ended", "|i1", allowed=STATUS),
    "steady": _of(
        SERIES, "1", "whether the level stayed the same, as far as it can be told", "|i1", allowed=codes(0, 1)
    ),
    **_ends("median", MIXED, "median, in the quantity's unit"),
    **_ends("p99", MIXED, "99 % quantile, in the quantity's unit"),
    "mean": _of(SERIES, MIXED, "mean, in the quantity's unit"),
    "min": _of(SERIES, MIXED, "smallest value"),
    "max": _of(SERIES, MIXED, "largest value"),
    "base": _of(
        SERIES, "1", "variant that the ratio is taken to; -1: none", "<i4", allowed=index("variant", -1)
    ),
    **_ends("ratio", "1", "value over that of the variant `base`, epoch by epoch"),
    "pairs": _of(SERIES, "1", "stretches of time in which both were measured", "<i4", allowed=COUNT),
    **_ends("ratio_to_raw", "1", "value over that of the machine's own way, epoch by epoch"),
    "pairs_raw": _of(SERIES, "1", "stretches of time in which both were measured", "<i4", allowed=COUNT),
    "quantile": _of(("series", "share"), MIXED, "quantiles of the values"),
    "block": _of(
        ("series", "stretch"),
        MIXED,
        "median of each stretch of neighbouring epochs, of shares (lost, matched) the mean; the same for all series",
    ),
    "early": _of(
        ("series", "place"), MIXED, "typical value of the first samples of a burst, by their place in it"
    ),
    **FACTS,
}
"""Variables of /summary. Every variable is optional, and others are allowed beside them."""


ATTRIBUTES = {
    **described.ROOT,
    "hosts": attribute("hosts that were measured", COUNT),
    "epoch_length": attribute("samples of a burst", COUNT),
    "cycles_per_s": attribute("rate of the counter of cycles"),
    "load": attribute("load of the machine before and after", listed=True),
}


@dataclass
class BusLayout(Layout):
    """Layout, with what place() needs besides: the row of each series, the variants kept, and counts."""

    rows: dict[Key, int] = field(default_factory=dict)
    kept: list[int] = field(default_factory=list)
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
        """Counts what the probe's file holds.

        plan: variants, list of {name, implementation, transport, options, without, asked}, of which `without` names the
        cases that are not measured on it; cases, list of {spec, test, size, subscribers, entities, treatment}. What
        quantities there are the file's header tells, and which variants were there: one that was not has no row unless
        it was asked for.

        Raises
        ------
        DataError  bus.no_blocks, bus.not_bus_blocks, bus.plan_mismatch.
        """
        if not files:
            raise DataError(
                "bus.no_blocks",
                "there is no block file to read",
                "nothing was measured: look at the run's log, then measure again",
            )
        if len(files) > 1:
            raise DataError(
                "bus.plan_mismatch",
                f"there are {len(files)} block files, and a run of the bus has one",
                "keep the file of one run in its folder, and only this",
            )
        (file,) = files
        _check_header(plan, file)
        header = file.header
        variants, cases = plan["variants"], plan["cases"]
        present = list(header.get("present") or [True] * len(variants))
        kept = [v for v, variant in enumerate(variants) if present[v] or variant.get("asked")]
        counts: dict[Key, int] = {}
        decided: dict[Key, int] = {}
        bad = 0
        for records in file:
            good = _sound(records, kept, len(cases), len(header["quantities"]))
            bad += len(records) - int(good.sum())
            for record in records[good]:
                key = _key(record)
                if record["kind"] == SAMPLES:
                    counts[key] = counts.get(key, 0) + int(record["n"])
                else:
                    decided[key] = int(record["code"])
        keys = sorted((key for key in counts if counts[key]), key=lambda key: (key[1], key[2], key[0]))
        n = np.array([counts[key] for key in keys], np.int32)
        deciding = {int(case): int(quantity) for case, quantity in reversed(header.get("deciding") or [])}
        # What is recorded alongside is as well known as what decides: its visits ended with it.
        of_case = [decided.get((v, c, deciding.get(c, -1)), UNDECIDED) for v, c, _ in keys]
        status = np.array(
            [decided.get(key, other) or UNDECIDED for key, other in zip(keys, of_case)], np.int8
        )
        longest = max(1, int(n.max(initial=0)))
        facts = _facts(plan, header, kept, keys)
        layout = BusLayout(
            dims={
                "series": len(keys),
                "sample": longest,
                "variant": len(kept),
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
            kept=kept,
            facts=facts,
        )
        if bad:
            layout.warnings.append(
                Warning(
                    "bus.bad_record",
                    f"{bad} records name variants, cases, quantities or counts that this run does not have",
                    "they are left out; was the folder mixed with that of another run?",
                )
            )
        measured = {key[:2] for key in keys}
        wanted = [
            (v, c)
            for v in kept
            for c, case in enumerate(cases)
            if case["test"] in variants[v]["tests"] and case["spec"] not in variants[v].get("without", ())
        ]
        lacking = [cell for cell in wanted if cell not in measured]
        if lacking:
            layout.complete = False
            early = ENDED_EARLY.get(str(plan.get("stop_reason")), "")
            evidence = f"{len(lacking)} of {len(wanted)} cells have no data"
            evidence += f", as {early}: " if early else ": "
            names = [f"{variants[v]['name']}, {cases[c]['spec']}" for v, c in lacking]
            evidence += "; ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
            hint = "run it again" if early else "other warnings may say why; else give a longer --budget"
            layout.warnings.append(Warning("bus.cells_without_data", evidence, hint))
        return layout

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        """Samples of a series in the order of time, a few thousand at once."""
        assert isinstance(layout, BusLayout)
        for name, values in layout.facts.items():
            yield name, (slice(0, len(values)),), values
        yield "n", (), layout.n
        yield "status", (), layout.status
        cases, quantities = len(plan["cases"]), len(file.header["quantities"])
        pending: dict[int, _Series] = {}
        for records in file:
            good = _sound(records, layout.kept, cases, quantities)
            for record in records[good & (records["kind"] == SAMPLES) & (records["n"] > 0)]:
                row = layout.rows[_key(record)]
                one = pending.setdefault(row, _Series(row))
                one.add(record)
                if one.held >= PENDING:
                    yield from one.pieces()
        for one in pending.values():
            yield from one.pieces()

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        """/raw to /summary: `sonde.bus.analyse.analyse`."""
        from sonde.bus.analyse import analyse

        return analyse(raw)

    def leading_dims(self, tree: xr.DataTree) -> Sequence[tuple[str, ...]]:
        """Dims of the table that a file of one table is made of, as `data convert` asks."""
        return [SERIES]

    def tables(self, tree: xr.DataTree) -> Tables:
        """The declared variables and root attributes, which `dataset.open` holds a file against."""
        return {"raw": RAW, "summary": SUMMARY, "": ATTRIBUTES}

    def validate(self, tree: xr.DataTree) -> list[Finding]:
        """What is wrong with a dataset; [] for a valid one."""
        return validate(tree)


def _key(record: np.void) -> Key:
    return int(record["variant"]), int(record["case"]), int(record["quantity"])


class _Series:
    """Samples of one series that are not yet written, and where they go."""

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


def _sound(records: np.ndarray, kept: Sequence[int], cases: int, quantities: int) -> np.ndarray:
    """Which records can be believed."""
    samples = records["kind"] == SAMPLES
    return np.asarray(
        np.isin(records["variant"], kept)
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
    """Root attributes that the probe tells: of the counters, of what else went on, and over how many programs the
    subscribers, participants or clients of each case were spread; -1: means nothing there.
    """
    out: dict[str, Any] = {
        "cycles_per_s": float(header.get("cycles_per_s", float("nan"))),
        "cycles_by": str(header.get("cycles_by", "")),
        "instructions": str(header.get("instructions", "not told")),
    }
    if load := header.get("load"):
        out["load"] = [float(value) for value in load]
    if processes := header.get("processes"):
        out["processes"] = [int(value) for value in processes]
    return out


def _way(planned: Mapping[str, Any], transport: str, discovery: str) -> tuple[str, str]:
    """Transport and options of a variant, as the probe found them: a plan does not know what a profile says."""
    options = str(planned["options"])
    if planned["implementation"] != RAW_IMPLEMENTATION and discovery not in ("", discovery_of(options)):
        options = ",".join(filter(None, (options, f"discovery={discovery}")))
    return transport or str(planned["transport"]), options


def _facts(
    plan: Mapping[str, Any], header: Mapping[str, Any], kept: Sequence[int], keys: Sequence[Key]
) -> dict[str, np.ndarray]:
    variants, cases = [plan["variants"][v] for v in kept], plan["cases"]
    unknown = [""] * len(plan["variants"])
    versions = list(header.get("versions") or unknown)
    # A probe that tells no discovery has other words for transports.
    discoveries = list(header.get("discoveries") or unknown)
    told = list(header["transports"]) if header.get("discoveries") else unknown
    ways = [_way(plan["variants"][v], str(told[v]), str(discoveries[v])) for v in kept]
    text = {
        "variant_name": [v["name"] for v in variants],
        "implementation": [v["implementation"] for v in variants],
        "transport": [transport for transport, _ in ways],
        "options": [options for _, options in ways],
        "version": [versions[v] for v in kept],
        **{name: [case[name] for case in cases] for name in ("test", "treatment")},
        "quantity_name": header["quantities"],
        "quantity_unit": header["units"],
    }
    facts = {name: np.array([str(value) for value in values], object) for name, values in text.items()}
    for name in ("size", "subscribers", "entities"):
        facts[name] = np.array([int(case[name]) for case in cases], np.int64)
    rows = {v: row for row, v in enumerate(kept)}
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
            "keep the file of one run in its folder, and only this",
        )
    for key, wanted in (
        ("variants", [v["name"] for v in plan["variants"]]),
        ("cases", [case["spec"] for case in plan["cases"]]),
    ):
        if file.header.get(key) != wanted:
            raise DataError(
                "bus.plan_mismatch",
                f"{file.path.name} has other {key} than run.json of its folder",
                "keep the file of one run in its folder, and only this",
            )


def validate(tree: xr.DataTree) -> list[Finding]:
    """What is wrong with a dataset of this room; [] for a valid one."""
    found: list[Finding] = []
    if "raw" not in tree.children:
        return [Finding("bus.missing", "/raw is missing", {"variable": "raw"})]
    raw = tree["raw"].to_dataset()
    found += described.check("bus", "/raw", raw, RAW)
    if "summary" in tree.children:
        found += described.check("bus", "/summary", tree["summary"].to_dataset(), SUMMARY)
    if found:
        return found
    unknown = sorted({str(name) for name in raw["test"].values} - set(TESTS))
    if unknown:
        found.append(Finding("bus.test", f"/raw/test names {', '.join(unknown)}", {"tests": unknown}))
    for name, dim in (
        ("series_variant", "variant"),
        ("series_case", "case"),
        ("series_quantity", "quantity"),
    ):
        index = raw[name].values
        if len(index) and ((index < 0) | (index >= raw.sizes[dim])).any():
            found.append(
                Finding("bus.index", f"/raw/{name} names a {dim} that is not there", {"variable": name})
            )
    n = raw["n"].values
    if (n < 0).any() or (n > raw.sizes["sample"]).any():
        found.append(Finding("bus.counts", "/raw/n counts more than there is room for", {}))
    if found:
        return found
    for k in np.flatnonzero(n > 0):
        name = _name(raw, int(k))
        values = raw["value"][k, : n[k]].values
        if np.isinf(values).any() or (values < 0).any():
            found.append(Finding("bus.value", f"{name}: a value is negative or infinite", {"series": name}))
        if (raw["epoch"][k, : n[k]].values < 0).any():
            found.append(Finding("bus.epoch", f"{name}: a sample belongs to no epoch", {"series": name}))
    return found


def _name(raw: xr.Dataset, k: int) -> str:
    variant, case, quantity = (int(raw[f"series_{dim}"].values[k]) for dim in ("variant", "case", "quantity"))
    what = f"{raw['quantity_name'].values[quantity]} of {raw['test'].values[case]}"
    return f"{raw['variant_name'].values[variant]}, {what}, case {case}"


SCHEMA = BusSchema()
