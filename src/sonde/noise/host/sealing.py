"""From the records of block files to datasets of noise/1 of kind `host`: layout, place, analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.allowed import COUNT
from sonde.core.described import ROOT, Tables, attribute
from sonde.core.errors import DataError, Warning
from sonde.core.layout import Layout, Variable

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile
    from sonde.core.deadline import Deadline
from sonde.noise.host.schema import CPU, DIM, RAW, SUMMARY, WINDOW

_CHUNK = 65536
ATTRIBUTES = {
    **ROOT,
    "window_s": attribute("length of a window, s", COUNT),
    "quantum_s": attribute("length of a quantum, s", COUNT),
}


class HostSchema:
    """The RoomSchema of this kind. Plan keys: `cpus`, the numbers of the CPUs to measure."""

    room, version = "noise", 1

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        return [""]

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> Layout:
        """A layout with one row for each CPU that has a file.

        Raises
        ------
        DataError  noise.not_host_blocks: a file was not written by sonde-detour.
        """
        counters: dict[str, None] = {}
        longest = dict.fromkeys(DIM.values(), 1)
        cpus: set[int] = set()
        seen: set[int] = set()
        for file in files:
            what = file.header.get("what")
            if file.header.get("kind") != "host" or what not in DIM:
                raise DataError(
                    "noise.not_host_blocks",
                    f"{file.path.name} was not written by sonde-detour",
                    "keep the files of one run in its folder, and only these",
                )
            counters.update(dict.fromkeys(map(str, file.header["counters"])))
            longest[DIM[what]] = max(longest[DIM[what]], file.records)
            cpus.add(int(file.header["cpu"]))
            if what == "window" and file.records:
                seen.add(int(file.header["cpu"]))
        numbers = sorted(cpus)
        names = list(counters) or ["none"]
        first = files[0].header if files else {}
        layout = Layout(
            dims={"cpu": len(numbers), **longest, "counter": len(names)},
            coords={
                "cpu": (np.array(numbers, np.int32), RAW["cpu"].attrs()),
                "counter": (np.array(names, object), RAW["counter"].attrs()),
            },
            variables=_variables(longest, len(names)),
            attrs={
                "kind": "host",
                "ticks": str(first.get("ticks", "")),
                "window_s": float(first.get("window_s", 0.0)),
                "quantum_s": float(first.get("quantum_s", 0.0)),
            },
        )
        silent = [int(cpu) for cpu in plan.get("cpus", ()) if int(cpu) not in seen]
        if silent:
            layout.complete = False
            layout.warnings.append(
                Warning(
                    "noise.cpu_silent",
                    f"there is no record of CPU {', '.join(map(str, silent[:16]))}",
                    "measure again for a longer time",
                )
            )
        return layout

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        """The data of one file for its CPU."""
        what = str(file.header["what"])
        row = int(np.searchsorted(layout.coords["cpu"][0], int(file.header["cpu"])))
        at = 0
        order = [list(layout.coords["counter"][0]).index(name) for name in file.header["counters"]]
        for records in file:
            where = slice(at, at + len(records))
            if what == "window":
                for name, (key, dtype, *_) in WINDOW.items():
                    yield name, (row, where), records[key].astype(dtype)
                table = np.zeros((len(records), layout.dims["counter"]), np.int64)
                if order:
                    table[:, order] = records["counters"][:, : len(order)]
                yield "counters", (row, where, slice(None)), table
            else:
                yield f"{what}_begin", (row, where), records["begin"]
                yield f"{what}_length", (row, where), records["length"]
            at += len(records)
        yield f"{what}_n", (slice(row, row + 1),), np.array([at], np.int64)
        if what == "window":
            for name, (key, *_) in CPU.items():
                yield name, (slice(row, row + 1),), np.array([float(file.header.get(key, np.nan))])

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        """From /raw to /summary: `host.analyse`."""
        from sonde.noise.host.analyse import analyse

        return analyse(raw)

    def tables(self, tree: xr.DataTree) -> Tables:
        """The declared variables and root attributes, with which `dataset.open` compares a file."""
        return {"raw": RAW, "summary": SUMMARY, "": ATTRIBUTES}


def _variables(longest: Mapping[str, int], counters: int) -> dict[str, Variable]:
    out: dict[str, Variable] = {}
    for name, what in RAW.items():
        if name in ("cpu", "counter"):  # coordinates
            continue
        fill = np.nan if what.dtype == "<f8" else 0
        chunks: tuple[int, ...] | None = None
        if len(what.dims) == 2:
            chunks = (1, min(longest[what.dims[1]], _CHUNK))
        elif len(what.dims) == 3:
            chunks = (1, min(longest["window"], 1024), counters)
        out[name] = what.variable(fill, chunks)
    return out


SCHEMA = HostSchema()
