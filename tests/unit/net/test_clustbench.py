"""clustbench's files, one at a time: recognised, read, written, and refused when they are not whole."""

from __future__ import annotations

from contextlib import contextmanager

import netCDF4
import numpy as np
import pytest
from clustbench_files import GOLDEN, golden, matrices, read, series, write
from hypothesis import given
from hypothesis import strategies as st

import netcdf_tools
from sonde.core.errors import DataError
from sonde.net import clustbench, clustbench_layout
from sonde.net.clustbench import Header


@contextmanager
def looked(path):
    with netCDF4.Dataset(path) as nc:
        yield clustbench.look(nc, path.name)


def refused(path) -> DataError:
    with pytest.raises(DataError) as caught, looked(path):
        pass
    return caught.value


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("run_median.nc", ("run", "median")),
        ("a_b_measurements_amount.nc", ("a_b", "measurements_amount")),
        ("run_average_all.nc", ("run_average", "all")),
        ("_min.nc", ("", "min")),
        ("run_mean.nc", None),
        ("median.nc", None),
        ("run_median.nc.part", None),
    ],
)
def test_names_of_a_set(name, parts):
    assert clustbench.split_name(name) == parts
    if parts:
        assert clustbench.set_name(*parts) == name


def test_names_of_slices_say_what_files_do_not():
    assert clustbench.fixed_length_of(clustbench.fixed_length_name(640)) == 640
    assert clustbench.fixed_length_of("fixed_length_.nc") is None
    assert clustbench.spectrum_of(clustbench.spectrum_name(640, 120)) == (640, 120)
    assert clustbench.spectrum_of("spectrum_640.nc") is None


# ---- recognising ---------------------------------------------------------------------------------


def test_the_golden_files_are_recognised():
    for kind, depth in (("all", 200), ("average", 0), ("measurements_amount", 0)):
        with looked(golden(kind)) as view:
            assert (view.form, view.kind, view.count, view.depth) == ("v2", kind, 9, depth)
            assert view.header == Header(4, "one_to_one", 100, 1000, 100, 200)
            assert view.header.sizes(view.count).tolist() == list(range(100, 1000, 100))


@pytest.mark.parametrize(("mode", "number"), clustbench.TEST_TYPES.items())
def test_v1_numbers_its_modes(tmp_path, mode, number):
    with looked(write(tmp_path, "p", "min", matrices(), mode=number, noise=7)) as view:
        assert (view.form, view.kind, view.header.mode) == ("v1", "min", mode)
        assert (view.header.noise_size, view.header.noise_messages, view.header.noise_ranks) == (7, 7, 7)


def test_a_mode_that_v1_does_not_number_keeps_its_number(tmp_path):
    with looked(write(tmp_path, "p", "min", matrices(), mode=42)) as view:
        assert view.header.mode == "unknown_42"


def test_v2_of_another_day_spells_num_repeats(tmp_path):
    path = write(tmp_path, "p", "average", matrices(), version=2, repeats=33)
    with netCDF4.Dataset(path, "a") as nc:
        nc.renameVariable("num_repeates", "num_repeats")
    with looked(path) as view:
        assert view.header.repeats == 33


@pytest.mark.parametrize(
    ("begin", "end", "step", "count"),
    [(0, 1000, 100, 10), (0, 1001, 100, 11), (100, 1000, 100, 9), (8, 9, 1, 1), (5, 5, 1, 0), (0, 10, 0, 1)],
)
def test_how_many_matrices_a_header_promises(begin, end, step, count):
    assert Header(2, "put", begin, end, step, 1).count() == count


def test_a_run_that_was_stopped_has_fewer_matrices(tmp_path):
    with looked(write(tmp_path, "p", "average", matrices(count=2), end=1000)) as view:
        assert (view.count, view.header.count()) == (2, 10)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ({"proc_num": 5}, "proc_num is 5, but its matrices are 3 × 3"),
        ({"data_type": 9}, "data_type is 9; known: 1 average"),
        ({"data_type": 2}, "its name means average, but data_type is 2, median"),
        ({"end": 100}, "make 1 matrices, but there are 2"),
        ({"step": 0, "end": 5}, "make 1 matrices, but there are 2"),
        ({"step": -5, "end": 5}, "make 1 matrices, but there are 2"),
    ],
)
def test_headers_that_contradict_the_data_are_refused(tmp_path, header, says):
    error = refused(write(tmp_path, "p", "average", matrices(), **header))
    assert error.code == "net.clustbench_contradiction"
    assert says in error.what


