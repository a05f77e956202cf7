"""What /summary of io/1 holds."""

from __future__ import annotations

from dataclasses import replace

from sonde.core.described import Described
from sonde.core.described import optional as _of
from sonde.io.schema import OF_FUNCTION, OF_LAYER, OF_PATH, RAW

BINS = 400  # of the timeline
CLASSES = 64  # of sizes and durations, by powers of two
DIRECTIONS = ("read", "write")

NAMES = (
    *OF_LAYER, *OF_FUNCTION, *OF_PATH, "process_host", "process_pid", "process_rank", "process_program",
    "process_dropped", "call_cost", "clock_offset", "clock_drift", "clock_error",
)  # fmt: skip
"""What is copied from /raw: the tables that the others are read by."""

_CALLS, _LAYERS = ("process", "function"), ("process", "layer")
_REQUESTS, _SIZES = ("process", "layer", "direction"), ("layer", "direction", "size_class")
_FILES, _NODE = ("file", "layer", "direction"), ("node",)

SUMMARY: dict[str, Described] = {
    **{name: replace(what, required=False) for name, what in RAW.items() if name in NAMES},
    "calls": _of(_CALLS, "1", "calls", "<i8"),
    "failed": _of(_CALLS, "1", "calls that failed, or were left by an exception", "<i8"),
    "unfinished": _of(_CALLS, "1", "calls whose end is not known", "<i8"),
    "bytes": _of(_CALLS, "B", "bytes, of calls that tell them", "<i8"),
    "time": _of(_CALLS, "s", "time in calls, calls within them included"),
    "self_time": _of(
        _CALLS, "s", "time in calls, less that of traced calls within them and what tracing took"
    ),
    "longest": _of(_CALLS, "s", "longest call"),
    "durations": _of(("function", "duration_class"), "1", "calls of 2^(k-1) to 2^k - 1 ns", "<i8"),
    "layer_time": _of(_LAYERS, "s", "time in a layer and below, each moment once a thread"),
    "layer_self_time": _of(_LAYERS, "s", "time in a layer itself"),
    "requests": _of(_REQUESTS, "1", "reads and writes that entered a layer from above", "<i8"),
    "request_bytes": _of(_REQUESTS, "B", "their bytes", "<i8"),
    "request_time": _of(_REQUESTS, "s", "their time"),
    "request_sizes": _of(_SIZES, "1", "those of 2^(k-1) to 2^k - 1 B, of all processes", "<i8"),
    "request_size_bytes": _of(_SIZES, "B", "the bytes of those", "<i8"),
    "file_requests": _of(_FILES, "1", "reads and writes of a file that entered a layer", "<i8"),
    "file_bytes": _of(_FILES, "B", "their bytes", "<i8"),
    "file_time": _of(_FILES, "s", "their time"),
    "node_parent": _of(_NODE, "1", "path of calls that a path is within; -1 for none", "<i8"),
    "node_function": _of(_NODE, "1", "function at its end", "<i8"),
    "node_calls": _of(_NODE, "1", "calls by that path, of all processes", "<i8"),
    "node_bytes": _of(_NODE, "B", "their bytes", "<i8"),
    "node_time": _of(_NODE, "s", "their time"),
    "node_self_time": _of(_NODE, "s", "the same less traced calls within them and what tracing took"),
    "busy": _of(("process", "layer", "bin"), "s", "time in a layer itself, all threads of a process"),
    "bin_begin": _of(("bin",), "s", "begin of a bin since the first process began"),
    "tracing_time": _of(("process",), "s", "what tracing took within traced calls: taken off their own time"),
    "traced_time": _of(("process",), "s", "time in traced calls, all threads of a process"),
}
