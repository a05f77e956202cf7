"""Turn records of block files into datasets of io/1 that are studies: layout, placement, analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import described
from sonde.core.allowed import COUNT, FINITE, codes, index
from sonde.core.described import Described, Tables, attribute
from sonde.core.errors import DataError, Finding, Warning
from sonde.core.layout import Layout
from sonde.io.maps.layers import KINDS

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile
    from sonde.core.deadline import Deadline
from sonde.io.study.schema import LIMITS, OF_CELL, OF_FUNCTION, OF_LAYER, SUMMARY, WHOLE

KIND = "study"
OF_RUN: dict[str, Described] = {
    "run_cell": Described(("run",), "<i4", "1", "cell of a run", allowed=index("cell")),
    "run_round": Described(("run",), "<i4", "1", "round of a run", allowed=COUNT),
    "run_traced": Described(
        ("run",),
        "|i1",
        "1",
        "1: with the tracer, tells of functions; 0: without, tells the rate",
        allowed=codes(0, 1),
    ),
    "run_status": Described(("run",), "<i4", "1", "exit status of its command; 124: it took too long"),
    "run_begin": Described(("run",), "<f8", "s", "begin of a run since the study began", allowed=FINITE),
    "run_length": Described(("run",), "<f8", "s", "from the start of its command to its end", allowed=FINITE),
    "run_io": Described(
        ("run",), "<f8", "s", "time in I/O by the benchmark's own word, writing and reading", allowed=FINITE
    ),
    "run_write": Described(
        ("run",), "<f8", "B/s", "rate of writing by the benchmark's own word", allowed=FINITE
    ),
    "run_read": Described(
        ("run",), "<f8", "B/s", "rate of reading by the benchmark's own word", allowed=FINITE
    ),
}
_CALLS = ("run", "function")
CALLS: dict[str, Described] = {
    "calls": Described(
        _CALLS, "<i8", "1", "calls of all ranks, within what the benchmark called", allowed=COUNT
    ),
    "bytes": Described(_CALLS, "<i8", "B", "their bytes, of calls that tell them", allowed=COUNT),
    "time": Described(
        _CALLS, "<f8", "s", "time in them, calls within them included; of all ranks", allowed=FINITE
    ),
    "self_time": Described(_CALLS, "<f8", "s", "the same less traced calls within them", allowed=FINITE),
}
OF_LIMIT: dict[str, Described] = {
    "limit_place": Described(("limit",), "str", "", "folder whose disk was measured alone; empty: a network"),
    "limit_cluster": Described(("limit",), "str", "", "virtual cluster whose network was measured alone"),
    "limit_what": Described(("limit",), "|i1", "1", "what was measured", allowed=codes(0, 1, 2)),
    "limit_by": Described(("limit",), "str", "", "with what"),
    "limit_round": Described(("limit",), "<i4", "1", "in which round", allowed=COUNT),
    "limit_rate": Described(("limit",), "<f8", "B/s", "its rate", allowed=FINITE),
}
ATTRIBUTES = {**described.ROOT, "ranks": attribute("ranks of a run", COUNT)}
RAW = {**OF_CELL, **OF_RUN, **OF_FUNCTION, **OF_LAYER, **CALLS, **OF_LIMIT}
_CELL_KEYS = tuple(name.removeprefix("cell_") for name in OF_CELL)


@dataclass
class StudyLayout(Layout):
    """The layout of a study, with further data that place() needs."""

    rows: dict[str, int] = field(default_factory=dict)  # file -> run
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)  # layer, name -> function
    tables: dict[str, np.ndarray] = field(default_factory=dict)
    first: str = ""


class StudySchema:
    """RoomSchema of the kind. Plan keys: `study_plan.Plan.as_json`."""

    room, version = "io", 1

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        return [""]

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> StudyLayout:
        """One row for each run, one column for each function that any run called.

        Raises
        ------
        DataError  io.not_study_blocks: a file is not of a study.
        """
        for file in files:
            if file.header.get("what") not in ("run", "limit"):
                raise DataError(
                    "io.not_study_blocks",
                    f"{file.path.name} is not from a study",
                    "keep only the files of one run in its folder",
                )
        runs = [file for file in files if file.header["what"] == "run"]
        limits = [file.header for file in files if file.header["what"] == "limit"]
        layers = [str(layer["name"]) for layer in plan["layers"]]
        kinds: dict[tuple[str, str], int] = {}
        for file in runs:
            for layer, name, kind in file.header["functions"]:
                kinds.setdefault((str(layer), str(name)), int(kind))
        order = sorted(kinds, key=lambda one: (layers.index(one[0]), one[1]))
        heads = [file.header for file in runs]
        cells = plan["cells"]
        tables = {
            **{
                f"cell_{key}": _column(OF_CELL[f"cell_{key}"], [cell[key] for cell in cells])
                for key in _CELL_KEYS
            },
            **{name: _column(what, [head[name] for head in heads]) for name, what in OF_RUN.items()},
            "function_name": _column(OF_FUNCTION["function_name"], [name for _, name in order]),
            "function_layer": np.array([layers.index(layer) for layer, _ in order], np.int16),
            "function_kind": np.array([kinds[one] for one in order], np.int8),
            "layer_name": _column(OF_LAYER["layer_name"], layers),
            "layer_title": _column(OF_LAYER["layer_title"], [layer["title"] for layer in plan["layers"]]),
            **{name: _column(what, [head[name] for head in limits]) for name, what in OF_LIMIT.items()},
        }
        special = {
            "function_kind": {
                "flag_values": np.arange(len(KINDS), dtype=np.int8),
                "flag_meanings": " ".join(KINDS),
            },
            "limit_what": {
                "flag_values": np.arange(len(LIMITS), dtype=np.int8),
                "flag_meanings": " ".join(LIMITS),
            },
        }
        made = StudyLayout(
            dims={
                "cell": len(cells),
                "run": len(runs),
                "function": len(order),
                "layer": len(layers),
                "limit": len(limits),
            },
            coords={},
            variables={
                name: what.variable(fill=0 if what.dtype == "<i8" else None, attrs=special.get(name))
                for name, what in RAW.items()
            },
            attrs={"kind": KIND, "ranks": int(plan["ntasks"])},
            rows={file.path.name: k for k, file in enumerate(runs)},
            numbers={one: k for k, one in enumerate(order)},
            tables=tables,
            first=files[0].path.name if files else "",
        )
        measured = {head["run_cell"] for head in heads if not (head["run_status"] or head["run_traced"])}
        if lacking := [cell for k, cell in enumerate(cells) if k not in measured]:
            made.complete = False
            named = "; ".join(f"{cell['benchmark']}: {cell['stack']}" for cell in lacking[:4])
            made.warnings.append(
                Warning(
                    "io.cell_without_data",
                    f"{len(lacking)} of {len(cells)} cells have no rate, because no run of them without the "
                    f"tracer succeeded: {named}",
                    "use a longer --budget; the warnings have the last message of each failed command",
                )
            )
        return made

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        """One run's row; the small tables come with the first file."""
        assert isinstance(layout, StudyLayout)
        if file.path.name == layout.first:
            for name, values in layout.tables.items():
                if len(values):
                    yield name, (slice(0, len(values)),), values
        row = layout.rows.get(file.path.name)
        if row is None or not layout.numbers:
            return
        traced = bool(file.header["run_traced"])
        where = (slice(row, row + 1), slice(0, len(layout.numbers)))
        for name, what in CALLS.items():
            nothing = np.nan if what.dtype == "<f8" and not traced else 0
            values = np.full((1, len(layout.numbers)), nothing, np.dtype(what.dtype))
            for records in file:
                of = [layout.numbers[str(layer), str(fn)] for layer, fn, _ in file.header["functions"]]
                mine = records["function"] != WHOLE
                values[0, np.array(of, np.int64)[records["function"][mine]]] = records[name][mine]
            yield name, where, values

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        """/raw to /summary: `study_analyse.analyse`."""
        from sonde.io.study.analyse import analyse

        return analyse(raw)

    def tables(self, tree: xr.DataTree) -> Tables:
        """The declared variables and root attributes, which `dataset.open` checks a file against."""
        return {"raw": RAW, "summary": SUMMARY, "": ATTRIBUTES}

    def validate(self, tree: xr.DataTree) -> list[Finding]:
        """The errors in a dataset; [] for a valid one."""
        return described.check("io", "/raw", tree["raw"].to_dataset(), RAW) if "raw" in tree.children else []


def _column(what: Described, values: Sequence[Any]) -> np.ndarray:
    if what.dtype == "str":
        texts = np.empty(len(values), object)
        texts[:] = [str(value) for value in values]
        return texts
    # JSON has no NaN: an unknown value is null.
    return np.array([np.nan if value is None else value for value in values], np.dtype(what.dtype))


SCHEMA = StudySchema()
