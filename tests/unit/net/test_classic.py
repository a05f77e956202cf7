"""NetCDF-3: files that are cut off are refused, and files are written as netCDF-C writes them."""

from __future__ import annotations

import io
from contextlib import suppress

import netCDF4
import numpy as np
import pytest
from clustbench_files import golden
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.core.errors import DataError
from sonde.net.classic import ClassicWriter, check_whole

# ---- is the file whole? --------------------------------------------------------------------------


def whole(data: bytes) -> None:
    check_whole(io.BytesIO(data), len(data), "x.nc")


@pytest.mark.parametrize("kind", ["all", "average", "measurements_amount"])
def test_the_golden_files_are_whole(kind):
    whole(golden(kind).read_bytes())


def test_a_file_cut_off_anywhere_is_refused():
    data = golden("average").read_bytes()
    for length in range(4, len(data)):
        with pytest.raises(DataError) as caught:
            whole(data[:length])
        assert caught.value.code == "net.truncated", length
    assert caught.value.what == "x.nc is cut off: it has 1739 of the 1740 B that its header promises"


def test_a_large_file_cut_off_is_refused():
    data = golden("all").read_bytes()
    for length in (5, 600, 700, 10_000, len(data) // 2, len(data) - 8, len(data) - 1):
        with pytest.raises(DataError):
            whole(data[:length])


@pytest.mark.parametrize("form", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"])
@pytest.mark.parametrize("record_variables", [0, 1, 2])
def test_the_length_is_right_for_every_classic_format(tmp_path, form, record_variables):
    path = tmp_path / "x.nc"
    with netCDF4.Dataset(path, "w", format=form) as nc:
        nc.createDimension("t", None)
        nc.createDimension("u", 3)
        nc.setncattr("title", "an attribute")
        nc.createVariable("fixed", "i2", ("u",))[:] = [1, 2, 3]
        for number in range(record_variables):
            variable = nc.createVariable(f"r{number}", "i2", ("t", "u"))
            variable.setncattr("units", "s")
            variable[:] = np.ones((5, 3))
    data = path.read_bytes()
    whole(data)
    with pytest.raises(DataError):
        whole(data[:-4])  # the last 4 B may be padding


def test_other_formats_are_left_to_their_libraries(tmp_path):
    whole(b"")
    whole(b"\x89HDF\r\n\x1a\n")
    whole(b"CDF\x09 a version that is not")


@pytest.mark.parametrize(
    ("at", "value", "says"),
    [
        (11, 0x0B, "11 is in the place of list 10"),
        (23, 0xFF, "a name in it is not text"),
        (16, 0x7F, "it does not end within"),
    ],
)
def test_a_damaged_header_is_refused(at, value, says):
    data = bytearray(golden("average").read_bytes())
    data[at] = value
    if says == "a name in it is not text":
        data[20] = 0xFF
    with pytest.raises(DataError) as caught:
        whole(bytes(data))
    assert caught.value.code == "net.damaged_header"
    assert says in caught.value.what


@given(
    flips=st.lists(st.tuples(st.integers(4, 587), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 600),
)
def test_any_header_is_judged_without_a_fault(flips, cut):
    data = bytearray(golden("average").read_bytes())
    for at, value in flips:
        data[at] = value
    with suppress(DataError):
        whole(bytes(data[: len(data) - cut]))


# ---- writing -------------------------------------------------------------------------------------

KINDS = {"i1": np.int8, "S1": "S1", "i2": np.int16, "i4": np.int32, "f4": np.float32, "f8": np.float64}


def values_of(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).integers(32, 126, shape)
    return (
        np.frombuffer(drawn.astype(np.uint8).tobytes(), "S1").reshape(shape)
        if kind == "S1"
        else drawn.astype(kind)
    )


variables = st.lists(
    st.tuples(st.sampled_from(sorted(KINDS)), st.sampled_from(["", "a", "b", "t", "ab", "ta", "tab"])),
    max_size=5,
)


@given(
    variables=variables, records=st.integers(0, 3), lengths=st.tuples(st.integers(1, 4), st.integers(1, 4))
)
@settings(max_examples=60, deadline=None)
def test_the_bytes_are_those_of_netcdf_c(tmp_path_factory, variables, records, lengths):
    path = tmp_path_factory.mktemp("classic") / "theirs.nc"
    dims = [("a", lengths[0]), ("t", None), ("b", lengths[1])]
    named = [(f"v{number}", kind, tuple(its)) for number, (kind, its) in enumerate(variables)]
    attributes = {
        "": {"title": "word", "count": 3},
        **{name: {"range": [0.5, 2.5]} for name, _, _ in named[:1]},
    }
    shapes = {"a": lengths[0], "b": lengths[1], "t": records}
    data = {
        name: values_of(kind, tuple(shapes[dim] for dim in its), number)
        for number, (name, kind, its) in enumerate(named)
    }
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as nc:
        nc.set_fill_off()
        nc.setncatts(attributes[""])
        for name, length in dims:
            nc.createDimension(name, length)
        for name, kind, its in named:
            variable = nc.createVariable(name, kind, its)
            variable.setncatts(attributes.get(name, {}))
        nc.set_auto_maskandscale(False)
        nc.set_auto_chartostring(False)
        for name, values in data.items():
            nc[name][...] = values
    theirs = path.read_bytes()
    writes_records = any("t" in its for _, _, its in named) and records
    with path.open("wb") as stream:
        writer = ClassicWriter(stream, dims, named, attributes, records if writes_records else 0)
        for name, _, _ in named:
            writer.put(name, (0,) * data[name].ndim, data[name])
    ours = path.read_bytes()
    whole(ours)
    differ = [at for at in range(len(ours)) if ours[at] != theirs[at]]
    assert len(ours) == len(theirs)
    with netCDF4.Dataset(path) as nc:
        nc.set_auto_maskandscale(False)
        nc.set_auto_chartostring(False)
        for name, values in data.items():
            np.testing.assert_array_equal(nc[name][...], values)
    # What fills up short values to 4 B is zero here and fill values there; all else is the same.
    short = sum(values.dtype.itemsize < 4 for values in data.values())
    assert len(differ) <= 3 * max(records, 1) * short


@pytest.mark.parametrize("step", [(1, 1, 1), (2, 1, 4), (1, 3, 2), (5, 3, 4), (3, 2, 3)])
@pytest.mark.parametrize("unlimited", [True, False])
def test_blocks_of_any_shape_land_where_they_belong(tmp_path, step, unlimited):
    values = np.arange(5 * 3 * 4, dtype=float).reshape(5, 3, 4)
    path = tmp_path / "x.nc"
    with path.open("wb") as stream:
        dims = [("t", None if unlimited else 5), ("a", 3), ("b", 4)]
        named = [("other", "i2", ("t",)), ("data", "f8", ("t", "a", "b"))]
        writer = ClassicWriter(stream, dims, named, {}, 5)
        for i in range(0, 5, step[0]):
            for j in range(0, 3, step[1]):
                for k in range(0, 4, step[2]):
                    block = values[i : i + step[0], j : j + step[1], k : k + step[2]]
                    writer.put("data", (i, j, k), block)
        writer.put("other", (0,), np.arange(5))
    with netCDF4.Dataset(path) as nc:
        assert (nc["data"][:] == values).all()
        assert nc["other"][:].tolist() == [0, 1, 2, 3, 4]


def test_what_is_never_put_is_zero(tmp_path):
    path = tmp_path / "x.nc"
    with path.open("wb") as stream:
        ClassicWriter(stream, [("t", None), ("a", 3)], [("data", "f8", ("t", "a"))], {}, 4)
    with netCDF4.Dataset(path) as nc:
        assert nc["data"][:].tolist() == [[0.0] * 3] * 4


def test_a_block_beyond_the_variable_is_refused():
    writer = ClassicWriter(io.BytesIO(), [("a", 3)], [("data", "f8", ("a",))], {}, 0)
    with pytest.raises(IndexError):
        writer.put("data", (2,), np.zeros(2))


def test_a_type_that_the_format_lacks_is_refused():
    with pytest.raises(DataError) as caught:
        ClassicWriter(io.BytesIO(), [], [("big", "<i8", ())], {}, 0)
    assert "variable big has type <i8" in caught.value.what


def test_only_the_last_variable_may_exceed_4_gib(tmp_path):
    dims = [("n", 100_000), ("m", 7_000)]
    large = ("data", "f8", ("n", "m"))

    with (tmp_path / "x.nc").open("wb") as stream:  # sparse
        ClassicWriter(stream, dims, [("few", "i4", ()), large], {}, 0).put(
            "data", (99999, 5), np.ones((1, 1))
        )
    with netCDF4.Dataset(tmp_path / "x.nc") as nc:
        assert nc["data"][99999, 4:7].tolist() == [0, 1, 0]
    with pytest.raises(DataError) as caught:
        ClassicWriter(io.BytesIO(), dims, [large, ("few", "i4", ())], {}, 0)
    assert "data takes 5.2 GiB" in caught.value.what
