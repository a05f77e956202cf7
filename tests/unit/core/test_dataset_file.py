"""Datasets that are written from arrays, and added to: whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import fakeroom
import netCDF4
import numpy as np
import pytest
import xarray as xr
from fakeroom import SCHEMA, make_run

from sonde.core import dataset, dataset_file, seal
from sonde.core.errors import DataError, Warning


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_arrays_become_a_dataset(tmp_path):
    raw = xr.Dataset(
        {
            "delay": (("rank", "sample"), np.arange(6.0).reshape(2, 3), {"units": "s", "long_name": "delay"}),
            "on": (("rank",), [True, False], {"units": "1", "long_name": "switched on"}),
            "host": (("rank",), ["ä", "b"], {"long_name": "host"}),
            "model": ((), "x", {"long_name": "model"}),
            "name": (("rank",), np.array([b"one", b"two"]), {"long_name": "name"}),
            "big": (("rank",), np.array([1, 2], ">i8"), {"units": "1", "long_name": "big"}),
            "empty": (("none",), np.zeros(0), {"units": "s", "long_name": "empty"}),
        }
    )
    said = Warning("lab.foreign", "from another tool", "")
    path = dataset_file.write_dataset(
        tmp_path / "a.nc",
        raw,
        fakeroom.summary(np.ones((2, 2, 3)), [0, 100]),
        {"schema": "lab/1", "seed": 0, "stop_reason": "imported", "huge": 2**80, "none": None},
        {"A": "b"},
        [said],
    )
    assert path == tmp_path / "a.nc"
    assert listing(tmp_path) == ["a.nc"]
    assert dataset.validate(path) == []
    with dataset.open(path) as tree:
        for name in ("delay", "big", "empty"):
            np.testing.assert_array_equal(tree["raw"][name], raw[name])
        assert tree["raw/on"].values.tolist() == [1, 0]
        assert tree["raw/host"].values.tolist() == ["ä", "b"]
        assert tree["raw/name"].values.tolist() == ["one", "two"]
        assert tree["raw/model"].item() == "x"
        assert tree["summary/median"].shape == (2, 2)
        assert dataset.warnings_of(tree) == [said]
        assert dataset.attrs(tree)["huge"] == str(2**80)
        assert dataset.attrs(tree)["none"] == ""
        assert dataset.attrs(tree["env"]) == {"A": "b"}


def test_a_lazy_dataset_is_copied_exactly(tmp_path):
    run = make_run(tmp_path / "a.run")
    (sealed,) = seal.seal(run, tmp_path / "a.nc", SCHEMA)
    with dataset.open(sealed.path) as tree:
        copy = dataset_file.write_dataset(
            tmp_path / "b.nc",
            tree["raw"].to_dataset(),
            tree["summary"].to_dataset(),
            tree.attrs,
            tree["env"].attrs,
        )
        with dataset.open(copy) as again:
            xr.testing.assert_identical(again["raw"].to_dataset(), tree["raw"].to_dataset())
            xr.testing.assert_identical(again["summary"].to_dataset(), tree["summary"].to_dataset())
            assert dataset.attrs(again) == dataset.attrs(tree)
    with netCDF4.Dataset(copy) as file:
        assert file["raw/delay"].chunking() == [1, 2, 20]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.array(["2026-01-01"], "datetime64[s]"), "of type datetime64"),
        (np.array([1j]), "of type complex"),
        (np.array(["a", 3], object), "mixes strings with 3"),
    ],
)
def test_a_type_no_dataset_holds_is_refused_and_leaves_nothing(tmp_path, values, said):
    (tmp_path / "a.nc").write_bytes(b"older")
    with pytest.raises(DataError, match=said) as raised:
        dataset_file.write_dataset(
            tmp_path / "a.nc", xr.Dataset({"x": ("n", values)}), None, {"schema": "lab/1"}
        )
    assert raised.value.code == "core.bad_variable"
    assert listing(tmp_path) == ["a.nc"]
    assert (tmp_path / "a.nc").read_bytes() == b"older"


def test_variables_are_added_to_a_dataset_that_is_there(tmp_path):
    (sealed,) = seal.seal(make_run(tmp_path / "a.run"), tmp_path / "a.nc", SCHEMA)
    with dataset.open(sealed.path) as tree:
        before = tree["raw"].to_dataset().load(), tree["summary"].to_dataset().load(), dataset.attrs(tree)
    more = xr.Dataset({"later": (("pass",), [1.0, np.nan], {"units": "s", "long_name": "measured later"})})
    dataset_file.add_variables(sealed.path, {"raw": more})
    with dataset.open(sealed.path) as tree:
        xr.testing.assert_identical(tree["raw"].to_dataset()[list(before[0].variables)].load(), before[0])
        xr.testing.assert_identical(tree["summary"].to_dataset().load(), before[1])
        assert dataset.attrs(tree) == before[2]
        np.testing.assert_array_equal(tree["raw/later"], more["later"])
    assert dataset.validate(sealed.path) == []
    whole = sealed.path.read_bytes()
    odd = xr.Dataset({"fine": ("n", [1.0]), "odd": ("n", np.array([1j]))})
    with pytest.raises(DataError, match="of type complex"):
        dataset_file.add_variables(sealed.path, {"summary": odd})
    assert sealed.path.read_bytes() == whole
    assert listing(tmp_path) == ["a.nc"]
