"""Studies of sonde io from invented runs, in the layout of `sonde io study`: for the tests of their readers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sonde import _core
from sonde.core import run_folder, seal
from sonde.io.kinds import SCHEMA
from sonde.io.maps.layers import KINDS
from sonde.io.study.plan import Plan, cells_of, read_hints, read_workload
from sonde.io.study.schema import FIELDS, LIMITS, RECORD, WHOLE
from sonde.io.trace.schema import NAME

MIB = 1 << 20
LAYERS = (
    {"name": "mpiio", "title": "MPI-IO"},
    {"name": "romio", "title": "ROMIO (ADIO)"},
    {"name": "ompio", "title": "OMPIO"},
    {"name": "posix", "title": "POSIX"},
    {"name": "tracer", "title": "Sonde's tracer"},
)


def plan(
    workloads: Sequence[str] = ("ior:-a MPIIO -t 1m",),
    sizes: Sequence[int] = (4 * MIB,),
    ios: Sequence[str] = ("romio321", "ompio"),
    hints: Sequence[str] = ("none",),
    places: Sequence[str] = ("/scratch",),
    clusters: Sequence[str] = ("",),
    ntasks: int = 2,
    **more: Any,
) -> Plan:
    cells = cells_of(
        [read_workload(text) for text in workloads], sizes, ios, [read_hints(text) for text in hints], places, clusters,
        ntasks,
    )  # fmt: skip
    return Plan(cells, ntasks, layers=LAYERS, **more)


@dataclass
class Folder:
    """A run's folder that is being filled."""

    path: Path
    plan: Plan
    files: int = field(default=0)

    def begin(self) -> Folder:
        run_folder.start(self.path, room="io", schema=NAME, attrs={}, plan=self.plan.as_json())
        return self

    def run(
        self,
        cell: int,
        number: int,
        write: float | None = 100.0 * MIB,
        read: float | None = 200.0 * MIB,
        io_s: float | None = 1.0,
        traced: bool = False,
        status: int = 0,
        functions: Sequence[tuple[str, str, int, float]] = (),
    ) -> None:
        """functions: (layer, name, calls, seconds in itself of all ranks)."""
        head = {
            "what": "run", "run_cell": cell, "run_round": number, "run_traced": int(traced), "run_status": status,
            "run_begin": float(self.files), "run_length": 1.5, "run_io": io_s, "run_write": write, "run_read": read,
            "functions": [[layer, name, KINDS.index("write")] for layer, name, _, _ in functions],
        }  # fmt: skip
        records = np.zeros(1 + len(functions), RECORD)
        records["function"] = np.arange(len(records)) - 1
        assert records["function"][0] == WHOLE
        for k, (_, _, calls, own) in enumerate(functions, 1):
            records[k] = (k - 1, calls, calls * MIB, 2 * own, own)
        self.add(head, records)

    def both(
        self,
        cell: int,
        number: int,
        rate: float = 100.0,
        functions: Sequence[tuple[str, str, int, float]] = (),
        slower: float = 1.0,
    ) -> None:
        """A run without the tracer that writes and reads at `rate`, MiB/s, and one with it, `slower` times as long."""
        for traced, took in ((False, 100 / rate), (True, slower * 100 / rate)):
            each = 100 * MIB / took
            self.run(
                cell, number, each, each, io_s=took, traced=traced, functions=functions if traced else ()
            )

    def limit(self, what: str, rate: float, place: str = "/scratch", cluster: str = "") -> None:
        head = {
            "what": "limit", "limit_place": place, "limit_cluster": cluster, "limit_what": LIMITS.index(what),
            "limit_by": "fio", "limit_round": 0, "limit_rate": rate,
        }  # fmt: skip
        self.add(head, np.array([(WHOLE, 0, 0, 0.0, 0.0)], RECORD))

    def add(self, head: dict[str, Any], records: np.ndarray) -> None:
        path = self.path / f"{head['what']}-{self.files:05}.blk"
        writer = _core.BlockWriter(str(path), json.dumps(FIELDS | head), records.itemsize, len(records))
        writer.append(records)
        writer.flush()
        writer.close()
        self.files += 1

    def sealed(self, **attrs: Any) -> Path:
        """The dataset; without attrs it is that of a killed run."""
        return seal.seal(self.path, self.path.with_suffix(".nc"), SCHEMA, attrs=attrs)[0].path


ROMIO = (
    ("mpiio", "MPI_File_write_all", 8, 0.002),
    ("romio", "ADIOI_GEN_WriteStridedColl", 8, 0.01),
    ("posix", "pwrite", 4, 0.1),
)
OMPIO = (
    ("mpiio", "MPI_File_write_all", 8, 0.002),
    ("ompio", "mca_io_ompio_file_write_all", 8, 0.03),
    ("posix", "pwrite", 8, 0.2),
)


def two_stacks(folder: Path, rounds: int = 8, factor: float = 2.0, **more: Any) -> Path:
    """romio321 and ompio, ompio `factor` times slower, with a tracer that costs 10 %, and the disk alone."""
    made = Folder(folder / "a.run", plan(**more)).begin()
    for number in range(rounds):
        level = 1 + 0.02 * number  # the machine's, shared by both
        for cell, (slow, functions) in enumerate(((1.0, ROMIO), (factor, OMPIO))):
            rate = 100 * MIB / (slow * level)
            made.run(cell, number, rate, 4 * rate, io_s=slow * level)
            made.run(
                cell, number, rate / 1.1, 4 * rate, io_s=slow * level * 1.1, traced=True, functions=functions
            )
        made.limit("write", 300.0 * MIB)
        made.limit("read", 350.0 * MIB)
    return made.sealed(stop_reason="repetitions")
