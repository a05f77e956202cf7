"""What tests watch while something runs: a condition, and the samples that are on the disk already."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sonde.core.blocks import BlockFile
from sonde.core.errors import DataError


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> bool:
    """Whether the condition came true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def samples_in(run_dir: Path) -> int:
    """Samples in the block files of a run folder; a file whose header is not yet written holds none."""
    total = 0
    for path in run_dir.glob("rank-*.blk"):
        with suppress(FileNotFoundError, DataError):
            for records in BlockFile(path):
                total += int(records["n"][records["kind"] == 0].sum())
    return total
