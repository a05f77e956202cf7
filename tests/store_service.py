"""A store for tests: `sonde store serve` in another process, on a free port."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fork_server
from fork_server import Forked
from sonde_shell import PROGRAM, Ran, Shell, finish


@dataclass
class Service:
    """A server that is running. ready: its report at the start."""

    process: subprocess.Popen[str] | Forked
    ready: dict[str, Any]

    @property
    def address(self) -> str:
        return str(self.ready["listen"])

    @property
    def pid(self) -> int:
        """The process id of sonde-stored, the child."""
        return int(self.ready["pid"])

    def end(self, number: int = signal.SIGINT) -> Ran:
        """Signals `sonde store serve` to end, as Ctrl-C does."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return finish(self.process, 30)


@contextmanager
def serving(sonde: Shell, *words: object, forked: bool = True, **env: str) -> Iterator[Service]:
    """A server with these words, which runs as long as the block.

    forked: False if the server must inherit settings of this process, such as ignored signals
    """
    told = sonde.cwd / f"ready-{uuid.uuid4().hex}.json"
    line = ("store", "serve", "--listen", "127.0.0.1:0", *map(str, words), "--ready", str(told))
    process = fork_server.start(line, sonde.cwd, sonde.env | env) if forked else None
    process = process or sonde.start(*line, **env)
    try:
        until = time.monotonic() + 60
        while not told.exists():
            if process.poll() is not None or time.monotonic() > until:
                out, err = (
                    process.communicate(timeout=5) if process.poll() is not None else ("", "still starting")
                )
                pytest.fail(f"no server: exit {process.returncode}\n{out}\n{err}")
            time.sleep(0.01)
        yield Service(process, json.loads(told.read_text()))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=30)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def build_module(sonde: Shell, source: Path, name: str) -> Path:
    """A module, built as in docs/howto/store-module.md."""
    flags = sonde("store", "conformance", "--flags").expect(0).out.split()
    out = sonde.cwd / name
    compiler = shutil.which("c++") or pytest.skip("no C++ compiler")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", str(source), *flags, "-o", str(out)], check=True, timeout=200
    )
    return out


def piped(sonde: Shell, stdin: bytes, *words: object, **env: str) -> subprocess.CompletedProcess[bytes]:
    """`sonde WORDS` with bytes on its stdin, and bytes from its stdout."""
    line = [str(PROGRAM), *map(str, words)]
    child = fork_server.start(line[1:], sonde.cwd, sonde.env | env, stdin)
    if child is None:
        pytest.fail("the environment of this command needs a process of its own")
    out, err = child.communicate_bytes(120)
    assert child.returncode is not None
    return subprocess.CompletedProcess(line, child.returncode, out, err)


def plain(text: str) -> str:
    """Without line breaks and colours."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())


def there(pid: int) -> bool:
    """Whether a process is alive, and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
