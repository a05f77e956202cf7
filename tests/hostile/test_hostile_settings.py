"""Settings of other users: what Sonde reads, and what it ignores, in a folder that somebody else prepared, and with
variables that somebody else chose. docs/explain/security.md lists all of them.
"""

from __future__ import annotations

import ast
import grp
import os
import pwd
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from sonde.core import surroundings
from sonde.core.errors import EnvironmentFailure
from sonde.core.launch import session

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.root, pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv")]
USER, STRANGER = 1000, 65534
SONDE = [sys.executable, "-P", "-c", "import sys; from sonde.cli.entry import main; sys.exit(main())"]
MODULE = '[store.serve]\nmodule = ["/nowhere/mine.so"]\n'
NONSENSE = "[net.modes]\nnonsense = 1\n"  # an unknown key: a program that reads the file reports it


NOBODY_NAMED = 0xFFFFFFFF
ROOTLESS = f"""
import ctypes, os, sys
if ctypes.CDLL(None).unshare(0x10000000) != 0:  # CLONE_NEWUSER
    sys.exit(77)
open("/proc/self/uid_map", "w").write("0 {USER} 1")
from sonde.core import surroundings
print(os.geteuid(), list(surroundings.make_safe(os.environ)))
"""


def made(path: Path, owner: int = 0, mode: int = 0o755, group: int | None = None) -> Path:
    path.mkdir()
    os.chown(path, owner, owner if group is None else group)
    path.chmod(mode)
    return path


def linked(path: Path, target: Path, owner: int = 0) -> Path:
    path.symlink_to(target)
    os.lchown(path, owner, owner)
    return path


# A folder for a variable, by the rights of others: each function makes it below the given folder, and returns its path.
OTHERS_DECIDE: dict[str, Callable[[Path], str]] = {
    "it is another's": lambda at: str(made(at / "a", STRANGER)),
    "a group of people may write in it": lambda at: str(made(at / "a", 0, 0o775, STRANGER)),
    "everybody may write in it": lambda at: str(made(at / "a", 0, 0o1777)),
    "the folder around it is another's": lambda at: str(made(made(at / "a", STRANGER) / "b")),
    "everybody may rename it": lambda at: str(made(made(at / "a", 0, 0o777) / "b")),
    "a group of people may rename it": lambda at: str(made(made(at / "a", 0, 0o775, STRANGER) / "b")),
    "it is another's in a sticky folder": lambda at: str(made(made(at / "a", 0, 0o1777) / "b", STRANGER)),
    "a link to it is another's": lambda at: str(
        linked(made(at / "a", 0, 0o1777) / "b", Path("/usr/lib"), STRANGER)
    ),
    "a link leads to what is another's": lambda at: str(linked(at / "b", made(at / "a", STRANGER))),
    "a link leads through what is another's": lambda at: str(
        linked(at / "c", made(made(at / "a", STRANGER) / "b"))
    ),
    "a link leads on to another's link": lambda at: str(
        linked(at / "c", linked(made(at / "a", 0, 0o1777) / "b", Path("/usr/lib"), STRANGER))
    ),
    "the way leads up through what is another's": lambda at: str(
        made(made(at / "a", STRANGER) / "b") / "../../../../usr/lib"
    ),
    "nothing is there, and everybody may make it": lambda at: str(made(at / "a", 0, 0o1777) / "b"),
    "nothing is there, and another may make it": lambda at: str(made(at / "a", STRANGER) / "b/c"),
}
ROOT_DECIDES: dict[str, Callable[[Path], str]] = {
    "it is root's": lambda at: str(made(at / "a")),
    "it is root's in a sticky folder": lambda at: str(made(made(at / "a", 0, 0o1777) / "b")),
    "root's link leads to it": lambda at: str(linked(made(at / "a", 0, 0o1777) / "b", made(at / "c"))),
    "a relative link leads to it": lambda at: str(
        linked(made(at / "a") / "b", Path("../") / made(at / "c").name)
    ),
    "links lead through each other": lambda at: str(linked(at / "c", linked(at / "b", made(at / "a")))),
    "it has a slash at its end": lambda at: f"{made(at / 'a')}/",
}


