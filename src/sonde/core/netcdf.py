"""netCDF4 for Sonde's own files, also when the environment sends HDF5 files of other programs elsewhere.

    from sonde.core.netcdf import netCDF4

HDF5 reads the environment once, at its start. Some variables send every file of a process elsewhere, such as to Sonde's
store. They are meant for the user's programs. The store's connector is made for one version of HDF5: with another
version the library crashes. Therefore HDF5 starts here without these variables; afterwards the environment is restored
for child processes.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sonde.core.owned_files import open_to_read

__all__ = ["named", "netCDF4"]

_hidden = {name: os.environ.pop(name) for name in ("HDF5_VOL_CONNECTOR", "HDF5_DRIVER") if name in os.environ}
try:
    import netCDF4

    if _hidden:  # HDF5 starts with its first file
        netCDF4.Dataset("begin.nc", "w", diskless=True, persist=False).close()
finally:
    os.environ.update(_hidden)


@contextmanager
def named(path: Path) -> Iterator[str]:
    """A name by which netCDF4 can open the file for reading, valid inside the block.

    The name stands for the opened file: netCDF-C and HDF5 would wait at a pipe that somebody puts in its place. It is
    also in UTF-8, which netCDF4 needs, and has none of the characters that netCDF-C takes for parts of a URL.

    Raises
    ------
    DataError  core.not_a_file: it is a pipe, say. OSError.
    """
    descriptor = open_to_read(path)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
