"""`sonde power demo`: real daemons, simulated nodes, a manager that is killed. What it started is gone afterwards."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

from sonde.core.errors import SondeError
from sonde.power.demo import run

PATIENCE_S = 60


def built() -> bool:
    try:
        return set(run.NATIVE_ROLES) <= set(run.roles())
    except SondeError:
        return False


pytestmark = pytest.mark.skipif(not built(), reason="sonde-powerd has no managers here")


def daemons_in(folder: Path) -> list[int]:
    """Processes whose working folder is this one, or was."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                where = os.readlink(process / "cwd")
            except OSError:
                continue
            if where.startswith(str(folder)):
                found.append(int(process.name))
    return found


def test_the_budget_is_held_though_its_manager_is_killed(sonde):
    for budget in ("11s", "60s"):  # on a busy machine the standby may not lead before the shorter one ends
        told = sonde("power", "demo", "--budget", budget, "-o", "d.nc", "--json").expect(0).json
        assert told["violations"] == 0
        if told["failover_s"] is not None:
            break
        (sonde.cwd / "d.nc").unlink()
    assert told["budget_w"] == 1000
    assert 600 <= told["max_sum_caps_w"] <= 1000 * (1 + 1e-6)
    assert told["failover_s"] > 0  # the standby led
    assert told["simulated"]
    assert [node["node"] for node in told["nodes"]] == ["n1", "n2", "n3", "n4"]
    assert all(node["energy_j"] > 0 for node in told["nodes"])
    shown = sonde("power", "show", "d.nc").expect(0)
    assert "takeover by m2" in shown.out
    assert "simulated" in shown.out
    assert daemons_in(sonde.cwd / "d.demo") == []
    assert not (sonde.cwd / "d.demo").exists()
    assert sonde.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_what_it_started_ends_with_it(sonde, number):
    process = sonde.start("power", "demo", "--budget", "60s", "-o", "d.nc")
    folder = sonde.cwd / "d.demo"
    end = time.monotonic() + PATIENCE_S
    while len(daemons_in(folder)) < 8:  # four nodes with their guardians
        assert time.monotonic() < end, "the demo does not start"
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(number)
    process.wait(PATIENCE_S)
    while daemons_in(folder):
        assert time.monotonic() < end, "daemons outlived the demo"
        time.sleep(0.1)
    if number == signal.SIGINT:
        assert process.returncode in (130, 3)
        assert not folder.exists()
