"""A busy machine: every core runs a program that never waits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def busy(wanted: bool = True) -> Iterator[None]:
    """Makes every core busy within the block."""
    spinning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(len(os.sched_getaffinity(0)) if wanted else 0)
    ]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()
