"""Files in folders that another user may be able to write: the one way to open, make, replace and remove them.

The owner of a folder decides what a path in it leads to, and may change it between two calls: a link to a file that
only the caller may write, a pipe without a writer, a second name (hard link) of a file elsewhere. Every function here
therefore does three things:

- it opens the folder once and reaches the files from that descriptor;
- it opens a file without following links, and then checks what it opened: a plain file, its owner, its number of names;
- it makes a file with O_EXCL under a random name, and renames it when it is complete.

Reading is allowed in any folder, as long as the file belongs to the owner of the folder: a link or a hard link would
show the reader's own files. Only the owner may change or remove files: if root did it for somebody else, that user
would borrow root's rights. A folder that a group may write still counts as its owner's, because a member of the group
who can move one of the owner's files into it could have removed that file before. A folder that every user may write
does not.

Some file systems map users: NFS with root_squash maps root to nobody, others map everybody to the user who mounted
them. Files and folders of the caller then belong to that user; `Folder.is_own` asks the file system.

A folder that Sonde makes is used by its path afterwards: by libraries, by programs that start in it, by people. A user
who may rename it can put another one in its place, even if the folder belongs to Sonde's user. So `make_folder` refuses
a place if a user whom the caller does not trust controls a folder on the way.

`open_to_read` opens a file for reading that anybody may have made, such as a dataset: a plain file, never a pipe or a
device.

The C++ twin is native/core/owned_file.hpp.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import IO, BinaryIO, Self

from sonde.core import surroundings
from sonde.core.errors import DataError, EnvironmentFailure, typed

UNSAFE_FILE = "core.unsafe_file"
UNSAFE_FOLDER = "core.unsafe_folder"
FOLDER_OF_OTHERS = "core.folder_of_others"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHANGE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ANY_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
Identity = tuple[int, int]
"""The device and the inode of a folder: the same for no two folders that exist at the same time."""
_NAME_BYTES = 200  # bytes of the target's name in the name of its part; the rest must fit into 255
_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def owner_name(uid: int) -> str:
    """ "alice (uid 1000)"; "uid 1000" for a user that this machine does not know."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def make_folder(
    path: str | PathLike[str],
    mode: int = 0o777,
    *,
    parents: bool = False,
    exist_ok: bool = False,
    option: str = "-o",
) -> None:
    """Makes a folder that will be used by its path, as Path.mkdir does.

    option: what the caller's command calls the choice of the place, for the hint.

    Raises
    ------
    EnvironmentFailure  core.folder_of_others: somebody whom the caller does not trust could put another folder in its
    place (`surroundings.other_owner`). OSError  as Path.mkdir.
    """
    folder = Path(path)
    refuse_folder_of_others(folder.parent, folder, option)
    folder.mkdir(mode, parents, exist_ok)
    refuse_folder_of_others(
        folder, folder, option
    )  # in /tmp others may have made it, or one above it, meanwhile


def refuse_folder_of_others(place: Path, folder: Path, option: str = "-o") -> None:
    """Raises core.folder_of_others if somebody whom the caller does not trust decides what is at `place`. It may be
    missing, if nobody else can make it.

    folder: the one that the caller needs, at `place` or in it. option: as for `make_folder`.
    """
    at = os.path.join("" if place.is_absolute() else os.getcwd(), place)
    fault = surroundings.other_owner(at)
    if fault is None or ((mapped := _mapped(at)) and not surroundings.other_owner(at, mapped)):
        return
    own = "root" if os.geteuid() == 0 else "you"
    home = _home()
    name = folder.with_suffix(".nc").name if folder.suffix in (".run", ".demo") else folder.name
    raise EnvironmentFailure(
        FOLDER_OF_OTHERS,
        f"cannot work in {folder}: {fault.sentence}, and could put another folder in its place; allowed: a place where "
        f"only {own}{'' if own == 'root' else ', root and your groups'} can rename folders",
        f"{option} {typed(f'{home}/{name}')}, or first: {typed('cd', home)}",
    )


def _home() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return os.environ.get("HOME", "/tmp")


def _mapped(path: str) -> tuple[int, int] | None:
    """The device of the last existing folder on the way to a path, and the owner that its file system gives to the
    caller's files, if that is somebody else.
    """
    while not os.path.isdir(path):
        if path == (path := os.path.dirname(path)):
            return None
    try:
        with Folder(path) as folder:
            uid = folder._own_uid
            return None if uid == os.geteuid() else (folder._facts.st_dev, uid)
    except OSError:
        return None


