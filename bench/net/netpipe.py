"""Sonde's half round trip beside NetPIPE's, same MPI, same two cores, in turns."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from sonde.core import units
from sonde.core.blocks import BlockFile
from sonde.core.launch import launcher, probe

SIZES = (8, 1024, 65536)
TURNS = 12
BURSTS, BURST = 40, 500  # of Sonde, a turn and size
ALLOWED_SHARE, ALLOWED_S = 0.05, 20e-9


def rows(turns: int = TURNS) -> list[dict]:
    """One row a size: Sonde's least value over NetPIPE's, with the interval that turns drawn again give.

    NetPIPE prints the least of several means over a long loop. What is compared with it is the same of Sonde's
    samples: the least of means over bursts. Of both the best turn counts, as a neighbour on the machine can only
    add; the other turns stand in the note. Both run pinned to two cores by the same mpirun.
    """
    program = shutil.which("NPopenmpi")
    name = "RTT/2 at {} against NetPIPE, same MPI"
    bar = "within 5 % or 20 ns"
    if program is None:
        note = "not measurable: NPopenmpi is not installed (package netpipe-openmpi)"
        return [_row(name.format(units.format_size(size)), bar, None, None, None, note) for size in SIZES]
    theirs: dict[int, list[float]] = {size: [] for size in SIZES}
    ours: dict[int, list[float]] = {size: [] for size in SIZES}
    typical: dict[int, list[float]] = {size: [] for size in SIZES}
    rng = np.random.default_rng(20261120)
    for _ in range(turns):
        for who in rng.permutation(2):
            if who == 0:
                for size in SIZES:
                    theirs[size].append(_netpipe(program, size))
            else:
                for size, (least, median) in _sonde().items():
                    ours[size].append(least)
                    typical[size].append(median)
    out = []
    for size in SIZES:
        a, b = np.array(ours[size]), np.array(theirs[size])
        ratio, gap = float(a.min() / b.min()), float(a.min() - b.min())
        # Turns drawn again, each tool's by themselves.
        again = [rng.choice(a, turns).min() / rng.choice(b, turns).min() for _ in range(1000)]
        low, high = np.quantile(again, [0.025, 0.975])
        met = abs(ratio - 1) <= ALLOWED_SHARE or abs(gap) <= ALLOWED_S
        note = (
            f"least of means: Sonde {a.min() * 1e9:.0f} ns, NetPIPE {b.min() * 1e9:.0f} ns, "
            f"difference {gap * 1e9:+.0f} ns; middle of {turns} turns {np.median(a) * 1e9:.0f} and "
            f"{np.median(b) * 1e9:.0f} ns, worst {a.max() * 1e9:.0f} and {b.max() * 1e9:.0f} ns; "
            f"Sonde's median sample {np.median(typical[size]) * 1e9:.0f} ns"
        )
        out.append(
            _row(name.format(units.format_size(size)), bar, ratio, [float(low), float(high)], met, note)
        )
    return out


def _row(what, bar, value, ci, met, note) -> dict:
    return {"what": what, "bar": bar, "value": value, "ci": ci, "met": met, "note": note}


def _mpirun(argv: list[str]) -> list[str]:
    return launcher("mpirun", mpi="openmpi").command(argv, (), 2, {})


def _netpipe(program: str, size: int) -> float:
    """NetPIPE's half round trip, s."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "np.out"
        argv = [program, "-l", str(size), "-u", str(size), "-p", "0", "-o", str(out)]
        subprocess.run(_mpirun(argv), check=True, capture_output=True, timeout=300)
        fields = re.split(r"\s+", out.read_text().strip().splitlines()[-1].strip())
        return float(fields[2])


def _sonde() -> dict[int, tuple[float, float]]:
    """Per size: least of burst means, and the median sample, s."""
    samples = BURSTS * BURST
    with tempfile.TemporaryDirectory() as folder:
        argv = [str(probe("sonde-net", "openmpi")), "--dir", folder, "--modes", "one_to_one"]
        argv += ["--sizes", ",".join(map(str, SIZES)), "--rule", f"fixed:{samples}", "--cap", str(samples)]
        argv += ["--epoch-length", str(BURST), "--burst-s", "1", "--pairs", "0-1"]
        subprocess.run(_mpirun(argv), check=True, capture_output=True, timeout=300, stdin=_open_pipe())
        records = np.concatenate(list(BlockFile(Path(folder) / "rank-00000.blk")))
        out = {}
        for index, size in enumerate(SIZES):
            bursts = records[(records["kind"] == 0) & (records["size"] == index)]
            means = [burst["value"][: burst["n"]].mean() for burst in bursts]
            everything = np.concatenate([burst["value"][: burst["n"]] for burst in bursts])
            out[size] = (float(min(means)), float(np.median(everything)))
        return out


def _open_pipe() -> int:
    """A standard input that never ends: its end would tell the probe to stop."""
    import os

    read, write = os.pipe()
    os.set_inheritable(write, False)
    _KEPT.append(write)
    return read


_KEPT: list[int] = []
