"""Whether what a trace tells is right: counts beside strace's, self times beside the clock, size of an event."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import sonde
from bench.io.programs import load, row
from sonde.core.launch.mpirun import Mpirun
from sonde.io.trace.events import RECORD

PROGRAM = """
import os, time
fd = os.open("data", os.O_RDWR | os.O_CREAT, 0o600)
block = b"x" * (1 << 20)
begin = time.monotonic()
for k in range(400): os.pwrite(fd, block, k << 20)
os.fsync(fd)
for k in range(400): os.pread(fd, 1 << 20, k << 20)
print(time.monotonic() - begin)
os.close(fd)
"""
PAIRS = {"pwrite64": "pwrite64", "pread64": "pread64", "fsync": "fsync", "openat": "open", "close": "close"}


def rows() -> list[dict]:
    """Counts, closure, size."""
    with tempfile.TemporaryDirectory(prefix="sonde-bench-", dir="/dev/shm") as name:
        folder = Path(name)
        line = [sys.executable, "-c", PROGRAM]
        trace = [
            Path(sys.executable).with_name("sonde"),
            "io",
            "run",
            "--layers",
            "posix",
            "-o",
            "a.nc",
            "--",
            *line,
        ]
        began = time.monotonic()
        ran = subprocess.run(list(map(str, trace)), cwd=folder, capture_output=True, text=True, check=True)
        took_s = time.monotonic() - began
        wall_s = float(ran.stdout.split()[0])
        with sonde.open(folder / "a.nc") as tree:
            raw = tree["raw"].to_dataset().load()
        names = raw["function_name"].values.astype(str)[raw["function_index"].values]
        path = raw["file_index"].values
        here = (path >= 0) & (raw["path"].values[path] == "data") if len(raw["path"]) else path >= 0
        phase = here & [name.startswith(("pwrite", "pread", "fsync")) for name in names]
        traced_s = float(raw["duration"].values[phase].sum()) * 1e-9
        out = [
            row(
                "self times of all layers against wall time of the I/O phase: 800 transfers of 1 MiB and a sync",
                "within 1 %",
                traced_s / wall_s,
                abs(traced_s / wall_s - 1) <= 0.01,
                f"share; what the interpreter does between calls is in the wall time; whole command {took_s:.1f} s",
            ),
            _size(folder / "a.nc", raw),
        ]
        if shutil.which("strace"):
            out.append(_against_strace(folder, line, names, here))
        out.append(_against_pmpi(folder))
    return out


def _against_pmpi(folder: Path) -> dict:
    """Calls of MPI by two ranks, counted by a library of MPI's profiling interface in one run, traced in another."""
    what, bar = "hit counts against MPI's profiling interface, same program", "equal"
    if not shutil.which("mpicc.openmpi"):
        return row(what, bar, None, None, "Open MPI's compiler is not there")
    library, counted = folder / "libcount.so", folder / "count"
    here = Path(__file__).parent
    subprocess.run(["mpicc.openmpi", "-O1", "-shared", "-fPIC", "-o", library, here / "count.c"], check=True)
    work = [load("openmpi"), "-a", "MPIIO", "-c", "-t", "64k", "-b", "1m", "-i", "3", "-o", folder / "data"]
    start = Mpirun("openmpi").command
    preloaded = start(list(map(str, work)), (), 2, {"LD_PRELOAD": str(library), "COUNT_FILE": str(counted)})
    subprocess.run(preloaded, check=True, capture_output=True, timeout=300)
    theirs: Counter[str] = Counter()
    for rank in range(2):
        for text in Path(f"{counted}.{rank}").read_text().splitlines():
            theirs[text.split()[0]] += int(text.split()[1])
    plain = start(list(map(str, work)), (), 2, {})
    sonde_io = [Path(sys.executable).with_name("sonde"), "io", "run", "--json", "-o", folder / "b.nc", "--"]
    told = json.loads(
        subprocess.run([*map(str, sonde_io), *plain], capture_output=True, text=True, check=True).stdout
    )
    ours: Counter[str] = Counter()
    for one in told["functions"]:
        ours[one["function"]] += one["calls"]
    wrong = [f"{name}: {ours[name]}, counted {n}" for name, n in theirs.items() if ours[name] != n]
    note = (
        f"functions that differ; {sum(theirs.values())} calls of {sum(map(bool, theirs.values()))} functions"
    )
    return row(what, bar, float(len(wrong)), not wrong, note + (f": {'; '.join(wrong)}" if wrong else ""))


def _size(path: Path, raw) -> dict:
    """What an event takes in the dataset, of all variables that have one value an event."""
    value = float(sum(raw[name].dtype.itemsize for name in raw.variables if raw[name].dims == ("event",)))
    compressed = path.stat().st_size / max(1, raw.sizes["event"])
    return row(
        "trace size before compression",
        "<= 40 B an event",
        value,
        value <= 40,
        f"a record of the tracer's has {RECORD.itemsize} B; this dataset, tables and all, {compressed:.0f} B an event",
    )


def _against_strace(folder: Path, line: list[str], names, here) -> dict:
    log = folder / "log"
    subprocess.run(
        ["strace", "-f", "-P", "data", "-o", str(log), *line], cwd=folder, check=True, capture_output=True
    )
    seen = [match[1] for text in log.read_text().splitlines() if (match := re.match(r"\d+ +(\w+)\(", text))]
    wrong = []
    for theirs, ours in PAIRS.items():
        mine = int(sum(here & [name.startswith(ours.removesuffix("64")) for name in names]))
        if mine != seen.count(theirs):
            wrong.append(f"{theirs}: {mine}, strace {seen.count(theirs)}")
    return row(
        "hit counts against strace, same program",
        "equal",
        float(len(wrong)),
        not wrong,
        f"calls that differ; {len(seen)} calls of {len(PAIRS)} kinds"
        + (f": {'; '.join(wrong)}" if wrong else ""),
    )