def open_to_read(path: str | PathLike[str]) -> int:
    """A descriptor of a plain file for reading. Links are followed. Nothing waits: a pipe without a writer and a device
    are refused before they are opened.

    Raises
    ------
    DataError  core.not_a_file: it is a folder, a pipe, a socket or a device. OSError.
    """
    _refuse_unless_plain(path, os.stat(path))
    descriptor = os.open(path, _ANY_READ)
    try:
        _refuse_unless_plain(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def reading(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """Opens a file as `open_to_read`."""
    with os.fdopen(open_to_read(path), "rb") as file:
        yield file


def _refuse_unless_plain(path: str | PathLike[str], facts: os.stat_result) -> None:
    if stat.S_ISREG(facts.st_mode):
        return
    kind = next((label for is_kind, label in _KINDS if is_kind(facts.st_mode)), "something else")
    raise DataError(
        "core.not_a_file", f"{os.fspath(path)} is {kind}, not a file", "give the path of a plain file"
    )


class Folder:
    """An open folder. Its files stay the same when somebody renames the folder or puts a link in its place.

    path: its last part may be a link; the owner of the folder it leads to counts.

    Raises
    ------
    OSError  it cannot be opened, or is no folder.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._facts = os.fstat(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # owner

    @cached_property
    def is_own(self) -> bool:
        """Whether the caller owns it."""
        return self._facts.st_uid in (os.geteuid(), self._own_uid)

    @property
    def is_private(self) -> bool:
        """Whether the caller owns it and nobody else can write in it, so that its files can be trusted."""
        return self.is_own and not self._facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    @property
    def is_sticky(self) -> bool:
        """Whether it works as /tmp does: users may make files in it, and remove only their own."""
        return bool(self._facts.st_mode & stat.S_ISVTX) and self._facts.st_uid in (0, os.geteuid())

    @cached_property
    def _own_uid(self) -> int:
        """The owner of a file that the caller makes here."""
        if self._facts.st_uid == os.geteuid():
            return os.geteuid()
        try:
            return _owner_of_new_files(self._descriptor)
        except OSError:  # the caller cannot write here, so the question does not arise
            return os.geteuid()

    def refuse_unless_own(self, doing: str, hint: str) -> None:
        """Raises core.unsafe_folder unless the caller may change what is in it.

        doing: what the caller is about to do, as in "finish the trace". hint: what to type if somebody else owns it.
        """
        if not self.is_own:
            raise EnvironmentFailure(
                UNSAFE_FOLDER,
                f"cannot {doing}: {self.path} belongs to {owner_name(self._facts.st_uid)}, and only its owner may",
                hint,
            )
        if self._facts.st_mode & stat.S_IWOTH and not self._facts.st_mode & stat.S_ISVTX:
            raise EnvironmentFailure(
                UNSAFE_FOLDER,
                f"cannot {doing}: every user may write in {self.path}",
                typed("chmod", "go-w", self.path),
            )

    # files

    def names(self) -> list[str]:
        """All names in it, sorted."""
        return sorted(os.listdir(self._descriptor))

    def facts(self, name: str) -> os.stat_result | None:
        """Facts about a file or link, without following it; None if there is nothing of that name."""
        try:
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def folder(self, name: str) -> Folder:
        """A folder in this one. OSError  there is no such folder; a link does not count."""
        found = Folder.__new__(Folder)
        found.path = self.path / name
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        found._descriptor = os.open(name, flags, dir_fd=self._descriptor)
        found._facts = os.fstat(found._descriptor)
        return found

    @contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        """Opens a file for reading.

        Raises
        ------
        EnvironmentFailure  core.unsafe_file: it is not a plain file of the folder's owner.
        OSError  it is not there, or cannot be read.
        """
        with os.fdopen(self._opened(name, _READ), "rb") as file:
            yield file

    def read(self, name: str) -> bytes:
        """The content of a file; errors as for `reading`."""
        with self.reading(name) as file:
            return file.read()

    def read_text(self, name: str) -> str:
        """The content of a file as text; invalid UTF-8 becomes U+FFFD."""
        return self.read(name).decode("utf-8", "replace")

    def change(self, name: str) -> int:
        """A descriptor for changing a file in place; errors as for `reading`."""
        return self._opened(name, _CHANGE)

    def make(self, name: str, mode: int = 0o666) -> int:
        """A descriptor of a new file. FileExistsError  the name is taken."""
        return os.open(name, _MAKE, mode, dir_fd=self._descriptor)

    def change_or_make(self, name: str, mode: int = 0o666) -> int:
        """A descriptor for changing a file, which is made if it is missing; errors as for `change`."""
        for _ in range(16):
            with suppress(FileNotFoundError):
                return self.change(name)
            with suppress(FileExistsError):
                return self.make(name, mode)
        raise OSError(errno.EAGAIN, "another program makes and removes it", str(self.path / name))

    def make_part(self, name: str, mode: int = 0o666) -> tuple[str, int]:
        """A new file that will become `name`: its name until then, and a descriptor."""
        part = part_name(name)
        return part, self.make(part, mode)

    def replace(self, part: str, name: str) -> None:
        """Renames a file. An older file of the new name is removed; a link is replaced, not followed."""
        os.replace(part, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def write(self, name: str, text: bytes, mode: int = 0o666) -> None:
        """Makes or replaces a small file in one step: readers see the old or the new content. OSError."""
        part, descriptor = self.make_part(name, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            self.replace(part, name)
        except BaseException:
            with suppress(OSError):
                self.remove(part)
            raise
        self.sync()

    def remove(self, name: str) -> None:
        """Removes a file, or a link. OSError."""
        os.unlink(name, dir_fd=self._descriptor)

    def remove_folder(self, name: str) -> None:
        """Removes an empty folder. OSError  it is not empty, or not a folder."""
        os.rmdir(name, dir_fd=self._descriptor)

    def remove_all(self) -> None:
        """Removes everything in it, whatever its name: only for a folder where no user keeps files.

        It enters folders of the same owner on the same file system only. OSError.
        """
        for name in self.names():
            facts = self.facts(name)
            if facts is None:
                continue
            if not stat.S_ISDIR(facts.st_mode):
                self.remove(name)
                continue
            with self.folder(name) as below:
                if below._facts.st_uid == self._facts.st_uid and below._facts.st_dev == self._facts.st_dev:
                    below.remove_all()
            self.remove_folder(name)

    def fileno(self) -> int:
        """Its descriptor, for a program that is to work in it whatever its name leads to by then."""
        return self._descriptor

    @property
    def inode(self) -> int:
        return self._facts.st_ino

    @property
    def identity(self) -> Identity:
        return self._facts.st_dev, self._facts.st_ino

    def sync(self) -> None:
        """Waits until new and removed names have reached the disk."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:  # some network file systems cannot
            if error.errno not in (errno.EINVAL, errno.EBADF):
                raise

    # opening

    def _opened(self, name: str, flags: int) -> int:
        # Check before opening, too: to open a device may trigger an action, and to open a pipe wakes its writer.
        if (facts := self.facts(name)) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path / name))
        self._refuse(name, facts, flags)
        try:
            descriptor = os.open(name, flags, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._refusal(name, "is a link") from None
            raise OSError(error.errno, error.strerror, str(self.path / name)) from None
        try:
            self._refuse(name, os.fstat(descriptor), flags)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _refuse(self, name: str, facts: os.stat_result, flags: int) -> None:
        if not stat.S_ISREG(facts.st_mode):
            kind = next((label for is_kind, label in _KINDS if is_kind(facts.st_mode)), "")
            plain = "is a link" if kind == "a link" else f"is not a plain file but {kind or 'something else'}"
            raise self._refusal(name, plain)
        if flags == _CHANGE:
            if facts.st_uid not in (os.geteuid(), self._own_uid):
                raise self._refusal(name, f"belongs to {owner_name(facts.st_uid)}")
            if facts.st_nlink > 1:
                raise self._refusal(name, f"has {facts.st_nlink} names (hard links)")
        elif not self.is_own and facts.st_uid != self._facts.st_uid:
            raise self._refusal(
                name,
                f"belongs to {owner_name(facts.st_uid)}, and the folder to {owner_name(self._facts.st_uid)}",
            )
        elif self.is_own and not self.is_private and facts.st_nlink > 1:
            raise self._refusal(name, f"has {facts.st_nlink} names (hard links)")

    def _refusal(self, name: str, why: str) -> EnvironmentFailure:
        path = self.path / name
        return EnvironmentFailure(
            UNSAFE_FILE,
            f"{path} {why}: it may lead to a file outside the folder, so it was not touched",
            f"only plain files of the folder's owner are allowed there: look at it with {typed('ls', '-l', path)}, "
            "move it out of the folder, and try again",
        )


def _owner_of_new_files(descriptor: int) -> int:
    """The owner of a file that this process makes in a folder. OSError  it cannot make one."""
    try:
        made = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=descriptor)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
        name = part_name("sonde")
        made = os.open(name, _MAKE, 0o600, dir_fd=descriptor)
        os.unlink(name, dir_fd=descriptor)
    try:
        return os.fstat(made).st_uid
    finally:
        os.close(made)


