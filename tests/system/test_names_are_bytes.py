"""Names are bytes: files, programs, arguments, hosts and nodes with any of them, through all that reads and writes."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import netCDF4
import numpy as np
import pytest

from fork_server import PROGRAM
from sonde.core import dataset_file
from sonde.core.printable import command_line, encodable, name_text, one_line
from sonde.net.analyse import analyse
from sonde.net.synthetic import Network
from sonde_shell import Ran, Shell, Typed

# Each with its like: what an escape of the one would be read as.
NASTY = b"n\xff \xfe\n\t\x1b[31m'\"|%,;$(x)\xe2\x80\xae\\xff"
HOSTS = [b"n\xff", rb"n\xff", b"n\xfe", b"n 1\n", b"n\x1b[31m", "n\u0085".encode(), rb"n\u0085", b"n,2"]
OBEYED = ("\x1b", "\u202e", "\x85", "\udcff", "\udcfe")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of hosts, a machine and a command line whose names hold any byte."""
    path = tmp_path_factory.mktemp("names") / "a.nc"
    raw = Network(ranks=len(HOSTS), sizes=(8, 1024), ranks_per_host=1, slow_hosts={1: 5.0}).raw(
        10, 10, seed=1
    )
    raw["host"] = ("rank", np.array([name_text(name) for name in HOSTS], object), raw["host"].attrs)
    attrs = {"schema": "net/1", "mode": "one_to_one", "stop_reason": "converged", "complete": 1}
    attrs |= {"command": command_line(["sonde", os.fsdecode(NASTY)]), "hostlist": os.fsdecode(NASTY)}
    dataset_file.write_dataset(path, raw, analyse(raw), attrs, {}, [])
    return path


def shown(ran: Ran, code: int = 0) -> Ran:
    """Nothing that a terminal obeys, nothing that is no text, no fault of Sonde's own."""
    assert ran.code == code, f"exit {ran.code}\n{ran.out}\n{ran.err}"
    for text in (ran.out, ran.err):
        assert "Traceback" not in text
        assert "internal" not in text
        assert not any(order in text for order in OBEYED)
        text.encode()
    return ran


def named(folder: Path, name: bytes, source: Path) -> str:
    path = os.fsdecode(os.fsencode(folder) + b"/" + name)
    shutil.copy(source, path)
    return os.fsdecode(name)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("net", "show"), 0),
        (("net", "check"), 1),
        (("data", "validate"), 3),  # invented, without attributes of a run
        (("report", "-o", os.fsdecode(b"p" + NASTY + b".html")), 0),
        (("data", "convert", "-o", os.fsdecode(b"p" + NASTY + b".json")), 0),
        (("data", "convert", "--to", "csv", "-o", os.fsdecode(b"p" + NASTY + b"/")), 0),
    ],
    ids=lambda words: None,
)
def test_a_dataset_of_any_name_is_read_and_what_is_made_of_it_is_named(
    typed: Typed, measured: Path, words: tuple[str, ...], code: int
):
    file = named(typed.cwd, NASTY + b".nc", measured)
    report = shown(typed(*words, file, "--json"), code).json
    shown(typed(*words, file), code)
    output = words[words.index("-o") + 1] if "-o" in words else file
    assert report.get("report", report["dataset"]).removeprefix("./") == encodable(output).rstrip("/")
    assert os.path.lexists(typed.cwd / output)


def test_hosts_whose_names_differ_in_a_byte_stay_different_hosts(typed: Typed, measured: Path):
    file = named(typed.cwd, b"a.nc", measured)
    report = shown(typed("net", "check", file, "--json"), 1).json
    assert {finding["evidence"].get("host") for finding in report["findings"]} == {name_text(HOSTS[1])}
    assert report["drain"][2] == f"NodeName={name_text(HOSTS[1])}"
    shown(typed("data", "convert", file, "--to", "csv", "-o", "all/"))
    tables = [list(csv.reader(io.StringIO(one.read_text()))) for one in (typed.cwd / "all").glob("*.csv")]
    assert all(len({len(row) for row in table}) == 1 for table in tables)


def test_history_knows_files_by_their_bytes(typed: Typed, measured: Path):
    """An index of texts cannot hold such a name; it was rebuilt over and over."""
    names = [
        NASTY + b".nc",
        b"a\xff.nc",
        b"a\xfe.nc",
        rb"a\xff.nc",
        b"http:a#mode=x[y].nc",
        b"x" * 252 + b".nc",
    ]
    for number, name in enumerate(names):
        path = typed.cwd / named(typed.cwd, name, measured)
        plain = typed.cwd / "plain.nc"
        path.rename(plain)  # netCDF's library opens no such name
        with netCDF4.Dataset(plain, "a") as file:
            file.created_utc = f"2026-11-{number + 1:02d}T12:00:00Z"  # a run of its own, and no copy
        plain.rename(path)
    for turn in range(2):
        ran = typed("data", "history", ".", "--json")
        shown(ran, ran.code)
        report = ran.json
        assert len(report["runs"]) == len(names)
        assert report["opened"] == (len(names) if turn == 0 else 0)


