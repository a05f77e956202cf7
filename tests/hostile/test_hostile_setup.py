"""deploy/setup and related scripts, as root with the HOME, the variables and the search path of another user."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from other_users import STRANGER, place, stranger

ROOT = Path(__file__).parents[2]
__all__ = ["place", "stranger"]  # fixtures
SETPRIV = shutil.which("setpriv") or ""
pytestmark = [pytest.mark.root, pytest.mark.skipif(not SETPRIV, reason="no setpriv")]
USER = 1000
INDEX = "http://127.0.0.1:9/chosen-by-{}"
TOOLS = """
    awk cat cut date dirname env find flock getent grep head id ls mkdir readlink rm sed sh sort tail touch tr uname wc
""".split()  # noqa: SIM905 - as in tests/system/test_setup.py
# Runs as far as the virtual environment, which is not made; instead it writes down the pip command and its environment.
PYTHON = """#!/bin/sh
case "$*" in
  *sysconfig*) echo {include} ;;
  "-m venv "*)
    echo "$PATH" >{place}/path
    {python} -m pip config list >{place}/pip 2>&1
    exit 1 ;;
esac
"""


class Site:
    """A copy of set-up; PATH only contains a shell's tools, and a compiler and a Python that do nothing."""

    def __init__(self, place: Path) -> None:
        self.place, self.top, self.tools = place, place / "checkout", place / "bin"
        shutil.copytree(ROOT / "deploy", self.top / "deploy", ignore=shutil.ignore_patterns("__pycache__"))
        (self.top / "build").mkdir()
        self.tools.mkdir()
        for tool in TOOLS:
            if found := shutil.which(tool):
                (self.tools / tool).symlink_to(found)
        self.program("c++", "exit 0")
        (place / "Python.h").touch()
        python = PYTHON.format(include=place, place=place, python=sys.executable)
        (self.tools / "python3").write_text(python)
        (self.tools / "python3").chmod(0o755)
        (place / "own").mkdir()

    def program(self, name: str, text: str, folder: Path | None = None) -> None:
        path = (folder or self.tools) / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def home(self, name: str, owner: int = 0) -> Path:
        """A folder with files that choose an index for pip, in all places below a home where pip looks."""
        home = self.place / name
        for folder in (".config/pip", "pip"):
            (home / folder).mkdir(parents=True)
            (home / folder / "pip.conf").write_text(f"[global]\nindex-url = {INDEX.format(name)}\n")
        for path in (home, *home.rglob("*")):
            os.chown(path, owner, owner)
        return home

    def set_up(
        self, uid: int = 0, script: str = "deploy/setup", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        kept = {
            name: value for name, value in os.environ.items() if name not in ("MPI", "MPI_HOME", "PYTHON")
        }
        kept = {name: value for name, value in kept.items() if not name.startswith(("XDG_", "PIP_"))}
        return subprocess.run(
            [SETPRIV, f"--reuid={uid}", f"--regid={uid}", "--clear-groups", str(self.top / script)],
            env=kept | {"HOME": str(self.place / "own"), "PATH": str(self.tools)} | variables,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def begin(self, uid: int = 0, **variables: str) -> tuple[str, dict[str, str]]:
        """Its output before the first step, and the environment of that step."""
        text = (self.top / "deploy/setup").read_text()
        head, first_step, _ = text.partition('\ncd "$(dirname "$0")/.."\n')
        assert first_step
        (self.top / "deploy/head").write_text(f"{head}\nexec env\n")
        (self.top / "deploy/head").chmod(0o755)
        os.chown(self.top / "deploy/head", (self.top / "deploy/setup").stat().st_uid, -1)
        ran = self.set_up(uid, "deploy/head", **variables)
        return ran.stderr, dict(line.split("=", 1) for line in ran.stdout.splitlines() if "=" in line)

    def index(self) -> list[str]:
        return re.findall("chosen-by-([a-z]+)", (self.place / "pip").read_text())


@pytest.fixture
def site(place: Path) -> Site:
    return Site(place)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOME", "{home}"),
        ("XDG_CONFIG_HOME", "{home}"),
        ("XDG_CONFIG_DIRS", "/etc/xdg:{home}"),
        ("PIP_CONFIG_FILE", "{home}/pip/pip.conf"),
    ],
)
def test_another_user_does_not_choose_where_root_s_packages_come_from(site: Site, name: str, value: str):
    eve = site.home("eve", STRANGER)
    ran = site.set_up(**{name: value.format(home=eve)})
    assert (
        "could not make a virtual environment" in ran.stderr
    )  # it reached the Python that writes down its environment
    assert "eve" not in site.index()
    (warning,) = [
        line for line in ran.stderr.splitlines() if line.startswith("warning: set-up: root does not")
    ]
    assert f"{name}={value.format(home=eve)} ({eve} is user {STRANGER}'s)" in warning


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOME", "{home}"),
        ("XDG_CONFIG_HOME", "{home}"),
        ("XDG_CONFIG_DIRS", "/etc/xdg:{home}"),
        ("PIP_CONFIG_FILE", "{home}/pip/pip.conf"),
        ("PIP_INDEX_URL", INDEX.format("root")),
    ],
)
def test_root_s_own_settings_are_used(site: Site, name: str, value: str):
    home = site.home("root")
    ran = site.set_up(**{name: value.format(home=home)})
    assert "root" in site.index()
    assert "warning" not in ran.stderr


