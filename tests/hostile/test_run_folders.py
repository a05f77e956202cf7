"""Run folders that another user made or may write in: `sonde data recover` and the other commands that work in them.

The stranger makes the folder, root runs the command. Whatever the folder contains, no file outside it is read, written
or removed, and in it only files that Sonde made.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from other_users import STRANGER, as_user, place, stranger, victim

from sonde.core import dataset_file, run_folder
from sonde.core.launch import remains
from sonde.io.maps.layers import KINDS
from sonde.io.trace.events import CLOCK, RECORD

__all__ = ["place", "stranger", "victim"]
pytestmark = pytest.mark.root

FIELDS = [["begin", "<u8", []], ["end", "<u8", []], ["size", "<u8", []], ["offset", "<u8", []], ["file", "<u4", []],
          ["function", "<u2", []], ["depth", "|u1", []], ["flags", "|u1", []]]  # fmt: skip
NAME = "n1-100-ab"


def run_file() -> str:
    plan = {"layers": [{"name": "posix", "title": "POSIX"}], "rules": [[0, KINDS.index("write")]]}
    plan["clocks"] = [["n1", 0, 0], ["n1", 10**9, 10**9]]  # type: ignore[assignment]
    attrs = {"stop_reason": "ended", "run_id": "1"}
    return json.dumps({"room": "io", "schema": "io/1", "attrs": attrs, "plan": plan})


def block_file(records: int = 3) -> bytes:
    """A trace of one thread: it identifies the thread, and contains some calls."""
    head = {
        "fields": FIELDS, "schema": "io/1", "host": "n1", "pid": 100, "parent": 1, "rank": -1, "program": "/bin/prog",
        "ticks": "tsc", "began_ticks": 0, "began_ns": 0, "began_utc_ns": 10**18, "inherits": "", "inherited": 0,
        "number": 0,
    }  # fmt: skip
    text = json.dumps(head).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    fixed = struct.pack("<II", 1, len(text))
    calls = np.zeros(1 + records, RECORD)
    calls["function"][0], calls["size"][0] = CLOCK, 101
    calls["begin"][1:] = 1000 + 10 * np.arange(records)
    calls["end"][1:] = calls["begin"][1:] + 5
    rest = struct.pack("<IIQ", 0, len(calls), 0) + calls.tobytes()
    block = b"SBLK" + struct.pack("<I", zlib.crc32(rest)) + rest
    return b"SONDEBLK" + fixed + struct.pack("<II", zlib.crc32(text, zlib.crc32(fixed)), 0) + text + block


def tail(appended: int) -> bytes:
    """A thread's mapped file after a kill; `appended` is the length that it claims for its block file."""
    fixed = struct.pack("<8sIIIIIIQQQIIQQQ", b"SONDETHR", 1, 100, 100, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, appended)
    return fixed.ljust(49152, b"\0")


def traced(folder: Path) -> Path:
    """A run's folder with a trace that can be saved, made by the calling user."""
    folder.mkdir(mode=0o755)
    (folder / "run.json").write_text(run_file())
    (folder / f"{NAME}-0.blk").write_bytes(block_file())
    (folder / f"{NAME}.functions").write_text("0\t0\twrite\tlibc.so\n")
    return folder


def dataset(path: Path) -> Path:
    return dataset_file.write_dataset(path, xr.Dataset({"x": ("k", [1.0])}), None, {"schema": "lab/1"})


def words(path: Path) -> str:
    return path.read_text()


