"""Opening and checking datasets: what is sound opens lazily, what is not is told in words that help."""

from __future__ import annotations

import os
from pathlib import Path

import fakeroom
import netCDF4
import numpy as np
import pytest
import xarray as xr
from fakeroom import in_child

import sonde
from sonde.core import dataset, dataset_file, described, seal
from sonde.core.allowed import COUNT
from sonde.core.errors import DataError, Finding, Warning


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    run = fakeroom.make_run(folder / "a.run", env={"A": "b"})
    return seal.seal(run, folder / "a.nc", fakeroom.SCHEMA)[0].path


@pytest.fixture
def copy(sound, tmp_path) -> Path:
    path = tmp_path / "a.nc"
    path.write_bytes(sound.read_bytes())
    return path


def open_files(path: Path) -> int:
    held = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            held += os.readlink(link) == str(path)
        except OSError:
            continue
    return held


def test_values_are_read_when_used_and_the_file_is_closed(sound):
    with sonde.open(sound) as tree:
        delay = tree["raw/delay"]
        assert not delay.variable._in_memory
        assert delay[1, 0, 0].item() == fakeroom.expected(1, 2, 5)[0, 0]
        assert not delay.variable._in_memory
        assert open_files(sound) >= 1
    assert open_files(sound) == 0


def test_nothing_is_decoded(sound):
    with dataset.open(sound) as tree:
        assert tree["raw/delay"].dtype == np.float64  # "s" makes no timedelta
        assert tree["raw/n"].dtype == np.int32  # a fill value makes no float
        assert tree["raw/delay"].attrs["units"] == "s"


def test_schema_and_attributes_are_plain_values(sound):
    with dataset.open(sound) as tree:
        assert dataset.schema_of(tree) == ("lab", 1)
        attrs = dataset.attrs(tree)
        assert attrs["complete"] == 1
        assert type(attrs["complete"]) is int
        assert type(attrs["seed"]) is int
        assert dataset.attrs(tree["env"]) == {"A": "b"}
        assert dataset.warnings_of(tree) == []
    with pytest.raises(DataError, match="has the schema None, not one such as net/1"):
        dataset.schema_of(xr.DataTree())
    assert dataset.warnings_of(xr.DataTree()) == []


def told(path: Path) -> DataError:
    with pytest.raises(DataError) as raised:
        dataset.open(path)
    assert raised.value.hint
    return raised.value


def test_a_missing_file_names_the_nearest(copy):
    error = told(copy.with_name("aa.nc"))
    assert error.code == "core.no_such_file"
    assert "aa.nc does not exist (nearest: a.nc)" in error.what


def test_a_missing_file_whose_run_is_still_there_names_recover(tmp_path):
    (tmp_path / "a.run").mkdir()
    assert f"sonde data recover {tmp_path / 'a.run'}" in told(tmp_path / "a.nc").hint


def test_a_folder_is_no_dataset_and_a_runs_folder_wants_recover(tmp_path):
    assert told(tmp_path).code == "core.not_a_file"
    fakeroom.make_run(tmp_path / "a.run")
    assert told(tmp_path / "a.run").hint == f"sonde data recover {tmp_path / 'a.run'}"


@pytest.mark.parametrize("content", [b"SONDEBLK and more", b"#!/bin/sh\n", b"\x89PNG\r\n\x1a\n" + bytes(60)])
def test_a_file_of_another_kind_is_reported(tmp_path, content):
    (tmp_path / "a.nc").write_bytes(content)
    error = told(tmp_path / "a.nc")
    assert error.code == "core.not_netcdf"
    assert "is not NetCDF" in error.what


