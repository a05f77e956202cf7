"""sonde net convert, slice and spectrum, on clustbench's own files and on files made like them."""

from __future__ import annotations

import gc
import shutil
import subprocess
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from clustbench_files import GOLDEN, KINDS, PREFIX, golden, matrices, read, series, write

import netcdf_tools
from sonde.core import dataset
from sonde.core.errors import EnvironmentFailure, SondeError, UsageError
from sonde.core.outcome import Outcome
from sonde.net import cli_convert, clustbench, convert
from sonde.net.sealing import SCHEMA


def call(command, *words) -> Outcome:
    outcome = command.main([str(word) for word in words], standalone_mode=False)
    assert isinstance(outcome, Outcome)
    return outcome


def to(form, source, target, *more) -> Outcome:
    return call(cli_convert.convert, source, target, "--to", form, *more)


def fails(*words, command=cli_convert.convert) -> SondeError:
    with pytest.raises(SondeError) as caught:
        call(command, *words)
    assert caught.value.hint
    return caught.value


def said(outcome) -> list[str]:
    """Codes of what was found in the files themselves."""
    return [warning.code for warning in outcome.warnings if warning.code.startswith("net.")]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def runs(here) -> Path:
    """A folder with clustbench's own files."""
    for kind in ("all", "average", "measurements_amount"):
        shutil.copy(golden(kind), here)
    return here


def v1_set(folder: Path, prefix: str = "p", ranks: int = 3, **header) -> dict[str, np.ndarray]:
    """All four statistics of v1, with a diagonal of garbage in min, as clustbench leaves it."""
    made = {}
    for number, kind in enumerate(clustbench.STATISTICS):
        data = matrices(ranks) * (1 + number / 8)
        if kind == "min":
            data[:, 0, 0] = 6.9e-310
        write(folder, prefix, kind, data, **header)
        made[kind] = data
    return made


def same_header(one: Path, other: Path) -> bool:
    texts = [netcdf_tools.run("ncdump", "-h", path).split("\n", 1)[1] for path in (one, other)]
    return texts[0] == texts[1]


# ---- there and back ------------------------------------------------------------------------------


def test_clustbench_s_own_files_come_back_byte_for_byte(runs):
    outcome = to("sonde", PREFIX, "a.nc")
    assert (outcome.dataset, outcome.schema, outcome.complete) == ("a.nc", "net/1", True)
    assert "4 ranks, 9 message sizes, every delay" in outcome.verdict
    back = to("clustbench-v2", "a.nc", "back")
    assert back.values["files"] == [f"back_{kind}.nc" for kind in KINDS[:3]] + [
        f"back_{kind}.nc" for kind in KINDS[3:]
    ]
    for kind in ("all", "average", "measurements_amount"):
        assert Path(f"back_{kind}.nc").read_bytes() == golden(kind).read_bytes(), kind
        assert same_header(Path(f"back_{kind}.nc"), golden(kind))
    with netCDF4.Dataset(
        "back_median.nc"
    ) as nc:  # what clustbench did not write is computed and dressed alike
        assert list(nc.variables)[-2:] == ["random_option_1", "random_option_2"]
        assert nc["data_type"][...] == 2


def test_v1_comes_back_byte_for_byte(here):
    v1_set(here, noise=3, mode=6, end=199)
    to("sonde", "p", "a.nc")
    to("clustbench-v1", "a.nc", "back")
    for kind in clustbench.STATISTICS:
        assert Path(f"back_{kind}.nc").read_bytes() == Path(f"p_{kind}.nc").read_bytes(), kind


def test_v2_with_hosts_and_plug_ins_comes_back(here):
    data = series()
    write(here, "p", "all", data, version=2, repeats=8, extra=5)
    Path("p_hosts.txt").write_text("n001\nn001\nn002\n")
    to("sonde", "p_all.nc", "a.nc")
    outcome = to("clustbench-v2", "a.nc", "back")
    assert Path("back_all.nc").read_bytes() == Path("p_all.nc").read_bytes()
    assert Path("back_hosts.txt").read_text() == "n001\nn001\nn002\n"
    assert outcome.values["files"][-1] == "back_hosts.txt"
    n = 8 - sum(np.ogrid[:2, :3, :3][axis] for axis in range(3)) % 3
    n[:, np.arange(3), np.arange(3)] = 0
    assert (read(Path("back_measurements_amount.nc")) == n).all()


