"""Random programs end the same, write the same and leave the same files with the tracer as without, and the tracer
counts what strace does.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from sonde_shell import PROGRAM, Shell

SOURCE = Path(__file__).parents[1] / "data" / "io" / "random_calls.c"
CALLS = 60
# Functions of the C library that are one system call each, and its name.
CALLED = {
    **{
        name: name
        for name in ("read", "write", "readv", "writev", "fsync", "fdatasync", "close", "lseek", "ftruncate")
    },
    **{"open": "openat", "pread": "pread64", "pwrite": "pwrite64"},
}
SHORT, LONG = range(1, 5), range(1000, 1500)
long_marks = [pytest.mark.soak, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("random") / "random_calls"
    subprocess.run(["cc", "-O1", "-w", "-o", built, SOURCE, "-lpthread"], check=True)
    return built


def files(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "a.nc"
    }


def ran(folder: Path, env: dict[str, str], words: Iterable[object]) -> tuple[int, bytes, dict[str, str]]:
    """How it ended as a shell says it, what it wrote, and the files that it left."""
    folder.mkdir()
    done = subprocess.run(
        list(map(str, words)), cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120
    )
    code = 128 - done.returncode if done.returncode < 0 else done.returncode
    return code, done.stdout, files(folder)


@pytest.mark.parametrize("seeds", [SHORT, pytest.param(LONG, marks=long_marks)], ids=["some", "many"])
def test_a_random_program_is_the_same_with_the_tracer(sonde: Shell, program: Path, seeds: range) -> None:
    differ = []
    for seed in seeds:
        line = [program, seed, CALLS, "all"]
        plain = ran(sonde.cwd / f"plain{seed}", sonde.env, line)
        traced = ran(
            sonde.cwd / f"traced{seed}", sonde.env, [PROGRAM, "io", "run", "-o", "a.nc", "--", *line]
        )
        if plain != traced:
            differ.append((seed, plain, traced))
        for folder in (f"plain{seed}", f"traced{seed}"):
            shutil.rmtree(sonde.cwd / folder)
    assert not differ, f"{len(differ)} of {len(seeds)} differ: {differ[:2]}"


def straced(folder: Path, line: list[object]) -> Counter[str]:
    """How often each system call was made."""
    folder.mkdir()
    subprocess.run(
        list(
            map(
                str, ["strace", "-f", "-qq", "-o", "trace", "-e", f"trace={','.join(CALLED.values())}", *line]
            )
        ),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    text = (folder / "trace").read_text(errors="replace")
    return Counter(
        words[1].partition("(")[0]
        for row in text.splitlines()
        if len(words := row.split(None, 1)) == 2 and "(" in words[1] and not words[1].startswith("<")
    )


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace is here")
@pytest.mark.parametrize("seeds", [SHORT, pytest.param(LONG, marks=long_marks)], ids=["some", "many"])
def test_the_tracer_counts_what_strace_does(sonde: Shell, program: Path, seeds: range) -> None:
    """The loader's own calls are those of a program that does nothing."""
    nothing = straced(sonde.cwd / "nothing", [program, 1, 0, "plain"])
    differ = []
    for seed in seeds:
        line = [program, seed, CALLS, "plain"]
        strace = straced(sonde.cwd / f"s{seed}", line)
        reply = sonde("io", "run", "--json", "-o", "a.nc", "--", *line).json
        traced: Counter[str] = Counter()
        for row in reply["functions"]:
            if row["layer"] in (
                "posix",
                "system",
            ):  # a call on what is no file, as one that failed, is of the second
                traced[row["function"].removesuffix("64")] += row["calls"]
        wanted = {name: strace[call] - nothing[call] for name, call in CALLED.items()}
        got = {name: traced[name] for name in CALLED}
        if wanted != got:
            differ.append(
                (seed, {name: (wanted[name], got[name]) for name in CALLED if wanted[name] != got[name]})
            )
        shutil.rmtree(sonde.cwd / f"s{seed}")
        (sonde.cwd / "a.nc").unlink()
        for left in sonde.cwd.glob("f[0-9]"):
            left.unlink()
    assert not differ, f"{len(differ)} of {len(seeds)} differ, as (strace, traced): {differ[:3]}"