class TestTraced:
    """Names of files, arguments and the program itself, as the tracer, the dataset and each output have them."""

    NAMES = (
        NASTY,
        b"bad\xff",
        rb"bad\xff",
        rb"bad\x5cxff",
        b"bad\xfe",
        "n\u0085".encode(),
        rb"n\u0085",
        b"x" * 255,
    )

    def run(
        self, sonde: Shell, folder: Path, *words: bytes, **env: str
    ) -> subprocess.CompletedProcess[bytes]:
        line = [PROGRAM, "io", "run", "-o", b"t\xff\n.nc", "--", *words]
        return subprocess.run(line, cwd=folder, env=sonde.env | env, capture_output=True)

    def test_each_file_has_one_row_of_its_own_everywhere(self, sonde: Shell, typed: Typed):
        program = b"pr\xff\n\x1b[31mog"
        shutil.copy("/bin/cp", os.fsencode(typed.cwd) + b"/" + program)
        folder = typed.cwd / "to"
        folder.mkdir()
        for number, name in enumerate(self.NAMES):
            (typed.cwd / os.fsdecode(name)).write_bytes(b"x" * (1000 + number))
        ran = self.run(sonde, typed.cwd, b"./" + program, b"--", *self.NAMES, b"to")
        assert ran.returncode == 0, ran.stderr
        assert b"\x1b" not in ran.stderr
        assert rb"pr\xff\x0a\x1b[31mog spent" in b" ".join(ran.stderr.split())
        file = os.fsdecode(b"t\xff\n.nc")
        report = shown(typed("io", "show", file, "--all", "--json")).json
        sizes = {one["path"]: one["write"]["bytes"] for one in report["files"] if one["write"]["bytes"]}
        # Both folders have files of these names, so the copies are rows with their folder.
        copies = [name_text(os.fsencode(folder) + b"/" + name) for name in self.NAMES]
        assert sizes == {copy: 1000 + k for k, copy in enumerate(copies)}
        assert report["processes"][0]["program"].endswith(name_text(program))
        rows = list(csv.reader(io.StringIO(shown(typed("io", "convert", file, "--to", "csv")).out)))
        assert {len(row) for row in rows} == {len(rows[0])}
        paths = {row[rows[0].index("path")] for row in rows[1:]}
        assert {one_line(copy) for copy in copies} <= paths
        table = shown(typed("io", "show", file, "--all", COLUMNS="400")).out
        assert all(f"/{one_line(name_text(name))} " in table for name in self.NAMES)
        shown(typed("io", "convert", file, "--to", "perfetto", "-o", "p.json"))
        json.loads((typed.cwd / "p.json").read_bytes())
        shown(typed("report", file, "-o", "p.html"))
        (typed.cwd / "p.html").read_bytes().decode()

    def test_the_trace_of_a_program_that_fails_is_not_lost_to_its_name(self, sonde: Shell, typed: Typed):
        """The warning that says so holds the name."""
        program = b"pr\xff\nog"
        shutil.copy("/bin/cat", os.fsencode(typed.cwd) + b"/" + program)
        assert self.run(sonde, typed.cwd, b"./" + program, b"none\xfe").returncode == 1
        report = shown(typed("io", "show", os.fsdecode(b"t\xff\n.nc"), "--json")).json
        assert any(r"pr\xff\x0aog" in warning["evidence"] for warning in report["warnings"])

    def test_what_a_kill_left_is_recovered_with_its_names(self, sonde: Shell, typed: Typed):
        source = "import os, sys\nfor name in sys.argv[1:]: open(os.fsencode(name), 'wb').write(b'x')\n"
        source += "os.kill(os.getppid(), 9)"
        words = (b"python3", b"-c", source.encode(), *self.NAMES)
        assert self.run(sonde, typed.cwd, *words).returncode == -signal.SIGKILL
        shown(typed("data", "recover", os.fsdecode(b"t\xff\n.run")), 4)  # data is missing: it was killed
        report = shown(typed("io", "show", os.fsdecode(b"t\xff\n.nc"), "--all", "--json")).json
        paths = [one["path"] for one in report["files"] if one["write"]["bytes"] == 1]
        assert sorted(paths) == sorted(map(name_text, self.NAMES))


class TestRemovedFolder:
    """The program that is traced removes the current folder."""

    def run(self, sonde: Shell, output: Path) -> subprocess.CompletedProcess[str]:
        folder = sonde.cwd / "here"
        folder.mkdir()
        line = [PROGRAM, "io", "run", "-o", output, "--", "rm", "-r", folder]
        return subprocess.run(line, cwd=folder, env=sonde.env, capture_output=True, text=True)

    def test_the_trace_is_saved_elsewhere(self, sonde: Shell):
        ran = self.run(sonde, sonde.cwd / "a.nc")
        assert ran.returncode == 0, ran.stderr
        sonde("io", "show", "a.nc").expect(0)

    def test_a_trace_that_went_with_it_is_named(self, sonde: Shell):
        ran = self.run(sonde, Path("a.nc"))
        assert ran.returncode == 3, ran.stderr
        assert "error: io: " in ran.stderr
        assert "internal" not in ran.stderr
        assert "Traceback" not in ran.stderr


LOCALES = [
    {"LC_ALL": "C"},
    {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"LC_ALL": "xx_YY.none"},
    {"LC_ALL": "de_DE.UTF-8"},
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
]


@pytest.mark.parametrize("env", LOCALES, ids=lambda env: " ".join(f"{name}={env[name]}" for name in env))
def test_a_locale_changes_no_number_and_no_name(
    sonde: Shell, typed: Typed, measured: Path, env: dict[str, str]
):
    named(typed.cwd, NASTY + b".nc", measured)
    line = [PROGRAM, "net", "show", NASTY + b".nc"]
    encoding = env.get("PYTHONIOENCODING", "ascii" if "PYTHONUTF8" in env else "utf-8")
    ran = subprocess.run(line, cwd=typed.cwd, env=sonde.env | {"COLUMNS": "120"} | env, capture_output=True)
    assert (ran.returncode, ran.stderr) == (0, b"")
    plainly = typed("net", "show", os.fsdecode(NASTY + b".nc"), COLUMNS="120").out
    digits = re.compile(r"\d[\d.,]* ?[a-zµ]*")
    assert digits.findall(ran.stdout.decode(encoding).replace("us", "µs")) == digits.findall(plainly)
