"""`sonde noise run` as a user starts it, with whatever may go wrong: what is said, what is saved, what is left."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import noise_runs
from sonde.core import dataset
from sonde.core.errors import Exit, SondeError
from sonde.core.launch.mpirun import Mpirun
from sonde.core.launch.start import prepare
from sonde.noise.agents.recipes import AgentPlan
from sonde.noise.detector import verdict
from sonde.noise.detector.plan import OFF, Design, Plan, Variant
from sonde.noise.detector.run import Request, measure
from sonde_shell import Shell, Typed, finish
from watching import wait_for

IDLE = "while :; do sleep 0.1; done"
SHORT = ("--period", "1s", "--budget", "60s", "--seed", "1")  # ended by the test long before


def show_is_sound(typed: Typed, path: Path) -> dict:
    """What `noise show` says of a dataset that must be readable."""
    assert dataset.validate(path) == []
    return typed("--json", "noise", "show", path).expect(0).json


def blocks_written(cwd: Path) -> int:
    """A block's record has more than 4 KiB; the calibration is one as well."""
    sizes = [path.stat().st_size for path in cwd.glob("*.run/rank-00000.blk")]
    return max(sizes, default=0) // 4096 - 1


def started(sonde: Shell, name: str) -> list[int]:
    return sorted(pid for pid, program in sonde.processes().items() if Path(program).name == name)


# ---- what is refused, before anything is started


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "no agent was given to measure"),
        (("--level", "1%", "--agent", "true"), 2, "--level and --agent were both given"),
        (("--level", "200%"), 2, "'200%' is not a share"),
        (("--level", "-1%"), 2, "'-1%' is not a share"),
        (("--level", "nan"), 2, "'nan' is not a share"),
        (("--level", "1%", "--op", "gather"), 2, "nearest: allgather"),
        (("--level", "1%", "--compare", "nowhere"), 2, "there is no placement 'nowhere'"),
        (("--level", "0", "--compare", "pinned,free"), 2, "--compare needs an agent or a noise source"),
        (("--level", "1%", "--cpus", "a-b"), 2, "is not a list of CPUs"),
        (("--level", "1%", "--ntasks", "1"), 2, "two ranks"),
        (("--agent", "no-such-agent", "--budget", "5s"), 4, "give --budget"),
        (("--level", "1%", "--period", "30s", "--budget", "60s"), 4, "a verdict needs at least"),
    ],
)
@pytest.mark.mpi
def test_what_cannot_be_measured_is_refused_at_once(typed, words, code, said):
    ran = typed("noise", "run", *words).expect(code)
    assert said in ran.said
    assert ran.out == ""
    assert list(typed.cwd.iterdir()) == []


@pytest.mark.mpi
def test_the_budget_that_is_named_is_enough(typed):
    error = typed("--json", "noise", "run", "--level", "1%", "--period", "7s", "--budget", "30s").expect(4)
    needed = error.json["error"]["hint"].split("--budget ")[1].split()[0]
    dry = typed("--json", "noise", "run", "--level", "1%", "--period", "7s", "--budget", needed, "--dry-run")
    assert dry.expect(0).json["blocks"] >= 12
    assert list(typed.cwd.iterdir()) == []


@pytest.mark.mpi
def test_a_dry_run_says_what_it_would_do_and_does_nothing(sonde):
    ran = sonde("--json", "noise", "run", "--agent", "sleep 100", "--period", "2s", "--dry-run").expect(0)
    assert ran.json["block_s"] == 2
    assert ran.json["periods_s"] == [2]
    assert "sonde-noise" in ran.json["command"]
    assert shlex.split(ran.json["command"])
    assert list(sonde.cwd.iterdir()) == []
    assert sonde.left() == []


# ---- whole runs


@pytest.mark.alone
@pytest.mark.parametrize("level", ["1%", pytest.param("0", marks=pytest.mark.slow)])
def test_a_level_is_measured_and_reported(sonde_mpi, level, typed):
    ran = sonde_mpi(
        "--json", "noise", "run", "--level", level, "--period", "0.1s", "--budget", "24s", "-o", "a.nc"
    )
    assert ran.code in (0, 1, 4), ran.err  # what is found depends on the machine
    said = ran.json
    for key in ("detected", "alpha", "slowdown_pct", "ci_pct", "p", "mde_pct", "seconds", "noisy_rank"):
        assert key in said, key
    assert isinstance(said["detected"], bool)
    assert said["alpha"] == 0.01
    assert 0 < said["p"] <= 1
    assert said["detected"] == (said["seconds"] is not None)
    assert len(said["ci_pct"]) == 2
    assert said["stop_reason"] in ("epochs", "converged", "budget")
    assert sonde_mpi.left() == []
    assert [path.name for path in sonde_mpi.cwd.iterdir()] == ["a.nc"]
    shown = show_is_sound(typed, sonde_mpi.cwd / "a.nc")
    assert shown["p"] == said["p"]
    with dataset.open(sonde_mpi.cwd / "a.nc") as tree:
        raw = tree["raw"].to_dataset()
        on = raw["variant"].values == 1
        if noise_runs.ran_out_of_time(said):
            assert said["detected"] is False
            return
        assert min(on.sum(), (~on).sum()) >= 3
        if level != "0":
            # It worked in its own blocks, and not in the others.
            cpu = raw["agent_cpu"].values[0]
            assert np.nanmedian(cpu[on]) > 5 * max(np.nanmedian(cpu[~on]), 1e-9)


