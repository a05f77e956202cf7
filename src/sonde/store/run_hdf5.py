"""Which HDF5 library the bench may use: one that is installed already, and that this build has a connector for."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

from sonde.core import distribution
from sonde.core.errors import EnvironmentFailure
from sonde.core.events import parse as parse_event
from sonde.core.launch import libexec

PROBE = "sonde-storebench"
# Packages that bring libhdf5, and a module of each that is linked with it.
BRINGERS = (("h5py", "h5*.so"), ("netCDF4", "_netCDF4*.so"))
# Not its companions for C++, Fortran or high-level calls, whose names go on with "_cpp", "_hl" …
LINKED = re.compile(r"^\s*libhdf5(?:_serial|_openmpi|_mpich)?[-.]\S* => (/\S.*) \(0x", re.MULTILINE)
HINT = f"{distribution.install_python('h5py')}: it brings the HDF5 2.0 that the connector is built for"
TRY_S = 20.0


def library() -> Path:
    """The first libhdf5 that works with the store's connector: of h5py, else of netCDF4.

    Each is tried in a process of its own.

    Raises
    ------
    EnvironmentFailure  store.no_hdf5: there is none, and why each that there is does not do.
    """
    whys = []
    for package, module in BRINGERS:
        found = brought(package, module)
        if found is None:
            whys.append(f"{package} brings none here")
            continue
        if not (why := refused(found)):
            return found
        whys.append(f"of {package}: {why}")
    raise EnvironmentFailure(
        "store.no_hdf5", f"there is no HDF5 library to measure with: {'; '.join(whys)}", HINT
    )


def brought(package: str, module: str) -> Path | None:
    """The libhdf5 that a package is linked with, in its wheel or the system's; None: it, or the package, is not there.

    The package is not imported: its libhdf5 would be loaded into this process.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    for extension in sorted(Path(spec.origin).parent.glob(module)):
        try:
            told = subprocess.run(
                ["ldd", str(extension)],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=TRY_S, check=False,
            ).stdout  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None
        if there := LINKED.search(told):
            return Path(there[1])
    return None


def refused(path: Path) -> str:
    """Why the bench cannot use this libhdf5, or ""."""
    try:
        told = subprocess.run(
            [str(libexec() / PROBE), "--try-hdf5", str(path)],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=TRY_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    event = parse_event(told.stdout.partition(b"\n")[0]) or {}
    if event.get("event") == "hdf5":
        return ""
    return str(event.get("what") or f"the trial ended with exit status {told.returncode}")
