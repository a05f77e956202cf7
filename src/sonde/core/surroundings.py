"""What a command finds around itself that somebody else may have chosen: variables of the environment, and files of the
current folder that libraries read without being told to.

docs/explain/security.md lists all that is read, and what is done about each; a test holds the code to that list.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from sonde.core.errors import EnvironmentFailure

LISTS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
"""Lists of folders from which programs and libraries are taken. An empty word means the current folder."""

READ_BY_LIBRARIES = ("ucx.conf", "matplotlibrc")
"""Files of the current folder that libraries read and that cannot be switched off: UCX, Matplotlib."""

SWITCHED_OFF = {"NCRCENV_IGNORE": "1", "SKIP_DEFAULT_XML_FILE": "1"}
"""Files that libraries read from HOME or the current folder, and that Sonde never needs: .ncrc and .dodsrc of netCDF-C,
DEFAULT_FASTRTPS_PROFILES.xml of Fast DDS.
"""


def make_safe(environ: MutableMapping[str, str], folder: Path = Path()) -> Iterator[str]:
    """Takes from the environment what another user may have chosen; gives what to tell about it, a sentence each.

    Of every user: files that libraries look for in the current folder are switched off. Of root besides: HOME is root's
    own, for MPI loads libraries that settings in it name; TMPDIR is one that nobody can foresee files in; lists of
    folders hold no relative one, and none that everybody may write in. folder: the current one.

    Raises
    ------
    EnvironmentFailure  core.settings_of_others: a file that cannot be switched off lies there, and is another user's.
    """
    for name, value in SWITCHED_OFF.items():
        environ.setdefault(name, value)
    own = os.geteuid()
    for name in READ_BY_LIBRARIES:
        try:
            found = (folder / name).stat()
        except OSError:
            continue
        if found.st_uid not in (own, 0) or found.st_mode & stat.S_IWOTH:
            raise EnvironmentFailure(
                "core.settings_of_others",
                f"./{name} is a file of user {found.st_uid}'s, mode {stat.S_IMODE(found.st_mode):o}, and a library "
                "would take settings from it; allowed: files that only you or root can write",
                "go to a folder of your own: cd",
            )
    if own == 0:
        yield from _of_root(environ)


def _of_root(environ: MutableMapping[str, str]) -> Iterator[str]:
    home = environ.get("HOME", "")
    if why := _why_not_own(home):
        environ["HOME"] = pwd.getpwuid(0).pw_dir
        yield f"HOME is '{home}', {why}: root takes {environ['HOME']}"
    for name in ("TMPDIR", "TEMP", "TMP"):
        temporary = environ.get(name)
        if temporary is not None and (why := _why_not_own(temporary, sticky=True)):
            del environ[name]
            yield f"{name} is '{temporary}', {why}: root takes /tmp"
    for name in LISTS:
        if name in environ:
            words = environ[name].split(os.pathsep)
            fit = [word for word in words if not _why_not_in_list(word)]
            if fit == words:
                continue
            if fit:
                environ[name] = os.pathsep.join(fit)
            else:
                del environ[name]
            gone = ", ".join(f"'{word}'" for word in words if word not in fit)
            yield f"{name} holds {gone}, where others may put programs or libraries: root leaves that out"


def _why_not_own(path: str, sticky: bool = False) -> str:
    """Why root cannot be sure that it alone chose what is in a folder. sticky: one like /tmp will do."""
    if not os.path.isabs(path):
        return "which is no absolute path"
    try:
        found = os.stat(path)
    except OSError as error:
        return f"which cannot be looked at: {(error.strerror or str(error)).lower()}"
    if not stat.S_ISDIR(found.st_mode):
        return "which is no folder"
    if found.st_uid != 0:
        return f"which is user {found.st_uid}'s"
    if found.st_mode & stat.S_IWOTH and not (sticky and found.st_mode & stat.S_ISVTX):
        return "where everybody may write"
    return ""


def _why_not_in_list(word: str) -> bool:
    if not os.path.isabs(word):
        return True
    try:
        return bool(os.stat(word).st_mode & stat.S_IWOTH)  # also of a sticky one: anybody may add a file
    except OSError:
        return False  # not there: nothing is taken from it
