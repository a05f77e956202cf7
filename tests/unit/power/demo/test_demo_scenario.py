"""The demo's plan, and who plays which role."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pytest

from sonde.core.errors import UsageError
from sonde.power.demo import scenario
from sonde.power.stack import roles
from sonde.power.stack.config import Stack


@pytest.mark.parametrize("length", [scenario.LEAST_S, 8.0, 20.0, 600.0])
def test_every_daemon_reads_its_configuration(length):
    power = pytest.importorskip("sonde._power", reason="the power stack is not built")
    timing = scenario.timing(length)
    loads = [f"load-{name}" for name in scenario.NODES]
    for name, node in (*zip(scenario.NODES, range(4)), ("m1", -1), ("m2", -1), ("monitor", -1)):
        stack = Stack.of(power.parse_config(scenario.configuration(name, timing, loads, node, "127.0.0.1:1")))
        assert stack.budget_w == scenario.BUDGET_W
        assert [one.name for one in stack.nodes] == list(scenario.NODES)
        assert stack.lease_s == pytest.approx(timing.lease_s, abs=1e-3)
        assert stack.telemetry_s <= stack.period_s / 2  # else what happened could not be judged
    assert timing.kill_s + timing.lease_s < timing.length_s
    assert list(timing.at_s) == sorted(timing.at_s)


def test_too_short_a_demo_is_refused():
    with pytest.raises(UsageError, match="2 s or more"):
        scenario.timing(1.0)


def test_a_job_whose_node_is_silent_has_no_power():
    assert scenario.job_power([100.0, 50.0]) == 150
    assert math.isnan(scenario.job_power([100.0, math.nan]))
    assert math.isnan(scenario.job_power([]))


def test_roles():
    assert roles.check("monitor") == "monitor"
    assert roles.module_of("job-scheduler") == "sonde.power.jobs.run_job_scheduler"
    with pytest.raises(UsageError, match="nearest: monitor"):
        roles.check("moniter")


def test_the_dataset_of_a_demo_stays_out_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("sonde._power", reason="the power stack is not built")
    from sonde.power.recording import run_record

    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    path = run_record.demo_path(None)
    assert path.suffix == ".nc"
    assert path.parent.parent == elsewhere
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert run_record.demo_path(None) != path, "a second one does not replace the first"
    assert run_record.demo_path(Path("asked")) == Path("asked.nc")
    assert list(here.iterdir()) == []
