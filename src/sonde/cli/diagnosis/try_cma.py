"""A program that checks whether one rank can read a sibling's memory in one copy, as MPIs do within a host.

It starts two children of one parent, as ranks are. The second reads a buffer of the first with process_vm_readv (cross
memory attach). Yama's ptrace_scope, seccomp filters of containers and user namespaces may forbid it, and no file shows
it for sure: so it is tried. Prints "yes" or the system's reason.
"""

import ctypes
import os
import signal
import time


class Piece(ctypes.Structure):
    """struct iovec"""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def main() -> None:
    buffer = ctypes.create_string_buffer(b"sonde was here", 64)
    first = os.fork()
    if first == 0:
        ctypes.memmove(buffer, b"read across", 12)
        time.sleep(20)
        os._exit(0)
    second = os.fork()
    if second == 0:
        os.write(1, attempt(first, buffer).encode())
        os._exit(0)
    os.waitpid(second, 0)
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)


def attempt(pid: int, buffer: ctypes.Array) -> str:
    """Read `buffer` of another process, which has the same address there: both were forked from one parent."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "process_vm_readv"):
        return "the C library has no process_vm_readv"
    got = ctypes.create_string_buffer(64)
    here, remote = Piece(ctypes.addressof(got), 64), Piece(ctypes.addressof(buffer), 64)
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    for _ in range(100):  # until the other child has written
        n = libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(remote), 1, 0)
        if n < 0:
            return os.strerror(ctypes.get_errno()).lower()
        if got.value == b"read across":
            return "yes"
        time.sleep(0.01)
    return "the data read differ from the data written"


if __name__ == "__main__":
    main()
