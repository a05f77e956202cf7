"""Signals by number: the kernel may have given a number that was just read, or written down, to another user's process.

The tests simulate that by a list that contains a bystander's number in the first read, and not in the second.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from other_users import STRANGER, place

from sonde.cluster import run as cluster_run
from sonde.cluster import run_state
from sonde.core import processes
from sonde.power.jobs import run_job_shim

pytestmark = pytest.mark.root
__all__ = ["place"]  # a fixture
ALL_SIGNALS = [signal.SIGTERM, signal.SIGKILL]


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the stranger's that has nothing to do with Sonde."""
    child = subprocess.Popen(["sleep", "1000"], user=STRANGER, group=STRANGER, extra_groups=[])
    yield child
    child.kill()
    child.wait()


def lives(child: subprocess.Popen[bytes]) -> bool:
    """Whether a process still exists after a signal had time to end it."""
    time.sleep(0.2)
    return child.poll() is None


def looks_of(*found: list[Any]) -> Callable[..., list[Any]]:
    """A function that returns these lists, one for each call, and then always the last one."""
    left = list(found)
    return lambda *_: left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.parametrize("number", ALL_SIGNALS)
def test_what_ended_before_its_job_s_keeper_signals_it_is_not_another_user_s_process(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bystander: subprocess.Popen[bytes],
    number: signal.Signals,
):
    (tmp_path / "start.json").write_text(json.dumps({"starts": [], "limit_s": 0, "grace_s": 0.1}))
    shim = run_job_shim.JobShim(tmp_path)
    mine = subprocess.Popen(["sleep", "1000"])
    try:
        monkeypatch.setattr(run_job_shim, "_below", looks_of([bystander.pid, mine.pid], [mine.pid]))
        shim._signal(number)
        assert mine.wait(30) == -number
        assert lives(bystander)
    finally:
        mine.kill()
        mine.wait()


@pytest.mark.parametrize("number", ALL_SIGNALS)
def test_a_process_of_a_node_that_has_ended_is_not_another_user_s(
    monkeypatch: pytest.MonkeyPatch, bystander: subprocess.Popen[bytes], number: signal.Signals
):
    """A command in a node of a virtual cluster: nsenter's child at the time of the search."""
    command = cluster_run.NodeProcess.__new__(cluster_run.NodeProcess)
    command.pid = os.getpid()
    monkeypatch.setattr(cluster_run.NodeProcess, "poll", lambda _: None)
    monkeypatch.setattr(cluster_run, "processes", lambda: [bystander.pid])
    parents = looks_of(["S", str(command.pid), "0"], ["S", "1", "0"])
    monkeypatch.setattr(cluster_run, "stat_fields", parents)
    command.send_signal(number)
    assert lives(bystander)


def test_what_ends_while_a_cluster_is_calmed_is_not_another_user_s(
    monkeypatch: pytest.MonkeyPatch, bystander: subprocess.Popen[bytes]
):
    reaper = run_state.Reaper(os.getpid(), 1)
    monkeypatch.setattr(run_state.Reaper, "inside", looks_of([bystander.pid], []))
    reaper.calm()
    assert lives(bystander)


def test_a_number_in_a_file_is_signalled_if_it_began_when_the_file_says(bystander: subprocess.Popen[bytes]):
    """Such as the number in keeper.json, after that process has ended and another process has its number."""
    began = processes.began(bystander.pid)
    recorded = began - 1
    processes.signal_one(bystander.pid, signal.SIGKILL, lambda: processes.began(bystander.pid) == recorded)
    assert lives(bystander)
    processes.signal_one(bystander.pid, signal.SIGKILL, lambda: processes.began(bystander.pid) == began)
    assert bystander.wait(30) == -signal.SIGKILL


def test_a_keeper_of_a_file_that_is_another_process_by_now_is_not_told_to_stop(
    place: Path,
    bystander: subprocess.Popen[bytes],
):
    pytest.importorskip("sonde._power", reason="the power stack is not built")
    from sonde.power.jobs.jobs import Part, Spec, to_plain
    from sonde.power.jobs.run_job_folder import boot
    from sonde.power.jobs.run_job_manager import JobManager
    from sonde.power.jobs.run_job_settings import Settings
    from sonde.power.stack import run_bus

    config, folder = place / "power.toml", place / "runs/j1"
    folder.mkdir(parents=True)
    config.write_text(
        '[budget]\npower_limit = 1000\n[[nodes]]\nhosts = "n1"\nmin = 50\nmax = 300\nsafe = 100\n'
        '[job-manager]\nstate = "runs"\nusers = ["nobody"]\n'
    )
    spec = Spec("j1", ("true",), "nobody", folder="/", grace_s=0.3)
    mark = {"pid": bystander.pid, "began": processes.began(bystander.pid) - 1, "boot": boot(), "at_ns": 1}
    (folder / "job.json").write_text(json.dumps({"spec": to_plain(spec), "parts": to_plain([Part("n1")])}))
    (folder / "keeper.json").write_text(json.dumps(mark))
    (folder / "stop.json").write_text('{"grace_s": 0.0, "reason": "enough"}')
    manager = JobManager(run_bus.load(config), Settings(str(config)))
    try:
        assert manager.query({"job": "j1"})["runs"][0]["state"] == "failed"
        assert lives(bystander)
    finally:
        os.close(manager._lock)


GREP = """#!/bin/sh
# The remains of the run that were found; at the time of the signal the number is another user's.
echo /proc/{pid}/environ
"""


def test_the_guard_of_a_killed_sonde_ends_nobody_else_s_process(
    place: Path,
    bystander: subprocess.Popen[bytes],
):
    tools, run = place / "bin", place / "a.run"
    tools.mkdir()
    run.mkdir()
    (tools / "grep").write_text(GREP.format(pid=bystander.pid))
    (tools / "grep").chmod(0o755)
    script = f"""
import os, signal, sys
from pathlib import Path
from sonde.core.launch.process import ProbeProcess
probe = ProbeProcess(["sleep", "600"], Path({str(run)!r}), print, grace_s=0.1)
probe.start()
print(probe._guard.pid, flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""
    child = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin
    assert child.stdout
    guard = os.pidfd_open(int(child.stdout.readline()))
    try:
        child.stdin.write("die\n")
        child.stdin.close()
        assert child.wait(60) == -signal.SIGKILL
        child.stdout.close()
        assert select.select([guard], [], [], 120)[0], "the guard does not end"
    finally:
        os.close(guard)
    assert lives(bystander)
