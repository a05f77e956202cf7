"""sonde noise show of several datasets: what is said can be told apart."""

from __future__ import annotations

import pytest

import noise_runs
from sonde.core.errors import Warning
from sonde.core.seal import write_dataset
from sonde.noise.blocks import SCHEMA
from sonde.noise.cli import show


def dataset(path, raw, *warnings):
    path.parent.mkdir(exist_ok=True)
    return write_dataset(
        path, raw, SCHEMA.analyse(raw), {"schema": "noise/1", **raw.attrs}, warnings=warnings
    )


WARNING = Warning("noise.oversubscribed", "2 ranks share fewer cores", "take fewer")


@pytest.fixture(scope="module")
def found():
    return noise_runs.run([0.01], pairs=12)


@pytest.fixture(scope="module")
def few():
    return noise_runs.run([0.0], pairs=2)


def shown(*paths):
    return show.main([*map(str, paths)], standalone_mode=False)


def test_of_several_files_everything_carries_its_name(found, few, tmp_path):
    outcome = shown(dataset(tmp_path / "a.nc", found), dataset(tmp_path / "b.nc", few, WARNING))
    assert outcome.verdict.startswith("a.nc: ")
    assert " b.nc: " in outcome.verdict
    said = [
        *(table.title for table in outcome.tables),
        *(warning.evidence for warning in outcome.warnings),
        *(finding.text for finding in outcome.findings),
    ]
    assert len(outcome.tables) >= 2
    assert all(text.startswith(("a.nc", "b.nc")) for text in said)
    assert any(table.title.startswith("b.nc") for table in outcome.tables)
    assert outcome.findings[0].text.startswith("a.nc: ")
    assert f"b.nc: {WARNING.evidence}" in [warning.evidence for warning in outcome.warnings]


def test_files_of_one_name_are_told_by_their_folders(few, tmp_path):
    one, other = (dataset(tmp_path / folder / "a.nc", few) for folder in ("x", "y"))
    titles = [table.title for table in shown(one, other).tables]
    assert [sum(title.startswith(str(path)) for title in titles) for path in (one, other)] == [
        len(titles) / 2,
        len(titles) / 2,
    ]


def test_one_file_needs_no_name(few, tmp_path):
    path = dataset(tmp_path / "a.nc", few, WARNING)
    outcome = shown(path)
    assert not outcome.verdict.startswith("a.nc")
    assert outcome.warnings[0] == WARNING
