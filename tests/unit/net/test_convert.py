"""Between net/1 and clustbench, without the command line: what is read when, and what is made of it."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack

import netCDF4
import numpy as np
import pytest
import xarray as xr
from clustbench_files import golden, matrices, read, series, write

from sonde.core.errors import DataError, UsageError
from sonde.net import clustbench, clustbench_cells, convert, export, schema, slices


@pytest.fixture
def stack():
    with ExitStack() as held:
        yield held


def view_of(path, stack) -> clustbench.View:
    return clustbench.look(stack.enter_context(netCDF4.Dataset(path)), path.name)


def run_of(folder, stack, data=None, mode="one_to_one", **more) -> convert.Imported:
    data = series() if data is None else data
    path = write(folder, "p", "all", data, version=2, mode=mode, repeats=data.shape[-1])
    return convert.from_set({"all": view_of(path, stack)}, **{"hosts": None, **more})


@pytest.mark.parametrize(
    "key",
    [
        (),
        (0,),
        (-1, 0),
        (slice(None), 2, 1),
        (slice(1, 3), slice(0, 2), slice(None), slice(2, 6)),
        (slice(None, None, 2), slice(None), -1, slice(None, None, -1)),
        (slice(2, 2),),
        (1, 2, 0, 3),
        ([0, 2], slice(None), 0),
    ],
)
def test_lazy_delays_are_indexed_like_an_array(tmp_path, stack, key):
    raw = run_of(tmp_path, stack).raw
    for name in ("latency", "epoch", "t_start"):
        whole = raw[name].values
        got = raw[name].isel(dict(zip(raw[name].dims, key))).values
        expected = whole[tuple(key)] if key else whole
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == whole.dtype


def test_delays_are_read_when_they_are_asked_for(tmp_path, stack, monkeypatch):
    imported = run_of(tmp_path, stack)
    asked = []
    monkeypatch.setattr(
        clustbench,
        "read_block",
        lambda view, *spans: asked.append(spans) or np.zeros([s.stop - s.start for s in spans]),
    )
    tree = imported.tree()
    assert asked == []
    part = tree["raw"]["latency"].isel(src=1, dst=slice(0, 2), size=0, sample=slice(3, 5))
    assert part.values.shape == (2, 2)
    assert asked == [(slice(1, 2), slice(0, 2), slice(0, 1), slice(3, 5))]


def test_an_imported_run_is_a_dataset(tmp_path, stack):
    imported = run_of(tmp_path, stack, hosts=["n001", "n001", "n002"])
    tree = imported.tree()
    assert schema.validate(tree) == []
    assert tree.attrs["hostlist"] == "n[001-002]"
    assert tree["raw"]["host"].values.tolist() == ["n001", "n001", "n002"]
    assert imported.raw.sizes["sample"] == 8


@pytest.mark.parametrize(("mode", "value"), clustbench.VALUE_OF_MODE.items())
def test_every_mode_says_what_its_samples_are(tmp_path, stack, mode, value):
    imported = run_of(tmp_path, stack, mode=mode)
    assert imported.raw["latency"].attrs["value"] == value
    assert value in schema.VALUES
    assert imported.attrs["mode"] == mode


def test_a_mode_unknown_to_clustbench_has_unknown_samples(tmp_path, stack):
    assert run_of(tmp_path, stack, mode="my_own").raw["latency"].attrs["value"] == "unknown"


def exported(tree, form="v2", sizes=None):
    """What export says, and the bytes of the files it filled."""
    with ExitStack() as held:
        files = {}

        def create(kind):
            return files.setdefault(kind, held.enter_context(tempfile.TemporaryFile()))

        done = export.export(tree, "x", form, create, sizes)
        for file in files.values():
            file.seek(0)
        return done, {kind: file.read() for kind, file in files.items()}


def test_small_blocks_export_the_same(tmp_path, stack, monkeypatch):
    tree = run_of(tmp_path, stack).tree()
    _, whole = exported(tree)
    monkeypatch.setattr(clustbench_cells, "BLOCK_BYTES", 1)
    _, piecewise = exported(tree)
    assert piecewise == whole
    assert whole["all"] == (tmp_path / "p_all.nc").read_bytes()


def test_v1_has_statistics_only(tmp_path, stack):
    done, files = exported(run_of(tmp_path, stack).tree(), "v1")
    assert done.kinds == list(files) == list(clustbench.STATISTICS)
    assert done.hosts is None


def test_delays_longer_than_the_padding_of_another_file(stack, tmp_path):
    """z of an imported file is kept, though its longest series is shorter."""
    views = {"all": view_of(golden("all"), stack)}
    imported = convert.from_set(views, None)
    assert imported.raw.sizes["sample"] == 160
    _, files = exported(imported.tree())
    assert files["all"] == golden("all").read_bytes()


def test_what_was_stored_about_another_form_is_not_used(tmp_path, stack):
    tree = run_of(tmp_path, stack).tree()
    tree.attrs[convert.STORED] = "{nonsense"
    _, files = exported(tree)
    assert sorted(files) == sorted(clustbench.KINDS)


def test_a_set_of_one_interrupted_file(tmp_path, stack):
    path = write(tmp_path, "p", "median", matrices(count=2), end=500)
    imported = convert.from_set({"median": view_of(path, stack)}, None)
    assert imported.warnings[0].code == "net.clustbench_stopped"
    assert "2 of 5 message lengths" in imported.warnings[0].evidence
    _, files = exported(imported.tree(), "v1")
    assert files["median"] == path.read_bytes()


def test_a_record_variable_of_a_plug_in_is_cut_with_the_sizes(tmp_path, stack):
    path = write(tmp_path, "p", "median", matrices(count=3))
    with netCDF4.Dataset(path, "a") as nc:
        nc.createVariable("load", "f8", ("n",))[:] = [0.5, 1.5, 2.5]
        nc.createVariable("tag", "S1", ("n", "strings"))[:] = np.array(
            [[c] * 101 for c in (b"a", b"b", b"c")], "S1"
        )
    imported = convert.from_set({"median": view_of(path, stack)}, None)
    _, files = exported(imported.tree(), "v1")
    assert files["median"] == path.read_bytes()
    _, files = exported(imported.tree(), "v1", sizes=[0, 200])
    (tmp_path / "cut.nc").write_bytes(files["median"])
    with netCDF4.Dataset(tmp_path / "cut.nc") as nc:
        nc.set_auto_mask(False)
        nc.set_auto_chartostring(False)
        assert nc["load"][:].tolist() == [0.5, 2.5]
        assert nc["tag"][:, 0].tolist() == [b"a", b"c"]
    assert (read(tmp_path / "cut.nc") == matrices(count=3)[[0, 2]]).all()


def test_summary_of_statistics_without_a_median_is_left_as_it_is(tmp_path, stack):
    path = write(tmp_path, "p", "min", matrices())
    imported = convert.from_set({"min": view_of(path, stack)}, None)
    summary, warnings = convert.joined_summary(imported)
    assert warnings == []
    assert "class" not in summary
    assert summary["min"].values[1, 0, 0] == matrices()[0, 0, 1]


def test_deviation_is_widened_to_sd_and_back(tmp_path, stack):
    path = write(tmp_path, "p", "deviation", matrices(), repeats=5)
    imported = convert.from_set({"deviation": view_of(path, stack)}, None)
    sd = imported.summary["sd"].values
    np.testing.assert_allclose(sd[0, 1, 0], matrices()[0, 1, 0] * np.sqrt(5 / 4))
    one = write(tmp_path, "q", "deviation", matrices(), repeats=1)
    imported = convert.from_set({"deviation": view_of(one, stack)}, None)
    assert np.isnan(imported.summary["sd"].values).all()


def test_index_of_size():
    sizes = np.array([8, 64, 512])
    assert clustbench_cells.index_of_size(sizes, 64, "x") == 1
    with pytest.raises(UsageError) as caught:
        clustbench_cells.index_of_size(sizes, 70, "x")
    assert caught.value.hint == "the nearest: --size 64"


def test_a_dataset_with_nothing_to_export():
    tree = xr.DataTree.from_dict({"/": xr.Dataset(attrs={"schema": "net/1"})})
    with pytest.raises(DataError) as caught:
        exported(tree)
    assert caught.value.code == "net.nothing_to_export"


@pytest.mark.parametrize("window", [2, 3, 7, 8])
def test_spectra_are_computed_pair_by_pair(tmp_path, stack, window):
    tree = run_of(tmp_path, stack).tree()
    raw = tree["raw"].to_dataset()
    asked = []

    def amplitude(delays, width):
        asked.append(len(delays))
        return np.abs(np.fft.rfft(np.lib.stride_tricks.sliding_window_view(delays, width)))

    with (tmp_path / "s.nc").open("wb") as stream:
        positions = slices.write_spectrum(tree, raw, 0, window, amplitude, stream)
    assert positions == 8 - window + 1
    assert len(asked) == sum(n >= window for n in raw["n"].values[:, :, 0].ravel())
    spectra = read(tmp_path / "s.nc")
    assert spectra.shape == (3, 3, positions, window // 2 + 1)
    lazy = slices.spectrum_summary(raw, 0, window, amplitude)["spectrum"]
    np.testing.assert_array_equal(lazy.values, spectra.transpose(1, 0, 2, 3))


@pytest.mark.parametrize("window", [0, 1, 9])
def test_a_window_that_does_not_fit(window):
    with pytest.raises(UsageError) as caught:
        slices.check_window(8, window)
    assert caught.value.hint == "--window takes 2 to 8"
    with pytest.raises(UsageError) as caught:
        slices.check_window(1, 2)
    assert caught.value.hint == "measure more samples"
