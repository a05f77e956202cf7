"""From the records of block files to datasets of net/1: layout, place, analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.described import Tables
from sonde.core.errors import DataError, Finding, Warning
from sonde.core.layout import Layout
from sonde.core.status import ENDED_EARLY, NOT_MEASURED, UNDECIDED
from sonde.net.schema import (
    ATTRIBUTES,
    CELL,
    CLOCK_FACTS,
    COORDINATES,
    RANK_FACTS,
    RAW,
    SUMMARY,
    coordinates,
    raw_variables,
    validate,
)

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile
    from sonde.core.deadline import Deadline

# Kinds of record in a net block file.
BURST, VERDICT, CLOCK = 0, 1, 2

RECORD_FIELDS = ("kind", "mode", "src", "dst", "size", "epoch", "n", "code", "t0", "value", "offset")

# The largest amount that place() may expand at a time: small compared with the 200 MB for sealing a large run.
BATCH_BYTES = 48 * 1024 * 1024


@dataclass
class NetLayout(Layout):
    """Layout of one mode, with further inputs of place(). Arrays are (src, dst, size).

    skip: per rank of a file, cells (flat index) whose samples another file has already given.
    """

    mode: str = ""
    axis: int = 1  # position of the measuring rank in (src, dst)
    n: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 0), np.int32))
    status: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 0), np.int8))
    ranks: dict[str, np.ndarray] = field(default_factory=dict)
    writers: tuple[int, ...] = ()
    skip: dict[int, np.ndarray] = field(default_factory=dict)

    @property
    def peers_per_chunk(self) -> int:
        chunks = self.variables["latency"].chunks
        assert chunks is not None
        return chunks[1 - self.axis]


class NetSchema:
    """RoomSchema of net/1 (`sonde.core.seal`). Plan keys: docs of `layout`."""

    room = "net"
    version = 1

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        """One dataset per mode."""
        return list(plan["modes"])

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> NetLayout:
        """Count the data of mode `part` in the files.

        Parameters
        ----------
        plan : ranks, sizes (B), modes, values {mode: meaning of a sample}, measured_by {mode: "src" | "dst"},
               epoch_length; optional requested pairs [(src, dst)] (default: every ordered pair), and rule,
               pairing, transport, oversubscribed, run_id, which become root attributes
        files : block files of the run, one per rank; ranks may be missing
        part : name of the mode

        Returns
        -------
        NetLayout. `sample` is the largest count of any cell, at least 1. If a requested cell has no data, complete is
        False and a warning names the cells.

        Raises
        ------
        DataError  net.no_blocks (no file), net.plan_mismatch (a file of another run), net.not_net_blocks.
        """
        if not files:
            raise DataError(
                "net.no_blocks",
                "there is no block file to read",
                "nothing was measured: look at the run's log, then measure again",
            )
        ranks, sizes = int(plan["ranks"]), [int(s) for s in plan["sizes"]]
        axis = 1 if plan.get("measured_by", {}).get(part, "dst") == "dst" else 0
        content = _Content(plan, part, ranks, len(sizes))
        for file in files:
            content.add(file)
        content.finish()
        samples = max(1, int(content.n.max(initial=0)))
        layout = NetLayout(
            dims={"src": ranks, "dst": ranks, "size": len(sizes), "sample": samples, "rank": ranks},
            coords=coordinates(ranks, sizes),
            variables=raw_variables(
                ranks,
                len(sizes),
                samples,
                axis,
                plan.get("values", {}).get(part, "rtt_half"),
                clock=content.has_clocks,
            ),
            attrs=_root_attrs(plan, part),
            mode=part,
            axis=axis,
            n=content.n,
            status=content.status,
            ranks=content.facts | (content.clock if content.has_clocks else {}),
            writers=tuple(content.writers),
            skip=content.skip,
            warnings=content.warnings,
        )
        early = ENDED_EARLY.get(str(plan.get("stop_reason")))
        hint = f"{early}: run it again" if early else "measure them again with a longer --budget"
        hint += "; missing ranks are in the log"
        lacking = without_data(content.n, sizes, part, hint, plan.get("pairs"))
        if lacking is not None:
            layout.complete = False
            layout.warnings.append(lacking)
        return layout

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        """Pieces of /raw from one file. Samples of a cell are ordered by epoch, within an epoch as measured.

        The file is read once for its index and then once per BATCH_BYTES of expanded samples.
        """
        assert isinstance(layout, NetLayout)
        rank = int(file.header["rank"])
        yield from _place_counts(layout, rank)
        scan = _Scan(plan, file, part)
        for records in file:
            scan.add(records)
        index = scan.index(layout.skip.get(rank))
        for batch in _batches(layout, index):
            yield from _place_batch(plan, layout, file, part, index, batch)

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        """/raw to /summary: `sonde.net.analyse.analyse`."""
        from sonde.net.analyse import analyse

        return analyse(raw, deadline)

    def tables(self, tree: xr.DataTree) -> Tables:
        """The declared variables and root attributes, which `dataset.open` compares with a file."""
        return {"raw": RAW | COORDINATES, "summary": SUMMARY | COORDINATES, "": ATTRIBUTES}

    def validate(self, tree: xr.DataTree) -> list[Finding]:
        """Violations in a dataset; [] for a valid one. See `validate`."""
        return validate(tree)


SCHEMA = NetSchema()


def _root_attrs(plan: Mapping[str, Any], part: str) -> dict[str, Any]:
    attrs: dict[str, Any] = {"mode": part, "epoch_length": int(plan.get("epoch_length", 0))}
    for name in ("rule", "pairing", "transport", "oversubscribed", "run_id"):
        if plan.get(name) is not None:
            value = plan[name]
            attrs[name] = int(value) if isinstance(value, bool) else value
    if len(plan.get("modes", ())) > 1:  # their bursts alternated
        attrs["modes"] = " ".join(plan["modes"])
    if part in plan.get("noise", {}):
        attrs |= {name: int(value) for name, value in plan["noise"][part].items()}
    return attrs


def _blank_facts(ranks: int) -> dict[str, np.ndarray]:
    facts: dict[str, np.ndarray] = {"host": np.full(ranks, "", object)}
    for name in RANK_FACTS:
        facts[name] = np.full(ranks, -1, np.int32)
    return facts


def _take_facts(facts: dict[str, np.ndarray], rank: int, header: Mapping[str, Any]) -> None:
    for name, values in facts.items():
        found = header.get(name)
        if found is not None:
            values[rank] = found


# ---- reading block files -------------------------------------------------------------------------


def _check_header(plan: Mapping[str, Any], file: BlockFile) -> None:
    names = file.dtype.names or ()
    missing = [f for f in RECORD_FIELDS if f not in names]
    if missing:
        raise DataError(
            "net.not_net_blocks",
            f"a block file has no field {missing[0]!r}; its fields are {', '.join(names)}",
            "is this the folder of a `sonde net run`?",
        )
    header = file.header
    for key in ("ranks", "sizes"):
        mine, its = plan[key], header.get(key)
        if its is not None and its != (list(mine) if key == "sizes" else mine):
            raise DataError(
                "net.plan_mismatch",
                f"a block file was written for {key} = {its}, but this run has {key} = {mine}",
                "keep the files of one run in its folder, and only these",
            )
    rank = header.get("rank")
    if not isinstance(rank, int) or not 0 <= rank < int(plan["ranks"]):
        raise DataError(
            "net.plan_mismatch",
            f"a block file was written by rank {rank}, but this run has ranks 0 to {int(plan['ranks']) - 1}",
            "keep the files of one run in its folder, and only these",
        )


@dataclass(frozen=True)
class _Index:
    """Bursts of one file and mode, in file order: flat cell, position of the first sample in the cell, count."""

    cell: np.ndarray
    start: np.ndarray
    cells: np.ndarray  # distinct, ascending
    counts: np.ndarray  # samples per distinct cell


class _Content:
    """The data of one mode in the block files of a run, counted file by file. Arrays are (src, dst, size)."""

    def __init__(self, plan: Mapping[str, Any], part: str, ranks: int, sizes: int) -> None:
        self._plan, self._part = plan, part
        self.n = np.zeros((ranks, ranks, sizes), np.int32)
        self.status = np.full(self.n.shape, NOT_MEASURED, np.int8)
        self.facts = _blank_facts(ranks)
        self.clock = {name: np.full(ranks, np.nan) for name in CLOCK_FACTS}
        self._clock_time = np.full(ranks, -np.inf)
        self.skip: dict[int, np.ndarray] = {}
        self.writers: list[int] = []
        self.warnings: list[Warning] = []

    @property
    def has_clocks(self) -> bool:
        """Whether clocks were synchronised."""
        return bool(np.isfinite(self._clock_time).any())

    def add(self, file: BlockFile) -> None:
        """Count the records of one file."""
        _check_header(self._plan, file)
        rank = int(file.header["rank"])
        self.writers.append(rank)
        _take_facts(self.facts, rank, file.header)
        scan = _Scan(self._plan, file, self._part)
        for records in file:
            scan.add(records)
        self._count(rank, *scan.cells())
        decided, codes = scan.verdicts()
        self.status.reshape(-1)[decided] = codes
        for peer, t0, values in scan.clocks:
            if t0 >= self._clock_time[peer]:
                self._clock_time[peer] = t0
                for name, value in zip(CLOCK_FACTS, values):
                    self.clock[name][peer] = value
        if scan.bad:
            self.warnings.append(
                Warning(
                    "net.bad_record",
                    f"{scan.bad} records of rank {rank} name ranks, sizes or counts that this run "
                    "does not have",
                    "they are left out; does the folder contain files of another run?",
                )
            )

    def _count(self, rank: int, cells: np.ndarray, counts: np.ndarray) -> None:
        n = self.n.reshape(-1)
        twice = n[cells] > 0
        if twice.any():
            self.skip[rank] = cells[twice]
            self.warnings.append(
                Warning(
                    "net.cell_twice",
                    f"{int(twice.sum())} cells of {self._part} were measured by more than one rank; "
                    f"the data of rank {rank} for them are left out",
                    "does the folder contain one rank's block file under two names?",
                )
            )
        n[cells[~twice]] = counts[~twice]

    def finish(self) -> None:
        """Give cells without a verdict their status.

        Raises
        ------
        DataError  net.plan_mismatch: two files are of one rank.
        """
        if len(set(self.writers)) != len(self.writers):
            raise DataError(
                "net.plan_mismatch",
                f"two block files were written by rank {_first_repeated(self.writers)}",
                "keep the files of one run in its folder, and only these",
            )
        self.status[self.n == 0] = NOT_MEASURED
        self.status[(self.n > 0) & (self.status == NOT_MEASURED)] = UNDECIDED


class _Scan:
    """Reads the heads of one file's records of one mode; it never stores their samples."""

    def __init__(self, plan: Mapping[str, Any], file: BlockFile, part: str) -> None:
        self.ranks, self.sizes = int(plan["ranks"]), len(plan["sizes"])
        modes = list(file.header.get("modes", plan["modes"]))
        self.mode = modes.index(part) if part in modes else -1
        self.width = _burst_width(file.dtype)
        self.bad = 0
        self._decided: list[np.ndarray] = []
        self._codes: list[np.ndarray] = []
        self.clocks: list[tuple[int, float, tuple[float, ...]]] = []
        self._cell: list[np.ndarray] = []
        self._epoch: list[np.ndarray] = []
        self._n: list[np.ndarray] = []

    def bursts(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The valid bursts of this mode among the records, and their flat cells."""
        mine = (records["kind"] == BURST) & (records["mode"] == self.mode)
        good = mine & self._inside(records) & (records["n"] <= self.width)
        return good, self._flat(records[good])

    def add(self, records: np.ndarray) -> None:
        good, cell = self.bursts(records)
        self._cell.append(cell)
        self._epoch.append(records["epoch"][good].astype(np.int64))
        self._n.append(records["n"][good].astype(np.int64))
        mine = records["mode"] == self.mode
        self.bad += int(np.count_nonzero((records["kind"] == BURST) & mine)) - int(np.count_nonzero(good))
        verdict = mine & (records["kind"] == VERDICT)
        inside = verdict & self._inside(records) & (records["code"] <= UNDECIDED)
        self.bad += int(np.count_nonzero(verdict & ~inside))
        code = records["code"][inside].astype(np.int8)
        self._decided.append(self._flat(records[inside]))
        self._codes.append(np.where(code == NOT_MEASURED, np.int8(UNDECIDED), code))
        clock = records["kind"] == CLOCK
        known = clock & (records["src"] < self.ranks)
        self.bad += int(np.count_nonzero(clock & ~known))
        for record in records[known]:
            values = np.ravel(record["value"])[: len(CLOCK_FACTS)]
            self.clocks.append((int(record["src"]), float(record["t0"]), tuple(float(v) for v in values)))
        self.bad += int(np.count_nonzero(records["kind"] > CLOCK))

    def cells(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct flat cells with samples, ascending, and the number of samples of each."""
        cell, n = self._joined(self._cell), self._joined(self._n)
        cell, n = cell[n > 0], n[n > 0]
        found, where = np.unique(cell, return_inverse=True)
        return found, np.bincount(where, weights=n, minlength=len(found)).astype(np.int64)

    def verdicts(self) -> tuple[np.ndarray, np.ndarray]:
        """Flat cells and their decisions, in the order of the decisions."""
        return self._joined(self._decided), self._joined(self._codes)

    def index(self, skip: np.ndarray | None) -> _Index:
        """The position of each burst. A stable sort, because a file's epochs may not ascend."""
        cell, epoch, n = self._joined(self._cell), self._joined(self._epoch), self._joined(self._n)
        order = np.lexsort((epoch, cell))
        ends = np.cumsum(n[order])
        begins = ends - n[order]
        first = np.ones(len(order), bool)
        first[1:] = cell[order][1:] != cell[order][:-1]
        base = begins[first][np.cumsum(first) - 1] if len(order) else begins
        start = np.empty(len(cell), np.int64)
        start[order] = begins - base
        if skip is not None:
            start[np.isin(cell, skip)] = -1
        cells, counts = self.cells()
        if skip is not None:
            selected = ~np.isin(cells, skip)
            cells, counts = cells[selected], counts[selected]
        return _Index(cell, start, cells, counts)

    def _inside(self, records: np.ndarray) -> np.ndarray:
        return (records["src"] < self.ranks) & (records["dst"] < self.ranks) & (records["size"] < self.sizes)

    def _flat(self, records: np.ndarray) -> np.ndarray:
        src, dst, size = (records[name].astype(np.int64) for name in CELL)
        return (src * self.ranks + dst) * self.sizes + size

    @staticmethod
    def _joined(parts: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _burst_width(dtype: np.dtype) -> int:
    shape = dtype["value"].shape
    return int(shape[0]) if shape else 1


# ---- writing pieces ------------------------------------------------------------------------------

Piece = tuple[str, tuple[int | slice, ...], np.ndarray]
_Unit = tuple[int, int, int, int]  # measuring rank, size, first peer, peer after the last


def _place_counts(layout: NetLayout, rank: int) -> Iterator[Piece]:
    """n and status of the rows that this file is responsible for. The first file adds rank facts and missing rows."""
    rows = [rank]
    if rank == layout.writers[0]:
        here = slice(0, layout.dims["rank"])
        for name, values in layout.ranks.items():
            yield name, (here,), values
        present = set(layout.writers)
        rows += [r for r in range(layout.dims["rank"]) if r not in present]
    every = slice(0, layout.dims["rank"]), slice(0, layout.dims["size"])
    for row in rows:
        where = (row, *every) if layout.axis == 0 else (every[0], row, every[1])
        yield "n", where, layout.n[where]
        yield "status", where, layout.status[where]


def _batches(layout: NetLayout, index: _Index) -> Iterator[list[_Unit]]:
    """Units with data, chunk by chunk, in groups that expand to at most BATCH_BYTES (or one unit)."""
    ranks, sizes, step = layout.dims["rank"], layout.dims["size"], layout.peers_per_chunk
    pair, size = np.divmod(index.cells, sizes)
    src, dst = np.divmod(pair, ranks)
    row, peer = (src, dst) if layout.axis == 0 else (dst, src)
    units = np.unique(np.stack([row, size, peer // step], axis=1), axis=0)
    sample_bytes = 8 + 4 + 8
    unit_bytes = step * layout.dims["sample"] * sample_bytes
    per_batch = max(1, BATCH_BYTES // unit_bytes)
    for at in range(0, len(units), per_batch):
        some = units[at : at + per_batch].tolist()
        yield [(row_, size_, block * step, min((block + 1) * step, ranks)) for row_, size_, block in some]


def _place_batch(
    plan: Mapping[str, Any], layout: NetLayout, file: BlockFile, part: str, index: _Index, batch: list[_Unit]
) -> Iterator[Piece]:
    ranks, sizes, samples = layout.dims["rank"], layout.dims["size"], layout.dims["sample"]
    # Flat cells of the batch, ascending, and the line of the buffers for each.
    lines, cells = [], []
    line = 0
    for row, size, low, high in batch:
        peer = np.arange(low, high)
        src, dst = (row, peer) if layout.axis == 0 else (peer, row)
        cells.append((src * ranks + dst) * sizes + size)
        lines.append(np.arange(line, line + len(peer)))
        line += len(peer)
    cell_of = np.concatenate(cells)
    order = np.argsort(cell_of)
    sorted_cells, sorted_lines = cell_of[order], np.concatenate(lines)[order]
    latency = np.full((line, samples), np.nan)
    epoch = np.full((line, samples), -1, np.int32)
    t_start = np.full((line, samples), np.nan)

    scan = _Scan(plan, file, part)
    column = np.arange(scan.width)
    at = 0
    for records in file:
        good, cell = scan.bursts(records)
        start = index.start[at : at + len(cell)]
        at += len(cell)
        if not len(cell):
            continue
        where = np.minimum(np.searchsorted(sorted_cells, cell), len(sorted_cells) - 1)
        here = (sorted_cells[where] == cell) & (start >= 0)
        bursts = records[good][here]
        if not len(bursts):
            continue
        valid = column < bursts["n"].astype(np.int64)[:, None]
        target = (sorted_lines[where[here]] * samples + start[here])[:, None] + column
        target = target[valid]
        value = bursts["value"].reshape(len(bursts), -1)
        offset = bursts["offset"].reshape(len(bursts), -1).astype(np.float64)
        latency.reshape(-1)[target] = value[valid]
        t_start.reshape(-1)[target] = (bursts["t0"][:, None] + offset)[valid]
        epoch.reshape(-1)[target] = np.broadcast_to(bursts["epoch"][:, None], valid.shape)[valid]

    mine = np.isin(cell_of, index.cells)
    line = 0
    for row, size, low, high in batch:
        count = high - low
        own = mine[line : line + count]
        span = slice(low, high)
        n = layout.n[row, span, size] if layout.axis == 0 else layout.n[span, row, size]
        elsewhere = (n > 0) & ~own
        for first, last in _runs(own, elsewhere):
            peers = slice(low + first, low + last)
            where_ = (row, peers, size) if layout.axis == 0 else (peers, row, size)
            rows = slice(line + first, line + last)
            everything = slice(0, samples)
            yield "latency", (*where_, everything), latency[rows]
            yield "epoch", (*where_, everything), epoch[rows]
            yield "t_start", (*where_, everything), t_start[rows]
        line += count


def _runs(own: np.ndarray, elsewhere: np.ndarray) -> Iterator[tuple[int, int]]:
    """Stretches to write: from one own position to another, over gaps but not over another file's cells."""
    first = last = -1
    for position in range(len(own)):
        if elsewhere[position] and first >= 0:
            yield first, last
            first = -1
        elif own[position]:
            if first < 0:
                first = position
            last = position + 1
    if first >= 0:
        yield first, last


# ---- what is missing -----------------------------------------------------------------------------


def without_data(
    n: np.ndarray,
    sizes: Sequence[int],
    mode: str,
    hint: str,
    pairs: Sequence[Sequence[int]] | None = None,
    most: int = 6,
) -> Warning | None:
    """The warning that names requested cells without a sample, at most `most` of them; None without such cells.

    n: (src, dst, size). sizes: B. pairs: requested (src, dst); None for all except the diagonal.
    """
    ranks = n.shape[0]
    asked = ~np.eye(ranks, dtype=bool)
    if pairs is not None:
        asked = np.zeros((ranks, ranks), bool)
        asked[tuple(np.asarray(pairs, np.int64).reshape(-1, 2).T)] = True
    lacking = np.flatnonzero(asked[:, :, None] & (n == 0))
    if not len(lacking):
        return None
    named = zip(*np.unravel_index(lacking[:most], n.shape))
    text = ", ".join(f"{src}→{dst} at {sizes[k]} B" for src, dst, k in named)
    text += f" and {len(lacking) - most} more" if len(lacking) > most else ""
    what = f"{len(lacking)} requested cells of {mode} have no data"
    return Warning("net.cells_without_data", f"{what}: {text}", hint)


def _first_repeated(values: Sequence[int]) -> int:
    return next(v for i, v in enumerate(values) if v in values[:i])
