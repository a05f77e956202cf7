"""What the room tells generic verbs: a file of one table, as sonde data convert makes it, holds what the run found."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from click import Command

import noise_runs
import sonde
from sonde.core.dataset_file import write_dataset
from sonde.core.errors import Exit
from sonde.core.outcome import Outcome
from sonde.data.cli import group
from sonde.noise.kinds import SCHEMA


def dataset(path, raw):
    return write_dataset(path, raw, SCHEMA.analyse(raw), {"schema": "noise/1", **raw.attrs})


def convert(*words):
    assert isinstance(group, Command)
    outcome = group.main(["convert", *map(str, words)], standalone_mode=False)
    assert isinstance(outcome, Outcome)
    return outcome


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("bursts_s", [(0.0,), (0.01,), (0.01, 0.003)])
def test_a_row_for_each_variant_also_where_nothing_was_found(bursts_s, tmp_path):
    source = dataset(tmp_path / "a.nc", noise_runs.run(bursts_s, pairs=7))
    outcome = convert(source, "-o", tmp_path / "a.csv")
    table = rows(tmp_path / "a.csv")
    assert [row["variant"] for row in table] == [f"agent {k + 1}" for k in range(len(bursts_s))]
    assert {"slowdown", "slowdown_low", "slowdown_high", "p_adjusted", "detected", "mde"} <= set(table[0])
    with sonde.open(source) as tree:
        told = tree["summary"]["slowdown"].values
    np.testing.assert_array_equal([float(row["slowdown"]) for row in table], told)
    assert outcome.exit is Exit.DONE
    assert [warning.code for warning in outcome.warnings] == ["data.tables_left_out"]


def test_a_run_with_nothing_on_gives_its_single_numbers(tmp_path):
    source = dataset(tmp_path / "a.nc", noise_runs.run([], agent="none"))
    convert(source, "-o", tmp_path / "a.csv")
    (row,) = rows(tmp_path / "a.csv")
    assert float(row["clean_iteration [s]"]) > 0


def test_what_the_hint_says_writes_each_table(tmp_path):
    source = dataset(tmp_path / "a.nc", noise_runs.run([0.01]))
    (warning,) = convert(source, "-o", tmp_path / "a.csv").warnings
    assert warning.hint.startswith("--to csv -o FOLDER/ ")
    folder = tmp_path / "out"
    folder.mkdir()
    outcome = convert(source, "--to", "csv", "-o", folder)
    assert {"a-summary-variant.csv", "a-summary-block.csv"} <= {path.name for path in folder.iterdir()}
    assert outcome.warnings == []