def test_matrices_that_are_not_square_are_refused(tmp_path):
    error = refused(write(tmp_path, "p", "average", np.zeros((2, 3, 4))))
    assert error.code == "net.clustbench_contradiction"
    assert "3 × 4, not square" in error.what


def test_a_statistic_with_every_delay_is_refused(tmp_path):
    error = refused(write(tmp_path, "p", "average", series(), version=2))
    assert "data_type means average, but it has data(n, x, y, z)" in error.what
    error = refused(write(tmp_path, "p", "all", matrices(), version=2))
    assert "data_type means all, but it has data(n, x, y)" in error.what


def test_a_file_without_matrices_is_refused(tmp_path):
    error = refused(write(tmp_path, "p", "average", np.zeros((0, 3, 3)), end=100))
    assert error.code == "net.clustbench_empty"


@pytest.mark.parametrize("name", ["proc_num", "test_type", "data_type", "begin_mes_length", "step_length"])
def test_a_file_without_one_of_its_variables_is_refused(tmp_path, name):
    path = write(tmp_path, "p", "average", matrices())
    with netCDF4.Dataset(path, "a") as nc:
        nc.renameVariable(name, name[:-1] + "X")
    error = refused(path)
    assert error.code == "net.not_clustbench"
    assert error.what.startswith(f"p_average.nc has no variable {name} (nearest: {name[:-1]}X)")


def test_numbers_that_are_not_whole_are_refused(tmp_path):
    path = tmp_path / "p_average.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as nc:
        for dim in "xyn":
            nc.createDimension(dim, 2)
        nc.createVariable("proc_num", "f8")[...] = 2.0
        nc.createVariable("test_type", "i4")[...] = 1
        nc.createVariable("data", "f8", ("n", "x", "y"))[:] = 0
    assert "proc_num is not one whole number" in refused(path).what


@pytest.mark.parametrize(
    ("variable", "kind", "dims", "says"),
    [
        ("latency", "f8", ("n", "x", "y"), "it has no numbers named data"),
        ("data", "f8", ("x", "y"), "it has data(x, y)"),
        ("data", "f8", ("x", "n", "y"), "it has data(x, n, y)"),
        ("data", "S1", ("n", "x", "y"), "it has no numbers named data"),
    ],
)
@pytest.mark.parametrize("form", ["NETCDF3_CLASSIC", "NETCDF4"])
def test_netcdf_of_others_is_refused(tmp_path, variable, kind, dims, says, form):
    path = tmp_path / "theirs.nc"
    with netCDF4.Dataset(path, "w", format=form) as nc:
        for dim in "nxy":
            nc.createDimension(dim, 2)
        nc.createVariable(variable, kind, dims)
    error = refused(path)
    assert error.code == "net.not_clustbench"
    assert says in error.what
    assert "data(n, x, y)" in error.hint


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"begin": 100}, "begin_mes_length is 0 in the first and 100 in the second"),
        ({"end": 900}, "end_mes_length is 200"),
        ({"repeats": 11}, "the number of repetitions is 10"),
        ({"mode": 2}, "test_type is one_to_one in the first and all_to_all in the second"),
        ({"version": 2}, "the format is v1 in the first and v2"),
    ],
)
def test_files_of_different_runs_do_not_go_together(tmp_path, change, says):
    one = write(tmp_path, "p", "average", matrices())
    two = write(tmp_path, "p", "median", matrices(), **change)
    with looked(one) as a, looked(two) as b, pytest.raises(DataError) as caught:
        clustbench.check_together([a, b])
    assert caught.value.code == "net.clustbench_contradiction"
    assert "p_average.nc and p_median.nc are not from one run" in caught.value.what
    assert says in caught.value.what


