"""sonde data history: keeps what it read, flags what is worse than before, and says when it cannot tell."""

from __future__ import annotations

import os
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import fakeroom
import numpy as np
import pytest

from sonde.core.dataset_file import write_dataset
from sonde.core.errors import DataError
from sonde.data import history as past
from sonde.data import history_index, past_runs, trends
from sonde.data.history import history
from sonde.data.history_index import INDEX
from sonde.net.synthetic import Network

LEAD = "median (median over cells)"


@pytest.fixture
def fill(measured):
    """Writes one run a value, a day apart, the last with `last` attributes too."""

    def write(values, first=1, last=None, **attrs):
        for day, value in enumerate(values, first):
            more = (last or {}) if day == first + len(values) - 1 else {}
            own = {"created_utc": f"2026-11-{day:02d}T12:00:00Z", "run_id": f"{day:04x}"} | attrs | more
            measured(f"lab-{day:02d}.nc", np.full((2, 2), value), **own)

    return write


STEADY = [1.00e-6, 1.02e-6, 0.99e-6, 1.01e-6, 0.98e-6, 1.00e-6, 1.01e-6, 0.99e-6]


def test_a_regression_is_found_with_what_changed(fill, tmp_path):
    fill([*STEADY, 1.5e-6], governor="performance", last={"governor": "powersave", "seed": 5, "job_id": "3"})
    found = history(tmp_path)
    (one,) = found.judged
    assert (one.newest.file, len(one.earlier), one.enough) == ("lab-09.nc", 8, True)
    assert one.changed == [("governor", "performance", "powersave")]
    (finding,) = past.findings(found, tmp_path)
    assert finding.code == "data.regression"
    assert finding.text == (
        f"lab-09.nc: {LEAD} is 1.50 µs, +50.0 % from the median of 8 earlier runs; changed since: governor"
    )
    assert finding.evidence["changed"] == {"governor": {"before": "performance", "now": "powersave"}}
    assert finding.evidence["earlier_runs"] == 8
    assert 0 < finding.evidence["minimal_detectable_change"] < 0.2
    assert finding.next == f"sonde data diff {tmp_path / 'lab-08.nc'} {tmp_path / 'lab-09.nc'}"


def test_a_steady_folder_has_no_findings(fill, tmp_path):
    fill([*STEADY, 1.005e-6])
    assert past.findings(history(tmp_path), tmp_path) == []


def test_an_improvement_is_no_regression(fill, tmp_path):
    fill([*STEADY, 0.5e-6])
    found = history(tmp_path)
    (trend,) = [trend for trend in found.judged[0].trends if trend.scalar.name == LEAD]
    assert trend.change == pytest.approx(-0.5)
    assert past.findings(found, tmp_path) == []


def test_a_change_that_does_not_matter_is_none(fill, tmp_path):
    fill([1e-6, 1.0001e-6, 0.9999e-6, 1e-6, 1.0001e-6, 0.9999e-6, 1.02e-6])
    found = history(tmp_path)
    assert past.findings(found, tmp_path, 0.05) == []
    assert len(past.findings(found, tmp_path, 0.01)) == 1


def test_below_five_earlier_runs_nothing_is_judged(fill, tmp_path):
    fill([1e-6, 1e-6, 1e-6, 1e-6, 9e-6])
    (one,) = history(tmp_path).judged
    assert (len(one.earlier), one.enough, one.trends) == (4, False, [])


def test_where_all_earlier_values_are_equal_any_other_is_far(fill, tmp_path):
    fill([1e-6] * 8 + [1.1e-6])
    assert len(past.findings(history(tmp_path), tmp_path)) == 1


def test_only_comparable_runs_are_compared(fill, measured, tmp_path):
    fill([*STEADY, 1.0e-6], mode="one")
    for day, (mode, hosts, shape) in enumerate(
        [
            ("two", "n[001-002]", (2, 2)),
            ("one", "n[001-003]", (2, 2)),
            ("one", "n[001-002]", (3, 2)),
            ("one", "n[001-002]", (2, 3)),
        ],
        20,
    ):
        measured(
            f"other-{day}.nc",
            np.full(shape, 9e-6),
            mode=mode,
            hostlist=hosts,
            created_utc=f"2026-12-{day}T12:00:00Z",
        )
    found = history(tmp_path)
    assert len(found.judged) == 5
    assert [len(one.earlier) for one in found.judged] == [8, 0, 0, 0, 0]
    assert past.findings(found, tmp_path) == []
    # The same number of other hosts is comparable.
    measured(
        "z.nc", np.full((2, 2), 1e-6), mode="one", hostlist="m[01-02]", created_utc="2026-12-30T12:00:00Z"
    )
    assert len(history(tmp_path).judged[0].earlier) == 9


