"""A tiny language for tests of sonde-net: start it with options, get its events and its records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonde.core.blocks import BlockFile
from sonde.core.launch import probe
from sonde.core.launch.mpirun import Mpirun
from sonde.core.launch.process import ProbeProcess

BURST, VERDICT, CLOCK = 0, 1, 2


@dataclass
class Heard:
    """What one start of sonde-net came to."""

    run_dir: Path
    events: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""

    def event(self, name: str) -> dict[str, Any]:
        return next(event for event in self.events if event["event"] == name)

    def files(self) -> list[BlockFile]:
        return [BlockFile(path) for path in sorted(self.run_dir.glob("rank-*.blk"))]

    def series(self) -> dict[tuple[str, int, int, int], np.ndarray]:
        """Samples in s by (mode, size in B, src, dst), in the order they were written."""
        out: dict[tuple[str, int, int, int], list[np.ndarray]] = {}
        for file in self.files():
            for records in file:
                for r in records[records["kind"] == BURST]:
                    mode, size = file.header["modes"][r["mode"]], file.header["sizes"][r["size"]]
                    key = (mode, size, int(r["src"]), int(r["dst"]))
                    out.setdefault(key, []).append(r["value"][: r["n"]])
        return {key: np.concatenate(bursts) for key, bursts in out.items()}

    def records(self, rank: int, kind: int) -> np.ndarray:
        records = np.concatenate(list(self.files()[rank]))
        return records[records["kind"] == kind]


Probe = Callable[..., Heard]


@pytest.fixture
def sonde_net(mpirun: Mpirun, run_dir: Path) -> Probe:
    """sonde_net(2, modes="put", sizes="8", rule="fixed:100", …) runs it to its end."""

    def start(ntasks: int, *, wait: bool = True, **options: str) -> Any:
        words = {"dir": str(run_dir), "rule": "fixed:100", "epoch-length": "20", "budget-s": "60"}
        words |= {name.replace("_", "-"): value for name, value in options.items()}
        argv = [str(probe("sonde-net", mpirun.mpi.flavour))]
        for name, value in words.items():
            argv += [f"--{name}", value]
        heard = Heard(run_dir)
        process = ProbeProcess(mpirun.command(argv, (), ntasks, {}), run_dir, heard.events.append)
        if not wait:
            return process, heard
        with process:
            heard.reason = process.wait(timeout_s=120).check().reason
        return heard

    return start


@pytest.fixture
def ranks_left(run_dir: Path) -> Callable[[], list[int]]:
    """Process ids of ranks of this test's run that are still there."""

    def look() -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            except OSError:
                continue  # it went meanwhile
            if words and words[0].endswith(b"/sonde-net") and str(run_dir).encode() in words:
                found.append(int(entry.name))
        return found

    return look
