"""`sonde` as a user starts it: a separate process, its exit code, its output, and its remains.

Also `Typed`: the same command lines within this process, for tests that are not about the process.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import fork_server
from fork_server import PROGRAM
from sonde.cli.entry import main
from sonde.core.launch.mpirun import Mpi
from watching import wait_for

MARK = "SONDE_TEST_STARTED_BY"

# The folder in which a command looks for its user's settings, and finds none. It is a real folder that is removed with
# the tests, because matplotlib makes a folder for its own settings inside: as root even below a name that only seemed
# to be free.
NO_SETTINGS = tempfile.TemporaryDirectory(prefix="sonde-no-settings-")

# Never converges, so the test must end it.
ENDLESS = (
    *("--ntasks", "2", "--sizes", "8,1024", "--rule", "fixed:100000000", "--cap", "100000000"),
    *("--gap", "1ms", "--budget", "2min"),
)


@dataclass(frozen=True)
class Ran:
    """The result of one command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)

    @property
    def said(self) -> str:
        """stderr without line breaks: their positions depend on the length of paths."""
        return " ".join(self.err.split())

    def expect(self, code: int) -> Ran:
        assert self.code == code, f"exit {self.code}, not {code}\n{self.out}\n{self.err}"
        assert "Traceback" not in self.err
        return self


@dataclass
class Typed:
    """A folder to work in and an environment, as in Shell. Commands run in this process, which saves the start of an
    interpreter and the import of its libraries. Processes that commands start are not tracked.
    """

    cwd: Path
    env: dict[str, str]
    capture: pytest.CaptureFixture[str]  # capfd: it also captures the output of C libraries

    def __call__(self, *words: object, **env: str) -> Ran:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.cwd)
            for name in set(os.environ) - {"PYTEST_CURRENT_TEST"}:
                patch.delenv(name)
            for name, value in (self.env | env).items():
                patch.setenv(name, value)
            self.capture.readouterr()
            code = main(list(map(str, words)))
            out, err = self.capture.readouterr()
        return Ran(code, out, err)


@dataclass
class Shell:
    """A folder to work in and an environment. Every process started from it carries `mark`."""

    cwd: Path
    env: dict[str, str]
    mark: str
    shm: set[str] = field(default_factory=set)  # shared memory seen in use

    def start(self, *words: object, **env: str) -> subprocess.Popen[str]:
        """Starts `sonde WORDS` in a session of its own, as a terminal would."""
        return subprocess.Popen(
            [str(PROGRAM), *map(str, words)],
            cwd=self.cwd,
            env=self.env | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __call__(self, *words: object, **env: str) -> Ran:
        """The result of `sonde WORDS`. It is forked from a process with Sonde's modules (fork_server.py)."""
        forked = fork_server.start([*map(str, words)], self.cwd, self.env | env)
        return finish(forked or self.start(*words, **env))

    def processes(self) -> dict[int, str]:
        """Process id → program, for everything started from here that is still running."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with suppress(OSError):
                if f"{MARK}={self.mark}".encode() not in (entry / "environ").read_bytes().split(b"\0"):
                    continue
                found[int(entry.name)] = (entry / "cmdline").read_bytes().split(b"\0")[0].decode()
                for line in (entry / "maps").read_text().splitlines():
                    if "/dev/shm/" in line and "(deleted)" not in line:
                        self.shm.add(line[line.index("/dev/shm/") :])
        return found

    def ranks(self) -> list[int]:
        return sorted(pid for pid, name in self.processes().items() if Path(name).name == "sonde-net")

    def launchers(self) -> list[int]:
        """The mpirun and its helpers, without ranks."""
        names = ("mpirun", "mpiexec", "orterun", "prterun", "hydra")
        found = {pid: Path(name).name for pid, name in self.processes().items()}
        return sorted(pid for pid, name in found.items() if name.startswith(names))

    def left(self) -> list[str]:
        """All processes started from here that still exist after they had time to end."""
        wait_for(lambda: not self.processes())
        wait_for(lambda: not self.files(), 8)
        return [f"{pid} {name}" for pid, name in self.processes().items()] + self.files()

    def files(self) -> list[str]:
        """Shared memory seen in use that still exists, and files of MPIs in the temporary folder."""
        scratch = Path(self.env["TMPDIR"])
        return sorted([*filter(os.path.exists, self.shm), *map(str, scratch.glob("*"))])


def finish(process: subprocess.Popen[str] | fork_server.Forked, timeout_s: float = 150) -> Ran:
    """Waits for a command's end; if it does not end, kills everything of it."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"no end within {timeout_s} s\n{out}\n{err}")
    return Ran(process.returncode, out, err)


def environment(mpi: Mpi | None, mark: str, more: Mapping[str, str] = {}) -> dict[str, str]:
    """The environment of a command: without variables of a batch job or the tester's preferences."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM_", "SONDE_", "OMPI_", "MPI_", "NO_COLOR", "COLUMNS"))
    }
    chosen = {"SONDE_MPI": str(mpi.mpirun)} if mpi else {}
    return kept | chosen | {"XDG_CONFIG_HOME": NO_SETTINGS.name, MARK: mark} | dict(more)


def shell(cwd: Path, mpi: Mpi | None) -> Iterator[Shell]:
    """A shell that ends all processes that a test left running. Its TMPDIR is short: Open MPI puts sockets there."""
    mark = uuid.uuid4().hex
    scratch = tempfile.mkdtemp(prefix="st-")
    made = Shell(cwd, environment(mpi, mark, {"TMPDIR": scratch}), mark)
    try:
        yield made
    finally:
        for pid in made.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(scratch, ignore_errors=True)
