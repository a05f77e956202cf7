"""`sonde` without its start: a process that has loaded every module forks a child for each command.

Loading the modules for `sonde io show` takes two seconds of a processor, its work a few hundredths. Otherwise a child
is what a shell would start: it has its own session, folder, environment, arguments, standard streams and processors,
and no other descriptor. It cannot have settings that only apply when Python starts (`AT_START`), and in /proc it has
the server's command line and environment: a test that looks for the process, or is about its start or end, calls
`Shell.start`.

As a program it is the server; its standard input is the socket for its requests.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TextIO

PROGRAM = Path(sys.executable).with_name("sonde")

# Variables that Python, the loader and libraries read before the first command, and not again.
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "HDF5_", "OMP_", "OPENBLAS_", "MALLOC_")
AT_FIRST = {name: value for name, value in os.environ.items() if name.startswith(AT_START)}
REQUEST_BYTES = 1 << 17  # for one message; 200 KiB may wait in a socket
# Separate programs, and modules that read the user's settings when they are loaded.
NOT_LOADED = ("sonde.power.jobs.run_job_shim", "sonde.report.render_static")


class Forked:
    """A command that was started, as subprocess.Popen has it where both streams are pipes of text.

    pid : of the command, which leads its session and process group
    returncode : as Popen has it; None until its end was seen
    """

    def __init__(self, out: int, err: int, status: int) -> None:
        self.returncode: int | None = None
        self._whole = False  # both streams were read to their ends
        self._held = {file: bytearray() for file in (out, err, status)}
        self._out, self._err, self._status = out, err, status
        while b"\n" not in self._held[status]:
            piece = os.read(status, 64)
            if not piece:
                raise RuntimeError("the server that forks commands has ended")
            self._held[status] += piece
        self.pid = int(self._held[status].split()[0])

    @functools.cached_property
    def stderr(self) -> TextIO:
        """Its error output, to be read while it runs; `communicate` does not return the part that was read here."""
        return open(self._err, closefd=False)

    def poll(self) -> int | None:
        """`returncode`, checked now."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end of the process itself. Raises subprocess.TimeoutExpired."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = None if end is None else max(0.0, end - time.monotonic())
            if not select.select([self._status], [], [], left)[0]:
                raise subprocess.TimeoutExpired(str(PROGRAM), timeout or 0)
            piece = os.read(self._status, 64)
            self._held[self._status] += piece
            if not piece:
                self.returncode = int(self._held[self._status].split()[1])
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends it a signal, unless its end was seen."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Its output, after the command has ended and nothing can be written any more.

        Raises subprocess.TimeoutExpired; after that it may be called again.
        """
        out, err = (text.decode() for text in self.communicate_bytes(timeout))
        return out.replace("\r\n", "\n").replace("\r", "\n"), err.replace("\r\n", "\n").replace("\r", "\n")

    def communicate_bytes(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """The same as bytes."""
        end = None if timeout is None else time.monotonic() + timeout
        if not self._whole:
            with selectors.DefaultSelector() as waiting:
                for file in self._held:
                    waiting.register(file, selectors.EVENT_READ)
                while waiting.get_map():
                    left = None if end is None else end - time.monotonic()
                    if left is not None and left <= 0:
                        raise subprocess.TimeoutExpired(str(PROGRAM), timeout or 0)
                    for key, _ in waiting.select(left):
                        piece = os.read(key.fd, 1 << 16)
                        self._held[key.fd] += piece
                        if not piece:
                            waiting.unregister(key.fd)
            for file in self._held:
                os.close(file)
            self.returncode = int(self._held[self._status].split()[1])
            self._whole = True
        return bytes(self._held[self._out]), bytes(self._held[self._err])


def start(
    words: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes | None = None,
    streams: Mapping[int, str] = {},
    removed: bool = False,
) -> Forked | None:
    """Starts `sonde WORDS`; returns None if a child cannot be equivalent to a new process.

    stdin: through a pipe; None: /dev/null. streams: standard streams by number that are files instead, "" closed, "|" a
    pipe that nobody reads. removed: whether its folder, which is empty, is removed.
    """
    asked = {"words": [*words], "cwd": str(cwd), "env": dict(env), "cpus": [*os.sched_getaffinity(0)]}
    asked |= {"streams": [*streams.items()], "removed": removed}
    request = json.dumps(asked).encode()
    if not settled(env) or len(request) > REQUEST_BYTES:
        return None
    pipes = [os.pipe() for _ in range(3)]
    if stdin is None:
        given = os.open(os.devnull, os.O_RDONLY)
    else:
        given, feed = os.pipe()
        threading.Thread(target=_feed, args=(feed, stdin), daemon=True).start()
    theirs = [given, *(write for _, write in pipes)]
    socket.send_fds(_server(), [request], theirs)
    for file in theirs:
        os.close(file)
    return Forked(*(read for read, _ in pipes))


def settled(env: Mapping[str, str]) -> bool:
    """Whether a process with this environment would start as the server did: equal to this process's environment, or to
    its present one, because netCDF4 sets HDF5_PLUGIN_PATH when it is loaded, here and in the server.
    """
    names = {name for name in (*env, *AT_FIRST, *os.environ) if name.startswith(AT_START)}
    return all(env.get(name) in (AT_FIRST.get(name), os.environ.get(name)) for name in names)


def _feed(pipe: int, data: bytes) -> None:
    with os.fdopen(pipe, "wb") as file, suppress(BrokenPipeError):
        file.write(data)


@functools.cache
def _server() -> socket.socket:
    """The socket of this process's server, which ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Python warns about a fork in a process with threads, and OpenBLAS would have some.
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    actions = [
        (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    ]
    with theirs:
        os.posix_spawn(
            sys.executable, [sys.executable, "-P", __file__], env, file_actions=actions, setsid=True
        )
    return ours


# ---- the server


def load() -> None:
    """Imports all of Sonde that can be imported here, with all its dependencies."""
    import sonde

    for module in pkgutil.walk_packages(sonde.__path__, "sonde."):
        if module.name not in NOT_LOADED:
            with suppress(ImportError):  # a library that was not built or is not installed
                importlib.import_module(module.name)


def serve(requests: socket.socket) -> None:
    """Forks until no client can ask any more; returns in each child, which then runs the command."""
    running: dict[int, tuple[int, int]] = {}  # pidfd -> process id, socket for its exit status
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for file, _ in poll.poll():
            if file in running:
                poll.unregister(file)
                pid, status = running.pop(file)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with suppress(BrokenPipeError):
                    os.write(status, f"{code}\n".encode())
                os.close(status)
                os.close(file)
                continue
            message, files, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 4)
            if not message:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                requests.detach()
                become(json.loads(message), files)
                return
            for given in files[:3]:
                os.close(given)
            process = os.pidfd_open(pid)
            running[process] = pid, files[3]
            poll.register(process, select.POLLIN)