# ---- reading -------------------------------------------------------------------------------------


def test_a_row_is_the_receiver_and_a_column_the_sender(tmp_path):
    data = matrices(3, 1)
    with looked(write(tmp_path, "p", "average", data)) as view:
        matrix = clustbench.read_matrix(view, 0)
    assert matrix[0, 2] == data[0, 2, 0]  # 0 -> 2 was measured by process 2
    assert matrix[0, 2] != data[0, 0, 2]


def test_in_put_a_row_is_the_sender(tmp_path):
    data = matrices(3, 1)
    with looked(write(tmp_path, "p", "average", data, mode=clustbench.TEST_TYPES["put"])) as view:
        matrix = clustbench.read_matrix(view, 0)
    assert matrix[0, 2] == data[0, 0, 2]


@pytest.mark.parametrize(("mode", "turned"), [("get", False), ("put", True)])
def test_series_turn_like_matrices(tmp_path, mode, turned):
    data = series()
    with looked(write(tmp_path, "p", "all", data, version=2, mode=mode)) as view:
        block = clustbench.read_block(view, slice(0, 1), slice(2, 3), slice(1, 2), slice(0, 8))
    expected = data[1, 0, 2] if turned else data[1, 2, 0]
    assert block.shape == (1, 1, 1, 8)
    assert block[0, 0, 0].tolist() == expected.tolist()


def test_padding_and_a_diagonal_without_meaning_become_nan():
    matrix = np.array([[0.5, -1.0], [2.0, -2.0]])
    np.testing.assert_array_equal(
        clustbench.without_padding(matrix, "one_to_one"), [[np.nan, np.nan], [2, np.nan]]
    )


def test_a_diagonal_that_is_measured_stays():
    matrix = np.array([[0.5, 1.0], [2.0, 0.0]])
    np.testing.assert_array_equal(clustbench.without_padding(matrix, "all_to_all"), [[0.5, 1], [2, np.nan]])


@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
def test_delays_are_counted_up_to_the_padding(tmp_path, batch_bytes):
    data = series()
    data[0, 1, 0, 5] = -3e-9  # a clock that was set back
    with looked(write(tmp_path, "p", "all", data, version=2)) as view:
        counts = clustbench.count_series(view, batch_bytes)
    for k, row, column in np.ndindex(2, 3, 3):
        expected = 0 if row == column else 8 - (row + column + k) % 3
        assert counts.n[column, row, k] == expected
    assert (counts.after, counts.negative) == (0, 1)


def test_values_behind_padding_are_reported():
    """They end the series all the same."""
    data = series()
    data[0, 1, 0, 2] = -1
    view = clustbench.View("x", "v2", "all", Header(3, "one_to_one", 0, 200, 100, 8), 2, 8, Held(data))
    counts = clustbench.count_series(view)
    assert counts.n[0, 1, 0] == 2
    assert counts.after == 4


class Held:
    """An array where an open file is due."""

    def __init__(self, data):
        self.variables = {"data": data}


def test_the_golden_counts_are_those_clustbench_wrote():
    with looked(golden("all")) as view, looked(golden("measurements_amount")) as amount:
        n = clustbench.count_series(view).n
        for k in range(9):
            assert (n[:, :, k] == clustbench.read_matrix(amount, k)).all()


def test_hosts_are_one_a_line():
    assert clustbench.read_hosts("n1\nn2\n", 2) == ["n1", "n2"]
    assert clustbench.read_hosts("n1\r\nn2\n\n\n", 2) == ["n1", "n2"]
    assert clustbench.read_hosts("n1\n", 2) is None
    assert clustbench.read_hosts("n1\n\nn2\n", 3) is None
    assert clustbench.read_hosts(clustbench.hosts_text(["a", "b"]), 2) == ["a", "b"]


# ---- writing -------------------------------------------------------------------------------------


def ncdump_header(path) -> str:
    text = netcdf_tools.run("ncdump", "-h", path)
    return "netcdf FILE {\n" + text.split("\n", 1)[1]


