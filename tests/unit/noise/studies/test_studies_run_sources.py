"""Noise sources of studies: their commands, and on which CPUs ranks run."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from sonde.noise.detector.plan import OFF, RUN_FOLDER, Design, Plan, Variant
from sonde.noise.studies import run_sources


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A sonde-agent that says how it was called, one line a call, into `called`."""
    folder = tmp_path / "libexec"
    folder.mkdir()
    agent = folder / "sonde-agent"
    agent.write_text(f'#!/bin/sh\necho "$@" >>{shlex.quote(str(tmp_path / "called"))}\n')
    agent.chmod(0o755)
    monkeypatch.setattr(run_sources, "libexec", lambda: folder)
    return tmp_path / "called"


def run(plan, folder):
    """Runs an agent's command as the keeper would, in a run whose folder is `folder`."""
    words = Plan((OFF, Variant("x", plan)), Design((6,), (1.0,), 1.0), 2).argv(str(folder), 0)
    command = words[words.index("--agent-command") + 1]
    assert RUN_FOLDER not in command
    subprocess.run(["/bin/sh", "-c", command], check=True, timeout=20)


def test_a_source_records_into_the_folder_of_the_run(program, tmp_path):
    folder = tmp_path / "a run's folder.run"
    folder.mkdir()
    run(run_sources.recorded_source("0.3 %", 0.003, 0.5, 1000, 7), folder)
    said = program.read_text().strip()
    assert f"--record {folder}/agent-0.3-{os.uname().nodename}.blk" in said
    assert "--level 0.003 --period-s 0.5 --words 1000 --seed 7 --phase-s 0" in said
    assert "--core" not in said


def test_a_node_that_does_not_see_the_folder_has_noise_all_the_same(program, tmp_path):
    run(run_sources.recorded_source("x", 0.01, 1, 1000, 7, aligned=False), tmp_path / "nowhere")
    said = program.read_text()
    assert "--record" not in said
    assert "--unsync" in said


def test_several_sources_run_side_by_side_each_on_its_core(program, tmp_path):
    run(run_sources.recorded_source("apart", 0.01, 1, 1000, 7, aligned=False, cores=(0, 2)), tmp_path)
    called = sorted(program.read_text().splitlines())
    assert ["--core 0" in line for line in called] == [True, False]
    assert ["--core 2" in line for line in called] == [False, True]
    assert len({line.partition("--record")[2] for line in called}) == 2


def cpus(tmp_path, monkeypatch, cores):
    """A machine whose CPU k is a thread of the core cores[k]."""
    for cpu, core in enumerate(cores):
        topology = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text("0\n")
        (topology / "core_id").write_text(f"{core}\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(len(cores))))


def test_ranks_have_a_core_each_while_there_are_cores(tmp_path, monkeypatch):
    cpus(tmp_path, monkeypatch, (0, 0, 1, 1))
    assert run_sources.rank_cpus(1, tmp_path) == (0,)
    assert run_sources.rank_cpus(2, tmp_path) == (0, 2)
    assert run_sources.rank_cpus(3, tmp_path) == (0, 2, 1)
    assert run_sources.rank_cpus(9, tmp_path) == (0, 2, 1, 3)


def test_cpus_whose_core_is_not_reported_count_as_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert run_sources.rank_cpus(2, tmp_path) == (3, 5)
