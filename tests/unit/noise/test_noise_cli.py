"""sonde noise run --dry-run, and show of several datasets: what is said, and of which file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import noise_runs
from sonde.core.dataset_file import write_dataset
from sonde.core.errors import Warning
from sonde.core.launch import start as starts
from sonde.core.launch.mpirun import Mpi, Mpirun
from sonde.core.units import parse_duration
from sonde.noise.cli import show
from sonde.noise.detector import run as runs
from sonde.noise.detector.cli import DEFAULT_BUDGET_S, run
from sonde.noise.kinds import SCHEMA
from sonde.noise.studies import cli as studies


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


def test_files_of_one_name_are_reported_by_their_folders(few, tmp_path):
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


@pytest.mark.parametrize(
    ("command", "default"),
    [
        (run, DEFAULT_BUDGET_S),
        (studies.sensitivity, studies.DEFAULT_BUDGET_S),
        (studies.stability, studies.DEFAULT_BUDGET_S),
    ],
)
def test_the_help_says_the_default_budget(command, default):
    said = " ".join((command.help or "").split())
    (told,) = re.findall(r"--budget \((.+?) by default\)", said)
    assert parse_duration(told) == default


@pytest.fixture
def dry(monkeypatch, tmp_path):
    """What `noise run --dry-run` says on a machine with an MPI and without SMT."""
    mpi = Mpi("openmpi", "Open MPI", "4.1.4", Path("/opt/openmpi/bin/mpirun"))
    start = starts.Start(Mpirun(found=mpi), (), Path("/libexec/openmpi/sonde-noise"), mpi)
    monkeypatch.setattr(starts, "prepare", lambda *_: start)
    monkeypatch.setattr(runs, "siblings", lambda cpu: ())
    monkeypatch.chdir(tmp_path)
    return lambda *words: run.main([*words, "--ntasks", "2", "--dry-run"], standalone_mode=False)


def test_a_dry_run_warns_of_what_is_left_out(dry):
    outcome = dry("--level", "1%", "--compare", "pinned,sibling,free")
    assert "noise.no_sibling" in [warning.code for warning in outcome.warnings]
    assert ("variants", "off, pinned, free") in outcome.tables[0].rows


def test_a_dry_run_cuts_an_agents_script_short_but_not_in_json(dry):
    script = "set -e\nmkdir out\nexec sleep 100"
    outcome = dry("--agent", script, "--period", "1s")
    assert "mkdir out" not in "".join(outcome.lines)
    assert "set -e …" in outcome.lines[1]
    assert "mkdir out" in outcome.as_json()["command"]


def test_a_dry_run_says_what_it_would_replace(dry, tmp_path):
    (tmp_path / "a.nc").touch()
    (warning,) = dry("--level", "1%", "-o", "a.nc").warnings
    assert (warning.code, warning.evidence) == ("core.replaced", "replaces the earlier a.nc")
    assert dry("--level", "1%", "-o", "b.nc").warnings == []
