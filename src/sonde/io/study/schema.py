"""Datasets of kind `study`, the results of `sonde io study`. docs/reference/schemas.md, "io/1", describes the table.

Each finished run leaves its own block file, `run-00007.blk`: its header describes the run and its result, a record
describes a function. So finished runs are stored however the study ends.
"""

from __future__ import annotations

import numpy as np

from sonde.core.allowed import COUNT, NUMBERED, codes, index
from sonde.core.described import Described
from sonde.core.described import optional as _of
from sonde.io.maps.layers import KINDS

RECORD = np.dtype(
    [
        ("function", "<i4"),  # which of the header's; -1: of the run itself
        ("calls", "<i8"),
        ("bytes", "<i8"),
        ("time", "<f8"),
        ("self_time", "<f8"),
    ]
)
FIELDS = {
    "fields": [[name, RECORD[name].str, []] for name in RECORD.names or ()]
}  # as headers of block files say it
WHOLE = -1

OF_CELL: dict[str, Described] = {
    "cell_workload": Described(("cell",), "str", "", "command line of a cell's benchmark"),
    "cell_benchmark": Described(("cell",), "str", "", "what cells are compared within: workload and size"),
    "cell_size": Described(
        ("cell",),
        "<i8",
        "B",
        "size of the file or files asked for; -1: as the workload says",
        allowed=NUMBERED,
    ),
    "cell_stack": Described(("cell",), "str", "", "configuration of the stack"),
    "cell_io": Described(
        ("cell",), "str", "", "Open MPI's component for MPI-IO; default: the MPI's own choice"
    ),
    "cell_hints": Described(("cell",), "str", "", "hints for MPI-IO"),
    "cell_place": Described(("cell",), "str", "", "folder of the files"),
    "cell_cluster": Described(("cell",), "str", "", "virtual cluster of the ranks; empty: this host"),
}
OF_FUNCTION: dict[str, Described] = {
    "function_name": Described(("function",), "str", "", "symbol of a function that was called"),
    "function_layer": Described(("function",), "<i2", "1", "its layer", allowed=index("layer")),
    "function_kind": Described(("function",), "|i1", "1", "what it does", allowed=codes(*range(len(KINDS)))),
}
OF_LAYER: dict[str, Described] = {
    "layer_name": Described(("layer",), "str", "", "name of a layer, from the application down"),
    "layer_title": Described(("layer",), "str", "", "what a layer is called"),
}
LIMITS = ("write", "read", "network")

_RATE, _FUNCTION, _LAYER, _PLACE = (
    ("cell", "direction"),
    ("cell", "function"),
    ("cell", "layer"),
    ("place", "what"),
)


def _with_ends(name: str, dims: tuple[str, ...], units: str, text: str) -> dict[str, Described]:
    ends = {f"{name}_{end}": _of(dims, units, f"{text}: {end} end of 95 %") for end in ("low", "high")}
    return {name: _of(dims, units, text), **ends}


SUMMARY: dict[str, Described] = {
    **OF_CELL,
    **OF_FUNCTION,
    **OF_LAYER,
    "direction": Described(("direction",), "str", "", "writing or reading"),
    "runs": _of(
        ("cell",), "1", "runs without the tracer that count: of these are the rates", "<i8", allowed=COUNT
    ),
    "traced_runs": _of(
        ("cell",),
        "1",
        "runs with the tracer that count: of these are calls and times of functions",
        "<i8",
        allowed=COUNT,
    ),
    "failed_runs": _of(("cell",), "1", "runs whose command failed", "<i8", allowed=COUNT),
    "baseline": _of(
        ("cell",),
        "1",
        "the cell that this one is compared with: the first of its benchmark",
        "<i8",
        allowed=index("cell"),
    ),
    **_with_ends("rate", _RATE, "B/s", "median rate over runs without the tracer"),
    **_with_ends("ratio", _RATE, "1", "rate over that of the baseline, by rounds"),
    **_with_ends("slowdown", ("cell",), "1", "time in I/O with the tracer over that without, by rounds"),
    **_with_ends(
        "function_time", _FUNCTION, "s", "median time of a rank in a function, calls within it included"
    ),
    **_with_ends("function_self_time", _FUNCTION, "s", "median time of a rank in a function itself"),
    "function_calls": _of(_FUNCTION, "1", "median number of calls in a run, of all ranks"),
    "function_bytes": _of(_FUNCTION, "B", "median of their bytes"),
    **_with_ends("layer_self_time", _LAYER, "s", "median time of a rank in a layer itself"),
    "place_name": Described(("place",), "str", "", "a place of files, or a cluster's network"),
    "place_cluster": Described(("place",), "str", "", "the cluster, where it is a network"),
    "what": Described(("what",), "str", "", "what was measured alone"),
    "limit_by": Described(_PLACE, "str", "", "with what it was measured"),
    "limit_runs": _of(_PLACE, "1", "how often", "<i8", allowed=COUNT),
    **_with_ends("limit", _PLACE, "B/s", "median rate of a place or network alone"),
}