# ---- agents that misbehave


def test_an_agent_that_does_not_start_is_reported_with_its_log(sonde_mpi):
    agent = "echo the port is taken >&2; exit 4"
    ran = sonde_mpi("noise", "run", "--agent", agent, *SHORT).expect(3)
    assert "the agent ended at once, with exit status 4" in ran.said
    assert "the port is taken" in ran.said
    assert sonde_mpi.left() == []
    assert list(sonde_mpi.cwd.iterdir()) == []


def test_an_agent_that_is_not_there_is_reported(sonde_mpi):
    ran = sonde_mpi("noise", "run", "--agent", "/no/such/agent", *SHORT).expect(3)
    assert "127" in ran.said
    assert "on PATH on every node" in ran.said
    assert list(sonde_mpi.cwd.iterdir()) == []


def test_an_agent_that_dies_in_the_middle_leaves_what_was_measured(sonde_mpi, typed):
    marker = sonde_mpi.cwd / "die"
    agent = f"echo my last words; while [ ! -e {marker} ]; do sleep 0.1; done; exit 3"
    process = sonde_mpi.start("noise", "run", "--agent", agent, *SHORT, "-o", "a.nc")
    assert wait_for(lambda: blocks_written(sonde_mpi.cwd) >= 3)
    marker.touch()
    ran = finish(process).expect(3)
    assert "the agent died by itself, with exit status 3" in ran.said
    assert "my last words" in ran.said
    assert "the partial results are in a.nc" in ran.said
    assert sonde_mpi.left() == []
    shown = show_is_sound(typed, sonde_mpi.cwd / "a.nc")
    assert shown["stop_reason"] == "failed"


# ---- ends that nobody wished for


def test_ctrl_c_in_a_block_saves_what_was_measured(sonde_mpi, typed):
    process = sonde_mpi.start("noise", "run", "--agent", IDLE, *SHORT, "-o", "a.nc")
    assert wait_for(lambda: blocks_written(sonde_mpi.cwd) >= 4)
    os.killpg(process.pid, signal.SIGINT)
    finish(process).expect(Exit.INTERRUPTED)
    assert sonde_mpi.left() == []
    assert show_is_sound(typed, sonde_mpi.cwd / "a.nc")["stop_reason"] == "interrupted"


def test_ctrl_c_before_the_first_block_leaves_no_file(sonde_mpi):
    process = sonde_mpi.start("noise", "run", "--agent", IDLE, *SHORT, "-o", "a.nc")
    assert wait_for(lambda: started(sonde_mpi, "sonde-noise"))
    os.killpg(process.pid, signal.SIGINT)
    finish(process).expect(Exit.INTERRUPTED)
    assert sonde_mpi.left() == []
    assert list(sonde_mpi.cwd.iterdir()) == []


@pytest.mark.parametrize("killed", ["sonde", "launcher", "rank"])
def test_kill_9_leaves_nobody_behind(sonde_mpi, killed, typed):
    # Daemons of its own, and one that is asleep when it is paused.
    agent = f"(setsid sleep 1000 &); {IDLE}"
    process = sonde_mpi.start("noise", "run", "--agent", agent, *SHORT, "-o", "a.nc")
    assert wait_for(lambda: blocks_written(sonde_mpi.cwd) >= 4)
    victim = {
        "sonde": lambda: process.pid,
        "launcher": lambda: sonde_mpi.launchers()[0],
        "rank": lambda: started(sonde_mpi, "sonde-noise")[0],
    }[killed]()
    os.kill(victim, signal.SIGKILL)
    finish(process)
    assert sonde_mpi.left() == []
    path = sonde_mpi.cwd / "a.nc"
    if killed == "sonde":
        assert not path.exists()
        assert typed("data", "recover", sonde_mpi.cwd / "a.run").code == Exit.INCOMPLETE
    else:
        assert process.returncode == Exit.ENVIRONMENT
    said = show_is_sound(typed, path)
    assert said["stop_reason"] == ("killed" if killed == "sonde" else "failed")