def test_incomplete_runs_are_listed_but_not_compared_with(fill, measured, tmp_path):
    fill(STEADY)
    measured(
        "bad.nc", np.full((2, 2), 5e-6), complete=0, created_utc="2026-11-09T12:00:00Z", stop_reason="killed"
    )
    measured("z.nc", np.full((2, 2), 1e-6), created_utc="2026-11-10T12:00:00Z")
    found = history(tmp_path)
    assert [run.file for run in found.runs][-2:] == ["bad.nc", "z.nc"]
    assert len(found.judged[0].earlier) == 8


def test_what_is_unchanged_is_not_read_again(fill, measured, tmp_path):
    fill(STEADY)
    assert history(tmp_path).read == 8
    again = history(tmp_path)
    assert again.read == 0
    assert len(again.runs) == 8
    assert again.runs[0].scalars[LEAD].value == pytest.approx(1e-6)
    measured("lab-03.nc", np.full((2, 2), 7e-6), created_utc="2026-11-03T12:00:00Z")
    (tmp_path / "lab-05.nc").unlink()
    third = history(tmp_path)
    assert third.read == 1
    assert len(third.runs) == 7
    assert [run.scalars[LEAD].value for run in third.runs if run.file == "lab-03.nc"] == [pytest.approx(7e-6)]


@pytest.mark.parametrize("damage", ["noise", "cut", "rows", "format", "no table", "empty"])
def test_a_damaged_index_is_made_again(fill, tmp_path, damage):
    fill(STEADY)
    want = history(tmp_path).runs
    path = tmp_path / INDEX
    if damage == "noise":
        path.write_bytes(b"noise" * 1000)
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:5000])
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        index = sqlite3.connect(path)
        sql = {
            "rows": "UPDATE run SET said = '{\"schema\"'",
            "format": "PRAGMA user_version = 99",
            "no table": "DROP TABLE run",
        }[damage]
        index.execute(sql)
        index.commit()
        index.close()
    found = history(tmp_path)
    assert found.runs == want
    assert found.read == 8
    assert history(tmp_path).read == 0


def test_a_folder_that_cannot_be_written_is_read_all_the_same(fill, tmp_path, monkeypatch):
    fill(STEADY)
    real = sqlite3.connect

    def read_only(target, *more, **keys):
        name = str(target)
        if name == ":memory:" or "mode=ro" in name:
            return real(target, *more, **keys)
        connection = real(f"file:{target}?mode=ro", uri=True)  # what a read-only file system lets be opened
        connection.execute("SELECT 1")
        return connection

    monkeypatch.setattr(history_index.sqlite3, "connect", read_only)
    assert history(tmp_path).read == 8
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"lab-{day:02d}.nc" for day in range(1, 9)]
    monkeypatch.undo()
    history(tmp_path)
    before = (tmp_path / INDEX).read_bytes()
    monkeypatch.setattr(history_index.sqlite3, "connect", read_only)
    assert history(tmp_path).read == 0  # the index is used, though it cannot be kept
    assert (tmp_path / INDEX).read_bytes() == before


def test_an_index_in_the_way_or_in_use_does_not_stop_it(fill, tmp_path, monkeypatch):
    fill(STEADY)
    (tmp_path / INDEX).mkdir()
    assert history(tmp_path).read == 8
    (tmp_path / INDEX).rmdir()
    history(tmp_path)
    real = sqlite3.connect
    other = real(tmp_path / INDEX)
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(history_index.sqlite3, "connect", lambda *a, **k: real(*a, **{**k, "timeout": 0.01}))
    assert history(tmp_path).read == 0
    other.rollback()
    other.close()


def test_files_that_are_no_datasets_are_reported_and_not_tried_again(fill, tmp_path):
    fill(STEADY)
    (tmp_path / "foreign.nc").write_bytes(b"CDF\x01nothing")
    for read in (9, 0):
        found = history(tmp_path)
        assert found.read == read
        assert [warning.code for warning in found.warnings] == ["data.unreadable_run"]
        assert "foreign.nc is NetCDF of the classic format" in found.warnings[0].evidence
        assert len(found.runs) == 8


def test_a_folder_without_datasets_is_an_error(tmp_path):
    with pytest.raises(DataError, match="there is no dataset in") as raised:
        history(tmp_path)
    assert raised.value.code == "data.no_runs"
    with pytest.raises(DataError, match="is not a folder"):
        history(tmp_path / "none")
    (tmp_path / "foreign.nc").write_bytes(b"")
    with pytest.raises(DataError, match=r"no dataset in .* can be read"):
        history(tmp_path)
    assert os.listdir(tmp_path)


