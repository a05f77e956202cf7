"""Settings around a command that somebody else may have chosen: environment variables, and files of the current folder
that libraries read on their own.

docs/explain/security.md lists everything that is read, and how Sonde treats it; a test compares the code with that
list.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import re
import stat
from collections.abc import Collection, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from sonde.core.errors import EnvironmentFailure

LISTS = (
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "MPI_HOME",
    "SONDE_MPI",
    "OPAL_PREFIX",
    "PMIX_PREFIX",
    "PRTE_PREFIX",
    "FI_PROVIDER_PATH",
    "UCX_MODULE_DIR",
    "HDF5_PLUGIN_PATH",
    "HWLOC_PLUGINS_PATH",
    "SONDE_BUS_MODULES",
    "SONDE_STORE_MODULES",
    "SONDE_OFI_PROBE",
)
"""Lists of folders from which programs and libraries are loaded. An empty item means the current folder. Some variables
hold one folder, or the path of one program.
"""

SETTINGS = (
    "XDG_CONFIG_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "MPLCONFIGDIR",
    "MATPLOTLIBRC",
    "UCX_CONFIG_DIR",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "NETRC",
    "PIP_CONFIG_FILE",
    "UV_CONFIG_FILE",
    "*_MCA_mca_*path*",
    "*_MCA_mca_*file*",
)
"""Variables, some of them as patterns, that name the sources of settings. Settings in turn name libraries and programs:
those of Matplotlib, UCX, git and Open MPI, and of the programs that deploy/lock.py and deploy/audit.py run.
"""

READ_BY_LIBRARIES = ("ucx.conf", "matplotlibrc")
"""Files of the current folder that libraries read and that cannot be switched off: UCX, Matplotlib."""

SWITCHED_OFF = {"NCRCENV_IGNORE": "1", "SKIP_DEFAULT_XML_FILE": "1"}
"""Files that libraries read from HOME or the current folder, and that Sonde never needs: .ncrc and .dodsrc of netCDF-C,
DEFAULT_FASTRTPS_PROFILES.xml of Fast DDS.
"""

_WORDS_OF_MCA = ("", "none", "SYSTEM_DEFAULT", "SYS_DEFAULT", "USER_DEFAULT", "USR_DEFAULT")
"""Words that Open MPI accepts in place of a folder. Source: mca_base_component_repository.c."""

_GROUPS_OF_PEOPLE = 1000
"""Groups of people have this number or a higher one. Source: login.defs(5), GID_MIN as distributions set it."""

_MOST_LINKS = 40
"""The kernel follows at most this number of links in one path. Source: path_resolution(7)."""


@dataclass(frozen=True)
class Fault:
    """The reason why somebody other than root decides what is at a path.

    place: the folder or link, on the way to the path, that has the fault. own: the reason as words after the place's
    name. sentence: the same with the name.
    """

    place: str
    own: str
    sentence: str

    def behind(self, path: str) -> str:
        """The reason as words after the name of the path."""
        return self.own if self.place == _as_place(path) else f"and {self.sentence}"


def make_safe(environ: MutableMapping[str, str], folder: Path = Path()) -> Iterator[str]:
    """Remove from the environment what another user may have chosen; yield a sentence about each change.

    For every user: files that libraries look for in the current folder are switched off. For root also: HOME is root's
    own, because MPI loads libraries that settings in it name; TMPDIR is a folder in which nobody can predict file
    names; settings are read, and programs and libraries loaded, only from places that root alone controls. folder: the
    current one.

    Raises
    ------
    EnvironmentFailure  core.settings_of_others: a file that cannot be switched off is there, and belongs to another
    user, or is no plain file.
    """
    for name, value in SWITCHED_OFF.items():
        environ.setdefault(name, value)
    own = os.geteuid()
    for name in READ_BY_LIBRARIES:
        try:
            # A link could lead to text of another user in a file of root's, such as /proc/PID/cmdline.
            found = (folder / name).lstat()
        except OSError:
            continue
        why = ""
        if not stat.S_ISREG(found.st_mode):
            why = "is a link" if stat.S_ISLNK(found.st_mode) else "is not a plain file"
        elif found.st_nlink > 1:
            why = f"has {found.st_nlink} names (hard links)"
        elif found.st_uid not in (own, 0) or found.st_mode & stat.S_IWOTH:
            why = f"belongs to user {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}"
        if why:
            raise EnvironmentFailure(
                "core.settings_of_others",
                f"./{name} {why}, and a library would read settings from it; allowed: plain files that only you or "
                "root can write",
                "change to a folder of your own: cd",
            )
    if own == 0:
        yield from _of_root(environ)


def place_of_ranks() -> Path | None:
    """The start folder of Sonde's own programs: None for the current folder, "/" for root if somebody else controls the
    current one. The programs take absolute paths; their libraries look for files in the start folder, only at the
    start.
    """
    if os.geteuid() != 0:
        return None
    try:
        here = os.getcwd()
    except OSError:  # it was removed
        return Path("/")
    return Path("/") if _fault(here, _root_here()) else None


def from_start_folder(word: str) -> str:
    """A path as the caller gave it, for a program that starts in `place_of_ranks()`."""
    return word if place_of_ranks() is None else os.path.abspath(word)


@contextmanager
def standing_safely() -> Iterator[None]:
    """Work in "/" during the block if `place_of_ranks` returns it: to import modules that read settings from the
    current folder.
    """
    place = place_of_ranks()
    if place is None:
        yield
        return
    back = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir(place)
        yield
    finally:
        os.fchdir(back)
        os.close(back)


def _of_root(environ: MutableMapping[str, str]) -> Iterator[str]:
    root = _root_here()
    home = environ.get("HOME", "")
    if why := _why_not_own(home, root):
        environ["HOME"] = pwd.getpwuid(0).pw_dir
        yield f"HOME is '{home}', {why}: root uses {environ['HOME']}"
    for name in ("TMPDIR", "TEMP", "TMP"):
        temporary = environ.get(name)
        if temporary is not None and (why := _why_not_own(temporary, root, sticky=True)):
            del environ[name]
            yield f"{name} is '{temporary}', {why}: root uses /tmp"
    for name in sorted(environ):
        if any(fnmatchcase(name, pattern) for pattern in SETTINGS):
            items = [
                item for item in re.split("[:,]", environ[name]) if item not in (*_WORDS_OF_MCA, os.devnull)
            ]
            if faults := [fault for item in items if (fault := _fault(item, root, may_lack=True))]:
                value = environ.pop(name)
                yield f"{name} is '{value}', {faults[0].behind(value)}: root ignores it"
    # The owner of Sonde's files already decides what root runs here: such as a site's account for software.
    trusted = root | {os.stat(__file__).st_uid}
    for name in LISTS:
        value = environ.get(name, "")
        if name not in environ or (
            not value and name != "PATH"
        ):  # only an empty PATH means the current folder
            continue
        if name == "SONDE_MPI" and value.isalpha():  # "openmpi": a flavour, not a path
            continue
        items = value.split(os.pathsep)
        # libfabric: "@" before the first folder puts it before the built-in providers.
        ahead = "@" if name == "FI_PROVIDER_PATH" else ""
        found = {item: _fault(item.removeprefix(ahead), trusted, may_lack=True) for item in items}
        fit = [item for item in items if found[item] is None]
        if fit == items:
            continue
        if fit:
            environ[name] = os.pathsep.join(fit)
        else:
            del environ[name]
        gone = ", ".join(f"'{item}'" for item in items if found[item])
        reasons = dict.fromkeys(one.sentence for item, one in found.items() if one and os.path.isabs(item))
        why = f" ({'; '.join(reasons)})" if reasons else ""
        yield f"{name} holds {gone}, where others may put programs or libraries{why}: root ignores it"


def _root_here() -> set[int]:
    """Owners whose files count as root's: 0, and in some user namespaces the number for unknown owners.

    In a user namespace the machine's root may have no number. Its files, including all of /usr, then show the number
    for unknown owners. Files of other users do, too: the kernel does not distinguish them there. If somebody in the
    namespace has that number, it counts as theirs.
    """
    try:
        unknown = int(Path("/proc/sys/kernel/overflowuid").read_text())
        lines = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
        known = any(0 <= unknown - int(first) < int(count) for first, _, count in lines)
    except (OSError, ValueError):
        return {0}
    return {0} if known else {0, unknown}


def _why_not_own(path: str, owners: Collection[int], sticky: bool = False) -> str:
    """The reason why root does not use a folder as its own; "" if it does. sticky: a folder like /tmp is allowed."""
    if fault := _fault(path, owners, sticky=sticky):
        return fault.behind(path)
    return "" if os.path.isdir(path) else "which is not a folder"


def other_owner(path: str, mapped: tuple[int, int] | None = None) -> Fault | None:
    """The reason why somebody whom the caller does not trust could put another folder in the place of the one at a
    path, or of one that the caller makes in it; None if nobody could.

    Trusted are the caller, root, and the owner of Sonde's own files, who decides what the caller runs. Users other than
    root also trust the members of their groups: they may work in folders that one of their groups may write, and trust
    the owners of these.

    path: an absolute path; its last folder may be sticky, as /tmp is. Where it cannot be examined, for example because
    a folder is missing, only the way to there counts: the caller's next use of the path fails in the same way. mapped:
    the device of a file system that maps users, and the owner that it gives to the caller's files.
    """
    own = os.geteuid()
    owners = {own, os.stat(__file__).st_uid} | _root_here()
    if own == 0:
        return _fault(path, owners, sticky=True, as_far=True, mapped=mapped)
    groups = {os.getegid(), *os.getgroups()}
    with suppress(OSError):
        for _, found in _way(path):
            shared = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_IWGRP
            if shared and found.st_gid in groups:
                owners.add(found.st_uid)
    return _fault(path, owners, sticky=True, as_far=True, groups=True, mapped=mapped)


def _fault(
    path: str,
    owners: Collection[int],
    *,
    sticky: bool = False,
    may_lack: bool = False,
    as_far: bool = False,
    groups: bool = False,
    mapped: tuple[int, int] | None = None,
) -> Fault | None:
    """The reason why somebody other than `owners` controls what is at a path; None if nobody does.

    Each folder on the way counts, and each link with the way to its target: a user who can rename one of them controls
    everything behind it. In a sticky folder nobody can rename files of others, so such a folder is a fault only at the
    end of the path. sticky: it is no fault there either. may_lack: a missing file is no fault, if only owners can
    create it. as_far: no error is a fault; only the way that can be examined counts. groups: a folder that a group may
    write is no fault. mapped: (device, user): one more owner, on this device only.
    """
    if not os.path.isabs(path):
        return Fault(_as_place(path), "which is not an absolute path", f"'{path}' is not an absolute path")
    way: list[tuple[str, os.stat_result]] = []
    lacking = False
    try:
        for step in _way(path):
            way.append(step)
    except OSError as error:
        lacking = as_far or (may_lack and error.errno == errno.ENOENT)
        if not lacking:
            why = f"cannot be examined: {(error.strerror or str(error)).lower()}"
            return Fault(_as_place(path), f"which {why}", f"'{path}' {why}")
    for number, (place, found) in enumerate(way, 1):
        if found.st_uid not in owners and (found.st_dev, found.st_uid) != mapped:
            return Fault(
                place, f"which belongs to user {found.st_uid}", f"'{place}' belongs to user {found.st_uid}"
            )
        if stat.S_ISLNK(found.st_mode) or (found.st_mode & stat.S_ISVTX and (sticky or number < len(way))):
            continue
        who = "everybody" if found.st_mode & stat.S_IWOTH else ""
        if who := who or ("" if groups else _who_else_writes(place, found)):
            return Fault(place, f"where {who} can write", f"{who} can write in '{place}'")
    return None


def _as_place(path: str) -> str:
    return path.rstrip("/") or path[:1]


def _way(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """The folders and links that the kernel passes on an absolute path, in order, and what is at its end.

    OSError  the next one cannot be examined, for example because it does not exist.
    """
    at, left, links = "/", path.split("/")[::-1], 0
    yield at, os.lstat(at)
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        next_place = os.path.dirname(at) if name == ".." else os.path.join(at, name)
        found = os.lstat(next_place)
        yield next_place, found
        if not stat.S_ISLNK(found.st_mode):
            at = next_place
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = os.readlink(next_place)
        left += target.split("/")[::-1]
        at = "/" if target.startswith("/") else at
        yield at, os.lstat(at)


def _who_else_writes(place: str, found: os.stat_result) -> str:
    """The users who can write in a folder besides its owner, in words; "" if there are none."""
    if found.st_mode & stat.S_IWOTH:
        return "everybody"
    if not found.st_mode & stat.S_IWGRP:
        return ""
    # With an access list, the group's bits limit all users and groups that the list names: acl(5).
    try:
        if "system.posix_acl_access" in os.listxattr(place):
            return "everybody in its access list"
    except OSError:
        pass  # a file system without access lists
    return _group_of_others(found.st_gid)


def _group_of_others(number: int) -> str:
    """The name of a group if somebody other than root is in it, or can be; "" if nobody is.

    Debian gives /usr/local to the group staff, which can write there (mode 2775), and puts nobody into that group.
    Without /usr/local/bin such machines would not work, and nobody would be protected, so a folder of an empty group
    counts as root's. Once somebody is in the group, that user decides what root would run: the folder is ignored, and
    the warning names the group. Groups of people always count as others, because a directory service need not list all
    their members.
    """
    try:
        group = grp.getgrgid(number)
    except KeyError:
        return f"group {number}"
    accounts = pwd.getpwall()
    members = set(group.gr_mem)
    if number != 0:  # Fedora has accounts in root's own group that only run one program: halt, shutdown, sync
        members |= {account.pw_name for account in accounts if account.pw_gid == number}
    if number < _GROUPS_OF_PEOPLE and members <= {one.pw_name for one in accounts if one.pw_uid == 0}:
        return ""
    return f"the group '{group.gr_name}'"