def test_pip_may_be_told_to_read_no_file(site: Site):
    ran = site.set_up(PIP_CONFIG_FILE="/dev/null")
    assert site.index() == []
    assert "warning" not in ran.stderr


def test_a_home_that_is_none_is_root_s_from_the_accounts(site: Site):
    for home in ("", "home", "/nowhere/at/all", "/dev/null", str(site.home("eve", STRANGER))):
        assert site.begin(HOME=home)[1]["HOME"] == "/root"


def mine(path: Path, owner: int = 0, mode: int = 0o755, group: int = 0) -> Path:
    path.mkdir()
    os.chown(path, owner, group)
    path.chmod(mode)
    return path


def linked(path: Path, target: Path | str, owner: int = 0) -> Path:
    path.symlink_to(target)
    os.lchown(path, owner, owner)
    return path


OTHERS_DECIDE: dict[str, Callable[[Path], Path]] = {
    "it is another's": lambda at: mine(at / "a", STRANGER),
    "a group of people may write in it": lambda at: mine(at / "a", 0, 0o775, STRANGER),
    "a group of people may write in it, which is sticky": lambda at: mine(at / "a", 0, 0o1770, STRANGER),
    "everybody may write in it": lambda at: mine(at / "a", 0, 0o1777),
    "the folder around it is another's": lambda at: mine(mine(at / "a", STRANGER) / "b"),
    "everybody may rename it": lambda at: mine(mine(at / "a", 0, 0o777) / "b"),
    "a link to it is another's": lambda at: linked(mine(at / "a", 0, 0o1777) / "b", "/usr/lib", STRANGER),
    "a link leads to what is another's": lambda at: linked(at / "b", mine(at / "a", STRANGER)),
    "a link leads on to another's link": lambda at: linked(
        at / "c", linked(mine(at / "a", 0, 0o1777) / "b", "/usr/lib", STRANGER)
    ),
    "the way leads up through another's": lambda at: (
        mine(mine(at / "a", STRANGER) / "b") / "../../../../usr/lib"
    ),
    "nothing is there, and everybody may make it": lambda at: mine(at / "a", 0, 0o1777) / "b",
    "links lead in a ring": lambda at: linked(at / "a", at / "a"),
}
ROOT_DECIDES: dict[str, Callable[[Path], Path]] = {
    "it is root's": lambda at: mine(at / "a"),
    "it is root's in a sticky folder": lambda at: mine(mine(at / "a", 0, 0o1777) / "b"),
    "root's link leads to it": lambda at: linked(mine(at / "a", 0, 0o1777) / "b", mine(at / "c")),
    "a relative link leads to it": lambda at: linked(mine(at / "a") / "b", Path("..") / mine(at / "c").name),
    "links lead through each other": lambda at: linked(at / "c", linked(at / "b", mine(at / "a"))),
    "its name has a blank": lambda at: mine(at / "a b"),
}


