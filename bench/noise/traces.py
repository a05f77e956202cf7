"""Recorded clean runs, as small files: what the judge needs of each block, and no more.

    python -m bench.noise.traces RUN.nc bench/noise/traces/NAME.npz

Of a run's stalls the longest 256 a second are kept; the judge's simulations take 128.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sonde.noise.detector import judge
from sonde.noise.detector.block_numbers import numbers_of

FOLDER = Path(__file__).parent / "traces"
STALLS_A_SECOND = 256


@dataclass(frozen=True)
class Trace:
    """A recorded clean run. mean_s: (block,), of an iteration."""

    blocks: judge.Blocks
    mean_s: np.ndarray


def load() -> dict[str, Trace]:
    """Every recorded trace by its name, all blocks clean."""
    return {path.stem: read(path) for path in sorted(FOLDER.glob("*.npz"))}


def read(path: Path) -> Trace:
    with np.load(path) as file:
        n = len(file["begin_s"])
        blocks = judge.Blocks(
            number=np.arange(n, dtype=np.int32),
            segment=np.zeros(n, np.int32),
            on=np.zeros(n, np.int32),
            begin_s=file["begin_s"].astype(float),
            length_s=file["length_s"].astype(float),
            resumed_s=np.full(n, 0.05),
            levels=file["levels"].astype(float),
            stall_block=file["stall_block"].astype(np.int32),
            stall_t_s=file["stall_t_s"].astype(float),
            stall_length_s=file["stall_length_s"].astype(float),
        )
        return Trace(blocks, file["mean_s"].astype(float))


def write(run: Path, target: Path) -> None:
    """A trace from the blocks of a run with nothing on."""
    import sonde

    with sonde.open(run) as tree:
        raw = tree["raw"].to_dataset()
        raw.attrs = {**tree.attrs, **raw.attrs}
        blocks = judge.blocks_of(raw, None)
        mean_s = numbers_of(raw).mean[blocks.number]
        about = {
            key: str(tree.attrs.get(key, "")) for key in ("op", "size", "mpi_library", "cpu", "load_average")
        }
    order = np.argsort(-blocks.stall_length_s)[: int(STALLS_A_SECOND * blocks.length_s.sum())]
    order = np.sort(order)
    np.savez_compressed(
        target,
        begin_s=blocks.begin_s,
        length_s=blocks.length_s,
        levels=blocks.levels.astype("f4"),
        mean_s=mean_s,
        stall_block=blocks.stall_block[order].astype("i2"),
        stall_t_s=blocks.stall_t_s[order].astype("f4"),
        stall_length_s=blocks.stall_length_s[order].astype("f4"),
        about=np.array([f"{key}={value}" for key, value in about.items()]),
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
