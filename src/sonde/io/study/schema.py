"""Datasets of kind `study`, the results of `sonde io study`. ARCHITECTURE.md, "io/1", describes the table.

Each finished run leaves its own block file, `run-00007.blk`: its header describes the run and its result, a record
describes a function. So finished runs are stored however the study ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sonde.core.allowed import NUMBERED, codes, index
from sonde.core.described import Described
from sonde.io.maps.layers import KINDS

if TYPE_CHECKING:
    pass

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
