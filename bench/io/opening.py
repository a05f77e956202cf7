"""How long a trace of ten million events takes to become a dataset, and a report."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.io.programs import NOTHING, row, workshop

EVENTS = 10_000_000


def rows() -> list[dict]:
    """Seconds for the report; those for the dataset beside it."""
    sonde = Path(sys.executable).with_name("sonde")
    with workshop() as shop, tempfile.TemporaryDirectory(prefix="sonde-bench-") as name:
        own, data, page = shop / "nothing.toml", Path(name) / "a.nc", Path(name) / "a.html"
        own.write_text(NOTHING)
        traced = [
            sonde,
            "io",
            "run",
            "--map",
            own,
            "--layers",
            "nothing",
            "-o",
            data,
            "--",
            shop / "many",
            EVENTS // 1_000_000,
        ]
        took = []
        for line in (traced, [sonde, "report", data, "-o", page]):
            began = time.monotonic()
            subprocess.run(list(map(str, line)), check=True, capture_output=True, timeout=580)
            took.append(time.monotonic() - began)
        import xarray as xr

        with xr.open_dataset(data, group="raw", engine="netcdf4") as raw:
            events = raw.sizes["event"]
    return [
        row(
            f"report of {events / 1e6:.3g} million events",
            "< 10 s",
            took[1],
            took[1] < 10 and events >= EVENTS,
            f"s; tracing them and making the dataset {took[0]:.1f} s",
        )
    ]