@pytest.mark.parametrize("what", OTHERS_DECIDE)
def test_nothing_is_taken_from_where_others_decide(site: Site, what: str):
    way = str(OTHERS_DECIDE[what](mine(site.place / "way")))
    variables = {
        "HOME": way,
        "PATH": f"{site.tools}:{way}",
        "CCACHE_DIR": way,
        "PKG_CONFIG_PATH": f"/usr/lib:{way}",
    }
    said, found = site.begin(**variables)
    assert said.count("warning:") == 1
    assert (found["HOME"], found["PATH"], found["PKG_CONFIG_PATH"]) == ("/root", str(site.tools), "/usr/lib")
    assert "CCACHE_DIR" not in found


@pytest.mark.parametrize("what", ROOT_DECIDES)
def test_what_root_decides_is_used(site: Site, what: str):
    way = str(ROOT_DECIDES[what](mine(site.place / "way")))
    names = ("HOME", "CCACHE_DIR", "CCACHE_CONFIGPATH", "XDG_CACHE_HOME", "TMPDIR", "PKG_CONFIG_PATH")
    variables = dict.fromkeys(names, way) | {"PATH": f"{site.tools}:{way}"}
    said, found = site.begin(**variables)
    assert (said, found.items() >= variables.items()) == ("", True)


@pytest.mark.parametrize(
    ("group", "safe"),
    [("staff:x:50:", True), ("staff:x:50:root", True), ("staff:x:50:eve", False), ("", False)],
)
def test_debian_s_way_of_usr_local_is_used_while_nobody_is_in_its_group(site: Site, group: str, safe: bool):
    """getent is on the search path here, after the machine's own: it is asked for a group that the machine does not
    have.
    """
    free = next(
        n for n in range(300, 999) if subprocess.run(["getent", "group", str(n)], stdout=-3).returncode
    )
    way = mine(site.place / "way", 0, 0o2775, free)
    text = (site.top / "deploy/setup").read_text().replace("$(getent group ", "$(groups_of ")
    (site.top / "deploy/setup").write_text(
        text.replace("set -eu\n", f"set -eu\ngroups_of() {{ echo {group!r}; [ -n {group!r} ]; }}\n")
    )
    _, found = site.begin(PATH=f"{site.tools}:{way}")
    assert (str(way) in found["PATH"].split(":")) == safe


def test_a_folder_for_temporary_files_is_closed_or_sticky(site: Site):
    for mode, owner, safe in (
        (0o1777, 0, True),
        (0o700, 0, True),
        (0o777, 0, False),
        (0o700, STRANGER, False),
    ):
        folder = mine(site.place / f"t{mode:o}{owner}", owner, mode, owner)
        assert ("TMPDIR" in site.begin(TMPDIR=str(folder))[1]) == safe


def test_no_program_of_another_user_s_is_run(site: Site, stranger: Path):
    """Neither before the search path is checked, nor during the check, nor afterwards."""
    ran = site.place / "ran"
    for name in (*TOOLS, "c++", "cmake", "python3", "sudo", "stat"):
        site.program(name, f"echo {name} >>{ran}", stranger)
    told = site.set_up(PATH=f"{stranger}:{site.tools}")
    assert not ran.exists(), ran.read_text()
    assert f"PATH's '{stranger}'" in told.stderr
    assert (site.place / "path").read_text() == f"{site.tools}\n"


def test_it_works_in_its_own_checkout(site: Site, stranger: Path):
    (stranger / "deploy").mkdir()
    subprocess.run(
        ["deploy/setup"],
        env={"HOME": "/root", "PATH": str(site.tools), "CDPATH": str(stranger)},
        cwd=site.top,
        capture_output=True,
        timeout=120,
    )
    assert os.listdir(stranger) == ["deploy"]
    assert (site.top / "build/setup.log").exists()


