"""A server with a token, strangers, and a client of the owner's that times each call: processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

METRICS_TIMEOUT_S = 30
STEPPED_BACK = "the hostile side takes idle cores alone"


@dataclass
class Served:
    pid: int
    address: str
    metrics: str
    token: Path

    def rss_kib(self) -> int:
        """Resident memory now; 0 where the server is gone."""
        with suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1])
        return 0

    def counted(self, *names: str) -> int:
        """The sum of these counters of the server's."""
        import urllib.request

        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=METRICS_TIMEOUT_S) as answer:
            lines = answer.read().decode().splitlines()
        wanted = {f"sonde_store_{name}_total" for name in names}
        found = {line.split()[0]: float(line.split()[1]) for line in lines if line.split()[0] in wanted}
        assert set(found) == wanted, f"the server counts no {sorted(wanted - set(found))}"
        return int(sum(found.values()))


@contextmanager
def served(*words: str) -> Iterator[Served]:
    from sonde.core import launch

    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.touch(mode=0o600)
        token.write_text("a-token-for-this-bench-alone\n")
        line = [str(launch.libexec() / "sonde-stored"), "--with-parent", "--listen", "127.0.0.1:0"]
        line += ["--metrics", "127.0.0.1:0", "--auth", "token", "--token-file", str(token)]
        line += ["--backend", "kv=memory", "--backend", "data=memory", *words]
        server = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout
            ready = json.loads(server.stdout.readline())
            yield Served(server.pid, ready["listen"], f"127.0.0.1:{ready['metrics_port']}", token)
        finally:
            server.kill()
            server.communicate()


def step_back() -> None:
    """Has this process, a hostile one, run only where a core is idle, as though it had a host of its own: what its
    victim notices is the server's doing then."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def start(module: str, *words: object) -> subprocess.Popen[str]:
    """`python -m bench.hostile.MODULE WORDS`. It ends when its input does."""
    line = [sys.executable, "-m", f"bench.hostile.{module}", *map(str, words)]
    return subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line that it says."""
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{' '.join(map(str, process.args))} ended with {process.wait()}")  # type: ignore[arg-type]
    answer: dict[str, Any] = json.loads(line)
    return answer


def over(process: subprocess.Popen[str]) -> None:
    """Has it end."""
    assert process.stdin
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def owner(server: Served, seconds: float, *words: object) -> dict[str, Any]:
    """What the owner's client found in so many seconds: see asking.py."""
    process = start("asking", server.address, server.token, seconds, *words)
    try:
        return said(process)
    finally:
        over(process)


def p99(times: Sequence[float]) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


def until(process: subprocess.Popen[str], what: str, limit_s: float = 120) -> dict[str, Any]:
    """The first line with this key."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        answer = said(process)
        if what in answer:
            return answer
    raise SystemExit(f"nothing was said of '{what}' within {limit_s} s")
