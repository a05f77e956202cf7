"""netCDF4 for Sonde's own files, wherever HDF5 files of the programs around it go.

    from sonde.core.netcdf import netCDF4

HDF5 reads the environment once, when it begins, and variables that send every file of a process elsewhere (to Sonde's
store, say, whose connector is made for one version of HDF5) are meant for the user's programs: with another version's
the library crashes. So it begins here, without them; afterwards the environment is as it was, for what is started.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["named", "netCDF4"]

_PLAIN = re.compile(r"[A-Za-z0-9/._+~-]+")

_hidden = {name: os.environ.pop(name) for name in ("HDF5_VOL_CONNECTOR", "HDF5_DRIVER") if name in os.environ}
try:
    import netCDF4

    if _hidden:  # HDF5 begins with its first file
        netCDF4.Dataset("begin.nc", "w", diskless=True, persist=False).close()
finally:
    os.environ.update(_hidden)


@contextmanager
def named(path: Path) -> Iterator[str]:
    """A name by which netCDF4 opens the file for reading, for as long as this lasts.

    It takes names of UTF-8 only; netCDF-C takes a backslash for a slash, and `#`, `:` and brackets for parts of a URL.

    Raises
    ------
    OSError.
    """
    if _PLAIN.fullmatch(str(path)):
        yield str(path)
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