@pytest.mark.parametrize("script", ["healthcheck", "power-prolog", "power-epilog"])
def test_so_do_the_scripts_for_slurm(site: Site, stranger: Path, script: str):
    for folder, text in ((site.top, "exit 0"), (stranger, f"id -u >{site.place}/ran")):
        (folder / ".venv/bin").mkdir(parents=True)
        site.program("sonde", text, folder / ".venv/bin")
    (stranger / "deploy/slurm").mkdir(parents=True)
    for tool in ("mktemp", "timeout"):
        (site.tools / tool).symlink_to(shutil.which(tool) or f"/usr/bin/{tool}")
    ran = subprocess.run(
        [f"deploy/slurm/{script}"],
        env={"PATH": str(site.tools), "CDPATH": str(stranger)},
        cwd=site.top,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran
    assert not (site.place / "ran").exists()


def test_the_line_about_it_is_one_line_of_text(site: Site):
    said, _ = site.begin(HOME="/nowhere/\x1b[2J\nerror: set-up: all is well")
    (line,) = said.splitlines()
    assert "\x1b" not in line
    assert "error: set-up: all is well" in line


def test_who_owns_the_checkout_may_have_programs_beside_it(site: Site, stranger: Path):
    for path in (site.top, *site.top.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    _, found = site.begin(PATH=f"{site.tools}:{stranger}", HOME=str(stranger))
    assert (found["PATH"], found["HOME"]) == (f"{site.tools}:{stranger}", "/root")


def test_who_is_not_root_keeps_what_is_chosen(site: Site, stranger: Path):
    for path in (site.place, site.top, *site.top.rglob("*")):
        os.chown(path, USER, USER)
    variables = {"HOME": str(stranger), "PATH": f"{site.tools}:{stranger}", "TMPDIR": str(stranger)}
    said, found = site.begin(USER, **variables)
    assert (said, found.items() >= variables.items()) == ("", True)


class TestTheLockAndTheAudit:
    """`make lock` writes the hashes that all set-ups trust; `make audit` reports whether to trust them."""

    @pytest.fixture
    def run(self, place: Path) -> Callable[..., dict[str, str]]:
        """Runs one of the two with replacements for uv and pip-audit, which write down their environment."""
        note = "import os\nwords = [os.getcwd(), *map('='.join, os.environ.items())]\n"
        note += "open({!r}, 'w').write('\\n'.join(words))\nraise SystemExit(1)\n"
        for name in ("uv", "pip_audit"):
            (place / "modules" / name).mkdir(parents=True)
            (place / "modules" / name / "__main__.py").write_text(note.format(str(place / "noted")))

        def run(script: str, cwd: Path, **variables: str) -> dict[str, str]:
            kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
            subprocess.run(
                [sys.executable, str(ROOT / "deploy" / script)],
                env=kept | {"PYTHONPATH": str(place / "modules")} | variables,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=60,
            )
            cwd_, *lines = (place / "noted").read_text().splitlines()
            return {"cwd": cwd_} | dict(line.split("=", 1) for line in lines if "=" in line)

        return run

    @pytest.mark.parametrize("script", ["lock.py", "audit.py"])
    def test_another_user_s_settings_are_not_read(self, run, stranger, script):
        found = run(
            script,
            Path("/"),
            HOME=str(stranger),
            XDG_CONFIG_HOME=str(stranger),
            XDG_CACHE_HOME=str(stranger),
            UV_CONFIG_FILE=str(stranger / "uv.toml"),
            NETRC=str(stranger / ".netrc"),
        )
        assert found["HOME"] == "/root"
        assert not found.keys() & {"XDG_CONFIG_HOME", "XDG_CACHE_HOME", "UV_CONFIG_FILE", "NETRC"}

    def test_uv_stands_where_nobody_else_puts_settings(self, run):
        """uv takes a uv.toml from the current folder, and from each one above it: for a checkout in /tmp these may be
        anybody's.
        """
        assert run("lock.py", ROOT)["cwd"] == "/"

    @pytest.mark.parametrize("script", ["lock.py", "audit.py"])
    def test_no_program_is_taken_from_the_current_folder(self, run, stranger, place, script):
        for name in ("uv", "pip_audit"):
            (stranger / name).mkdir()
            (stranger / name / "__main__.py").write_text(f"open({str(place / 'ran')!r}, 'w')\n")
        run(script, stranger)
        assert not (place / "ran").exists()
