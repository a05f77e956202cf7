"""sonde data: what each verb answers, in words, in JSON and by exit code."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from fakeroom import make_run

from sonde.core import dataset, dataset_file, provenance
from sonde.core.errors import DataError, EnvironmentFailure, Exit, UsageError
from sonde.core.outcome import Outcome
from sonde.data.cli import group
from sonde.net import schema


def ask(*words: object) -> Outcome:
    outcome = group.main([str(word) for word in words], standalone_mode=False)
    assert isinstance(outcome, Outcome)
    assert outcome.room == "data"
    json.dumps(outcome.as_json(), allow_nan=False)
    return outcome


def test_validate_of_a_sound_dataset(sound):
    outcome = ask("validate", sound)
    assert (outcome.exit, outcome.findings, outcome.dataset) == (Exit.DONE, [], str(sound))
    assert outcome.verdict == f"{sound} is valid"


def net_summary(path, **attrs):
    """A dataset of medians alone. attrs: changes of the attributes of `median`."""
    coords = {name: (name, *given) for name, given in schema.coordinates(2, [8]).items()}
    median = schema.SUMMARY["median"].with_values(np.full((2, 2, 1), 1e-6), attrs)
    about = provenance.attrs(command="sonde net run", seed=1, hostlist="here")
    about |= {"schema": "net/1", "mode": "one_to_one", "stop_reason": "converged", "complete": 1}
    return dataset_file.write_dataset(path, None, xr.Dataset({"median": median}, coords), about)


def test_validate_warns_of_another_title(tmp_path):
    outcome = ask("validate", net_summary(tmp_path / "old.nc", long_name="the middle"))
    assert (outcome.exit, outcome.findings) == (Exit.DONE, [])
    (warning,) = outcome.warnings
    assert warning.code == "data.other_titles"
    assert "/summary/median ('the middle', not 'median')" in warning.evidence
    assert ask("validate", net_summary(tmp_path / "new.nc")).warnings == []


def test_a_dataset_with_another_unit_is_refused(tmp_path):
    path = net_summary(tmp_path / "odd.nc", units="ms")
    outcome = ask("validate", path)
    assert outcome.exit == Exit.ENVIRONMENT
    assert [finding.code for finding in outcome.findings] == ["net.units"]
    with pytest.raises(DataError) as caught:
        dataset.open(path)
    assert "/summary/median has the unit 'ms', not 's'" in caught.value.what


def test_validate_names_each_violation_of_each_file(sound, measured, tmp_path):
    bad = measured("bad.nc", [[1e-6]], width=-0.1, complete=7)
    (tmp_path / "text.nc").write_text("text, but of some length")
    outcome = ask("validate", sound, bad, tmp_path / "text.nc")
    assert outcome.exit == Exit.ENVIRONMENT
    assert outcome.verdict == "2 of 3 datasets break their format in 3 places"
    assert [finding.code for finding in outcome.findings] == [
        "data.bad_attribute",
        "data.bad_interval",
        "core.not_netcdf",
    ]
    assert outcome.findings[0].text == f"{bad}: root attribute complete is 7; allowed: 0 or 1"
    assert outcome.values["files"] == [
        {"file": str(sound), "violations": 0},
        {"file": str(bad), "violations": 2},
        {"file": str(tmp_path / "text.nc"), "violations": 1},
    ]
    assert ask("validate", "--quick", bad).verdict.startswith("1 of 1 dataset breaks its format in 1 place")
    assert ask("validate", sound, sound).verdict == "all 2 datasets are valid"


def test_convert_without_a_place_is_a_document(sound):
    outcome = ask("convert", sound, "--to", "csv")
    assert outcome.document.startswith("rank,cell [B],median [s],median_low [s],median_high [s]\n0,0,1.00")
    (warning,) = outcome.warnings
    assert warning.evidence == "a csv file has one table: 1 variable left out"
    assert outcome.values["left_out"] == ["spread"]
    assert outcome.schema == "lab/1"
    assert ask("convert", sound, "--to", "json").warnings == []


def test_convert_makes_the_folder_that_ends_in_a_slash(sound, tmp_path):
    outcome = ask("convert", sound, "--to", "csv", "-o", f"{tmp_path}/new/deep/")
    made = sorted((tmp_path / "new" / "deep").iterdir())
    assert len(made) == 2
    assert [one["file"] for one in outcome.values["files"]] == [str(path) for path in made]
    assert outcome.warnings == []


def test_convert_does_not_take_a_file_for_a_folder(sound, tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(EnvironmentFailure, match=r"cannot write .*taken"):
        ask("convert", sound, "--to", "csv", "-o", f"{tmp_path}/taken/")
    assert (tmp_path / "taken").read_text() == "mine"


def test_convert_writes_where_it_is_told(sound, tmp_path):
    outcome = ask("convert", sound, "-o", tmp_path / "b.parquet", "--group", "raw")
    assert outcome.values["files"] == [
        {"file": str(tmp_path / "b.parquet"), "table": "rank_cell_sample", "rows": 120}
    ]
    assert outcome.document is None
    assert outcome.dataset == str(tmp_path / "b.parquet")  # what was made, not what was read
    assert outcome.warnings[0].evidence == "a parquet file has one table: 2 variables left out"
    assert "-v names them" in outcome.warnings[0].hint
    assert outcome.values["left_out"] == ["n", "host"]
    outcome = ask("convert", sound, "-o", tmp_path / "b.parquet", "--group", "raw", "-v")
    assert outcome.warnings[0].evidence.endswith("left out: n, host")
    assert "-v" not in outcome.warnings[0].hint
    (tmp_path / "out").mkdir()
    outcome = ask("convert", sound, "--to", "csv", "-o", tmp_path / "out")
    assert [file["rows"] for file in outcome.values["files"]] == [6, 1]
    assert outcome.warnings == []
    with pytest.raises(UsageError, match="no format is given"):
        ask("convert", sound)


def test_diff_of_like_datasets_ends_with_0(measured):
    outcome = ask("diff", measured("a.nc", [[1e-6]]), measured("b.nc", [[1.001e-6]], kernel="7"))
    assert (outcome.exit, outcome.findings) == (Exit.DONE, [])
    assert outcome.verdict == "0 of 1 cell differ by 5 % or more beyond their intervals"
    assert outcome.values["machine"] == [{"attribute": "kernel", "a": "6.1.0", "b": "7"}]
    assert [table.title for table in outcome.tables] == ["Measured", "Machine and settings"]


def test_diff_with_a_difference_ends_with_1(measured):
    a, b = measured("a.nc", [[1e-6, 1e-6]]), measured("b.nc", [[1e-6, 2e-6]])
    outcome = ask("diff", a, b)
    assert outcome.exit == Exit.FINDING
    assert outcome.verdict == "1 of 2 cells differs by 5 % or more"
    assert outcome.findings[0].next == f"sonde lab diff {a} {b}"
    (variable,) = outcome.values["variables"]
    assert (variable["compared"], variable["differ"], variable["median_ratio"]) == (2, 1, 1.5)
    assert ask("diff", a, b, "--matters", "150%".replace("150", "99")).exit == Exit.FINDING


def test_diff_of_unequal_schemas_is_an_error(measured, sound):
    from sonde.core import dataset_file

    other = dataset_file.write_dataset(sound.with_name("b.nc"), None, None, {"schema": "bus/1"})
    with pytest.raises(DataError, match="cannot be compared"):
        ask("diff", sound, other)


def test_history_says_how_many_runs_are_wanted(measured, tmp_path):
    measured("a.nc", [[1e-6]])
    outcome = ask("history", tmp_path)
    assert outcome.verdict == "1 run; no verdict: 5 earlier comparable runs are needed, and there are 0"
    assert outcome.exit == Exit.DONE


def test_history_flags_a_regression_and_still_ends_with_0(measured, tmp_path):
    for day in range(1, 10):
        value = 2e-6 if day == 9 else 1e-6 * (1 + day / 1000)
        measured(
            f"{day}.nc", np.full((2, 2), value), created_utc=f"2026-11-0{day}T00:00:00Z", mpi=f"v{day // 9}"
        )
    outcome = ask("history", tmp_path, "--last", 3)
    assert outcome.exit == Exit.DONE
    assert outcome.verdict == "1 value of the newest runs is significantly worse than before"
    assert outcome.findings[0].evidence["changed"] == {"mpi": {"before": "v0", "now": "v1"}}
    assert (outcome.dataset, outcome.schema) == (str(tmp_path / "9.nc"), "lab/1")
    runs, trends, changed = outcome.tables
    assert len(runs.rows) == 3
    assert runs.note == "not shown: 6 earlier runs; --last 9 shows all"
    assert trends.title == "9.nc against 8 earlier runs"
    assert changed.rows == [("mpi", "v0", "v1")]
    assert len(outcome.values["runs"]) == 9
    (kind,) = outcome.values["trends"]
    assert (kind["earlier_runs"], kind["enough"], kind["values"][0]["earlier_runs"]) == (8, True, 8)


def test_history_of_a_steady_folder(measured, tmp_path):
    for day in range(1, 8):
        measured(f"{day}.nc", [[1e-6 * (1 + (day % 3) / 100)]], created_utc=f"2026-11-0{day}T00:00:00Z")
    assert ask("history", tmp_path).verdict == "7 runs; no change"


def test_recover_tells_what_was_saved_and_what_was_lost(tmp_path):
    run = make_run(tmp_path / "a.run", ended=False)
    victim = run / "rank-00000.blk"
    victim.write_bytes(victim.read_bytes()[:-1])
    outcome = ask("recover", run)
    assert outcome.exit == Exit.INCOMPLETE
    assert not outcome.complete
    assert outcome.verdict == f"saved {tmp_path / 'a.nc'}; 1 warning about lost data"
    assert [warning.code for warning in outcome.warnings] == ["core.truncated_block", "core.run_was_killed"]
    assert outcome.values == {
        "datasets": [{"dataset": str(tmp_path / "a.nc"), "complete": False}],
        "folder_removed": True,
    }
    assert ask("validate", tmp_path / "a.nc").exit == Exit.DONE


def test_recover_of_a_whole_run_ends_with_0(tmp_path):
    outcome = ask("recover", make_run(tmp_path / "a.run"), "-o", tmp_path / "b.nc")
    assert (outcome.exit, outcome.verdict) == (Exit.DONE, f"saved {tmp_path / 'b.nc'}")


def test_recover_without_analysis_keeps_raw_alone(tmp_path):
    outcome = ask("recover", "--raw-only", make_run(tmp_path / "a.run"))
    assert [warning.code for warning in outcome.warnings] == ["core.not_analysed"]
    assert ask("validate", tmp_path / "a.nc").exit == Exit.DONE
    with pytest.raises(DataError, match="no /summary with values"):
        ask("convert", tmp_path / "a.nc", "--to", "csv", "--group", "summary")


def test_recover_refuses_what_is_no_run(tmp_path):
    (tmp_path / "file").write_text("")
    for name, said in (("none", "does not exist"), ("file", "is a file")):
        with pytest.raises(DataError, match=said):
            ask("recover", tmp_path / name)
    with pytest.raises(DataError, match="is not the folder of a run"):
        ask("recover", tmp_path)
    run = make_run(tmp_path / "a.run")
    with pytest.raises(UsageError, match="neither a dataset's name nor an existing folder") as raised:
        ask("recover", run, "-o", tmp_path / "there")
    assert raised.value.hint == f"-o {tmp_path / 'there.nc'}"
    assert run.exists()


def test_a_conversion_that_holds_nothing_says_so(measured, tmp_path):
    outcome = ask("convert", measured("b.nc", [[np.nan, np.nan]]), "-o", tmp_path / "b.csv")
    assert outcome.values["files"][0]["rows"] == 0
    assert "data.no_rows" in [warning.code for warning in outcome.warnings]
