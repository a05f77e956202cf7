"""A small room of its own for tests of what knows no room: two parts, ragged series, intervals, strings.

A record is one burst: `part`, `cell`, `n` values; the rank is in the file's header. /raw holds delay(rank,
cell, sample), /summary the median of each cell with the smallest and the largest value as its interval.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import xarray as xr

from sonde import _core
from sonde.core import room, run_folder
from sonde.core.blocks import BlockFile
from sonde.core.deadline import Deadline
from sonde.core.layout import Layout, Variable
from sonde.core.room import Room
from sonde.core.section import Section

BURST = 4
RECORD = np.dtype(
    [("part", "<u4"), ("cell", "<u4"), ("n", "<u4"), ("none", "<u4"), ("value", "<f8", (BURST,))]
)
FIELDS = [
    ["part", "<u4", []],
    ["cell", "<u4", []],
    ["n", "<u4", []],
    ["none", "<u4", []],
    ["value", "<f8", [BURST]],
]
NOTHING: Callable[..., None] = lambda *_: None  # noqa: E731


class Lab:
    """The schema. `step` is called with the name of what is about to happen: tests stop or break it there."""

    room = "lab"
    version = 1

    def __init__(self, step: Callable[[str], None] = NOTHING) -> None:
        self.step = step

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        return plan.get("parts", [""])

    def _records(self, plan: Mapping[str, Any], file: BlockFile, part: str) -> np.ndarray:
        number = list(self.parts(plan)).index(part)
        return np.concatenate([np.zeros(0, RECORD), *(piece[piece["part"] == number] for piece in file)])

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> Layout:
        self.step("layout")
        ranks, cells = plan["ranks"], len(plan["cells"])
        n = np.zeros((ranks, cells), int)
        hosts = np.full(ranks, "", object)
        for file in files:
            hosts[file.header["rank"]] = file.header["host"]
            records = self._records(plan, file, part)
            np.add.at(n[file.header["rank"]], records["cell"], records["n"])
        return Layout(
            dims={"rank": ranks, "cell": cells, "sample": int(n.max(initial=0))},
            coords={"cell": (plan["cells"], {"units": "B", "long_name": "size of the cell"})},
            variables={
                "delay": Variable(
                    ("rank", "cell", "sample"),
                    "<f8",
                    {"units": "s", "long_name": "delay"},
                    chunks=(1, cells, 1 << 16),
                ),
                "n": Variable(("rank", "cell"), "<i4", {"units": "1", "long_name": "samples kept"}, fill=0),
                "host": Variable(("rank",), "str", {"long_name": "host of the rank"}),
            },
            attrs={"part": part, "calibrated": True},
            complete=bool(n.all()),
        )

    def place(self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str) -> Iterator[Any]:
        rank = file.header["rank"]
        self.step(f"place {rank}")
        row = np.full((layout.dims["cell"], layout.dims["sample"]), np.nan)
        n = np.zeros(layout.dims["cell"], np.int32)
        records = self._records(plan, file, part)
        records = records[np.argsort(records["cell"], kind="stable")]
        bounds = np.searchsorted(records["cell"], np.arange(layout.dims["cell"] + 1))
        for cell in range(layout.dims["cell"]):
            mine = records[bounds[cell] : bounds[cell + 1]]
            values = mine["value"][np.arange(BURST) < mine["n"][:, None]]
            row[cell, : len(values)], n[cell] = values, len(values)
        yield "delay", (rank, slice(None), slice(None)), row
        yield "n", (rank, slice(None)), n
        yield "host", (slice(rank, rank + 1),), np.array([file.header["host"]], object)

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        self.step("analyse")
        return summary(raw["delay"].values, raw["cell"].values)


def summary(delay: np.ndarray, cells: Sequence[int]) -> xr.Dataset:
    """Medians of delay(rank, cell, sample) with their ranges. A cell without a value is NaN."""
    if delay.shape[2] == 0:
        delay = np.full((*delay.shape[:2], 1), np.nan)
    empty = np.isnan(delay).all(axis=2)
    filled = np.where(empty[..., None], 0.0, delay)
    dims = ("rank", "cell")

    def of(reduce: Callable[..., np.ndarray], what: str) -> tuple[Any, ...]:
        return dims, np.where(empty, np.nan, reduce(filled, axis=2)), {"units": "s", "long_name": what}

    return xr.Dataset(
        {
            "median": of(np.nanmedian, "median delay"),
            "median_low": of(np.nanmin, "lower end of the interval of the median"),
            "median_high": of(np.nanmax, "upper end of the interval of the median"),
            "spread": ((), float(np.nanstd(filled)), {"units": "s", "long_name": "spread of all delays"}),
        },
        coords={"cell": ("cell", np.asarray(cells), {"units": "B", "long_name": "size of the cell"})},
    )


SCHEMA = Lab()
ENDED = {
    "stop_reason": "converged",
}
ATTRS = {
    "command": "sonde lab run",
    "created_utc": "2026-11-20T21:47:57Z",
    "seed": 7,
    "hostlist": "n[001-002]",
    "job_id": "",
    "oversubscribed": False,
    "kernel": "6.1.0",
}


def bursts(rank: int, cells: int, count: int, part: int = 0, scale: float = 1.0) -> np.ndarray:
    """`count` bursts for each cell of a rank; every value tells where it belongs."""
    made = np.zeros(cells * count, RECORD)
    made["part"] = part
    made["cell"] = np.tile(np.arange(cells), count)
    made["n"] = BURST
    burst = np.repeat(np.arange(count), cells)
    made["value"] = scale * (
        1e-6 * (1 + rank) + 1e-8 * made["cell"][:, None] + 1e-10 * (burst[:, None] * BURST + np.arange(BURST))
    )
    return made


def make_run(
    folder: Path,
    ranks: int = 3,
    cells: Sequence[int] = (0, 100),
    count: int = 5,
    ended: bool = True,
    parts: Sequence[str] = ("",),
    attrs: Mapping[str, Any] = {},
    env: Mapping[str, Any] = {},
    scale: float = 1.0,
) -> Path:
    """A run's folder as probes leave it, written with their writer."""
    run_folder.start(
        folder,
        room="lab",
        schema="lab/1",
        attrs=ATTRS | dict(attrs),
        plan={"ranks": ranks, "cells": list(cells), "parts": list(parts)},
        env=env,
    )
    for rank in range(ranks):
        header = json.dumps({"fields": FIELDS, "rank": rank, "host": f"n{rank + 1:03d}"})
        path = str(folder / f"rank-{rank:05d}.blk")
        writer = _core.BlockWriter(path, header, RECORD.itemsize, 1 << 16)
        made = [bursts(rank, len(cells), count, number, scale * (1 + number)) for number in range(len(parts))]
        for epoch in range(count):
            for mine in made:
                writer.append(mine[epoch * len(cells) : (epoch + 1) * len(cells)])
            writer.flush()
        writer.close()
    if ended:
        run_folder.end(folder, ENDED)
    return folder