class TestFilesThatAreLinks:
    @pytest.mark.parametrize("how", ["symbolic", "hard"])
    @pytest.mark.parametrize("whose", ["stranger", "root"])
    def test_a_block_file_that_leads_elsewhere_is_not_closed(self, typed, stranger, victim, how, whose):
        """The block file next to its tail was once truncated, and the tail's contents written into it, before it was
        checked.
        """
        before = victim.read_bytes()
        run = stranger / "a.run"

        def make() -> None:
            run.mkdir()
            (run / "run.json").write_text(run_file())
            (run / f"{NAME}-0.tail").write_bytes(tail(24))
            if how == "symbolic":
                (run / f"{NAME}-0.blk").symlink_to(victim)

        if whose == "stranger":
            as_user(STRANGER, make)
        else:  # a folder that root unpacked from somebody's archive
            make()
        if how == "hard":  # on a system without protection of hard links anybody can do that
            os.link(victim, run / f"{NAME}-0.blk")
        said = typed("data", "recover", run).expect(3).said
        assert victim.read_bytes() == before
        assert str(run) in said

    def test_a_tail_that_leads_elsewhere_stays_and_so_does_where_it_leads(self, typed, place, victim):
        run = traced(place / "a.run")
        secret = place / "other.tail"
        secret.write_bytes(tail(24))
        (run / f"{NAME}-0.tail").symlink_to(secret)
        typed("data", "recover", run).expect(3)
        assert secret.exists()

    @pytest.mark.parametrize("name", ["x.refused", "x.functions", "servers.json", "y.blk"])
    def test_what_only_root_may_read_does_not_come_into_the_dataset(self, typed, stranger, victim, name):
        run = stranger / "a.run"
        as_user(STRANGER, lambda: (traced(run), (run / name).symlink_to(victim)))
        ran = typed("data", "recover", run, "-o", stranger / "a.nc")
        assert "own words" not in ran.out + ran.err
        if (stranger / "a.nc").exists():
            assert b"own words" not in (stranger / "a.nc").read_bytes()
        assert ran.code == 3

    def test_a_run_json_that_leads_elsewhere_is_not_read(self, typed, stranger, victim):
        run = stranger / "a.run"
        as_user(STRANGER, lambda: (run.mkdir(), (run / "run.json").symlink_to(victim)))
        ran = typed("data", "recover", run).expect(3)
        assert "own words" not in ran.err
        assert "link" in ran.said

    def test_a_pipe_in_place_of_a_file_does_not_hold_the_command_up(self, typed, stranger):
        run = stranger / "a.run"
        as_user(STRANGER, lambda: (run.mkdir(), os.mkfifo(run / "run.json")))
        assert "not a plain file" in typed("data", "recover", run).expect(3).said

    def test_the_lock_makes_no_file_elsewhere(self, typed, place, stranger):
        """A dangling link: an empty /etc/nologin would prevent all logins."""
        run, elsewhere = stranger / "a.run", place / "nologin"
        as_user(STRANGER, lambda: (traced(run), (run / ".lock").symlink_to(elsewhere)))
        typed("data", "recover", run)
        assert not elsewhere.exists()

    def test_the_lock_of_a_run_of_one_s_own_makes_no_file_elsewhere(self, typed, place):
        run, elsewhere = traced(place / "a.run"), place / "nologin"
        (run / ".lock").symlink_to(elsewhere)
        said = typed("data", "recover", run).expect(3).said
        assert not elsewhere.exists()
        assert ".lock is a link" in said

    @pytest.mark.parametrize("whose", ["stranger", "root"])
    def test_the_note_of_a_sealed_run_is_not_written_through_a_link(
        self, typed, place, stranger, victim, whose
    ):
        before = victim.read_bytes()
        saved = dataset(place / "b.nc")
        run = stranger / "a.run"

        def make() -> None:
            run.mkdir()
            (run / "sealed.json").write_text(json.dumps({"datasets": [str(saved)]}))
            (run / "sealed.json.part").symlink_to(victim)

        as_user(STRANGER, make) if whose == "stranger" else make()
        typed("data", "recover", run)
        assert victim.read_bytes() == before

    def test_how_a_run_ended_is_not_written_through_a_link(self, place, victim):
        before = victim.read_bytes()
        run = place / "a.run"
        run_folder.start(run, room="io", schema="io/1", attrs={}, plan={})
        part = run / "run.json.part"
        part.unlink()
        part.symlink_to(victim)
        run_folder.end(run, {"stop_reason": "ended"})
        assert victim.read_bytes() == before
        assert run_folder.read(run).attrs["stop_reason"] == "ended"


