"""Folders that Sonde makes in a folder of somebody else, programs that it starts there, and files there that are not
files.

Whoever owns a folder may rename root's folder in it, and put another in its place. The stranger tries; root, or another
user, types the command.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from other_users import STRANGER, as_user, place, stranger, victim

from sonde.core import owned_files, provenance, run_folder, surroundings
from sonde.core.diagnosis import Here
from sonde.core.errors import EnvironmentFailure
from sonde.power.demo import run as demo

__all__ = ["place", "stranger", "victim"]
pytestmark = pytest.mark.root

USER, GROUP = 1000, 4242
SONDE = [sys.executable, "-P", "-c", "import sys; from sonde.cli.entry import main; sys.exit(main())"]
SWAP = """
import os, sys, time
folder, name, waits_for, target = sys.argv[1:5]
run = f"{folder}/{name}"
mine = f"{folder}/mine"
os.mkdir(mine)
os.chmod(mine, 0o777)
end = time.monotonic() + 60
while not os.path.exists(f"{run}/{waits_for}"):
    if time.monotonic() > end:
        sys.exit(1)
os.rename(run, f"{folder}/moved")
for one in os.listdir(f"{folder}/moved"):
    if one != os.path.basename(target):
        os.symlink(f"{folder}/moved/{one}", f"{mine}/{one}")
if target.endswith("/work"):
    with open(f"{mine}/work", "w") as file:
        file.write(f"#!/bin/sh\\nid > {sys.argv[5]}\\n")
    os.chmod(f"{mine}/work", 0o755)
else:
    os.symlink(sys.argv[5], f"{mine}/{os.path.basename(target)}")
os.rename(mine, run)
while time.monotonic() < end:
    for one in os.listdir(f"{folder}/moved"):
        try:
            os.symlink(f"{folder}/moved/{one}", f"{run}/{one}")
        except FileExistsError:
            pass
    time.sleep(0.01)