@pytest.fixture
def folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="sonde-hostile-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def prepared(folder: Path, text: str, owner: int, mode: int = 0o644, folder_mode: int = 0o755) -> None:
    (folder / "sonde.toml").write_text(text)
    (folder / "sonde.toml").chmod(mode)
    os.chown(folder / "sonde.toml", owner, owner)
    os.chown(folder, owner, owner)
    folder.chmod(folder_mode)


def sonde(
    folder: Path, uid: int, *words: str, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    who = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    env = {
        name: value for name, value in os.environ.items() if name not in ("SONDE_CONFIG", "XDG_CONFIG_HOME")
    }
    line = [*who, *SONDE, *words]
    return subprocess.run(
        line,
        cwd=folder,
        env=env | {"HOME": str(folder)} | (variables or {}),
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("reader", "owner", "mode", "folder_mode", "why"),
    [
        (0, STRANGER, 0o644, 0o755, "root reads no defaults"),
        (0, 0, 0o644, 0o755, "root reads no defaults"),
        (USER, STRANGER, 0o644, 0o755, f"the file belongs to user {STRANGER}"),
        (USER, USER, 0o666, 0o755, "everybody may write the file"),
        (USER, USER, 0o644, 0o777, "everybody may write its folder"),
    ],
)
def test_defaults_of_somebody_else_s_folder_are_not_read(
    folder: Path, reader: int, owner: int, mode: int, folder_mode: int, why: str
):
    prepared(folder, NONSENSE, owner, mode, folder_mode)
    ran = sonde(folder, reader, "net", "modes")
    assert why in " ".join(ran.stderr.split())
    assert "unknown key" not in ran.stderr


def test_one_s_own_is_read(folder: Path):
    prepared(folder, NONSENSE, USER)
    ran = sonde(folder, USER, "net", "modes")
    assert (ran.returncode, "unknown key 'nonsense'" in ran.stderr) == (2, True)
    assert (
        "unknown key" in sonde(folder, 0, "net", "modes", "--config", "sonde.toml").stderr
    )  # named, it is read


def test_no_folder_says_what_code_is_loaded(folder: Path):
    prepared(folder, MODULE, USER)
    ran = sonde(folder, USER, "store", "serve", "--memory")
    assert (
        ran.returncode,
        "'module' is not read from the current folder" in " ".join(ran.stderr.split()),
    ) == (
        2,
        True,
    )


class TestOfTheEnvironment:
    @pytest.fixture
    def library(self, folder: Path) -> Path:
        """A folder of the stranger's with a component of Open MPI, whose constructor records the user that loads it."""
        if not shutil.which("cc"):
            pytest.skip("no C compiler")
        source, ran = folder / "evil.c", folder / "ran"
        source.write_text(
            "#include <stdio.h>\n#include <unistd.h>\n__attribute__((constructor)) static void begin(void) {\n"
            f'  FILE* out = fopen("{ran}", "a");\n'
            '  if (out) fprintf(out, "uid %d\\n", (int)getuid()), fclose(out);\n}\n'
        )
        # Open MPI looks there by itself; mca-params.conf in the folder above may name any other folder.
        components = folder / ".openmpi" / "components"
        components.mkdir(parents=True)
        words = ["cc", "-shared", "-fPIC", "-o", str(components / "mca_shmem_evil.so"), str(source)]
        subprocess.run(words, check=True, timeout=60)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, STRANGER, STRANGER)
        return ran

    @pytest.mark.mpi
    def test_the_settings_of_an_mpi_in_another_user_s_home_load_nothing_as_root(self, folder, library):
        words = (
            "net",
            "run",
            "--ntasks",
            "2",
            "--sizes",
            "8",
            "--rule",
            "fixed:10",
            "--budget",
            "60s",
            "-o",
            "/dev/null/a.nc",
        )
        out = folder.with_name(f"{folder.name}-out")
        out.mkdir()
        try:
            env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            ran = sonde(folder, 0, *words[:-1], str(out / "a.nc"), variables=env)
            assert ran.returncode == 0, ran.stderr
            assert not library.exists(), library.read_text()
            assert f"HOME is '{folder}', which belongs to user {STRANGER}" in " ".join(ran.stderr.split())
        finally:
            shutil.rmtree(out)

    @pytest.mark.parametrize("name", surroundings.READ_BY_LIBRARIES)
    def test_a_file_that_libraries_read_here_is_another_user_s(self, folder, name):
        (folder / name).write_text("\n")
        os.chown(folder / name, STRANGER, STRANGER)
        for uid in (0, USER):
            ran = sonde(folder, uid, "net", "modes")
            assert ran.returncode == 3
            assert f"./{name} belongs to user {STRANGER}" in " ".join(ran.stderr.split())
        assert sonde(folder, STRANGER, "net", "modes").returncode == 0

    def test_what_libraries_read_here_is_switched_off(self, folder):
        environ: dict[str, str] = {"HOME": "/root"}
        list(surroundings.make_safe(environ, folder))
        assert environ.items() >= surroundings.SWITCHED_OFF.items()

    @pytest.mark.parametrize(
        ("owner", "mode", "safe"),
        [(0, 0o700, True), (0, 0o755, True), (0, 0o1777, False), (0, 0o777, False), (STRANGER, 0o755, False)],
    )
    def test_root_s_home_is_its_own(self, folder, owner, mode, safe):
        os.chown(folder, owner, owner)
        folder.chmod(mode)
        environ = {"HOME": str(folder)}
        said = list(surroundings.make_safe(environ, Path("/")))
        assert (environ["HOME"] == str(folder), bool(said)) == (safe, not safe)

    @pytest.mark.parametrize("home", ["", ".", "home", "/nowhere/at/all", "/dev/null"])
    def test_a_home_that_is_none_is_replaced(self, home):
        environ = {"HOME": home}
        assert list(surroundings.make_safe(environ, Path("/")))
        assert environ["HOME"] == "/root"

    @pytest.mark.parametrize(
        ("owner", "mode", "safe"),
        [(0, 0o700, True), (0, 0o1777, True), (0, 0o777, False), (STRANGER, 0o1777, False)],
    )
    def test_root_s_temporary_files_are_where_nobody_else_chooses_them(self, folder, owner, mode, safe):
        os.chown(folder, owner, owner)
        folder.chmod(mode)
        environ = {"HOME": "/root", "TMPDIR": str(folder)}
        said = list(surroundings.make_safe(environ, Path("/")))
        assert ("TMPDIR" in environ, bool(said)) == (safe, not safe)

    @pytest.mark.parametrize("name", surroundings.LISTS)
    def test_nothing_is_looked_for_where_others_put_it(self, folder, name):
        folder.chmod(0o1777)
        environ = {"HOME": "/root", name: f"/usr/bin:.::lib:{folder}:/nowhere"}
        said = list(surroundings.make_safe(environ, Path("/")))
        assert environ[name] == "/usr/bin:/nowhere"
        assert said[0].startswith(f"{name} holds '.', '', 'lib', '{folder}'")
        environ = {"HOME": "/root", name: "."}
        list(surroundings.make_safe(environ, Path("/")))
        assert name not in environ

    @pytest.mark.mpi
    def test_no_program_of_another_user_s_is_run_from_a_search_path(self, folder):
        """An mpirun of the stranger's, in a folder in which nobody else may write."""
        tools, ran = folder / "bin", folder / "ran"
        tools.mkdir()
        (tools / "mpirun").write_text(f"#!/bin/sh\nid -u >>{ran}\nexit 1\n")
        (tools / "mpirun").chmod(0o755)
        for path in (folder, tools, tools / "mpirun"):
            os.chown(path, STRANGER, STRANGER)
        variables = {"HOME": "/root", "PATH": f"{tools}:{os.environ['PATH']}"}
        told = sonde(folder, 0, "net", "run", "--ntasks", "2", "--dry-run", variables=variables)
        assert not ran.exists(), told
        assert f"PATH holds '{tools}', where others may put" in " ".join(told.stderr.split())

    @pytest.mark.parametrize("what", OTHERS_DECIDE)
    def test_nobody_else_decides_what_is_on_the_way_to_it(self, folder, what):
        way = OTHERS_DECIDE[what](folder)
        environ = {"HOME": "/root", "PATH": f"/usr/bin:{way}", "XDG_CONFIG_HOME": way}
        said = list(surroundings.make_safe(environ, Path("/")))
        assert environ["PATH"] == "/usr/bin"
        assert "XDG_CONFIG_HOME" not in environ
        assert said[0].startswith(f"XDG_CONFIG_HOME is '{way}', ")
        assert said[1].startswith(f"PATH holds '{way}', where others may put programs or libraries (")
        environ = {"HOME": way}
        list(surroundings.make_safe(environ, Path("/")))
        assert environ["HOME"] == "/root"

    @pytest.mark.parametrize("what", [what for what in OTHERS_DECIDE if "everybody" not in what])
    def test_nor_on_the_way_to_temporary_files(self, folder, what):
        environ = {"HOME": "/root", "TMPDIR": OTHERS_DECIDE[what](folder)}
        assert len(list(surroundings.make_safe(environ, Path("/")))) == 1
        assert "TMPDIR" not in environ

    @pytest.mark.parametrize("what", ROOT_DECIDES)
    def test_what_root_decides_stays_as_it_is(self, folder, what):
        way = ROOT_DECIDES[what](folder)
        environ = {"HOME": way, "PATH": f"/usr/bin:{way}", "TMPDIR": way, "XDG_CONFIG_HOME": way}
        before = dict(environ)
        assert list(surroundings.make_safe(environ, Path("/"))) == []
        assert environ.items() >= before.items()

    @pytest.mark.parametrize(
        ("number", "members", "primary", "safe"),
        [
            (50, [], [], True),  # as Debian has the group staff
            (50, ["root"], [], True),
            (50, ["eve"], [], False),
            (50, [], ["eve"], False),
            (1500, [], [], False),  # a group of people: a directory service need not list them
            (0, [], ["halt"], True),  # as in Fedora
            (0, ["eve"], [], False),
        ],
    )
    def test_a_group_is_root_s_while_nobody_is_in_it(
        self, folder, monkeypatch, number, members, primary, safe
    ):
        accounts = [pwd.getpwuid(0)]
        accounts += [pwd.struct_passwd((name, "x", 1000, number, "", "/", "")) for name in primary]
        group = grp.struct_group(("staff", "x", number, members))
        monkeypatch.setattr(grp, "getgrgid", lambda _: group)
        monkeypatch.setattr(pwd, "getpwall", lambda: accounts)
        os.chown(folder, 0, number)
        folder.chmod(0o2775)
        environ = {"HOME": "/root", "PATH": f"/usr/bin:{folder}"}
        said = list(surroundings.make_safe(environ, Path("/")))
        assert environ["PATH"] == (f"/usr/bin:{folder}" if safe else "/usr/bin")
        assert ["the group 'staff' can write in" in one for one in said] == ([] if safe else [True])

    def test_an_access_list_is_seen(self, folder):
        entries = [(1, 7, NOBODY_NAMED), (2, 7, STRANGER), (4, 5, NOBODY_NAMED), (16, 7, NOBODY_NAMED)]
        entries.append((32, 5, NOBODY_NAMED))
        words = b"".join(
            struct.pack("<HHI", *entry) for entry in entries
        )  # acl(5), <linux/posix_acl_xattr.h>
        try:
            os.setxattr(folder, "system.posix_acl_access", struct.pack("<I", 2) + words)
        except OSError as error:
            pytest.skip(f"no access lists on this file system: {error.strerror}")
        environ = {"HOME": "/root", "PATH": f"/usr/bin:{folder}"}
        (said,) = surroundings.make_safe(environ, Path("/"))
        assert "everybody in its access list can write" in said

    def test_who_owns_sonde_itself_may_have_programs_beside_it(self, folder, monkeypatch):
        """An account that installs software for all: root already runs its programs."""
        os.chown(folder, STRANGER, STRANGER)
        (folder / "surroundings.py").touch()
        os.chown(folder / "surroundings.py", STRANGER, STRANGER)
        monkeypatch.setattr(surroundings, "__file__", str(folder / "surroundings.py"))
        environ = {"HOME": str(folder), "PATH": f"/usr/bin:{folder}", "XDG_CONFIG_HOME": str(folder)}
        assert len(list(surroundings.make_safe(environ, Path("/")))) == 2
        assert environ["PATH"] == f"/usr/bin:{folder}"
        assert environ["HOME"] == "/root"  # root's own files there would disturb that account

    @pytest.mark.parametrize(
        ("name", "value", "safe"),
        [
            ("OMPI_MCA_mca_base_component_path", "SYSTEM_DEFAULT:USER_DEFAULT", True),
            ("OMPI_MCA_mca_base_component_path", "SYSTEM_DEFAULT:{theirs}", False),
            ("OMPI_MCA_mca_base_param_files", "/etc/openmpi/a.conf,{theirs}/b.conf", False),
            ("PMIX_MCA_mca_base_component_path", "{theirs}", False),
            ("OMPI_MCA_btl_base_verbose", "{theirs}", True),  # not a path that is searched
            ("PIP_CONFIG_FILE", "/dev/null", True),
            ("PIP_CONFIG_FILE", "{theirs}/pip.conf", False),
            ("FI_PROVIDER_PATH", "@/usr/lib/libfabric", True),
            ("FI_PROVIDER_PATH", "@{theirs}", False),
            ("LD_LIBRARY_PATH", "@/usr/lib", False),  # there it is a folder with the name @
            ("LD_LIBRARY_PATH", "", True),
            ("MPI_HOME", "/opt/mpi", True),
            ("MPI_HOME", "{theirs}", False),
            ("SONDE_MPI", "openmpi", True),
            ("SONDE_MPI", "{theirs}/bin/mpirun", False),
        ],
    )
    def test_variables_are_read_as_their_library_reads_them(self, folder, name, value, safe):
        theirs = folder / "theirs"
        theirs.mkdir()
        os.chown(theirs, STRANGER, STRANGER)
        environ = {"HOME": "/root", name: value.format(theirs=theirs)}
        assert len(list(surroundings.make_safe(environ, Path("/")))) == (not safe)
        assert (name in environ) == safe

    @pytest.mark.hardware("a kernel that makes user namespaces, which none does in a chroot")
    def test_root_of_a_user_namespace_keeps_the_machine_s_own_folders(self, folder):
        """There all files of the machine's root appear as nobody's."""
        os.chown(folder, USER, USER)
        ran = subprocess.run(
            [
                "setpriv",
                f"--reuid={USER}",
                f"--regid={USER}",
                "--clear-groups",
                sys.executable,
                "-P",
                "-c",
                ROOTLESS,
            ],
            env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if ran.returncode == 77:
            pytest.skip("no user namespaces here")
        assert ran.stdout == "0 []\n", ran.stderr

    @pytest.mark.parametrize(
        ("mapped", "owners"),
        [
            ("0 0 4294967295", {0}),
            ("0 1000 1", {0, 65534}),
            ("0 1000 1\n1 100000 65536", {0}),
            ("0 1000 1\n1 100000 65533", {0, 65534}),
            ("nonsense", {0}),
        ],
    )
    def test_whose_files_count_as_root_s(self, tmp_path, monkeypatch, mapped, owners):
        (tmp_path / "overflowuid").write_text("65534\n")
        (tmp_path / "uid_map").write_text(mapped + "\n")
        monkeypatch.setattr(surroundings, "Path", lambda path: tmp_path / os.path.basename(path))
        assert surroundings._root_here() == owners

    def test_who_is_not_root_keeps_what_is_chosen(self, folder, monkeypatch):
        monkeypatch.setattr(os, "geteuid", lambda: USER)
        environ = {"HOME": str(folder), "PATH": ".:/usr/bin", "TMPDIR": str(folder)}
        before = dict(environ)
        assert list(surroundings.make_safe(environ, Path("/"))) == []
        assert environ == before | surroundings.SWITCHED_OFF

    def test_a_file_that_everybody_may_write_is_not_one_s_own(self, folder):
        (folder / "ucx.conf").write_text("")
        list(surroundings.make_safe({"HOME": "/root"}, folder))
        (folder / "ucx.conf").chmod(0o666)
        with pytest.raises(EnvironmentFailure, match="settings"):
            list(surroundings.make_safe({"HOME": "/root"}, folder))


@pytest.mark.skipif(os.geteuid() != 0, reason="an attack on root needs root")
class TestTheCurrentFolder:
    """The folder of another user, who puts a library's settings there only after a command has checked for them."""

    @pytest.fixture
    def stands_with_eve(self, tmp_path, monkeypatch):
        place = tmp_path / "eve"
        place.mkdir()
        os.chown(place, USER, -1)
        monkeypatch.chdir(place)
        list(surroundings.make_safe({"HOME": "/root"}))
        return place

    def test_ranks_start_elsewhere(self, stands_with_eve, tmp_path):
        class Quiet:
            room, poll_s, heard, interrupted, process = "net", 0.05, 0.0, False, None
            progress = nullcontext()

            def take(self, event):
                pass

        run_dir = tmp_path / "run"
        run_dir.mkdir()
        session.listen(["/bin/sh", "-c", "pwd >&2"], run_dir, Quiet(), 0, 60)
        assert (run_dir / "log").read_text() == "/\n"

    def test_matplotlib_is_imported_elsewhere(self, stands_with_eve):
        (stands_with_eve / "matplotlibrc").write_text("figure.dpi: 7\n")
        text = (
            "import os\nfrom sonde.report import render_static\n"
            "print(render_static._matplotlib().rcParams['figure.dpi'], os.getcwd())"
        )
        ran = subprocess.run([sys.executable, "-P", "-c", text], capture_output=True, text=True, timeout=120)
        assert ran.stdout == f"100.0 {stands_with_eve}\n", ran.stderr

    def test_a_folder_of_root_s_own_is_stood_in(self, tmp_path, monkeypatch):
        monkeypatch.chdir("/root")
        assert surroundings.place_of_ranks() is None
        with surroundings.standing_safely():
            assert os.getcwd() == "/root"


# ---- the list ------------------------------------------------------------------------------------

PAGE = (ROOT / "docs/explain/security.md").read_text()
ENVIRONMENT = re.compile(r"(^|\.)_?(environ|environment|env)$")
# Names that are not constants where they are read: the place, and the possible values.
BY_NAME = {
    "src/sonde/core/launch/mpirun.py": "RESOURCE_MANAGER",
    "src/sonde/core/launch/process.py": "MARK",
    "src/sonde/core/launch/remains.py": "temporary folders",
    "src/sonde/core/launch/session_files.py": "RESOURCE_MANAGER, OPAL_PREFIX and PRTE_PREFIX",
    "src/sonde/core/launch/start.py": "TRANSPORT_VARIABLES and MPI_PREFIXES",
    "src/sonde/core/netcdf.py": "HDF5's",
    "src/sonde/core/provenance.py": "_JOB_VARIABLES",
    "src/sonde/core/surroundings.py": "LISTS, SETTINGS and SWITCHED_OFF",
    "src/sonde/io/trace/hints.py": "ROMIO_HINTS, and what it sets",
    "src/sonde/io/record/run_whatif.py": "ROMIO_HINTS",
    "src/sonde/power/jobs/cli.py": "PASSED_ON, and what --env names",
    "src/sonde/power/jobs/slurm_job.py": "SLURM_JOB_*_TIME",
    "native/core/shared_object.cpp": "SONDE_*_MODULES",
    "native/io/load/main.cpp": "ranks",
    "native/io/trace/start.cpp": "ranks",
}


def listed() -> list[str]:
    """First cells of the table: patterns of names."""
    section = PAGE.partition("## Settings of others")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    return re.findall(r"`([^`]+)`", " ".join(cells))


def is_listed(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in listed())


def read_in_python() -> Iterator[tuple[str, str | None]]:
    """(file, name) of each variable that is read or set; None for a name that is not a constant."""
    for path in sorted((ROOT / "src/sonde").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            key: ast.expr | None = None
            if isinstance(node, ast.Call):
                function = ast.unparse(node.func)
                whose, _, what = function.rpartition(".")
                asks = what in ("get", "pop", "setdefault") and ENVIRONMENT.search(whose)
                if asks or function in ("os.getenv", "getenv"):
                    key = node.args[0]
            elif isinstance(node, ast.Subscript) and ENVIRONMENT.search(ast.unparse(node.value)):
                key = node.slice
            elif isinstance(node, ast.Compare) and ENVIRONMENT.search(ast.unparse(node.comparators[0])):
                key = node.left if isinstance(node.ops[0], ast.In) else None
            if key is not None:
                constant = isinstance(key, ast.Constant) and isinstance(key.value, str)
                yield str(path.relative_to(ROOT)), str(key.value) if constant else None  # type: ignore[attr-defined]


def read_in_native() -> Iterator[tuple[str, str | None]]:
    for path in sorted(path for end in ("cpp", "hpp") for path in (ROOT / "native").rglob(f"*.{end}")):
        text = path.read_text()
        for argument in re.findall(r"\b(?:secure_)?getenv\(([^)]*)\)", text):
            name = re.fullmatch(r'"(\w+)"', argument)
            yield str(path.relative_to(ROOT)), name[1] if name else None
        for names in re.findall(r"for \(const char\* name : \{([^}]*)\}\)", text):
            yield from ((str(path.relative_to(ROOT)), name) for name in re.findall(r'"([A-Z_]+)"', names))
        for name in re.findall(r'constexpr const char\* variable = "(\w+)"', text):
            yield str(path.relative_to(ROOT)), name


def test_every_variable_that_is_read_is_listed():
    found = [*read_in_python(), *read_in_native()]
    assert len({name for _, name in found}) > 30
    assert sorted({f"{where}: {name}" for where, name in found if name and not is_listed(name)}) == []
    assert {where for where, name in found if name is None} == set(BY_NAME)


def test_names_that_stand_in_lists_are_listed():
    from sonde.core import provenance
    from sonde.core.launch import mpirun, process, start
    from sonde.power.jobs.cli import PASSED_ON

    names = [*mpirun.RESOURCE_MANAGER, process.MARK, *start.TRANSPORT_VARIABLES, *provenance._JOB_VARIABLES]
    names += [f"{prefix}x" for prefix in start.MPI_PREFIXES]
    names += [*PASSED_ON, *surroundings.LISTS, *surroundings.SETTINGS, *surroundings.SWITCHED_OFF]
    names += ["SLURM_JOB_START_TIME"]
    text = PAGE.partition("## Settings of others")[2]
    assert [name for name in names if not is_listed(name) and f"`{name}`" not in text] == []
    assert [name for name in surroundings.READ_BY_LIBRARIES if f"./{name}" not in listed()] == []


def test_the_list_names_nothing_twice():
    names = listed()
    assert len(names) == len(set(names))