def test_a_change_is_named_against_all_earlier_runs_not_the_last_alone():
    def run(**attrs):
        return past_runs.PastRun("a.nc", "lab/1", "", True, {}, attrs, {})

    earlier = [run(kernel="1", mpi="a"), run(kernel="2", mpi="a"), run(kernel="1", mpi="a")]
    assert trends.changes(run(kernel="2", mpi="b", new="x"), earlier) == [
        ("mpi", "a", "b"),
        ("new", "not recorded", "x"),
    ]


@pytest.mark.parametrize("n", [5, 8, 20, 60])
def test_false_alarms_are_as_rare_as_said_and_the_stated_change_is_found_as_often_as_said(n):
    random = np.random.default_rng(n)
    trials = 2000
    p = np.empty(trials)
    power = 0
    _, needed = trends._calibration(n)
    for trial in range(trials):
        earlier = random.standard_normal(n)
        new = random.standard_normal()
        p[trial] = trends.prediction(earlier, new)[0]
        power += trends.prediction(earlier, new + needed)[0] <= trends.ALPHA
    assert 0.033 < np.mean(p <= 0.05) < 0.067  # 3.5 standard errors
    assert 0.77 < power / trials < 0.83


def test_a_value_among_its_like_is_not_beyond_them():
    p, change = trends.prediction(np.array([1.0, 2, 3, 4, 5]), 3.0)
    assert p == 1
    assert change > 0
    assert trends.prediction(np.array([1.0, 1, 1, 1, 1]), 1.0) == (1.0, 0.0)
    assert trends.prediction(np.array([1.0, 1, 1, 1, 1]), 1.1)[0] < 0.001


def test_values_at_or_below_zero_are_compared_by_difference(fill, tmp_path):
    fill([-1.0, -1.1, -0.9, -1.0, -1.05, 0.5])
    (trend,) = [t for t in history(tmp_path).judged[0].trends if t.scalar.name == LEAD]
    assert trend.change == pytest.approx(1.5)
    assert trend.worse(0.05)


def test_many_scalars_are_held_to_false_discovery_control():
    def judged(p):
        scalar = past_runs.Scalar("x", 2.0, "s", "lower")
        judged = [trends.Trend(scalar, 9, 1.0, 1.0, each, True, 0.1) for each in p]
        return trends.Judged(past_runs.PastRun("a.nc", "lab/1", "", True, {}, {}, {}), [], judged)

    alone, many = judged([0.04]), judged([0.04, *[0.9] * 20])
    trends._adjust([alone])
    trends._adjust([many])
    assert alone.trends[0].worse(0.05)
    assert not many.trends[0].worse(0.05)


def test_the_index_is_one_file_that_a_listing_hides(fill, tmp_path):
    fill([1e-6])
    history(tmp_path)
    extra = [path.name for path in Path(tmp_path).iterdir() if not path.name.endswith(".nc")]
    assert extra == [".sonde-history.sqlite"]


# ---- sizes and hosts -----------------------------------------------------------------------------

NET_SIZES = (8, 1024, 65536)


@pytest.fixture
def fill_net(tmp_path):
    """Writes runs of an interconnect, a day apart: one for each of (hosts that are slow, factor of the whole run)."""

    def write(runs, hosts=8, seed=5):
        rng = np.random.default_rng(seed)
        for day, (slow, whole) in enumerate(runs, 1):
            net = Network(ranks=hosts, ranks_per_host=1, sizes=NET_SIZES, slow_hosts=slow)
            summary = net.summary(10, rng)
            factor = whole * np.exp(0.01 * rng.standard_normal((hosts, 1, len(NET_SIZES))))
            for name in ("median", "median_low", "median_high"):
                summary[name].values[...] *= factor * factor.transpose(1, 0, 2)
            attrs = fakeroom.ATTRS | {
                "schema": "net/1",
                "mode": "one_to_one",
                "stop_reason": "converged",
                "created_utc": f"2026-11-{day:02d}T12:00:00Z",
            }
            write_dataset(tmp_path / f"net-{day}.nc", None, summary, attrs)
        found = history(tmp_path)
        return found, past.findings(found, tmp_path)

    return write


HEALTHY = [({}, 1.0), ({}, 1.02), ({}, 0.99), ({}, 1.01), ({}, 0.98), ({}, 1.0)]


