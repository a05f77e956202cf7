"""The noise source on real cores: what it records must agree with itself; no time is asserted that others take."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import sonde as library
from sonde.core.blocks import BlockFile
from sonde.core.errors import SondeError
from sonde.core.launch import libexec
from sonde_shell import finish
from watching import wait_for

AGENT = libexec() / "sonde-agent"
FAST = ("--level", "0.02", "--period-s", "0.05")


@pytest.fixture
def agent(tmp_path) -> Iterator:
    """agent("--level", …) starts the program; what is left of it is killed."""
    started: list[subprocess.Popen] = []

    def start(*words: object, stdin=subprocess.DEVNULL) -> subprocess.Popen:
        process = subprocess.Popen(
            [str(AGENT), *map(str, words)], cwd=tmp_path, stdin=stdin, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
        process.kill()
        process.wait()


def records(path: Path) -> np.ndarray:
    """All records that can be read; none when not even the header is there."""
    try:
        pieces = list(BlockFile(path))
    except SondeError:
        return np.zeros(0)
    return np.concatenate(pieces) if pieces else np.zeros(0)


def last_event(out: str) -> dict:
    return json.loads(out.strip().splitlines()[-1])


def points(bursts: np.ndarray, period_s: float) -> np.ndarray:
    """Which point of the grid each burst belongs to, from 0."""
    return np.round((bursts["planned"] - bursts["planned"][0]) / period_s).astype(int)


class TestAgent:
    def test_what_it_records_agrees_with_itself(self, agent, tmp_path):
        words = 5000
        out, _ = agent(
            *FAST, "--words", words, "--duration-s", 1.2, "--record", tmp_path / "a.blk"
        ).communicate(timeout=60)
        bursts = records(tmp_path / "a.blk")
        end = last_event(out)
        assert end["event"] == "end"
        assert end["samples"] == len(bursts) > 0
        assert end["stop_reason"] == "budget"
        whole = bursts[bursts["truncated"] == 0]
        assert (whole["cpu"] >= 0.02 * 0.05).all()
        assert (bursts["begin"] >= bursts["planned"]).all()
        assert (bursts["overhead"] >= 0).all()
        assert (bursts["overhead"] <= bursts["cpu"]).all()
        assert end["truncated"] == int(bursts["truncated"].sum())
        # Word k holds k, and the walk goes on where it stopped: so every sum is known. The first pass is before.
        at = 0
        for burst in bursts:
            n = int(burst["words"])
            rounds, rest = divmod(n, words)
            expected = rounds * (words * (words - 1) // 2) + sum((at + k) % words for k in range(rest))
            assert int(burst["sum"]) == expected
            at = (at + n) % words

    def test_bursts_are_on_the_grid_of_the_clock(self, agent, tmp_path):
        agent(*FAST, "--phase-s", 0.01, "--duration-s", 0.6, "--record", tmp_path / "a.blk").communicate(
            timeout=60
        )
        file = BlockFile(tmp_path / "a.blk")
        real = records(tmp_path / "a.blk")["planned"] + file.header["realtime_ahead_s"]
        off = (real - 0.01) / 0.05
        assert np.abs(off - np.round(off)).max() < 1e-3  # 50 µs: what doubles of this size and NTP leave

    def test_stopped_and_continued_it_skips_and_never_catches_up(self, agent, tmp_path):
        process = agent(*FAST, "--record", tmp_path / "a.blk")
        assert wait_for(lambda: len(records(tmp_path / "a.blk")) > 0)
        for _ in range(2):
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.4)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.3)
        process.terminate()
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        bursts = records(tmp_path / "a.blk")
        end = last_event(out)
        assert end["skipped"] > 0
        where = points(bursts, 0.05)
        assert (np.diff(where) >= 1).all()  # a burst a point at most
        assert (np.diff(where) - 1 == bursts["skipped"][1:]).all()

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_ends_in_order_on_a_signal(self, agent, tmp_path, number):
        process = agent("--level", "0.01", "--period-s", "3600", "--record", tmp_path / "a.blk")
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "start"
        process.send_signal(number)
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        assert last_event(out)["stop_reason"] == "interrupted"
        assert BlockFile(tmp_path / "a.blk").records == 0

    def test_ends_when_stdin_does(self, agent):
        process = agent("--level", "0.01", "--period-s", "3600", "--until-eof", stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0

    def test_killed_it_leaves_what_was_flushed(self, agent, tmp_path):
        process = agent(*FAST, "--record", tmp_path / "a.blk")
        assert wait_for(lambda: len(records(tmp_path / "a.blk")) > 0)
        process.kill()
        process.wait()
        file = BlockFile(tmp_path / "a.blk")
        assert file.records > 0
        assert file.loss is None

    def test_goes_with_its_parent_even_when_stopped(self, tmp_path):
        pid_file = tmp_path / "pid"
        code = (
            "import subprocess,sys,os,signal,time\n"
            f"p=subprocess.Popen([{str(AGENT)!r},'--level','0.01'],stdin=subprocess.DEVNULL,"
            "stdout=subprocess.PIPE)\n"
            "p.stdout.readline()\n"
            "p.send_signal(signal.SIGSTOP)\n"
            f"open({str(pid_file)!r},'w').write(str(p.pid))\n"
            "os.kill(os.getpid(),signal.SIGKILL)\n"
        )
        subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
        pid = int(pid_file.read_text())
        assert wait_for(lambda: not running(pid), 20)

    def test_cap_drops_and_counts(self, agent, tmp_path):
        out, _ = agent(
            *("--level", "0.1", "--period-s", "0.001", "--duration-s", 1.5),
            *("--cap-bytes", 2000, "--record", tmp_path / "a.blk"),
        ).communicate(timeout=60)
        events = [json.loads(line) for line in out.splitlines()]
        assert [e["code"] for e in events if e["event"] == "warning"] == ["core.cap_reached"]
        assert events[-1]["dropped"] > 0
        assert (tmp_path / "a.blk").stat().st_size <= 2000

    @pytest.mark.parametrize(
        ("words", "code", "parts"),
        [
            (("--level", "0"), "noise.bad_level", ("0 %", "100 %")),
            (("--level", "1"), "noise.bad_level", ("100 %",)),
            (("--level", "1e-6", "--period-s", "1e-3"), "noise.level_too_low", ("1.00 ns", "2 %", "20.0 s")),
            (("--level", "0.01", "--core", "999"), "noise.no_such_core", ("999", "may use")),
            (("--level", "0.01", "--words", "0"), "noise.bad_words", ("0 words", "1 to")),
            (("--level", "0.01", "--record", "no/such/a.blk"), "core.cannot_write", ("no/such/a.blk",)),
            (("--volume", "11"), "noise.bad_option", ("--volume",)),
        ],
    )
    def test_refuses_and_says_what_is_possible(self, agent, words, code, parts):
        process = agent(*words)
        out, _ = process.communicate(timeout=30)
        assert process.returncode in (2, 3)
        error = last_event(out)
        assert (error["event"], error["code"]) == ("error", code)
        for part in parts:
            assert part in error["what"] + error["hint"]


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


class TestCommand:
    def test_measures_and_saves(self, sonde, typed):
        ran = sonde(
            "noise", "source", "--level", "2%", "--period", "50ms", "--duration", "1s", "-o", "a.nc", "--json"
        ).expect(0)
        told = ran.json["sources"][0]
        assert told["bursts"] > 0
        assert told["asked"] == 0.02
        assert "requested 2 %, used " in ran.json["verdict"]
        with library.open(sonde.cwd / "a.nc") as tree:
            assert tree.attrs["schema"] == "noise/1"
            assert tree.attrs["kind"] == "source"
            raw = tree["raw"].to_dataset().load()
            n = int(raw["n"][0])
            assert n == told["bursts"]
            whole = raw["truncated"].values[0, :n] == 0
            assert (raw["cpu"].values[0, :n][whole] >= 0.02 * 0.05).all()
        typed("data", "validate", "a.nc").expect(0)
        assert sonde.left() == []
        assert [path.name for path in sonde.cwd.iterdir()] == ["a.nc"]

    def test_on_a_named_host_with_the_launcher_local(self, sonde):
        here = socket.gethostname()
        ran = sonde(
            *("noise", "source", "--level", "2%", "--period", "50ms", "--duration", "500ms", "--unsync"),
            *("--launcher", "local", "--hosts", here, "-o", "a.nc", "--json"),
        ).expect(0)
        assert ran.json["sources"][0]["host"] == here
        assert 0 <= ran.json["sources"][0]["phase"] < 0.05

    def test_another_host_needs_a_launcher(self, typed):
        ran = typed(
            "noise", "source", "--level", "1%", "--launcher", "local", "--hosts", "elsewhere", "-o", "a.nc"
        ).expect(2)
        assert "elsewhere" in ran.said
        assert list(typed.cwd.iterdir()) == []

    def test_ctrl_c_saves(self, sonde):
        process = sonde.start("noise", "source", "--level", "2%", "--period", "50ms", "-o", "a.nc", "--json")
        assert wait_for(lambda: len(records(sonde.cwd / "a.run" / "source-here.blk")) > 0)
        process.send_signal(signal.SIGINT)
        ran = finish(process).expect(130)
        assert ran.json["verdict"].startswith("interrupted: requested 2 %")
        assert ran.json["sources"][0]["bursts"] > 0
        assert sonde.left() == []
        assert [path.name for path in sonde.cwd.iterdir()] == ["a.nc"]

    def test_killed_it_is_recovered(self, sonde, typed):
        process = sonde.start("noise", "source", "--level", "2%", "--period", "50ms", "-o", "a.nc")
        assert wait_for(lambda: len(records(sonde.cwd / "a.run" / "source-here.blk")) > 0)
        process.kill()
        process.communicate()
        assert sonde.left() == []
        typed("data", "recover", "a.run", "-o", "a.nc").expect(4)  # saved, but it was cut short
        with library.open(sonde.cwd / "a.nc") as tree:
            assert int(tree["summary"]["bursts"][0]) > 0
            assert tree.attrs["stop_reason"] == "killed"

    def test_dry_run_does_nothing(self, typed):
        ran = typed("noise", "source", "--level", "1%", "--dry-run", "--json").expect(0)
        assert "sonde-agent" in ran.json["commands"][0][0]
        assert list(typed.cwd.iterdir()) == []

    @pytest.mark.parametrize(
        ("words", "parts"),
        [
            (("--level", "0"), ("--level", "above 0%")),
            (("--level", "100%"), ("--level", "below 100%")),
            (("--level", "0.0001%", "--period", "1ms"), ("1.00 ns of work", "2 %")),
            (("--level", "1%", "--core", "999"), ("core 999", "may use")),
            (("--level", "1%", "--words", "0"), ("--words",)),
            (("--level", "1%", "--words", "999999999999999"), ("words", "memory of this machine")),
            (("--level", "1%", "--core", "0", "--free"), ("--core", "--free")),
            (("--level", "1%", "--sync", "--unsync"), ("--sync", "--unsync")),
            (("--level", "1%", "--period", "1us"), ("period", "100 µs")),
            ((), ("--level",)),
        ],
    )
    def test_nonsense_is_told_and_nothing_is_started(self, typed, words, parts):
        ran = typed("noise", "source", "-o", "a.nc", *words).expect(2)
        for part in parts:
            assert part in ran.said
        assert list(typed.cwd.iterdir()) == []

    def test_too_short_for_a_burst_leaves_nothing(self, sonde):
        ran = sonde(
            "noise", "source", "--level", "1%", "--period", "1h", "--duration", "200ms", "-o", "a.nc"
        ).expect(3)
        assert "before anything was recorded" in ran.said
        assert "two periods" in ran.said
        assert list(sonde.cwd.iterdir()) == []

    def test_no_folder_for_the_dataset(self, typed):
        ran = typed("noise", "source", "--level", "1%", "-o", "no/such/a.nc").expect(3)
        assert "no/such" in ran.said


@pytest.fixture
def small(tmp_path) -> Iterator[Path]:
    """A folder with room for 56 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        (folder / "fill").write_bytes(bytes(72 << 10))
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


