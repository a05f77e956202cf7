"""The store under the tracer: how many requests of clients are joined to what servers did, and what its places cost."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.io.programs import HERE, numbers, row
from sonde.core import launch

LAYERS = "store,store_transport,store_server,store_backend"
# Two servers, of two threads each; $1 is run with their addresses.
SERVED = """
for k in 1 2; do
  "$0" --listen 127.0.0.1:0 --threads 2 --backend data=memory --backend kv=memory >told$k &
  servers="$servers $!"
  while ! grep -q port told$k; do sleep 0.05; done
  to="$to 127.0.0.1:$(sed -n 's/.*"port":\\([0-9]*\\).*/\\1/p' told$k)"
done
"$@" $to
kill $servers
wait
"""
CLIENT = """
import sys, threading
import sonde.store
def work(number):
    store = sonde.store.connect(*sys.argv[2:], transport=sys.argv[1])
    under_way = []
    for k in range(2000):
        batch = store.batch("none" if k % 50 == 49 else "network")
        for j in range(1 + k % 4): batch.write("bench", f"{number}-{j}", 4096 * k, bytes(4096))
        if k % 3 == 0: batch = store.batch(); batch.read("bench", f"{number}-0", 0, 8192)
        batch.start()
        under_way.append(batch)
        if len(under_way) == 8: under_way.pop(0).wait()
        if k % 5 == 0: store.put("bench", f"{number}-{k}", bytes(100))
    for batch in under_way: batch.wait()
    store.flush()
threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def rows() -> list[dict]:
    """Joined share by transport, and the cost of a place."""
    stored = launch.libexec() / "sonde-stored"
    listed = json.loads(subprocess.run([stored, "--list"], check=True, capture_output=True, text=True).stdout)
    return [*(_joined(stored, name) for name in ("tcp", "ofi-rdm") if name in listed["transports"]), _cost()]


def _joined(stored: Path, transport: str) -> dict:
    with tempfile.TemporaryDirectory(prefix="sonde-bench-", dir="/dev/shm") as folder:
        sonde = Path(sys.executable).with_name("sonde")
        client = [sys.executable, "-c", CLIENT, transport]
        line = [
            sonde,
            "io",
            "run",
            "--layers",
            LAYERS,
            "--json",
            "-o",
            "a.nc",
            "--",
            "sh",
            "-c",
            SERVED,
            stored,
            *client,
        ]
        ran = subprocess.run(list(map(str, line)), cwd=folder, capture_output=True, text=True, check=True)
    told = json.loads(ran.stdout)
    (joined,) = told["joins"]
    calls = sum(one["calls"] for one in told["functions"])
    kinds = ", ".join(
        f"{one['requests']} {one['function'].rpartition('_')[2]}" for one in joined["operations"]
    )
    return row(
        f"client calls joined to server operations, store, {transport}",
        ">= 0.99",
        joined["share"],
        joined["share"] >= 0.99,
        f"of {joined['requests']} requests ({kinds}) of three threads, up to 8 under way in each, to two servers; "
        f"{joined['strays']} of no client; {calls} calls traced",
    )


def _cost() -> dict:
    library = launch.libexec().parent / "lib" / "libsonde-store.so"
    with tempfile.TemporaryDirectory(prefix="sonde-bench-") as folder:
        subprocess.run(["cc", "-O2", "-o", f"{folder}/points", HERE / "points.c", "-ldl"], check=True)
        found = numbers([f"{folder}/points", library])
    return row(
        "a place for tracers in the store, nobody tracing",
        "(no bar)",
        statistics.median(found),
        None,
        f"ns, median and range of {len(found)} rounds; a request passes some ten",
        [min(found), max(found)],
    )
