"""The state of a cluster: its reaper, and the files in its folder, which a lock protects."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sonde.cluster.plan import Plan
from sonde.core.errors import EnvironmentFailure, reason_not_written
from sonde.core.owned_files import NewFile, make_folder
from sonde.core.processes import signal_found, stat_fields

STATE = Path("/run/sonde-cluster")
_LOCK_S = 30.0  # how long another command may build or end the same cluster; 254 nodes need some seconds
_GRACE_S = 5.0  # between SIGTERM and SIGKILL for what runs in the nodes
_GONE_S = 30.0  # a process that waits for a device can be ended once the device answers


@dataclass(frozen=True)
class Reaper:
    """The process that keeps a cluster alive. started: in ticks since the machine's start; pid and start together are
    unique.
    """

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Reaper | None:
        """The reaper with this process id; None if no process has it, or if the process is not the first of a
        namespace.
        """
        try:
            numbers = status_field(pid, "NSpid").split()
        except OSError:
            return None
        fields = stat_fields(pid)
        if not fields or fields[0] in "ZX" or len(numbers) != 2 or numbers[1] != "1":
            return None
        return cls(pid, int(fields[19]))

    @property
    def alive(self) -> bool:
        return Reaper.of(self.pid) == self

    @property
    def proc(self) -> str:
        return f"/proc/{self.pid}"

    def inside(self) -> list[int]:
        """Process ids, in this namespace, of all processes in the cluster besides the reaper."""
        space = namespace_of(self.pid, "pid")
        others = (
            pid for pid in processes() if pid != self.pid and space and namespace_of(pid, "pid") == space
        )
        return [pid for pid in others if stat_fields(pid)[:1] not in ([], ["Z"], ["X"])]

    def end(self) -> None:
        """End the reaper and, by that, all processes inside.

        Raises
        ------
        EnvironmentFailure  cluster.will_not_end.
        """
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if not self.alive:  # checked after opening, so the descriptor is that of the checked process
                return
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            # Its descriptor can be read once the last process inside has ended.
            if not select.select([descriptor], [], [], _GONE_S)[0]:
                raise EnvironmentFailure(
                    "cluster.will_not_end",
                    f"these processes in the cluster did not end within {_GONE_S:g} s of SIGKILL: "
                    f"{', '.join(map(str, self.inside()))}",
                    "they wait for a device or a file server; end the cluster again when that answers",
                )
        finally:
            os.close(descriptor)

    def calm(self) -> None:
        """Ask all processes inside to end, by SIGTERM, and wait a while for them."""
        asked: set[int] = set()
        until_s = time.monotonic() + _GRACE_S
        while (left := self.inside()) and time.monotonic() < until_s:
            fresh = [pid for pid in left if pid not in asked]
            asked.update(fresh)
            for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process gets no other signal
                signal_found(fresh, number, self.inside)
            time.sleep(0.02)


def status_field(pid: int, name: str) -> str:
    for line in Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines():
        if line.startswith(f"{name}:"):
            return line.partition(":")[2]
    return ""


def namespace_of(pid: int | str, kind: str) -> str:
    """The namespace of a process, such as "net:[4026532456]"; "" for a process that has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return ""


def processes() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


@dataclass(frozen=True)
class Kept:
    """The state in the folder of a cluster. complete: whether its creator has recorded that it is built.

    space: the pid namespace in which the reaper has its number. In another one, as in a container or in a node of a
    cluster, the reaper's state cannot be found out.
    """

    plan: Plan
    reaper: Reaper
    complete: bool
    created_utc: str
    space: str

    @property
    def state(self) -> str:
        """ "up", "building" (or left by a killed `up`, which is known once the folder's lock is free), "gone",
        "elsewhere".
        """
        if self.space != namespace_of("self", "pid"):
            return "elsewhere"
        if not self.reaper.alive:
            return "gone"
        return "up" if self.complete else "building"


@contextmanager
def held(name: str, make: bool) -> Iterator[Path | None]:
    """The folder of a cluster, with the lock on it; None if there is no folder and `make` is False.

    A folder that is empty in the end is removed.

    Raises
    ------
    EnvironmentFailure  cluster.busy, core.cannot_write, core.folder_of_others.
    """
    folder = STATE / name
    until_s = time.monotonic() + _LOCK_S
    while True:
        try:
            if make:
                make_folder(STATE, 0o755, exist_ok=True)
                make_folder(folder, 0o711, exist_ok=True)  # whoever may read it may lock it
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # also for a folder that is just being removed
            if make and STATE.parent.is_dir():
                continue
            yield None
            return
        except OSError as error:
            raise EnvironmentFailure(
                "core.cannot_write", f"cannot make {folder}: {reason_not_written(error)}", "run it as root"
            ) from None
        if _locked(lock, folder, until_s):
            break
        os.close(lock)
    try:
        yield folder
    finally:
        for empty in (folder, STATE):
            with suppress(OSError):
                empty.rmdir()
        os.close(lock)


def _locked(lock: int, folder: Path, until_s: float) -> bool:
    """Take the lock. False: the locked folder is no longer at this path."""
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > until_s:
                raise EnvironmentFailure(
                    "cluster.busy",
                    f"another command has been building or ending the cluster '{folder.name}' for {_LOCK_S:g} s",
                    "wait for that command, or end it, and try again",
                ) from None
            time.sleep(0.05)
    try:
        return os.path.samestat(os.fstat(lock), os.stat(folder))
    except FileNotFoundError:
        return False


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file whole or not at all."""
    try:
        with NewFile(path) as new:
            with new.file() as file:
                file.write(text.encode())
            os.fchmod(new.descriptor, mode)
            new.publish()
    except OSError as error:
        raise EnvironmentFailure(
            "core.cannot_write", f"cannot write {path}: {reason_not_written(error)}", "run it as root"
        ) from None


def store(folder: Path, state: Kept) -> None:
    stored = {
        "plan": state.plan.as_json(),
        "pid": state.reaper.pid,
        "started": state.reaper.started,
        "complete": state.complete,
        "created_utc": state.created_utc,
        "space": state.space,
    }
    write(folder / "state.json", json.dumps(stored))


def kept_in(folder: Path) -> Kept | None:
    """The state in a cluster's folder; None without one, as after an `up` that was killed at once."""
    try:
        stored = json.loads((folder / "state.json").read_text())
        reaper = Reaper(int(stored["pid"]), int(stored["started"]))
        times = (str(stored["created_utc"]), str(stored["space"]))
        return Kept(Plan.from_json(stored["plan"]), reaper, bool(stored["complete"]), *times)
    except PermissionError as error:
        raise EnvironmentFailure(
            "cluster.no_permission", f"cannot read {error.filename}", "run it as root"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def remove_files(folder: Path) -> None:
    """Remove the stored files of a cluster that has ended. The folder itself is removed with its lock."""
    for entry in folder.iterdir():
        entry.unlink(missing_ok=True)


def names() -> list[str]:
    """Names of all clusters with stored state."""
    try:
        return sorted(entry.name for entry in STATE.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []
