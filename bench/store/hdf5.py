"""h5py in the store against h5py on files, and the rates that JULEA's HDF5 client was measured at on a like machine.

One workload in a process of its own, on a server with POSIX and LMDB over loopback and on files, in turns. Nothing is
synced in either: what is compared is acknowledged by the server, or by the kernel.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from sonde.core.launch import libexec

ROUNDS = 5
SMALL, LARGE = 2000, 24  # datasets a round
JULEA = {
    "4 KiB dataset write": (871, 5),
    "4 MiB dataset write": (228, 2),
}  # operations/s and MB/s; how many times as much

WORKLOAD = """
import json, sys, time
import h5py, numpy as np
path, small, large = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
page = np.frombuffer(np.random.default_rng(1).bytes(4 << 10), "u1")
block = np.frombuffer(np.random.default_rng(2).bytes(4 << 20), "u1")
out = {}
def timed(name, amount, mode, work):
    begin = time.perf_counter()
    with h5py.File(path, mode) as f:
        work(f)
    out[name] = amount / (time.perf_counter() - begin)
def write(f, n, data):
    for k in range(n):
        f.create_dataset(f"d{k:06d}", data=data)
def read(f, n, data):
    for k in range(n):
        got = f[f"d{k:06d}"][()]
    assert (got == data).all()
def attributes(f):
    for k in range(small):
        f.attrs[f"a{k}"] = k
timed("4 KiB dataset write", small, "w", lambda f: write(f, small, page))
timed("4 KiB dataset read", small, "r", lambda f: read(f, small, page))
timed("4 MiB dataset write", large * 4.194304, "w", lambda f: write(f, large, block))
timed("4 MiB dataset read", large * 4.194304, "r", lambda f: read(f, large, block))
timed("attribute write", small, "w", attributes)
timed("attribute read", small, "r", lambda f: [f.attrs[f"a{k}"] for k in range(small)])
print(json.dumps(out))
"""


def once(path: Path, variables: dict[str, str]) -> dict[str, float]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HDF5_", "SONDE_STORE_"))}
    command = [sys.executable, "-W", "ignore", "-c", WORKLOAD, str(path), str(SMALL), str(LARGE)]
    done = subprocess.run(command, env=clean | variables, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def rows() -> list[dict]:
    with tempfile.TemporaryDirectory(prefix="sonde-bench-") as name:
        folder = Path(name)
        command = [str(libexec() / "sonde-stored"), "--with-parent", "--listen", "127.0.0.1:0"]
        command += ["--backend", f"data=posix,path={folder}/data", "--backend", f"kv=lmdb,path={folder}/kv"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout
            port = json.loads(server.stdout.readline())["port"]
            store = {
                "HDF5_PLUGIN_PATH": str(libexec().parent / "lib" / "hdf5"),
                "HDF5_VOL_CONNECTOR": f"sonde servers=127.0.0.1:{port}",
            }
            rounds = []
            for k in range(ROUNDS):
                order = [("store", store), ("files", {})] if k % 2 else [("files", {}), ("store", store)]
                rounds.append({name: once(folder / f"{name}.h5", variables) for name, variables in order})
            server.terminate()
    out = []
    for what in rounds[0]["store"]:
        stored = sorted(r["store"][what] for r in rounds)
        ratio = statistics.median(r["store"][what] / r["files"][what] for r in rounds)
        anchor, times = JULEA.get(what, (0, 0))
        middle = statistics.median(stored)
        unit = "MB/s" if "MiB" in what else "/s"
        out.append(
            {
                "what": f"h5py, {what}, in the store",
                "bar": f">= {anchor * times} {unit} ({times} times JULEA)" if anchor else "for the record",
                "value": middle,
                "ci": [stored[0], stored[-1]],
                "met": middle >= anchor * times if anchor else None,
                "note": f"{unit}, median and range of {ROUNDS} rounds; {ratio:.2f} times h5py on files in them",
            }
        )
    return out
