"""The history: what comes back, what is bounded, and what a full disk does."""

from __future__ import annotations

import math
import sqlite3

import pytest

from sonde.core.errors import DataError, EnvironmentFailure
from sonde.power import run_history
from sonde.power.run_history import History, read
from sonde.power.telemetry import ClusterSample, JobSample, NodeSample

S = 1_000_000_000
NODE = NodeSample(
    "n1", 5 * S, 1.0, "simulated", math.nan, 7.0, 230.0, 230.0, 2.0, True, (1 << 64) - 1, "m1", "x"
)


def test_what_is_added_comes_back(tmp_path):
    job = JobSample("17", 5 * S, "ada", "lbm", ("n1", "n2"), 1.0, 2.0, 0.5, 0.25, "running")
    cluster = ClusterSample("demo", 5 * S, "m1", 3, 1, "active", "fair", 1.0, 3.0, 1000.0, nodes=4, heard=3)
    history = History(tmp_path / "h.sqlite", 60)
    assert history.add([NODE, job, cluster])
    (node,) = read(tmp_path / "h.sqlite", "node")
    assert math.isnan(node.power_w)
    assert (node.node, node.cap_w, node.epoch, node.leased, node.trouble) == (
        "n1",
        230.0,
        (1 << 64) - 1,
        True,
        "x",
    )
    assert list(read(tmp_path / "h.sqlite", "job")) == [job]
    (back,) = read(tmp_path / "h.sqlite", "cluster")
    assert (back.budget_w, back.nodes, back.heard, back.state) == (1000.0, 4, 3, "active")
    history.close()


def test_it_is_bounded_by_time_and_gives_room_back(tmp_path):
    path = tmp_path / "h.sqlite"
    history = History(path, keep_s=100)
    history.add(NodeSample(f"n{n}", k * S, 1.0, trouble="t" * 200) for k in range(1000) for n in range(4))
    history.close()
    full = path.stat().st_size
    history = History(path, keep_s=100)
    assert history.sweep(1000 * S) == 4 * 900
    assert len(list(read(path, "node"))) == 4 * 100
    history.close()
    assert path.stat().st_size < full / 3


def test_a_full_disk_makes_samples_wait(tmp_path, monkeypatch):
    path = tmp_path / "h.sqlite"
    history = History(path, 1e9)
    pages = history._db.execute("PRAGMA page_count").fetchone()[0]
    history._db.execute(f"PRAGMA max_page_count={pages + 1}")
    monkeypatch.setattr(run_history, "MOST_WAITING", 500)
    many = [NodeSample("n1", k * S, 1.0, trouble="t" * 200) for k in range(600)]
    assert not history.add(many)
    assert "full" in history.trouble
    assert (history.waiting, history.lost) == (500, 100)
    assert list(read(path, "node")) == []  # all of it or nothing
    history._db.execute("PRAGMA max_page_count=100000")
    assert history.add([])
    assert (history.trouble, history.waiting, len(list(read(path, "node")))) == ("", 0, 500)
    history.close()


def test_what_is_no_history(tmp_path):
    (tmp_path / "a.sqlite").write_text("this is no database" * 100)
    with pytest.raises(DataError) as told:
        History(tmp_path / "a.sqlite", 60)
    assert told.value.code == "power.not_a_history"
    with pytest.raises(EnvironmentFailure):
        list(read(tmp_path / "none.sqlite", "node"))
    with pytest.raises(EnvironmentFailure) as told:
        History(tmp_path / "no" / "h.sqlite", 60)
    assert told.value.code == "power.cannot_keep"
    with sqlite3.connect(tmp_path / "new.sqlite") as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(DataError) as told:
        History(tmp_path / "new.sqlite", 60)
    assert told.value.code == "power.newer_history"


def test_others_cannot_read_it(tmp_path):
    History(tmp_path / "h.sqlite", 60).close()
    assert (tmp_path / "h.sqlite").stat().st_mode & 0o007 == 0
