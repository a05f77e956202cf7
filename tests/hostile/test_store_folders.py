"""Folders of stores that somebody else made first, or may write into: no backend opens their contents."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from other_users import STRANGER, as_user, place, stranger

from sonde import _store as store
from sonde.core.errors import SondeError
from sonde.store.client import embedded

__all__ = ["place", "stranger"]
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users"),
]
KINDS = [
    (role, kind)
    for role, kind in (("kv", "lmdb"), ("kv", "rocksdb"), ("db", "sqlite"), ("data", "posix"))
    if kind in store.backends(role)
]


def refusal(role: str, folder: Path) -> SondeError:
    kind = next(kind for r, kind in KINDS if r == role)
    with pytest.raises(SondeError) as caught:
        embedded(**{role: f"{kind},path={folder}"}).close()
    assert caught.value.code == "store.cannot_open"
    return caught.value


def laid_out(folder: Path, kind: str) -> None:
    """A folder that looks like a store's own, with a link where the backend would begin to write."""
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    (folder / "sonde-store").write_text(f"sonde-store {kind} 1\n")
    (folder / "sonde-store").chmod(0o666)
    for name in ("data.mdb", "rows.db", "00", "CURRENT"):
        (folder / name).symlink_to("/root/made-by-a-stranger")


@pytest.mark.parametrize(("role", "kind"), KINDS)
def test_a_folder_that_a_stranger_made_first_is_refused_and_left_as_it_was(role: str, kind: str, place: Path):
    place.chmod(0o1777)
    folder = place / "store"
    as_user(STRANGER, lambda: laid_out(folder, kind))
    before = sorted(path.name for path in folder.iterdir())
    assert f"belongs to user {STRANGER}" in str(refusal(role, folder))
    assert sorted(path.name for path in folder.iterdir()) == before
    assert not Path("/root/made-by-a-stranger").exists()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_may_write_into_is_refused(mode: int, place: Path):
    folder = place / "store"
    folder.mkdir()
    folder.chmod(mode)
    error = refusal("data", folder)
    assert "other users can write into it" in str(error)
    assert "chmod go-w" in str(error.hint)
    folder.chmod(0o755)
    with embedded(data=f"posix,path={folder}") as client:
        client.create("s", "o")
        client.write("s", "o", b"v")


@pytest.mark.parametrize(("role", "kind"), KINDS)
def test_a_folder_in_a_stranger_s_is_not_even_made(role: str, kind: str, stranger: Path, place: Path):
    own = place / "own"
    own.mkdir(mode=0o700)
    as_user(STRANGER, lambda: (stranger / "link").symlink_to(own))
    for path in (stranger / "store", stranger / "link" / "store", place / "own" / ".." / "stranger" / "x"):
        assert f"on the way to it belongs to user {STRANGER}" in str(refusal(role, path))
    assert list(own.iterdir()) == []
    assert [path.name for path in stranger.iterdir()] == ["link"]


def test_a_folder_in_one_that_others_may_write_into_is_not_made(place: Path):
    place.chmod(0o777)
    assert "everybody may write in" in str(refusal("data", place / "store"))
    place.chmod(0o770)
    os.chown(place, 0, STRANGER)
    assert f"the group {STRANGER} may write in" in str(refusal("data", place / "store"))
    assert list(place.iterdir()) == []


def test_a_link_of_a_stranger_is_not_followed(place: Path):
    own = place / "own"
    own.mkdir(mode=0o700)
    place.chmod(0o1777)
    link = place / "link"
    as_user(STRANGER, lambda: link.symlink_to(own))
    assert f"/link' on the way to it belongs to user {STRANGER}" in str(refusal("data", link))
    assert list(own.iterdir()) == []
    mine = place / "mine"
    mine.symlink_to(own)
    with embedded(data=f"posix,path={mine}") as client:
        client.create("s", "o")


def test_a_marker_under_a_second_name_is_refused(place: Path):
    folder = place / "store"
    folder.mkdir(mode=0o700)
    (place / "elsewhere").write_text("sonde-store posix 1\n")
    os.link(place / "elsewhere", folder / "sonde-store")
    assert "with one link" in str(refusal("data", folder))