class TestFullDisk:
    def test_the_noise_goes_on_and_what_is_lost_is_counted(self, agent, small):
        # Room for 8 KiB: a starved noise generator has few bursts to record.
        (small / "more").write_bytes(bytes(48 << 10))
        out, _ = agent(
            "--level", "0.1", "--period-s", "0.001", "--duration-s", 1.5, "--record", small / "a.blk"
        ).communicate(timeout=60)
        events = [json.loads(line) for line in out.splitlines()]
        assert [e["code"] for e in events if e["event"] == "warning"] == ["core.disk_full"]
        end = events[-1]
        assert end["event"] == "end"
        assert end["dropped"] > 0
        assert len(records(small / "a.blk")) + end["dropped"] == end["samples"]

    def test_the_command_says_so_and_loses_nothing_that_was_written(self, sonde, small, typed):
        ran = sonde(
            *("noise", "source", "--level", "10%", "--period", "2ms", "--duration", "2s"),
            *("-o", small / "a.nc"),
        ).expect(3)
        assert "no space left" in ran.said
        assert "data recover" in ran.said
        assert sorted(path.name for path in small.iterdir()) == ["a.run", "fill"]
        assert sonde.left() == []
        (small / "fill").unlink()
        typed("data", "recover", small / "a.run", "-o", "a.nc").expect(0)
        with library.open(sonde.cwd / "a.nc") as tree:
            assert int(tree["raw"]["n"][0]) > 0
            assert tree.attrs["stop_reason"] == "budget"
