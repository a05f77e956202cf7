"""A folder for the session files of an mpirun of Open MPI that nobody else can have prepared.

By default Open MPI uses /tmp/ompi.HOST.UID (4) or /tmp/prte.HOST.PID.UID (5), whoever created it. Another user could
create it with write permission for everybody and replace files by links: the ranks would then write to the targets with
the rights of the user who started them. Therefore root's session files are in /run on each host. For another user a
folder is created here, under a random name and with mode 0700, and removed at the end of the run. No folder is suitable
on all other hosts, so a run that may reach other hosts uses the place that Open MPI chooses.

Open MPI 4 accepts one place for all hosts only: ranks do not start if a place is set for this host only (4.1.4).
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from sonde.core.errors import EnvironmentFailure
from sonde.core.launch.mpirun import COMMANDS, RESOURCE_MANAGER
from sonde.core.launch.remains import PRIVATE_SESSION
from sonde.core.owned_files import Folder

_PLACE = ("OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base")
_OF_ROOT = "/run"
# Options before the hosts or their number. Sonde's own commands name hosts if there are other hosts.
_ELSEWHERE = {
    "--host",
    "-host",
    "-H",
    "--hostfile",
    "-hostfile",
    "--machinefile",
    "-machinefile",
    "--default-hostfile",
}

_CHOSEN = re.compile(r"(?:orte|prte)_(?:local_|remote_)?tmpdir_base")
_SETTINGS = ("openmpi-mca-params.conf", "prte-mca-params.conf")
_OWN_SETTINGS = (".openmpi/mca-params.conf", ".prte/mca-params.conf")


def make(command: Sequence[str], environment: Mapping[str, str]) -> tuple[Path | None, dict[str, str]]:
    """The folder that was created for the mpirun of a command, if any, and the variables that select it.

    (None, {}) if the command is not an mpirun, if somebody has chosen a place already, if the run of a user other than
    root may reach other hosts, or if the temporary folder cannot be written.
    """
    if os.path.basename(command[0]) not in COMMANDS or _is_chosen(command, environment):
        return None, {}
    if os.geteuid() == 0 and _is_own(_OF_ROOT):
        return None, dict.fromkeys(_PLACE, _OF_ROOT)
    if not _ELSEWHERE.isdisjoint(command) or any(environment.get(name) for name in RESOURCE_MANAGER):
        return None, {}
    try:
        created = Path(tempfile.mkdtemp(prefix=PRIVATE_SESSION))
    except OSError:
        return None, {}
    return created, dict.fromkeys(_PLACE, str(created))


def remove(created: Path) -> None:
    """Remove the folder and its content."""
    with suppress(OSError, EnvironmentFailure):
        with Folder(created) as folder:
            folder.remove_all()
        with Folder(created.parent) as parent:
            parent.remove_folder(created.name)


def _is_chosen(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    if any(_CHOSEN.search(text) for text in (*environment, *command)):
        return True
    for path in _settings(command[0], environment):
        with suppress(OSError), open(path, encoding="utf-8", errors="replace") as lines:
            if any(_CHOSEN.match(line.strip()) for line in lines):
                return True
    return False


def _settings(mpirun: str, environment: Mapping[str, str]) -> Iterator[Path]:
    """Files of an installation, and of the user, that may choose a place."""
    prefixes = [Path("/"), *Path(os.path.realpath(mpirun)).parents[1:2]]
    prefixes += [Path(environment[name]) for name in ("OPAL_PREFIX", "PRTE_PREFIX") if environment.get(name)]
    for prefix in dict.fromkeys(prefixes):
        for folder in ("etc", "etc/openmpi"):
            yield from (prefix / folder / name for name in _SETTINGS)
    if home := environment.get("HOME"):
        yield from (Path(home) / name for name in _OWN_SETTINGS)


def _is_own(folder: str) -> bool:
    try:
        with Folder(folder) as found:
            return found.is_private and os.access(folder, os.W_OK)
    except (OSError, EnvironmentFailure):
        return False
