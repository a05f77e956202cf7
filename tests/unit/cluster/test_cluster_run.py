"""What is kept of clusters in their folders, and what is said of those that are not there; nothing is built."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sonde.cluster import plan, run, run_state
from sonde.cluster.run import Cluster
from sonde.cluster.run_state import Kept, Reaper
from sonde.core.errors import EnvironmentFailure, UsageError


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch) -> Path:
    """Where clusters are kept, in a folder of the test's own."""
    folder = tmp_path / "clusters"
    monkeypatch.setattr(run_state, "STATE", folder)
    monkeypatch.setattr(run, "check_here", lambda: None)
    return folder


@pytest.fixture
def child():
    """A process that is alive, and no reaper of any cluster."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


CREATED = "2026-01-01T00:00:00+00:00"


def leave(state: Path, name: str, pid: int, complete: bool = True, space: str = "") -> Path:
    """What an `up` writes that was killed, or whose reaper was."""
    folder = state / name
    folder.mkdir(parents=True)
    where = space or os.readlink("/proc/self/ns/pid")
    run_state.store(folder, Kept(plan.plan(name, 2), Reaper(pid, 1), complete, CREATED, where))
    (folder / "hosts").write_text("")
    return folder


def test_what_is_kept_is_read_back(state):
    folder = leave(state, "a", 4711, space="pid:[1]")
    assert run_state.kept_in(folder) == Kept(plan.plan("a", 2), Reaper(4711, 1), True, CREATED, "pid:[1]")
    assert run_state.names() == ["a"]


@pytest.mark.parametrize(
    "text", ["", "{", "{}", "[]", '{"pid": "x"}', '{"plan": {}, "pid": 1, "started": 1}']
)
def test_what_is_no_state_is_none(state, text):
    folder = leave(state, "a", 1)
    (folder / "state.json").write_text(text)
    assert run_state.kept_in(folder) is None


def test_a_process_that_is_no_reaper_is_never_taken_for_one(state, child):
    assert Reaper.of(child.pid) is None
    assert Reaper.of(os.getpid()) is None
    started = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
    theirs = Reaper(child.pid, started)
    assert not theirs.alive
    theirs.end()
    assert child.poll() is None


@pytest.mark.parametrize("complete", [True, False])
def test_what_is_left_is_removed_and_nobody_else_is_ended(state, child, complete):
    leave(state, "a", child.pid, complete)
    assert run.stale() == ["a"]
    assert run.down("a") == "removed"
    assert child.poll() is None
    assert not state.exists()
    assert run.down("a") == "none"


def test_a_folder_without_a_state_is_removed(state):
    (state / "a").mkdir(parents=True)
    (state / "b").mkdir()
    assert run.down("a") == "removed"
    assert run_state.names() == ["b"]


def test_a_cluster_that_is_not_there_is_reported_with_the_nearest(state):
    leave(state, "io-study", 1)
    with pytest.raises(UsageError) as caught:
        Cluster.find("io-studi")
    assert caught.value.code == "cluster.unknown"
    assert "nearest: io-study" in caught.value.what
    with pytest.raises(EnvironmentFailure) as gone:
        Cluster.find("io-study")
    assert gone.value.code == "cluster.gone"
    assert "cluster down --name io-study" in gone.value.hint


@pytest.mark.parametrize("looks", [0, 1, 2, 3])
def test_a_cluster_whose_reaper_ends_while_it_is_looked_for_is_not_found(state, monkeypatch, looks):
    """Its `up` was killed, and the reaper is just about to notice."""
    leave(state, "a", 1, complete=False)
    said = iter([True] * looks)
    monkeypatch.setattr(Reaper, "alive", property(lambda reaper: next(said, False)))
    with pytest.raises(EnvironmentFailure) as caught:
        Cluster.find("a")
    assert caught.value.code == ("cluster.building" if looks else "cluster.gone")


def test_a_cluster_of_another_pid_namespace_is_left_alone(state):
    """Its reaper has another number here, or none, which says nothing of it."""
    folder = leave(state, "a", 1, space="pid:[1]")
    for do in (lambda: Cluster.find("a"), lambda: run.down("a"), lambda: Cluster.up("a", 2)):
        with pytest.raises(EnvironmentFailure) as caught:
            do()
        assert caught.value.code == "cluster.elsewhere"
        assert str(folder) in caught.value.hint
    assert run.stale() == []
    assert run_state.kept_in(folder)


def test_two_commands_do_not_build_and_end_the_same_cluster_at_once(state, monkeypatch):
    monkeypatch.setattr(run_state, "_LOCK_S", 0.2)
    leave(state, "a", 1)
    with run_state.held("a", make=False) as folder:
        assert folder == state / "a"
        with pytest.raises(EnvironmentFailure) as caught:
            run.down("a")
        assert caught.value.code == "cluster.busy"
    assert run.down("a") == "removed"


def test_who_waited_for_a_folder_that_went_makes_it_again(state):
    leave(state, "a", 1)
    order: list[str] = []

    def second() -> None:
        with run_state.held("a", make=True) as folder:
            assert folder
            assert folder.is_dir()
            order.append("second")
            (folder / "x").touch()

    with run_state.held("a", make=False) as folder:
        assert folder
        other = threading.Thread(target=second)
        other.start()
        time.sleep(0.2)
        order.append("first")
        run_state.remove_files(folder)
    other.join(30)
    assert order == ["first", "second"]
    assert (state / "a" / "x").exists()


def test_an_empty_folder_goes_with_its_lock(state):
    with run_state.held("a", make=True):
        assert (state / "a").is_dir()
    assert not state.exists()


def test_the_lock_goes_with_a_process_that_is_killed(state):
    leave(state, "a", 1)
    code = (
        "import sys, time; from pathlib import Path; from sonde.cluster import run_state\n"
        "run_state.STATE = Path(sys.argv[1])\n"
        "with run_state.held('a', make=True): print('held', flush=True); time.sleep(1000)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(state)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        other.kill()
    assert run.down("a") == "removed"


@pytest.mark.parametrize(
    ("what", "text", "code"),
    [
        ("tc", "Error: Specified qdisc kind is unknown.\nCommand failed -:1", "cluster.no_kernel"),
        ("ip", "Error: Unknown device type.\nCommand failed -:2", "cluster.no_kernel"),
        ("ip", "RTNETLINK answers: Operation not supported", "cluster.no_kernel"),
        ("mount of /dev/shm", "Permission denied", "cluster.not_built"),
    ],
)
def test_what_the_kernel_refuses_is_reported(what, text, code):
    error = run._refused(what, text)
    assert error.code == code
    assert "Command failed" not in error.what


def test_root_and_programs_are_asked_for(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EnvironmentFailure) as caught:
        run.check_here()
    assert caught.value.code == "cluster.no_permission"
    assert "this process is user 1000" in caught.value.what
    assert "sudo" in caught.value.hint


def test_lacking_capabilities_are_named(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(run, "status_field", lambda pid, name: "0000000000001000")  # CAP_NET_ADMIN alone
    with pytest.raises(EnvironmentFailure) as caught:
        run.check_here()
    assert "has no CAP_SYS_CHROOT, CAP_SYS_PTRACE, CAP_SYS_ADMIN" in caught.value.what


def test_a_missing_program_is_named_with_its_package(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(run, "status_field", lambda pid, name: "f" * 16)
    monkeypatch.setattr(run.shutil, "which", lambda name, path: None if name == "tc" else f"/{name}")
    with pytest.raises(EnvironmentFailure) as caught:
        run.check_here()
    assert caught.value.code == "cluster.no_program"
    assert "'tc'" in caught.value.what
    assert "iproute" in caught.value.hint


def test_a_state_folder_that_cannot_be_made_is_reported(state, tmp_path):
    state.write_text("a file")
    with pytest.raises(EnvironmentFailure) as caught, run_state.held("a", make=True):
        pass
    assert caught.value.code == "core.cannot_write"
    assert json.dumps(caught.value.what)
