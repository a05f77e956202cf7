"""Programs of the benches, built once, run with the tracer and without it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sonde.core import launch
from sonde.io.maps import run_maps
from sonde.io.maps.layers import Layer, parse
from sonde.io.maps.table import compiled
from sonde.io.record import run_request

HERE = Path(__file__).parent
NOTHING = """
layer = "nothing"
libraries = ["libnothing.so"]
[[functions]]
names = ["nothing"]
kind = "write"
size = "arg(0):i32"
offset = "arg(0)"
file = "arg(0)"
"""


@contextmanager
def workshop() -> Iterator[Path]:
    """A folder in memory with libnothing.so, many, small."""
    with tempfile.TemporaryDirectory(prefix="sonde-bench-", dir="/dev/shm") as name:
        folder = Path(name)
        build = ["cc", "-O2", "-o"]
        library = folder / "libnothing.so"
        subprocess.run([*build, library, "-shared", "-fPIC", HERE / "nothing.c"], check=True)
        link = ["-L", folder, "-lnothing", f"-Wl,-rpath,{folder}"]
        subprocess.run([*build, folder / "many", HERE / "many.c", *link], check=True)
        subprocess.run([*build, folder / "small", HERE / "small.c"], check=True)
        yield folder


def load(flavour: str) -> Path:
    """sonde-ioload, built for an MPI."""
    return launch.libexec() / flavour / "sonde-ioload"


def nothing() -> list[Layer]:
    """The map of libnothing.so."""
    return [parse(NOTHING, "bench")]


def every() -> list[Layer]:
    """All layers that are traced when nothing is asked for."""
    return run_maps.chosen(())


@contextmanager
def traced(layers: Sequence[Layer], where: Path, most_bytes: int = 0) -> Iterator[Mapping[str, str]]:
    """The environment of a traced program; its files are thrown away."""
    folder = where / "trace"
    folder.mkdir()
    try:
        (folder / run_request.TABLE).write_bytes(compiled(layers, most_bytes))
        yield os.environ | run_request.environment(folder)
    finally:
        shutil.rmtree(folder)


def numbers(
    line: Sequence[object], env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> list[float]:
    """What a program prints, a number a line."""
    ran = subprocess.run(list(map(str, line)), env=env, cwd=cwd, capture_output=True, text=True, check=True)
    return [float(word) for word in ran.stdout.split()]


def row(
    what: str, bar: str, value: float | None, met: bool | None, note: str, ci: Any = None
) -> dict[str, Any]:
    """As bench.rows takes them."""
    return {"what": what, "bar": bar, "value": value, "ci": ci, "met": met, "note": note}
