"""What people and --json are told of a summary."""

import numpy as np
import pytest

from sonde.net import verdict
from sonde.net.analyse import structure
from sonde.net.synthetic import Network


@pytest.fixture(scope="module")
def summary():
    net = Network(ranks=16, slow_links={(3, 9): 1.4}, slow_ranks={12: 1.5})
    return structure(net.summary(20, np.random.default_rng(4)))


def test_findings_name_link_and_rank_with_evidence_and_what_to_type(summary):
    found = {f.code: f for f in verdict.findings(summary, "a.nc")}
    link, rank = found["net.slow_link"], found["net.slow_rank"]
    assert "3–9" in link.text
    assert link.next == "sonde net show a.nc --pair 3,9"
    assert link.evidence["ratio"] == pytest.approx(1.4, rel=0.06)
    assert link.evidence["ci"][0] < link.evidence["ratio"] < link.evidence["ci"][1]
    assert link.evidence["q"] <= 0.05
    assert rank.evidence["rank"] == 12
    assert "n006" in rank.text


def test_sentence_is_one_sentence_and_ends(summary):
    text = verdict.sentence(summary)
    assert text.endswith(".")
    assert "16 ranks, 8 B to 64 KiB" in text
    assert "slower" in text


def test_without_slow_links_it_says_what_would_have_been_found():
    text = verdict.sentence(structure(Network(ranks=16).summary(20, np.random.default_rng(5))))
    assert "no slow link" in text
    assert "would have been found" in text


def test_shared_cores_leave_no_findings(summary):
    shared = summary.assign_attrs(oversubscribed=1)
    assert verdict.findings(shared) == []
    assert next(w.code for w in verdict.warnings(shared)) == "net.slow_or_shared"
    assert verdict.oversubscribed(summary.assign_attrs(oversubscribed=0)) is False


def test_values_can_be_json(summary):
    import json

    values = verdict.values(summary)
    text = json.loads(json.dumps(values))
    assert text["cells"] == 720
    assert text["median_s"]["min"] <= text["median_s"]["median"] <= text["median_s"]["max"]
    assert sum(row["links"] for row in text["classes"]) == 120


def test_counts_follow_status(summary):
    status = np.ones((16, 16, 3), np.int8)
    status[range(16), range(16)] = 0
    status[0, 1] = [2, 3, 4]
    told = verdict.counts(summary.assign(status=(("src", "dst", "size"), status)))
    assert told == {"cells": 720, "converged": 717, "capped": 1, "drift": 1, "undecided": 1}


def test_tables_have_a_row_a_size_and_a_row_a_class(summary):
    by_size, by_class = verdict.tables(summary)
    assert [row[0] for row in by_size.rows] == ["8 B", "1 KiB", "64 KiB"]
    assert all(len(row) == len(by_size.columns) for row in by_size.rows)
    assert len(by_class.rows) == summary.sizes["link_class"] == 2


def test_sizes_are_named_by_their_ends():
    assert verdict.sizes_text([]) == "no size"
    assert verdict.sizes_text([64]) == "64 B"
    assert verdict.sizes_text(np.array([8, 1024])) == "8 B to 1 KiB"
