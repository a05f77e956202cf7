"""`sonde io run --attach` by root, on a process of another user: no name chosen by that user decides what root writes.

A helper that runs as root watches the kernel, and reads its orders from a file. A path may contain any byte except NUL,
also a line break: the name of a program was once a line of its own in that file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from other_users import STRANGER, as_user, place, stranger, victim

from sonde.core.errors import SondeError
from sonde.io.record import run_watch
from sonde.io.trace import run_close

__all__ = ["place", "stranger", "victim"]
pytestmark = pytest.mark.root


@pytest.fixture(scope="module", autouse=True)
def kernel() -> None:
    """Skips if this machine cannot attach to processes."""
    try:
        sight = run_watch.tried()
    except SondeError as error:
        pytest.skip(f"{error.what}: {error.hint}")
    if sight.calls or sight.uprobes:
        pytest.skip(sight.calls or sight.uprobes)


def program(path: bytes) -> Path:
    """`cat` under a name of the stranger's choice."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    shutil.copy("/bin/cat", path)
    return Path(os.fsdecode(path))


@contextmanager
def running(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program, running as the stranger's process, busy with system calls."""
    with open("/dev/zero", "rb") as nothing:
        child = subprocess.Popen(
            [path], stdin=nothing, stdout=subprocess.DEVNULL, user=STRANGER, group=STRANGER, extra_groups=[]
        )
    try:
        yield child
    finally:
        child.kill()
        child.wait()


ATTACH = ("--layers", "posix", "--kernel", "--for", "0.3s", "--json", "-o", "a.nc")


class TestNamesOfPrograms:
    def test_a_line_break_does_not_say_where_root_writes(self, sonde, stranger):
        """The helper once wrote 31 MB into a folder of the stranger's."""
        folder = stranger / "mine"
        name = os.fsencode(stranger) + b"/a\nfolder " + os.fsencode(folder)

        def make() -> None:
            folder.mkdir()
            program(name + b"/cat")
            (stranger / "mine/cat").mkdir()  # the path in the line is a folder

        as_user(STRANGER, make)
        with running(Path(os.fsdecode(name + b"/cat"))) as process:
            told = sonde("io", "run", "--attach", process.pid, *ATTACH).expect(0).json
        assert [path for path in folder.rglob("*") if path.is_file()] == []
        assert [one["pid"] for one in told["processes"]] == [process.pid]
        assert {one["function"] for one in told["functions"]} >= {"read"}

    def test_a_line_break_does_not_overwrite_a_file_of_root_s(self, sonde, stranger, victim):
        """Nor by a link under the name that the helper would give its file."""
        before = victim.read_bytes()
        folder = stranger / "mine"
        name = os.fsencode(stranger) + b"/a\nfolder " + os.fsencode(folder)
        as_user(STRANGER, lambda: (folder.mkdir(), program(name)))
        with running(Path(os.fsdecode(name))) as process:
            link = f"{os.uname().nodename}-{process.pid}-watch-{process.pid}.blk"
            as_user(STRANGER, lambda: (folder / link).symlink_to(victim))
            sonde("io", "run", "--attach", process.pid, *ATTACH).expect(0)
        assert victim.read_bytes() == before
        assert [path.name for path in folder.iterdir()] == [link]

    @pytest.mark.parametrize("name", [b"caf\xe9 au lait", b"tab\there", b"100% \x1b[31m red", b"\xff\xfe"])
    def test_any_name_is_traced(self, sonde, stranger, name):
        """Also a name that is not UTF-8: it once ended in a traceback, and nobody could look at such a process."""
        path = os.fsencode(stranger) + b"/" + name
        as_user(STRANGER, lambda: program(path))
        with running(Path(os.fsdecode(path))) as process:
            told = sonde("io", "run", "--attach", process.pid, *ATTACH).expect(0).json
        assert [one["pid"] for one in told["processes"]] == [process.pid]
        assert {one["function"] for one in told["functions"]} >= {"read"}


def test_a_library_s_name_is_no_line_of_the_table_of_functions(place):
    """Each line of the table has one field, whatever name a library of the traced program has."""
    from sonde.core.lines import encoded

    library = "/home/me/lib\n7\t0\tfake\t/lib/other.so"
    (place / "watch.functions").write_text(f"1\t0\twrite\t{encoded(library)}\n")
    assert run_close.functions(place) == [(1, 0, "write", library)]