def test_a_measured_diagonal_is_preserved(here):
    """In all_to_all a process sends to itself, too."""
    data = series()
    data[:, np.arange(3), np.arange(3)] = 0.5e-6
    write(here, "p", "all", data, version=2, mode="all_to_all", repeats=8)
    to("sonde", "p", "a.nc")
    with dataset.open("a.nc") as tree:
        assert tree["raw"]["latency"].values[1, 1, 0, 0] == 0.5e-6
        assert tree["raw"]["latency"].attrs["value"] == "completion"
        assert tree["raw"]["n"].values[1, 1, 0] == 8
    to("clustbench-v2", "a.nc", "back")
    assert Path("back_all.nc").read_bytes() == Path("p_all.nc").read_bytes()


@pytest.mark.parametrize(
    ("padded", "status", "rule"), [(True, {0, 1, 2}, "clustbench"), (False, {0, 1}, "fixed:8")]
)
def test_how_cells_ended_is_reported_by_padding(here, padded, status, rule):
    data = series()
    if not padded:
        data = np.abs(data)
    write(here, "p", "all", data, version=2, repeats=8)
    to("sonde", "p", "a.nc")
    with dataset.open("a.nc") as tree:
        assert set(np.unique(tree["raw"]["status"].values)) == status
        assert tree.attrs["rule"].startswith(rule)


def test_what_noise_was_made_is_preserved(here):
    v1_set(here, mode=5, noise=9)
    to("sonde", "p", "a.nc")
    with dataset.open("a.nc") as tree:
        assert [tree.attrs[f"noise_{name}"] for name in ("bytes", "messages", "ranks")] == [9, 9, 9]
    to("clustbench-v1", "a.nc", "back", "--sizes", "0")
    with netCDF4.Dataset("back_min.nc") as nc:
        assert [int(nc[name][...]) for name in ("noise_mes_length", "num_noise_mes", "num_noise_proc")] == [
            9
        ] * 3


