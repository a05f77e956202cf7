"""Memory of rank 0 in a large run: made-up delays through the probes' own writer, then the real seal.

Both steps run in processes of their own, whose peak resident memory is what the kernel says of them. Rank 0's
is that of the process that feeds the writer (every rank's file in turn, with the buffer a rank of that run
has), an interpreter and its libraries included, which a probe does not carry.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RANKS, BURSTS, BURST = 1024, 20, 50
ANALYSED = 128  # ranks of a run that is analysed too: at 1024 that takes half an hour
LIMIT_MB = 200
SPARE_BYTES = 2 << 30  # left free on the disk


def rows(ranks: int = RANKS, analysed: int = ANALYSED, folder: Path | None = None) -> list[dict]:
    """Peak memory of writing a run of `ranks` ranks, 1000 samples a pair, one size; and of sealing its /raw.

    analysed: ranks of a second run, whose analysis is measured as well. folder: where some 33 kB a pair are
    needed for a while; the default is where temporary files go.
    """
    what = f"memory of rank 0, N = {ranks}, n = {BURSTS * BURST} (synthetic feed to the real writer)"
    sealing = f"memory of sealing that run's /raw, N = {ranks}"
    place = Path(folder or tempfile.gettempdir())
    needed = _needed_bytes(ranks) + SPARE_BYTES
    free = shutil.disk_usage(place).free
    if free < needed:
        note = f"not measurable: {place} has {free / 1e9:.0f} GB free, {needed / 1e9:.0f} GB are needed"
        return [_row(what, None, note), _row(sealing, None, note)]
    wrote, sealed = _measured(place, ranks, analyse=False)
    _, whole = _measured(place, analysed, analyse=True)
    return [
        _row(
            what,
            wrote["peak_mb"],
            f"{wrote['bytes'] / 1e9:.1f} GB in {ranks} block files, {wrote['seconds']:.0f} s; "
            f"{wrote['start_mb']:.0f} MB of it are Python and numpy before the first record",
        ),
        _row(
            sealing,
            sealed["peak_mb"],
            f"{sealed['raw_bytes'] / 1e9:.1f} GB of /raw become a dataset of {sealed['bytes'] / 1e9:.1f} GB "
            f"in {sealed['seconds']:.0f} s; {sealed['start_mb']:.0f} MB are Python and its libraries. "
            f"Analysis grows with the cells: {analysed} ranks sealed and analysed peak at "
            f"{whole['peak_mb']:.0f} MB in {whole['seconds']:.0f} s ({whole['start_mb']:.0f} MB libraries)",
        ),
    ]


def _measured(place: Path, ranks: int, analyse: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="sonde-bench-", dir=place) as scratch:
        run, out = Path(scratch) / "bench.run", Path(scratch) / "bench.nc"
        return _child("write", run, ranks), _child("analyse" if analyse else "seal", run, out)


def _row(what: str, value: float | None, note: str) -> dict:
    met = None if value is None else value < LIMIT_MB
    return {"what": what, "bar": f"< {LIMIT_MB} MB", "value": value, "ci": None, "met": met, "note": note}


def _needed_bytes(ranks: int) -> int:
    """Block files (640 B a burst) and the dataset beside them (at most 20 B a sample)."""
    pairs = ranks * (ranks - 1)
    return pairs * BURSTS * (40 + 12 * BURST) + pairs * BURSTS * BURST * 20


def _child(step: str, *words: Any) -> dict[str, Any]:
    line = [sys.executable, "-m", "bench.net.memory", step, *map(str, words)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(line, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def write(run: Path, ranks: int) -> dict[str, Any]:
    """Fills a run's folder as `ranks` ranks do that measure one pair of one size after the other."""
    import numpy as np

    from sonde import _core
    from sonde.core import run_folder

    record = np.dtype(
        [(name, "<u4") for name in ("kind", "mode", "src", "dst", "size", "epoch", "n", "code")]
        + [("t0", "<f8"), ("value", "<f8", (BURST,)), ("offset", "<f4", (BURST,))]
    )
    fields = [[name, record[name].base.str, list(record[name].shape)] for name in record.names]
    plan = {
        "ranks": ranks,
        "sizes": [8],
        "modes": ["one_to_one"],
        "values": {"one_to_one": "rtt_half"},
        "measured_by": {"one_to_one": "src"},
        "epoch_length": BURST,
    }
    run_folder.start(
        run,
        room="net",
        schema="net/1",
        attrs={"command": "bench", "seed": 1, "hostlist": "", "job_id": "none", "stop_reason": "epochs"},
        plan=plan,
    )
    random = np.random.default_rng(20261120)
    # Delays as a clock of 1 ns shows them; one burst of many is drawn for each record.
    pool = np.round(random.lognormal(np.log(2e-6), 0.1, (4096, BURST)), 9)
    start_mb = _peak_mb()
    began = time.monotonic()
    for rank in range(ranks):
        place = {"host": f"n{rank // 64:04d}", "cpu": rank % 64, "core": rank % 64, "l3": rank % 64 // 8}
        header = {
            "fields": fields,
            "schema": "net/1",
            "rank": rank,
            "ranks": ranks,
            "sizes": [8],
            "modes": ["one_to_one"],
            "values": ["rtt_half"],
            "epoch_length": BURST,
            **place,
            "numa": rank % 64 // 32,
            "package": 0,
        }
        writer = _core.BlockWriter(
            str(run / f"rank-{rank:05d}.blk"), json.dumps(header), record.itemsize, 64 + 4 * ranks
        )
        burst = np.zeros(ranks - 1, record)
        burst["src"], burst["dst"] = rank, np.delete(np.arange(ranks), rank)
        burst["n"] = BURST
        burst["offset"] = np.arange(BURST) * np.float32(4e-6)
        for epoch in range(BURSTS):
            burst["epoch"] = epoch
            burst["t0"] = epoch * ranks * 2e-4 + np.arange(ranks - 1) * 2e-4
            burst["value"] = pool[random.integers(0, len(pool), ranks - 1)]
            if writer.append(burst) < len(burst):
                raise RuntimeError("the writer had no room")
            writer.flush()
        verdict = burst.copy()
        verdict["kind"], verdict["code"], verdict["n"] = 1, 1, 0
        writer.append(verdict)
        writer.close()
    size = sum(path.stat().st_size for path in run.iterdir())
    return {"peak_mb": _peak_mb(), "start_mb": start_mb, "seconds": time.monotonic() - began, "bytes": size}


def seal(run: Path, out: Path, analyse: bool) -> dict[str, Any]:
    """Seals the folder with net's own schema."""
    import netCDF4  # noqa: F401  counted as a library, not as this run's

    from sonde.core import dataset, seal
    from sonde.net.sealing import SCHEMA

    if analyse:
        import sonde.net.analyse  # noqa: F401
    start_mb = _peak_mb()
    began = time.monotonic()
    (sealed,) = seal.seal(run, out, SCHEMA, analyse=analyse)
    seconds = time.monotonic() - began
    peak_mb = _peak_mb()
    if not sealed.complete or [w.code for w in sealed.warnings] != ([] if analyse else ["core.not_analysed"]):
        raise RuntimeError(f"sealing went otherwise than it should: {sealed.warnings}")
    with dataset.open(out) as tree:
        raw_bytes = sum(tree["raw"][name].nbytes for name in ("latency", "epoch", "t_start"))
    return {
        "peak_mb": peak_mb,
        "start_mb": start_mb,
        "seconds": seconds,
        "bytes": out.stat().st_size,
        "raw_bytes": raw_bytes,
    }


if __name__ == "__main__":
    step, first, second = sys.argv[1:]
    if step == "write":
        result = write(Path(first), int(second))
    else:
        result = seal(Path(first), Path(second), analyse=step == "analyse")
    print(json.dumps(result))
