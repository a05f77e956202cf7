"""One run of a made-up room: a probe that is a script, from its start to the dataset or to nothing."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
import threading
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fakeroom
import numpy as np
import pytest

from sonde import _core
from sonde.core import dataset, run_folder, seal
from sonde.core.errors import EnvironmentFailure, Interrupted, SondeError, Warning, typed
from sonde.core.events import Event, NullProgress
from sonde.core.launch import Placement, session, with_environment
from sonde.core.launch.measured import Measured
from sonde.core.launch.mpirun import Mpi
from sonde.core.launch.process import Ending
from sonde.core.launch.session import Job
from sonde.core.launch.start import Start

MPI = Mpi("openmpi", "Open MPI", "4.1.4", Path("/opt/openmpi/bin/mpirun"))

# What every script below can say. `measure` writes `count` epochs of the room's records, which were prepared: a script
# that imports no library starts at once.
PROBE = """
import json, os, shutil, sys, time
folder, time_s = sys.argv[1], float(sys.argv[2])

def say(event, **keys):
    print(json.dumps({"event": event, **keys}), flush=True)

def start(**keys):
    say("start", **{"ranks": 1, "mpi": "none", "mpi_version": "Lab 1.0", "oversubscribed": False, **keys})

def end(reason="converged", dropped=0):
    say("end", stop_reason=reason, samples=8, elapsed_s=0.1, dropped=dropped)

def measure(count=1):
    shutil.copyfile(f"{PREPARED}/{count}.blk", f"{folder}/rank-00000.blk")

def wait_for_stop():
    sys.stdin.readline()
"""


class Plain:
    """A launcher that starts the script in this Python, once however many ranks."""

    name = "plain"

    def placement(self, hosts: Sequence[str], ntasks: int) -> Placement:
        return Placement("core", False, "one script")

    def command(
        self, argv: Sequence[str], hosts: Sequence[str], ntasks: int, env: Mapping[str, str]
    ) -> list[str]:
        return with_environment([sys.executable, *argv], env)

    def inject(self, user_command: Sequence[str], env: Mapping[str, str]) -> list[str]:
        return list(user_command)

    def per_host(self, argv: Sequence[str], hosts: Sequence[str]) -> list[list[str]]:
        return [list(argv)]


class Listener(session.Listener):
    room = "lab"
    crowded = ("so it hurts", "take fewer")
    dropped = ("samples", "ask for less")

    def __init__(self) -> None:
        super().__init__(NullProgress())
        self.looks: list[int] = []

    def take(self, event: Event) -> None:
        super().take(event)
        match event["event"]:
            case "look":
                self.looks.append(event["number"])
                self.attrs["looks"] = len(self.looks)
            case "enough":
                self.stop()
            case "ready":
                os.kill(os.getpid(), signal.SIGINT)


START = {"event": "start", "ranks": 4, "mpi": "x", "mpi_version": "Lab 1.0", "oversubscribed": True}
END = {"event": "end", "stop_reason": "budget", "samples": 1, "elapsed_s": 1.0, "dropped": 5}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A folder with the block files of 0 and of 1 epoch, written as probes do."""
    folder = tmp_path_factory.mktemp("prepared")
    for count in (0, 1):
        head = json.dumps({"fields": fakeroom.FIELDS, "rank": 0, "host": "n001"})
        writer = _core.BlockWriter(str(folder / f"{count}.blk"), head, fakeroom.RECORD.itemsize, 1 << 16)
        if count:
            writer.append(fakeroom.bursts(0, 2, count))
        writer.close()
    return folder


@pytest.fixture
def job(tmp_path, prepared):
    def make(script: str, **changes: Any) -> Job:
        path = tmp_path / "probe.py"
        path.write_text(PROBE.replace("{PREPARED}", str(prepared), 1) + textwrap.dedent(script))
        told: dict[str, Any] = {
            "schema": fakeroom.SCHEMA,
            "start": Start(Plain(), (), path, MPI),
            "ntasks": 1,
            "words": lambda run_dir, time_s: [run_dir, f"{time_s:g}"],
            "plan": {"ranks": 1, "cells": [0, 100], "parts": [""]},
            "out": tmp_path / "a.nc",
            "command": ("sonde", "lab", "run"),
            "seed": 7,
            "time_s": lambda: 20.0,
            **changes,
        }
        return Job(**told)

    return make


