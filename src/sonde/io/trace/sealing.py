"""Turn records of block files into datasets of io/1 that are traces: layout, placement, analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import described
from sonde.core.described import Tables, attribute
from sonde.core.errors import Finding, Warning
from sonde.core.layout import Layout
from sonde.io.maps.layers import KINDS
from sonde.io.trace.events import ENTRY_ONLY, FAILED, UNFINISHED, UNKNOWN, folded, pieces
from sonde.io.trace.functions import OwnNumbers
from sonde.io.trace.layout import IoLayout, layout_of, of_requests, prefix
from sonde.io.trace.opened_files import DESCRIPTORS, GIVEN, STANDARD
from sonde.io.trace.schema import RAW, UNSEEN

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile
    from sonde.core.deadline import Deadline

ATTRIBUTES = {**described.ROOT, "status": attribute("exit status of the program")}
_BETWEEN_RANKS = (KINDS.index("communicate"), KINDS.index("wait"))
_OPEN, _MAP = KINDS.index("open"), KINDS.index("map")
_NO_DESCRIPTOR = int(folded(np.array([2**64 - 1], np.uint64))[0])


class TraceSchema:
    """RoomSchema of a trace (`sonde.core.seal`). Plan keys: docs of `layout`."""

    room = "io"
    version = 1

    def close(self, folder: Path, ended: bool) -> tuple[dict[str, Any], list[Warning]]:
        """Complete the tracer's files before they are read: `sonde.io.trace.run_close.close`."""
        from sonde.io.trace.run_close import close

        return close(folder, ended)

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        """One dataset for all processes."""
        return [""]

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> IoLayout:
        """Count the contents of the files.

        Parameters
        ----------
        plan : layers [{name, title, serves}] from the application down; rules [[layer, kind, request, copies, named,
               numbered]] as the tracer numbers them, request: the offset of a record is a request number; copies: the
               size of a record is a second handle of the file if the offset is one of these values ([] for always, null
               for never); named: a file that it opens has a name; numbered: its handles are numbers, and 0 is a valid
               one; own, the layer of the tracer's own work, if there is one; tables, table_of, servers
               (`run_close.close`); clocks [[host, ticks, ns]] read where the run was started; open [[host, pid, handle,
               path]], the open handles of processes when tracing attached to them, with the path "" for sockets, pipes
               and the like
        files : one block file for each thread

        Raises
        ------
        DataError  io.not_io_blocks.
        """
        return layout_of(plan, files)

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        """Yield pieces of /raw from one file; the small tables come with the first file."""
        assert isinstance(layout, IoLayout)
        if file.path.name == next(iter(layout.files)):
            for name, values in layout.tables.items():
                if values.size:
                    yield name, tuple(slice(0, length) for length in values.shape), values
        one, own = layout.files[file.path.name], layout.own[prefix(file)]
        at, at_request, at_source = one.first, one.first_request, one.first_source
        host = layout.hosts[one.process]
        for piece in pieces(file):
            for process, calls in one.by_image(piece.calls):
                if len(found := np.flatnonzero(of_requests(own.requests, calls))):
                    into = (slice(at_request, at_request := at_request + len(found)),)
                    yield "request_event", into, at + found
                    yield "request_number", into, calls["offset"][found].view(np.int64)
                if len(found := np.flatnonzero(of_requests(own.sources, calls))):
                    into = (slice(at_source, at_source := at_source + len(found)),)
                    yield "source_event", into, at + found
                    yield "source_file", into, _source_files(layout, process, own, calls[found])
                where = (slice(at, at := at + len(calls)),)
                for name, values in _columns(layout, process, host, own, calls).items():
                    yield name, where, values

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        """/raw to /summary: `sonde.io.trace.analyse.analyse`."""
        from sonde.io.trace.analyse import analyse

        return analyse(raw)

    def tables(self, tree: xr.DataTree) -> Tables:
        """The declared variables and root attributes, which `dataset.open` checks a file against."""
        from sonde.io.trace.summary import SUMMARY

        return {"raw": RAW, "summary": SUMMARY, "": ATTRIBUTES}

    def validate(self, tree: xr.DataTree) -> list[Finding]:
        """The errors in a dataset; [] for a valid one."""
        return described.check("io", "/raw", tree["raw"].to_dataset(), RAW) if "raw" in tree.children else []