def test_one_host_ten_times_slower_at_one_size_is_one_finding_about_it(fill_net):
    found, findings = fill_net([*HEALTHY, ({2: (1.0, 1.0, 10.0)}, 1.0)])
    (finding,) = findings
    assert finding.code == "data.regression"
    assert (finding.evidence["host"], finding.evidence["scalar"]) == ("n002", "median at 64 KiB on host n002")
    assert [one["at"] for one in finding.evidence["at"]] == ["64 KiB"]
    assert finding.evidence["change"] == pytest.approx(9, rel=0.15)
    assert finding.text.startswith("net-7.nc: host n002: median at 64 KiB is ")
    assert "expected from 6 earlier runs and the other hosts" in finding.text
    assert 0 < finding.evidence["minimal_detectable_change"] < 0.5
    assert len(found.judged[0].hosts) == 8 * len(NET_SIZES)


@pytest.mark.parametrize("hosts", [3, 4, 8])
def test_a_slow_host_is_named_alone_however_few_others_there_are(fill_net, hosts):
    _, findings = fill_net([*HEALTHY, ({1: (3.0, 3.0, 3.0)}, 1.0)], hosts)
    (finding,) = findings
    assert finding.evidence["host"] == "n001"
    assert [one["at"] for one in finding.evidence["at"]] == ["8 B", "1 KiB", "64 KiB"]
    assert "(and 2 other values of this host)" in finding.text


def test_a_run_that_is_slow_as_a_whole_blames_no_host(fill_net):
    _, findings = fill_net([*HEALTHY, ({}, 2.0)])
    assert findings
    assert all("host" not in finding.evidence for finding in findings)
    assert findings[0].evidence["scalar"] == "median (median over cells)"
    # Both are said where both are true.
    _, findings = fill_net([*HEALTHY, ({2: (4.0, 4.0, 4.0)}, 2.0)])
    assert findings[0].evidence["host"] == "n002"
    assert "median (median over cells)" in [finding.evidence["scalar"] for finding in findings[1:]]


def test_one_size_that_is_slow_on_all_hosts_is_found(fill_net):
    _, findings = fill_net([*HEALTHY, (dict.fromkeys(range(8), (1.0, 1.0, 3.0)), 1.0)])
    scalars = {finding.evidence["scalar"] for finding in findings}
    assert "median at 64 KiB" in scalars or "median (95 % over cells)" in scalars
    assert all("host" not in finding.evidence for finding in findings)


def test_healthy_runs_and_a_host_that_became_faster_have_no_findings(fill_net):
    assert fill_net([*HEALTHY, ({}, 1.01)])[1] == []
    assert fill_net([(dict.fromkeys([2], (3.0, 3.0, 3.0)), one) for _, one in HEALTHY] + [({}, 1.0)])[1] == []


def test_a_sick_host_of_the_past_hides_none_of_today(fill_net):
    past_runs = [*HEALTHY, *HEALTHY[:4]]
    past_runs[3] = ({5: (10.0, 10.0, 10.0)}, 1.0)
    _, findings = fill_net([*past_runs, ({2: (1.0, 1.0, 10.0)}, 1.0)])
    assert [finding.evidence.get("host") for finding in findings] == ["n002"]


def test_new_hosts_are_not_judged_by_the_runs_of_others(fill_net, tmp_path):
    fill_net([*HEALTHY])
    found = history(tmp_path)
    (one,) = found.judged
    slices = {name: replace(part, values={f"m{host}": v for host, v in part.values.items()})
              for name, part in one.newest.hosts.items()}  # fmt: skip
    newest = replace(one.newest, file="z.nc", created="2026-12-01", hosts=slices)
    (again,) = trends.judge([*one.earlier, one.newest, newest])
    assert again.enough
    assert again.hosts == []


def test_copies_of_a_run_count_once(fill, tmp_path):
    """Seven copies of one run once were "7 runs; no change", with changes of 0.0 % detectable."""
    fill([1e-6])
    for number in range(2, 8):
        shutil.copy(tmp_path / "lab-01.nc", tmp_path / f"copy-{number}.nc")
    found = history(tmp_path)
    (one,) = found.judged
    assert (len(found.runs), one.enough, one.trends) == (1, False, [])
    (warning,) = found.warnings
    assert warning.code == "data.copies"
    assert warning.evidence.startswith("6 files are copies of other runs in this folder, such as ")


def test_copies_do_not_make_a_series_steadier(fill, tmp_path):
    fill([*STEADY, 1.5e-6])
    alone = history(tmp_path).judged[0].trends
    shutil.copy(tmp_path / "lab-02.nc", tmp_path / "again.nc")
    found = history(tmp_path)
    assert [warning.code for warning in found.warnings] == ["data.copies"]
    assert [trend.mde for trend in found.judged[0].trends] == [trend.mde for trend in alone]


def test_equal_values_of_two_runs_are_two_runs(fill, tmp_path):
    fill([1e-6, 1e-6])
    assert (len(history(tmp_path).runs), history(tmp_path).warnings) == (2, [])
