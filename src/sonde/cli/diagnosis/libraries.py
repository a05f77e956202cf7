"""The libraries that each room needs besides an MPI, to write, read and draw: each is tried."""

from __future__ import annotations

import tempfile
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from sonde.core import distribution
from sonde.core.diagnosis import FACT, GOOD, NETCDF, NONE, Answer, Here, Need, check

AGAIN = "make setup"


@check("netcdf", "NetCDF-4", "Libraries", 30)
def netcdf(here: Here) -> Answer:
    """Write a small file, and read it back."""
    try:
        from sonde.core.netcdf import netCDF4
    except ImportError as error:
        return Answer(f"does not load: {error}", NONE, {"works": False}, [Need("datasets", AGAIN)])
    values = {
        "works": True,
        "netcdf": netCDF4.getlibversion().split()[0],
        "hdf5": netCDF4.__hdf5libversion__,
        "netCDF4": netCDF4.__version__,
    }
    with NETCDF, tempfile.TemporaryDirectory(prefix="sonde-doctor-") as folder:
        path = Path(folder) / "try.nc"
        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("x", 3)
            file.createVariable("v", "f8", ("x",), zlib=True)[:] = [1.0, 2.0, 3.0]
        with netCDF4.Dataset(path) as file:
            back = file["v"][:].tolist()
    if back != [1.0, 2.0, 3.0]:
        return Answer(f"read back {back}", NONE, values | {"works": False}, [Need("datasets", AGAIN)])
    return Answer(f"{values['netcdf']} on HDF5 {values['hdf5']}, writes and reads back", GOOD, values)


@check("report", "Report", "Libraries")
def report(here: Here) -> Answer:
    missing = [name for name in ("plotly", "jinja2", "xarray", "scipy") if find_spec(name) is None]
    values = {"works": not missing, "missing": missing}
    if missing:
        return Answer(f"{', '.join(missing)} not installed", NONE, values, [Need("report", AGAIN)])
    return Answer(
        f"plotly {_version('plotly')}, xarray {_version('xarray')}, scipy {_version('scipy')}", GOOD, values
    )


@check("parquet", "Parquet", "Libraries")
def parquet(here: Here) -> Answer:
    return _extra("pyarrow", Need("Parquet export", distribution.install_python("pyarrow")))


@check("paper", "Paper figures", "Libraries")
def paper(here: Here) -> Answer:
    return _extra("matplotlib", Need("figures for papers", distribution.install_python("matplotlib")))


def _extra(module: str, need: Need) -> Answer:
    if find_spec(module) is None:
        return Answer(f"{module} not installed", FACT, {"works": False}, [need])
    return Answer(f"{module} {_version(module)}", GOOD, {"works": True})


@check("browser", "Browser", "Libraries")
def browser(here: Here) -> Answer:
    """Chromium, which only the tests of the report use."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := here.which(name))), None)
    if found is None:
        need = Need("tests of the report", distribution.install("chromium"))
        return Answer("no Chromium; only tests need it", FACT, {"works": False}, [need])
    return Answer(found, GOOD, {"works": True, "path": found})


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(version unknown)"


CHECKS = (netcdf, report, parquet, paper, browser)
