"""io/1: the tables of a trace of `sonde io`, and how the tracer's files become /raw.

docs/reference/schemas.md, "io/1", is the definition; the table RAW here contains the same as data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.core.allowed import COUNT, FINITE, NUMBERED, codes, count_of, index
from sonde.core.described import Described, optional
from sonde.io.maps.layers import KINDS
from sonde.io.trace import servers, whatif

if TYPE_CHECKING:
    pass

NAME = "io/1"
CHUNK = 1 << 16  # events

EVENT: dict[str, Described] = {
    "begin": Described(("event",), "<i8", "ns", "begin of a call since the first process began"),
    "duration": Described(("event",), "<i8", "ns", "time from the begin of a call to its end"),
    "size": Described(("event",), "<i8", "B", "bytes asked for, or moved where the result tells; -1 unknown"),
    "offset": Described(("event",), "<i8", "B", "where in the file; -1 unknown"),
    "file_index": Described(
        ("event",),
        "<i4",
        "1",
        "which of `path`; -1 none, or unknown; -2 a socket, a pipe, or what none was seen to open",
        allowed=index("file", -1, -2),
    ),
    "function_index": Described(
        ("event",), "<i2", "1", "which of `function_name`", allowed=index("function", -1)
    ),
    "depth": Described(("event",), "|u1", "1", "traced calls around it in its thread, at most 255"),
    "flags": Described(("event",), "|u1", "1", "how a call ended"),
}
OF_LAYER: dict[str, Described] = {
    "layer_name": Described(("layer",), "str", "", "name of a layer, from the application down"),
    "layer_title": Described(("layer",), "str", "", "what a layer is called"),
    "layer_watched": Described(
        ("layer",), "<i4", "1", "functions of a layer that were found and watched", allowed=COUNT
    ),
    "layer_serves": optional(
        ("layer",), "", "of a layer of servers the name of that of their clients", "str"
    ),
}
OF_FUNCTION: dict[str, Described] = {
    "function_name": Described(("function",), "str", "", "symbol of a function that was called"),
    "function_library": Described(("function",), "str", "", "library that defines it"),
    "function_layer": Described(("function",), "<i2", "1", "its layer", allowed=index("layer")),
    "function_kind": Described(("function",), "|i1", "1", "what it does", allowed=codes(*range(len(KINDS)))),
    "function_engine": Described(
        ("function",), "|i1", "1", "how its calls were seen", allowed=codes(*range(4))
    ),
}
OF_PROCESS: dict[str, Described] = {
    "process_host": Described(("process",), "str", "", "host of a process"),
    "process_pid": Described(("process",), "<i4", "1", "its number there"),
    "process_parent": Described(("process",), "<i4", "1", "number of the process that started it"),
    "process_rank": Described(("process",), "<i4", "1", "its MPI rank; -1 none", allowed=NUMBERED),
    "process_world": optional(
        ("process",),
        "1",
        "which MPI program it is a rank of, in the order in which they began; -1 none",
        "<i4",
        allowed=NUMBERED,
    ),
    "process_program": Described(("process",), "str", "", "its executable"),
    "process_begin": Described(
        ("process",), "<i8", "ns", "when its tracing began since the first process began"
    ),
    "process_dropped": Described(("process",), "<i8", "1", "calls that found no room", allowed=COUNT),
    "call_cost": Described(
        ("process",), "<f8", "ns", "what tracing adds to a call that is interposed, at least", allowed=FINITE
    ),
    "call_cost_inside": Described(
        ("process",), "<f8", "ns", "how much of that lies within the call's own duration", allowed=FINITE
    ),
    "clock_offset": Described(
        ("process",), "<f8", "s", "clock of its host minus that of the first process's host", allowed=FINITE
    ),
    "clock_drift": Described(
        ("process",), "<f8", "1", "how much faster its host's clock runs than the first's", allowed=FINITE
    ),
    "clock_error": Described(
        ("process",), "<f8", "s", "error of that; NaN where hosts trust their time service", allowed=FINITE
    ),
}
OF_THREAD: dict[str, Described] = {
    "thread_process": Described(("thread",), "<i4", "1", "process of a thread", allowed=index("process")),
    "thread_number": Described(("thread",), "<i4", "1", "its number in its system"),
    "thread_first": Described(("thread",), "<i8", "1", "its first event", allowed=count_of("event")),
    "thread_events": Described(
        ("thread",), "<i8", "1", "its events, in the order in which they ended", allowed=count_of("event")
    ),
}
OF_REQUEST: dict[str, Described] = {
    "request_event": optional(
        ("request",), "1", "which event has a request's number", "<i8", allowed=index("event")
    ),
    "request_number": optional(("request",), "1", "number that all calls for one request have", "<i8"),
}
OF_SOURCE: dict[str, Described] = {
    "source_event": optional(
        ("source",),
        "1",
        "which event reads a second file what it writes to its own",
        "<i8",
        allowed=index("event"),
    ),
    "source_file": optional(
        ("source",),
        "1",
        "which of `path` that is; below 0 as `file_index`",
        "<i4",
        allowed=index("file", -1, -2),
    ),
}
OF_PATH: dict[str, Described] = {"path": Described(("file",), "str", "", "name by which a file was opened")}
RAW = {
    **EVENT,
    **OF_LAYER,
    **OF_FUNCTION,
    **OF_PROCESS,
    **OF_THREAD,
    **OF_REQUEST,
    **OF_SOURCE,
    **OF_PATH,
    **servers.RAW,
    **whatif.RAW,
}


ENGINES = ("interposition", "uprobe", "tracepoint", "profile")
RANKLESS = -1
UNSEEN = -2  # in `file_index`
OPENED_UNSEEN = "(descriptors opened unseen)"  # in `path`
OWN_NAME = "(own work)"  # of the tracer, as a function
