"""Datasets of an invented room, whose section is that of report_demo."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import netCDF4
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # fakeroom

import fakeroom

import report_demo as demo

ROOT = {
    "schema": "lab/1",
    "sonde_version": "0.1.0",
    "command": "sonde lab run --ntasks 4",
    "created_utc": "2026-11-20T21:47:57Z",
    "seed": 20261120,
    "stop_reason": "converged",
    "complete": 1,
    "hostlist": "n[001-002]",
    "job_id": "",
    "cpu_model": "EPYC 7543",
    "memory_b": 274877906944,
    "load_average": [0.5, 0.25, 0.125],
}


@pytest.fixture
def lab():
    """The room `lab`; `lab.ranks` is what its section is about."""
    about = SimpleNamespace(ranks=4, asked=[])

    def made(tree, dataset):
        about.asked.append(dataset)
        return demo.section(about.ranks)

    about.made_section = made
    remove = fakeroom.install(lambda tree, dataset: about.made_section(tree, dataset))
    yield about
    remove()


@pytest.fixture
def dataset(tmp_path):
    """Writes a dataset with root attributes and warnings; returns its path."""

    def write(
        name: str = "lab-alpha.nc", warnings: tuple[tuple[str, str, str], ...] = (), **attributes
    ) -> Path:
        path = tmp_path / name
        with netCDF4.Dataset(path, "w") as file:
            file.setncatts(ROOT | attributes)
            raw = file.createGroup("raw")
            raw.createDimension("rank", 4)
            raw.createVariable("delay", "f8", ("rank",))[:] = 1e-6
            env = file.createGroup("env")
            env.setncatts({"clock_source": "tsc", "governor": "performance"})
            kept = file.createGroup("warnings")
            kept.createDimension("warning", len(warnings))
            for k, column in enumerate(("code", "evidence", "hint")):
                variable = kept.createVariable(column, str, ("warning",))
                for n, warning in enumerate(warnings):
                    variable[n] = warning[k]
        return path

    return write