class TestFilesThatSondeDidNotMake:
    @pytest.mark.parametrize("sealed", [True, False])
    def test_they_stay_and_are_named(self, typed, place, sealed):
        run = traced(place / "a.run")
        (run / "project/thesis").mkdir(parents=True)
        (run / "project/thesis/chapter1.tex").write_text("It was a dark and stormy night")
        (run / "notes.txt").write_text("do not lose")
        if sealed:
            (run / "sealed.json").write_text(json.dumps({"datasets": [str(dataset(place / "b.nc"))]}))
        ran = typed("data", "recover", run).expect(0)
        assert words(run / "project/thesis/chapter1.tex") == "It was a dark and stormy night"
        assert words(run / "notes.txt") == "do not lose"
        assert sorted(path.name for path in run.iterdir()) == ["notes.txt", "project"]
        assert "notes.txt" in ran.said + ran.out
        assert "project" in ran.said + ran.out

    def test_a_folder_of_a_server_keeps_what_no_server_makes(self, typed, place):
        run = traced(place / "a.run")
        (run / "server-0/objects/3f").mkdir(parents=True)
        (run / "server-0/objects/3f/k+name%20of").write_text("an object")
        (run / "server-0/thesis").mkdir()
        (run / "server-0/thesis/chapter1.tex").write_text("night")
        typed("data", "recover", run).expect(0)
        assert words(run / "server-0/thesis/chapter1.tex") == "night"
        assert not (run / "server-0/objects").exists()

    def test_nothing_in_a_folder_of_somebody_else_is_removed(self, typed, place, stranger):
        run, saved = stranger / "a.run", dataset(place / "b.nc")

        def make() -> None:
            run.mkdir()
            (run / "sealed.json").write_text(json.dumps({"datasets": [str(saved)]}))
            (run / "notes.txt").write_text("mine")
            (run / "rank-00000.blk").write_text("")

        as_user(STRANGER, make)
        typed("data", "recover", run)
        assert sorted(path.name for path in run.iterdir()) == ["notes.txt", "rank-00000.blk", "sealed.json"]

    def test_a_folder_of_somebody_else_is_saved_elsewhere_and_stays(self, typed, place, stranger):
        """Reading the recordings of others is harmless."""
        run = stranger / "a.run"
        as_user(STRANGER, lambda: traced(run))
        before = {path.name: path.read_bytes() for path in run.iterdir()}
        typed("data", "recover", run, "-o", place / "mine.nc").expect(0)
        assert (place / "mine.nc").stat().st_uid == 0
        assert {path.name: path.read_bytes() for path in run.iterdir()} == before

    def test_one_that_has_to_be_closed_first_is_refused_and_says_what_to_do(self, typed, place, stranger):
        run = stranger / "a.run"
        as_user(STRANGER, lambda: (traced(run), (run / f"{NAME}-0.tail").write_bytes(tail(24))))
        before = {path.name: path.read_bytes() for path in run.iterdir()}
        said = typed("data", "recover", run, "-o", place / "mine.nc").expect(3).said
        assert "belongs to nobody" in said
        assert "cp -r" in said
        assert {path.name: path.read_bytes() for path in run.iterdir()} == before


@pytest.fixture
def segment() -> Iterator[Path]:
    """A file of root's in shared memory that nobody has mapped."""
    path = Path("/dev/shm") / f"sonde-hostile-{os.urandom(6).hex()}"
    path.write_bytes(bytes(4096))
    yield path
    path.unlink(missing_ok=True)


def note_of(path: Path) -> str:
    return f"{path.stat().st_ino} {path}\n"


