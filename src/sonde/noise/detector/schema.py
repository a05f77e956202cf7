"""Datasets of kind `run`: blocks of a timed loop of collectives, with an agent on in some of them.

The tables BLOCK, STALL … describe the variables of /raw; `native/noise/detector/recorder.hpp` describes the records
that they come from. Times "since the run began" count from `began_ns` in the header of the rank, which is the same
moment on all hosts.

A block counts (`status` 1) when all ranks that have any block have it. After a `kill -9` some ranks may lack a block.
Such a block keeps its index between blocks that count, with `status` 0 and without data. No block is stored after the
last one that counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.core import described
from sonde.core.allowed import COUNT, FINITE, NUMBERED, Allowed, codes, count_of, index
from sonde.core.described import Described, attribute
from sonde.core.described import optional as _of
from sonde.noise.source.schema import BURST, SOURCE

if TYPE_CHECKING:
    pass


CLASSES = 864
MISSING, COMPLETE = 0, 1
STATUS_NAMES = ("missing", "complete")
_RANK, _CELL, _STALL = ("rank",), ("rank", "block"), ("rank", "stall")
OF_A_NODE, _LOOK = ("node", "block"), ("look",)
OF_A_BURST, _SOURCE = ("source", "burst"), ("source",)
# name: description. Each is a field of the block's record with the same name.
BLOCK: dict[str, Described] = {
    "t_begin": _of(_CELL, "s", "begin of a block since the run began", allowed=FINITE),
    "length": _of(
        _CELL, "s", "length of a block, from its first iteration to the end of its last", allowed=COUNT
    ),
    "excluded": _of(
        _CELL, "s", "time of the block for agreeing to go on and for recording stalls", allowed=FINITE
    ),
    "run_delay": _of(_CELL, "s", "time in which the kernel kept the rank from running", allowed=FINITE),
    "cpu": _of(_CELL, "s", "CPU time of the rank", allowed=FINITE),
    "resumed": _of(
        _CELL,
        "s",
        "time since the run began at which the block's agent was resumed, or would have been",
        allowed=FINITE,
    ),
    "iterations": _of(_CELL, "1", "iterations; -1: unknown", "<i8", allowed=NUMBERED),
    "involuntary": _of(_CELL, "1", "involuntary context switches; -1: unknown", "<i8", allowed=NUMBERED),
    "stalls_lost": _of(
        _CELL, "1", "stalls that were not stored for lack of space; -1: unknown", "<i8", allowed=NUMBERED
    ),
}
# cpu(rank) is the hardware thread, as in `net`.
NAME_IN_RAW = {"cpu": "cpu_time"}
RUN: dict[str, Described] = {
    "count": _of(("rank", "block", "class"), "1", "readings of a duration in each class", "<u4"),
    "class_edge": _of(
        ("rank", "edge"), "s", "edges of the classes of durations", allowed=Allowed(low=0, rises="edge")
    ),
    "segment": _of(("block",), "1", "segment of a block; -1: unknown", "<i4", allowed=NUMBERED),
    "variant": _of(
        ("block",),
        "1",
        "variant that was on; 0: nothing, -1: unknown",
        "<i4",
        allowed=index("variant_index", -1),
    ),
    "status": _of(("block",), "1", "whether all ranks have a block", "|i1", allowed=codes(MISSING, COMPLETE)),
    "variant_name": _of(("variant_index",), "", "name of a variant", "str"),
    "n_stalls": _of(_RANK, "1", "stalls of a rank", "<i8", allowed=count_of("stall")),
}
# name: (field of a stall, description)
STALL: dict[str, tuple[str, Described]] = {
    "stall_block": (
        "",
        _of(
            _STALL, "1", "block of a stall; -1 after the rank's last stall", "<i4", allowed=index("block", -1)
        ),
    ),
    "stall_t": (
        "t_s",
        _of(_STALL, "s", "begin of the iteration that stalled, since the run began", allowed=FINITE),
    ),
    "stall_length": ("length_s", _of(_STALL, "s", "length of that iteration", allowed=COUNT)),
    "stall_delay": (
        "delay_s",
        _of(
            _STALL,
            "s",
            "time since its last stall in which the kernel kept the rank from running; NaN: unknown",
            allowed=FINITE,
        ),
    ),
    "stall_gap": (
        "gap_s",
        _of(_STALL, "s", "longest gap between two polls in the stall; NaN without polling", allowed=FINITE),
    ),
}
ITERATION: dict[str, Described] = {
    "iteration": _of(
        ("rank", "block", "reading"),
        "1",
        "every reading in ticks of the rank's counter; 0: no reading",
        "<u4",
    ),
    "n_readings": _of(_CELL, "1", "readings stored one by one", "<i8", allowed=count_of("reading", -1)),
}
# In the order in which the detector lists them.
CALIBRATED: dict[str, Described] = {
    "tick": _of(_RANK, "s", "length of a tick of the counter", allowed=FINITE),
    "steady": _of(_RANK, "1", "1 where the processor's own counter is used", "|i1", allowed=codes(0, 1, -1)),
    "iteration_time": _of(_RANK, "s", "median of an iteration before the first block", allowed=FINITE),
    "stall_threshold": _of(_RANK, "s", "an iteration longer than this is a stall", allowed=FINITE),
    "stamp_cost": _of(_RANK, "s", "cost of one reading of the counter and its store", allowed=FINITE),
    "keeping_share": _of(_RANK, "1", "cost of storing every reading, share of the bare loop", allowed=FINITE),
    "keeping_low": _of(_RANK, "1", "lower end of its 95 % interval", allowed=FINITE),
    "keeping_high": _of(_RANK, "1", "upper end of its 95 % interval", allowed=FINITE),
    "stamp_every": _of(_RANK, "1", "iterations that share a reading; -1: unknown", "<i4", allowed=NUMBERED),
    "agree_every": _of(
        _RANK, "1", "iterations between two agreements to go on; -1: unknown", "<i4", allowed=NUMBERED
    ),
    "room": _of(_RANK, "1", "readings that a block has memory for; -1: unknown", "<i8", allowed=NUMBERED),
}
# In the order of native AgentUse.
USE: dict[str, Described] = {
    "agent_cpu": _of(OF_A_NODE, "s", "CPU time of the agent on the node"),
    "keeper_cpu": _of(OF_A_NODE, "s", "CPU time of its supervisor"),
    "agent_drive": _of(OF_A_NODE, "s", "time that driving the agent's load took"),
    "agent_wakeups": _of(
        OF_A_NODE, "1", "wake-ups of the agent's threads; -1: unknown", "<i8", allowed=NUMBERED
    ),
    "agent_processes": _of(OF_A_NODE, "1", "processes of the agent; -1: unknown", "<i8", allowed=NUMBERED),
    "agent_threads": _of(OF_A_NODE, "1", "threads of the agent; -1: unknown", "<i8", allowed=NUMBERED),
    "agent_rss": _of(OF_A_NODE, "B", "resident memory of the agent; -1: unknown", "<i8", allowed=NUMBERED),
    "agent_drives": _of(OF_A_NODE, "1", "drives of the agent's load; -1: unknown", "<i8", allowed=NUMBERED),
    "agent_drives_failed": _of(OF_A_NODE, "1", "drives that failed; -1: unknown", "<i8", allowed=NUMBERED),
}
NODE: dict[str, Described] = {
    "node_rank": _of(("node",), "1", "rank that supervised the node's agent", "<i4", allowed=index("rank")),
    "node_host": _of(("node",), "", "host of a node", "str"),
}
# In the order in which the detector writes them; the number of the look comes first.
LOOKS: dict[str, Described] = {
    "look_blocks": _of(_LOOK, "1", "blocks that a look used; -1: unknown", "<i4", allowed=NUMBERED),
    "look_elapsed": _of(_LOOK, "s", "time of a look since the run began", allowed=FINITE),
    "look_p": _of(_LOOK, "1", "p of the test on all blocks so far"),
    "look_p_fold": _of(_LOOK, "1", "p of stalls folded at the period"),
    "look_p_ranked": _of(_LOOK, "1", "p of ranked blocks"),
    "look_z_fold": _of(_LOOK, "1", "largest deviation of a folded cell"),
    "look_z_ranked": _of(_LOOK, "1", "largest rank sum, standardised"),
    "look_period": _of(_LOOK, "s", "period of the largest cell"),
    "look_phase": _of(_LOOK, "s", "phase of the largest cell"),
    "look_from_resume": _of(
        _LOOK, "1", "1 where the phase counts from the agent's resumption", "|i1", allowed=codes(0, 1, -1)
    ),
    "look_feature": _of(_LOOK, "1", "number of the ranked feature; -1: unknown", "<i4"),
    "look_p_so_far": _of(_LOOK, "1", "valid p of the run so far: min of p / spend"),
    "look_cost": _of(_LOOK, "s", "time of the test"),
    "look_permutations": _of(_LOOK, "1", "permutations behind p; -1: unknown", "<i4"),
}
PLACE: dict[str, Described] = {
    "host": _of(_RANK, "", "host of a rank", "str"),
    "cpu": _of(_RANK, "1", "hardware thread of a rank; -1: unknown", "<i4", allowed=NUMBERED),
    "core": _of(_RANK, "1", "core of a rank; -1: unknown", "<i4", allowed=NUMBERED),
    "l3": _of(_RANK, "1", "L3 cache of a rank; -1: unknown", "<i4", allowed=NUMBERED),
    "numa": _of(_RANK, "1", "NUMA node of a rank; -1: unknown", "<i4", allowed=NUMBERED),
    "package": _of(_RANK, "1", "processor package of a rank; -1: unknown", "<i4", allowed=NUMBERED),
}
SOURCES: dict[str, Described] = {
    **{
        f"burst_{name}": _of(
            OF_A_BURST, unit, text.replace("CLOCK_MONOTONIC of the host", "since the run began"), dtype
        )
        for name, (_, dtype, _, unit, text) in BURST.items()
    },
    **{f"source_{name}": _of(_SOURCE, unit, text, dtype) for name, (_, dtype, unit, text) in SOURCE.items()},
    "n_bursts": _of(_SOURCE, "1", "bursts of a source", "<i8", allowed=count_of("burst")),
}
RAW: dict[str, Described] = {
    **RUN,
    **{NAME_IN_RAW.get(name, name): what for name, what in BLOCK.items()},
    **{name: what for name, (_, what) in STALL.items()},
    **ITERATION,
    **CALIBRATED,
    **USE,
    **NODE,
    **LOOKS,
    **PLACE,
    **SOURCES,
}
"""The variables of /raw. If a run has no records of a kind, their variables are left out."""
COORDINATES: dict[str, Described] = {
    "rank": _of(_RANK, "1", "rank", "<i4"),
    "block": _of(("block",), "1", "block", "<i4"),
    "look": _of(_LOOK, "1", "look of the judge during the run", "<i4"),
}
ATTRIBUTES = {
    **described.ROOT,
    **{
        name: attribute(f"{name}, as the run was planned")
        for name in (
            "alpha",
            "matters",
            "block_s",
            "settle_s",
            "grain_s",
            "fold_weight",
            "period_s",
            "detected_s",
            "p_live",
        )
    },
    **{
        name: attribute(f"{name}, as the run was planned", COUNT)
        for name in ("ranks", "size", "permutations")
    },
    **{
        name: attribute(f"{name}, as the run was planned", listed=True)
        for name in (
            "rounds",
            "spend",
            "periods_s",
            "shares",
            "levels",
            "variant_sources",
            "variant_periods_s",
        )
    },
}
"""The root attributes that are used to judge a run again."""