@pytest.mark.parametrize("kind", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA", "NETCDF4"])
def test_a_foreign_netcdf_says_what_was_expected_and_how_to_convert(tmp_path, kind):
    with netCDF4.Dataset(tmp_path / "x_median.nc", "w", format=kind) as file:
        file.createDimension("x", 2)
        file.createVariable("data", "f8", ("x",))[:] = 1
    error = told(tmp_path / "x_median.nc")
    assert error.code == "core.not_sonde"
    assert "expected schema: net/1" in error.what
    assert f"sonde net convert {tmp_path / 'x_median.nc'} x_median-sonde.nc --to sonde" in error.hint


@pytest.mark.parametrize("schema", ["NetCDF", "net", "net/0", "net/one", "net/1/2", 7])
def test_a_schema_of_no_room_is_foreign(copy, schema):
    with netCDF4.Dataset(copy, "a") as file:
        file.schema = schema
    error = told(copy)
    assert error.code == "core.not_sonde"
    assert repr(schema) in error.what


def test_a_newer_schema_names_both_versions(copy):
    with netCDF4.Dataset(copy, "a") as file:
        file.schema = "net/2"
    error = told(copy)
    assert error.code == "core.newer_schema"
    assert "has the schema net/2; this Sonde reads up to net/1" in error.what


@pytest.mark.parametrize("length", [0, 5, 40, 100, 2000, -1])
def test_a_cut_off_dataset_says_so_and_where_more_may_be(copy, length):
    whole = copy.read_bytes()
    copy.write_bytes(whole[:length])
    error = told(copy)
    assert error.code == "core.damaged_file"
    if length not in (0, 5, 40):
        assert f"it holds {len(whole[:length])} of {len(whole)} bytes" in error.what
    assert "sonde data recover" not in error.hint
    copy.with_suffix(".run").mkdir()
    assert told(copy).hint == f"sonde data recover {copy.with_suffix('.run')}"


# HDF5 does not survive any number of damaged files in one process, so each gets its own; Sonde opens one.
FLIPPING = """
    import os
    import netCDF4, xarray.backends.netCDF4_  # once, not in every child
    from sonde.core import dataset
    from sonde.core.errors import DataError
    sound, path, step = sys.argv[1:]
    content = open(sound, "rb").read()
    for at in range(0, len(content), int(step)):
        damaged = bytearray(content)
        damaged[at] ^= 0xFF
        with open(path, "wb") as file:
            file.write(damaged)
        pid = os.fork()
        if pid == 0:
            try:
                said = "found" if dataset.validate(path) else "nothing"
            except DataError as error:
                said = error.code
            except BaseException as error:
                said = repr(error)
            os.write(1, said.encode() + b"\\n")
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            print(f"died of a flip at {at}", flush=True)
"""


@pytest.mark.parametrize("step", [4999, pytest.param(499, marks=pytest.mark.soak)])
def test_a_flipped_byte_never_ends_in_another_error(sound, tmp_path, step):
    """Anywhere in the file: harmless, or told as damaged or foreign, or found by `validate`."""
    said = in_child(FLIPPING, sound, tmp_path / "a.nc", step).communicate(timeout=200)[0].split("\n")[:-1]
    assert len(said) == len(range(0, sound.stat().st_size, step))
    known = {
        "nothing",
        "found",
        "core.damaged_file",
        "core.not_sonde",
        "core.not_netcdf",
        "core.newer_schema",
    }
    assert set(said) <= known
    assert {"core.damaged_file", "core.not_netcdf"} <= set(said)


def test_a_sound_dataset_has_no_findings(sound):
    assert dataset.validate(sound) == []


def test_validate_asks_the_room_too(sound):
    asked = []

    def room(tree):
        asked.append(dataset.schema_of(tree))
        yield Finding("lab.odd", "odd")

    assert dataset.validate(sound, room) == [Finding("lab.odd", "odd")]
    assert asked == [("lab", 1)]


def spoil(path: Path, **attrs) -> None:
    with netCDF4.Dataset(path, "a") as file:
        for name, value in attrs.items():
            file.setncattr(name, value)


@pytest.mark.parametrize(
    ("attrs", "said"),
    [
        ({"complete": 2}, "root attribute complete is 2; allowed: 0 or 1"),
        ({"seed": "three"}, "root attribute seed is 'three'; allowed: an integer"),
        ({"created_utc": "yesterday"}, "root attribute created_utc is 'yesterday'; allowed: a time such as"),
    ],
)
def test_a_bad_root_attribute_is_found(copy, attrs, said):
    spoil(copy, **attrs)
    (finding,) = dataset.validate(copy)
    assert finding.code == "data.bad_attribute"
    assert said in finding.text


def test_every_root_attribute_is_asked_for(tmp_path):
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.schema = "lab/1"
    found = dataset.validate(path)
    missing = [finding.evidence["attribute"] for finding in found if finding.code == "data.missing_attribute"]
    assert missing == [name for name in dataset.ROOT_ATTRIBUTES if name != "schema"]
    assert [finding.text for finding in found if finding.code == "data.missing_group"] == [
        "there is neither /raw nor /summary, so nothing was measured",
        "group /env is missing",
        "group /warnings is missing",
    ]


def test_variables_and_groups_are_checked(copy):
    with netCDF4.Dataset(copy, "a") as file:
        raw = file["raw"]
        raw.createVariable("odd", "f8", ("rank",))
        raw.createVariable("letter", "S1", ("rank",)).long_name = "a letter"
        summary = file["summary"]
        summary.renameVariable("median_low", "other")
        bad = summary.createVariable("median_low", "f8", ("rank",))
        bad.units, bad.long_name = "s", "of other dims"
        file.createGroup("summry")
        file["warnings"].renameVariable("hint", "hnt")
    found = {(finding.code, finding.text) for finding in dataset.validate(copy)}
    assert ("data.no_units", "/raw/odd has no units") in found
    assert ("data.no_long_name", "/raw/odd has no long_name") in found
    assert ("data.unknown_group", "group /summry is unknown (nearest: summary)") in found
    assert ("data.missing_variable", "/warnings has no hint(warning)") in found
    assert ("data.bad_dims", "/summary/median_low has dims (rank), but median has (rank, cell)") in found
    assert len(found) == 5


@pytest.fixture
def declared(monkeypatch) -> None:
    """The room of the tests declares which values its variables and attributes may have."""
    tables = {
        "raw": {
            "delay": described.optional(("rank", "cell", "sample"), "s", "delay", "<f8", COUNT),
            "gone": described.optional(("rank",), "1", "what this dataset lacks"),
        },
        "": {"seed": described.attribute("seed"), "spread": described.attribute("spread")},
    }
    monkeypatch.setattr(fakeroom.SCHEMA, "tables", lambda tree: tables, raising=False)
    monkeypatch.setattr(dataset, "room_schema", {"lab": fakeroom.SCHEMA}.get)


def test_values_that_the_room_does_not_allow_are_refused_at_opening(copy, declared):
    dataset.open(copy).close()
    with netCDF4.Dataset(copy, "a") as file:
        file["raw/delay"][1, 0, 0] = -3.0
    error = told(copy)
    assert error.code == "core.damaged_file"
    assert (
        f"{copy} is damaged: /raw/delay at rank 1, cell 0, sample 0 is -3.0; allowed: 0 and above"
        in error.what
    )
    assert open_files(copy) == 0


def test_attributes_that_the_room_does_not_allow_are_refused_at_opening(copy, declared):
    spoil(copy, seed="three")
    assert "root attribute seed is 'three'; allowed: a number" in told(copy).what


def test_who_looks_at_what_is_wrong_opens_the_file_and_validate_lists_it(copy, declared):
    with netCDF4.Dataset(copy, "a") as file:
        file["raw/delay"][1, 0, 0] = -3.0
    dataset.open(copy, any_values=True).close()
    asked = []
    (finding,) = dataset.validate(copy, lambda tree: asked.append(tree) or [])
    assert (finding.code, finding.evidence["at"]) == ("lab.range", {"rank": 1, "cell": 0, "sample": 0})
    assert not asked  # the room's own check calculates with what its tables promise


def blamed(path: Path, error: Exception) -> DataError | None:
    """The reported error while a dataset was read."""
    dataset.begin()
    dataset.open(path).close()
    return dataset.blamed(error)


@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        IndexError("index 3 is out of bounds"),
        TypeError("unsupported operand"),
        ValueError("not in list"),
        ZeroDivisionError("division by zero"),
        AttributeError("'NoneType' object has no attribute 'y'"),
    ],
)
def test_a_mistake_of_ours_is_not_taken_for_the_data_s(sound, declared, error):
    assert blamed(sound, error) is None


