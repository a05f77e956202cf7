from __future__ import annotations

import os
from pathlib import Path

import pytest

from sonde.core.netcdf import named, netCDF4


@pytest.mark.parametrize(
    "name",
    [b"plain.nc", b"bad\xff.nc", rb"back\slash.nc", b"http:a#mode=b[c].nc", b" .nc", b"x" * 252 + b".nc"],
)
def test_a_file_of_any_name_is_opened(tmp_path: Path, name: bytes):
    path = tmp_path / os.fsdecode(name)
    with netCDF4.Dataset(tmp_path / "first.nc", "w") as file:
        file.text = "whole"
    (tmp_path / "first.nc").rename(path)
    before = os.listdir("/proc/self/fd")
    with named(path) as text, netCDF4.Dataset(text) as file:
        assert file.text == "whole"
    assert os.listdir("/proc/self/fd") == before


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path):
    with pytest.raises(FileNotFoundError), named(tmp_path / "a b.nc"):
        pass