@pytest.mark.parametrize("form", ["clustbench-v1", "clustbench-v2"])
def test_straight_from_clustbench_to_clustbench(runs, form):
    to(form, PREFIX, "out")
    assert (read(Path("out_average.nc")) == read(golden("average"))).all()
    delays, n = read(golden("all")), read(golden("measurements_amount")).astype(int)
    cell = (3, 2, 1)
    kept = delays[cell][: n[cell]]
    assert read(Path("out_median.nc"))[cell] == np.sort(kept)[len(kept) // 2]
    assert read(Path("out_min.nc"))[cell] == kept.min()
    np.testing.assert_allclose(read(Path("out_deviation.nc"))[cell], kept.std())
    assert Path("out_all.nc").exists() == (form == "clustbench-v2")


def test_statistics_alone_become_a_summary_alone(here):
    data = v1_set(here, repeats=10)
    outcome = to("sonde", "p_median.nc", "a.nc")
    assert "statistics only" in outcome.verdict
    with dataset.open("a.nc") as tree:
        assert "raw" not in tree.children
        summary = tree["summary"]
        assert summary["median"].values[0, 2, 1] == data["median"][1, 2, 0]
        assert summary["mean"].values[0, 2, 1] == data["average"][1, 2, 0]
        np.testing.assert_allclose(
            summary["sd"].values[0, 2, 1], data["deviation"][1, 2, 0] * np.sqrt(10 / 9)
        )
        assert summary["class"].values[0, 1] == 0  # found from medians
        assert np.isnan(summary["min"].values[0, 0, 0])
        assert summary["clustbench_min"].values[0, 0, 0] == 6.9e-310
        assert summary["n"].values[0].tolist() == [[0, 0], [10, 10], [10, 10]]
        assert SCHEMA.validate(tree) == []
    assert dataset.validate("a.nc", SCHEMA.validate) == []


def test_what_is_written_is_a_valid_dataset(runs):
    to("sonde", PREFIX, "a.nc")
    assert dataset.validate("a.nc", SCHEMA.validate) == []
    with dataset.open("a.nc") as tree:
        assert tree.attrs["mode"] == "one_to_one"
        assert tree.attrs["imported_from"] == "clustbench v2"
        raw = tree["raw"]
        assert raw["latency"].attrs["value"] == "recv_duration"
        assert raw["latency"].attrs["measured_by"] == "dst"
        assert raw.sizes["sample"] == 160
        delays = read(golden("all"))
        assert raw["latency"].values[0, 2, 4, :100].tolist() == delays[4, 2, 0, :100].tolist()
        assert set(np.unique(raw["epoch"].values)) == {-1, 0}
        assert np.isnan(raw["t_start"].values).all()
        assert set(np.unique(raw["status"].values)) == {0, 1}


# ---- the axis trap -------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "row"), [("one_to_one", "dst"), ("get", "dst"), ("put", "src")])
def test_rows_are_who_measured(here, mode, row):
    data = series()
    write(here, "p", "all", data, version=2, mode=mode, repeats=8)
    to("sonde", "p", "a.nc")
    with dataset.open("a.nc") as tree:
        latency = tree["raw"]["latency"]
        assert latency.attrs["measured_by"] == row
        where = {"src": 0, "dst": 2} if row == "dst" else {"src": 2, "dst": 0}
        assert latency.isel(**where).values[1, 0] == data[1, 2, 0, 0]
    for form in ("clustbench-v1", "clustbench-v2"):
        to(form, "a.nc", "back")
        assert read(Path("back_min.nc"))[1, 2, 0] == data[1, 2, 0][data[1, 2, 0] >= 0].min()
    assert (read(Path("back_all.nc")) == data).all()


@pytest.mark.parametrize("mode", ["one_to_one", "put"])
def test_slices_and_spectra_have_the_rows_of_what_they_are_cut_from(here, mode):
    data = series(repeats=12)
    write(here, "p", "all", data, version=2, mode=mode, repeats=12)
    call(cli_convert.cut, "p_all.nc", "--size", "100")
    call(cli_convert.spectrum, "p_all.nc", "--size", "100", "--window", "4")
    fixed, spectra = read(Path("fixed_length_100.nc")), read(Path("spectrum_100_4.nc"))
    assert fixed[:, 2, 0].tolist() == data[1, 2, 0].tolist()
    kept = data[1, 2, 0][data[1, 2, 0] != -1]
    np.testing.assert_allclose(spectra[2, 0, 0], np.abs(np.fft.rfft(kept[:4])), rtol=1e-9)


# ---- slices --------------------------------------------------------------------------------------


def test_a_slice_has_the_header_of_clustbench_s(runs):
    outcome = call(cli_convert.cut, f"{PREFIX}_all.nc", "--size", "300")
    assert outcome.values == {"files": ["fixed_length_300.nc"], "size": 300}
    text = netcdf_tools.run("ncdump", "-h", "fixed_length_300.nc")
    # The longest series at 300 B has 100 delays, where the CDL of 100 B has 160.
    expected = (GOLDEN / "fixed_length.cdl").read_text().replace("n = 160", "n = 100")
    assert text.split("\n", 1)[1] == expected.split("\n", 1)[1]
    with netCDF4.Dataset("fixed_length_300.nc") as nc:
        nc.set_auto_chartostring(False)
        nc.set_auto_mask(False)
        assert nc["test_type"][:].tobytes() == b"one_to_one\0"
        numbers = [int(nc[name][...]) for name in ("begin_mes_length", "end_mes_length", "step_length")]
        assert numbers == [0, 100, 1]


@pytest.mark.parametrize("by", ["clustbench", "sonde"])
def test_a_slice_of_either_kind_of_file_is_the_same(runs, by):
    source = f"{PREFIX}_all.nc"
    if by == "sonde":
        to("sonde", PREFIX, "a.nc")
        source = "a.nc"
    call(cli_convert.cut, source, "--size", "300B", "-o", "cut.nc")
    delays = read(golden("all"))[2]
    off = ~np.eye(4, dtype=bool)
    got = read(Path("cut.nc")).transpose(1, 2, 0)
    assert (got[off] == delays[off][:, :100]).all()
    assert (got[~off] == 0).all()


def test_a_fixed_length_file_becomes_a_dataset_and_a_slice_again(runs):
    call(cli_convert.cut, f"{PREFIX}_all.nc", "--size", "300")
    to("sonde", "fixed_length_300.nc", "a.nc")
    with dataset.open("a.nc") as tree:
        assert tree["raw"]["size"].values.tolist() == [300]
    assert dataset.validate("a.nc", SCHEMA.validate) == []
    before = Path("fixed_length_300.nc").read_bytes()
    call(cli_convert.cut, "a.nc", "--size", "300")
    assert Path("fixed_length_300.nc").read_bytes() == before


def test_a_renamed_fixed_length_file_needs_its_size(runs):
    call(cli_convert.cut, f"{PREFIX}_all.nc", "--size", "300", "-o", "cut.nc")
    error = fails("cut.nc", "a.nc", "--to", "sonde")
    assert (error.code, error.hint) == ("net.size_unknown", "give it with --size")
    to("sonde", "cut.nc", "a.nc", "--size", "300")
    with dataset.open("a.nc") as tree:
        assert tree["raw"]["size"].values.tolist() == [300]


def test_a_slice_may_be_a_dataset(runs):
    outcome = call(cli_convert.cut, PREFIX, "--size", "300", "--to", "sonde")
    assert outcome.values["files"] == [f"{PREFIX}-300.nc"]
    with dataset.open(f"{PREFIX}-300.nc") as tree:
        assert dict(tree["raw"].sizes) == {"src": 4, "dst": 4, "size": 1, "sample": 100, "rank": 4}
        assert convert.STORED not in tree.attrs
    assert dataset.validate(f"{PREFIX}-300.nc", SCHEMA.validate) == []


def test_a_size_that_is_not_there(runs):
    error = fails(f"{PREFIX}_all.nc", "--size", "320", command=cli_convert.cut)
    assert error.code == "net.no_such_size"
    assert "no messages of 320 B; it has 100, 200, 300" in error.what
    assert error.hint == "the nearest: --size 300"


def test_a_slice_of_statistics_is_refused(here):
    v1_set(here)
    error = fails("p_min.nc", "--size", "0", command=cli_convert.cut)
    assert error.code == "net.no_raw"


# ---- spectra -------------------------------------------------------------------------------------


def test_a_spectrum_has_the_header_and_values_of_clustbench_s(runs):
    outcome = call(cli_convert.spectrum, f"{PREFIX}_all.nc", "--size", "100", "--window", "20")
    assert outcome.values["positions"] == 141
    path = Path("spectrum_100_20.nc")
    text = netcdf_tools.run("ncdump", "-h", path)
    assert text.split("\n", 1)[1] == (GOLDEN / "spectrum.cdl").read_text().split("\n", 1)[1]
    delays, spectra = read(golden("all"))[0], read(path)
    windows = np.lib.stride_tricks.sliding_window_view(delays[2, 0, :160], 20)
    expected = np.abs(np.fft.rfft(windows))
    np.testing.assert_allclose(spectra[2, 0], expected, rtol=0, atol=1e-9 * expected.max())
    assert np.isfinite(spectra[0, 1, 0]).all()  # 20 delays: one window
    assert np.isnan(spectra[0, 1, 1:]).all()
    assert np.isnan(spectra[0, 0]).all()


def test_spectra_as_a_dataset_are_the_same(runs):
    call(cli_convert.spectrum, f"{PREFIX}_all.nc", "--size", "100", "--window", "20")
    call(
        cli_convert.spectrum,
        f"{PREFIX}_all.nc",
        "--size",
        "100",
        "--window",
        "20",
        "--to",
        "sonde",
        "-o",
        "s.nc",
    )
    to("sonde", "spectrum_100_20.nc", "t.nc")
    for path in ("s.nc", "t.nc"):
        with dataset.open(path) as tree:
            got = tree["summary"]["spectrum"]
            assert got.dims == ("src", "dst", "position", "harmonic")
            assert got.attrs["window"] == 20
            assert tree["summary"]["size"].values.tolist() == [100]
            expected = read(Path("spectrum_100_20.nc")).transpose(1, 0, 2, 3)
            np.testing.assert_array_equal(got.values, expected)
        assert dataset.validate(path, SCHEMA.validate) == []


def test_a_renamed_spectrum_is_read_and_reported(runs):
    call(cli_convert.spectrum, PREFIX, "--size", "100", "--window", "20", "-o", "s.nc")
    outcome = to("sonde", "s.nc", "a.nc")
    assert [warning.code for warning in outcome.warnings] == ["net.clustbench_unnamed"]
    assert "20 or 21" in outcome.warnings[0].hint


@pytest.mark.parametrize("to_", ["clustbench", "sonde"])
def test_a_window_longer_than_the_series(runs, to_):
    words = (PREFIX, "--size", "100", "--window", "161", "--to", to_, "-o", "s.nc")
    error = fails(*words, command=cli_convert.spectrum)
    assert (error.code, error.hint) == ("net.bad_window", "--window takes 2 to 160")
    assert not list(runs.glob("s.nc*"))


def test_spectra_are_not_exported_as_statistics(runs):
    call(cli_convert.spectrum, PREFIX, "--size", "100", "--window", "20", "--to", "sonde", "-o", "s.nc")
    error = fails("s.nc", "out", "--to", "clustbench-v2")
    assert error.code == "net.nothing_to_export"


# ---- exporting -----------------------------------------------------------------------------------


def sonde_dataset(path: str, sizes=(0, 100, 200), ranks=3, mode="one_to_one", **attrs) -> np.ndarray:
    """A dataset of Sonde's own with one cell missing; its latency (src, dst, size, sample)."""
    import xarray as xr

    from sonde.core.dataset_file import write_dataset
    from sonde.net import schema

    rng = np.random.default_rng(7)
    latency = rng.exponential(1e-6, (ranks, ranks, len(sizes), 6))
    latency[np.arange(ranks), np.arange(ranks)] = np.nan
    latency[0, 1, 0, 4:] = np.nan
    latency[1, 0, 1] = np.nan
    n = np.isfinite(latency).sum(axis=-1).astype(np.int32)
    described = schema.raw_variables(ranks, len(sizes), 6, 1, "rtt_half")
    values = {
        "latency": latency,
        "epoch": np.where(np.isfinite(latency), np.arange(6) // 3, -1).astype(np.int32),
        "t_start": np.where(np.isfinite(latency), 0.0, np.nan),
        "n": n,
        "status": np.where(n > 0, 1, 0).astype(np.int8),
        "host": np.array([f"n{rank}" for rank in range(ranks)], object),
    }
    values |= {name: np.zeros(ranks, np.int32) for name in schema.RANK_FACTS}
    raw = xr.Dataset(
        {name: (described[name].dims, value, dict(described[name].attrs)) for name, value in values.items()},
        coords={k: (k, v, dict(a)) for k, (v, a) in schema.coordinates(ranks, sizes).items()},
    )
    summary = xr.Dataset(
        {
            "mean": (schema.CELL, np.nanmean(np.where(n[..., None] > 0, latency, 0), -1)),
            "median": (schema.CELL, np.where(n > 0, 2.0, np.nan)),
            "sd": (schema.CELL, np.where(n > 0, 3.0, np.nan)),
            "n": (schema.CELL, n),
        },
        coords=raw.drop_dims("rank").coords,
    )
    write_dataset(path, raw, summary, {"schema": "net/1", "mode": mode, **attrs})
    return latency


@pytest.mark.parametrize("form", ["clustbench-v1", "clustbench-v2"])
def test_a_dataset_of_sonde_s_own_is_exported(here, form):
    latency = sonde_dataset("a.nc")
    outcome = to(form, "a.nc", "out")
    average = read(Path("out_average.nc"))
    np.testing.assert_allclose(average[2, 2, 0], np.mean(latency[0, 2, 2]), rtol=1e-12)
    assert average[0, 1, 0] == pytest.approx(np.nanmean(latency[0, 1, 0]))
    assert average[1, 0, 1] == -1  # 1 -> 0 at 100 B was not measured
    assert (average[:, np.arange(3), np.arange(3)] == 0).all()
    assert Path("out_hosts.txt").read_text() == "n0\nn1\nn2\n"
    assert [warning.code for warning in outcome.warnings] == ["net.clustbench_padded"]
    assert "1 cells" in outcome.warnings[0].evidence
    assert any("divisor n" in note for note in outcome.values["notes"])
    assert any("rtt_half" in note for note in outcome.values["notes"])
    if form == "clustbench-v2":
        delays, n = read(Path("out_all.nc")), read(Path("out_measurements_amount.nc"))
        assert n[0, 1, 0] == 4
        assert delays[0, 1, 0].tolist() == [*latency[0, 1, 0, :4], -1, -1]


@pytest.mark.parametrize("form", ["v1", "v2"])
def test_an_export_is_read_back_as_it_was(here, form):
    latency = sonde_dataset("a.nc")
    to(f"clustbench-{form}", "a.nc", "out")
    to("sonde", "out", "b.nc")
    with dataset.open("b.nc") as tree:
        assert tree.attrs["complete"] == (0 if form == "v2" else 1)
        if form == "v2":
            np.testing.assert_array_equal(tree["raw"]["latency"].values, latency)
        np.testing.assert_allclose(
            tree["summary"]["clustbench_average"].values[0, 1, 0], np.nanmean(latency[0, 1, 0])
        )


def test_statistics_of_a_dataset_without_raw_are_exported_with_notes(here):
    sonde_dataset("a.nc")
    with netCDF4.Dataset("a.nc", "a") as nc:
        nc.renameGroup("raw", "env2")
    outcome = to("clustbench-v1", "a.nc", "out")
    assert sorted(Path(file).name for file in outcome.values["files"]) == [
        "out_average.nc",
        "out_deviation.nc",
        "out_median.nc",
    ]
    assert read(Path("out_deviation.nc"))[0, 1, 0] == pytest.approx(3 * np.sqrt(3 / 4))
    assert read(Path("out_median.nc"))[1, 0, 1] == -1
    assert any("mean of the middle two" in note for note in outcome.values["notes"])


def test_uneven_sizes_are_refused_and_the_hint_works(here):
    sonde_dataset("a.nc", sizes=(8, 64, 120, 4096))
    error = fails("a.nc", "out", "--to", "clustbench-v1")
    assert error.code == "net.uneven_sizes"
    assert error.hint == "export 3 of the 4: --sizes 8:176:56"
    assert not list(here.glob("out*"))
    to("clustbench-v1", "a.nc", "out", "--sizes", "8:176:56")
    assert read(Path("out_min.nc")).shape == (3, 3, 3)


def test_some_sizes_of_what_clustbench_wrote(runs):
    to("sonde", PREFIX, "a.nc")
    to("clustbench-v2", "a.nc", "out", "--sizes", "300:900:300")
    assert (read(Path("out_average.nc")) == read(golden("average"))[[2, 5]]).all()
    assert (read(Path("out_all.nc")) == read(golden("all"))[[2, 5]]).all()
    with netCDF4.Dataset("out_all.nc") as nc:
        assert [int(nc[f"{name}_length"][...]) for name in ("begin_mes", "end_mes", "step")] == [
            300,
            900,
            300,
        ]


def test_a_size_to_export_that_is_not_there(runs):
    assert fails(PREFIX, "out", "--to", "clustbench-v1", "--sizes", "100,150").code == "net.no_such_size"


def test_out_must_be_a_prefix(runs):
    error = fails(PREFIX, "out.nc", "--to", "clustbench-v1")
    assert error.code == "net.prefix_expected"
    assert "'out' gives out_median.nc" in error.hint


def test_nothing_overwrites_what_it_is_made_from(runs):
    before = golden("average").read_bytes()
    error = fails(PREFIX, PREFIX, "--to", "clustbench-v2")
    assert error.code == "net.would_overwrite"
    assert Path(f"{PREFIX}_average.nc").read_bytes() == before
    assert not list(runs.glob("*.part"))
    assert not Path(f"{PREFIX}_median.nc").exists()
    assert fails(PREFIX, f"{PREFIX}_all.nc", "--to", "sonde").code == "net.would_overwrite"


def test_where_nothing_can_be_written(runs):
    for form, target in (("clustbench-v1", "no/such/out"), ("sonde", "no/such/a.nc")):
        error = fails(PREFIX, target, "--to", form)
        assert isinstance(error, EnvironmentFailure)
        assert error.code == "core.cannot_write"
        assert "no/such" in error.what


@pytest.mark.root
@pytest.mark.parametrize("kilobytes", [4, 120, 240])
def test_a_full_disk_leaves_nothing_half_written(runs, kilobytes):
    small = runs / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(small)]
    made = subprocess.run(mount, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"cannot mount a small file system here: {made.stderr.strip()}")
    try:
        error = fails(PREFIX, small / "out", "--to", "clustbench-v2")
        assert error.code == "core.disk_full"
        assert isinstance(error, EnvironmentFailure)
        assert list(small.iterdir()) == []
        gc.collect()  # where netCDF would free a file for the second time, and die
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_dataset_with_a_damaged_chunk_is_named(runs):
    to("sonde", PREFIX, "a.nc")
    data = bytearray(Path("a.nc").read_bytes())
    with netCDF4.Dataset("a.nc") as nc:
        assert nc["raw/latency"].filters()["zlib"]
    begin = max(data.rfind(b"\x78\x01"), data.rfind(b"\x78\x5e"))  # the head of a deflated chunk
    chunks = [at for at in range(len(data) - 1) if data[at : at + 2] in (b"\x78\x01", b"\x78\x5e")]
    assert begin > 0
    for at in chunks:
        data[at + 2 : at + 12] = bytes(10)
    Path("a.nc").write_bytes(data)
    error = fails("a.nc", "out", "--to", "clustbench-v2")
    assert error.code == "core.damaged_file"
    assert not list(runs.glob("out*"))


def test_a_dataset_is_not_converted_to_a_dataset(here):
    sonde_dataset("a.nc")
    assert isinstance(fails("a.nc", "b.nc", "--to", "sonde"), UsageError)


# ---- files that are not what they must be --------------------------------------------------------


def test_one_file_finds_its_siblings(runs):
    outcome = to("sonde", f"{PREFIX}_average.nc", "a.nc")
    assert "every delay" in outcome.verdict
    assert said(outcome) == []


def test_missing_siblings_are_named(here):
    write(here, "p", "average", matrices())
    outcome = to("sonde", "p", "a.nc")
    assert [warning.code for warning in outcome.warnings] == ["net.clustbench_partial"]
    assert "median, deviation, min" in outcome.warnings[0].evidence
    with dataset.open("a.nc") as tree:
        assert dataset.warnings_of(tree) == outcome.warnings
        assert "median" not in tree["summary"]


def test_counts_without_delays_are_refused(here):
    write(here, "p", "measurements_amount", matrices(scale=1), version=2)
    assert fails("p", "a.nc", "--to", "sonde").code == "net.clustbench_no_delays"


def test_a_prefix_of_nothing(here):
    write(here, "run", "average", matrices())
    error = fails("runn", "a.nc", "--to", "sonde")
    assert error.code == "net.no_such_files"
    assert "runn_average.nc" in error.hint
    assert fails(here, "a.nc", "--to", "sonde").what.endswith("is a folder")


def test_files_of_two_runs_under_one_prefix(here):
    write(here, "p", "average", matrices(3))
    write(here, "p", "median", matrices(4))
    error = fails("p", "a.nc", "--to", "sonde")
    assert error.code == "net.clustbench_contradiction"
    assert "proc_num is 3 in the first and 4 in the second" in error.what


def test_all_and_counts_that_disagree_are_reported(here):
    data = series()
    write(here, "p", "all", data, version=2, repeats=8)
    n = (data != -1).sum(axis=-1).astype(float)
    n[0, 1, 0] += 1
    write(here, "p", "measurements_amount", n, version=2, repeats=8)
    average = np.where(np.eye(3), 0, 1.0)[None].repeat(2, axis=0)
    write(here, "p", "average", average, version=2, repeats=8)
    outcome = to("sonde", "p", "a.nc")
    assert said(outcome) == ["net.clustbench_disagree"] * 2
    assert "measurements_amount.nc does not agree with the delays in _all.nc in 1 cells" in "".join(
        warning.evidence for warning in outcome.warnings
    )


def test_a_run_that_was_stopped_between_two_files(here):
    write(here, "p", "average", matrices(count=3), end=1000)
    write(here, "p", "median", matrices(count=2), end=1000)
    outcome = to("sonde", "p", "a.nc")
    assert "net.clustbench_stopped" in [warning.code for warning in outcome.warnings]
    with dataset.open("a.nc") as tree:
        assert tree["summary"]["size"].values.tolist() == [0, 100]
        assert tree.attrs["stop_reason"] == "interrupted"


def test_one_rank_has_no_pairs(here):
    write(here, "p", "average", np.zeros((2, 1, 1)))
    assert fails("p", "a.nc", "--to", "sonde").code == "net.one_rank"


def test_hosts_that_do_not_fit_are_left_out(runs):
    Path(f"{PREFIX}_hosts.txt").write_text("only-one\n")
    outcome = to("sonde", PREFIX, "a.nc")
    assert said(outcome) == ["net.clustbench_hosts"]


def test_a_half_average_is_reported(here):
    v1_set(here, mode=4)
    codes = [warning.code for warning in to("sonde", "p", "a.nc").warnings]
    assert codes == ["net.clustbench_half_average"]


@pytest.mark.parametrize("share", [0.0, 0.001, 0.003, 0.5, 0.999])
def test_cut_off_files_are_refused(runs, share):
    path = Path(f"{PREFIX}_all.nc")
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    error = fails(path, "a.nc", "--to", "sonde")
    assert error.code in ("net.truncated", "core.damaged_file", "core.not_netcdf")
    assert not Path("a.nc").exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"CDF\x07", b"\x89HDF\r\n\x1a\n" + b"\0" * 90])