def test_an_error_is_the_data_s_where_the_dataset_lacks_what_it_names(sound, declared):
    refused = blamed(sound, KeyError("No variable named 'gone'."))
    assert refused is not None
    assert f"{sound} is damaged: /raw/gone is missing" in refused.what
    refused = blamed(sound, KeyError("spread"))
    assert refused is not None
    assert "root attribute spread is missing" in refused.what
    assert blamed(sound, ValueError("gone")) is None  # it was not looked for
    assert blamed(sound, KeyError("gone_too")) is None


def test_an_error_is_the_data_s_where_a_number_is_one_that_no_dataset_holds(copy, declared):
    with netCDF4.Dataset(copy, "a") as file:
        file["summary/median"][1, 0] = file["summary/median_high"][1, 0] = np.inf
    refused = blamed(copy, OverflowError("cannot convert float infinity to integer"))
    assert refused is not None
    assert "/summary/median at rank 1, cell 0 is inf; allowed: -1e+18 to 1e+18" in refused.what
    assert blamed(copy, RuntimeError("a lock is held")) is None


def test_what_is_for_readers_explains_no_error(copy, declared):
    with netCDF4.Dataset(copy, "a") as file:
        del file["raw/delay"].long_name
    assert [finding.code for finding in dataset.validate(copy)] == ["data.no_long_name"]
    assert blamed(copy, ValueError("x")) is None