def expected(rank: int, cells: int, count: int, part: int = 0, scale: float = 1.0) -> np.ndarray:
    """delay(cell, sample) of one rank, as `make_run` fills it."""
    made = bursts(rank, cells, count, part, scale * (1 + part))
    return made["value"].reshape(count, cells, BURST).transpose(1, 0, 2).reshape(cells, count * BURST)


def in_child(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another Python that knows the fake room; `code` sees sys.argv[1:]."""
    text = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n" + textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", text, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class LabRoom(Room):
    """The room, as the parts above the rooms find it. made_section: makes its part of a report."""

    name = "lab"
    title = "Laboratory"
    help = "For tests."

    def __init__(self, made_section: Callable[[Any, str], Section] | None = None) -> None:
        self.made_section = made_section

    def schema(self) -> Any:
        return SCHEMA

    def section(self, tree: xr.DataTree, dataset: str) -> Section:
        assert self.made_section is not None
        return self.made_section(tree, dataset)

    def survey_entry(self) -> Any:
        raise NotImplementedError


def install(made_section: Callable[[Any, str], Section] | None = None) -> Callable[[], None]:
    """Makes `lab` one of the rooms. Returns what takes it away again."""
    package, module, names = ModuleType("sonde.lab"), ModuleType("sonde.lab.room"), room.NAMES
    package.__path__ = []  # type: ignore[attr-defined]
    module.ROOM = LabRoom(made_section)  # type: ignore[attr-defined]
    sys.modules |= {"sonde.lab": package, "sonde.lab.room": module}
    room.NAMES = (*names, "lab")

    def remove() -> None:
        room.NAMES = names
        for name in ("sonde.lab", "sonde.lab.room"):
            sys.modules.pop(name, None)

    return remove