def test_what_is_not_netcdf_is_refused(here, content):
    Path("x_average.nc").write_bytes(content)
    error = fails("x_average.nc", "a.nc", "--to", "sonde")
    assert error.code in ("net.not_netcdf", "core.not_netcdf", "core.damaged_file")


def test_netcdf_of_others_is_refused(here):
    with netCDF4.Dataset("theirs.nc", "w") as nc:
        nc.createDimension("time", 3)
        nc.createVariable("data", "f4", ("time",))
    assert fails("theirs.nc", "a.nc", "--to", "sonde").code == "net.not_clustbench"


def test_a_file_copied_to_netcdf_4_is_read_too(here):
    data = matrices()
    write(here, "p", "average", data)
    netcdf_tools.run("nccopy", "-k", "nc4", "p_average.nc", "q_average.nc")
    to("sonde", "q_average.nc", "a.nc")
    with dataset.open("a.nc") as tree:
        assert tree["summary"]["mean"].values[0, 2, 1] == data[1, 2, 0]


def test_hosts_need_not_be_utf_8(runs):
    Path(f"{PREFIX}_hosts.txt").write_bytes(b"n\xe91\n" * 4)
    to("sonde", PREFIX, "a.nc")
    with dataset.open("a.nc") as tree:
        assert tree["raw"]["host"].values.tolist() == ["n\N{REPLACEMENT CHARACTER}1"] * 4


def test_delays_are_analysed_as_sonde_s_own_are(runs):
    outcome = to("sonde", PREFIX, "a.nc")
    assert outcome.warnings == []
    delays, n = read(golden("all")), read(golden("measurements_amount")).astype(int)
    with dataset.open("a.nc") as tree:
        kept = delays[4, 3, 0, : n[4, 3, 0]]
        assert tree["summary"]["median"].values[0, 3, 4] == pytest.approx(np.median(kept))
        assert tree["summary"]["sd"].values[0, 3, 4] == pytest.approx(np.std(kept, ddof=1))


def test_an_analysis_that_fails_is_a_warning(runs, monkeypatch):
    def broken(raw):
        raise ValueError("no such thing")

    monkeypatch.setattr(SCHEMA, "analyse", broken)
    outcome = to("sonde", PREFIX, "a.nc")
    assert [warning.code for warning in outcome.warnings] == ["core.analysis_failed"]
    with dataset.open("a.nc") as tree:
        assert "latency" in tree["raw"]
        assert "clustbench_average" in tree["summary"]
