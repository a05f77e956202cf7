"""The layout of /raw of a run, from its block files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.described import Described
from sonde.core.errors import DataError, Warning
from sonde.core.layout import Layout
from sonde.noise.detector.plan import MIN_PAIRS
from sonde.noise.detector.records import Scan, check_header
from sonde.noise.detector.schema import (
    BLOCK,
    CALIBRATED,
    CLASSES,
    COORDINATES,
    ITERATION,
    LOOKS,
    MISSING,
    NAME_IN_RAW,
    NODE,
    OF_A_BURST,
    OF_A_NODE,
    PLACE,
    RUN,
    SOURCES,
    STALL,
    STATUS_NAMES,
    USE,
)
from sonde.noise.source.schema import BURST

if TYPE_CHECKING:
    from sonde.core.blocks import BlockFile


CHUNK_BYTES = 512 * 1024


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
        spare = len(wanted) if count > MIN_PAIRS * len(wanted) else 0
        if int(here.sum()) >= count - spare and wanted <= set(variant[here].tolist()):
            return True
    return False


def layout_of(plan: Mapping[str, Any], files: Sequence[BlockFile]) -> RunLayout:
    """The layout of a run, from a count of the records in its files.

    Parameters
    ----------
    plan : ranks; optional blocks [(segment, variant)] as planned, variants (names, the first is off), attrs
           (become root attributes)
    files : files of the run's ranks, which may be missing, and of noise sources

    Returns
    -------
    RunLayout; `complete` is from `is_complete`. Without any complete block there is one of status 0.

    Raises
    ------
    DataError  noise.no_blocks (no file of a rank), noise.plan_mismatch (a file of another run),
               noise.not_run_blocks.
    """
    runs = [file for file in files if file.header.get("kind") != "source"]
    writers = _writers(plan, runs)
    scans = [Scan(file) for file in runs]
    ranks, variants = _ranks(plan, runs), _variants(plan, runs)
    complete, dropped = _complete(scans)
    segment, variant = _labels(scans, len(complete))
    sources, source_warnings = _sources(files)
    layout = RunLayout(
        dims={
            "rank": ranks,
            "block": len(complete),
            "class": CLASSES,
            "edge": CLASSES + 1,
            "stall": max([1, *(scan.stalls_in(complete) for scan in scans)]),
            "variant_index": max(1, len(variants)),
        },
        coords={
            "rank": (np.arange(ranks, dtype=np.int32), COORDINATES["rank"].attrs()),
            "block": (np.arange(len(complete), dtype=np.int32), COORDINATES["block"].attrs()),
        },
        variables={},
        attrs={str(name): _plain(value) for name, value in dict(plan.get("attrs") or {}).items()},
        warnings=[*_warnings(ranks, writers, scans, dropped), *source_warnings],
        complete_blocks=complete,
        segment=segment,
        variant=variant,
        writers=tuple(writers),
        nodes=tuple(rank for rank, scan in zip(writers, scans) if scan.agent),
        sources=tuple(file.path.name for file, _ in sources),
        looks=next((np.array(scan.looks) for scan in scans if scan.looks), np.zeros((0, 0))),
        places=_places(ranks, runs),
        variants=variants,
        began_s=_began_s(runs),
    )
    layout.attrs["blocks_planned"] = len(plan.get("blocks") or complete)
    layout.attrs["blocks_measured"] = int(complete.sum())
    _add_variables(layout, max((scan.readings_in(complete) for scan in scans), default=0), sources)
    layout.warnings += _elsewhere(layout, sources)
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


def _writers(plan: Mapping[str, Any], runs: Sequence[BlockFile]) -> list[int]:
    """The ranks of the files, in their order. It raises the errors of `layout_of`."""
    for file in runs:
        check_header(plan, file)
    if not runs:
        raise DataError(
            "noise.no_blocks",
            "there is no block file of any rank",
            "nothing was measured: read the run's log, then measure again",
        )
    writers = [int(file.header["rank"]) for file in runs]
    if len(set(writers)) != len(writers):
        twice = next(rank for rank in writers if writers.count(rank) > 1)
        raise DataError(
            "noise.plan_mismatch",
            f"two block files were written by rank {twice}",
            "keep the files of one run in its folder, and only these",
        )
    return writers


def _began_s(runs: Sequence[BlockFile]) -> dict[str, float]:
    """The begin of the run on each host, s of its CLOCK_MONOTONIC; of several ranks that of the first."""
    return {
        str(file.header.get("host", "")): float(file.header.get("began_ns", np.nan)) * 1e-9
        for file in reversed(runs)
    }


def _elsewhere(layout: RunLayout, sources: Sequence[tuple[BlockFile, int]]) -> list[Warning]:
    """A warning when sources ran on hosts without a rank."""
    hosts = {file.header.get("host") for file, _ in sources} - set(layout.began_s)
    if not hosts:
        return []
    return [
        Warning(
            "noise.source_elsewhere",
            f"a noise source ran on {', '.join(sorted(map(str, hosts)))}, where no rank ran; "
            "the times of its bursts are unknown in this run",
            "start sources on the hosts that are measured",
        )
    ]


def _ranks(plan: Mapping[str, Any], runs: Sequence[BlockFile]) -> int:
    return int(plan.get("ranks", runs[0].header.get("ranks", 0)))


def _variants(plan: Mapping[str, Any], runs: Sequence[BlockFile]) -> tuple[str, ...]:
    return tuple(map(str, plan.get("variants") or runs[0].header.get("variants") or ()))


def _complete(scans: Sequence[Scan]) -> tuple[np.ndarray, int]:
    """(block,) whether all ranks with blocks have it, up to the last such block; and the number of other blocks."""
    blocks_by_rank = [set(scan.labels) for scan in scans if scan.labels]
    common = set.intersection(*blocks_by_rank) if blocks_by_rank else set()
    complete = np.zeros(max(common, default=0) + 1, bool)
    complete[list(common)] = True
    return complete, len(set().union(*blocks_by_rank) - common)


def _labels(scans: Sequence[Scan], blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """The segment and variant of each block, as a rank recorded them; -1 where no rank has recorded them."""
    table = np.full((blocks, 2), -1, np.int32)
    for scan in scans:
        for block, labels in scan.labels.items():
            if block < blocks:
                table[block] = labels
    return table[:, 0], table[:, 1]


def _warnings(ranks: int, writers: Sequence[int], scans: Sequence[Scan], dropped: int) -> list[Warning]:
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


def fill_of(what: Described) -> float | int | None:
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
        add(name, RUN[name], fill_of(RUN[name]))
    flags = {"flag_values": np.arange(2, dtype=np.int8), "flag_meanings": " ".join(STATUS_NAMES)}
    add("status", RUN["status"], MISSING, attrs=flags)
    add("n_stalls", RUN["n_stalls"], 0)
    for name, what in BLOCK.items():
        add(NAME_IN_RAW.get(name, name), what, fill_of(what), chunks=row)
    for name, (_, what) in STALL.items():
        add(name, what, fill_of(what), chunks=(1, min(stalls, CHUNK_BYTES // 8)))
    for name, what in {**CALIBRATED, **PLACE}.items():
        add(name, what, fill_of(what))
    if readings:
        layout.dims["reading"] = readings
        add("iteration", ITERATION["iteration"], 0, chunks=(1, 1, min(readings, CHUNK_BYTES // 4)))
        add("n_readings", ITERATION["n_readings"], 0, chunks=row)
    if layout.nodes:
        layout.dims["node"] = len(layout.nodes)
        for name, what in {**NODE, **USE}.items():
            add(name, what, fill_of(what), chunks=row if what.dims == OF_A_NODE else None)
    if len(layout.looks):
        layout.dims["look"] = len(layout.looks)
        number = np.nan_to_num(layout.looks[:, 0], nan=-1).astype(np.int32)
        layout.coords["look"] = (number, COORDINATES["look"].attrs())
        for name, what in LOOKS.items():
            add(name, what, fill_of(what))
    if sources:
        longest = max(1, *(bursts for _, bursts in sources))
        layout.dims |= {"source": len(sources), "burst": longest}
        for name, what in SOURCES.items():
            chunks = (1, min(longest, CHUNK_BYTES // 8)) if what.dims == OF_A_BURST else None
            fill = BURST[name.removeprefix("burst_")][2] if what.dims == OF_A_BURST else fill_of(what)
            add(name, what, 0 if name == "n_bursts" else fill, chunks=chunks)
