"""Workflows that are over are forgotten in time, and their files with them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

from sonde.core.errors import UsageError
from sonde.power import run_workflow_engine
from sonde.power.run_workflow_engine import KEEP_S, Engine

TEXT = 'name = "w"\n[jobs.a]\ncommand = ["true"]\n'


def begun(engine: Engine, run: str) -> Path:
    engine.order({"order": "RUN_WORKFLOW", "run": run, "text": TEXT, "path": "w.toml", "user": "ada"})
    return engine.workflows[run].journal.path


def a_scheduler_without_jobs(engine: Engine, service: str, body: dict[str, Any]) -> dict[str, Any]:
    if body.get("ask") == "GET_JOB":
        raise UsageError("power.no_job", "there is none")
    return {"jobs": []}


def test_what_has_been_over_for_long_is_forgotten_while_the_engine_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_workflow_engine, "SWEEP_S", 0.0)
    monkeypatch.setattr(Engine, "ask", a_scheduler_without_jobs)
    engine = Engine(str(tmp_path))
    engine.look()
    old, fresh, going = (begun(engine, run) for run in ("old", "fresh", "going"))
    for run in ("old", "fresh"):
        engine.order({"order": "CANCEL_WORKFLOW", "run": run, "user": "ada", "reason": ""})
    engine.look()
    assert [one.course.over for one in engine.workflows.values()] == [True, True, False]
    long_ago = time.time() - KEEP_S - 60
    for path in (old, going):
        os.utime(path, (long_ago, long_ago))
    engine.look()
    assert list(engine.workflows) == ["fresh", "going"]
    assert (old.exists(), fresh.exists(), going.exists()) == (False, True, True)
    with pytest.raises(Exception, match="no workflow is called 'old'"):
        engine.told({"run": "old"})
