"""The programs that come with netCDF, which read and write the format apart from Sonde."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def run(program: str, *arguments: object) -> str:
    """What ncdump or nccopy prints; skips the test where they are not installed."""
    if not shutil.which(program):
        pytest.skip(f"no {program}: `deploy/setup check` installs it")
    command = [program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