def test_an_interval_that_does_not_hold_its_estimate_is_found(copy):
    with netCDF4.Dataset(copy, "a") as file:
        file["summary/median_high"][1, :] = 0.0
        file["summary/median_low"][0, 0] = np.nan  # an interval that could not be computed is no violation
    (finding,) = dataset.validate(copy)
    assert finding.code == "data.bad_interval"
    assert "is outside [median_low, median_high] in 2 of 6 cells" in finding.text
    assert dataset.validate(copy, values=False) == []


def test_damaged_values_are_found(tmp_path):
    delay = np.random.default_rng(1).random((4, 1000))
    raw = xr.Dataset({"delay": (("rank", "sample"), delay, {"units": "s", "long_name": "delay"})})
    path = dataset_file.write_dataset(
        tmp_path / "a.nc", raw, None, {"schema": "lab/1", "seed": 1, "stop_reason": "converged"}
    )
    assert dataset.validate(path) == []
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    (finding,) = dataset.validate(path)
    assert finding.code == "data.unreadable"
    assert "/raw/delay cannot be read" in finding.text
    assert dataset.validate(path, values=False) == []


def test_warnings_come_back_as_they_were(tmp_path):
    said = [Warning("a.b", "é\nline", ""), Warning("c.d", "", "do it")]
    dataset_file.write_dataset(tmp_path / "a.nc", None, None, {"schema": "lab/1"}, warnings=said)
    with dataset.open(tmp_path / "a.nc") as tree:
        assert dataset.warnings_of(tree) == said


def test_that_a_run_was_interrupted_is_reported_once_however_often_it_is_written(tmp_path):
    kept = [Warning("lab.some", "evidence", "hint")]
    for _ in range(2):
        path = tmp_path / "a.nc"
        dataset_file.write_dataset(
            path, None, None, {"schema": "lab/1", "seed": 1, "stop_reason": "interrupted"}, {}, kept
        )
        with sonde.open(path) as tree:
            kept = dataset.warnings_of(tree)
        assert [warning.code for warning in kept] == ["core.run_was_interrupted", "lab.some"]


def test_a_dataset_without_summary_says_what_to_type():
    with pytest.raises(DataError) as caught:
        dataset.summary_of(xr.DataTree(), "noise", Path("a b.nc"))
    assert (caught.value.code, caught.value.hint) == ("core.no_summary", "sonde data validate 'a b.nc'")


def test_a_dataset_whose_analysis_failed_says_why():
    warnings = xr.Dataset(
        {
            "code": ("warning", ["core.other", "core.analysis_failed"]),
            "evidence": ("warning", ["it rained", "/summary could not be computed: MemoryError: 28 GB"]),
            "hint": ("warning", ["", "look in /raw"]),
        }
    )
    tree = xr.DataTree.from_dict({"/warnings": warnings})
    with pytest.raises(DataError) as caught:
        dataset.summary_of(tree, "net", "a.nc")
    assert str(caught.value).startswith("a.nc: /summary could not be computed: MemoryError: 28 GB")
    assert caught.value.hint == "look in /raw"


@pytest.mark.parametrize("variable", ["HDF5_VOL_CONNECTOR", "HDF5_DRIVER"])
def test_what_diverts_hdf5_files_of_other_programs_leaves_datasets_alone(
    sound, tmp_path, monkeypatch, variable
):
    """HDF5 would end the process when it begins. It stays set for what the process starts."""
    monkeypatch.setenv(variable, "nosuch")
    child = in_child(
        f"""
        import os, sonde
        from sonde.core import dataset_file, seal
        with sonde.open(sys.argv[1]) as tree:
            groups = len(tree.children)
        dataset_file.write_dataset(sys.argv[2], None, None, {{"schema": "lab/1"}})
        print(groups > 0, os.environ[{variable!r}])
        """,
        sound,
        tmp_path / "own.nc",
    )
    said, told = child.communicate(timeout=60)
    assert (said.split(), told, child.returncode) == (["True", "nosuch"], "", 0)
    assert (tmp_path / "own.nc").exists()