def part_name(name: str) -> str:
    """A name for a file until it is complete; nobody can guess it."""
    return f"{_stem(name)}.{secrets.token_hex(8)}.part"


def is_part(name: str, of: str | None = None) -> bool:
    """Whether `part_name` makes such a name. of: for this file."""
    stem = r".+" if of is None else re.escape(_stem(of))
    return re.fullmatch(rf"{stem}\.[0-9a-f]{{16}}\.part", name, re.DOTALL) is not None


def _stem(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:_NAME_BYTES])


class NewFile:
    """A new file, written beside its target and renamed to it when it is complete.

    The folder may belong to anybody: the file has a random name, and writers use its descriptor only, so that no link
    in the folder can redirect them. Unfinished files of killed commands are removed.

    Parameters
    ----------
    target : path of the complete file
    mode : permissions before the umask
    locked : lock the file until it is complete, so that no other command removes it as unfinished. False if a library
        locks it itself, as HDF5 does.

    Raises
    ------
    OSError  the file cannot be made there.
    """

    def __init__(self, target: str | PathLike[str], mode: int = 0o666, locked: bool = True) -> None:
        self.target = Path(target)
        # O_PATH needs no read permission: a user may be allowed to write in a folder that he may not list.
        self._folder = os.open(self.target.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.descriptor = -1
        try:
            self._name = part_name(self.target.name)
            self.descriptor = os.open(self._name, _MAKE, mode, dir_fd=self._folder)
            if locked:
                with suppress(OSError):  # a file system without locks
                    fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._remove_left()
        except BaseException:
            self.discard()
            raise

    @property
    def path(self) -> Path:
        """A path by which libraries in this process open this file, even if its name now leads elsewhere."""
        return Path(f"/proc/self/fd/{self.descriptor}")

    def file(self) -> IO[bytes]:
        """The file, open for writing; close it before `publish`."""
        return os.fdopen(os.dup(self.descriptor), "wb")

    def publish(self, sync: bool = False) -> None:
        """Renames the file to its target. An older file is replaced; a link is replaced, not followed. OSError."""
        if sync:
            os.fsync(self.descriptor)
        named = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
        if not os.path.samestat(named, os.fstat(self.descriptor)):
            raise FileNotFoundError(errno.ENOENT, "another program took its place", self._name)
        os.replace(self._name, self.target.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._name = ""
        self._close()

    def discard(self) -> None:
        """Removes the file, unless it was published. Safe to call twice."""
        if self.descriptor >= 0 and self._name:
            # A library may keep a file open that it could not write; truncating it frees the disk all the same.
            with suppress(OSError):
                os.ftruncate(self.descriptor, 0)
            with suppress(OSError):
                os.unlink(self._name, dir_fd=self._folder)
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def _close(self) -> None:
        for descriptor in (self.descriptor, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self.descriptor = self._folder = -1

    def _remove_left(self) -> None:
        """Removes unfinished files that killed commands left for this target; files that are locked stay."""
        try:
            left = [name for name in os.listdir(self.target.parent) if is_part(name, self.target.name)]
        except OSError:
            return
        own = os.fstat(self.descriptor).st_uid
        for name in left:
            if name == self._name:
                continue
            with suppress(OSError):
                part = os.open(name, _CHANGE, dir_fd=self._folder)
                try:
                    facts = os.fstat(part)
                    if not stat.S_ISREG(facts.st_mode) or facts.st_uid != own:
                        continue
                    fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(name, dir_fd=self._folder)
                finally:
                    os.close(part)


def write_whole(target: str | PathLike[str], text: bytes, mode: int = 0o666, sync: bool = False) -> None:
    """Makes or replaces a file in one step, in a folder of any user. OSError  nothing has changed."""
    with NewFile(target, mode) as new:
        with new.file() as file:
            file.write(text)
        new.publish(sync)
