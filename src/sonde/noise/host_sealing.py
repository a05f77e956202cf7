"""From the records of block files to datasets of noise/1 of kind `host`: layout, place, analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.allowed import COUNT, FINITE, codes, count_of
from sonde.core.described import ROOT, Described, Tables, attribute, optional
from sonde.core.errors import DataError, Warning
from sonde.core.layout import Layout, Variable

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile
    from sonde.core.deadline import Deadline
from sonde.noise.host_schema import CPU

_CHUNK = 65536
_DIM = {"detour": "detour", "fwq": "quantum", "window": "window"}
# name: (name in the records, dtype, unit, long name)
WINDOW: dict[str, tuple[str, str, str, str]] = {
    "window_begin": ("begin", "<f8", "s", "begin of a window"),
    "window_end": ("end", "<f8", "s", "end of a window"),
    "window_lost": ("lost", "<f8", "s", "total length of its detours, including those that were not stored"),
    "window_run_delay": (
        "run_delay",
        "<f8",
        "s",
        "time in which the measuring thread waited for its CPU; NaN: unknown",
    ),
    "window_steal": (
        "steal",
        "<f8",
        "s",
        "time that the hypervisor gave to others, by the kernel's counters",
    ),
    "window_gap": ("gap", "<f8", "s", "time since the window before"),
    "window_loops": ("loops", "<i8", "1", "turns of the loop, or quanta"),
    "window_gaps": ("gaps", "<i8", "1", "detours, including those that were not stored"),
    "window_method": ("method", "|i1", "1", "0 detour, 1 fixed work quantum"),
    "window_involuntary": ("involuntary", "<i4", "1", "involuntary context switches of the measuring thread"),
    "window_voluntary": ("voluntary", "<i4", "1", "voluntary context switches of the measuring thread"),
}
_CELL = ("cpu", "window")
RAW: dict[str, Described] = {
    **{
        f"{what}_{name}": optional(("cpu", _DIM[what]), "s", f"{name} of a {text}", "<f8", FINITE)
        for what, text in (("detour", "detour"), ("fwq", "quantum"))
        for name in ("begin", "length")
    },
    **{
        name: optional(_CELL, unit, text, dtype, FINITE if dtype == "<f8" else COUNT)
        for name, (_, dtype, unit, text) in WINDOW.items()
    },
    "window_method": optional(_CELL, "1", WINDOW["window_method"][3], "|i1", codes(0, 1)),
    "counters": optional(
        (*_CELL, "counter"), "1", "interrupts during a window and the gap after it", "<i8", COUNT
    ),
    **{name: optional(("cpu",), unit, text, "<f8", FINITE) for name, (_, unit, text) in CPU.items()},
    **{
        f"{what}_n": optional(("cpu",), "1", f"{what}s that are stored", "<i8", count_of(dim))
        for what, dim in _DIM.items()
    },
    "cpu": optional(("cpu",), "1", "CPU", "<i4", COUNT),
    "counter": optional(("counter",), "", "row of /proc/interrupts; of /proc/softirqs after 'soft '", "str"),
}
"""The variables of /raw and their allowed values."""
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
        longest = dict.fromkeys(_DIM.values(), 1)
        cpus: set[int] = set()
        seen: set[int] = set()
        for file in files:
            what = file.header.get("what")
            if file.header.get("kind") != "host" or what not in _DIM:
                raise DataError(
                    "noise.not_host_blocks",
                    f"{file.path.name} was not written by sonde-detour",
                    "keep the files of one run in its folder, and only these",
                )
            counters.update(dict.fromkeys(map(str, file.header["counters"])))
            longest[_DIM[what]] = max(longest[_DIM[what]], file.records)
            cpus.add(int(file.header["cpu"]))
            if what == "window" and file.records:
                seen.add(int(file.header["cpu"]))
        numbers = sorted(cpus)
        names = list(counters) or ["none"]
        first = files[0].header if files else {}
        layout = Layout(
            dims={"cpu": len(numbers), **longest, "counter": len(names)},
            coords={
                "cpu": (np.array(numbers, np.int32), {"units": "1", "long_name": "CPU"}),
                "counter": (
                    np.array(names, object),
                    {"long_name": "row of /proc/interrupts; of /proc/softirqs after 'soft '"},
                ),
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
        from sonde.noise.host import analyse

        return analyse(raw)

    def tables(self, tree: xr.DataTree) -> Tables:
        """The declared variables and root attributes, with which `dataset.open` compares a file."""
        from sonde.noise.host import SUMMARY

        return {"raw": RAW, "summary": SUMMARY, "": ATTRIBUTES}


def _variables(longest: Mapping[str, int], counters: int) -> dict[str, Variable]:
    out: dict[str, Variable] = {}
    for what, text in (("detour", "detour"), ("fwq", "quantum")):
        dim = _DIM[what]
        chunks = (1, min(longest[dim], _CHUNK))
        for name, long_name in (("begin", f"begin of a {text}"), ("length", f"length of a {text}")):
            attrs = {"units": "s", "long_name": long_name}
            out[f"{what}_{name}"] = Variable(("cpu", dim), "<f8", attrs, np.nan, chunks)
    for name, (_, dtype, unit, text) in WINDOW.items():
        fill = np.nan if dtype == "<f8" else 0
        chunks = (1, min(longest["window"], _CHUNK))
        out[name] = Variable(("cpu", "window"), dtype, {"units": unit, "long_name": text}, fill, chunks)
    out["counters"] = Variable(
        ("cpu", "window", "counter"),
        "<i8",
        {"units": "1", "long_name": "interrupts during a window and the gap after it"},
        0,
        (1, min(longest["window"], 1024), counters),
    )
    for name, (_, unit, text) in CPU.items():
        out[name] = Variable(("cpu",), "<f8", {"units": unit, "long_name": text}, np.nan)
    for what, text in (("detour", "detours stored"), ("fwq", "quanta stored"), ("window", "windows")):
        out[f"{what}_n"] = Variable(("cpu",), "<i8", {"units": "1", "long_name": text}, 0)
    return out


SCHEMA = HostSchema()