class TestWhatARunLeftElsewhere:
    def test_a_note_of_somebody_else_removes_nothing(self, typed, stranger, segment):
        run = stranger / "a.run"
        text = note_of(segment)
        name = f"remains-{socket.gethostname()}"
        as_user(STRANGER, lambda: (traced(run), (run / name).write_text(text)))
        typed("data", "recover", run)
        assert segment.exists()

    def test_a_copy_of_somebody_s_folder_removes_nothing(self, typed, place, stranger, segment):
        """A refusal suggests a copy of the folder: the note in the copy is root's, the contents the stranger's."""
        run, text = stranger / "a.run", note_of(segment)
        name = f"remains-{socket.gethostname()}"
        as_user(STRANGER, lambda: (traced(run), (run / name).write_text(text)))
        shutil.copytree(run, place / "mine.run")
        typed("data", "recover", place / "mine.run").expect(0)
        assert segment.exists()

    def test_a_note_in_a_folder_that_others_may_write_in_removes_nothing(self, place, segment):
        run = place / "a.run"
        run.mkdir()
        run.chmod(0o777)
        as_user(STRANGER, lambda: remains.note_path(run).write_text(note_of(segment)))
        assert remains.clear(run) == []
        assert segment.exists()

    def test_a_session_folder_in_a_folder_of_somebody_else_s_is_no_way_out(self, place, stranger):
        """The stranger has /tmp/ompi.HOST.0, and replaces it by a link to a folder of root's with that name."""
        run, mine = place / "a.run", place / "pid.4711"
        run.mkdir(mode=0o700)
        mine.mkdir(mode=0o700)
        (mine / "precious").write_text("precious")
        as_user(STRANGER, lambda: (stranger / "ompi.host.0").symlink_to(place))
        noted = stranger / "ompi.host.0" / "pid.4711"
        remains.note(run, 4711, [], {"TMPDIR": str(stranger)}, 0.0)
        path = remains.note_path(run)
        if not path.exists():
            path.write_text(note_of(noted))
        remains.clear(run)
        assert words(mine / "precious") == "precious"

    def test_a_folder_of_somebody_else_s_that_looks_like_a_killed_study_s_stays(self, place):
        """A study removes, by their names, the remains of killed studies next to its files."""
        from sonde.io.study import run_limits

        place.chmod(0o1777)
        folder = place / f".sonde-study-{socket.gethostname()}-{2**22 + 1}-abc"
        as_user(STRANGER, lambda: (folder.mkdir(), (folder / "thesis").write_text("night")))
        run_limits.sweep(place)
        assert words(folder / "thesis") == "night"

    def test_the_guard_of_a_killed_sonde_believes_no_note_of_somebody_else(self, place, segment):
        run = place / "a.run"
        run.mkdir()
        run.chmod(0o777)
        text, name = note_of(segment), f"remains-{socket.gethostname()}"
        script = f"""
import os, sys
from pathlib import Path
from sonde.core.launch.process import ProbeProcess
probe = ProbeProcess(["sleep", "600"], Path({str(run)!r}), print)
probe.start()
print(probe._guard.pid, flush=True)
sys.stdin.readline()
os.kill(os.getpid(), 9)
"""
        child = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdin
        assert child.stdout
        guard = os.pidfd_open(int(child.stdout.readline()))
        try:
            as_user(STRANGER, lambda: (run / name).write_text(text))
            child.stdin.write("die\n")
            child.stdin.close()
            assert child.wait(60) == -signal.SIGKILL
            assert select.select([guard], [], [], 120)[0], "the guard does not end"
        finally:
            os.close(guard)
            child.stdout.close()
        assert segment.exists()


class TestNewRunFolders:
    @pytest.mark.parametrize("mask", [0o000, 0o002, 0o022])
    def test_nobody_else_may_look_into_them(self, place, mask):
        """They contain command lines and paths."""
        before = os.umask(mask)
        try:
            run_folder.start(place / "a.run", room="io", schema="io/1", attrs={}, plan={})
        finally:
            os.umask(before)
        assert (place / "a.run").stat().st_mode & 0o7777 == 0o700


class TestHonestFolders:
    @pytest.mark.parametrize("mask", [0o002, 0o022])
    def test_a_folder_of_one_s_own_that_an_older_sonde_made(self, typed, place, mask):
        before = os.umask(mask)
        try:
            run = traced(place / "a.run")
            run.chmod(0o777 & ~mask)
            (run / f"{NAME}-0.tail").write_bytes(tail(len(block_file())))
        finally:
            os.umask(before)
        typed("data", "recover", run).expect(0)
        assert not run.exists()
        assert (place / "a.nc").exists()

    def test_a_folder_in_a_project_that_a_group_shares(self, typed, place):
        project = place / "project"
        project.mkdir()
        os.chown(project, STRANGER, 100)
        project.chmod(0o2775)
        run = traced(project / "a.run")
        typed("data", "recover", run).expect(0)
        assert not run.exists()
        assert (project / "a.nc").exists()

    def test_root_where_the_file_system_takes_it_for_nobody(self, typed, place, monkeypatch):
        """NFS with root_squash: root's files belong to nobody. A separate test for each call would need NFS."""
        from sonde.core import owned_files

        run = traced(place / "a.run")
        for path in (run, *run.iterdir()):
            os.chown(path, STRANGER, STRANGER)
        monkeypatch.setattr(owned_files, "_owner_of_new_files", lambda descriptor: STRANGER)
        typed("data", "recover", run).expect(0)
        assert not run.exists()