def become(request: dict, files: list[int]) -> None:
    """Turns this process into the one that a shell would have started."""
    os.setsid()
    os.write(files[3], f"{os.getpid()}\n".encode())  # only now may a signal be sent to its group
    for number in range(3):
        os.dup2(files[number], number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    for number, place in request["streams"]:
        redirect(number, place)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if [number, ""] in request["streams"]:
            setattr(sys, name, None)  # Python does the same for streams that were closed at its start
            setattr(sys, f"__{name}__", None)
            continue
        old = getattr(sys, name)  # the old object knows whether a different file is seekable
        stream = open(number, mode, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        stream.reconfigure(line_buffering=name == "stderr" or stream.isatty())
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(request["cwd"])
    if request["removed"]:
        os.rmdir(request["cwd"])
    os.sched_setaffinity(0, request["cpus"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    tempfile.tempdir = None
    sys.argv = [str(PROGRAM), *request["words"]]


def redirect(number: int, place: str) -> None:
    """As a shell does for `>file`, `>&-`, and `| true`."""
    if not place:
        os.close(number)
        return
    read, write = os.pipe() if place == "|" else (os.open(place, os.O_RDONLY), os.open(place, os.O_RDWR))
    os.dup2(write, number)
    os.close(read)
    os.close(write)


def end(code: int) -> NoReturn:
    """Ends this process as a new one would end, but without the teardown of modules, which would copy everything that
    was loaded.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    ctypes.CDLL(None).exit(code)  # runs destructors of native libraries
    raise AssertionError("exit() returned")


if __name__ == "__main__":
    from sonde.cli.entry import main

    load()
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=os.dup(0)))
    end(main())