def built(path, structure, data):
    with path.open("wb") as stream:
        clustbench_layout.build(stream, structure, len(data)).put((0,) * data.ndim, data)
    return path


GOLDEN_HEADER = Header(4, "one_to_one", 100, 1000, 100, 200)


def test_v1_has_the_header_of_clustbench(tmp_path):
    path = built(
        tmp_path / "p.nc", clustbench_layout.standard("v1", "median", GOLDEN_HEADER), np.zeros((9, 4, 4))
    )
    assert ncdump_header(path) == (GOLDEN / "v1_median.cdl").read_text()
    kind = netcdf_tools.run("ncdump", "-k", path)
    assert kind == "64-bit offset\n"


@pytest.mark.parametrize("kind", ["all", "average", "measurements_amount"])
def test_v2_has_the_header_of_clustbench_but_for_its_plug_ins(tmp_path, kind):
    shape = (9, 4, 4, 200) if kind == "all" else (9, 4, 4)
    path = built(tmp_path / "p.nc", clustbench_layout.standard("v2", kind, GOLDEN_HEADER), np.zeros(shape))
    expected = (GOLDEN / f"v2_{kind}.cdl").read_text().splitlines()
    assert ncdump_header(path).splitlines() == [line for line in expected if "random_option" not in line]


@pytest.mark.parametrize("kind", ["all", "average", "measurements_amount"])
def test_what_was_read_is_written_again_byte_for_byte(tmp_path, kind):
    with looked(golden(kind)) as view:
        text = clustbench.structure_of(view).as_json()
        structure = clustbench.Structure.from_json(text)
        assert structure.strange() == ["random_option_1", "random_option_2"]
        path = built(tmp_path / "p.nc", structure, view.data[:])
    assert ncdump_header(path) == (GOLDEN / f"v2_{kind}.cdl").read_text()
    assert path.read_bytes() == golden(kind).read_bytes()


def test_strange_dims_attributes_and_types_are_preserved(tmp_path):
    path = write(tmp_path, "p", "average", matrices(), version=2)
    with netCDF4.Dataset(path, "a") as nc:
        nc.createDimension("weights", 3)
        nc.createVariable("weight", "f8", ("weights",))[:] = [1.5, np.nan, -1e-300]
        nc.createVariable("label", "S1", ("weights",))[:] = np.array([b"a", b"\xe9", b"c"], "S1")
        nc.createVariable("few", "i2")[...] = -7
        nc.setncattr("origin", "elsewhere")
        nc["data"].setncattr("limits", np.array([0.5, 2.5]))
    with looked(path) as view:
        structure = clustbench.Structure.from_json(clustbench.structure_of(view).as_json())
    again = built(tmp_path / "q_average.nc", structure, read(path))
    for one in (path, again):
        with looked(one) as view:
            assert view.nc["weight"][:].tolist()[::2] == [1.5, -1e-300]
            assert np.isnan(view.nc["weight"][1])
            assert b"".join(view.nc["label"][:].tolist()) == b"a\xe9c"
            assert view.nc["few"].dtype == np.int16
            assert view.nc.origin == "elsewhere"
            assert view.nc["data"].limits.tolist() == [0.5, 2.5]
    assert ncdump_header(path) == ncdump_header(again)


def test_slices_have_the_headers_of_clustbench_s_slicer(tmp_path):
    fixed = built(
        tmp_path / "f.nc", clustbench_layout.fixed_length(GOLDEN_HEADER, 160), np.zeros((160, 4, 4))
    )
    assert ncdump_header(fixed) == (GOLDEN / "fixed_length.cdl").read_text()
    spectrum = built(tmp_path / "s.nc", clustbench_layout.spectrum(4, 141, 20), np.zeros((4, 4, 141, 11)))
    assert ncdump_header(spectrum) == (GOLDEN / "spectrum.cdl").read_text()


