"""sonde data convert: what comes out holds every value, names every unit, and can be read back."""

from __future__ import annotations

import csv
import io
import json
import os
import sys

import fakeroom
import netCDF4
import numpy as np
import pyarrow.parquet
import pytest
import xarray as xr
from fakeroom import in_child

from sonde.core import dataset, dataset_file, distribution
from sonde.core.errors import DataError, EnvironmentFailure, UsageError
from sonde.data import convert, tables


def read_csv(text: str) -> tuple[list[str], dict[str, list[str]]]:
    head, *rows = csv.reader(io.StringIO(text))
    return head, {name: [row[k] for row in rows] for k, name in enumerate(head)}


def check_raw(columns: dict[str, list], delay: str, cell: str) -> None:
    """Long-form columns hold every delay of the sound dataset, each at its place."""
    back = np.full((3, 2, 20), np.nan)
    place = tuple(np.array(columns[name], int) for name in ("rank", cell, "sample"))
    back[place[0], place[1] // 100, place[2]] = np.array(columns[delay], float)
    for rank in range(3):
        np.testing.assert_array_equal(back[rank], fakeroom.expected(rank, 2, 5))


def test_csv_reads_back_exactly_and_names_units(sound):
    with dataset.open(sound) as tree:
        text = convert.to_text(tree, convert.group_tables(tree, "raw"), "csv")
    head, columns = read_csv(text)
    assert head == ["rank", "cell [B]", "sample", "delay [s]"]
    check_raw(columns, "delay [s]", "cell [B]")


def test_json_reads_back_exactly_with_all_tables_and_attributes(sound):
    with dataset.open(sound) as tree:
        said = json.loads(convert.to_text(tree, convert.group_tables(tree, "raw"), "json"))
        assert said["attributes"] == dataset.attrs(tree)
    assert (said["schema"], said["group"]) == ("lab/1", "raw")
    assert [table["dims"] for table in said["tables"]] == [
        ["rank", "cell", "sample"],
        ["rank", "cell"],
        ["rank"],
    ]
    delay = said["tables"][0]
    assert delay["columns"][3] == {"name": "delay", "units": "s", "long_name": "delay"}
    columns = {c["name"]: [row[k] for row in delay["rows"]] for k, c in enumerate(delay["columns"])}
    check_raw(columns, "delay", "cell")
    assert said["tables"][2]["rows"] == [[0, "n001"], [1, "n002"], [2, "n003"]]


def test_parquet_reads_back_exactly_with_units_in_the_metadata(sound, tmp_path):
    out = tmp_path / "a.parquet"
    with dataset.open(sound) as tree:
        done = convert.to_files(tree, convert.group_tables(tree, "raw"), "parquet", out, "a")
        attrs = dataset.attrs(tree)
    assert [(one.path, one.table, one.rows) for one in done.files] == [(out, "rank_cell_sample", 120)]
    assert [table.name for table in done.left_out] == ["rank_cell", "rank"]
    table = pyarrow.parquet.read_table(out)
    check_raw(table.to_pydict(), "delay", "cell")
    assert table.schema.field("delay").metadata == {b"units": b"s", b"long_name": b"delay"}
    assert json.loads(table.schema.metadata[b"sonde"]) == {"group": "raw", "attributes": attrs}
    assert sorted(os.listdir(tmp_path)) == ["a.nc", "a.parquet"]


def test_markdown_is_a_table_for_people(sound):
    with dataset.open(sound) as tree:
        text = convert.to_text(tree, convert.group_tables(tree, None), "markdown")
    lines = text.split("\n")
    assert lines[0] == "### /summary by rank, cell"
    assert lines[2] == "| rank | cell [B] | median [s] | median_low [s] | median_high [s] |"
    assert lines[3] == "| --: | --: | --: | --: | --: |"
    assert lines[4] == "| 0 | 0 | 1.00095e-06 | 1e-06 | 1.0019e-06 |"
    assert "### /summary, one value each" in lines
    assert "| spread [s] |" in lines


def test_markdown_and_csv_keep_awkward_text_in_its_cell(tmp_path):
    host = ["a|b", 'say "c", d', "e\nf"]
    raw = xr.Dataset({"host": ("rank", host, {"long_name": "host"})})
    path = dataset_file.write_dataset(tmp_path / "a.nc", raw, None, {"schema": "lab/1"})
    with dataset.open(path) as tree:
        found = convert.group_tables(tree, None)
        assert "| 0 | a\\|b |" in convert.to_text(tree, found, "markdown")
        assert read_csv(convert.to_text(tree, found, "csv"))[1]["host"] == host


def test_padding_is_left_out_but_missing_values_in_a_row_are_preserved(tmp_path):
    raw = xr.Dataset(
        {
            "delay": (("rank", "sample"), [[1.0, 2.0], [3.0, np.nan]], {"units": "s"}),
            "epoch": (
                ("rank", "sample"),
                np.array([[0, 1], [0, -1]], "i4"),
                {"units": "1", "_FillValue": -1},
            ),
            "low": (("rank",), [np.nan, 1.0], {"units": "s"}),
            "n": (("rank",), np.array([0, 1], "i4"), {"units": "1"}),
        }
    )
    path = dataset_file.write_dataset(tmp_path / "a.nc", raw, None, {"schema": "lab/1"})
    with dataset.open(path) as tree:
        found = convert.group_tables(tree, None)
        assert convert.to_text(tree, found, "csv") == (
            "rank,sample,delay [s],epoch\n0,0,1.0,0\n0,1,2.0,1\n1,0,3.0,0\n"
        )
        said = json.loads(convert.to_text(tree, found, "json"))
    assert said["tables"][1]["rows"] == [[0, None, 0], [1, 1.0, 1]]


def test_infinity_and_nan_are_valid_json(tmp_path):
    raw = xr.Dataset({"x": (("n",), [np.inf, -np.inf, 1.0], {"units": "s"})})
    path = dataset_file.write_dataset(tmp_path / "a.nc", raw, None, {"schema": "lab/1", "odd": float("nan")})
    with dataset.open(path) as tree:
        text = convert.to_text(tree, convert.group_tables(tree, None), "json")
    said = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert said["attributes"]["odd"] is None
    assert [row[1] for row in said["tables"][0]["rows"]] == ["inf", "-inf", 1.0]


def test_a_folder_gets_a_file_for_each_table(sound, tmp_path):
    (tmp_path / "out").mkdir()
    with dataset.open(sound) as tree:
        found = convert.group_tables(tree, "raw")
        done = convert.to_files(tree, found, "csv", tmp_path / "out", "a")
    assert sorted(os.listdir(tmp_path / "out")) == [
        "a-raw-rank.csv",
        "a-raw-rank_cell.csv",
        "a-raw-rank_cell_sample.csv",
    ]
    assert done.left_out == []
    assert (tmp_path / "out" / "a-raw-rank.csv").read_text() == "rank,host\n0,n001\n1,n002\n2,n003\n"


def test_a_table_larger_than_a_block_comes_whole_and_each_value_once(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_ROWS", 7)
    monkeypatch.setattr(tables, "_READ_BYTES", 240)
    values = np.arange(5 * 6 * 4.0).reshape(5, 6, 4)
    variable = xr.Variable(("a", "b", "c"), values, {"units": "s"}, encoding={"chunksizes": (2, 3, 1)})
    raw = xr.Dataset({"x": variable}, coords={"b": ("b", np.arange(6) * 10, {"units": "B"})})
    path = dataset_file.write_dataset(tmp_path / "a.nc", raw, None, {"schema": "lab/1"})
    with netCDF4.Dataset(path) as file:
        assert file["raw/x"].chunking() == [2, 3, 1]
    with dataset.open(path) as tree:
        (table,) = convert.group_tables(tree, None)
        blocks = list(table.blocks())
    assert max(len(block[0]) for block in blocks) <= 7
    a, b, c, x = (np.concatenate(column) for column in zip(*blocks))
    assert len(x) == 120
    np.testing.assert_array_equal(x, values[a, b // 10, c])
    assert len({*zip(a.tolist(), b.tolist(), c.tolist())}) == 120


@pytest.mark.slow
def test_memory_does_not_grow_with_the_table(tmp_path):
    """80 MB of /raw become CSV and Parquet in a process that may add 200 MB to what its imports took."""
    values = np.random.default_rng(5).integers(0, 100, (100, 100_000)).astype("f8")
    variable = xr.Variable(("rank", "sample"), values, {"units": "s"}, encoding={"chunksizes": (1, 50_000)})
    path = dataset_file.write_dataset(
        tmp_path / "a.nc", xr.Dataset({"x": variable}), None, {"schema": "lab/1"}
    )
    child = in_child(
        """
        import pathlib, resource
        import pyarrow.parquet
        from sonde.core import dataset
        from sonde.data import convert
        path = pathlib.Path(sys.argv[1])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with dataset.open(path) as tree:
            found = convert.group_tables(tree, None)
            done = convert.to_files(tree, found, "parquet", path.with_suffix(".parquet"), "a")
        print(done.files[0].rows, before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        """,
        path,
    )
    out, err = child.communicate(timeout=200)
    rows, before_kib, after_kib = map(int, out.split() or [0, 0, 10**9])
    assert rows == 10_000_000, err
    assert after_kib - before_kib < 200 << 10


def test_without_pyarrow_the_error_says_what_to_install(sound, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with dataset.open(sound) as tree, pytest.raises(EnvironmentFailure) as raised:
        convert.to_files(tree, convert.group_tables(tree, None), "parquet", tmp_path / "a.parquet", "a")
    assert raised.value.code == "data.no_pyarrow"
    assert raised.value.hint == distribution.install_python("pyarrow")


def test_what_is_too_long_for_a_terminal_wants_a_file(sound, monkeypatch):
    monkeypatch.setattr(convert, "LONGEST_TEXT_CELLS", 100)
    with dataset.open(sound) as tree:
        with pytest.raises(
            UsageError, match="up to 480 values, which is too many for the terminal"
        ) as raised:
            convert.to_text(tree, convert.group_tables(tree, "raw"), "csv")
        assert "-o OUT.csv" in raised.value.hint
        with pytest.raises(UsageError, match="Parquet is not text"):
            convert.to_text(tree, convert.group_tables(tree, "raw"), "parquet")


def test_a_file_that_cannot_be_written_leaves_nothing(sound, tmp_path):
    out = tmp_path / "none" / "a.csv"
    with dataset.open(sound) as tree, pytest.raises(EnvironmentFailure) as raised:
        convert.to_files(tree, convert.group_tables(tree, None), "csv", out, "a")
    assert raised.value.code == "core.cannot_write"
    assert f"cannot write {out}: No such file" in raised.value.what
    assert os.listdir(tmp_path) == ["a.nc"]


def test_a_group_that_is_not_there_names_those_that_are(tmp_path):
    path = dataset_file.write_dataset(
        tmp_path / "a.nc", None, fakeroom.summary(np.ones((1, 1, 2)), [0]), {"schema": "lab/1"}
    )
    with dataset.open(path) as tree, pytest.raises(DataError, match="no /raw with values") as raised:
        convert.group_tables(tree, "raw")
    assert "it has /summary" in raised.value.hint


@pytest.mark.parametrize(
    ("to", "out", "format_"),
    [("csv", None, "csv"), (None, "a.md", "markdown"), (None, "a.json", "json"), ("csv", "a.json", "csv")],
)
def test_the_format_is_named_or_read_from_the_output(to, out, format_, tmp_path):
    assert convert.format_of(to, None if out is None else tmp_path / out) == format_


@pytest.mark.parametrize("out", [None, "a.txt"])
def test_no_format_is_an_error_that_lists_them(out, tmp_path):
    with pytest.raises(UsageError) as raised:
        convert.format_of(None, None if out is None else tmp_path / out)
    assert raised.value.hint == "add --to csv, json, parquet or markdown"


def test_a_table_without_rows_does_not_stand_for_one_that_has_some(tmp_path):
    summary = xr.Dataset(
        {"wide": (("a", "b"), np.full((2, 2), np.nan)), "narrow": (("a",), [1.0, 2.0])}, {"a": [0, 1]}
    )
    path = dataset_file.write_dataset(tmp_path / "a.nc", None, summary, fakeroom.ATTRS | {"schema": "lab/1"})
    with dataset.open(path) as tree:
        assert convert.to_text(tree, convert.group_tables(tree, None), "csv") == "a,narrow\n0,1.0\n1,2.0\n"
