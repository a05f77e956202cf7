"""What the tracer of I/O needs: its library, a processor it is written for, tracefs and uprobes for the kernel's part;
and what the MPIs here let it see below MPI-IO."""

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
    """Traces a program."""
    from sonde.io.record import run_trace

    values: dict[str, Any] = {"built": False, "works": False}
    if platform.machine() != MACHINE:
        return Answer(f"not here: it is written for x86-64, and this is {platform.machine()}", NONE, values)
    try:
        run_trace.library()
    except SondeError:
        return Answer("not built", NONE, values, [Need("the tracer", "make setup")])
    values["built"] = True
    try:
        calls = _traced()
    except (SondeError, OSError) as error:
        what = error.what if isinstance(error, SondeError) else str(error)
        return Answer(f"it does not see a program's calls: {what}", NONE, values)
    values |= {"works": True, "calls": calls}
    return Answer(f"sees the calls of a program ({calls} of cat's)", GOOD, values)


def _traced() -> int:
    """Calls that the tracer saw of a program that reads a file."""
    import sonde
    from sonde.io.maps import run_maps
    from sonde.io.record import run_trace

    with tempfile.TemporaryDirectory(prefix="sonde-doctor-") as folder, open(os.devnull, "wb") as nothing:
        request = run_trace.Request(
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
    """Watches a program begin, by a uprobe, as root. Both are an extra: without them nothing is amiss."""
    from sonde.io.record import run_watch

    root = os.geteuid() == 0
    values: dict[str, Any] = {"root": root, "kernel": False, "uprobes": False, "tracefs": None, "left": []}
    if platform.machine() != MACHINE:
        return Answer(
            f"not here: they are written for x86-64, and this is {platform.machine()}", FACT, values
        )
    if not root:
        known = "tracefs" in here.read("proc/filesystems")
        why = "--kernel, --uprobes and --attach take root" if known else "this kernel has no tracefs"
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
    told = " and ".join(option for option, why in works.items() if not why)
    parts = [f"{told} work{'s' if sum(map(bool, works.values())) else ''}"] if told else []
    parts += [f"no {option}: {why}" for option, why in works.items() if why]
    mounted = f"mounted at {sight.place}" if sight.is_mounted else "mounted while it is needed"
    text = f"{'; '.join(parts)}; tracefs is {mounted}"
    if not sight.left:
        return Answer(text, GOOD if told else FACT, values)
    text += f"; a Sonde that was killed left {', '.join(sight.left)}"
    return Answer(text, POOR, values, advice="the next 'sonde io run' of root removes what was left")


@check("iostack", "MPI-IO", "Parallel I/O", 30)
def iostack(here: Here) -> Answer:
    """What of MPI-IO and the layers below it the libraries here export: all that the tracer can see of them."""
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
        return Answer("no MPI library is found", FACT, values)
    by_layer = {
        layer: sum(count for name, count in seen.items() if name.endswith(f": {layer}")) for layer in BELOW
    }
    told = [f"{count} functions of {layer.upper()}" for layer, count in by_layer.items() if count]
    hides = any(name.startswith("libmpich") for name in mpiio)
    text = f"can be seen below MPI-IO: {' and '.join(told)}" if told else "nothing can be seen below MPI-IO"
    if hides:
        text += "; MPICH keeps its ROMIO to itself"
    return Answer(text, GOOD if told else FACT, values)
