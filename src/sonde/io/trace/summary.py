"""The tables of /summary of io/1."""

from __future__ import annotations

from dataclasses import replace

from sonde.core.allowed import COUNT, codes, index
from sonde.core.described import Described
from sonde.core.described import optional as _of
from sonde.io.trace import servers, slow_servers, whatif
from sonde.io.trace.schema import OF_FUNCTION, OF_LAYER, OF_PATH, RAW

BINS = 400  # of the timeline

NAMES = (
    *OF_LAYER, *OF_FUNCTION, *OF_PATH, "process_host", "process_pid", "process_rank", "process_world",
    "process_program",
    "process_dropped", "call_cost", "clock_offset", "clock_drift", "clock_error", *servers.RAW, *whatif.RAW,
)  # fmt: skip
"""Copied from /raw: the tables of names, the counters of servers, and the results of trying hints."""

_CALLS, _LAYERS = ("process", "function"), ("process", "layer")
_REQUESTS, _SIZES = ("process", "layer", "direction"), ("layer", "direction", "size_class")
_COLLECTIVE = ("process", "direction")
_FILES, _NODE, _JOIN = ("file", "layer", "direction"), ("node",), ("join",)
_UNDER_WAY = ("under_way",)

SUMMARY: dict[str, Described] = {
    **{name: replace(what, required=False) for name, what in RAW.items() if name in NAMES},
    "calls": _of(_CALLS, "1", "calls", "<i8", allowed=COUNT),
    "failed": _of(_CALLS, "1", "calls that failed, or were left by an exception", "<i8", allowed=COUNT),
    "lost": _of(_CALLS, "1", "of these reads, writes, syncs, and closes of files", "<i8", allowed=COUNT),
    "unsized": _of(
        _CALLS, "1", "calls that moved data into or out of a layer, of unknown bytes", "<i8", allowed=COUNT
    ),
    "asked": _of(
        _CALLS,
        "1",
        "such calls whose bytes are those they were asked for, not what came",
        "<i8",
        allowed=COUNT,
    ),
    "unfinished": _of(_CALLS, "1", "calls whose end is not known", "<i8", allowed=COUNT),
    "bytes": _of(_CALLS, "B", "bytes, of calls that tell them and did not fail", "<i8", allowed=COUNT),
    "time": _of(_CALLS, "s", "time in calls, calls within them included"),
    "self_time": _of(
        _CALLS, "s", "time in calls, less that of traced calls within them and what tracing took"
    ),
    "longest": _of(_CALLS, "s", "longest call"),
    "durations": _of(
        ("function", "duration_class"), "1", "calls of 2^(k-1) to 2^k - 1 ns", "<i8", allowed=COUNT
    ),
    "layer_time": _of(_LAYERS, "s", "time in a layer and below, each moment once a thread"),
    "layer_self_time": _of(_LAYERS, "s", "time in a layer itself"),
    "requests": _of(
        _REQUESTS,
        "1",
        "reads and writes that entered a layer from above, and did not fail",
        "<i8",
        allowed=COUNT,
    ),
    "request_bytes": _of(_REQUESTS, "B", "their bytes", "<i8", allowed=COUNT),
    "request_time": _of(_REQUESTS, "s", "their time"),
    "request_asked": _of(
        _REQUESTS, "1", "those whose bytes are what they were asked for", "<i8", allowed=COUNT
    ),
    "request_sizes": _of(
        _SIZES, "1", "those of 2^(k-1) to 2^k - 1 B, of all processes", "<i8", allowed=COUNT
    ),
    "request_size_bytes": _of(_SIZES, "B", "the bytes of those", "<i8", allowed=COUNT),
    "file_requests": _of(
        _FILES, "1", "reads and writes of a file that entered a layer", "<i8", allowed=COUNT
    ),
    "file_bytes": _of(_FILES, "B", "their bytes", "<i8", allowed=COUNT),
    "file_time": _of(_FILES, "s", "their time"),
    "file_lost": _of(
        ("file", "layer"), "1", "those of `lost` that entered a layer, by file", "<i8", allowed=COUNT
    ),
    "file_mapped": _of(
        ("file",), "B", "what was mapped of a file into memory, each time", "<i8", allowed=COUNT
    ),
    "node_parent": _of(
        _NODE, "1", "path of calls that a path is within; -1 for none", "<i8", allowed=index("node", -1)
    ),
    "node_function": _of(_NODE, "1", "function at its end", "<i8", allowed=index("function")),
    "node_calls": _of(_NODE, "1", "calls by that path, of all processes", "<i8", allowed=COUNT),
    "node_bytes": _of(_NODE, "B", "their bytes", "<i8", allowed=COUNT),
    "node_time": _of(_NODE, "s", "their time"),
    "node_self_time": _of(_NODE, "s", "the same less traced calls within them and what tracing took"),
    "busy": _of(("process", "layer", "bin"), "s", "time in a layer itself, all threads of a process"),
    "bin_begin": _of(("bin",), "s", "begin of a bin since the first process began"),
    "under_way_process": _of(
        _UNDER_WAY, "1", "process of a call that was under way at its end", "<i8", allowed=index("process")
    ),
    "under_way_thread": _of(_UNDER_WAY, "1", "its thread's number in its system", "<i8"),
    "under_way_function": _of(
        _UNDER_WAY,
        "1",
        "function of it; outer calls of a thread come first",
        "<i8",
        allowed=index("function"),
    ),
    "under_way_file": _of(
        _UNDER_WAY, "1", "which of `path`; below 0 none, or unknown", "<i8", allowed=index("file", -1, -2)
    ),
    "under_way_begin": _of(_UNDER_WAY, "s", "begin of it since the first process began"),
    "tracing_time": _of(("process",), "s", "what tracing took within traced calls: taken off their own time"),
    "join_layer": _of(
        _JOIN, "1", "layer whose calls were joined to those of its clients", "<i8", allowed=index("layer")
    ),
    "join_by_number": _of(
        _JOIN,
        "1",
        "joined by the number of a request (1), or by what calls are like (0)",
        "<i8",
        allowed=codes(0, 1),
    ),
    "join_root": _of(
        _JOIN,
        "1",
        "outermost traced call that the client's call was made in",
        "<i8",
        allowed=index("function", -1),
    ),
    "join_function": _of(
        _JOIN, "1", "client's call that a request began with", "<i8", allowed=index("function")
    ),
    "join_process": _of(
        _JOIN, "1", "server that it was joined to; -1 for none", "<i8", allowed=index("process", -1)
    ),
    "join_requests": _of(_JOIN, "1", "requests", "<i8", allowed=COUNT),
    "join_bytes": _of(_JOIN, "B", "their bytes, where they tell them", "<i8", allowed=COUNT),
    "join_time": _of(_JOIN, "s", "from a request's first call of the client to its last"),
    "join_server_time": _of(_JOIN, "s", "from its first call of the server to its last"),
    "join_away_time": _of(
        _JOIN, "s", "what the first is longer than the second: transport, and waiting for it"
    ),
    "join_layer_time": _of(
        ("join", "layer"), "s", "time in each layer itself within the server's calls for it"
    ),
    "join_strays": _of(
        ("layer",), "1", "requests of a layer's servers that no traced client made", "<i8", allowed=COUNT
    ),
    **slow_servers.SUMMARY,
    "collective_time": _of(_COLLECTIVE, "s", "collective reads and writes of which the following is known"),
    "collective_untold": _of(_COLLECTIVE, "s", "those of which it is not"),
    "collective_files": _of(_COLLECTIVE, "s", "time in them at the file system"),
    "collective_late": _of(_COLLECTIVE, "s", "time in them, not there, before the last rank had come"),
    "collective_others": _of(_COLLECTIVE, "s", "time in them after that, not there, while another rank was"),
    "collective_last": _of(_COLLECTIVE, "1", "of how many a rank was the last to come", "<i8"),
    "traced_time": _of(("process",), "s", "time in traced calls, all threads of a process"),
}