def codes(warnings: Sequence[Warning]) -> list[str]:
    return [warning.code for warning in warnings]


class TestRun:
    def test_what_was_measured_becomes_a_dataset(self, job, tmp_path):
        listener = Listener()
        script = "start(clock_cost_s=2e-8)\nsay('look', number=3)\nmeasure()\nend()"
        asked = job(
            script,
            attrs={"quick": True, "transport": "mine"},
            env={"LAB": "1"},
            warnings=[Warning("lab.early", "", "")],
        )
        measured = session.run(asked, listener)
        assert (measured.stop_reason, measured.interrupted, measured.error) == ("converged", False, None)
        assert measured.paths == [tmp_path / "a.nc"]
        assert measured.check() is measured
        assert listener.looks == [3]
        assert not asked.run_dir.exists()
        with dataset.open(tmp_path / "a.nc") as tree:
            attrs = tree.attrs
            assert attrs["stop_reason"] == "converged"
            assert attrs["schema"] == "lab/1"
            assert attrs["command"] == "sonde lab run"
            assert (attrs["seed"], attrs["launcher"], attrs["binding"]) == (7, "plain", "core")
            assert (attrs["quick"], attrs["oversubscribed"], attrs["looks"]) == (1, 0, 1)
            assert attrs["transport"] == "mine"  # the room knows better
            assert (attrs["mpi_library"], attrs["clock_cost_s"]) == ("Lab 1.0", 2e-8)
            assert tree["env"].attrs["LAB"] == "1"
            assert list(tree["warnings"]["code"].values) == ["lab.early"]

    def test_the_probe_is_told_how_long_it_has_when_it_starts(self, job):
        asked: list[str] = []

        def left() -> float:
            asked.append("time")
            return 12.5

        def words(run_dir: str, time_s: float) -> list[str]:
            asked.append(f"{time_s:g}")
            return [run_dir, f"{time_s:g}"]

        session.run(
            job("assert time_s == 12.5\nstart()\nmeasure()\nend()", time_s=left, words=words), Listener()
        )
        assert asked == ["time", "12.5"]

    def test_a_line_to_show_needs_no_folder(self, job, tmp_path):
        asked = job("", env={"LAB": "1"})
        assert asked.line(3.0) == [
            "env",
            "LAB=1",
            sys.executable,
            str(tmp_path / "probe.py"),
            str(tmp_path / "a.run"),
            "3",
        ]
        assert not asked.run_dir.exists()

    def test_an_error_before_the_start_leaves_nothing(self, job, tmp_path):
        script = "say('error', code='lab.no_disk', what='no disk', hint='buy one')\nsys.exit(3)"
        with pytest.raises(EnvironmentFailure) as told:
            session.run(job(script), Listener())
        assert (told.value.code, told.value.hint) == ("lab.no_disk", "buy one")
        assert told.value.log == ""  # it is gone with its folder
        assert sorted(path.name for path in tmp_path.iterdir()) == ["probe.py"]

    def test_an_error_without_a_hint_does_not_send_to_a_log_that_is_gone(self, job, tmp_path):
        script = "print('noise of a launcher')\nsay('error', code='lab.no_disk', what='no disk', hint='')\nsys.exit(3)"
        with pytest.raises(EnvironmentFailure) as told:
            session.run(job(script), Listener())
        assert (told.value.what, told.value.hint, told.value.log) == ("no disk", "", "")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["probe.py"]

    def test_silence_before_the_start_leaves_the_end_of_the_log_in_the_error(self, job, tmp_path):
        script = "print('cannot reach n7', flush=True)\nwait_for_stop()"
        with pytest.raises(EnvironmentFailure) as told:
            session.run(job(script, timeout_s=0.5), Listener())
        assert told.value.code == "lab.peer_timeout"
        assert told.value.hint == f"{Listener.patience}; the log ends with\n    cannot reach n7"
        assert told.value.log == ""
        assert sorted(path.name for path in tmp_path.iterdir()) == ["probe.py"]

    def test_a_crash_before_the_start_is_reported_with_the_rooms_code(self, job, tmp_path):
        with pytest.raises(EnvironmentFailure) as told:
            session.run(job("sys.exit('it broke')"), Listener())
        assert told.value.code == "lab.failed"
        assert told.value.hint == "the log ended with\n    it broke"
        assert told.value.log == ""
        assert sorted(path.name for path in tmp_path.iterdir()) == ["probe.py"]

    def test_a_crash_later_keeps_what_was_measured(self, job, tmp_path):
        measured = session.run(job("start()\nmeasure()\nos.kill(os.getpid(), 9)"), Listener())
        assert measured.stop_reason == "failed"
        assert measured.error is not None
        assert measured.error.log == ""  # it went when the dataset was whole
        assert "see the log" not in measured.error.hint
        with pytest.raises(SondeError) as told:
            measured.check()
        assert told.value.hint.startswith(f"the partial results are in {tmp_path / 'a.nc'}; ")

    def test_a_folder_of_another_run_stops_it_before_it_starts(self, job):
        asked = job("start()\nmeasure()\nend()")
        asked.run_dir.mkdir()
        with pytest.raises(EnvironmentFailure) as told:
            session.run(asked, Listener())
        assert told.value.code == "core.cannot_write"
        assert list(asked.run_dir.iterdir()) == []


