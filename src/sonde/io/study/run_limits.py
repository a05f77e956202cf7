"""What a place and a network can do alone: sequential direct writing and reading, and bytes through one connection.

Beside these a study's rates are read. fio measures the disk where it is on PATH, else a plain loop of our own does;
both have as many writers as the study has ranks, each with a file of its own.
"""

from __future__ import annotations

import errno
import fnmatch
import json
import mmap
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sonde.core.errors import EnvironmentFailure, SondeError, reason_not_written
from sonde.core.lines import kernel_lines
from sonde.core.owned_files import Folder

if TYPE_CHECKING:
    from sonde.cluster import Cluster

PIECE = 1 << 20  # B of one call
MOST_S = 1.0  # of writing, and of reading
MOST_BYTES = (
    256 << 20
)  # of all writers, whatever the study writes: less is moved before clocks can tell how fast
ROOM = 64 << 20  # B that are left free
LEAST_S = 0.02  # of fio's jobs: it counts milliseconds
LOOP, CACHED, FIO, SOCKET = "a plain loop", "a plain loop through the page cache", "fio", "one TCP connection"
_FIO_S = 60.0

# In a node of a cluster: says its port, takes what comes, says bytes and seconds.
_TAKES = """
import socket, sys, time
server = socket.create_server((sys.argv[1], 0))
print(server.getsockname()[1], flush=True)
server.settimeout(20)
link, _ = server.accept()
link.settimeout(20)
buffer, taken, began = bytearray(1 << 20), 0, None
while n := link.recv_into(buffer):
    began = time.monotonic() if began is None else began
    taken += n
print(taken, time.monotonic() - (began or 0.0))
"""
_SENDS = """
import socket, sys, time
link = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
until, data = time.monotonic() + float(sys.argv[3]), bytes(1 << 20)
while time.monotonic() < until:
    link.sendall(data)
link.close()
"""


@dataclass(frozen=True)
class Limit:
    """What was measured: "write", "read" or "network"; B/s; with what."""

    what: str
    rate: float
    by: str


def prefix(what: str) -> str:
    """How the names of folders begin that are made in a place; `sweep` knows by it whose they are."""
    return f".sonde-{what}-{socket.gethostname()}-{os.getpid()}-"


def sweep(place: Path) -> None:
    """Removes folders that studies of this host left in a place when they were killed; the caller's own alone."""
    with suppress(OSError), Folder(place) as there:
        for name in fnmatch.filter(there.names(), f".sonde-*-{socket.gethostname()}-*-*"):
            pid = name.split("-")[-2]
            if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                with suppress(OSError), there.folder(name) as folder:
                    if folder.is_private:  # tempfile makes them 0700
                        folder.remove_all()
                        there.remove_folder(name)


