"""`sonde io run --kernel`: system calls as the kernel sees them, in their places among the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sonde as library
from sonde.io.record.run_tracefs import PLACES
from sonde_shell import PROGRAM, Shell, finish
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


UNMOUNT = "while umount /sys/kernel/tracing || umount /sys/kernel/debug; do :; done 2>/dev/null"


def instances(sonde: Shell) -> list[str]:
    """Those of this test: of its processes, and of such as are no more. Another sonde may be at work on the machine."""
    names = [path.name for place in PLACES for path in place.glob("instances/sonde-*")]
    ours = sonde.processes()
    owner = {name: int(name.removeprefix("sonde-").partition("_")[0]) for name in names}
    return [name for name in names if owner[name] in ours or not Path(f"/proc/{owner[name]}").exists()]


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
    assert instances(sonde) == []
    assert sonde.left() == []


BECOMES = """
#include <fcntl.h>
#include <unistd.h>
int main(int n, char** words) {
  int file = open(n == 1 ? "one" : "two", O_RDWR | O_CREAT, 0600);
  write(file, "x", 1);
  close(file);
  if (n == 1) execl("./becomes", "becomes", "again", (char*)0);
  return 0;
}
"""


def test_what_the_loader_does_for_the_next_program_is_nobody_s(sonde):
    line = ["cc", "-w", "-o", "becomes", "-x", "c", "-"]
    subprocess.run(line, cwd=sonde.cwd, input=BECOMES, text=True, check=True)
    told = sonde("io", "run", "--kernel", "--json", "-o", "a.nc", "--", "./becomes").expect(0).json
    calls = {one["function"]: one["calls"] for one in told["functions"] if one["layer"] == "kernel"}
    assert calls == {"openat": 2, "write": 2, "close": 2}
    assert [process["calls"] for process in told["processes"]] == [6, 6]
    assert told["findings"] == []
    with library.open(sonde.cwd / "a.nc") as tree:
        assert (tree.attrs["system_calls"], tree.attrs["kernel"]) == (1, os.uname().release)


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
    (instance,) = instances(sonde)
    assert instance.startswith(f"sonde-{process.pid}_")
    for pid in sonde.processes():
        os.kill(pid, signal.SIGKILL)
    process.wait(30)
    assert wait_for(lambda: not sonde.processes())
    assert instances(sonde) == [instance]
    sonde("io", "run", "--kernel", "-o", "b.nc", "--", "true").expect(0)
    assert instances(sonde) == []


@pytest.fixture
def unmounted(sonde):
    """Starts commands where tracefs is not mounted, and tells what is: a folder's tree of mounts of its own."""
    holder = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", f"{UNMOUNT}; echo; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    # With the holder's root: a tree of mounts by itself leads to the machine's, which is another in a chroot.
    root = f"/proc/{holder.pid}/root"
    inside = ["nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", f"--root={root}", f"--wd={root}{sonde.cwd}"]

    def start(*words: object) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*inside, str(PROGRAM), *map(str, words)], env=sonde.env, stdout=pipe, stderr=pipe, text=True
        )

    def mounts() -> list[str]:
        lines = Path(f"/proc/{holder.pid}/mounts").read_text().splitlines()
        return [line.split()[0] for line in lines if line.split()[2] == "tracefs"]

    yield start, mounts
    holder.communicate()


def asleep(sonde: Shell) -> int:
    return sum(Path(name).name == "sleep" for name in sonde.processes().values())


def test_tracefs_that_a_killed_sonde_mounted_goes_with_the_next(sonde, unmounted):
    start, mounts = unmounted
    assert mounts() == []
    finish(start("io", "run", "--kernel", "-o", "a.nc", "--", "true")).expect(0)
    assert mounts() == []
    process = start("io", "run", "--kernel", "-o", "b.nc", "--", "sleep", "1000")
    assert wait_for(lambda: asleep(sonde) == 1)
    assert mounts() == ["sonde"]
    for pid in sonde.processes():
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    assert wait_for(lambda: not sonde.processes())
    assert mounts() == ["sonde"]
    finish(start("io", "run", "-o", "c.nc", "--", "ls")).expect(0)  # it asks nothing of the kernel
    assert mounts() == []
    assert instances(sonde) == []


def test_tracefs_stays_mounted_until_the_last_that_uses_it(sonde, unmounted):
    start, mounts = unmounted
    first, second = (start("io", "run", "--kernel", "-o", f"{k}.nc", "--", "sleep", "1000") for k in "ab")
    assert wait_for(lambda: asleep(sonde) == 2)
    for process, after in ((first, ["sonde"]), (second, [])):
        process.send_signal(signal.SIGINT)
        finish(process).expect(130)
        assert mounts() == after
    assert instances(sonde) == []


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
def test_some_that_begin_at_once_mount_tracefs_for_each_other(sonde, unmounted, rounds):
    start, mounts = unmounted
    for round in range(rounds):
        runs = [start("io", "run", "--kernel", "-o", f"{round}-{k}.nc", "--", "true") for k in range(4)]
        for run in runs:
            finish(run).expect(0)
    assert mounts() == []
    assert instances(sonde) == []


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
        "open('begun', 'w'); import time; time.sleep(1000)",
    )
    assert wait_for((sonde.cwd / "begun").exists)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert instances(sonde) == []
    assert sonde.left() == []