def test_a_matrix_beyond_4_gib_fits_the_format(tmp_path):
    """A record may be longer than 4 GiB where it is the only one: N = 1024 with 1000 repetitions, say."""
    header = Header(1024, "one_to_one", 0, 100, 100, 1000)
    with (tmp_path / "p.nc").open("wb") as stream:
        clustbench_layout.build(stream, clustbench_layout.standard("v2", "all", header), 0)
    with netCDF4.Dataset(tmp_path / "p.nc") as nc:
        assert nc["data"].shape == (0, 1024, 1024, 1000)


def test_a_mode_without_a_number_has_no_v1(tmp_path):
    with pytest.raises(DataError) as caught:
        clustbench_layout.standard("v1", "min", Header(2, "one_to_many", 0, 1, 1, 1))
    assert caught.value.code == "net.clustbench_range"
    assert "(nearest: one_to_one)" in caught.value.what
    assert "clustbench-v2" in caught.value.hint


@pytest.mark.parametrize("end", [2**31, -1])
def test_numbers_beyond_32_bits_are_refused(end):
    with pytest.raises(DataError) as caught:
        clustbench_layout.standard("v2", "min", Header(2, "put", 0, end, 1, 1))
    assert caught.value.code == "net.clustbench_range"
    assert str(end) in caught.value.what


# ---- statistics ----------------------------------------------------------------------------------


def test_averages_have_the_bits_that_clustbench_computes():
    delays, expected = read(golden("all")), read(golden("average"))
    n = read(golden("measurements_amount")).astype(int)
    cells = np.where(np.arange(200) < n.reshape(-1, 1), delays.reshape(-1, 200), np.nan)
    found = clustbench_layout.statistics(cells, n.reshape(-1))["average"].reshape(n.shape)
    off = n > 0
    assert (found[off] == expected[off]).all()
    assert off.sum() == 108


def test_median_is_the_upper_one_and_deviation_the_population_s():
    delays = np.array([[4.0, 1.0, 3.0, 2.0], [5.0, 7.0, 6.0, np.nan], [9.0, np.nan, np.nan, np.nan]])
    found = clustbench_layout.statistics(delays, np.array([4, 3, 1]))
    assert found["median"].tolist() == [3.0, 6.0, 9.0]
    assert found["min"].tolist() == [1.0, 5.0, 9.0]
    np.testing.assert_allclose(found["deviation"], [np.std([1, 2, 3, 4]), np.std([5, 6, 7]), 0])


def test_statistics_of_nothing_are_nan():
    found = clustbench_layout.statistics(np.full((2, 3), np.nan), np.zeros(2, int))
    assert all(np.isnan(values).all() for values in found.values())
    assert clustbench_layout.statistics(np.zeros((0, 3)), np.zeros(0, int))["average"].shape == (0,)


# ---- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([64], (64, 65, 1)),
        ([0], (0, 1, 1)),
        ([0, 100, 200], (0, 300, 100)),
        ([300, 100, 200], (100, 400, 100)),
        ([8, 1024], (8, 2040, 1016)),
    ],
)
def test_even_sizes_are_a_progression(sizes, expected):
    assert clustbench_layout.progression(sizes) == expected
    begin, end, step = expected
    header = Header(2, "put", begin, end, step, 1)
    assert header.sizes(header.count()).tolist() == sorted(sizes)


def test_uneven_sizes_are_refused_with_the_nearest_choice():
    with pytest.raises(DataError) as caught:
        clustbench_layout.progression([8, 64, 512, 1024, 1536, 2048, 65536])
    assert caught.value.code == "net.uneven_sizes"
    assert "8, 64, 512, 1024, 1536, 2048, 65536 B are not evenly spaced" in caught.value.what
    assert caught.value.hint == "export 4 of the 7: --sizes 512:2560:512"


@given(st.lists(st.integers(0, 60), min_size=2, max_size=12, unique=True))
def test_the_longest_progression_is_the_longest(sizes):
    ordered = sorted(sizes)
    best = clustbench_layout.longest_progression(ordered)
    assert set(best) <= set(ordered)
    assert len(set(np.diff(best))) == 1
    longest = 2
    for a in ordered:
        for b in ordered:
            if a < b:
                chain = 2
                while a + chain * (b - a) in ordered:
                    chain += 1
                longest = max(longest, chain)
    assert len(best) == longest
