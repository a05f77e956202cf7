"""Which HDF5 library the bench takes: found without importing anything, tried before it is used."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sonde.core.errors import EnvironmentFailure
from sonde.core.launch import libexec
from sonde.store import run_hdf5 as hdf5

probe = pytest.mark.skipif(
    not os.access(libexec() / "sonde-storebench", os.X_OK), reason="this build has no storage server"
)


def test_a_package_that_is_not_there_brings_none():
    assert hdf5.brought("no_such_package_at_all", "x*.so") is None


def test_a_package_without_such_a_module_brings_none():
    assert hdf5.brought("json", "h5*.so") is None


def test_a_module_that_needs_no_hdf5_brings_none():
    assert hdf5.brought("numpy", "random/_mt19937*.so") is None


def test_what_h5py_is_linked_with_is_found_and_h5py_is_not_imported():
    pytest.importorskip("netCDF4")
    before = set(sys.modules)
    found = hdf5.brought("netCDF4", "_netCDF4*.so")
    assert found is not None
    assert found.exists()
    assert found.name.startswith("libhdf5")
    assert "_hl" not in found.name
    assert "h5py" not in set(sys.modules) - before


@probe
def test_what_is_no_library_is_refused_with_the_reason(tmp_path):
    text = tmp_path / "libhdf5.so"
    text.write_text("not a library")
    assert "HDF5 does not load" in hdf5.refused(text)
    assert "HDF5 does not load" in hdf5.refused(tmp_path / "nothing")


@probe
def test_another_library_is_refused_with_what_it_lacks():
    (store,) = (libexec().parent / "lib").glob("libsonde-store.so")
    assert "is not HDF5 1.14 or later" in hdf5.refused(store)


def test_a_trial_that_cannot_be_started_is_a_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(hdf5, "libexec", lambda: tmp_path)
    assert "No such file" in hdf5.refused(Path("/lib/libhdf5.so"))


def test_the_first_that_works_is_taken(monkeypatch):
    monkeypatch.setattr(hdf5, "BRINGERS", (("a", "x"), ("b", "y"), ("c", "z")))
    monkeypatch.setattr(hdf5, "brought", lambda package, _: None if package == "a" else Path(f"/{package}"))
    monkeypatch.setattr(hdf5, "refused", lambda path: "too old" if path == Path("/b") else "")
    assert hdf5.library() == Path("/c")


def test_none_that_works_is_an_error_that_says_why_of_each(monkeypatch):
    monkeypatch.setattr(hdf5, "BRINGERS", (("a", "x"), ("b", "y")))
    monkeypatch.setattr(hdf5, "brought", lambda package, _: None if package == "a" else Path("/b"))
    monkeypatch.setattr(hdf5, "refused", lambda path: "too old")
    with pytest.raises(
        EnvironmentFailure, match=r"a has none on this machine; that of b .*: too old"
    ) as told:
        hdf5.library()
    assert told.value.code == "store.no_hdf5"
    assert "pip install" in told.value.hint
