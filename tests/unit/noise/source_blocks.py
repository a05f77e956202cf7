"""Block files of a noise source, as sonde-agent writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from noise_blocks import write_blocks

BURST = np.dtype(
    [(name, "<f8") for name in ("planned", "begin", "wall", "cpu", "overhead")]
    + [("words", "<u8"), ("sum", "<u8"), ("on_cpu", "<i4")]
    + [(name, "<u4") for name in ("skipped", "truncated", "preempted")]
)


def write(path: Path, bursts: np.ndarray, **header: object) -> None:
    """A block file as sonde-agent writes it."""
    head = {"kind": "source", "host": "n1", "level": 0.01, "period_s": 1.0, "words": 1000, "core": -1}
    head |= {"phase_s": 0.0, "pid": 7, "realtime_ahead_s": 1e9, "cpu_clock_cost_s": 1e-7}
    write_blocks(path, bursts, head | header)


def bursts(n: int, *, first: float = 100.0, cpu: float = 0.01, wall: float = 0.0099) -> np.ndarray:
    """n bursts a second apart, each 20 µs late."""
    out = np.zeros(n, BURST)
    out["planned"] = first + np.arange(n)
    out["begin"] = out["planned"] + 20e-6
    out["cpu"], out["wall"], out["overhead"], out["words"] = cpu, wall, 100e-6, 20000
    return out
