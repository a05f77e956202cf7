"""net/1: the content of a dataset of `sonde net`, how block files become /raw, and the rules for a valid file.

ARCHITECTURE.md, "net/1", is the definition; the tables RAW and SUMMARY here are the same as data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import described
from sonde.core.allowed import COUNT, FINITE, NUMBERED, Allowed, count_of, index
from sonde.core.described import Described, Tables, attribute
from sonde.core.described import optional as _of
from sonde.core.errors import DataError, Finding, Warning
from sonde.core.layout import Layout, Variable
from sonde.core.status import ENDED_EARLY, NOT_MEASURED, STATUS, UNDECIDED, status_flags

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile
    from sonde.core.deadline import Deadline

NAME = "net/1"

# Kinds of record in a net block file.
BURST, VERDICT, CLOCK = 0, 1, 2

RECORD_FIELDS = ("kind", "mode", "src", "dst", "size", "epoch", "n", "code", "t0", "value", "offset")


VALUES = ("rtt_half", "one_way", "recv_duration", "completion", "unknown")  # unknown: only for imports

CELL = ("src", "dst", "size")
SERIES = (*CELL, "sample")

CHUNK_BYTES = 512 * 1024
# The largest amount that place() may expand at a time: small compared with the 200 MB for sealing a large run.
BATCH_BYTES = 48 * 1024 * 1024


def _cell(units: str, long_name: str, dtype: str = "<f8", allowed: Allowed | None = None) -> Described:
    return _of(CELL, units, long_name, dtype, allowed)


RAW: dict[str, Described] = {
    "latency": Described(SERIES, "<f8", "s", "delay of one message", allowed=FINITE),
    "epoch": Described(
        SERIES, "<i4", "1", "burst a sample belongs to; -1 where there is none", allowed=NUMBERED
    ),
    "t_start": Described(
        SERIES,
        "<f8",
        "s",
        "start of the measurement since the run began, by the clock of the rank that measured",
        allowed=FINITE,
    ),
    "n": Described(CELL, "<i4", "1", "samples kept", allowed=count_of("sample")),
    "status": Described(CELL, "|i1", "1", "how measuring a cell ended", allowed=STATUS),
    "host": Described(("rank",), "str", "", "host a rank ran on"),
    "cpu": Described(("rank",), "<i4", "1", "hardware thread a rank ran on; -1 not known", allowed=NUMBERED),
    "core": Described(("rank",), "<i4", "1", "core a rank ran on; -1 not known", allowed=NUMBERED),
    "l3": Described(("rank",), "<i4", "1", "L3 cache a rank ran under; -1 not known", allowed=NUMBERED),
    "numa": Described(("rank",), "<i4", "1", "NUMA node a rank ran on; -1 not known", allowed=NUMBERED),
    "package": Described(
        ("rank",), "<i4", "1", "processor package a rank ran on; -1 not known", allowed=NUMBERED
    ),
    "clock_offset": Described(
        ("rank",), "<f8", "s", "clock of a rank minus clock of rank 0", required=False, allowed=FINITE
    ),
    "clock_drift": Described(
        ("rank",), "<f8", "s/s", "drift of that clock against rank 0", required=False, allowed=FINITE
    ),
    "clock_error": Described(
        ("rank",), "<f8", "s", "error of the clock offset", required=False, allowed=FINITE
    ),
}
RANK_FACTS = ("cpu", "core", "l3", "numa", "package")
CLOCK_FACTS = ("clock_offset", "clock_drift", "clock_error")

SUMMARY: dict[str, Described] = {
    "n": _cell("1", "samples", "<i4", allowed=COUNT),
    "epochs": _cell("1", "epochs with samples", "<i4", allowed=COUNT),
    "ess": _cell("1", "effective sample size"),
    "mean": _cell("s", "mean"),
    "sd": _cell("s", "standard deviation, n - 1 in the denominator"),
    "min": _cell("s", "smallest delay"),
    "max": _cell("s", "largest delay"),
    "median": _cell("s", "median"),
    "warmup": _cell("1", "samples left out of the median as warm-up", "<i4", allowed=COUNT),
    "median_low": _cell("s", "lower end of the 95 % interval of the median"),
    "median_high": _cell("s", "upper end of the 95 % interval of the median"),
    "q05": _cell("s", "5 % quantile"),
    "q25": _cell("s", "25 % quantile"),
    "q75": _cell("s", "75 % quantile"),
    "q95": _cell("s", "95 % quantile"),
    "q99": _cell("s", "99 % quantile"),
    "drift_p": _cell("1", "p of no drift"),
    "status": _cell("1", "how measuring a cell ended", "|i1", allowed=STATUS),
    "ratio": _cell("1", "median over what ranks and class explain"),
    "class": _of(
        ("src", "dst"), "1", "link class, 0 the fastest; -1 none", "<i8", allowed=index("link_class", -1)
    ),
    "class_expected": _of(("src", "dst"), "1", "link class that the other links of both ranks say", "<i8"),
    "class_links": _of(("link_class",), "1", "links in a class", "<i8", allowed=COUNT),
    "class_median": _of(("link_class", "size"), "s", "median over links of a class"),
    "class_spread": _of(("link_class",), "1", "robust sd of log latency between its links"),
    "class_level": _of(("link_class",), "", "where most of its pairs are", "str"),
    "class_level_share": _of(("link_class",), "1", "share of its pairs that are there"),
    "merge_tree": _of(
        ("merge", "merge_part"),
        "1",
        "tree of links as scipy's linkage: left, right, height (log ratio), links",
    ),
    "leaf_name": _of(("leaf",), "", "links in a leaf of the tree", "str"),
    "leaf_class": _of(("leaf",), "1", "class of a leaf", "<i8", allowed=index("link_class", -1)),
    "link_level": _of(("src", "dst"), "1", "false-discovery level of a slow link"),
    "link_subject": _of(("link",), "", "what is slow: link, rank or host", "str"),
    "link_src": _of(
        ("link",), "1", "sending rank, or the rank; -1 for a host", "<i8", allowed=index("src", -1)
    ),
    "link_dst": _of(
        ("link",), "1", "receiving rank, or the rank; -1 for a host", "<i8", allowed=index("dst", -1)
    ),
    "link_host": _of(("link",), "", "host", "str"),
    "link_size_low": _of(("link",), "B", "smallest size at which it is slow", "<i8", allowed=COUNT),
    "link_size_high": _of(("link",), "B", "largest size at which it is slow", "<i8", allowed=COUNT),
    "link_ratio": _of(("link",), "1", "measured over expected"),
    "link_ratio_low": _of(("link",), "1", "lower end of its 95 % interval"),
    "link_ratio_high": _of(("link",), "1", "upper end of its 95 % interval"),
    "link_expected": _of(("link",), "s", "median expected over those sizes"),
    "link_p": _of(("link",), "1", "one-sided p"),
    "link_q": _of(("link",), "1", "p after false-discovery control"),
    "link_slow": _of(("link",), "1", "how many links of the rank or host are slow", "<i8", allowed=COUNT),
    "link_of": _of(("link",), "1", "how many links it has", "<i8", allowed=COUNT),
    "lognormal_shift": _cell("s", "shift of the fitted three-parameter lognormal"),
    "lognormal_mu": _cell("1", "mean of log((delay - shift) / 1 s)"),
    "lognormal_sigma": _cell("1", "standard deviation of log((delay - shift) / 1 s)"),
    "lognormal_ks": _cell("1", "Kolmogorov-Smirnov distance from the fitted lognormal"),
    "lognormal_p": _cell("1", "p of the fitted lognormal"),
    "cyclic_p": _cell("1", "p of no cycle, within bursts and between them"),
    "cyclic_period": _cell("s", "period of the strongest cycle; NaN where cyclic_p > 0.01"),
    "cyclic_samples": _cell("1", "the same in samples, where samples have no times"),
    "outlier_share": _cell("1", "share of samples that are outliers"),
    "outlier_p": _cell("1", "p of outliers at random times"),
    "outlier_period": _cell("s", "period of recurring outliers; NaN where outlier_p > 0.01"),
    "outlier_samples": _cell("1", "the same in samples, where samples have no times"),
    "regimes": _cell("1", "levels that the epoch medians take; 0 where not looked for", "<i4", allowed=COUNT),
    "homogeneous_p": _cell("1", "p of epochs alike in level and spectrum"),
    "jump_src": _of(
        ("jump",), "1", "sender of the pair; -1 for a whole class", "<i8", allowed=index("src", -1)
    ),
    "jump_dst": _of(
        ("jump",), "1", "receiver of the pair; -1 for a whole class", "<i8", allowed=index("dst", -1)
    ),
    "jump_class": _of(
        ("jump",), "1", "link class; -1 for a single pair", "<i8", allowed=index("link_class", -1)
    ),
    "jump_size_low": _of(("jump",), "B", "largest size before it", "<i8", allowed=COUNT),
    "jump_size_high": _of(("jump",), "B", "smallest size after it", "<i8", allowed=COUNT),
    "jump_height": _of(("jump",), "s", "delay above what the slope before would give"),
    "jump_ratio": _of(("jump",), "1", "the same as a ratio"),
    "jump_slope_before": _of(("jump",), "s/B", "slope of delay over size before it"),
    "jump_slope_after": _of(("jump",), "s/B", "slope of delay over size after it"),
    "jump_p": _of(("jump",), "1", "p of no break"),
    "jump_share": _of(("jump",), "1", "share of the class's pairs that show it"),
    "event_t": _of(("event",), "s", "time of the event since the run began"),
    "event_epoch": _of(("event",), "1", "first epoch after it"),
    "event_ratio": _of(("event",), "1", "delay after over before"),
    "event_share": _of(("event",), "1", "share of cells that moved the same way"),
    "event_p": _of(("event",), "1", "p of no change"),
    "spectrum": _of(
        ("src", "dst", "position", "harmonic"), "s", "amplitude |rfft| of each window of samples"
    ),
    **{
        name: replace(RAW[name], required=False)
        for name in ("host", "core", "l3", "numa", "package", "clock_error")
    },
}
"""Variables of /summary. Every variable is optional, and others are allowed."""


COORDINATES = {
    "src": _of(("src",), "1", "sending rank", "<i4", COUNT),
    "dst": _of(("dst",), "1", "receiving rank", "<i4", COUNT),
    "rank": _of(("rank",), "1", "rank", "<i4", COUNT),
    "size": _of(("size",), "B", "bytes of a message", "<i8", COUNT),
}
ATTRIBUTES = {**described.ROOT, "epoch_length": attribute("samples of a burst", COUNT)}


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
        shape = (ranks, ranks, len(sizes))
        axis = 1 if plan.get("measured_by", {}).get(part, "dst") == "dst" else 0
        n = np.zeros(shape, np.int32)
        status = np.full(shape, NOT_MEASURED, np.int8)
        facts = _blank_facts(ranks)
        clock = {name: np.full(ranks, np.nan) for name in CLOCK_FACTS}
        clock_time = np.full(ranks, -np.inf)
        skip: dict[int, np.ndarray] = {}
        writers: list[int] = []
        warnings: list[Warning] = []
        for file in files:
            _check_header(plan, file)
            rank = int(file.header["rank"])
            writers.append(rank)
            _take_facts(facts, rank, file.header)
            scan = _Scan(plan, file, part)
            for records in file:
                scan.add(records)
            cells, counts = scan.cells()
            twice = n.reshape(-1)[cells] > 0
            if twice.any():
                skip[rank] = cells[twice]
                warnings.append(
                    Warning(
                        "net.cell_twice",
                        f"{int(twice.sum())} cells of {part} were measured by more than one rank; "
                        f"the data of rank {rank} for them are left out",
                        "does the folder contain one rank's block file under two names?",
                    )
                )
            n.reshape(-1)[cells[~twice]] = counts[~twice]
            decided, codes = scan.verdicts()
            status.reshape(-1)[decided] = codes
            for peer, t0, values in scan.clocks:
                if t0 >= clock_time[peer]:
                    clock_time[peer] = t0
                    for name, value in zip(CLOCK_FACTS, values):
                        clock[name][peer] = value
            if scan.bad:
                warnings.append(
                    Warning(
                        "net.bad_record",
                        f"{scan.bad} records of rank {rank} name ranks, sizes or counts that this run "
                        "does not have",
                        "they are left out; does the folder contain files of another run?",
                    )
                )
        if len(set(writers)) != len(writers):
            raise DataError(
                "net.plan_mismatch",
                f"two block files were written by rank {_first_repeated(writers)}",
                "keep the files of one run in its folder, and only these",
            )
        status[n == 0] = NOT_MEASURED
        status[(n > 0) & (status == NOT_MEASURED)] = UNDECIDED

        samples = max(1, int(n.max(initial=0)))
        layout = NetLayout(
            dims={"src": ranks, "dst": ranks, "size": len(sizes), "sample": samples, "rank": ranks},
            coords=coordinates(ranks, sizes),
            variables=raw_variables(
                ranks,
                len(sizes),
                samples,
                axis,
                plan.get("values", {}).get(part, "rtt_half"),
                clock=bool(np.isfinite(clock_time).any()),
            ),
            attrs=_root_attrs(plan, part),
            mode=part,
            axis=axis,
            n=n,
            status=status,
            ranks=facts,
            writers=tuple(writers),
            skip=skip,
            warnings=warnings,
        )
        if np.isfinite(clock_time).any():
            layout.ranks.update(clock)
        early = ENDED_EARLY.get(str(plan.get("stop_reason")))
        hint = f"{early}: run it again" if early else "measure them again with a longer --budget"
        hint += "; missing ranks are in the log"
        lacking = without_data(n, sizes, part, hint, plan.get("pairs"))
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


# ---- the form of /raw ----------------------------------------------------------------------------


def raw_variables(
    ranks: int, sizes: int, samples: int, axis: int, value: str, clock: bool = False
) -> dict[str, Variable]:
    """Variables of /raw. axis: 0 if senders measure, 1 if receivers do. It turns the chunks so that one rank's
    measurements of one size are together, in chunks of at most CHUNK_BYTES.
    """
    sample_chunk = min(samples, CHUNK_BYTES // 8)
    peer_chunk = min(ranks, max(1, CHUNK_BYTES // 8 // sample_chunk))
    pair = (1, peer_chunk) if axis == 0 else (peer_chunk, 1)
    pair_whole = (1, ranks) if axis == 0 else (ranks, 1)
    out: dict[str, Variable] = {}
    for name, what in RAW.items():
        attrs = what.attrs()
        chunks: tuple[int, ...] | None = None
        fill: float | int | None = None
        if name in CLOCK_FACTS and not clock:
            continue
        if what.dims == SERIES:
            chunks = (*pair, 1, sample_chunk)
            fill = -1 if name == "epoch" else np.nan
        elif what.dims == CELL:
            chunks = (*pair_whole, min(sizes, max(1, CHUNK_BYTES // 8 // ranks)))
        if name == "latency":
            attrs["value"] = value
            attrs["measured_by"] = CELL[axis]
        if name == "status":
            attrs |= status_flags()
        out[name] = Variable(what.dims, what.dtype, attrs, fill, chunks)
    return out


def coordinates(ranks: int, sizes: Sequence[int] | np.ndarray) -> dict[str, tuple[Any, Mapping[str, Any]]]:
    """Coordinates of /raw and /summary: values and attributes. sizes in B."""
    index = np.arange(ranks, dtype=np.int32)
    return {
        "src": (index, {"units": "1", "long_name": "sending rank"}),
        "dst": (index, {"units": "1", "long_name": "receiving rank"}),
        "size": (np.asarray(sizes, np.int64), {"units": "B", "long_name": "message size"}),
        "rank": (index, {"units": "1", "long_name": "rank"}),
    }


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


# ---- validity ------------------------------------------------------------------------------------


def validate(tree: xr.DataTree) -> list[Finding]:
    """The violations of net/1 in a dataset.

    Parameters
    ----------
    tree : groups /raw and /summary, opened lazily; /raw is read one sender at a time

    Returns
    -------
    Findings, [] for a valid dataset. A file with statistics only (no /raw) is valid.
    """
    found: list[Finding] = []
    schema = tree.attrs.get("schema")
    if schema != NAME:
        found.append(Finding("net.schema", f"schema is {schema!r}, not {NAME!r}", {"schema": schema}))
    has_raw, has_summary = "raw" in tree.children, "summary" in tree.children
    if not has_raw and not has_summary:
        found.append(Finding("net.empty", "there is neither /raw nor /summary", {}))
    if has_raw:
        raw = tree["raw"].to_dataset()
        found += described.check("net", "/raw", raw, RAW, CELL)
        if not found:
            found += _check_raw(raw)
    if has_summary:
        found += described.check("net", "/summary", tree["summary"].to_dataset(), SUMMARY, CELL)
    return found


def _check_raw(raw: xr.Dataset) -> list[Finding]:
    found: list[Finding] = []
    ranks = raw.sizes["src"]
    if raw.sizes["dst"] != ranks or raw.sizes["rank"] != ranks:
        lengths = f"{ranks}, {raw.sizes['dst']} and {raw.sizes['rank']}"
        text = f"src, dst and rank have the lengths {lengths}; they must be equal"
        return [Finding("net.ranks", text, {})]
    sizes = raw["size"].values
    if len(np.unique(sizes)) != len(sizes) or (sizes < 0).any():
        text = "a message size occurs twice or is negative"
        found.append(Finding("net.sizes", text, {"sizes": sizes.tolist()}))
    value = raw["latency"].attrs.get("value")
    if value not in VALUES:
        text = f"the attribute value of /raw/latency is {value!r}; allowed: {', '.join(VALUES)}"
        found.append(Finding("net.value", text, {"value": value}))
    wrong = dict.fromkeys(("count", "value", "epoch", "status"), 0)
    for part in _parts(raw):
        dims = ("src", "dst", "size", "sample")
        latency = part["latency"].transpose(*dims).values
        epoch = np.nan_to_num(part["epoch"].transpose(*dims).values, nan=-1)
        n, status = part["n"].transpose(*CELL).values, part["status"].transpose(*CELL).values
        counted = np.arange(latency.shape[-1]) < n[..., None]
        wrong["count"] += int(((~np.isnan(latency)) != counted).any(axis=-1).sum())
        odd = np.isinf(latency) | (latency < 0 if value != "one_way" else False)  # clocks have errors
        wrong["value"] += int(odd.any(axis=-1).sum())
        falls = (np.diff(epoch, axis=-1) < 0) & counted[..., 1:]
        wrong["epoch"] += int((((epoch >= 0) != counted).any(axis=-1) | falls.any(axis=-1)).sum())
        bad = (status < NOT_MEASURED) | (status > UNDECIDED) | ((status == NOT_MEASURED) != (n == 0))
        wrong["status"] += int(bad.sum())
    texts = {
        "count": "cells where n is not the number of leading delays",
        "value": "cells with a negative or infinite delay",
        "epoch": "cells whose epochs do not ascend, or are missing for delays",
        "status": "cells whose status is not a known code or does not fit n",
    }
    for what, count in wrong.items():
        if count:
            found.append(Finding(f"net.{what}", f"{count} {texts[what]}", {"cells": count}))
    return found


def _parts(raw: xr.Dataset, limit_bytes: int = 32 << 20) -> Iterator[xr.Dataset]:
    """/raw in pieces of about `limit_bytes` of delays, cut along its chunks: by the measuring rank."""
    axis = "src" if raw["latency"].attrs.get("measured_by") == "src" else "dst"
    wanted = raw[["latency", "epoch", "n", "status"]]
    row_bytes = 8 * raw.sizes["src"] * raw.sizes["size"] * raw.sizes["sample"]
    rows = max(1, limit_bytes // max(1, row_bytes))
    sizes = raw.sizes["size"] if row_bytes <= limit_bytes else 1
    for first in range(0, raw.sizes[axis], rows):
        for k in range(0, raw.sizes["size"], sizes):
            yield wanted.isel({axis: slice(first, first + rows), "size": slice(k, k + sizes)})
