"""What of run.py needs no MPI: an agent's rhythm, hardware threads, the time that is left."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from sonde.core.errors import UsageError
from sonde.core.launch.mpirun import RESOURCE_MANAGER, Mpi, Mpirun
from sonde.core.launch.start import Start
from sonde.noise.agents.recipes import AgentPlan
from sonde.noise.detector import run
from sonde.noise.detector.plan import OFF, Variant, design_for


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_wake_ups_have_no_gap(count):
    assert run.steady_gap([float(k) for k in range(count)]) == 0


@pytest.mark.parametrize("period_s", [0.2, 0.5, 1.0])
def test_steady_wake_ups_that_are_seen_late_have_their_nice_gap(period_s):
    random = np.random.default_rng(1)
    onsets = np.arange(8 / period_s) * period_s + random.uniform(0, run.WATCH_STEP_S, int(8 / period_s))
    assert run.steady_gap(onsets.tolist()) == period_s


def test_a_gap_that_is_not_nice_is_reported_as_it_is():
    assert run.steady_gap([0.7 * k for k in range(10)]) == pytest.approx(0.7)


def test_one_wake_up_that_was_missed_does_not_lengthen_the_period():
    assert run.steady_gap([0.0, 1.0, 2.0, 4.0, 5.0, 6.0, 7.0]) == 1.0


def test_irregular_wake_ups_have_no_gap():
    random = np.random.default_rng(2)
    assert run.steady_gap(np.cumsum(random.exponential(0.5, 40)).tolist()) == 0


class Watched:
    """An agent that works for 30 ms once a second, and a clock that a sleep moves on."""

    def __init__(self):
        self.now = 50.0

    def used(self):
        seconds, part = divmod(self.now, 1.0)
        return 0.03 * seconds + min(part, 0.03)

    def sleep(self, seconds):
        self.now += seconds


def test_the_wake_ups_of_an_agent_are_seen():
    agent = Watched()
    onsets = run.wake_ups(agent.used, lambda: agent.now, agent.sleep)
    assert len(onsets) >= run.WATCH_S - 1
    assert run.steady_gap(onsets) == 1.0


def test_a_real_agent_is_watched():
    # Work long enough to be seen by the kernel's clock of CPU time; a busy machine stretches the period, or hides it.
    work = "i=0; while [ $i -lt 8000 ]; do i=$((i+1)); done"
    found = run.find_period(AgentPlan(f"while :; do {work}; sleep 1; done", ready="for:0.05"))
    assert found == 0 or found > run.APART_S


def test_an_agent_that_does_nothing_has_no_period(monkeypatch):
    monkeypatch.setattr(run, "WATCH_S", 1.0)
    assert run.find_period(AgentPlan("exec sleep 100", ready="for:0.05")) == 0


class TestCheckCpus:
    MPI = Mpi("openmpi", "Open MPI", "4.1.4", Path("/opt/openmpi/bin/mpirun"))

    @pytest.fixture(autouse=True)
    def machine(self, monkeypatch):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
        for name in RESOURCE_MANAGER:
            monkeypatch.delenv(name, raising=False)

    def start(self, *hosts):
        return Start(Mpirun(found=self.MPI), hosts, Path("/libexec/openmpi/sonde-noise"), self.MPI)

    def test_what_is_not_open_here_is_refused_before_anything_starts(self):
        with pytest.raises(UsageError) as told:
            run.check_cpus((1, 99), self.start())
        assert told.value.code == "noise.no_such_core"
        assert told.value.what == "CPU 99 cannot be used; this process may use: 0,1"

    def test_what_is_open_is_not(self):
        run.check_cpus((0, 1), self.start())
        run.check_cpus((), self.start())

    def test_of_other_hosts_nothing_is_known(self):
        run.check_cpus((99,), self.start("n1", "n2"))


@pytest.mark.parametrize(
    ("text", "allowed", "expected"),
    [
        ("0,4", {0, 4}, (4,)),
        ("0-3", {0, 1, 3}, (1, 3)),
        ("0,4", {0}, ()),
        ("0", {0, 1}, ()),
    ],
)
def test_hardware_threads_of_the_same_core(tmp_path, monkeypatch, text, allowed, expected):
    folder = tmp_path / "sys/devices/system/cpu/cpu0/topology"
    folder.mkdir(parents=True)
    (folder / "thread_siblings_list").write_text(text + "\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: allowed)
    assert run.siblings(0, tmp_path) == expected


def test_a_kernel_that_does_not_tell_has_no_siblings(tmp_path):
    assert run.siblings(0, tmp_path) == ()


def test_the_last_cpu_is_one_that_may_be_used(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 5, 3})
    assert run.last_cpu() == 5


def test_the_source_is_an_agent_with_its_words():
    plan = run.source_plan(0.0003, 0.5, 1000, 7, phase_s=0.1)
    assert plan.command.startswith("exec ")
    assert "--level 0.0003 --period-s 0.5 --words 1000 --seed 7 --phase-s 0.1" in plan.command
    assert "--unsync" in run.source_plan(0.01, 1, 1000, 7, aligned=False).command


def request(budget_s, began):
    variants = (OFF, Variant("agent", AgentPlan("true")))
    plan = run.Plan(variants, design_for(60, 1.0), 2)
    return run.Request(plan, None, None, (), budget_s, began)


def test_the_time_left_is_the_budget_less_what_is_preserved_for_the_end():
    now = time.monotonic()
    assert request(None, now).left_s() == 0
    left = request(100, now - 10).left_s()
    assert 0 < left < 90
    assert request(100, now - 20).left_s() < left - 9
    assert request(20, now - 100).left_s() > 0  # 0 would mean that there is no limit


def test_looks_are_preserved_for_the_dataset():
    class Silent:
        def show(self, event):
            pass

    listener = run.Listener(Silent())
    for p, found, at in ((0.5, False, 10), (0.001, True, 20), (0.001, True, 30)):
        listener.take({"event": "look", "p_so_far": p, "detected": found, "elapsed_s": at})
    assert listener.attrs == {"p_live": 0.001, "detected_s": 20.0}
