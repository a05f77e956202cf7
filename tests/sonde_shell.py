"""`sonde` as a user starts it: another process, its exit code, what it prints, and what it leaves behind.

And `Typed`: the same command lines within this process, where no process of its own is what is tested.
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

# Where a command looks for its user's settings, and finds none. It is a real folder that goes with the tests, since
# matplotlib makes one inside for its own settings: as root also below a name that only seemed to be free.
NO_SETTINGS = tempfile.TemporaryDirectory(prefix="sonde-no-settings-")

# Never content, so that whatever ends it is what the test does.
ENDLESS = (
    *("--ntasks", "2", "--sizes", "8,1024", "--rule", "fixed:100000000", "--cap", "100000000"),
    *("--gap", "1ms", "--budget", "2min"),
)


@dataclass(frozen=True)
class Ran:
    """What one command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)

    @property
    def said(self) -> str:
        """stderr with its line breaks undone: where they are depends on the length of paths."""
        return " ".join(self.err.split())

    def expect(self, code: int) -> Ran:
        assert self.code == code, f"exit {self.code}, not {code}\n{self.out}\n{self.err}"
        assert "Traceback" not in self.err
        return self


@dataclass
class Typed:
    """A folder to work in and an environment, as of Shell; commands run in this process, which spares the start of
    an interpreter and the import of its libraries. What commands start themselves is not followed.
    """

    cwd: Path
    env: dict[str, str]
    capture: pytest.CaptureFixture[str]  # capfd: also what C libraries print

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
        """What `sonde WORDS` came to. Its process is forked from one that has Sonde's modules (fork_server.py)."""
        forked = fork_server.start([*map(str, words)], self.cwd, self.env | env)
        return finish(forked or self.start(*words, **env))

    def processes(self) -> dict[int, str]:
        """Process id → program of everything started from here that is still there."""
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
        """The mpirun and what it runs that is no rank."""
        names = ("mpirun", "mpiexec", "orterun", "prterun", "hydra")
        found = {pid: Path(name).name for pid, name in self.processes().items()}
        return sorted(pid for pid, name in found.items() if name.startswith(names))

    def left(self) -> list[str]:
        """What is still there of anything started from here, once it had time to go."""
        wait_for(lambda: not self.processes())
        wait_for(lambda: not self.files(), 8)
        return [f"{pid} {name}" for pid, name in self.processes().items()] + self.files()

    def files(self) -> list[str]:
        """Shared memory once seen in use that is still there, and what MPIs keep in the temporary folder."""
        scratch = Path(self.env["TMPDIR"])
        return sorted([*filter(os.path.exists, self.shm), *map(str, scratch.glob("*"))])


def finish(process: subprocess.Popen[str] | fork_server.Forked, timeout_s: float = 150) -> Ran:
    """Waits for a command's end, and lets nothing of it stay if it does not come."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"no end within {timeout_s} s\n{out}\n{err}")
    return Ran(process.returncode, out, err)


def environment(mpi: Mpi | None, mark: str, more: Mapping[str, str] = {}) -> dict[str, str]:
    """What a command sees: nothing of a batch job or of what the person who tests likes."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM_", "SONDE_", "OMPI_", "MPI_", "NO_COLOR", "COLUMNS"))
    }
    chosen = {"SONDE_MPI": str(mpi.mpirun)} if mpi else {}
    return kept | chosen | {"XDG_CONFIG_HOME": NO_SETTINGS.name, MARK: mark} | dict(more)


def shell(cwd: Path, mpi: Mpi | None) -> Iterator[Shell]:
    """A shell that ends what a test left running. Its TMPDIR is short: Open MPI puts sockets there."""
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
