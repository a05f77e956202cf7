"""sonde-ioload under a real mpirun: what is in its files, held byte by byte against a model of their layout in
numpy; what it says; what it does when a disk is full, a file cannot be used, or somebody presses Ctrl-C.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonde.core.launch.mpirun import Mpi, Mpirun
from sonde.io.study.ior_output import parse
from sonde_shell import PROGRAM, Ran, Shell, finish
from watching import wait_for

SCRIPT = PROGRAM.with_name("sonde-ioload")
STEP = 0x9E3779B97F4A7C15
KIB = 1024


class Ioload:
    """ioload(4, "-t", "1k") runs it with four ranks in a folder of the test's own."""

    def __init__(self, shell: Shell, mpi: Mpi) -> None:
        self.shell, self.mpi, self.cwd = shell, mpi, shell.cwd

    def start(self, ranks: int, *words: object, **env: str) -> subprocess.Popen[str]:
        line = Mpirun(found=self.mpi).command([str(SCRIPT), *map(str, words)], (), ranks, {})
        return subprocess.Popen(
            line,
            cwd=self.cwd,
            env=self.shell.env | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __call__(self, ranks: int, *words: object, **env: str) -> Ran:
        return finish(self.start(ranks, *words, **env))

    def results(self, ranks: int, *words: object, code: int = 0, **env: str) -> dict[str, Any]:
        """The JSON document of a run that ends with `code`."""
        document = self.cwd / "results.json"
        self(ranks, *words, "--json", document, **env).expect(code)
        return json.loads(document.read_text())

    def files(self) -> list[str]:
        return sorted(path.name for path in self.cwd.iterdir())

    def words(self, name: str) -> np.ndarray:
        return np.fromfile(self.cwd / name, np.uint64)

    def has_hdf5(self) -> bool:
        return "without HDF5" not in self(1, "--version").expect(0).out


# A disk that lies: of 40 bytes written at byte 4000 one bit of the third word is another.
FLIP = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  static ssize_t (*real)(int, const void *, size_t, off_t);
  if (!real) real = (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
  if (size != 40 || at != 4000) return real(fd, data, size, at);
  unsigned char changed[40];
  memcpy(changed, data, size);
  changed[16] ^= 1;
  return real(fd, changed, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) { return pwrite(fd, data, size, at); }
"""


@pytest.fixture
def lying_disk(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment that has it."""
    folder = tmp_path_factory.mktemp("lying")
    (folder / "flip.c").write_text(FLIP)
    line = ["cc", "-shared", "-fPIC", "-o", "flip.so", "flip.c", "-ldl"]
    subprocess.run(line, cwd=folder, check=True)
    return {"LD_PRELOAD": str(folder / "flip.so")}


@pytest.fixture
def ioload(sonde_mpi: Shell, mpi: Mpi) -> Ioload:
    return Ioload(sonde_mpi, mpi)


# ---- the model


def mix(z: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser (Steele, Lea, Flood, OOPSLA 2014)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def pattern(count: int, seed: int = 0, file: int = 0) -> np.ndarray:
    """The first `count` words of a file that is written throughout."""
    with np.errstate(over="ignore"):
        step = np.uint64(STEP)
        key = mix(mix(np.array([seed], np.uint64) + step) + np.uint64(file) + step)
        return mix(key + np.arange(1, count + 1, dtype=np.uint64) * step)


def owner(offset: int, ranks: int, block: int) -> int:
    """Whose block a byte of a shared file belongs to: segments follow each other, blocks of ranks within them."""
    return offset // block % ranks


def grid(points: int, dumps: int, seed: int = 0) -> np.ndarray:
    """BT's values as the shared file has them: dump, z, y, x, component."""
    count = dumps * points**3 * 5
    return ((pattern(count, seed) >> np.uint64(11)) * 2.0**-53).reshape(dumps, points, points, points, 5)


def part(points: int, side: int, number: int) -> slice:
    """One of `side` parts of a side of the grid; np.array_split makes the first ones longer as well."""
    piece = np.array_split(np.arange(points), side)[number]
    return slice(piece[0], piece[-1] + 1)


def own_cells(values: np.ndarray, rank: int, ranks: int) -> np.ndarray:
    """What an epio file of `rank` holds: dump after dump, cell after cell along the diagonal."""
    side, points = round(ranks**0.5), values.shape[1]
    row, column = divmod(rank, side)
    out = []
    for dump in values:
        for slab in range(side):
            x, y = (column + slab) % side, (row - slab) % side
            out.append(dump[part(points, side, slab), part(points, side, y), part(points, side, x)].ravel())
    return np.concatenate(out)


# ---- IOR's workload

LAYOUTS = [
    pytest.param(4, (), 1, id="shared"),
    pytest.param(1, ("-s", 2), 2, id="one rank"),
    pytest.param(3, ("-s", 3), 3, id="segments"),
    pytest.param(4, ("-s", 2, "-z"), 2, id="random"),
    pytest.param(2, ("-s", 2, "-e", "-g"), 2, id="fsync and barriers"),
    pytest.param(4, ("-C", "--tasks-per-node", 1), 1, id="shifted"),
    pytest.param(4, ("-a", "MPIIO", "-s", 2), 2, id="mpiio"),
    pytest.param(4, ("-a", "MPIIO", "-s", 2, "-c", "-e"), 2, id="mpiio collective"),
    pytest.param(2, ("-a", "MPIIO", "-s", 3, "-z"), 3, id="mpiio random"),
    pytest.param(2, ("-a", "MPIIO", "-s", 3, "-V"), 3, id="mpiio view"),
    pytest.param(4, ("-a", "MPIIO", "-s", 2, "-V", "-c", "-C"), 2, id="mpiio view collective"),
    pytest.param(9, ("-a", "MPIIO", "-c"), 1, id="nine ranks"),
]


@pytest.mark.parametrize(("ranks", "words", "segments"), LAYOUTS)
def test_a_shared_file_holds_what_the_model_says(ioload, mpi, ranks, words, segments):
    ran = ioload.results(ranks, *words, "-t", "8k", "-b", "24k", "-wWrRk", "-G", 5, "-o", "out")
    count = segments * ranks * 24 * KIB
    assert np.array_equal(ioload.words("out"), pattern(count // 8, seed=5))
    assert ran["mpi"] == mpi.flavour
    assert ran["tasks"] == ranks
    assert ran["wrong_words"] == 0
    assert [(row["access"], row["bytes"], row["transfers"]) for row in ran["iterations"]] == [
        ("write", count, count // 8192),
        ("read", count, count // 8192),
    ]
    assert [(check["after"], check["bytes"], check["first"]) for check in ran["checks"]] == [
        ("write", count, None),
        ("read", count, None),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("-s", 2),
        ("-s", 2, "-z"),
        ("-C", "--tasks-per-node", 1),
        ("-a", "MPIIO", "-c"),
        ("-a", "MPIIO", "-V", "-s", 2),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_a_file_per_process_holds_what_the_model_says(ioload, words):
    ran = ioload.results(3, "-F", *words, "-t", "4k", "-b", "12k", "-wWrRk", "-o", "out")
    segments = words[words.index("-s") + 1] if "-s" in words else 1
    names = [f"out.{rank:08d}" for rank in range(3)]
    assert ioload.files() == [*names, "results.json"]
    for rank, name in enumerate(names):
        assert np.array_equal(ioload.words(name), pattern(segments * 12 * KIB // 8, file=rank))
    assert ran["wrong_words"] == 0
    assert ran["iterations"][0]["bytes"] == 3 * segments * 12 * KIB


@pytest.mark.parametrize(
    "words", [(), ("-c",), ("-F",), ("-z",)], ids=lambda words: " ".join(words) or "shared"
)
def test_hdf5_holds_what_the_model_says_or_says_what_to_install(ioload, mpi, words):
    line = ("-a", "HDF5", *words, "-t", "4k", "-b", "12k", "-s", 2, "-wWrRk", "-o", "out.h5")
    if not ioload.has_hdf5():
        refused = ioload(3, *line).expect(3)
        assert f"without a parallel HDF5 for this MPI, {mpi.flavour}" in refused.said
        assert f"install libhdf5-{mpi.flavour}-dev" in refused.said
        assert refused.err.count("error: ") == 1
        return
    import h5py

    assert ioload.results(3, *line)["wrong_words"] == 0
    shared = "-F" not in words
    for rank in range(1 if shared else 3):
        data = pattern((3 if shared else 1) * 2 * 12 * KIB // 8, file=rank).view(np.uint8).reshape(2, -1)
        with h5py.File(ioload.cwd / ("out.h5" if shared else f"out.h5.{rank:08d}")) as file:
            assert sorted(file) == ["segment-00000000", "segment-00000001"]
            for segment in range(2):
                assert np.array_equal(file[f"segment-{segment:08d}"][:], data[segment])


@pytest.mark.parametrize(
    ("words", "shift"),
    [((), 0), (("-C", "--tasks-per-node", 1), 1), (("-C", "--tasks-per-node", 1, "-Q", 3), 3), (("-z",), 0)],
    ids=["own", "next", "three on", "random"],
)
def test_wrong_data_are_reported_with_their_place_by_the_rank_that_reads_there(ioload, words, shift):
    line = ("-t", "8k", "-b", "16k", "-s", 2, "-o", "out", "-k")
    ioload(4, *line, "-w").expect(0)
    place = 16 * KIB * 4 + 16 * KIB + 8 * KIB + 24  # segment 1, block of rank 1, its second transfer
    data = ioload.words("out")
    expected = int(data[place // 8])
    data[place // 8] ^= np.uint64(1)
    data[place // 8 + 1] = 0
    data.tofile(ioload.cwd / "out")
    ran = ioload.results(4, *line, *words, "-rR", code=1)
    assert ran["wrong_words"] == 2
    assert ran["options"]["shift_ranks"] == shift
    assert ran["checks"][0]["first"] == {
        "rank": (owner(place, 4, 16 * KIB) - shift) % 4,
        "file": "out",
        "offset_B": place,
        "expected": f"0x{expected:016x}",
        "found": f"0x{expected ^ 1:016x}",
    }


def test_a_file_of_another_rank_is_wrong_throughout(ioload):
    line = ("-F", "-t", "1k", "-b", "4k", "-o", "out", "-k")
    ioload(2, *line, "-w").expect(0)
    shutil.copy(ioload.cwd / "out.00000000", ioload.cwd / "out.00000001")
    ran = ioload.results(2, *line, "-R", code=1)
    assert ran["wrong_words"] == 4 * KIB // 8
    assert (ran["checks"][0]["first"]["rank"], ran["checks"][0]["first"]["offset_B"]) == (1, 0)


def test_what_another_seed_wrote_is_wrong(ioload):
    line = ("-t", "1k", "-b", "4k", "-o", "out", "-k")
    ioload(2, *line, "-w", "--seed", 1).expect(0)
    assert ioload.results(2, *line, "-R", "--seed", 1)["wrong_words"] == 0
    assert ioload.results(2, *line, "-R", "--seed", 2, code=1)["wrong_words"] == 2 * 4 * KIB // 8


def test_repetitions_have_rows_and_with_m_files_of_their_own(ioload):
    ran = ioload.results(2, "-i", 3, "-m", "-k", "-t", "1k", "-b", "2k", "-o", "out")
    assert ioload.files() == ["out.0", "out.1", "out.2", "results.json"]
    rows = ran["iterations"]
    assert [(row["iteration"], row["access"]) for row in rows] == [
        (k, a) for k in range(3) for a in ("write", "read")
    ]
    for summary in ran["summary"]:
        rates = [row["bandwidth_MiB_per_s"] for row in rows if row["access"] == summary["access"]]
        assert summary["max_MiB_per_s"] == pytest.approx(max(rates))
        assert summary["min_MiB_per_s"] == pytest.approx(min(rates))
        assert summary["mean_MiB_per_s"] == pytest.approx(np.mean(rates))
        assert summary["sd_MiB_per_s"] == pytest.approx(np.std(rates), rel=1e-6)  # divisor n, as ior has it
    for row in rows:
        assert row["bandwidth_MiB_per_s"] == pytest.approx(row["bytes"] / 2**20 / row["total_s"], rel=1e-6)
        assert row["transfers_per_s"] == pytest.approx(row["transfers"] / row["move_s"], rel=1e-6)
        assert row["total_s"] >= max(row["open_s"], row["move_s"], row["close_s"])


def test_files_are_removed_at_the_end_but_never_one_that_was_only_read(ioload):
    line = ("-t", "1k", "-b", "2k", "-o", "out")
    ioload(2, *line).expect(0)
    ioload(2, *line, "-F").expect(0)
    assert ioload.files() == []
    ioload(2, *line, "-wk").expect(0)
    ioload(2, *line, "-r").expect(0)
    assert ioload.files() == ["out"]
    ioload(2, *line).expect(0)  # writing replaces it, and then it is this run's
    assert ioload.files() == []


def test_a_file_that_is_used_as_it_is_keeps_what_lies_behind_and_stays(ioload):
    (ioload.cwd / "out").write_bytes(b"x" * 10 * KIB)
    ioload(2, "-E", "-w", "-t", "1k", "-b", "2k", "-o", "out").expect(0)
    held = (ioload.cwd / "out").read_bytes()
    assert held == pattern(4 * KIB // 8).tobytes() + b"x" * 6 * KIB


def test_a_file_with_wrong_data_stays_where_asked(ioload, lying_disk):
    for words, files in (((), []), (("-K",), ["out"])):
        ran = ioload(2, "-wW", "-t", 40, "-b", 8000, "-o", "out", *words, **lying_disk).expect(1)
        assert "1 WRONG 8-byte words; first out at byte 4016 (rank 0): expected 0x" in ran.out
        assert ioload.files() == files


def test_stonewalling_stops_and_only_what_was_written_is_read(ioload):
    for words in ((), ("-z",), ("-a", "MPIIO", "-c")):
        ran = ioload.results(2, *words, "-D", "1ms", "-t", "8", "-b", "8m", "-wWrR", "-o", "out")
        write, read = ran["iterations"]
        assert 0 <= write["bytes"] < ran["options"]["aggregate_B"]
        assert write["bytes"] % 8 == 0
        assert read["bytes"] <= write["bytes"]
        assert ran["checks"][0]["bytes"] == write["bytes"]
        assert ran["wrong_words"] == 0


def test_hints_reach_the_file_and_are_shown(ioload):
    (ioload.cwd / "hints").write_text("# of a file\nIOR_HINT__MPI__cb_nodes=1\n")
    line = ("-a", "MPIIO", "-c", "-H", "-t", "1k", "-b", "2k", "-o", "out")
    ran = ioload.results(2, *line, "-U", "hints", IOR_HINT__MPI__cb_buffer_size="65536")
    assert ran["options"]["hints"] == {"cb_buffer_size": "65536", "cb_nodes": "1"}
    if ioload.mpi.flavour == "mpich":  # ROMIO tells its hints; OMPIO keeps those that it knows to itself
        assert ran["options"]["hints_of_file"]["cb_buffer_size"] == "65536"
        assert ran["options"]["hints_of_file"]["cb_nodes"] == "1"
    (ioload.cwd / "hints").write_text("cb_nodes=1\n")
    refused = ioload(2, *line, "-U", "hints").expect(2)
    assert "line 1 of hints is not a hint" in refused.said
    assert "cannot read the hints of -U none" in ioload(2, *line, "-U", "none").expect(2).said


def test_a_shift_that_shifts_nothing_is_reported(ioload):
    assert "-C shifts by 0 of 2 ranks" in ioload(2, "-C", "-t", "1k", "-b", "1k").expect(0).said


def close_to(shown: dict[str, Any], exact: dict[str, Any], absolute: float) -> None:
    """The same words, and numbers to the digits that a table shows."""
    assert shown["access"] == exact["access"]
    numbers = {key: value for key, value in shown.items() if key != "access"}
    assert {key: exact[key] for key in numbers} == pytest.approx(numbers, rel=0.02, abs=absolute)


def test_the_tables_say_what_the_json_says(ioload):
    ran = ioload(2, "-i", 2, "-s", 2, "-t", "64k", "-b", "128k", "-o", "out", "--json", "r.json").expect(0)
    told, known = parse(ran.out), json.loads((ioload.cwd / "r.json").read_text())
    for key in (
        "program",
        "version",
        "workload",
        "command",
        "host",
        "tasks",
        "nodes",
        "tasks_per_node",
        "mpi_version",
    ):
        assert told[key] == known[key], key
    for key, value in told["options"].items():
        if key != "shift_nodes":
            assert known["options"][key] == value, key
    for row, exact in zip(told["iterations"], known["iterations"], strict=True):
        close_to(row, exact, 1e-5)
    for row, exact in zip(told["summary"], known["summary"], strict=True):
        close_to(row, exact, 0.01)
    assert "Max Write: " in ran.out
    assert "Max Read:  " in ran.out


# ---- BT-IO's workload


@pytest.mark.parametrize("ranks", [1, 4, 9])
@pytest.mark.parametrize("mode", ["full", "simple", "fortran", "epio"])
def test_bt_io_writes_what_the_model_says(ioload, mode, ranks):
    line = (
        "--bt-io",
        "--class",
        "S",
        "--mode",
        mode,
        "--niter",
        7,
        "--interval",
        5,
        "-G",
        3,
        "-k",
        "-o",
        "out",
    )
    ran = ioload.results(ranks, *line)
    values = grid(12, 2, seed=3)
    if mode == "epio":
        assert ioload.files() == [*(f"out.{rank:04d}" for rank in range(ranks)), "results.json"]
        for rank in range(ranks):
            held = np.fromfile(ioload.cwd / f"out.{rank:04d}")
            assert np.array_equal(held, own_cells(values, rank, ranks))
    else:
        assert np.array_equal(np.fromfile(ioload.cwd / "out"), values.ravel())
    assert ran["verification"] == "SUCCESSFUL"
    assert ran["bytes"] == 2 * 40 * 12**3
    assert [(dump["dump"], dump["step"]) for dump in ran["dumps"]] == [(0, 5), (1, 7)]
    assert ran["rate_MB_per_s"] == pytest.approx(ran["bytes"] / 1e6 / ran["io_s"], rel=1e-6)
    assert ran["total_s"] >= ran["io_s"] >= max(dump["write_s"] for dump in ran["dumps"])


@pytest.mark.parametrize("mode", ["full", "epio"])
def test_bt_io_with_a_side_that_the_ranks_do_not_divide(ioload, mode):
    """Class W has 24 points; 25 ranks cut them into 4 times 5 and one 4."""
    line = ("--bt-io", "--class", "W", "--mode", mode, "--niter", 1, "-k", "-o", "out")
    assert ioload.results(25, *line)["bytes"] == 552960
    values = grid(24, 1)
    if mode == "full":
        assert np.array_equal(np.fromfile(ioload.cwd / "out"), values.ravel())
    else:
        for rank in range(25):
            assert np.array_equal(np.fromfile(ioload.cwd / f"out.{rank:04d}"), own_cells(values, rank, 25))


def test_bt_io_takes_its_steps_from_the_class_or_from_a_size(ioload):
    ran = ioload.results(1, "--bt-io")
    assert (ran["options"]["steps"], len(ran["dumps"]), ran["options"]["class"]) == (60, 12, "S")
    assert ioload.files() == ["results.json"]  # btio.full.out went
    ran = ioload.results(1, "--bt-io", "--size", "1m", "--interval", 2)
    assert ran["bytes"] >= 2**20 > ran["bytes"] - 40 * 12**3
    assert ran["options"]["steps"] == 2 * len(ran["dumps"])


def test_bt_io_computes_as_long_as_it_is_told(ioload):
    ran = ioload.results(1, "--bt-io", "--niter", 4, "--interval", 2, "--compute", "20ms")
    assert ran["total_s"] >= 0.08
    assert ran["options"]["compute_s"] == 0.02


def test_bt_io_s_tables_say_what_the_json_says(ioload):
    ran = ioload(4, "--bt-io", "--mode", "simple", "--niter", 20, "--json", "r.json").expect(0)
    told, known = parse(ran.out), json.loads((ioload.cwd / "r.json").read_text())
    for key in ("program", "version", "workload", "command", "host", "tasks", "bytes", "verification"):
        assert told[key] == known[key], key
    assert {key: known["options"][key] for key in told["options"]} == told["options"]
    for key in ("total_s", "io_s", "verify_s", "rate_MB_per_s"):
        assert told[key] == pytest.approx(known[key], rel=0.02, abs=1e-5), key


def test_bt_io_fails_its_verification_when_a_disk_lies(ioload, lying_disk):
    line = ("--bt-io", "--mode", "fortran", "--niter", 1, "-o", "out")
    ran = ioload.results(4, *line, code=1, **lying_disk)
    assert (ran["verification"], ran["wrong_words"]) == ("FAILED", 1)
    assert (ran["first"]["file"], ran["first"]["offset_B"]) == ("out", 4016)
    assert parse(ioload(4, *line, **lying_disk).expect(1).out)["verification"] == "FAILED"


# ---- what goes wrong


@pytest.mark.parametrize(
    ("ranks", "words", "told"),
    [
        (4, ("-t", "10q"), "-t (--transfer) is '10q'"),
        (4, ("-t", "300k"), "not a multiple of -t"),
        (2, ("--bt-io",), "a square number of ranks for its grid, but there are 2"),
        (2, ("--bt-io",), "use mpirun -n 1 or -n 4"),
        (4, ("-b", "1t", "-t", "1g", "-s", 3000000), "2^61 B"),
    ],
)
def test_a_wrong_command_line_is_reported_once(ioload, ranks, words, told):
    ran = ioload(ranks, *words).expect(2)
    assert told in ran.said
    assert ran.err.count("error: ") == 1
    assert ran.err.count("hint: ") == 1
    assert ran.out == ""
    assert ioload.files() == []


@pytest.mark.parametrize("api", ["POSIX", "MPIIO"])
@pytest.mark.parametrize("words", [(), ("-F",)], ids=["shared", "own"])
def test_a_folder_that_is_not_there_is_told(ioload, api, words):
    ran = ioload(2, "-a", api, *words, "-o", "none/out").expect(3)
    assert "rank 0: cannot open none/out" in ran.said
    assert "No such file or directory" in ran.said
    assert "check that none and the file exist" in ran.said
    assert ran.err.count("error: ") == 1


@pytest.mark.parametrize("mode", ["full", "simple", "fortran", "epio"])
def test_bt_io_tells_of_a_folder_that_is_not_there(ioload, mode):
    ran = ioload(4, "--bt-io", "--mode", mode, "-o", "none/out").expect(3)
    assert "rank 0: cannot open none/out" in ran.said
    assert "No such file or directory" in ran.said


def test_what_is_no_file_is_not_removed(ioload):
    (ioload.cwd / "folder").mkdir()
    assert "cannot remove folder: it is a folder" in ioload(2, "-o", "folder").expect(3).said
    (ioload.cwd / "link").symlink_to("folder")
    assert "cannot remove link: it is not a regular file" in ioload(2, "-o", "link").expect(3).said
    assert "cannot remove /dev/null" in ioload(2, "-o", "/dev/null").expect(3).said
    assert ioload.files() == ["folder", "link"]


@pytest.mark.parametrize(
    "words", [("-a", "POSIX"), ("-a", "MPIIO"), ("-a", "MPIIO", "-c")], ids=lambda w: " ".join(w)
)
def test_a_file_to_read_that_is_missing_or_short_is_reported(ioload, words):
    line = (*words, "-r", "-t", "4k", "-b", "8k", "-o", "out")
    ran = ioload(2, *line).expect(3)
    assert "cannot open out: No such file or directory" in ran.said
    (ioload.cwd / "out").write_bytes(bytes(10 * KIB))
    ran = ioload(2, *line).expect(3)
    assert "rank 1: cannot read out" in ran.said
    assert ioload.files() == ["out"]


def test_results_that_cannot_be_written_are_reported(ioload):
    ran = ioload(2, "-t", "1k", "-b", "1k", "--json", "none/r.json").expect(3)
    assert "cannot write none/r.json: No such file or directory" in ran.said


@contextmanager
def small_disk(folder: Path, *options: str) -> Iterator[Path]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


@pytest.mark.root
@pytest.mark.parametrize(
    "words",
    [
        ("-a", "POSIX"),
        ("-a", "POSIX", "-F"),
        ("-a", "MPIIO"),
        ("-a", "MPIIO", "-c"),
        ("-a", "MPIIO", "-F"),
        ("-a", "HDF5"),
        ("-a", "HDF5", "-c"),
        ("--bt-io", "--mode", "full"),
        ("--bt-io", "--mode", "simple"),
        ("--bt-io", "--mode", "fortran"),
        ("--bt-io", "--mode", "epio"),
    ],
    ids=lambda words: " ".join(words),
)
def test_a_full_disk_is_reported_and_nothing_hangs_or_stays(ioload, words):
    if "HDF5" in words and not ioload.has_hdf5():
        assert "without a parallel HDF5" in ioload(4, *words).expect(3).said
        return
    with small_disk(ioload.cwd / "disk", "size=2m") as disk:
        amount = ("--size", "6m") if "--bt-io" in words else ("-t", "64k", "-b", "2m")
        ran = ioload(4, *words, *amount, "-o", disk / "out").expect(3)
        assert "No space left on device" in ran.said
        assert f"{disk}/out" in ran.said
        assert "rank " in ran.said
        assert "free some space in" in ran.said
        assert ran.err.count("error: ") == 1
        assert list(disk.iterdir()) == []
    assert ioload.shell.left() == []


@pytest.mark.root
@pytest.mark.parametrize("api", ["POSIX", "MPIIO"])
def test_a_disk_that_is_read_only_is_reported(ioload, api):
    with small_disk(ioload.cwd / "disk", "size=1m", "ro") as disk:
        ran = ioload(2, "-a", api, "-o", disk / "out").expect(3)
        assert "cannot open" in ran.said
        assert "Read-only file system" in ran.said


@pytest.mark.parametrize(
    "words", [(), ("-F",), ("-a", "MPIIO"), ("-k",)], ids=lambda words: " ".join(words) or "POSIX"
)
def test_ctrl_c_removes_what_was_being_written_but_with_k(ioload, words):
    process = ioload.start(2, *words, "-w", "-t", 8, "-b", "1g", "-o", "out")
    try:
        assert wait_for(lambda: any(path.stat().st_size > 0 for path in ioload.cwd.glob("out*")), 30)
        process.send_signal(signal.SIGINT)
        ran = finish(process, 60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert ran.code != 0 or ioload.mpi.flavour == "mpich"  # whose mpiexec may end with 0 then
    assert wait_for(lambda: not ioload.shell.processes(), 20)
    assert (ioload.files() == ["out"]) if "-k" in words else (ioload.files() == [])


# ---- the script on PATH


def test_help_and_version_are_reported_once(ioload):
    ran = ioload(3, "--help").expect(0)
    assert ran.out.count("Usage: mpirun -n N sonde-ioload") == 1
    ran = ioload(3, "--version").expect(0)
    assert ran.out.count("sonde-ioload ") == 1


@pytest.mark.hardware("more ranks than cores are too many where there are very many cores")
def test_more_ranks_than_cores_are_warned_of(ioload):
    cores = len(os.sched_getaffinity(0))
    if cores > 32:
        pytest.skip(f"{cores} cores")
    assert "there are more ranks than cores" in ioload(cores + 1, "-t", "1k", "-b", "1k").expect(0).said
    assert "there are more ranks" not in ioload(1, "-t", "1k", "-b", "1k").expect(0).said


def alone(*words: str, script: Path = SCRIPT, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "SONDE_", "HYDRA", "HYDI"))
    }
    return subprocess.run(
        [str(script), *words], env=kept | env, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def fake_tree(tmp_path: Path) -> Callable[..., Path]:
    """A copy of the script beside programs that say which one they are."""

    def make(*flavours: str) -> Path:
        script = tmp_path / "bin" / "sonde-ioload"
        script.parent.mkdir()
        shutil.copy(SCRIPT, script)
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        for flavour in flavours:
            program = tmp_path / "lib" / python / "site-packages/sonde/libexec" / flavour / "sonde-ioload"
            program.parent.mkdir(parents=True)
            program.write_text(f'#!/bin/sh\necho {flavour} "$@"\n')
            program.chmod(0o755)
        return script

    return make


@pytest.mark.parametrize(
    ("env", "flavour"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "0"}, "openmpi"),
        ({"PMI_SIZE": "4", "PMI_RANK": "0"}, "mpich"),
        ({"PMI_FD": "7"}, "mpich"),
        ({"PMIX_RANK": "0"}, "openmpi"),
        ({"SONDE_MPI": "mpich", "OMPI_COMM_WORLD_SIZE": "4"}, "mpich"),
        ({"SONDE_MPI": "/usr/bin/mpirun", "OMPI_COMM_WORLD_SIZE": "4"}, "openmpi"),
    ],
)
def test_the_script_takes_the_mpi_that_started_it(fake_tree, env, flavour):
    ran = alone("-t", "a b", script=fake_tree("openmpi", "mpich"), **env)
    assert (ran.returncode, ran.stdout) == (0, f"{flavour} -t a b\n")


def test_without_an_mpirun_the_script_takes_what_was_built(fake_tree, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("readlink", "dirname"):
        (tools / name).symlink_to(str(shutil.which(name)))
    ran = alone("-w", script=fake_tree("mpich"), PATH=str(tools))
    assert (ran.returncode, ran.stdout) == (0, "mpich -w\n")


def test_the_script_works_by_a_link(fake_tree, tmp_path):
    link = tmp_path / "elsewhere"
    link.symlink_to(fake_tree("openmpi"))
    assert alone(script=link, OMPI_COMM_WORLD_SIZE="1").stdout == "openmpi\n"


def test_an_mpi_that_it_was_not_built_for_is_reported_once(fake_tree):
    script = fake_tree("mpich")
    ran = alone(script=script, OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_RANK="0")
    assert ran.returncode == 3
    assert "was not built for the MPI that started it, openmpi" in ran.stderr
    assert "hint: " in ran.stderr
    ran = alone(script=script, OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_RANK="1")
    assert (ran.returncode, ran.stderr) == (3, "")


@pytest.mark.mpi
def test_it_runs_alone_without_mpirun(tmp_path):
    ran = alone(
        "-t", "1k", "-b", "2k", "-wWrR", "-o", str(tmp_path / "out"), "--json", str(tmp_path / "r.json")
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads((tmp_path / "r.json").read_text())["tasks"] == 1


def test_the_page_has_every_option_and_no_other():
    page = (Path(__file__).parents[2] / "docs/reference/ioload.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `-")]
    described = {name for row in rows for name in re.findall(r"`(?:-\w, )?(--[\w-]+)", row.split("|")[1])}
    offered = set(re.findall(r"^  (?:-\w,|   ) (--[\w-]+)", alone("--help").stdout, re.M))
    assert len(offered) > 30
    assert described == offered