def _source_files(layout: IoLayout, process: int, own: OwnNumbers, calls: np.ndarray) -> np.ndarray:
    """The second file that each call read: the handle is in place of an offset."""
    calls["file"] = folded(calls["offset"])
    return _paths(layout, process, calls, own.settled[calls["function"]], np.ones(len(calls), bool))


def _columns(
    layout: IoLayout, process: int, host: str, own: OwnNumbers, calls: np.ndarray
) -> dict[str, np.ndarray]:
    """The variables of events, one value for each call."""
    begin = layout.clocks.ns(host, calls["begin"])
    end = layout.clocks.ns(host, calls["end"])
    unfinished = (calls["flags"] & UNFINISHED) != 0
    if unfinished.any():  # up to the last known moment of its process
        end[unfinished] = layout.clocks.ns(host, max(int(calls["end"].max()), int(calls["begin"].max())))
    end[(calls["flags"] & ENTRY_ONLY) != 0] = begin[(calls["flags"] & ENTRY_ONLY) != 0]
    begin_ns = begin.round().astype(np.int64)
    functions = own.settled[calls["function"]]
    size, offset = _known(calls["size"]), _known(calls["offset"])
    # Some functions record other things in these places.
    offset[(own.requests | own.sources)[calls["function"]]] = -1
    copies = own.copies[calls["function"]]
    size[copies] = offset[copies] = -1
    return {
        "begin": begin_ns,
        "duration": np.maximum(end.round().astype(np.int64) - begin_ns, 0),
        "size": size,
        "offset": offset,
        "file_index": _paths(layout, process, calls, functions, own.numbered[calls["function"]]),
        "function_index": functions,
        "depth": calls["depth"],
        "flags": calls["flags"],
    }


def _known(values: np.ndarray) -> np.ndarray:
    """The values, with -1 for unknown and impossible sizes."""
    signed = values.astype(np.int64)
    return np.where((values == UNKNOWN) | (signed < 0), np.int64(-1), signed)


def _paths(
    layout: IoLayout, process: int, calls: np.ndarray, functions: np.ndarray, numbered: np.ndarray
) -> np.ndarray:
    """The file of each call: the last that was opened under its handle before the call began, in its layer or another,
    by its process or one that it was forked from. Messages between ranks have communicators as handles."""
    found = np.full(len(calls), -1, np.int32)
    keys = layout.layer_of[functions].astype(np.int64) << 32 | calls["file"].astype(np.int64)
    of_file = ((calls["file"] != 0) | numbered) & ~np.isin(layout.kind_of[functions], _BETWEEN_RANKS)
    # An opening call has its handle at its end: at its begin the handle may still have belonged to another thread.
    opens = (layout.kind_of[functions] == _OPEN) & (calls["end"] > calls["begin"])
    when = np.where(opens, calls["end"], calls["begin"])
    for key in np.unique(keys[of_file]).tolist():
        mine = np.flatnonzero((keys == key) & of_file)
        files = layout.opened.meant(process, int(key >> 32), int(key & 0xFFFFFFFF), when[mine])
        if files is not None:
            found[mine] = files
    # No descriptor: memory without a file, or calls on a file that the program could not open.
    given = np.isin(layout.layer_of[functions], layout.of_descriptors) & (layout.kind_of[functions] != _OPEN)
    found[given & (calls["file"] == _NO_DESCRIPTOR)] = UNSEEN
    # Above the standard descriptors: sockets, pipes, and everything else whose opening was not traced.
    if layout.opened.all_traced(process):
        mine = of_file & (found == -1) & (calls["file"] > STANDARD) & (calls["file"] < DESCRIPTORS)
        found[mine] = UNSEEN
        if layout.opened.all_given(process):
            # Known are the sockets and pipes that C library functions made, and those given at the program's start.
            used = (calls["flags"] & (FAILED | ENTRY_ONLY)) == 0
            used &= (layout.kind_of[functions] != _MAP) & (layout.layer_of[functions] == layout.descriptors)
            found[mine & used] = layout.opened.opened_unseen
    found[found == GIVEN] = -1
    return found
