"""What goes wrong, by name: each is told in one message, exits as documented, and loses nothing measured."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import netCDF4
import numpy as np
import pytest

import sonde as library
from sonde.core import dataset_file
from sonde.core.launch import mpirun
from sonde.core.launch.mpirun import Mpi
from sonde.net.analyse import analyse
from sonde.net.synthetic import Network
from sonde_shell import ENDLESS, Ran, Shell, finish, shell
from watching import samples_in, wait_for

READERS = (
    ("net", "show"),
    ("net", "check"),
    ("net", "replay"),
    ("net", "model"),
    ("report",),
    ("data", "convert", "--to", "csv"),
)


def refused(ran: Ran, code: int, *parts: str) -> None:
    """Exit code, one error in the house's style with what is allowed or a hint, and parts of its wording."""
    ran.expect(code)
    assert ran.out == ""
    assert ran.said.startswith("error: "), ran.err
    assert sum(line.startswith("error: ") for line in ran.err.splitlines()) == 1
    assert " hint: " in ran.said or "allowed: " in ran.said
    for part in parts:
        assert part in ran.said


class TestCommandLine:
    @pytest.mark.parametrize(
        ("words", "parts"),
        [
            (("--sizes", "many"), ("--sizes", "'many'")),
            (("--sizes", "8,-1"), ("--sizes", "-1")),
            (("--sizes", "1000:0:10"), ("--sizes", "has no size")),
            (("--sizes", "0:10:0"), ("step of 0 B",)),
            (("--sizes", ""), ("--sizes", "has no size")),
            (("--sizes", "8,8"), ("8 B twice",)),
            (("--sizes", "4GiB"), ("4294967296 B", "2147483647 B")),
            (("--mode", "one_to_on"), ("no mode 'one_to_on' (nearest: one_to_one)", "sonde net modes")),
            (("--mode", "bcast,bcast"), ("'bcast' is given twice",)),
            (("--rule", "fixd:100"), ("'fixd'", "nearest: fixed")),
            (("--rule", "fixed:"), ("fixed",)),
            (("--rule", "fixed:0"), ("fixed",)),
            (("--rule", "ci:200%"), ("ci",)),
            (("--precision", "1%", "--rule", "fixed:100"), ("--precision 0.01", "fixed:100")),
            (("--precision", "1%", "--rule", "ci:5%"), ("--precision 0.01", "ci:5%")),
            (("--ntasks", "1"), ("--ntasks is 1", "--ntasks 2")),
            (("--ntasks", "0"), ("--ntasks", "'0'", "like 4")),
            (("--ntasks", "two"), ("--ntasks", "'two'", "like 4")),
            (("--pairs", "0-7", "--ntasks", "2"), ("0-7", "0 to 1")),
            (("--pairs", "²-1"), ("'²-1'", "0-1,2-5")),
            (("--pairs", "0-1", "--by-class"), ("--by-class", "--pairs")),
            (("--budget", "0s"), ("--budget", "'0s'")),
            (("--budget", "soon"), ("--budget", "'soon'")),
            (("--value", "rtt"), ("'rtt'", "rtt_half")),
            (("--value", "one_way", "--mode", "bcast"), ("one_way has no meaning for bcast",)),
            (("--by-class", "--mode", "bcast", "--ntasks", "2"), ("--by-class", "bcast")),
            (("--frobnicate",), ("no option --frobnicate",)),
        ],
        ids=lambda value: " ".join(value) if value and value[0].startswith("--") else "",
    )
    @pytest.mark.mpi
    def test_nonsense_is_told_and_nothing_is_started(self, typed, words, parts):
        refused(typed("net", "run", "-o", "a.nc", *words), 2, *parts)
        assert list(typed.cwd.iterdir()) == []

    def test_error_as_json(self, typed):
        ran = typed("net", "run", "--mode", "one_to_on", "--json").expect(2)
        assert ran.err == ""
        told = ran.json
        assert (told["room"], told["verb"]) == ("net", "run")
        assert told["error"]["code"] == "net.unknown_mode"
        assert set(told["error"]) >= {"code", "what", "hint", "log"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A sound dataset, made without any MPI."""
    return written(tmp_path_factory.mktemp("whole") / "a.nc", seed=1)


@pytest.fixture(scope="module")
def faster(tmp_path_factory) -> Path:
    """One of a network three times as fast."""
    return written(tmp_path_factory.mktemp("faster") / "a.nc", seed=2, divisor=3)


def written(path: Path, seed: int, divisor: float = 1) -> Path:
    raw = Network(ranks=3, sizes=(8, 1024, 65536)).raw(10, 10, seed=seed)
    raw["latency"] = raw["latency"] / divisor
    attrs = {"schema": "net/1", "mode": "one_to_one", "stop_reason": "converged", "complete": 1}
    dataset_file.write_dataset(path, raw, analyse(raw), attrs, {}, [])
    return path


@cache
def unreadable(path: Path) -> bytes:
    """A dataset's bytes with the samples damaged where no header tells: their compressed chunk begins wrongly."""
    data = path.read_bytes()
    with netCDF4.Dataset(path) as file:
        latency = file["raw/latency"]
        assert latency.filters()["zlib"]
        chunk = latency[:].tobytes()
    for level in range(10):
        for shuffled in (chunk, np.frombuffer(chunk, "u1").reshape(-1, 8).T.tobytes()):
            at = data.find(zlib.compress(shuffled, level))
            if at > 0:
                return data[:at] + bytes(64) + data[at + 64 :]
    raise AssertionError("the samples are not where they were")


class TestFiles:
    def test_the_sound_one_is_read(self, typed, whole):
        typed("net", "show", whole).expect(0)

    @pytest.mark.parametrize("reader", READERS, ids=" ".join)
    def test_missing(self, typed, reader):
        refused(typed(*reader, "nowhere.nc"), 3, "nowhere.nc")

    @pytest.mark.parametrize("reader", READERS, ids=" ".join)
    def test_no_netcdf(self, typed, reader):
        (typed.cwd / "a.nc").write_bytes(b"this is a letter to my aunt\n" * 400)
        refused(typed(*reader, "a.nc"), 3, "a.nc")

    @pytest.mark.parametrize("reader", READERS, ids=" ".join)
    def test_empty(self, typed, reader):
        (typed.cwd / "a.nc").write_bytes(b"")
        refused(typed(*reader, "a.nc"), 3, "a.nc")

    @pytest.mark.parametrize("reader", READERS, ids=" ".join)
    def test_truncated(self, typed, whole, reader):
        data = whole.read_bytes()
        (typed.cwd / "a.nc").write_bytes(data[: len(data) // 2])
        refused(typed(*reader, "a.nc"), 3, "a.nc")

    @pytest.mark.parametrize("reader", READERS, ids=" ".join)
    def test_folder(self, typed, reader):
        (typed.cwd / "a.nc").mkdir()
        refused(typed(*reader, "a.nc"), 3, "a.nc")

    def test_damaged_inside(self, typed, whole):
        data = bytearray(whole.read_bytes())
        rng = np.random.default_rng(1)
        for at in range(4096, len(data), 512):
            data[at : at + 64] = rng.bytes(64)
        (typed.cwd / "a.nc").write_bytes(data)
        ran = typed("net", "show", "a.nc")
        refused(ran, 3, "a.nc is damaged", "hint: copy it again from where it was measured")
        assert "Errno" not in ran.said
        assert "HDF error" not in ran.said

    @pytest.mark.parametrize(
        "reader",
        [("net", "replay"), ("report",), ("data", "convert", "--to", "csv", "--group", "raw")],
        ids=" ".join,
    )
    def test_damage_met_only_while_values_are_read(self, typed, whole, reader):
        (typed.cwd / "a.nc").write_bytes(unreadable(whole))
        ran = typed(*reader, "a.nc")
        refused(ran, 3, "a.nc is damaged: /raw/latency cannot be read", "sonde data validate a.nc")
        assert "HDF error" not in ran.said

    def test_damage_in_one_of_two_names_that_one(self, typed, whole):
        (typed.cwd / "b.nc").write_bytes(unreadable(whole))
        ran = typed("report", whole, "b.nc")
        refused(ran, 3, "error: report: b.nc is damaged: /raw/latency cannot be read")

    def test_what_damage_leaves_is_still_reported(self, typed, whole):
        (typed.cwd / "a.nc").write_bytes(unreadable(whole))
        typed("net", "show", "a.nc").expect(0)

    @pytest.mark.parametrize("name", ["a.nc", "a-all_to_all.nc"])
    def test_damage_beside_a_runs_folder_hints_at_it(self, typed, whole, name):
        (typed.cwd / "a.run").mkdir()
        (typed.cwd / name).write_bytes(whole.read_bytes()[:5000])
        refused(typed("net", "show", name), 3, f"{name} is cut off", "hint: sonde data recover a.run")

    @pytest.mark.parametrize("reader", READERS[:4], ids=" ".join)
    def test_foreign(self, typed, reader):
        with netCDF4.Dataset(typed.cwd / "weather.nc", "w") as file:
            file.createDimension("time", 3)
            file.createVariable("temperature", "f8", ("time",))[:] = [1.0, 2.0, 3.0]
        refused(typed(*reader, "weather.nc"), 3, "weather.nc")

    def test_one_of_two_is_missing(self, typed, whole):
        refused(typed("net", "diff", whole, "nowhere.nc"), 3, "nowhere.nc")
        refused(typed("net", "show", whole, "nowhere.nc"), 3, "nowhere.nc")


class TestNamesWithBlanks:
    """What to type next can be typed: a shell reads the file's name as one word."""

    NAME = "my run's file.nc"

    @pytest.fixture
    def named(self, typed, whole) -> Path:
        path = typed.cwd / self.NAME
        path.write_bytes(whole.read_bytes())
        return path

    @pytest.mark.parametrize(
        "words",
        [
            ("net", "check", NAME, "--max-median", "1ns"),
            ("net", "check", NAME, "--no-slow-links", "--max-ratio", "1"),
            ("net", "model", NAME, "--assume", "model.toml"),
            ("net", "diff", "fast one.nc", NAME),
            ("data", "diff", "fast one.nc", NAME),
        ],
        ids=lambda words: " ".join(words[:2]),
    )
    def test_next_is_a_command_that_runs(self, typed, named, faster, words):
        (typed.cwd / "model.toml").write_text('[[level]]\nname = "any"\nlatency_s = 1e-9\n')
        (typed.cwd / "fast one.nc").write_bytes(faster.read_bytes())
        found = typed(*words, "--json").json["findings"]
        assert found
        for line in {finding["next"] for finding in found if finding["next"]}:
            told = shlex.split(line)
            assert self.NAME in told
            assert told[0] == "sonde"
        assert typed(*told[1:]).code in (0, 1)

    def test_errors_name_it_so_that_it_can_be_typed(self, typed, named):
        named.with_suffix(".run").mkdir()
        named.write_bytes(named.read_bytes()[:5000])
        ran = typed("net", "show", self.NAME, "--json").expect(3)
        assert shlex.split(ran.json["error"]["hint"]) == ["sonde", "data", "recover", "my run's file.run"]


class TestMachine:
    def test_mpi_that_is_not_there(self, typed):
        ran = typed("net", "run", "-o", "a.nc", SONDE_MPI="/nonexistent/mpi")
        refused(ran, 3, "'/nonexistent/mpi' is not an mpirun")
        assert list(typed.cwd.iterdir()) == []

    @pytest.mark.hardware("where an MPI lies outside PATH it is found there, too")
    def test_no_mpi_at_all(self, typed):
        if any((Path(folder) / "mpirun").exists() for folder in mpirun._UNLOADED):
            pytest.skip("this machine's MPI is not in PATH")
        ran = typed("net", "run", "-o", "a.nc", PATH="")
        refused(ran, 3, "Open MPI", "MPICH", "install")
        assert list(typed.cwd.iterdir()) == []

    def test_flavour_that_does_not_exist(self, typed):
        refused(typed("net", "run", "-o", "a.nc", SONDE_MPI="openmpy"), 2, "'openmpy' (nearest: openmpi)")

    def test_launcher_that_does_not_exist(self, typed):
        refused(typed("net", "run", "-o", "a.nc", "--launcher", "mpirum"), 2, "'mpirum'", "nearest: mpirun")

    @pytest.mark.mpi
    def test_output_folder_missing(self, typed):
        refused(typed("net", "run", "-o", "there/a.nc"), 3, "there/a.nc", "no folder there")
        assert list(typed.cwd.iterdir()) == []

    @pytest.mark.mpi
    def test_output_is_a_folder(self, typed):
        refused(typed("net", "run", "-o", "."), 2, "is a folder", "-o net.nc")

    @pytest.mark.mpi
    def test_output_that_cannot_be_written(self, typed):
        # Not even root may make a file there.
        ran = typed("net", "run", "--ntasks", "2", "--budget", "3s", "-o", "/proc/a.nc")
        refused(ran, 3, "/proc/a", "--output")


class Running:
    """A run that goes on until the test ends it."""

    def __init__(self, shell: Shell, name: str = "a.nc") -> None:
        self.shell, self.out = shell, shell.cwd / name
        self.run_dir = self.out.with_suffix(".run")
        self.process = shell.start("net", "run", *ENDLESS, "--seed", "1", "-o", name)
        there = wait_for(lambda: self.process.poll() is not None or samples_in(self.run_dir) > 1000)
        assert there, "no samples came"
        assert self.process.poll() is None, finish(self.process).err
        assert len(shell.ranks()) == 2

    def end(self) -> Ran:
        return finish(self.process)


@pytest.fixture
def running(sonde_mpi) -> Running:
    return Running(sonde_mpi)


def saved(path: Path) -> dict[str, object]:
    """Attributes of a dataset whose samples and medians were read and agree in number."""
    with library.open(path) as tree:
        raw = tree["raw"].to_dataset().load()
        assert int(np.isfinite(raw["latency"].values).sum()) == int(raw["n"].values.sum()) > 1000
        medians = np.isfinite(tree["summary"]["median"].values)
        np.testing.assert_array_equal(medians, raw["n"].values > 0)
        asked = ~np.eye(raw.sizes["src"], dtype=bool)
        # What a killed run asked for is not known to have come, so a recovered dataset never says complete.
        assert not tree.attrs["complete"] or (raw["n"].values[asked] > 0).all()
        return dict(tree.attrs)


class TestMidRun:
    def test_ctrl_c_saves_what_there_is(self, running, sonde_mpi):
        os.killpg(running.process.pid, signal.SIGINT)
        ran = running.end().expect(130)
        assert "→ a.nc" in ran.out
        told = " ".join((ran.out + ran.err).split())
        assert "interrupted: " in told
        assert "the results until then are saved in a.nc" in told
        assert saved(running.out)["stop_reason"] == "interrupted"
        assert not running.run_dir.exists()
        assert sonde_mpi.left() == []

    @pytest.mark.parametrize("more", [(), ("--by-class",)], ids=["plain", "by class"])
    def test_ctrl_c_before_anything_was_measured_leaves_nothing(self, sonde_mpi, more):
        for _ in range(6):  # a busy machine may look so late that something has been measured
            run = sonde_mpi.start("net", "run", *ENDLESS, *more, "-o", "a.nc")
            assert wait_for(sonde_mpi.launchers)
            os.killpg(run.pid, signal.SIGINT)
            ran = finish(run).expect(130)
            if not (sonde_mpi.cwd / "a.nc").exists():
                break
            (sonde_mpi.cwd / "a.nc").unlink()
        assert ran.out == ""
        # Also a launcher that is only asked for its version is one; then nothing has begun that could be told of.
        assert " ".join(ran.err.split()).removeprefix("net: ").startswith("interrupted")
        assert len(ran.err.strip().splitlines()) == 1
        assert list(sonde_mpi.cwd.iterdir()) == []
        assert sonde_mpi.left() == []

    def test_ctrl_c_twice_still_saves(self, running, sonde_mpi):
        os.killpg(running.process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            running.process.wait(0.3)
        with suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGINT)
        ran = running.end()
        assert ran.code == 130, ran.err
        if not running.out.exists():
            sonde_mpi("data", "recover", "a.run")
        assert saved(running.out)["stop_reason"] == "interrupted"
        assert sonde_mpi.left() == []

    def test_sigterm_saves_what_there_is(self, running, sonde_mpi):
        running.process.terminate()
        running.end().expect(130)
        assert saved(running.out)["stop_reason"] == "interrupted"
        assert sonde_mpi.left() == []

    def test_a_killed_rank_is_named_and_the_rest_is_saved(self, running, sonde_mpi):
        os.kill(sonde_mpi.ranks()[-1], signal.SIGKILL)
        ran = running.end().expect(3)
        assert "error: net:" in ran.said  # below the warnings about what was measured
        assert "the partial results are in a.nc" in ran.said
        assert saved(running.out)["stop_reason"] == "failed"
        sonde_mpi("data", "validate", "a.nc").expect(0)
        assert sonde_mpi.left() == []

    def test_kill_9_of_everything_can_be_recovered(self, running, sonde_mpi):
        before = samples_in(running.run_dir)
        for pid in [running.process.pid, *sonde_mpi.processes()]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.end()
        assert wait_for(lambda: not sonde_mpi.processes())
        assert not running.out.exists()
        ran = sonde_mpi("data", "recover", "a.run", "--json")
        found = saved(running.out)
        assert ran.code == (0 if found["complete"] else 4), ran.err
        assert ran.json["datasets"] == [{"dataset": "a.nc", "complete": bool(found["complete"])}]
        assert ran.json["folder_removed"] is True
        with library.open(running.out) as tree:
            assert int(tree["raw"]["n"].values.sum()) >= before
        assert sonde_mpi.left() == []
        sonde_mpi("net", "show", "a.nc").expect(0)
        sonde_mpi("data", "validate", "a.nc").expect(0)

    def test_the_parent_killed_takes_its_ranks_along(self, running, sonde_mpi, mpi):
        assert sonde_mpi.files() or mpi.flavour == "mpich"  # whose segments have no names
        running.process.kill()
        running.end()
        assert sonde_mpi.left() == []
        sonde_mpi("data", "recover", "a.run")
        saved(running.out)
        assert not running.run_dir.exists()

    def test_parent_and_launcher_killed_leave_nothing_but_the_folder(self, running, sonde_mpi):
        for pid in [running.process.pid, *sonde_mpi.launchers()]:
            with suppress(ProcessLookupError):  # a launcher goes with its parent
                os.kill(pid, signal.SIGKILL)
        running.end()
        assert sonde_mpi.left() == []
        sonde_mpi("data", "recover", "a.run")
        saved(running.out)
        assert not running.run_dir.exists()

    def test_the_launcher_killed_is_reported_and_leaves_nothing(self, running, sonde_mpi):
        for pid in sonde_mpi.launchers():
            os.kill(pid, signal.SIGKILL)
        ran = running.end().expect(3)
        assert "the partial results are in a.nc" in ran.said
        assert saved(running.out)["stop_reason"] == "failed"
        assert sonde_mpi.left() == []

    def test_a_second_run_to_the_same_name_does_no_harm(self, running, sonde_mpi):
        refused(sonde_mpi("net", "run", *ENDLESS, "-o", "a.nc"), 3, "a.run")
        os.killpg(running.process.pid, signal.SIGINT)
        running.end().expect(130)
        saved(running.out)


@pytest.fixture
def small_disk(tmp_path: Path, mpi: Mpi) -> Iterator[Shell]:
    """A shell on a file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], check=True)
    try:
        yield from shell(disk, mpi)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.root
def test_a_disk_that_fills_loses_nothing_that_was_written(small_disk, tmp_path):
    ran = small_disk("net", "run", *ENDLESS, "--seed", "1", "-o", "a.nc", "--json").expect(3)
    error = json.loads(ran.out)["error"]
    assert error["code"] == "core.disk_full"
    assert "sonde data recover" in error["hint"]
    assert small_disk.left() == []
    run_dir = small_disk.cwd / "a.run"
    written = samples_in(run_dir)
    assert written > 1000
    small_disk("data", "recover", "a.run", "-o", tmp_path / "elsewhere.nc")
    saved(tmp_path / "elsewhere.nc")
    with library.open(tmp_path / "elsewhere.nc") as tree:
        assert int(tree["raw"]["n"].values.sum()) == written
    assert not (small_disk.cwd / "a.nc").exists()
