"""The process that keeps a virtual cluster alive, the first of a pid namespace: all processes of the cluster end with
it.

It builds the nodes, then sleeps. The nodes have no name outside: their namespaces stay because this process holds
descriptors of them, so SIGKILL, however it comes, removes everything. run.py starts it as a file; it loads nothing but
the standard library. The protocol, one message a line:

  it      {"pid": 4711}       its process id outside, while it waits
  run.py  what to build       plan.orders
  it      {"ready": true}     or {"failed": "ip", "text": "..."}; after "ready" nodes can be entered
  run.py  keep                end of file instead: the builder has died, and the reaper ends too
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any, NoReturn

# Source: <linux/sched.h>, <linux/mount.h>.
_CLONE = {"mnt": 0x00020000, "uts": 0x04000000, "ipc": 0x08000000, "pid": 0x20000000, "net": 0x40000000}
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_SLAVE = 2, 4, 8, 4096, 16384, 1 << 19
_SHARED_MEMORY = "/dev/shm"

_libc = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """The step that failed, and its message."""


def _call(function: str, *arguments: Any) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        raise Failed(function, os.strerror(ctypes.get_errno()))


def _unshare(*kinds: str) -> None:
    _call("unshare", sum(_CLONE[kind] for kind in kinds))


def _mount(what: str, where: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (what, where, kind, data)]
    try:
        _call("mount", *encoded[:3], ctypes.c_ulong(flags), encoded[3])
    except Failed as error:
        raise Failed(f"mount of {where}", error.args[1]) from None


def _report(**message: Any) -> None:
    os.write(1, f"{json.dumps(message)}\n".encode())


def _batch(program: str, text: str, inside: tuple[str, ...] = ()) -> None:
    """Run `ip -batch` or `tc -batch` with that text as input."""
    if not text:
        return
    argv = [*inside, program, "-batch", "-"]
    ran = subprocess.run(
        argv,
        input=text,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    if ran.returncode != 0:
        raise Failed(program, ran.stderr.strip())


def _without_ipv6() -> None:
    """Turn IPv6 off for devices to come: its announcements would be traffic that nobody sent. lo exists already and has
    IPv6.
    """
    with suppress(FileNotFoundError), open("/proc/sys/net/ipv6/conf/default/disable_ipv6", "w") as setting:
        setting.write("1")


def _own(folder: str, stays: str) -> None:
    """Mount an empty folder in memory over `folder`. stays: a folder that stays visible if it is inside."""
    # GlusterFS stores its own attributes as trusted.*, which a tmpfs supports.
    arguments = ("sonde-cluster", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777")
    if os.path.commonpath((folder, stays)) != folder:
        _mount(*arguments)
        return
    descriptor = os.open(stays, os.O_PATH | os.O_DIRECTORY)
    _mount(*arguments)
    os.makedirs(stays)
    _mount(f"/proc/self/fd/{descriptor}", stays, None, _MS_BIND)
    os.close(descriptor)


def build(orders: dict[str, Any]) -> None:
    """Build everything, in this process's own namespaces and in those of the nodes."""
    kinds = orders["namespaces"]
    each = len(kinds) + 1  # and the root folder
    most = orders["first_fd"] + each * len(orders["nodes"]) + 16
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, max(most, hard)))
        except (ValueError, OSError):
            raise Failed("raising the limit of open files", f"{most} are needed, {hard} allowed") from None
    _unshare("mnt", "net")
    # Mounts in here stay in here; later mounts and unmounts of the host are seen.
    _mount("none", "/", None, _MS_REC | _MS_SLAVE)
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    _mount(orders["hosts"], "/etc/hosts", None, _MS_BIND)
    _without_ipv6()
    home = {kind: os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in kinds}
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    number = orders["first_fd"]
    for node in orders["nodes"]:
        _unshare(*kinds)
        socket.sethostname(node["hostname"])
        for folder in (_SHARED_MEMORY, *orders["private"]):
            _own(folder, orders["kept"])
        _without_ipv6()
        for found in (
            *(os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in kinds),
            os.open("/", os.O_PATH | os.O_DIRECTORY),
        ):
            os.dup2(found, number, inheritable=False)
            os.close(found)
            number += 1
        for kind in kinds:
            _call("setns", home[kind], _CLONE[kind])
        # In a chroot, the mount namespace has led out of it, to a /proc where process 1 is another process.
        os.fchdir(root)
        os.chroot(".")

    _batch("ip", orders["bridge_before"])
    for index, node in enumerate(orders["nodes"]):
        number = orders["first_fd"] + each * index + kinds.index("net")
        inside = ("nsenter", f"--net=/proc/1/fd/{number}")
        _batch("ip", node["ip"], inside)
        _batch("tc", node["tc"], inside)
    _batch("ip", orders["bridge_after"])
    _batch("tc", orders["tc"])


def main() -> NoReturn:
    os.chdir("/")
    try:
        _unshare("pid")  # for the children to come
    except Failed as error:
        _report(failed=error.args[0], text=error.args[1])
        os._exit(1)
    child = os.fork()
    if child:
        _report(pid=child)
        os._exit(0)
    line = sys.stdin.readline()
    if not line:
        os._exit(1)
    try:
        build(json.loads(line))
    except Failed as error:
        _report(failed=error.args[0], text=error.args[1])
        os._exit(1)
    except OSError as error:
        _report(failed=error.filename or "the system", text=error.strerror)
        os._exit(1)
    # Orphans in here become children of this process: with SIGCHLD ignored the kernel reaps them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _report(ready=True)
    if sys.stdin.readline() != "keep\n":
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
