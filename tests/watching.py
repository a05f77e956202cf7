"""Functions for tests that watch a running program: a condition, and the samples that are already on the disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sonde.core.blocks import BlockFile
from sonde.core.errors import DataError


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> bool:
    """Whether the condition became true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def samples_in(run_dir: Path) -> int:
    """The number of samples in the block files of a run folder; a file without a complete header has none."""
    total = 0
    for path in run_dir.glob("rank-*.blk"):
        with suppress(FileNotFoundError, DataError):
            for records in BlockFile(path):
                total += int(records["n"][records["kind"] == 0].sum())
    return total
