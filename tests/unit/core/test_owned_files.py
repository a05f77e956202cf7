"""The one way to files where others may write: what is refused, and what is as it always was."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from sonde.core import owned_files
from sonde.core.errors import DataError, EnvironmentFailure
from sonde.core.owned_files import Folder, NewFile, is_part, part_name, write_whole


@pytest.fixture
def held(tmp_path):
    with Folder(tmp_path) as folder:
        yield folder


def named(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_read_changed_made_replaced_and_removed(held, tmp_path):
    held.write("a", b"one")
    assert held.read("a") == b"one"
    with os.fdopen(held.change("a"), "r+b") as file:
        file.write(b"ONE")
    assert held.read_text("a") == "ONE"
    held.write("a", b"two")
    assert (held.read("a"), held.names()) == (b"two", ["a"])
    os.close(held.make("b"))
    held.replace("b", "a")
    assert held.read("a") == b""
    held.remove("a")
    assert (held.facts("a"), named(tmp_path)) == (None, [])


def test_what_is_not_there_is_no_refusal(held):
    for act in (held.read, held.change, held.remove, held.folder):
        with pytest.raises(FileNotFoundError):
            act("a")


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "pipe", "socket"])
@pytest.mark.parametrize("act", ["read", "change", "change_or_make"])
def test_what_is_no_plain_file_is_refused_and_reported(held, tmp_path, kind, act):
    path = tmp_path / "a"
    (tmp_path / "precious").write_text("precious")
    if kind == "link":
        path.symlink_to("precious")
    elif kind == "dangling":
        path.symlink_to("elsewhere")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(os.path.relpath(path))
    with pytest.raises(EnvironmentFailure) as raised:
        getattr(held, act)("a")
    assert raised.value.code == "core.unsafe_file"
    assert str(path) in raised.value.what
    assert ("is a link" if kind in ("link", "dangling") else kind) in raised.value.what
    assert "ls -l" in raised.value.hint
    assert not (tmp_path / "elsewhere").exists()
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_file_with_two_names_is_read_and_not_changed(held, tmp_path):
    """As `cp -al` makes a copy of a folder to keep: reading it is safe where nobody else may write."""
    tmp_path.chmod(0o700)
    (tmp_path / "a").write_text("one")
    os.link(tmp_path / "a", tmp_path / "b")
    with Folder(tmp_path) as folder:
        assert folder.read("a") == b"one"
        with pytest.raises(EnvironmentFailure, match=r"has 2 names \(hard links\)"):
            folder.change("a")
    tmp_path.chmod(0o770)
    with Folder(tmp_path) as folder, pytest.raises(EnvironmentFailure, match="has 2 names"):
        folder.read("a")


@pytest.mark.parametrize(
    ("mode", "own", "private"),
    [(0o700, True, True), (0o755, True, True), (0o775, True, False), (0o777, True, False)],
)
def test_whose_a_folder_is(tmp_path, mode, own, private):
    tmp_path.chmod(mode)
    with Folder(tmp_path) as folder:
        assert (folder.is_own, folder.is_private) == (own, private)


def test_a_folder_that_all_may_write_in_is_refused_but_one_that_a_group_may_is_not(tmp_path):
    tmp_path.chmod(0o775)
    with Folder(tmp_path) as folder:
        folder.refuse_unless_own("work", "")
    tmp_path.chmod(0o777)
    with (
        Folder(tmp_path) as folder,
        pytest.raises(EnvironmentFailure, match="every user may write") as raised,
    ):
        folder.refuse_unless_own("work", "")
    assert (raised.value.code, raised.value.hint) == ("core.unsafe_folder", f"chmod go-w {tmp_path}")
    tmp_path.chmod(0o1777)
    with Folder(tmp_path) as folder:
        folder.refuse_unless_own("work", "")


@pytest.mark.root
def test_a_folder_of_somebody_else_is_refused_and_its_owner_named(tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "a").write_text("theirs")
    (folder / "b").write_text("mine, and moved there")
    os.chown(folder / "a", 65534, 65534)
    os.chown(folder, 65534, 65534)
    with Folder(folder) as held:
        assert not held.is_own
        with pytest.raises(
            EnvironmentFailure, match=r"cannot work: .* belongs to nobody \(uid 65534\)"
        ) as raised:
            held.refuse_unless_own("work", "copy it")
        assert raised.value.hint == "copy it"
        assert held.read("a") == b"theirs"
        with pytest.raises(EnvironmentFailure, match=r"belongs to root \(uid 0\), and the folder to nobody"):
            held.read("b")


@pytest.mark.root
def test_a_folder_of_root_s_where_the_file_system_takes_root_for_nobody(tmp_path, monkeypatch):
    folder = tmp_path / "ours"
    folder.mkdir()
    (folder / "a").write_text("one")
    for path in (folder, folder / "a"):
        os.chown(path, 65534, 65534)
    monkeypatch.setattr(owned_files, "_owner_of_new_files", lambda descriptor: 65534)
    with Folder(folder) as held:
        assert held.is_own
        os.close(held.change("a"))


def test_whom_the_file_system_takes_us_for(tmp_path, monkeypatch):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        assert owned_files._owner_of_new_files(descriptor) == os.geteuid()
        real = os.open

        def without_tmpfile(path, flags, *more, **keys):
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "Operation not supported")
            return real(path, flags, *more, **keys)

        monkeypatch.setattr(os, "open", without_tmpfile)  # as on NFS
        assert owned_files._owner_of_new_files(descriptor) == os.geteuid()
    finally:
        os.close(descriptor)
    assert named(tmp_path) == []


def test_a_folder_is_the_one_that_was_opened_whatever_becomes_of_its_path(tmp_path):
    first = tmp_path / "a"
    first.mkdir()
    with Folder(first) as held:
        first.rename(tmp_path / "b")
        (tmp_path / "elsewhere").mkdir()
        first.symlink_to("elsewhere")
        held.write("file", b"text")
    assert named(tmp_path / "b") == ["file"]
    assert named(tmp_path / "elsewhere") == []


def test_a_link_to_a_folder_is_no_folder_in_one(held, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    with held.folder("there") as below:
        assert below.path == tmp_path / "there"
    with pytest.raises(OSError, match="link"):
        held.folder("link")


def test_all_of_a_folder_goes_and_nothing_that_a_link_leads_to(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/letter").write_text("dear aunt")
    scratch = tmp_path / "scratch"
    (scratch / "0/1").mkdir(parents=True)
    (scratch / "0/1/socket").write_text("")
    (scratch / "link").symlink_to(tmp_path / "precious")
    with Folder(scratch) as held:
        held.remove_all()
    assert named(scratch) == []
    assert named(tmp_path / "precious") == ["letter"]


def test_a_ctrl_c_while_a_new_file_is_made_leaves_none(tmp_path, monkeypatch):
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(NewFile, "_remove_left", interrupted)
    with pytest.raises(KeyboardInterrupt):
        NewFile(tmp_path / "a.nc")
    assert named(tmp_path) == []


def test_names_of_parts_are_known_again():
    assert is_part(part_name("a.nc"))
    assert is_part(part_name("a.nc"), of="a.nc")
    assert not is_part(part_name("a.nc"), of="b.nc")
    assert part_name("a.nc") != part_name("a.nc")
    for name in ("a.nc.part", "a.nc", "a.nc.0123456789abcde.part", ".part"):
        assert not is_part(name)
    long = "ä" * 127
    assert len(os.fsencode(part_name(long))) <= 255
    assert is_part(part_name(long), of=long)


def test_a_file_in_the_making_is_seen_by_nobody(tmp_path):
    with NewFile(tmp_path / "a") as new:
        with new.file() as file:
            file.write(b"text")
        assert new.path.read_bytes() == b"text"
        assert not (tmp_path / "a").exists()
        new.publish(sync=True)
        new.discard()
    assert named(tmp_path) == ["a"]


def test_one_that_is_not_published_goes(tmp_path):
    (tmp_path / "a").write_text("older")
    with pytest.raises(ZeroDivisionError), NewFile(tmp_path / "a"):
        raise ZeroDivisionError
    assert named(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "older"
    (tmp_path / "b").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        write_whole(tmp_path / "b", b"text")
    assert named(tmp_path) == ["a", "b"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        NewFile(tmp_path / "none" / "a")
    (tmp_path / "a").write_text("")
    with pytest.raises(NotADirectoryError):
        Folder(tmp_path / "a")


def test_a_folder_is_made_where_nobody_else_decides(tmp_path):
    owned_files.make_folder(tmp_path / "a/b", 0o700, parents=True)
    owned_files.make_folder(tmp_path / "a/b", 0o700, exist_ok=True)
    assert (tmp_path / "a/b").stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError):
        owned_files.make_folder(tmp_path / "a/b")
    with pytest.raises(FileNotFoundError):
        owned_files.make_folder(tmp_path / "none/b")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        owned_files.make_folder(tmp_path / "file/b")


def test_no_folder_is_made_where_everybody_may_rename_it(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(EnvironmentFailure, match="everybody can write") as refused:
        owned_files.make_folder(tmp_path / "open/a.run")
    assert refused.value.code == owned_files.FOLDER_OF_OTHERS
    assert "/a.nc, or first: cd " in refused.value.hint
    (tmp_path / "open").chmod(0o1777)
    owned_files.make_folder(tmp_path / "open/a.run")


def test_only_a_plain_file_is_opened_to_read(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        with owned_files.reading(tmp_path / name) as file:
            assert file.read() == b"x"
    os.mkfifo(tmp_path / "pipe")
    for name, kind in (("pipe", "a pipe"), (".", "a folder")):
        with pytest.raises(DataError, match=f"is {kind}, not a file"):
            owned_files.open_to_read(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        owned_files.open_to_read(tmp_path / "none")