class TestInterrupted:
    def test_ctrl_c_asks_the_probe_to_finish_and_saves(self, job):
        before = signal.getsignal(signal.SIGINT)
        script = "start()\nmeasure()\nsay('ready')\nwait_for_stop()\nend('interrupted')"
        measured = session.run(job(script), Listener())
        assert (measured.stop_reason, measured.interrupted, measured.error) == ("interrupted", True, None)
        assert signal.getsignal(signal.SIGINT) is before

    @pytest.mark.parametrize("left", ["", "measure(0)\n"])
    def test_before_a_sample_nothing_is_left(self, job, tmp_path, left):
        script = f"start()\n{left}say('ready')\nwait_for_stop()\nend('interrupted')"
        with pytest.raises(Interrupted) as told:
            session.run(job(script), Listener())
        assert told.value.code == "lab.interrupted"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["probe.py"]

    def test_before_the_probe_listens(self, job, tmp_path):
        def too_soon(run_dir: str, time_s: float) -> list[str]:
            raise KeyboardInterrupt

        with pytest.raises(Interrupted) as told:
            session.run(job("", words=too_soon), Listener())
        assert told.value.code == "lab.interrupted"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["probe.py"]

    def test_while_the_folder_is_made(self, job, tmp_path, monkeypatch):
        write = run_folder._write

        def signalled(folder: Path, run: run_folder.Run) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            write(folder, run)

        monkeypatch.setattr(run_folder, "_write", signalled)
        with pytest.raises(Interrupted) as told:
            session.run(job("start()\nwait_for_stop()\nend('interrupted')"), Listener())
        assert told.value.code == "lab.interrupted"
        assert [path.name for path in tmp_path.iterdir()] == ["probe.py"]

    def test_another_runs_folder_is_let_be(self, job, monkeypatch):
        asked = job("")
        asked.run_dir.mkdir()
        (asked.run_dir / run_folder.RUN_FILE).write_text("{}")

        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(run_folder, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.run(asked, Listener())
        assert (asked.run_dir / run_folder.RUN_FILE).exists()

    def test_between_the_first_look_at_signals_and_the_start_of_the_probe(self, job, tmp_path):
        class Sooner(NullProgress):
            def __enter__(self):
                os.kill(os.getpid(), signal.SIGINT)
                return super().__enter__()

        listener = Listener()
        listener.progress = Sooner()
        with pytest.raises(Interrupted):
            session.run(job("start()\nwait_for_stop()\nend('interrupted')"), listener)
        assert [path.name for path in tmp_path.iterdir()] == ["probe.py"]

    def test_while_it_is_saved_samples_stay_for_recover(self, job, monkeypatch):
        def too_late(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(seal, "seal", too_late)
        asked = job("start()\nmeasure()\nend()")
        with pytest.raises(Interrupted) as told:
            session.run(asked, Listener())
        assert str(asked.run_dir) in told.value.what
        assert told.value.hint == typed("sonde", "data", "recover", asked.run_dir)
        assert not session.nothing_in(asked.run_dir, None)

    def test_ctrl_c_while_it_is_saved_waits_for_a_place_to_leave(self, job):
        said: list[str] = []

        def step(name: str) -> None:
            said.append(name)
            if name == "layout":
                os.kill(os.getpid(), signal.SIGINT)
                said.append("went on")

        asked = job("start()\nmeasure()\nend()", schema=fakeroom.Lab(step))
        with pytest.raises(Interrupted) as told:
            session.run(asked, Listener())
        assert "went on" in said
        assert "analyse" not in said
        assert told.value.hint == typed("sonde", "data", "recover", asked.run_dir)
        assert not list(asked.out.parent.glob("*.part"))
        assert len(seal.seal(asked.run_dir, asked.out, fakeroom.Lab())) == 1

    def test_ctrl_c_when_the_rest_is_quick_gets_the_dataset(self, job):
        def step(name: str) -> None:
            if name == "analyse":
                os.kill(os.getpid(), signal.SIGINT)

        asked = job("start()\nmeasure()\nend()", schema=fakeroom.Lab(step))
        measured = session.run(asked, Listener())
        assert (measured.stop_reason, measured.interrupted, measured.error) == ("converged", True, None)
        assert "median" in dataset.open(asked.out)["summary"]

    def test_a_second_one_ends_the_process_at_once_and_says_where_the_samples_are(self, job, capfd):
        def step(name: str) -> None:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGTERM)

        asked = job("start()\nmeasure()\nend()", schema=fakeroom.Lab(step))
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                session.run(asked, Listener())
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
        assert typed("sonde", "data", "recover", asked.run_dir) in capfd.readouterr().err
        assert len(seal.seal(asked.run_dir, asked.out, fakeroom.Lab())) == 1

    def test_ranks_that_were_given_no_time_to_stop_are_not_blamed(self, job):
        script = "start()\nmeasure()\nsay('ready')\nsay('ready')\ntime.sleep(600)"
        measured = session.run(job(script), Listener())
        assert (measured.stop_reason, measured.interrupted, measured.error) == ("interrupted", True, None)

    def test_the_room_may_ask_itself(self, job):
        listener = Listener()
        script = "start()\nmeasure()\nsay('enough')\nwait_for_stop()\nend('settled')"
        measured = session.run(job(script), listener)
        assert (measured.stop_reason, measured.interrupted) == ("settled", False)
        listener.stop()  # nothing is under way

    def test_another_thread_may_run_it_without_signals(self, job):
        kept: list[Measured] = []
        asked = job("start()\nmeasure()\nend()")
        thread = threading.Thread(target=lambda: kept.append(session.run(asked, Listener())))
        thread.start()
        thread.join()
        assert kept[0].stop_reason == "converged"


class TestBeside:
    """What works beside the probe: a server, say."""

    def test_it_is_there_before_the_line_is_made_and_gone_before_the_run_is_sealed(self, job, tmp_path):
        said: list[str] = []

        @contextmanager
        def server(run_dir: Path):
            said.append("up")
            (run_dir / "kept").mkdir()
            yield
            (run_dir / "kept").rmdir()
            said.append("down")

        asked = job(
            "start()\nmeasure()\nend()",
            words=lambda folder, time_s: said.append("line") or [folder, "1"],
            time_s=lambda: said.append("time") or 1.0,
            beside=server,
            schema=fakeroom.Lab(said.append),
        )
        session.run(asked, Listener())
        assert said[:5] == ["up", "time", "line", "down", "layout"]
        assert not asked.run_dir.exists()

    def test_what_does_not_start_leaves_nothing(self, job, tmp_path):
        @contextmanager
        def server(run_dir: Path):
            (run_dir / "log").write_text("no room\n")
            raise EnvironmentFailure(
                "lab.server_failed", "the server did not start", log=str(run_dir / "log")
            )
            yield

        with pytest.raises(EnvironmentFailure) as told:
            session.run(job("start()", beside=server), Listener())
        assert (told.value.code, told.value.log) == ("lab.server_failed", "")
        assert [path.name for path in tmp_path.iterdir()] == ["probe.py"]

    def test_it_ends_when_the_probe_fails(self, job):
        ended = []

        @contextmanager
        def server(run_dir: Path):
            try:
                yield
            finally:
                ended.append(True)

        with pytest.raises(EnvironmentFailure):
            session.run(job("raise SystemExit(3)", beside=server), Listener())
        assert ended == [True]


class TestSilence:
    def test_a_silent_probe_is_stopped_and_said_to_be(self, job):
        measured = session.run(job("start()\nmeasure()\nwait_for_stop()", timeout_s=0.1), Listener())
        assert measured.stop_reason == "timeout"
        assert measured.error is not None
        assert measured.error.code == "lab.peer_timeout"
        assert "--timeout is 0 s" in measured.error.what
        assert measured.error.hint == Listener.patience

    def test_no_limit_of_time_is_none(self, job):
        measured = session.run(
            job("assert time_s == 0\nstart()\nmeasure()\nend()", time_s=lambda: 0.0), Listener()
        )
        assert measured.error is None


class TestListener:
    def test_shared_cores_are_reported_in_the_rooms_words(self):
        listener = Listener()
        listener.take({**START, "ranks_on_node": 4, "forwarding_ranks": 2})
        (warning,) = listener.warnings
        assert warning == Warning(
            "lab.oversubscribed", "4 ranks share fewer cores on a host: so it hurts", "take fewer"
        )
        assert listener.attrs["forwarding_ranks"] == 2

    def test_nodes_of_one_kernel_with_more_ranks_than_cores_are_reported(self):
        listener = Listener()
        event = {"ranks_on_node": 1, "ranks_on_kernel": 4, "kernel_cores": 2, "crowded_kernel": True}
        listener.take({**START, "oversubscribed": False, **event})
        (warning,) = listener.warnings
        assert warning.code == "lab.crowded_kernel"
        assert "have 4 ranks on 2 cores" in warning.evidence
        assert listener.attrs["crowded_kernel"] is True
        assert listener.attrs["oversubscribed"] is False

    def test_an_old_probe_tells_no_clock_cost(self):
        listener = Listener()
        listener.take(START)
        assert listener.attrs["clock_cost_s"] != listener.attrs["clock_cost_s"]  # NaN
        assert "forwarding_ranks" not in listener.attrs

    def test_lost_records_are_reported(self):
        listener = Listener()
        listener.take(END)
        assert listener.warnings == [
            Warning("lab.records_dropped", "5 samples are lost, because there was no room", "ask for less")
        ]

    def test_the_probes_own_warnings_keep_their_codes(self):
        listener = Listener()
        listener.take({"event": "warning", "code": "lab.odd", "evidence": "x", "hint": "y"})
        assert codes(listener.warnings) == ["lab.odd"]

    def test_an_event_of_a_newer_probe_is_nothing(self):
        listener = Listener()
        listener.take({"event": "dance"})
        assert (listener.warnings, listener.attrs, listener.error) == ([], {}, None)

    @pytest.mark.parametrize(
        ("interrupted", "ended", "ending", "reason"),
        [
            (True, END, "done", "interrupted"),
            (False, END, "done", "budget"),
            (False, END, "timeout", "budget"),
            (False, None, "timeout", "timeout"),
            (False, None, "rank_died", "failed"),
        ],
    )
    def test_why_it_ended(self, interrupted, ended, ending, reason):
        listener = Listener()
        listener.interrupted, listener.ended = interrupted, ended
        assert listener.stop_reason(Ending(ending, 0)) == reason


class TestNothingIn:
    def test_kinds_of_records_that_are_no_samples_do_not_count(self, tmp_path):
        fields = [["kind", "<u4", []], ["n", "<u4", []]]
        header = f'{{"fields": {fields!r}, "rank": 0}}'.replace("'", '"')
        writer = _core.BlockWriter(str(tmp_path / "rank-00000.blk"), header, 8, 1 << 16)
        writer.append(np.array([(2, 1), (1, 1)], [("kind", "<u4"), ("n", "<u4")]))
        writer.close()
        assert session.nothing_in(tmp_path, (0,))
        assert not session.nothing_in(tmp_path, (0, 1))
        assert not session.nothing_in(tmp_path, None)

    def test_what_worked_beside_the_ranks_has_no_samples(self, tmp_path):
        header = '{"fields": [["begin", "<f8", []]], "kind": "source"}'
        writer = _core.BlockWriter(str(tmp_path / "agent-1.blk"), header, 8, 1 << 16)
        writer.append(np.zeros(3, [("begin", "<f8")]))
        writer.close()
        assert session.nothing_in(tmp_path, (0,))
        assert not session.nothing_in(tmp_path, None)

    def test_a_file_without_a_head_holds_nothing(self, tmp_path):
        (tmp_path / "rank-00000.blk").write_bytes(b"")
        assert session.nothing_in(tmp_path, None)

    def test_what_somebody_else_keeps_there_is_not_forgotten(self, tmp_path):
        folder = fakeroom.make_run(tmp_path / "a.run", ranks=1)
        (folder / "notes").write_text("mine")
        session.forget(folder)
        assert [path.name for path in folder.iterdir()] == ["notes"]