"""


def typed_as_root(folder: Path, *words: str, timeout_s: float = 100) -> subprocess.CompletedProcess[str]:
    """A command line in a folder. A command that hangs fails the test."""
    env = {name: value for name, value in os.environ.items() if name != "SONDE_CONFIG"}
    ran = subprocess.run(
        [*SONDE, *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
    )
    ran.stderr = " ".join(ran.stderr.split())  # messages are wrapped
    return ran


@contextmanager
def swapped(folder: Path, name: str, waits_for: str, target: str, leads_to: Path) -> Iterator[None]:
    """The stranger waits for a file of root's in a new folder, and puts a folder in its place in which `target` is a
    program, or a link that leads elsewhere.
    """
    words = ["/usr/bin/python3", "-I", "-c", SWAP, str(folder), name, waits_for, target, str(leads_to)]
    attacker = subprocess.Popen(words, user=STRANGER, group=STRANGER, extra_groups=[])
    try:
        yield
    finally:
        attacker.kill()
        attacker.wait()


class TestRootInAFolderOfSomebodyElse:
    def test_the_demo_runs_no_program_of_the_owner(self, place, stranger):
        proof = place / "proof"
        with swapped(stranger, "x.demo", "demo.toml", "x.demo/work", proof):
            ran = typed_as_root(Path("/"), "power", "demo", "--budget", "20s", "-o", str(stranger / "x.nc"))
        assert not proof.exists()
        assert ran.returncode == 3
        assert f"'{stranger}' belongs to user {STRANGER}" in ran.stderr
        assert re.search(r"-o /\S+/x\.nc, or first: cd /", ran.stderr)
        assert not (stranger / "x.demo").exists()

    def test_the_table_of_a_trace_is_not_written_through_a_link(self, stranger, victim):
        before = victim.read_bytes()
        with swapped(stranger, "x.run", "run.json", "table", victim):
            ran = typed_as_root(Path("/"), "io", "run", "-o", str(stranger / "x.nc"), "--", "true")
        assert victim.read_bytes() == before
        assert ran.returncode == 3
        assert "belongs to user" in ran.stderr

    @pytest.mark.parametrize(
        "words",
        [
            ("survey", "--budget", "5s", "-o", "new"),
            ("survey", "--budget", "5s", "-o", "a/b/new"),
            ("noise", "host", "--budget", "3s", "-o", "x.nc"),
            ("bus", "keys", "init", "keys"),
        ],
    )
    def test_no_folder_is_made_there(self, stranger, words):
        ran = typed_as_root(stranger, *words)
        assert ran.returncode == 3, ran.stdout + ran.stderr
        assert f"'{stranger}' belongs to user {STRANGER}" in ran.stderr
        assert list(stranger.iterdir()) == []

    def test_a_run_works_in_a_folder_that_nobody_can_rename(self, place):
        shared = place / "tmp"
        shared.mkdir()
        shared.chmod(0o1777)
        ran = typed_as_root(shared, "noise", "host", "--budget", "3s", "-o", "x.nc")
        assert ran.returncode in (0, 1), ran.stderr
        assert (shared / "x.nc").exists()


def made(path: Path, owner: int = 0, mode: int = 0o755, group: int | None = None) -> Path:
    path.mkdir()
    os.chown(path, owner, owner if group is None else group)
    path.chmod(mode)
    return path


def linked(path: Path, target: Path, owner: int) -> Path:
    path.symlink_to(target)
    os.lchown(path, owner, owner)
    return path


OTHERS_DECIDE: dict[str, Callable[[Path], Path]] = {
    "it is another's": lambda at: made(at / "a", STRANGER, 0o777),
    "it is another's, and sticky": lambda at: made(at / "a", STRANGER, 0o1777),
    "everybody may write in it": lambda at: made(at / "a", 0, 0o777),
    "the folder around it is another's": lambda at: made(made(at / "a", STRANGER) / "b", USER),
    "everybody may rename it": lambda at: made(made(at / "a", 0, 0o777) / "b", USER),
    "another's link leads to it": lambda at: linked(
        made(at / "a", 0, 0o1777) / "b", made(at / "c", USER), STRANGER
    ),
    "the way leads up through what is another's": lambda at: made(made(at / "a", STRANGER) / "b") / "../../",
}
ONE_DECIDES: dict[str, Callable[[Path], Path]] = {
    "it is one's own": lambda at: made(at / "a", USER, 0o700),
    "it is like /tmp": lambda at: made(at / "a", 0, 0o1777),
    "it is one's own in a folder like /tmp": lambda at: made(made(at / "a", 0, 0o1777) / "b", USER),
    "one's own group may write in it": lambda at: made(at / "a", USER, 0o2775, GROUP),
    "a member of one's group owns it": lambda at: made(at / "a", STRANGER, 0o2775, GROUP),
    "a member of one's group owns the folder around it": lambda at: made(
        made(at / "a", STRANGER, 0o2755, GROUP) / "b", STRANGER, 0o2770, GROUP
    ),
    "root owns it for one's group": lambda at: made(at / "a", 0, 0o2775, GROUP),
}


class TestWhoDecides:
    @pytest.mark.parametrize("where", OTHERS_DECIDE.values(), ids=OTHERS_DECIDE)
    @pytest.mark.parametrize("uid", [0, USER])
    def test_a_folder_is_not_made_where_others_decide(self, place, where, uid):
        at = where(place)

        def make() -> None:
            with pytest.raises(EnvironmentFailure) as refused:
                owned_files.make_folder(at / "x.run", 0o700)
            assert refused.value.code == "core.folder_of_others"
            assert refused.value.hint.startswith("-o ")
            assert not (at / "x.run").exists()

        as_user(uid, make) if uid else make()

    @pytest.mark.parametrize("where", ONE_DECIDES.values(), ids=ONE_DECIDES)
    def test_a_folder_is_made_where_one_decides(self, place, where):
        at = where(place)
        words = [
            "-P",
            "-c",
            f"from sonde.core.owned_files import make_folder; make_folder({str(at / 'x')!r})",
        ]
        # The groups of a project; CAP_DAC_READ_SEARCH only so that this user can read a Python in /root.
        who = ["setpriv", f"--reuid={USER}", f"--regid={USER}", f"--groups={GROUP}"]
        may_read = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        if not shutil.which("setpriv"):
            pytest.skip("no setpriv")
        ran = subprocess.run([*who, *may_read, sys.executable, *words], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert (at / "x").is_dir()

    def test_a_group_that_is_not_one_s_own_is_not_trusted(self, place):
        at = made(place / "a", STRANGER, 0o2775, GROUP)
        as_user(USER, lambda: refused(at / "x"))

    def test_root_trusts_no_group_of_people(self, place):
        refused(made(place / "a", 0, 0o2775, GROUP) / "x")

    def test_root_and_tests_have_their_folders(self, tmp_path, place):
        for at in (tmp_path, place, Path("/tmp")):
            owned_files.refuse_folder_of_others(at, at / "x.run")

    def test_a_folder_made_meanwhile_does_not_count(self, place, monkeypatch):
        """With `exist_ok`, a stranger may make the folder in /tmp first."""
        shared = made(place / "tmp", 0, 0o1777)
        refusing = owned_files.refuse_folder_of_others

        def slow(at: Path, folder: Path, option: str = "-o") -> None:
            refusing(at, folder, option)
            if not folder.exists():
                made(folder, STRANGER)

        monkeypatch.setattr(owned_files, "refuse_folder_of_others", slow)
        with pytest.raises(EnvironmentFailure, match="belongs to user"):
            owned_files.make_folder(shared / "survey", exist_ok=True)

    def test_another_folder_in_the_place_of_the_run_s_is_not_held(self, tmp_path):
        run = tmp_path / "a.run"
        identity = run_folder.start(run, room="io", schema="io/1", attrs={}, plan={})
        run.rename(tmp_path / "moved")
        run_folder.start(run, room="io", schema="io/1", attrs={}, plan={})
        with pytest.raises(EnvironmentFailure, match="another folder"), run_folder.hold(run, identity):
            pass
        with run_folder.hold(tmp_path / "moved", identity):
            pass


def refused(path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="could put another folder in its place"):
        owned_files.make_folder(path)


class TestProgramsThatAreStartedThere:
    @pytest.fixture
    def stands_there(self, stranger, monkeypatch):
        monkeypatch.chdir(stranger)
        return stranger

    def test_daemons_of_the_demo_import_nothing_from_their_folder(self, stranger):
        def make() -> None:
            for name in ("click", "json"):
                (stranger / f"{name}.py").write_text("print('code of the stranger')\n")

        as_user(STRANGER, make)
        ran = subprocess.run(
            [*demo._sonde(), "--version"], cwd=stranger, capture_output=True, text=True, timeout=60
        )
        assert "stranger" not in ran.stdout + ran.stderr
        assert ran.returncode == 0, ran.stderr

    def test_programs_of_the_doctor_and_of_the_description_of_the_machine(self, stands_there):
        assert Here().run(["pwd"], 10).out == "/\n"
        assert provenance._run("pwd") == "/"

    @pytest.mark.parametrize("kind", ["link", "link to what is root's", "pipe", "hard link"])
    def test_settings_that_are_no_plain_file_are_refused(self, stranger, victim, kind):
        """Root owns /proc/PID/cmdline of a process of the stranger that is not dumpable, whatever its text."""
        ours = stranger / "ucx.conf"
        victim.write_text("UCX_LOG_FILE=/root/.bashrc\n")
        if kind == "pipe":
            os.mkfifo(ours, 0o600)
        elif kind == "hard link":
            os.link(victim, ours)
        else:
            ours.symlink_to(victim if kind == "link to what is root's" else "/proc/self/cmdline")
        with pytest.raises(EnvironmentFailure, match=r"ucx\.conf (is|has)") as failed:
            list(surroundings.make_safe({"HOME": "/root"}, stranger))
        assert failed.value.code == "core.settings_of_others"
        ran = typed_as_root(stranger, "io", "layers", "list")
        assert ran.returncode == 3
        assert "ucx.conf" in ran.stderr


SOON_S = 40
"""A command that answers does so much earlier; one that hangs never does."""


class TestWhatIsNoFile:
    @pytest.fixture(params=["pipe", "device", "socket"])
    def no_file(self, request, stranger):
        path = stranger / "net-1.nc"

        def make() -> None:
            if request.param == "pipe":
                os.mkfifo(path)
            elif request.param == "device":
                path.symlink_to("/dev/tty")
            else:
                import socket

                with socket.socket(socket.AF_UNIX) as one:
                    one.bind(str(path))

        as_user(STRANGER, make)
        return path

    @pytest.mark.parametrize("reader", ["sonde.core.dataset.open", "sonde.core.blocks.BlockFile"])
    def test_it_is_not_opened(self, no_file, reader):
        module = reader.rpartition(".")[0]
        words = ["-P", "-c", f"import {module}; {reader}({str(no_file)!r})"]
        ran = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=SOON_S)
        assert re.search(r"DataError: .* is a (pipe|device|socket), not a file", ran.stderr), ran.stderr

    @pytest.mark.parametrize(
        "words",
        [
            ("data", "history", "."),
            ("report", "net-1.nc", "-o", "/dev/null"),
            ("check", "--budget", "5s", "--against", "."),
            ("data", "validate", "net-1.nc"),
            ("net", "convert", "net-1.nc"),
            ("io", "layers", "list", "--map", "net-1.nc"),
        ],
    )
    def test_no_command_waits_for_a_pipe(self, stranger, words):
        as_user(STRANGER, lambda: os.mkfifo(stranger / "net-1.nc"))
        ran = typed_as_root(stranger, *words, timeout_s=SOON_S)
        assert ran.returncode in (2, 3, 4), ran.stdout + ran.stderr
        assert "Traceback" not in ran.stderr

    @pytest.mark.parametrize(
        "name", ["pipe.nc", "../stranger/pipe.nc", "{}/pipe.nc", "/dev/tty", "/etc/passwd"]
    )
    def test_recover_opens_nothing_that_a_stranger_names(self, stranger, name):
        def make() -> None:
            (stranger / "a.run").mkdir()
            os.mkfifo(stranger / "pipe.nc")
            (stranger / "a.run/sealed.json").write_text(f'{{"datasets": ["{name.format(stranger)}"]}}')

        as_user(STRANGER, make)
        ran = typed_as_root(stranger, "data", "recover", "a.run", timeout_s=SOON_S)
        assert ran.returncode == 3, ran.stdout + ran.stderr
        assert "not next to it" in ran.stderr or "is a pipe, not a file" in ran.stderr
        if name == "/etc/passwd":
            assert "another user" in ran.stderr
