"""What each room needs besides an MPI: the libraries it writes, reads and draws with, tried."""

from __future__ import annotations

import tempfile
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from sonde.cli.diagnosis import GOOD, NONE, POOR, Answer, Here, Need, check
from sonde.core import distribution

AGAIN = "make setup"


@check("netcdf", "NetCDF-4", "Libraries", 30)
def netcdf(here: Here) -> Answer:
    """Writes a small file, and reads it back."""
    try:
        import netCDF4
    except ImportError as error:
        return Answer(f"does not load: {error}", NONE, {"works": False}, [Need("datasets", AGAIN)])
    values = {
        "works": True,
        "netcdf": netCDF4.getlibversion().split()[0],
        "hdf5": netCDF4.__hdf5libversion__,
        "netCDF4": netCDF4.__version__,
    }
    with tempfile.TemporaryDirectory(prefix="sonde-doctor-") as folder:
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
    return Answer(f"plotly {_version('plotly')}, xarray {_version('xarray')}, scipy {_version('scipy')}", GOOD, values)


@check("extras", "Extras", "Libraries")
def extras(here: Here) -> Answer:
    """What is optional: Parquet export, figures for papers, the report's own tests."""
    browser = next((name for name in ("chromium", "chromium-browser", "google-chrome") if here.which(name)), None)
    found = {
        "parquet": find_spec("pyarrow") is not None,
        "paper": find_spec("matplotlib") is not None,
        "chromium": browser is not None,
    }
    needs = []
    if not found["parquet"]:
        needs.append(Need("Parquet export", "pip install 'sonde-hpc[parquet]'"))
    if not found["paper"]:
        needs.append(Need("figures for papers", "pip install 'sonde-hpc[paper]'"))
    if browser is None:
        needs.append(Need("tests of the report", distribution.install("chromium")))
    here_text = ", ".join(name for name, there in found.items() if there) or "none"
    return Answer(here_text, GOOD if not needs else POOR, found, needs)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(version unknown)"
