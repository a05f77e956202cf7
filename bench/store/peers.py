"""Against Redis, against single puts, and against what JULEA reached on a like machine."""

from __future__ import annotations

import csv
import shutil
import socket
import statistics
import subprocess
import tempfile
import time

from bench.rows import row
from bench.store.runs import cell, run, shown

ROUNDS = 5
# JULEA 2026, posix and leveldb without fsync, loopback, a machine of two cores: operations/s.
JULEA = {
    ("object.write", 1): 45e3,
    ("object.read", 1): 49e3,
    ("object.write", 10_000): 159e3,
    ("object.read", 10_000): 151e3,
}
JULEA_KV = {"kv.put": 64e3, "kv.get": 60e3}


def rows() -> list[dict]:
    """Rows of this bench."""
    return _redis() + _batches() + _julea()


def _redis() -> list[dict]:
    cases = [(verb, depth) for verb in ("put", "get") for depth in (1, 64)]
    if not shutil.which("redis-server") or not shutil.which("redis-benchmark"):
        return [
            row(
                f"kv.{v} 4 KiB, depth {d}: against Redis",
                ">= 1.0x",
                None,
                None,
                None,
                "redis-server is not installed",
            )
            for v, d in cases
        ]
    ratios: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    rates: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
        probe.close()
        words = [
            "redis-server",
            "--port",
            port,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            folder,
        ]
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            for _ in range(ROUNDS):
                theirs = {}
                for depth in (1, 64):
                    ran = subprocess.run(
                        [
                            "redis-benchmark",
                            "-p",
                            port,
                            "-c",
                            "1",
                            "-P",
                            str(depth),
                            "-d",
                            "4096",
                            "-t",
                            "set,get",
                            "-n",
                            str(40_000 if depth == 1 else 200_000),
                            "-r",
                            "1000",
                            "--csv",
                        ],
                        capture_output=True,
                        text=True,
                        check=True,
                    )
                    for line in csv.DictReader(ran.stdout.splitlines()):
                        theirs["put" if line["test"] == "SET" else "get", depth] = float(line["rps"])
                ours = run(
                    "8s", ops="kv", sizes="4KiB", batch="1", depth="1,64", variant="tcp", backend="memory"
                )
                for verb, depth in cases:
                    if found := cell(ours, "tcp", f"kv.{verb}", 4096, 1, depth):
                        rates[verb, depth].append(found["ops_s"])
                        ratios[verb, depth].append(found["ops_s"] / theirs[verb, depth])
        finally:
            server.terminate()
            server.wait(10)
    out = []
    for verb, depth in cases:
        found = sorted(ratios[verb, depth])
        own = statistics.median(rates[verb, depth])
        out.append(
            row(
                f"kv.{verb} 4 KiB, depth {depth}: tcp, memory backend, against Redis without persistence",
                ">= 1.0x",
                statistics.median(found) if found else None,
                [found[0], found[-1]] if found else None,
                lambda v: v >= 1,
                f"{ROUNDS} rounds in turn, least and most; {own:.0f}/s here; one client each",
            )
        )
    return out


def _batches() -> list[dict]:
    out = []
    for backend in ("memory", "posix+lmdb"):
        results = run(
            "15s", ops="kv.put", sizes="64,4KiB", batch="1,1000", depth="1", variant="tcp", backend=backend
        )
        for size in (64, 4096):
            one, many = (cell(results, "tcp", "kv.put", size, batch) for batch in (1, 1000))
            value = many["ops_s"] / one["ops_s"] if one and many else None
            out.append(
                row(
                    f"1000 keys of {size} B in one batch against 1000 single puts, {backend}",
                    ">= 8x" if size == 64 else "(reported)",
                    value,
                    None,
                    (lambda v: v >= 8) if size == 64 else None,
                    f"{many['ops_s']:.0f}/s against {one['ops_s']:.0f}/s" if value else "",
                )
            )
    return out


def _julea() -> list[dict]:
    ways = {"variant": "raw,tcp,ofi-rma", "backend": "posix+lmdb", "depth": "1"}
    results = run("40s", ops="object,kv", sizes="4KiB", batch="1,10000,1000", **ways)
    results += run("15s", ops="kv", sizes="64", batch="1", **ways)
    cases = [(op, 4096, batch, rate, "posix") for (op, batch), rate in JULEA.items()]
    cases += [(op, 64, 1, rate, "lmdb") for op, rate in JULEA_KV.items()]
    out = []
    for op, size, batch, theirs, backend in cases:
        raw = cell(results, "raw", op, size, batch)
        for name in ("tcp", "ofi-rma"):
            found = cell(results, name, op, size, batch)
            out.append(
                row(
                    f"{op} {shown(size, batch)}, {backend}: {name} against JULEA's {theirs / 1e3:.0f} k/s",
                    ">= 1.5x",
                    found and found["ops_s"] / theirs,
                    found and [end / theirs for end in found["ci"] or (0, 0)],
                    lambda v: v >= 1.5,
                    "JULEA's rate is of another machine, on which a raw round trip took 5.4 us: for orientation"
                    + (f"; raw here: {raw['p50_s'] * 1e6:.1f} us" if raw and batch == 1 else ""),
                )
            )
    return out
