"""sonde-ioload beside fio: the same calls to the same file system, through POSIX."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from bench.io.programs import load, row
from sonde.core import stats
from sonde.core.units import format_size

ROUNDS = 11
FILE_BYTES = 512 << 20
SIZES = (4096, 1 << 20)


def rows() -> list[dict]:
    """Bandwidth as a multiple of fio's, interleaved, by size and direction."""
    bar = ">= 0.95 times"
    if not shutil.which("fio"):
        return [
            row("sonde-ioload against fio, POSIX", bar, None, None, "fio is not there: deploy/setup bench")
        ]
    out = []
    with tempfile.TemporaryDirectory(prefix="sonde-bench-", dir="/dev/shm") as name:
        folder = Path(name)
        for size in SIZES:
            ratios: dict[str, list[float]] = {"write": [], "read": []}
            for number in range(ROUNDS):
                found = {}
                for who in (ours, fio) if number % 2 else (fio, ours):
                    found[who] = who(folder, size)
                for access, values in ratios.items():
                    values.append(found[ours][access] / found[fio][access])
            for access, values in ratios.items():
                value, ci = stats.median(np.array(values)), stats.median_ci(np.array(values))
                out.append(
                    row(
                        f"sonde-ioload against fio, POSIX, {access}s of {format_size(size)} to tmpfs",
                        bar,
                        value,
                        value >= 0.95,
                        f"median and 95 % interval of {ROUNDS} interleaved rounds of 512 MiB; one task, psync",
                        [ci.low, ci.high],
                    )
                )
    return out


def ours(folder: Path, size: int) -> dict[str, float]:
    """B/s by access."""
    result = folder / "result.json"
    words = [load("openmpi"), "-a", "POSIX", "-t", size, "-b", FILE_BYTES, "-w", "-r", "-o", folder / "data"]
    subprocess.run([*map(str, words), "--json", result], check=True, capture_output=True, timeout=300)
    told = json.loads(result.read_text())
    return {phase["access"]: phase["bytes"] / phase["total_s"] for phase in told["iterations"]}


def fio(folder: Path, size: int) -> dict[str, float]:
    """B/s by access; writes to a new file, as ours."""
    found = {}
    path = folder / "fio"
    path.unlink(missing_ok=True)
    for access in ("write", "read"):
        words = [
            *(
                "fio",
                "--name=a",
                f"--filename={path}",
                f"--rw={access}",
                f"--bs={size}",
                f"--size={FILE_BYTES}",
            ),
            *("--ioengine=psync", "--output-format=json", "--fallocate=none", "--invalidate=0", "--thread"),
        ]
        ran = subprocess.run(words, check=True, capture_output=True, text=True, timeout=300)
        job = json.loads(ran.stdout[ran.stdout.index("{") :])["jobs"][0][access]
        found[access] = job["io_bytes"] / (job["runtime"] / 1e3)
    path.unlink()
    return found
