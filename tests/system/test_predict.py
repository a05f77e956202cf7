"""`sonde io predict` on real programs: what it is made of. How good it is, no test on a busy machine can tell."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import io_components
from sonde.core import launch
from sonde.core.launch.mpirun import Mpi, Mpirun
from sonde_shell import Shell

pytestmark = pytest.mark.mpi

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder on another file system than the test's, which lies in memory."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("/dev/shm is not there")
    folder = Path(tempfile.mkdtemp(prefix="sonde-predict-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


def traced(shell: Shell, mpi: Mpi, name: str, *words: object, told: tuple[str, ...] = ()) -> dict[str, Any]:
    """A trace of sonde-ioload by two ranks, in the file NAME."""
    program = [str(launch.libexec() / mpi.flavour / "sonde-ioload"), *map(str, words)]
    line = Mpirun(found=mpi).command(program, (), 2, {})
    line[1:1] = told
    return shell("io", "run", "--json", "-o", name, "--", *line).expect(0).json


def layers(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["layer"]: one for one in told["layers"]}


def functions(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["function"].removesuffix("_c"): one for one in told["functions"]}


def sums_hold(told: dict[str, Any]) -> None:
    """Layers add up, whatever of them is A's, modelled or measured; intervals hold what they are of."""
    for what in ("a_s", "modelled_s", "kept_s", "measured_s"):
        values = [one[what] for one in told["layers"]]
        if None not in values:
            assert sum(values) == pytest.approx(told["total"][what], abs=1e-9)
    for one in (*told["layers"], told["total"]):
        assert one["kept_s"] <= one["modelled_s"] + 1e-9
    for one in (*told["layers"], told["total"], told["elapsed"]):
        if one["ci95_s"]:
            low, high = one["ci95_s"]
            assert 0 <= low <= one["modelled_s"] <= high


def test_romio_on_ompio(sonde_open_mpi: Shell, open_mpi: Mpi):
    romio = io_components.romio(open_mpi)
    stack = {io: ("--mca", "io", io) for io in (romio, "ompio")}
    collective = ("-a", "MPIIO", "-c", "-o", "data", "-e")
    run = traced(sonde_open_mpi, open_mpi, "a.nc", *collective, "-t", "64k", "-b", "1m", told=stack[romio])
    for size in ("16k", "256k"):
        traced(
            sonde_open_mpi,
            open_mpi,
            f"y{size}.nc",
            *collective,
            "-t",
            size,
            "-b",
            "1m",
            "-i",
            "3",
            told=stack["ompio"],
        )
    traced(sonde_open_mpi, open_mpi, "c.nc", *collective, "-t", "64k", "-b", "1m", told=stack["ompio"])
    told = sonde_open_mpi(
        "io", "predict", "a.nc", "--on", "y16k.nc", "y256k.nc", "--against", "c.nc", "--json"
    ).expect(0).json  # fmt: skip
    assert (told["model"], told["at"], told["ranks"]) == (True, "mpiio", {"a": 2, "on": [2, 2]})
    assert told["verdict"].startswith("Model: a.nc would take")
    assert "io.modelled" in {one["code"] for one in told["warnings"]}
    assert "io.other_program" not in {one["code"] for one in told["warnings"]}
    sums_hold(told)
    found = layers(told)
    assert found["romio"]["a_s"] > 0 == found["romio"]["modelled_s"]
    assert found["ompio"]["a_s"] == 0 < found["ompio"]["modelled_s"]
    assert found["ompio"]["measured_s"] > 0
    for name in ("MPI_File_write_at_all", "MPI_File_read_at_all"):
        one = functions(told)[name]
        assert (one["calls"], one["bytes"]) == (32, 2 * MIB)
        assert one["measured_B"] == [16 * KIB, 256 * KIB]
        # Of two ranks' calls one, where OMPIO was seen to have its ranks wait for each other.
        assert one["measured_calls"] in (3 * (64 + 4), 2 * 3 * (64 + 4))
        assert one["outside"] == {"calls": 0, "bytes": 0}
    assert functions(told)["MPI_File_sync"]["asked_B"] == [MIB, MIB]
    # What is beside MPI-IO is A's in both, and A's times are those of its own trace but for waiting.
    whole = sum(one["self_s"] for one in run["layers"] if one["layer"] not in ("tracer", "system"))
    assert told["total"]["a_s"] == pytest.approx(whole, rel=0.01)
    # On itself A is itself, up to what single ranks waited for each other in ways that are not modelled.
    own = (
        sonde_open_mpi("io", "predict", "a.nc", "--on", "a.nc", "--against", "a.nc", "--json").expect(0).json
    )
    sums_hold(own)
    for layer in ("mpiio", "romio", "posix"):
        assert layers(own)[layer]["modelled_s"] == pytest.approx(
            layers(own)[layer]["a_s"], rel=0.02, abs=1e-5
        )
    beyond = sonde_open_mpi("io", "predict", "a.nc", "--on", "y16k.nc", "--json").expect(0).json
    for name in ("MPI_File_write_at_all", "MPI_File_read_at_all"):
        assert functions(beyond)[name]["outside"] == {"calls": 32, "bytes": 2 * MIB}
    assert beyond["outside"]["calls"] >= 64
    shown = sonde_open_mpi("io", "predict", "a.nc", "--on", "y16k.nc", COLUMNS="80").expect(0)
    assert "Model: time in each layer itself" in shown.out
    assert all(len(line) <= 80 for line in shown.out.splitlines() if "next:" not in line)


def test_memory_on_disk(sonde_mpi: Shell, mpi: Mpi, memory: Path):
    """`-e`: what waits for the disk costs by what was written before."""
    words = ("-F", "-e", "-w", "-t", "64k")
    traced(sonde_mpi, mpi, "a.nc", *words, "-b", "1m", "-o", memory / "data")
    traced(sonde_mpi, mpi, "y.nc", *words, "-b", "256k", "-i", "4", "-o", "data")
    told = sonde_mpi("io", "predict", "a.nc", "--on", "y.nc", "--json").expect(0).json
    assert told["at"] == "posix"
    sums_hold(told)
    found = functions(told)
    name = "pwrite" if "pwrite" in found else "pwrite64"
    assert (found[name]["calls"], found[name]["asked_B"]) == (32, [64 * KIB, 64 * KIB])
    assert found[name]["outside"]["calls"] == 0
    assert (found["fsync"]["calls"], found["fsync"]["asked_B"]) == (2, [MIB, MIB])
    assert found["fsync"]["measured_B"] == [256 * KIB, 256 * KIB]
    assert found["fsync"]["outside"] == {"calls": 2, "bytes": 2 * MIB}
    assert found["fsync"]["modelled_s"] > found["fsync"]["a_s"]
    refused = sonde_mpi("io", "predict", "a.nc", "--on", "y.nc", "--at", "mpiio").expect(2)
    assert "do not both call it" in refused.said
    assert sonde_mpi.left() == []
