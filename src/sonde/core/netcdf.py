"""netCDF4 for Sonde's own files, wherever HDF5 files of the programs around it go.

    from sonde.core.netcdf import netCDF4

HDF5 reads the environment once, when it begins, and variables that send every file of a process elsewhere (to Sonde's
store, say, whose connector is made for one version of HDF5) are meant for the user's programs: with another version's
the library crashes. So it begins here, without them; afterwards the environment is as it was, for what is started.
"""

import os

__all__ = ["netCDF4"]

_hidden = {name: os.environ.pop(name) for name in ("HDF5_VOL_CONNECTOR", "HDF5_DRIVER") if name in os.environ}
try:
    import netCDF4

    if _hidden:  # HDF5 begins with its first file
        netCDF4.Dataset("begin.nc", "w", diskless=True, persist=False).close()
finally:
    os.environ.update(_hidden)
