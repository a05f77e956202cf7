"""The history: what comes back, what is bounded, and what a full disk does."""

from __future__ import annotations

import math
import sqlite3
from types import SimpleNamespace

import pytest

from sonde.core.errors import DataError, EnvironmentFailure
from sonde.power.monitor import run_history
from sonde.power.monitor.run_history import History, read
from sonde.power.stack.telemetry import ClusterSample, JobSample, NodeSample

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


def test_nothing_that_a_monitor_hears_of_jobs_and_clusters_is_left_out(tmp_path):
    job = JobSample("17", S, "ada", "lbm", ("n1", "n2"), 1.0, 2.0, 0.5, 0.25, "running", (0.25, math.nan))
    cluster = ClusterSample(
        *("demo", S, "m1", 3, 1, "active", "fair", 1.0, 3.0, 1000.0, 320.0, 900.0, 800.0, 4, 3, 2),
        *(1200.0, 60.0, 1, 150.0),
    )
    with_cap = NodeSample("n1", S, cap_since_ns=S - 7)
    history = History(tmp_path / "h.sqlite", 60)
    assert history.add([job, cluster, with_cap])
    history.close()
    (back,) = read(tmp_path / "h.sqlite", "job")
    assert isinstance(back, JobSample)
    assert back.node_iteration_s[0] == 0.25
    assert math.isnan(back.node_iteration_s[1])
    assert repr(back) == repr(job)
    assert list(read(tmp_path / "h.sqlite", "cluster")) == [cluster]
    (node,) = read(tmp_path / "h.sqlite", "node")
    assert repr(node) == repr(with_cap)


def test_a_history_of_version_1_is_read_and_added_to(tmp_path):
    path = tmp_path / "h.sqlite"
    History(path, 60).close()
    with sqlite3.connect(path) as db:
        for table, column in (
            ("node", "cap_since_ns"),
            ("job", "node_iteration_s"),
            ("cluster", "unknown_nodes"),
            ("cluster", "unknown_w"),
        ):
            db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        db.execute("PRAGMA user_version=1")
        db.execute(
            "INSERT INTO job VALUES ('17', 1, 'ada', 'lbm', '[\"n1\"]', 1.0, 2.0, 0.5, 0.25, 'running')"
        )
        db.execute("INSERT INTO cluster (cluster, at_ns, nodes, heard, leased) VALUES ('demo', 1, 4, 4, 4)")
    db.close()

    def old() -> list[object]:
        (job, *_), (cluster, *_) = read(path, "job"), read(path, "cluster")
        assert isinstance(cluster, ClusterSample)
        assert (cluster.unknown_nodes, cluster.unknown_w) == (0, 0.0)
        return [job, repr(cluster)]

    was = old()
    assert was[0] == JobSample("17", 1, "ada", "lbm", ("n1",), 1.0, 2.0, 0.5, 0.25, "running")
    history = History(path, 60)
    assert old() == was
    assert history.add(
        [JobSample("18", 2, node_iteration_s=(0.5,)), ClusterSample("demo", 2, unknown_nodes=2)]
    )
    history.close()
    assert old() == was
    assert [s.node_iteration_s for s in read(path, "job") if isinstance(s, JobSample)] == [(), (0.5,)]
    assert [s.unknown_nodes for s in read(path, "cluster") if isinstance(s, ClusterSample)] == [0, 2]


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


def test_a_sweep_that_left_some_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(run_history, "SWEEP_ROWS", 100)
    history = History(tmp_path / "h.sqlite", keep_s=100)
    history.add(NodeSample("n1", k * S) for k in range(350))
    left = []
    while not left or history.behind:
        assert history.sweep(350 * S) <= 100
        left.append(len(list(read(tmp_path / "h.sqlite", "node"))))
    assert left == [250, 150, 100]
    assert history.sweep(350 * S) == 0
    history.close()


def test_a_sweep_gives_back_all_that_it_freed(tmp_path, monkeypatch):
    monkeypatch.setattr(run_history, "_VACUUM_PAGES", 1)
    path = tmp_path / "h.sqlite"
    history = History(path, keep_s=100)
    history.add(NodeSample("n1", k * S, trouble="t" * 1000) for k in range(2000))
    history._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    full = path.stat().st_size
    history.sweep(2000 * S)
    assert history._db.execute("PRAGMA freelist_count").fetchone()[0] == 0
    history.close()
    assert path.stat().st_size < full / 10


def test_many_samples_at_once_are_not_lost_where_they_can_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(run_history, "MOST_WAITING", 100)
    history = History(tmp_path / "h.sqlite", 1e9)
    assert history.add(NodeSample("n1", k * S) for k in range(350))
    assert (history.lost, history.written, history.waiting) == (0, 350, 0)
    history.close()


def test_a_monitor_removes_as_fast_as_nodes_report(tmp_path, monkeypatch):
    """Where a tick brings more than a sweep removes: what is too old stays bounded, and nothing that is not goes."""
    pytest.importorskip("sonde._power", reason="the power stack is not built")
    from sonde.power.monitor import run_monitor

    now_s = 1e6
    clock = SimpleNamespace(
        time=lambda: now_s, monotonic=lambda: now_s, time_ns=lambda: int(now_s) * S, sleep=None
    )
    monkeypatch.setattr(run_monitor, "time", clock)
    monkeypatch.setattr(run_history, "SWEEP_ROWS", 20)
    subscriber = SimpleNamespace(take=lambda: [NodeSample(f"n{n}", int(now_s) * S, 1.0) for n in range(50)])
    history = History(tmp_path / "h.sqlite", keep_s=10)
    stack = SimpleNamespace(cluster="demo", nodes=())
    monitor = run_monitor.Monitor(stack, subscriber, history)  # type: ignore[arg-type]
    for _ in range(250):
        now_s += 1
        monitor.tick()
        newest = len(list(read(history.path, "node", since_ns=(int(now_s) - 9) * S)))
        assert newest == 50 * min(10, now_s - 1e6)
    assert len(list(read(history.path, "node"))) <= 50 * (10 + run_monitor.SWEEP_S + 2)
    history.close()


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


def test_one_monitor_at_a_time_keeps_it(tmp_path):
    history = History(tmp_path / "h.sqlite", 60)
    other = History(tmp_path / "other.sqlite", 60)
    with pytest.raises(EnvironmentFailure) as told:
        History(tmp_path / "h.sqlite", 60)
    assert told.value.code == "power.already_running"
    assert "'history'" in told.value.hint
    history.close()
    other.close()
    History(tmp_path / "h.sqlite", 60).close()


def test_what_was_refused_is_not_kept_from_others(tmp_path):
    (tmp_path / "h.sqlite").write_text("no database, and long enough to be seen as none" * 9)
    with pytest.raises(DataError):
        History(tmp_path / "h.sqlite", 60)
    (tmp_path / "h.sqlite").unlink()
    History(tmp_path / "h.sqlite", 60).close()


def test_others_cannot_read_it(tmp_path):
    History(tmp_path / "h.sqlite", 60).close()
    assert (tmp_path / "h.sqlite").stat().st_mode & 0o007 == 0
