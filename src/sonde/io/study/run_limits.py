"""Measure a place and a network alone: sequential direct writing and reading, and bytes through one connection.

These limits are the reference for a study's rates. fio measures the disk if it is on PATH, otherwise a simple loop of
our own; both use as many writers as the study has ranks, each with its own file."""

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
from sonde.core.surroundings import place_of_ranks

if TYPE_CHECKING:
    from sonde.cluster import Cluster

PIECE = 1 << 20  # B of one call
MOST_S = 1.0  # duration of writing, and of reading
MOST_BYTES = 256 << 20  # total of all writers, independent of the study: enough to measure a rate
ROOM = 64 << 20  # B that stay free
LEAST_S = 0.02  # minimum duration of fio's jobs: it counts milliseconds
LOOP, CACHED, FIO, SOCKET = "a plain loop", "a plain loop through the page cache", "fio", "one TCP connection"
_FIO_S = 60.0

# Runs in a node of a cluster: prints its port, receives the data, prints bytes and seconds.
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
    """A measured limit: "write", "read" or "network"; B/s; the tool."""

    what: str
    rate: float
    by: str


def prefix(what: str) -> str:
    """The prefix of folders that are created in a place; `sweep` identifies their owners by it."""
    return f".sonde-{what}-{socket.gethostname()}-{os.getpid()}-"


def sweep(place: Path) -> None:
    """Remove folders that killed studies of this host left in a place; only the caller's own folders."""
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
            program, "--name=sonde", f"--directory={folder.absolute()}", f"--rw={what}", f"--bs={PIECE}", "--direct=1",
            f"--size={each}", f"--runtime={MOST_S:g}", f"--numjobs={writers}", "--ioengine=psync", "--group_reporting",
            "--end_fsync=1", "--output-format=json",
        ]  # fmt: skip
        ran = subprocess.run(
            words,
            cwd=place_of_ranks(),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_FIO_S,
        )
        if ran.returncode:  # for example on a file system without direct I/O
            return _loop(folder, writers, each)
        try:
            result = parse_fio(ran.stdout, what)
        except ValueError:  # output of an unknown version
            return _loop(folder, writers, each)
        if result.took_s < LEAST_S:
            return _loop(folder, writers, each)
        found.append(Limit(what, result.rate, FIO))
        # fio would write the part that was not written in time before it reads.
        each = max(PIECE, result.moved // writers // PIECE * PIECE)
    return found


@dataclass(frozen=True)
class FioResult:
    """The results of fio's jobs: B/s, B in all, and the duration of the longest."""

    rate: float
    moved: int
    took_s: float


def parse_fio(text: str, what: str) -> FioResult:
    """Parse the output of `fio --output-format=json`; fio may print messages before it. Source: fio(1), JSON output.

    Raises
    ------
    ValueError  the text is something else.
    """
    try:
        jobs = [job[what] for job in json.loads(text[text.index("{") :])["jobs"]]
        return FioResult(
            float(sum(float(job["bw_bytes"]) for job in jobs)),
            int(sum(job["io_bytes"] for job in jobs)),
            float(max(job["runtime"] for job in jobs)) * 1e-3,
        )
    except (KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"this is not the output of fio: {error}") from None


def _loop(folder: Path, writers: int, each: int) -> list[Limit]:
    found, direct = [], True
    for what in ("write", "read"):
        rate, direct = _move(folder, what, writers, each, direct)
        found.append(Limit(what, rate, LOOP if direct else CACHED))
    if not direct:  # both limits get the same description
        found = [Limit(limit.what, limit.rate, CACHED) for limit in found]
    return found


def _move(folder: Path, what: str, writers: int, each: int, direct: bool) -> tuple[float, bool]:
    """The rate, B/s, and whether it was direct: a file system may not support that."""
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
            with mmap.mmap(-1, PIECE) as piece:  # aligned for direct I/O
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
    """The rate of one connection from the first node to the second, B/s; [] if there is only one node.

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
            printed, _ = server.communicate(timeout=30)
            received, took = printed.split()
            return [Limit("network", int(received) / float(took), SOCKET)]
        except (ValueError, ZeroDivisionError, subprocess.TimeoutExpired, SondeError) as error:
            server.sweep()
            raise EnvironmentFailure(
                "io.no_network",
                f"no data arrived from {cluster.hostname(0)} at {cluster.hostname(1)}: {error}",
                "leave the raw limits out with --no-limits",
            ) from None


def file_system(place: Path) -> str:
    """The file system of a folder: "ext4 on /dev/vda". Source: proc(5), mountinfo."""
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