@pytest.mark.root
def test_a_full_disk_is_reported_and_nobody_is_left(sonde_mpi):
    folder = sonde_mpi.cwd / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    try:
        ran = sonde_mpi("noise", "run", "--agent", IDLE, "--keep", *SHORT, "-o", folder / "a.nc").expect(3)
        assert "no space" in ran.said.lower() or "disk" in ran.said.lower()
        assert sonde_mpi.left() == []
    finally:
        subprocess.run(["umount", str(folder)], check=True)


# ---- shorter blocks than a user may ask for


class Silent:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def show(self, event):
        pass


def short_run(mpirun: Mpirun, folder: Path, agent: AgentPlan | None, ntasks: int = 2, rounds=(3, 3), **more):
    """A run with blocks of 0.2 s."""
    spend = tuple(1 / len(rounds) for _ in rounds)
    design = Design(rounds, spend, 0.2, 0.02, (0.1,))
    plan = Plan((OFF, Variant("agent", agent)), design, ntasks, period_s=0.1, **more)
    start = prepare("noise", "sonde-noise", "mpirun", ())
    return measure(Request(plan, start, folder / "a.nc", ("test",), None, time.monotonic(), 60.0), Silent())


def carriers(text: str) -> list[int]:
    """Processes with this text in their environment or on their command line, but for this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if text.encode() in (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def test_an_agent_that_somebody_lets_go_is_reported(mpirun, tmp_path):
    """As a supervisor would that sees its service stopped; the run compares the agent with itself."""
    told = tmp_path / "pid"
    agent = AgentPlan(
        f"echo $$ > {told}.new; mv {told}.new {told}; while :; do :; done", ready=f"file:{told}"
    )
    over = threading.Event()

    def let_go() -> None:
        while not over.wait(0.02):
            with suppress(FileNotFoundError, ProcessLookupError):
                os.kill(int(told.read_text()), signal.SIGCONT)

    supervisor = threading.Thread(target=let_go)
    supervisor.start()
    try:
        done = short_run(mpirun, tmp_path, agent, rounds=(3,)).check()
        with dataset.open(done.paths[0]) as tree:
            codes = [warning.code for warning in verdict.warnings(tree["summary"].to_dataset().load())]
    except (
        SondeError
    ) as error:  # where it is let go while the keeper looks whether it is paused, the run ends there
        codes = [error.code]
    finally:
        over.set()
        supervisor.join()
    assert "noise.agent_not_paused" in codes


@pytest.mark.parametrize("pause", ["stop-cont", "start-stop"])
def test_what_an_agent_leaves_behind_is_ended_with_it(mpirun, tmp_path, monkeypatch, pause):
    monkeypatch.setenv("SONDE_TEST_DAEMON", str(tmp_path))
    code = "import os, time; os.fork() and os._exit(0); os.setsid(); time.sleep(999)"
    daemon = shlex.join([sys.executable, "-c", code])
    agent = AgentPlan(f"({daemon}); {IDLE}", ready="for:0.3").with_changes(pause=pause)
    done = short_run(mpirun, tmp_path, agent).check()
    assert done.stop_reason in ("epochs", "converged")
    assert wait_for(lambda: not carriers(f"SONDE_TEST_DAEMON={tmp_path}"), 10)
    assert dataset.validate(done.paths[0]) == []


def test_more_ranks_than_cores_are_warned_of_stored_and_end(mpirun, tmp_path):
    ranks = 2 * len(os.sched_getaffinity(0))
    done = short_run(mpirun, tmp_path, None, ranks, rounds=(3,)).check()
    with dataset.open(done.paths[0]) as tree:
        assert tree.attrs["oversubscribed"] == 1
        assert "noise.oversubscribed" in {warning.code for warning in dataset.warnings_of(tree)}
        raw = tree["raw"].to_dataset()
        assert raw.sizes["rank"] == ranks
        assert (raw["status"] == 1).sum() == 6


@pytest.mark.parametrize("op", ["barrier", "allreduce", "bcast", "reduce", "allgather", "halo"])
def test_every_operation_is_timed(mpirun, tmp_path, op):
    done = short_run(mpirun, tmp_path, None, rounds=(3,), op=op, size=0 if op == "barrier" else 64).check()
    with dataset.open(done.paths[0]) as tree:
        assert (tree["raw/iterations"].values > 0).all()
        assert np.isfinite(float(tree["summary/clean_iteration"]))


def test_an_agent_on_a_cpu_that_is_not_there_is_reported(mpirun, tmp_path):
    plan = Plan(
        (OFF, Variant("agent", AgentPlan(IDLE, ready="for:0.05"), (4095,))),
        Design((3,), (1.0,), 0.2, 0.02, (0.1,)),
        2,
    )
    start = prepare("noise", "sonde-noise", "mpirun", ())
    with pytest.raises(SondeError, match="4095") as caught:
        measure(Request(plan, start, tmp_path / "a.nc", ("test",), None, time.monotonic(), 60.0), Silent())
    assert caught.value.code == "noise.agent_bad_cpus"
    assert list(tmp_path.iterdir()) == []
