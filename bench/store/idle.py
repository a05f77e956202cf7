"""What a server uses while nobody asks for anything."""

from __future__ import annotations

import json
import os
import subprocess
import time

from bench.rows import row

SECONDS = 10


def rows() -> list[dict]:
    """Rows of this bench."""
    from sonde.core import launch
    from sonde.store.client import connect

    out = []
    for transport in ("none", "tcp", "ofi-rdm", "ofi-msg"):
        words = [
            str(launch.libexec() / "sonde-stored"),
            "--backend",
            "data=memory",
            "--backend",
            "kv=memory",
            "--listen",
            "127.0.0.1:0",
            "--with-parent",
        ]
        server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert server.stdout
        assert server.stdin
        try:
            address = json.loads(server.stdout.readline())["listen"]
            client = None if transport == "none" else connect(address, transport=transport)
            if client is not None:
                client.put("idle", "k", b"v")
            time.sleep(2)
            before = _cpu_s(server.pid)
            time.sleep(SECONDS)
            value = (_cpu_s(server.pid) - before) / SECONDS * 100
            note = f"{SECONDS} s, " + ("no client" if client is None else f"one idle client over {transport}")
            out.append(row("idle server, % of a core", "< 1", value, None, lambda v: v < 1, note))
            if client is not None:
                client.close()
        finally:
            server.stdin.close()
            server.wait(10)
    return out


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
