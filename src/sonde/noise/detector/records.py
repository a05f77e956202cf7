"""Block files of a rank: which records count, and the data in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.errors import DataError
from sonde.noise.detector.schema import CLASSES, LOOKS, STALL

if TYPE_CHECKING:
    from sonde.core.blocks import BlockFile


# Kinds of record.
BLOCK_RECORD, STALLS, ITERATIONS, AGENT, CALIBRATION, LOOK = range(6)
RECORD_FIELDS = (
    *("kind", "block", "segment", "variant", "n", "part", "complete"),
    *("iterations", "stalls_lost", "involuntary"),
    *("t_begin", "length", "excluded", "run_delay", "cpu", "resumed", "payload"),
)
# No run has more blocks. A larger number is a damaged record, and must not decide how much memory is allocated.
MAX_BLOCKS = 1 << 20
STALL_RECORD = np.dtype([(name, "<f4") for name in ("t_s", "length_s", "delay_s", "gap_s")])


def check_header(plan: Mapping[str, Any], file: BlockFile) -> None:
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


class Scan:
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
                upto = int(head["part"]) * readings_a_record(records) + n
                self.readings[block] = max(self.readings.get(block, 0), upto)
            elif kind == AGENT:
                self.agent = True
            elif kind == CALIBRATION:
                self.calibrated = True
            else:
                self.looks.append(numbers_of_record(head, len(LOOKS) + 1).tolist())

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
    each = np.array([0, STALL_RECORD.itemsize, 4, 8, 8, 8])
    kind = np.minimum(records["kind"], LOOK)
    fits = records["n"].astype(np.int64) * each[kind] <= width
    return (records["kind"] <= LOOK) & (records["block"] < MAX_BLOCKS) & fits & (records["part"] < 1 << 24)


def readings_a_record(records: np.ndarray) -> int:
    return records.dtype["payload"].itemsize // 4


def numbers_of_record(head: np.void, wanted: int) -> np.ndarray:
    """The f8 numbers of a record; NaN for those that its writer did not write."""
    found = head["payload"].tobytes()[: 8 * min(int(head["n"]), wanted)]
    out = np.full(wanted, np.nan)
    out[: len(found) // 8] = np.frombuffer(found, "<f8")
    return out


def runs_of_blocks(records: np.ndarray, placed: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
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


def stalls_of(records: np.ndarray, t_begin: np.ndarray) -> dict[str, np.ndarray]:
    n = records["n"].astype(np.int64)
    width = records.dtype["payload"].itemsize // STALL_RECORD.itemsize
    table = records["payload"].reshape(len(records), -1).copy().view(STALL_RECORD)
    filled = table[np.arange(width) < n[:, None]]
    block = np.repeat(records["block"].astype(np.int32), n)
    out = {"stall_block": block}
    for name, (column, _) in STALL.items():
        if column:
            out[name] = filled[column].astype(np.float64)
    out["stall_t"] = out["stall_t"] + t_begin[block]
    return out


def readings_of(records: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    """Block, index of the first reading, and readings, for each series of consecutive parts."""
    if not len(records):
        return
    each = readings_a_record(records)
    block, part = records["block"].astype(np.int64), records["part"].astype(np.int64)
    short = records["n"][:-1] != each
    cuts = np.flatnonzero((np.diff(block) != 0) | (np.diff(part) != 1) | short) + 1
    for piece in np.split(records, cuts):
        count = int(piece["n"].astype(np.int64).sum())
        ticks = piece["payload"].reshape(len(piece), -1).copy().view("<u4").reshape(-1)[:count]
        if count:
            yield int(piece["block"][0]), int(piece["part"][0]) * each, ticks
