"""Finds an installed HDF5 library that the bench can use with the connector of this build."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

from sonde.core import distribution
from sonde.core.errors import EnvironmentFailure
from sonde.core.events import parse as parse_event
from sonde.core.launch import libexec
from sonde.core.surroundings import place_of_ranks

PROBE = "sonde-storebench"
# Packages that contain libhdf5, and a module of each that is linked with it.
BRINGERS = (("h5py", "h5*.so"), ("netCDF4", "_netCDF4*.so"))
# Does not match the libraries for C++, Fortran or high-level calls, whose names continue with "_cpp", "_hl" …
LINKED = re.compile(r"^\s*libhdf5(?:_serial|_openmpi|_mpich)?[-.]\S* => (/\S.*) \(0x", re.MULTILINE)
HINT = f"{distribution.install_python('h5py')}: it contains HDF5 2.0, which the connector is built for"
TRY_S = 20.0


def library() -> Path:
    """The first libhdf5 that works with the store's connector: that of h5py, else that of netCDF4.

    Each is tested in a process of its own.

    Raises
    ------
    EnvironmentFailure  store.no_hdf5: no library works; the message has the reason for each.
    """
    reasons = []
    for package, module in BRINGERS:
        found = brought(package, module)
        if found is None:
            reasons.append(f"{package} has none on this machine")
            continue
        if not (reason := refused(found)):
            return found
        reasons.append(f"that of {package} does not work: {reason}")
    raise EnvironmentFailure(
        "store.no_hdf5", f"there is no HDF5 library to measure with: {'; '.join(reasons)}", HINT
    )


def brought(package: str, module: str) -> Path | None:
    """The libhdf5 that a package is linked with, in its wheel or the system's. None when either is not installed.

    The package is not imported, because that would load its libhdf5 into this process.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    for extension in sorted(Path(spec.origin).parent.glob(module)):
        try:
            output = subprocess.run(
                ["ldd", str(extension)], cwd=place_of_ranks(),
                stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=TRY_S, check=False,
            ).stdout  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None
        if linked := LINKED.search(output):
            return Path(linked[1])
    return None


def refused(path: Path) -> str:
    """The reason why the bench cannot use this libhdf5; "" when it can."""
    try:
        tried = subprocess.run(
            [str(libexec() / PROBE), "--try-hdf5", str(path)], cwd=place_of_ranks(),
            stdin=subprocess.DEVNULL, capture_output=True, timeout=TRY_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    event = parse_event(tried.stdout.partition(b"\n")[0]) or {}
    if event.get("event") == "hdf5":
        return ""
    return str(event.get("what") or f"the test ended with exit status {tried.returncode}")
