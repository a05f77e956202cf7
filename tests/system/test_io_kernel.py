"""`sonde io run --kernel`: system calls as the kernel sees them, in their places among the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sonde_shell import Shell

import sonde as library
from sonde.io.run_watch import PLACES
from watching import wait_for

DATA = Path(__file__).parents[1] / "data" / "io"
pytestmark = pytest.mark.root

WORK = """
import os, sys, threading
def work(path, n):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    for k in range(n): os.pwrite(fd, b"x" * 4096, 4096 * k)
    for k in range(n): os.pread(fd, 4096, 4096 * k)
    os.fsync(fd)
    os.close(fd)
work("one", 50)
threads = [threading.Thread(target=work, args=(f"thread{k}", 20)) for k in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if os.fork() == 0:
    work("child", 30)
    os._exit(0)
os.wait()
"""


def instances() -> list[str]:
    return [path.name for place in PLACES for path in place.glob("instances/sonde-*")]


def events(sonde: Shell, file: str = "a.nc"):
    with library.open(sonde.cwd / file) as tree:
        raw = tree["raw"].to_dataset().load()
    layers = raw["layer_name"].values[raw["function_layer"].values]
    at = raw["function_index"].values
    return raw, layers[at], raw["function_name"].values[at]


def test_what_the_c_library_was_asked_for_is_what_the_kernel_did(sonde):
    told = (
        sonde("io", "run", "--kernel", "--json", "-o", "a.nc", "--", sys.executable, "-c", WORK)
        .expect(0)
        .json
    )
    assert told["warnings"] == []
    raw, layer, name = events(sonde)
    path = np.where(raw["file_index"].values >= 0, raw["path"].values[raw["file_index"].values], "")
    for file, n in (("one", 50), ("thread0", 20), ("thread2", 20), ("child", 30)):
        for here, there in (
            ("pwrite", "pwrite64"),
            ("pread", "pread64"),
            ("fsync", "fsync"),
            ("close", "close"),
        ):
            asked = (layer == "posix") & (path == file) & (np.char.startswith(name.astype(str), here))
            done = (layer == "kernel") & (path == file) & (name == there)
            assert asked.sum() == done.sum() == (n if here.startswith("p") else 1), (file, here)
            for what in ("offset", "size"):
                if here.startswith("p"):
                    assert sorted(raw[what].values[asked]) == sorted(raw[what].values[done])
    posix, kernel = (
        next(one for one in told["layers"] if one["layer"] == which) for which in ("posix", "kernel")
    )
    assert posix["write"]["requests"] == 140
    assert kernel["write"]["requests"] >= 140
    # A system call is within the call that made it.
    with library.open(sonde.cwd / "a.nc") as tree:
        summary = tree["summary"].to_dataset().load()
    names = summary["function_name"].values.astype(str)[summary["node_function"].values]
    parents = summary["node_parent"].values[names == "pwrite64"]
    above = {names[parent] if parent >= 0 else "" for parent in parents}
    assert all(one.startswith("pwrite") for one in above), above
    assert instances() == []
    assert sonde.left() == []


def test_calls_that_no_library_makes(sonde):
    script = (
        "import ctypes, os; c = ctypes.CDLL(None); fd = os.open('f', 66); "
        "[c.syscall(1, fd, b'abcd', 4) for _ in range(7)]"
    )
    told = (
        sonde("io", "run", "--kernel", "--json", "-o", "a.nc", "--", sys.executable, "-c", script)
        .expect(0)
        .json
    )
    assert (sonde.cwd / "f").stat().st_size == 28
    files = {(one["path"], one["layer"]): one["write"] for one in told["files"]}
    assert ("f", "posix") not in files
    assert files["f", "kernel"] == {"requests": 7, "bytes": 28}


def test_a_statically_linked_program(sonde):
    (sonde.cwd / "s.c").write_text(
        '#include <fcntl.h>\n#include <unistd.h>\nint main(void) { int fd = open("f", O_RDWR | O_CREAT, 0600);'
        ' for (int k = 0; k < 9; ++k) write(fd, "ab", 2); return 0; }\n'
    )
    subprocess.run(["cc", "-static", "-w", "-o", "static", "s.c"], cwd=sonde.cwd, check=True)
    told = sonde("io", "run", "--kernel", "--json", "-o", "a.nc", "--", "./static").expect(0).json
    calls = {one["function"]: one["calls"] for one in told["functions"]}
    assert calls["write"] == 9
    assert Path(told["processes"][0]["program"]).name == "static"


def test_when_all_is_killed_the_next_run_clears_up(sonde):
    process = sonde.start("io", "run", "--kernel", "-o", "a.nc", "--", "sleep", "1000")
    assert wait_for(lambda: any(Path(name).name == "sleep" for name in sonde.processes().values()))
    assert instances() == [f"sonde-{process.pid}"]
    for pid in sonde.processes():
        os.kill(pid, signal.SIGKILL)
    process.wait(30)
    assert wait_for(lambda: not sonde.processes())
    assert instances() == [f"sonde-{process.pid}"]
    sonde("io", "run", "--kernel", "-o", "b.nc", "--", "true").expect(0)
    assert instances() == []


def test_ctrl_c_ends_the_program_and_the_watching(sonde):
    process = sonde.start(
        "io",
        "run",
        "--kernel",
        "--json",
        "-o",
        "a.nc",
        "--",
        sys.executable,
        "-c",
        "import time; time.sleep(1000)",
    )
    assert wait_for(
        lambda: any("sleep(1000)" in _line(pid) for pid in sonde.processes() if pid != process.pid)
    )
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert instances() == []
    assert sonde.left() == []


def _line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
