"""A run of `sonde net` that is killed with -9, and what `sonde data recover` makes of its folder."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sonde.core import dataset
from sonde.core.errors import Exit
from sonde.core.launch.mpirun import Mpirun
from sonde.data.validate import validate
from watching import wait_for


def sonde(*words: object) -> subprocess.Popen[str]:
    line = [
        sys.executable,
        "-c",
        "import sys; from sonde.cli.entry import main; sys.exit(main())",
        *map(str, words),
    ]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def recover(run: Path) -> tuple[int, dict]:
    child = sonde("--json", "data", "recover", run)
    out, err = child.communicate(timeout=120)
    assert out, err
    return child.returncode, json.loads(out)


@pytest.mark.mpi
def test_a_killed_run_is_recovered_once_its_ranks_are_gone(mpirun: Mpirun, tmp_path: Path):
    run, out = tmp_path / "a.run", tmp_path / "a.nc"
    endless = ["--rule", "fixed:1000000", "--cap", "1000000", "--budget", "120s"]
    parent = sonde("net", "run", "--ntasks", 2, "--sizes", "8,1024", *endless, "-o", out)
    try:
        assert wait_for(lambda: sum(path.stat().st_size for path in run.glob("*.blk")) > 20_000)
        code, said = recover(run)  # while it goes on
        assert (code, said["error"]["code"]) == (Exit.ENVIRONMENT, "core.busy")
    finally:
        parent.kill()
        parent.communicate()
    assert parent.returncode == -signal.SIGKILL
    assert not out.exists()
    assert wait_for(lambda: recover_when_free(run, out))
    assert not run.exists()
    assert validate(out) == []
    with dataset.open(out) as tree:
        assert (tree.attrs["stop_reason"], tree.attrs["complete"]) == ("killed", 0)
        assert "core.run_was_killed" in {warning.code for warning in dataset.warnings_of(tree)}
        n = tree["raw/n"].values
        assert n[0, 1].min() > 0
        assert n[1, 0].min() > 0
        latency = tree["raw/latency"].values
        assert (np.isfinite(latency).sum(axis=-1) == n).all()
        assert np.isfinite(tree["summary/median"].values[0, 1]).all()


def recover_when_free(run: Path, out: Path) -> bool:
    code, said = recover(run)
    if code == Exit.ENVIRONMENT:
        assert said["error"]["code"] == "core.busy"  # ranks that have not yet noticed
        return False
    assert code == Exit.INCOMPLETE
    assert said["datasets"] == [{"dataset": str(out), "complete": False}]
    return True