def disk(place: Path, writers: int) -> list[Limit]:
    """Sequential direct writing and reading of files in a folder, for MOST_S each or until MOST_BYTES are moved.

    Raises
    ------
    EnvironmentFailure  core.cannot_write.
    """
    try:
        most = min(MOST_BYTES, shutil.disk_usage(place).free - ROOM)
        each = max(PIECE, most // writers // PIECE * PIECE)
        with tempfile.TemporaryDirectory(prefix=prefix("disk"), dir=place) as folder:
            if fio := shutil.which("fio"):
                return _fio(fio, Path(folder), writers, each)
            return _loop(Path(folder), writers, each)
    except OSError as error:
        raise EnvironmentFailure(
            "core.cannot_write",
            f"cannot measure {place} alone: {reason_not_written(error)}",
            "choose another --place, or leave this out with --no-limits",
        ) from None


def _fio(program: str, folder: Path, writers: int, each: int) -> list[Limit]:
    found = []
    for what in ("write", "read"):
        words = [
            program, "--name=sonde", f"--directory={folder}", f"--rw={what}", f"--bs={PIECE}", "--direct=1",
            f"--size={each}", f"--runtime={MOST_S:g}", f"--numjobs={writers}", "--ioengine=psync", "--group_reporting",
            "--end_fsync=1", "--output-format=json",
        ]  # fmt: skip
        ran = subprocess.run(
            words, capture_output=True, text=True, errors="replace", check=False, timeout=_FIO_S
        )
        if ran.returncode:  # as on a file system without direct I/O
            return _loop(folder, writers, each)
        try:
            told = fio_told(ran.stdout, what)
        except ValueError:  # of another version
            return _loop(folder, writers, each)
        if told.took_s < LEAST_S:
            return _loop(folder, writers, each)
        found.append(Limit(what, told.rate, FIO))
        # What was not written in time, fio would write now before it reads.
        each = max(PIECE, told.moved // writers // PIECE * PIECE)
    return found


@dataclass(frozen=True)
class Told:
    """What fio says of its jobs: B/s, B in all, and how long the longest took."""

    rate: float
    moved: int
    took_s: float


def fio_told(text: str, what: str) -> Told:
    """What `fio --output-format=json` printed; fio may say something in front. Source: fio(1), JSON output.

    Raises
    ------
    ValueError  it is something else.
    """
    try:
        jobs = [job[what] for job in json.loads(text[text.index("{") :])["jobs"]]
        return Told(
            float(sum(float(job["bw_bytes"]) for job in jobs)),
            int(sum(job["io_bytes"] for job in jobs)),
            float(max(job["runtime"] for job in jobs)) * 1e-3,
        )
    except (KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"it is not what fio says: {error}") from None


def _loop(folder: Path, writers: int, each: int) -> list[Limit]:
    found, direct = [], True
    for what in ("write", "read"):
        rate, direct = _move(folder, what, writers, each, direct)
        found.append(Limit(what, rate, LOOP if direct else CACHED))
    if not direct:  # told of both alike
        found = [Limit(limit.what, limit.rate, CACHED) for limit in found]
    return found


def _move(folder: Path, what: str, writers: int, each: int, direct: bool) -> tuple[float, bool]:
    """B/s, and whether it was direct: a file system may not know how."""
    files = [folder / f"{k}" for k in range(writers)]
    flags = os.O_RDWR | os.O_CREAT if what == "write" else os.O_RDONLY
    descriptors: list[int] = []
    try:
        try:
            descriptors += [os.open(file, flags | (os.O_DIRECT if direct else 0), 0o600) for file in files]
        except OSError as error:
            if error.errno != errno.EINVAL or not direct:
                raise
            return _move(folder, what, writers, each, False)
        if what == "read" and not direct:
            for one in descriptors:
                os.posix_fadvise(one, 0, 0, os.POSIX_FADV_DONTNEED)
        moved, faults = [0] * writers, list[OSError]()
        ready = threading.Barrier(writers + 1)

        def work(k: int) -> None:
            with mmap.mmap(-1, PIECE) as piece:  # aligned, as direct I/O wants it
                ready.wait()
                until = time.monotonic() + MOST_S
                try:
                    for at in range(0, each, PIECE):
                        if time.monotonic() > until:
                            break
                        n = (
                            os.pwrite(descriptors[k], piece, at)
                            if what == "write"
                            else os.preadv(descriptors[k], [piece], at)
                        )
                        moved[k] += n
                        if n < PIECE:
                            break
                    if what == "write":
                        os.fsync(descriptors[k])
                except OSError as error:
                    faults.append(error)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(writers)]
        for thread in threads:
            thread.start()
        ready.wait()
        began = time.monotonic()
        for thread in threads:
            thread.join()
        took = time.monotonic() - began
    finally:
        for one in descriptors:
            os.close(one)
    if faults:
        if faults[0].errno == errno.EINVAL and direct:
            return _move(folder, what, writers, each, False)
        raise faults[0]
    return sum(moved) / took, direct


def network(cluster: Cluster) -> list[Limit]:
    """Bytes a second through one connection from the first node to the second; none where there is only one.

    Raises
    ------
    EnvironmentFailure  io.no_network: no byte arrived.
    """
    if len(cluster.plan.nodes) < 2:
        return []
    address = cluster.address(1)
    python: Sequence[str] = (sys.executable, "-I", "-S", "-c")
    pipes = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.DEVNULL,
        "stdin": subprocess.DEVNULL,
        "text": True,
    }
    with cluster.popen(1, [*python, _TAKES, address], **pipes) as server:
        try:
            port = server.stdout.readline().strip() if server.stdout else ""
            cluster.run(0, [*python, _SENDS, address, port, str(MOST_S)], timeout_s=30)
            told, _ = server.communicate(timeout=30)
            taken, took = told.split()
            return [Limit("network", int(taken) / float(took), SOCKET)]
        except (ValueError, ZeroDivisionError, subprocess.TimeoutExpired, SondeError) as error:
            server.sweep()
            raise EnvironmentFailure(
                "io.no_network",
                f"no byte went from {cluster.hostname(0)} to {cluster.hostname(1)}: {error}",
                "leave the raw limits out with --no-limits",
            ) from None


def file_system(place: Path) -> str:
    """What a folder is on: "ext4 on /dev/vda". Source: proc(5), mountinfo."""
    try:
        device = os.stat(place).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        lines = kernel_lines(Path("/proc/self/mountinfo"))
    except OSError:
        return "unknown"
    return file_system_in(lines, number)


def file_system_in(lines: Sequence[str], number: str) -> str:
    """The file system of a device, "8:1", in lines of mountinfo."""
    found = "unknown"
    for line in lines:
        words = line.split(" ")
        if words[2:3] == [number] and "-" in words:
            after = words[words.index("-") + 1 :]
            found = " on ".join(after[:2])
    return found
