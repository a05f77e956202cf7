"""Where an mpirun of Open MPI keeps its session files: in a folder that nobody else can have prepared.

By itself Open MPI takes /tmp/ompi.HOST.UID (4) or /tmp/prte.HOST.PID.UID (5), whoever made it: another user who did,
and lets everybody write there, replaces files by links, and the ranks write where these lead to, with the rights of who
started them. So root has them in /run on each host. For another user a folder is made here, under a random name and
with mode 0700, and is removed when the run is over; on other hosts nothing is a good place for all, so a run that may
reach some has the place that Open MPI chooses.

Open MPI 4 takes one place for all hosts and no others: ranks do not start where one for this host alone is set (4.1.4).
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
# Words before the hosts or their number. Sonde's own commands name hosts where there are others.
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
    """Returns the folder that was made for the mpirun of a command, if any, and the variables that lead it there.

    (None, {}) where the command is no mpirun, where somebody has chosen a place already, where the run of another user
    than root may reach other hosts, or where the temporary folder takes none.
    """
    if os.path.basename(command[0]) not in COMMANDS or _is_chosen(command, environment):
        return None, {}
    if os.geteuid() == 0 and _is_own(_OF_ROOT):
        return None, dict.fromkeys(_PLACE, _OF_ROOT)
    if not _ELSEWHERE.isdisjoint(command) or any(environment.get(name) for name in RESOURCE_MANAGER):
        return None, {}
    try:
        made = Path(tempfile.mkdtemp(prefix=PRIVATE_SESSION))
    except OSError:
        return None, {}
    return made, dict.fromkeys(_PLACE, str(made))


def remove(made: Path) -> None:
    """Removes the folder and what is in it."""
    with suppress(OSError, EnvironmentFailure):
        with Folder(made) as folder:
            folder.remove_all()
        with Folder(made.parent) as parent:
            parent.remove_folder(made.name)


def _is_chosen(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    if any(_CHOSEN.search(word) for word in (*environment, *command)):
        return True
    for path in _settings(command[0], environment):
        with suppress(OSError), open(path, encoding="utf-8", errors="replace") as lines:
            if any(_CHOSEN.match(line.strip()) for line in lines):
                return True
    return False


def _settings(mpirun: str, environment: Mapping[str, str]) -> Iterator[Path]:
    """Files of an installation, and the user's own, in which a place may have been chosen."""
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
