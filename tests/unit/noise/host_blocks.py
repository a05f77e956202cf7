"""Block files of a CPU, as sonde-detour writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from noise_blocks import write_blocks

SEEN = np.dtype([("begin", "<f8"), ("length", "<f8")])


def window_type(counters: int) -> np.dtype:
    return np.dtype(
        [(name, "<f8") for name in ("begin", "end", "lost", "run_delay", "steal", "gap")]
        + [("loops", "<u8")]
        + [(name, "<u4") for name in ("gaps", "method", "involuntary", "voluntary")]
        + [("counters", "<u4", (counters,))]
    )


def cpu_files(
    folder: Path, cpu: int, detours: int, counters: tuple[str, ...] = ("LOC", "soft TIMER")
) -> None:
    """What sonde-detour leaves of one CPU: two windows of 100 ms, `detours` of 5 µs in the first."""
    head = {"kind": "host", "host": "n1", "cpu": cpu, "ticks": "tsc", "seconds_per_tick": 5e-10}
    head |= {
        "least_step_s": 1e-8,
        "threshold_s": 3e-7,
        "window_s": 0.1,
        "quantum_s": 1e-3,
        "quantum_steps": 0,
    }
    head["counters"] = list(counters)
    seen = np.zeros(detours, SEEN)
    seen["begin"], seen["length"] = 50.0 + np.arange(detours) * 1e-3, 5e-6
    write_blocks(folder / f"detour-{cpu:05d}.blk", seen, head | {"what": "detour"})
    windows = np.zeros(2, window_type(len(counters)))
    windows["begin"], windows["end"] = [50.0, 50.2], [50.1, 50.3]
    windows["gap"], windows["loops"] = [0.0, 0.1], 1000
    windows["gaps"], windows["lost"] = [detours, 0], [detours * 5e-6, 0.0]
    windows["counters"] = np.arange(2 * len(counters)).reshape(2, -1)
    write_blocks(folder / f"window-{cpu:05d}.blk", windows, head | {"what": "window"})
