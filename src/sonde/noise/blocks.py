"""Datasets of kind `run`: blocks of a timed loop of collectives, with an agent on in some of them.

The tables BLOCK, STALL … describe the variables of /raw; `native/noise/detector/recorder.hpp` describes the records
that they come from. Times "since the run began" count from `began_ns` in the header of the rank, which is the same
moment on all hosts.

A block counts (`status` 1) when all ranks that have any block have it. After a `kill -9` some ranks may lack a block.
Such a block keeps its index between blocks that count, with `status` 0 and without data. No block is stored after the
last one that counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import described
from sonde.core.allowed import COUNT, FINITE, NUMBERED, Allowed, codes, count_of, index
from sonde.core.deadline import Deadline
from sonde.core.described import Described, Tables, attribute
from sonde.core.described import optional as _of
from sonde.core.errors import DataError, Finding, Warning
from sonde.core.layout import Layout
from sonde.noise.plan import LEAST_PAIRS
from sonde.noise.source_schema import BURST, SOURCE

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile

# Kinds of record.
BLOCK_RECORD, STALLS, ITERATIONS, AGENT, CALIBRATION, LOOK = range(6)

CLASSES = 864
RECORD_FIELDS = (
    *("kind", "block", "segment", "variant", "n", "part", "complete"),
    *("iterations", "stalls_lost", "involuntary"),
    *("t_begin", "length", "excluded", "run_delay", "cpu", "resumed", "payload"),
)
# No run has more blocks. A larger number is a damaged record, and must not decide how much memory is allocated.
MOST_BLOCKS = 1 << 20

MISSING, COMPLETE = 0, 1
STATUS_NAMES = ("missing", "complete")

CHUNK_BYTES = 512 * 1024

_RANK, _CELL, _STALL = ("rank",), ("rank", "block"), ("rank", "stall")
_USE, _LOOK = ("node", "block"), ("look",)
_BURST, _SOURCE = ("source", "burst"), ("source",)

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
_NAME_IN_RAW = {"cpu": "cpu_time"}

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
_STALL_RECORD = np.dtype([(name, "<f4") for name in ("t_s", "length_s", "delay_s", "gap_s")])

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
    "agent_cpu": _of(_USE, "s", "CPU time of the agent on the node"),
    "keeper_cpu": _of(_USE, "s", "CPU time of its supervisor"),
    "agent_drive": _of(_USE, "s", "time that driving the agent's load took"),
    "agent_wakeups": _of(_USE, "1", "wake-ups of the agent's threads; -1: unknown", "<i8", allowed=NUMBERED),
    "agent_processes": _of(_USE, "1", "processes of the agent; -1: unknown", "<i8", allowed=NUMBERED),
    "agent_threads": _of(_USE, "1", "threads of the agent; -1: unknown", "<i8", allowed=NUMBERED),
    "agent_rss": _of(_USE, "B", "resident memory of the agent; -1: unknown", "<i8", allowed=NUMBERED),
    "agent_drives": _of(_USE, "1", "drives of the agent's load; -1: unknown", "<i8", allowed=NUMBERED),
    "agent_drives_failed": _of(_USE, "1", "drives that failed; -1: unknown", "<i8", allowed=NUMBERED),
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
            _BURST, unit, text.replace("CLOCK_MONOTONIC of the host", "since the run began"), dtype
        )
        for name, (_, dtype, _, unit, text) in BURST.items()
    },
    **{f"source_{name}": _of(_SOURCE, unit, text, dtype) for name, (_, dtype, unit, text) in SOURCE.items()},
    "n_bursts": _of(_SOURCE, "1", "bursts of a source", "<i8", allowed=count_of("burst")),
}
_BURST_TIMES = ("planned", "begin")

RAW: dict[str, Described] = {
    **RUN,
    **{_NAME_IN_RAW.get(name, name): what for name, what in BLOCK.items()},
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

Piece = tuple[str, tuple[int | slice, ...], np.ndarray]


@dataclass
class RunLayout(Layout):
    """The layout of a run, with the data that place() needs.

    complete_blocks: (block,) whether all ranks have it. segment, variant: (block,). writers: ranks of the files, in
    order. nodes: ranks that supervised an agent. sources: file names of noise sources. began_s: by host.
    """

    complete_blocks: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    segment: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    variant: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    writers: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    looks: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    places: dict[str, np.ndarray] = field(default_factory=dict)
    variants: tuple[str, ...] = ()
    began_s: dict[str, float] = field(default_factory=dict)


class RunSchema:
    """RoomSchema of the kind. Plan keys: docs of `layout`."""

    room, version = "noise", 1

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        """One dataset."""
        return [""]

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> RunLayout:
        """The layout, from a count of the records in the files.

        Parameters
        ----------
        plan : ranks; optional blocks [(segment, variant)] as planned, variants (names, the first is off), attrs
               (become root attributes)
        files : files of the run's ranks, which may be missing, and of noise sources
        part : ""

        Returns
        -------
        RunLayout; `complete` is from `is_complete`. Without any complete block there is one of status 0.

        Raises
        ------
        DataError  noise.no_blocks (no file of a rank), noise.plan_mismatch (a file of another run),
                   noise.not_run_blocks.
        """
        runs = [file for file in files if file.header.get("kind") != "source"]
        for file in runs:
            _check_header(plan, file)
        writers = [int(file.header["rank"]) for file in runs]
        if not runs:
            raise DataError(
                "noise.no_blocks",
                "there is no block file of any rank",
                "nothing was measured: read the run's log, then measure again",
            )
        if len(set(writers)) != len(writers):
            twice = next(rank for rank in writers if writers.count(rank) > 1)
            raise DataError(
                "noise.plan_mismatch",
                f"two block files were written by rank {twice}",
                "keep the files of one run in its folder, and only these",
            )
        ranks = _ranks(plan, runs)
        scans = [_Scan(file) for file in runs]
        warnings: list[Warning] = []
        complete, dropped = _complete(scans)
        warnings += _warnings(ranks, writers, scans, dropped)
        segment, variant = _labels(scans, len(complete))
        stalls = max([scan.stalls_in(complete) for scan in scans], default=0)
        readings = max([scan.readings_in(complete) for scan in scans], default=0)
        nodes = tuple(rank for rank, scan in zip(writers, scans) if scan.agent)
        looks = next((np.array(scan.looks) for scan in scans if scan.looks), np.zeros((0, 0)))
        sources, source_warnings = _sources(files)
        warnings += source_warnings
        layout = RunLayout(
            dims={
                "rank": ranks,
                "block": len(complete),
                "class": CLASSES,
                "edge": CLASSES + 1,
                "stall": max(1, stalls),
                "variant_index": max(1, len(_variants(plan, runs))),
            },
            coords={
                "rank": (np.arange(ranks, dtype=np.int32), {"units": "1", "long_name": "rank"}),
                "block": (np.arange(len(complete), dtype=np.int32), {"units": "1", "long_name": "block"}),
            },
            variables={},
            attrs={str(name): _plain(value) for name, value in dict(plan.get("attrs") or {}).items()},
            warnings=warnings,
            complete_blocks=complete,
            segment=segment,
            variant=variant,
            writers=tuple(writers),
            nodes=nodes,
            sources=tuple(file.path.name for file, _ in sources),
            looks=looks,
            places=_places(ranks, runs),
            variants=_variants(plan, runs),
            began_s={
                str(file.header.get("host", "")): float(file.header.get("began_ns", np.nan)) * 1e-9
                for file in reversed(runs)
            },
        )
        layout.attrs["blocks_planned"] = len(plan.get("blocks") or complete)
        layout.attrs["blocks_measured"] = int(complete.sum())
        _add_variables(layout, readings, sources)
        hosts = {file.header.get("host") for file, _ in sources} - set(layout.began_s)
        if hosts:
            layout.warnings.append(
                Warning(
                    "noise.source_elsewhere",
                    f"a noise source ran on {', '.join(sorted(map(str, hosts)))}, where no rank ran; "
                    "the times of its bursts are unknown in this run",
                    "start sources on the hosts that are measured",
                )
            )
        if not is_complete(plan, segment, variant, complete):
            layout.complete = False
            layout.warnings.append(
                Warning(
                    "noise.no_whole_segment",
                    f"{int(complete.sum())} blocks were measured, fewer than the first interim test needs",
                    "measure again with a longer --budget",
                )
            )
        return layout

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        """The pieces of /raw from one file, which is read once. The first file also gives the data of all ranks."""
        assert isinstance(layout, RunLayout)
        if file.header.get("kind") == "source":
            if file.path.name in layout.sources:
                yield from _place_source(layout, file)
            return
        rank = int(file.header["rank"])
        if rank == layout.writers[0]:
            yield from _place_shared(layout)
        yield from _place_rank(layout, file, rank)

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        """From /raw to /summary: `sonde.noise.analyse.analyse`, and the results of a study."""
        from sonde.noise import studies
        from sonde.noise.analyse import analyse

        if raw.attrs.get("study") not in studies.STUDIES:
            return analyse(raw, deadline)
        limit = deadline or Deadline()
        return studies.add(raw, analyse(raw, limit.part(0.5)), limit)

    def tables(self, tree: xr.DataTree) -> Tables:
        """The declared variables and root attributes, with which `dataset.open` compares a file."""
        from sonde.noise.analyse import SUMMARY

        return {"raw": RAW, "summary": SUMMARY, "": ATTRIBUTES}

    def validate(self, tree: xr.DataTree) -> list[Finding]:
        """The errors of a dataset; [] for a valid one. See `validate`."""
        return validate(tree)


SCHEMA = RunSchema()


def validate(tree: xr.DataTree) -> list[Finding]:
    """The differences between a run's dataset and its tables, and its contradictions.

    Parameters
    ----------
    tree : groups /raw and /summary, opened lazily; all of /raw but counts and single iterations is read

    Returns
    -------
    Findings, [] for a valid dataset.
    """
    from sonde.noise.analyse import SUMMARY

    found: list[Finding] = []
    if "raw" in tree.children:
        raw = tree["raw"].to_dataset()
        needed = {name: replace(what, required=True) for name, what in RAW.items() if name in NEEDED}
        found += described.check("noise", "/raw", raw, RAW | needed, ("rank", "block"))
        if not found:
            found += _check_raw(raw)
    if "summary" in tree.children:
        found += described.check("noise", "/summary", tree["summary"].to_dataset(), SUMMARY, ("variant",))
    return found


def _check_raw(raw: xr.Dataset) -> list[Finding]:
    """The findings for labels without a meaning, stalls without a block, and times that decrease."""
    whole = np.asarray(raw["status"].values) == COMPLETE
    blocks, variants = raw.sizes["block"], raw.sizes["variant_index"]
    variant, segment = (np.asarray(raw[name].values)[whole] for name in ("variant", "segment"))
    begin = np.asarray(raw["t_begin"].values, np.float64)[:, whole]
    length = np.asarray(raw["length"].values, np.float64)[:, whole]
    stall_block, n = np.asarray(raw["stall_block"].values), np.asarray(raw["n_stalls"].values)
    filled = np.arange(stall_block.shape[1]) < n[:, None]
    stall = np.asarray(raw["stall_length"].values, np.float64)
    wrong = {
        "status": (
            ~np.isin(raw["status"].values, (MISSING, COMPLETE)),
            "blocks whose status is no known code",
        ),
        "variant": (
            (variant < 0) | (variant >= variants),
            f"blocks with a variant that is not one of the {variants} variants",
        ),
        "segment": (np.diff(segment) < 0, "blocks of an earlier segment than the block before"),
        "time": (~(np.diff(begin, axis=1) > 0), "blocks that do not begin after the block before"),
        "length": (~(length > 0), "blocks without a length"),
        "count": ((stall_block >= 0) != filled, "stalls after n_stalls, or missing before it"),
        "stall": (
            filled & ((stall_block >= blocks) | ~(stall > 0)),
            "stalls without a block or without a length",
        ),
    }
    return [
        Finding(f"noise.{what}", f"/raw has {int(bad.sum())} {text}", {"count": int(bad.sum())})
        for what, (bad, text) in wrong.items()
        if bad.any()
    ]


# The variables that are needed to judge a run again.
NEEDED = frozenset(
    (
        *("count", "class_edge", "segment", "variant", "variant_name", "status", "n_stalls"),
        *("t_begin", "length", "excluded", "iterations", "stall_block", "stall_t", "stall_length"),
        *("stall_threshold", "stamp_every"),
    )
)


def is_complete(
    plan: Mapping[str, Any], segment: np.ndarray, variant: np.ndarray, present: np.ndarray
) -> bool:
    """Whether a run has the data that its question needs: one whole segment with a block of every variant.

    If a segment has more rounds than a verdict needs, its last round may be missing, because its labels are random
    without it, too. A run ends when its verdict is clear or its budget is over; blocks planned after that are not
    missing. The stop_reason shows whether the user or a kill -9 cut the run short.

    plan: blocks and variants, as for `layout`; without blocks a segment is whole when it has every variant.
    segment, variant, present: (block,); present: whether all ranks have the block.
    """
    planned = [(int(s), int(v)) for s, v in plan.get("blocks") or ()]
    wanted = {v for _, v in planned} or set(range(max(1, len(plan.get("variants") or ()))))
    for one in np.unique(segment[present]).tolist():
        here = present & (segment == one)
        count = sum(s == one for s, _ in planned)
        spare = len(wanted) if count > LEAST_PAIRS * len(wanted) else 0
        if int(here.sum()) >= count - spare and wanted <= set(variant[here].tolist()):
            return True
    return False


# ---- reading block files -------------------------------------------------------------------------


def _check_header(plan: Mapping[str, Any], file: BlockFile) -> None:
    names = file.dtype.names or ()
    missing = [name for name in RECORD_FIELDS if name not in names]
    payload = 0 if missing else file.dtype["payload"].itemsize
    if missing or payload < CLASSES * 4 or payload % 16 or file.header.get("kind") != "run":
        raise DataError(
            "noise.not_run_blocks",
            f"{file.path.name} was not written by the detector of `sonde noise run`",
            "keep the files of one run in its folder, and only these",
        )
    if file.header.get("classes", CLASSES) != CLASSES:
        raise DataError(
            "noise.plan_mismatch",
            f"{file.path.name} has {file.header['classes']} classes; this version of Sonde expects {CLASSES}",
            "save it with the version of Sonde that recorded it",
        )
    rank, ranks = file.header.get("rank"), plan.get("ranks", file.header.get("ranks"))
    if not isinstance(rank, int) or not isinstance(ranks, int) or not 0 <= rank < ranks:
        raise DataError(
            "noise.plan_mismatch",
            f"{file.path.name} was written by rank {rank}, but this run has {ranks} ranks",
            "keep the files of one run in its folder, and only these",
        )
    if file.header.get("ranks", ranks) != ranks:
        raise DataError(
            "noise.plan_mismatch",
            f"{file.path.name} was written for ranks = {file.header['ranks']}, but this run has ranks = {ranks}",
            "keep the files of one run in its folder, and only these",
        )


def _ranks(plan: Mapping[str, Any], runs: Sequence[BlockFile]) -> int:
    return int(plan.get("ranks", runs[0].header.get("ranks", 0)))


def _variants(plan: Mapping[str, Any], runs: Sequence[BlockFile]) -> tuple[str, ...]:
    return tuple(map(str, plan.get("variants") or runs[0].header.get("variants") or ()))


class _Scan:
    """The content of one rank's file by block: only numbers of records, no counts, stalls or iterations."""

    def __init__(self, file: BlockFile) -> None:
        self.labels: dict[int, tuple[int, int]] = {}  # segment, variant of each block
        self.stalls: dict[int, int] = {}
        self.readings: dict[int, int] = {}
        self.stalls_lost = 0
        self.looks: list[list[float]] = []
        self.agent = self.calibrated = False
        self.bad = 0
        for records in file:
            self._add(records)

    def _add(self, records: np.ndarray) -> None:
        good = readable(records)
        self.bad += int(np.count_nonzero(~good))
        for head in records[good]:
            kind, block, n = int(head["kind"]), int(head["block"]), int(head["n"])
            if kind == BLOCK_RECORD:
                if block in self.labels:
                    self.bad += 1
                elif head["complete"]:
                    self.labels[block] = int(head["segment"]), int(head["variant"])
                    self.stalls_lost += int(head["stalls_lost"])
            elif kind == STALLS:
                self.stalls[block] = self.stalls.get(block, 0) + n
            elif kind == ITERATIONS:
                upto = int(head["part"]) * _readings_a_record(records) + n
                self.readings[block] = max(self.readings.get(block, 0), upto)
            elif kind == AGENT:
                self.agent = True
            elif kind == CALIBRATION:
                self.calibrated = True
            else:
                self.looks.append(_numbers(head, len(LOOKS) + 1).tolist())

    def stalls_in(self, chosen: np.ndarray) -> int:
        return sum(n for block, n in self.stalls.items() if self.has(chosen, block))

    def readings_in(self, chosen: np.ndarray) -> int:
        return max((n for block, n in self.readings.items() if self.has(chosen, block)), default=0)

    @staticmethod
    def has(chosen: np.ndarray, block: int) -> bool:
        return block < len(chosen) and bool(chosen[block])


