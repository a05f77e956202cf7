"""Checks for the tracer of I/O: its library, a supported processor, tracefs and uprobes for the kernel's part; and how
much of MPI-IO's lower layers the MPIs here show."""

from __future__ import annotations

import os
import platform
import tempfile
from pathlib import Path
from typing import Any

from sonde.core.diagnosis import FACT, GOOD, NETCDF, NONE, POOR, Answer, Here, Need, check
from sonde.core.errors import SondeError

BELOW = ("romio", "ompio")  # layers below MPI-IO
MACHINE = "x86_64"


@check("io", "Tracer", "Parallel I/O", 30)
def io(here: Here) -> Answer:
    """Trace a program."""
    from sonde.io.record import run_request

    values: dict[str, Any] = {"built": False, "works": False}
    if platform.machine() != MACHINE:
        return Answer(
            f"not available: the tracer needs x86-64, and this is {platform.machine()}", NONE, values
        )
    try:
        run_request.library()
    except SondeError:
        return Answer("not built", NONE, values, [Need("the tracer", "make setup")])
    values["built"] = True
    try:
        calls = _traced()
    except (SondeError, OSError) as error:
        what = error.what if isinstance(error, SondeError) else str(error)
        return Answer(f"the tracer does not record a program's calls: {what}", NONE, values)
    values |= {"works": True, "calls": calls}
    return Answer(f"records the calls of a program ({calls} of cat)", GOOD, values)


def _traced() -> int:
    """The number of calls that the tracer recorded of a program that reads a file."""
    import sonde
    from sonde.io.maps import run_maps
    from sonde.io.record import run_request, run_trace

    with tempfile.TemporaryDirectory(prefix="sonde-doctor-") as folder, open(os.devnull, "wb") as nothing:
        request = run_request.Request(
            ("cat", __file__),
            run_maps.chosen(("posix",), (), False),
            Path(folder) / "a.nc",
            1 << 20,
            (),
        )
        with NETCDF:
            done = run_trace.trace(request, nothing, errors=nothing)
            with sonde.open(done.file.path) as tree:
                return int(tree["summary"].to_dataset()["calls"].values.sum())


@check("iokernel", "Kernel, uprobes", "Parallel I/O", 30)
def iokernel(here: Here) -> Answer:
    """Watch a program begin with a uprobe, as root. Both are optional: nothing is wrong without them."""
    from sonde.io.record import run_watch

    root = os.geteuid() == 0
    values: dict[str, Any] = {"root": root, "kernel": False, "uprobes": False, "tracefs": None, "left": []}
    if platform.machine() != MACHINE:
        return Answer(f"not available: they need x86-64, and this is {platform.machine()}", FACT, values)
    if not root:
        known = "tracefs" in here.read("proc/filesystems")
        why = "--kernel, --uprobes and --attach need root" if known else "this kernel has no tracefs"
        return Answer(why, FACT, values)
    try:
        sight = run_watch.tried()
    except ModuleNotFoundError as error:
        return Answer(
            f"{error.name} is not installed", POOR, values, [Need("names of functions", "make setup")]
        )
    except (SondeError, OSError) as error:
        what = error.what if isinstance(error, SondeError) else str(error)
        return Answer(f"no --kernel, --uprobes, --attach: {what}", FACT, values)
    works = {"--kernel": sight.calls, "--uprobes": sight.uprobes}
    values |= {"kernel": not sight.calls, "uprobes": not sight.uprobes, "left": list(sight.left)}
    values["tracefs"] = str(sight.place) if sight.is_mounted else ""
    working = " and ".join(option for option, why in works.items() if not why)
    parts = [f"{working} work{'s' if sum(map(bool, works.values())) else ''}"] if working else []
    parts += [f"no {option}: {why}" for option, why in works.items() if why]
    mounted = f"mounted at {sight.place}" if sight.is_mounted else "mounted when needed"
    text = f"{'; '.join(parts)}; tracefs is {mounted}"
    if not sight.left:
        return Answer(text, GOOD if working else FACT, values)
    text += f"; a killed Sonde left {', '.join(sight.left)}"
    return Answer(text, POOR, values, advice="the next 'sonde io run' of root removes it")


@check("iostack", "MPI-IO", "Parallel I/O", 30)
def iostack(here: Here) -> Answer:
    """Check which functions of MPI-IO and the layers below it the libraries here export: the tracer sees only these."""
    from sonde.io.maps import run_exports, run_maps

    layers = [layer for layer in run_maps.chosen((), (), False) if layer.name in ("mpiio", *BELOW)]
    try:
        found = run_exports.found_in(layers, run_exports.of_machine(layers))
    except ModuleNotFoundError as error:
        return Answer(f"{error.name} is not installed", POOR, {}, [Need("names of functions", "make setup")])
    below = [one for one in found if one.names and one.layer.name in BELOW]
    seen = {f"{one.library.name}: {one.layer.name}": len(one.names) for one in below}
    mpiio = sorted({one.library.name for one in found if one.layer.name == "mpiio" and one.names})
    values = {"mpiio": mpiio, "below": seen}
    if not mpiio:
        return Answer("no MPI library was found", FACT, values)
    by_layer = {
        layer: sum(count for name, count in seen.items() if name.endswith(f": {layer}")) for layer in BELOW
    }
    visible = [f"{count} functions of {layer.upper()}" for layer, count in by_layer.items() if count]
    hides = any(name.startswith("libmpich") for name in mpiio)
    text = (
        f"functions visible below MPI-IO: {' and '.join(visible)}"
        if visible
        else "nothing can be seen below MPI-IO"
    )
    if hides:
        text += "; MPICH hides its ROMIO"
    return Answer(text, GOOD if visible else FACT, values)
