"""The programs of the netCDF library, which read and write the format independently of Sonde."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def run(program: str, *arguments: object) -> str:
    """The output of ncdump or nccopy; skips the test if they are not installed."""
    if not shutil.which(program):
        pytest.skip(f"no {program}: `deploy/setup check` installs it")
    command = [program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
