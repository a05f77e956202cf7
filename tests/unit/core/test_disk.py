"""Errors in writing: a full disk is told apart from other reasons."""

from __future__ import annotations

import errno

import pytest

from sonde.core.disk import cannot_write, sync_folder


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "core.disk_full"),
        (errno.EDQUOT, "core.disk_full"),
        (errno.EACCES, "core.cannot_write"),
    ],
)
def test_a_full_disk_has_an_error_of_its_own(tmp_path, number, code):
    error = cannot_write(tmp_path / "a.nc", OSError(number, "no"), "choose another place")
    assert error.code == code
    assert str(tmp_path / "a.nc") in error.what
    assert "choose another place" in error.hint


def test_a_disk_with_space_is_not_called_full(tmp_path):
    error = cannot_write(tmp_path / "a.nc", RuntimeError("NetCDF: HDF error"), "choose", probe=True)
    assert error.code == "core.cannot_write"


def test_a_folder_can_be_made_to_last(tmp_path):
    sync_folder(tmp_path)
