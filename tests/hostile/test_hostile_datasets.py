"""Datasets that claim more than they contain: 22 KiB claimed 286 GiB, and their readers never ended.

HDF5 reads chunks that were never written as fill values, so a dataset of any size costs an attacker nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

import sonde as package
from sonde.core import dataset, dataset_file
from sonde.core.errors import DataError

HUGE = 300_000_000_000  # of 1 B: 279 GiB
ROOMS = ("net", "noise", "store", "io", "bus", "power")


def sound(path: Path, room: str = "net") -> Path:
    raw = xr.Dataset({"x": ("k", np.arange(3.0), {"units": "s", "long_name": "some numbers"})})
    return dataset_file.write_dataset(path, raw, raw, {"schema": f"{room}/1"})


def claiming(path: Path, room: str = "net", group: str = "raw", dtype: str = "i1") -> Path:
    with netCDF4.Dataset(sound(path, room), "a") as root:
        there = root[group]
        there.createDimension("many", HUGE)
        made = there.createVariable(
            "y", dtype if dtype != "str" else str, ("many",), chunksizes=(1 << 20,), fill_value=None
        )
        made.setncatts({"units": "1", "long_name": "nothing at all"})
    assert path.stat().st_size < 64 << 10
    return path


def far_dim(path: Path, room: str = "net") -> Path:
    """No value at all, along a dim whose coordinates alone take exabytes."""
    with netCDF4.Dataset(sound(path, room), "a") as root:
        there = root["summary"]
        there.createDimension("none", 0)
        there.createDimension("far", 1 << 60)
        there.createVariable("y", "i1", ("far", "none"), chunksizes=(1, 1))
    return path


def coordinate(path: Path, room: str = "net") -> Path:
    """A dim's own variable is read as soon as the file is opened."""
    with netCDF4.Dataset(sound(path, room), "a") as root:
        there = root["raw"]
        there.createDimension("many", HUGE)
        there.createVariable("many", "f8", ("many",), chunksizes=(1 << 20,))
    return path


def many_small(path: Path, room: str = "net") -> Path:
    """Each variable alone is harmless."""
    with netCDF4.Dataset(sound(path, room), "a") as root:
        there = root["raw"]
        there.createDimension("some", 200 << 20)
        for number in range(100):
            there.createVariable(f"y{number}", "i1", ("some",), chunksizes=(1 << 20,))
    return path


MAKERS: list[Callable[..., Path]] = [claiming, far_dim, coordinate, many_small]


@pytest.mark.parametrize("make", MAKERS, ids=lambda one: one.__name__)
@pytest.mark.parametrize(
    "words",
    [("validate",), ("validate", "--quick"), ("convert", "--to", "json", "--group", "raw", "-o", "out.json"),
     ("convert", "--to", "csv")],
    ids=" ".join,
)  # fmt: skip
def test_a_dataset_that_claims_too_much_is_refused_before_a_value_is_read(typed, tmp_path, make, words):
    verb, *options = words
    ran = typed("data", verb, make(tmp_path / "a.nc"), *options).expect(3)
    told = " ".join((ran.out + ran.err).split())
    assert "a.nc holds" in told
    assert "allowed: 256 MiB, and 1032 B for each byte of the file" in told
    assert "--any-size" in told
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("group", ["raw", "summary", "env", "warnings"])
def test_every_room_refuses_it(tmp_path, room, group):
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(sound(path, room), "a") as root:
        there = root[group] if group in root.groups else root.createGroup(group)
        there.createDimension("many", HUGE)
        there.createVariable("y", "i1", ("many",), chunksizes=(1 << 20,))
    with pytest.raises(DataError) as refused:
        package.open(path)
    assert refused.value.code == "core.claims_too_much"


@pytest.mark.parametrize(
    "words",
    [("net", "show"), ("noise", "show"), ("store", "show"), ("io", "show"), ("bus", "show"), ("power", "show"),
     ("net", "check"), ("net", "diff", "{}"), ("data", "diff", "{}"), ("report", "-o", "out.html"),
     ("net", "convert", "out.nc", "--to", "sonde"), ("io", "convert", "--to", "csv"), ("net", "replay")],
    ids=" ".join,
)  # fmt: skip
def test_every_command_that_opens_one_says_the_same(typed, tmp_path, words):
    room = words[0] if words[0] in ROOMS else "net"
    path = claiming(tmp_path / "a.nc", room)
    line = [str(path) if word == "{}" else word for word in words]
    at = 1 if words[0] == "report" else 2
    ran = typed(*line[:at], path, *line[at:])
    if "No such command" in ran.err or "Usage:" in ran.err:
        pytest.fail(f"the command line is wrong: {ran.err}")
    ran.expect(3)
    assert "claims" in " ".join((ran.out + ran.err).split())


def test_texts_count_as_what_they_take_in_the_file(tmp_path):
    with pytest.raises(DataError) as refused:
        dataset.open(claiming(tmp_path / "a.nc", dtype="str"))
    assert refused.value.code == "core.claims_too_much"


def test_a_file_of_clustbench_s_is_held_to_the_same(typed, tmp_path):
    path = tmp_path / "a_all.nc"
    with netCDF4.Dataset(path, "w") as root:
        root.createDimension("many", HUGE)
        root.createVariable("data", "f8", ("many",), chunksizes=(1 << 20,))
    ran = typed("net", "convert", path, "b.nc", "--to", "sonde").expect(3)
    assert "claims" in " ".join(ran.err.split())


def test_who_asks_for_it_by_name_gets_it(typed, tmp_path):
    path = claiming(tmp_path / "a.nc")
    ran = typed("data", "validate", path, "--quick", "--any-size")
    assert "claims" not in ran.out + ran.err
    with package.open(path, any_size=True) as tree:
        assert tree["raw"]["y"].sizes == {"many": HUGE}
        assert int(tree["raw"]["y"][0]) == int(netCDF4.default_fillvals["i1"])


def test_padding_that_packs_well_is_no_attack(tmp_path, monkeypatch):
    """/raw for ranks whose series differ in length is nearly all NaN, and is completely written."""
    monkeypatch.setattr(dataset, "_FREE_BYTES", 0)
    path = tmp_path / "a.nc"
    values = np.full((4, 1 << 20), np.nan)
    values[0, 0] = 1
    raw = xr.Dataset({"x": (("a", "b"), values, {"units": "s", "long_name": "nearly nothing"})})
    dataset_file.write_dataset(path, raw, raw, {"schema": "lab/1"})
    assert os.path.getsize(path) < values.nbytes / 50
    with dataset.open(path) as tree:
        assert float(tree["raw"]["x"][0, 0]) == 1