def readable(records: np.ndarray) -> np.ndarray:
    """(record,) whether a record has a known kind, a possible block, and no more data than fits."""
    width = records.dtype["payload"].itemsize
    each = np.array([0, _STALL_RECORD.itemsize, 4, 8, 8, 8])
    kind = np.minimum(records["kind"], LOOK)
    fits = records["n"].astype(np.int64) * each[kind] <= width
    return (records["kind"] <= LOOK) & (records["block"] < MOST_BLOCKS) & fits & (records["part"] < 1 << 24)


def _readings_a_record(records: np.ndarray) -> int:
    return records.dtype["payload"].itemsize // 4


def _numbers(head: np.void, wanted: int) -> np.ndarray:
    """The f8 numbers of a record; NaN for those that its writer did not write."""
    found = head["payload"].tobytes()[: 8 * min(int(head["n"]), wanted)]
    out = np.full(wanted, np.nan)
    out[: len(found) // 8] = np.frombuffer(found, "<f8")
    return out


def _complete(scans: Sequence[_Scan]) -> tuple[np.ndarray, int]:
    """(block,) whether all ranks with blocks have it, up to the last such block; and the number of other blocks."""
    blocks_by_rank = [set(scan.labels) for scan in scans if scan.labels]
    common = set.intersection(*blocks_by_rank) if blocks_by_rank else set()
    complete = np.zeros(max(common, default=0) + 1, bool)
    complete[list(common)] = True
    return complete, len(set().union(*blocks_by_rank) - common)


def _labels(scans: Sequence[_Scan], blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """The segment and variant of each block, as a rank recorded them; -1 where no rank has recorded them."""
    table = np.full((blocks, 2), -1, np.int32)
    for scan in scans:
        for block, labels in scan.labels.items():
            if block < blocks:
                table[block] = labels
    return table[:, 0], table[:, 1]


def _warnings(ranks: int, writers: Sequence[int], scans: Sequence[_Scan], dropped: int) -> list[Warning]:
    found = []
    present = {rank for rank, scan in zip(writers, scans) if scan.labels}
    without = [rank for rank in range(ranks) if rank not in present]
    if without:
        found.append(
            Warning(
                "noise.rank_missing",
                f"{len(without)} of {ranks} ranks have no block: {_some(without)}",
                "their measurements are lost; the log shows why",
            )
        )
    if dropped:
        found.append(
            Warning(
                "noise.blocks_dropped",
                f"{dropped} blocks are left out because not every rank has them",
                "a killed run or a full disk causes this; measure again if too few blocks are left",
            )
        )
    lost = sum(scan.stalls_lost for scan in scans)
    if lost:
        which = [rank for rank, scan in zip(writers, scans) if scan.stalls_lost]
        found.append(
            Warning(
                "noise.stalls_lost",
                f"{lost} stalls of rank {_some(which)} were not recorded for lack of memory",
                "a higher --stall records fewer stalls",
            )
        )
    bare = [rank for rank, scan in zip(writers, scans) if scan.labels and not scan.calibrated]
    if bare:
        found.append(
            Warning(
                "noise.not_calibrated",
                f"rank {_some(bare)} has no calibration: its durations cannot be converted to seconds",
                "its first records are lost; measure again",
            )
        )
    for rank, scan in zip(writers, scans):
        if scan.bad:
            found.append(
                Warning(
                    "noise.bad_record",
                    f"{scan.bad} records of rank {rank} have an unknown kind or an impossible block, or are duplicates",
                    "they are left out; check whether the folder contains files of another run",
                )
            )
    return found


def _some(numbers: Sequence[int], most: int = 8) -> str:
    more = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return ", ".join(map(str, numbers[:most])) + more


def _sources(files: Sequence[BlockFile]) -> tuple[list[tuple[BlockFile, int]], list[Warning]]:
    """The files of noise sources with the numbers of their bursts, and warnings for files that cannot be used."""
    found, warnings = [], []
    for file in files:
        if file.header.get("kind") != "source":
            continue
        missing = {column for column, *_ in BURST.values()} - set(file.dtype.names or ())
        if missing:
            warnings.append(
                Warning(
                    "noise.agent_file_unreadable",
                    f"{file.path.name} lacks the columns {', '.join(sorted(missing))} of a noise source's bursts",
                    "the times of the source's bursts are unknown; the rest of the run is complete",
                )
            )
        else:
            found.append((file, file.records))
    return found, warnings


def _places(ranks: int, runs: Sequence[BlockFile]) -> dict[str, np.ndarray]:
    out: dict[str, np.ndarray] = {
        name: np.full(ranks, "", object) if what.dtype == "str" else np.full(ranks, -1, np.int32)
        for name, what in PLACE.items()
    }
    for file in runs:
        for name, values in out.items():
            value = file.header.get(name)
            if isinstance(value, str if name == "host" else int):
                values[int(file.header["rank"])] = value
    return out


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


# ---- the layout of /raw --------------------------------------------------------------------------


def _fill(what: Described) -> float | int | None:
    if what.dtype == "str":
        return None
    return np.nan if np.dtype(what.dtype).kind == "f" else -1


def _add_variables(layout: RunLayout, readings: int, sources: Sequence[tuple[BlockFile, int]]) -> None:
    """Add the variables and dims for the content of the files. The data of one rank is stored together."""
    blocks, stalls = layout.dims["block"], layout.dims["stall"]
    row = (1, blocks)

    def add(name: str, what: Described, fill: float | int | None, **more: Any) -> None:
        layout.variables[name] = what.variable(fill, **more)

    chunk = max(1, CHUNK_BYTES // (4 * CLASSES))
    add("count", RUN["count"], 0, chunks=(1, min(blocks, chunk), CLASSES))
    for name in ("class_edge", "segment", "variant", "variant_name"):
        add(name, RUN[name], _fill(RUN[name]))
    flags = {"flag_values": np.arange(2, dtype=np.int8), "flag_meanings": " ".join(STATUS_NAMES)}
    add("status", RUN["status"], MISSING, attrs=flags)
    add("n_stalls", RUN["n_stalls"], 0)
    for name, what in BLOCK.items():
        add(_NAME_IN_RAW.get(name, name), what, _fill(what), chunks=row)
    for name, (_, what) in STALL.items():
        add(name, what, _fill(what), chunks=(1, min(stalls, CHUNK_BYTES // 8)))
    for name, what in {**CALIBRATED, **PLACE}.items():
        add(name, what, _fill(what))
    if readings:
        layout.dims["reading"] = readings
        add("iteration", ITERATION["iteration"], 0, chunks=(1, 1, min(readings, CHUNK_BYTES // 4)))
        add("n_readings", ITERATION["n_readings"], 0, chunks=row)
    if layout.nodes:
        layout.dims["node"] = len(layout.nodes)
        for name, what in {**NODE, **USE}.items():
            add(name, what, _fill(what), chunks=row if what.dims == _USE else None)
    if len(layout.looks):
        layout.dims["look"] = len(layout.looks)
        number = np.nan_to_num(layout.looks[:, 0], nan=-1).astype(np.int32)
        layout.coords["look"] = (number, {"units": "1", "long_name": "look of the judge during the run"})
        for name, what in LOOKS.items():
            add(name, what, _fill(what))
    if sources:
        longest = max(1, *(bursts for _, bursts in sources))
        layout.dims |= {"source": len(sources), "burst": longest}
        for name, what in SOURCES.items():
            chunks = (1, min(longest, CHUNK_BYTES // 8)) if what.dims == _BURST else None
            fill = BURST[name.removeprefix("burst_")][2] if what.dims == _BURST else _fill(what)
            add(name, what, 0 if name == "n_bursts" else fill, chunks=chunks)


# ---- writing pieces ------------------------------------------------------------------------------


def _as(values: np.ndarray, dtype: str) -> np.ndarray:
    """Floats as the type of a variable. In an integer type, unknown values become -1."""
    if np.dtype(dtype).kind == "f":
        return values.astype(dtype)
    return np.nan_to_num(values, nan=-1, posinf=-1, neginf=-1).astype(dtype)


def _place_shared(layout: RunLayout) -> Iterator[Piece]:
    blocks, ranks = slice(0, layout.dims["block"]), slice(0, layout.dims["rank"])
    yield "segment", (blocks,), layout.segment
    yield "variant", (blocks,), layout.variant
    yield "status", (blocks,), np.where(layout.complete_blocks, COMPLETE, MISSING).astype(np.int8)
    names = np.array(layout.variants or ("",), object)
    yield "variant_name", (slice(0, len(names)),), names
    for name, values in layout.places.items():
        yield name, (ranks,), values
    if layout.nodes:
        nodes = slice(0, len(layout.nodes))
        yield "node_rank", (nodes,), np.array(layout.nodes, np.int32)
        yield "node_host", (nodes,), layout.places["host"][list(layout.nodes)]
    for column, (name, what) in enumerate(LOOKS.items(), 1):
        if len(layout.looks):
            yield name, (slice(0, len(layout.looks)),), _as(layout.looks[:, column], what.dtype)


def _place_rank(layout: RunLayout, file: BlockFile, rank: int) -> Iterator[Piece]:
    blocks = layout.dims["block"]
    facts = {name: np.full(blocks, _fill(what), np.dtype(what.dtype)) for name, what in BLOCK.items()}
    placed = np.zeros(blocks, bool)
    use = np.full((blocks, len(USE)), np.nan)
    calibrated = np.full(len(CALIBRATED), np.nan)
    readings = np.zeros(blocks, np.int64)
    stalls = 0
    for records in file:
        good = records[readable(records)]
        here = good["block"] < blocks
        here[here] = layout.complete_blocks[good["block"][here]]
        for head in good[(good["kind"] == CALIBRATION)]:
            calibrated = _numbers(head, len(CALIBRATED))
        for head in good[here & (good["kind"] == AGENT)]:
            use[head["block"]] = _numbers(head, len(USE))
        for at, end in _runs_of_blocks(good[here & (good["kind"] == BLOCK_RECORD)], placed):
            first = int(at["block"][0]) if len(at) else end
            yield (
                "count",
                (rank, slice(first, end), slice(0, CLASSES)),
                at["payload"].reshape(len(at), -1)[:, : 4 * CLASSES].copy().view("<u4"),
            )
            for name, values in facts.items():
                values[first:end] = at[name]
        several = good[here & (good["kind"] == STALLS)]
        if len(several):
            for name, values in _stalls(several, facts["t_begin"]).items():
                yield name, (rank, slice(stalls, stalls + len(values))), values
            stalls += int(several["n"].sum())
        for block, begin, ticks in _readings(good[here & (good["kind"] == ITERATIONS)]):
            yield "iteration", (rank, block, slice(begin, begin + len(ticks))), ticks
            readings[block] = max(readings[block], begin + len(ticks))
    every = slice(0, blocks)
    for name, values in facts.items():
        yield _NAME_IN_RAW.get(name, name), (rank, every), values
    yield "n_stalls", (slice(rank, rank + 1),), np.array([stalls], np.int64)
    for value, (name, what) in zip(calibrated, CALIBRATED.items()):
        yield name, (slice(rank, rank + 1),), _as(np.array([value]), what.dtype)
    yield "class_edge", (rank, slice(0, CLASSES + 1)), _edges() * calibrated[0]
    if "iteration" in layout.variables:
        yield "n_readings", (rank, every), readings
    if rank in layout.nodes:
        node = layout.nodes.index(rank)
        for column, (name, what) in enumerate(USE.items()):
            yield name, (node, every), _as(use[:, column], what.dtype)


def _edges() -> np.ndarray:
    from sonde import _core

    return np.asarray(_core.noise_edges(), np.float64)


def _runs_of_blocks(records: np.ndarray, placed: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """The records of consecutive blocks, and the number of the block after them. Duplicate records are left out."""
    fresh = np.zeros(len(records), bool)
    for k, record in enumerate(records):
        fresh[k] = bool(record["complete"]) and not placed[record["block"]]
        placed[record["block"]] |= fresh[k]
    records = records[fresh]
    if not len(records):
        return
    cuts = np.flatnonzero(np.diff(records["block"].astype(np.int64)) != 1) + 1
    for piece in np.split(records, cuts):
        yield piece, int(piece["block"][-1]) + 1


def _stalls(records: np.ndarray, t_begin: np.ndarray) -> dict[str, np.ndarray]:
    n = records["n"].astype(np.int64)
    width = records.dtype["payload"].itemsize // _STALL_RECORD.itemsize
    table = records["payload"].reshape(len(records), -1).copy().view(_STALL_RECORD)
    filled = table[np.arange(width) < n[:, None]]
    block = np.repeat(records["block"].astype(np.int32), n)
    out = {"stall_block": block}
    for name, (column, _) in STALL.items():
        if column:
            out[name] = filled[column].astype(np.float64)
    out["stall_t"] = out["stall_t"] + t_begin[block]
    return out


def _readings(records: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    """Block, index of the first reading, and readings, for each series of consecutive parts."""
    if not len(records):
        return
    each = _readings_a_record(records)
    block, part = records["block"].astype(np.int64), records["part"].astype(np.int64)
    short = records["n"][:-1] != each
    cuts = np.flatnonzero((np.diff(block) != 0) | (np.diff(part) != 1) | short) + 1
    for piece in np.split(records, cuts):
        count = int(piece["n"].astype(np.int64).sum())
        ticks = piece["payload"].reshape(len(piece), -1).copy().view("<u4").reshape(-1)[:count]
        if count:
            yield int(piece["block"][0]), int(piece["part"][0]) * each, ticks


def _place_source(layout: RunLayout, file: BlockFile) -> Iterator[Piece]:
    """The bursts of one source, in the run's time. NaN where no rank ran on its host, so that begin is unknown."""
    row = layout.sources.index(file.path.name)
    zero = layout.began_s.get(str(file.header.get("host", "")), np.nan)
    for name, (key, dtype, *_) in SOURCE.items():
        value = file.header.get(key)
        if dtype == "str":
            array = np.array([str(value or "")], object)
        else:
            array = _as(np.array([value if isinstance(value, int | float) else np.nan], np.float64), dtype)
        yield f"source_{name}", (slice(row, row + 1),), array
    at = 0
    for records in file:
        for name, (key, dtype, *_) in BURST.items():
            values = records[key].astype(dtype)
            if name in _BURST_TIMES:
                values = values - zero
            yield f"burst_{name}", (row, slice(at, at + len(records))), values
        at += len(records)
    yield "n_bursts", (slice(row, row + 1),), np.array([at], np.int64)
