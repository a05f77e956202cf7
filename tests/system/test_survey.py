"""`sonde survey` and `sonde check`: ten lines, one report, and an honest word where nothing can run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import sonde as library
from sonde.core import dataset
from sonde_shell import Shell, shell

ROOM = {"room", "verdict", "findings", "dataset", "skipped"}
BUDGET = "30s"

# A survey takes long, so what it says to a person and in JSON is of one run: `sonde`, which also writes the JSON.
BOTH = """
import sys
from sonde.cli import console, entry

class Console(console.Console):
    def show(self, outcome):
        out = self.out
        with open("told.json", "w") as self.out:
            self._json(outcome.as_json())
        self.out = out
        return super().show(outcome)

entry.Console = Console
sys.exit(entry.main())
"""


@dataclass(frozen=True)
class Surveyed:
    """What a survey into the folder `here` came to."""

    shell: Shell
    out: str
    told: dict[str, Any]


def late(told: dict[str, Any]) -> set[str]:
    """Rooms for which those before them left no time, as they may on a busy machine: then that is what is said."""
    no_time = re.compile(r" s are left$| took all of the \d+ s$")
    return {room["room"] for room in told["rooms"] if no_time.search(room["skipped"] or "")}


def survey(made: Shell, *words: str, **env: str) -> Surveyed:
    line = [sys.executable, "-c", BOTH, "survey", "-o", "here", "--color", "never", *words]
    ran = subprocess.run(
        line,
        cwd=made.cwd,
        env=made.env | {"COLUMNS": "1000"} | env,
        capture_output=True,
        text=True,
        timeout=240,
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    return Surveyed(made, ran.stdout, json.loads((made.cwd / "told.json").read_text()))


@pytest.fixture(scope="module")
def surveyed(tmp_path_factory, mpi) -> Iterator[Surveyed]:
    """With an MPI."""
    for made in shell(tmp_path_factory.mktemp("survey"), mpi):
        yield survey(made, "--ntasks", "2", "--budget", BUDGET, "--seed", "3")


@pytest.mark.mpi
def test_survey_ends_with_few_lines_and_a_report(surveyed, typed):
    lines = [line for line in surveyed.out.splitlines() if line.strip()]
    assert lines[-1].endswith("here/report.html")  # the last thing said is where to look
    findings = next((k for k, line in enumerate(lines) if line.startswith("!") and k), len(lines) - 1)
    assert findings <= 1 + 10  # the verdict stands above
    visited = {"net", "io", "store", "bus", "power"} - late(surveyed.told)
    assert f"in {len(visited)} of 6 rooms" in lines[0], surveyed.out
    assert "net" in visited
    assert "noise: skipped:" in surveyed.out  # its share has no time for a verdict
    folder = surveyed.shell.cwd / "here"
    page = (folder / "report.html").read_text()
    assert page.lstrip().lower().startswith("<!doctype html")
    files = {"net": ["net-all_to_all.nc", "net-one_to_one.nc"]}
    made = sorted(name for room in visited for name in files.get(room, [f"{room}.nc"]))
    assert sorted(path.name for path in folder.iterdir()) == sorted([*made, "report.html"])
    typed("data", "validate", *(folder / name for name in made)).expect(0)
    for name in made:
        assert name in page
        with library.open(folder / name) as tree:
            if name != "power.nc":  # nothing is drawn there
                assert tree.attrs["seed"] == 3
            if name not in ("io.nc", "power.nc"):
                # On a machine that is busy enough the time is over before the first delay: then that is what is said.
                said = {warning.code for warning in dataset.warnings_of(tree)}
                nothing = name.startswith("net-") and "net.cells_without_data" in said
                assert tree["raw"]["n"].values.sum() > 0 or nothing
    assert surveyed.shell.left() == []


@pytest.mark.mpi
def test_the_io_study_of_a_survey_says_rates_and_where_the_time_goes(surveyed):
    if "io" in late(surveyed.told):
        return
    folder = surveyed.shell.cwd / "here"
    assert "I/O study of 1 benchmark" in (folder / "report.html").read_text()
    with library.open(folder / "io.nc") as tree:
        assert (tree.attrs["seed"], tree.attrs["kind"]) == (3, "study")
        assert tree["summary"]["runs"].values.sum() > 0
        assert (tree["summary"]["rate"].values > 0).all()
        layers = tree["summary"]["layer_name"].values.tolist()
        in_mpiio = tree["summary"]["layer_self_time"].values[0, layers.index("mpiio")]
        if tree["raw"]["run_traced"].values.any():
            assert in_mpiio > 0
        else:  # rates come first: on a busy machine the room's share of 30 s ends before a run with the tracer
            assert tree.attrs["stop_reason"] == "budget"
            assert np.isnan(in_mpiio)


@pytest.mark.mpi
def test_survey_as_json(surveyed):
    told = surveyed.told
    assert (told["verb"], told["report"]) == ("survey", "here/report.html")
    room, noise, io, store, bus, power = told["rooms"]
    assert set(room) >= ROOM
    assert [one["room"] for one in told["rooms"]] == ["net", "noise", "io", "store", "bus", "power"]
    begins = {
        "io": "ior -a MPIIO -c -t 1m -e, ",
        "store": "Object write, 4 KiB: ",
        "bus": "",
        "power": "simulated demonstration: The sum of caps stayed within the budget",
    }
    for one in (io, store, bus, power):
        assert one["findings"] == []
        if one["room"] not in late(told) and not (one is bus and one["skipped"]):
            assert one["dataset"] == [f"here/{one['room']}.nc"]
            assert one["verdict"].startswith(begins[one["room"]])
    assert "noise" in late(told) or noise["skipped"].endswith(
        "s or more: too long for 30 s together with the others"
    )
    assert room["skipped"] is None
    assert sorted(room["dataset"]) == ["here/net-all_to_all.nc", "here/net-one_to_one.nc"]


SAYS_LITTLE = {
    *("survey.blunt", "survey.busy", "survey.not_repeated", "survey.nothing_to_compare"),
    *("noise.busy_machine", "noise.blind"),
}


def expected(reply: dict) -> int:
    """The exit code of a check that reported this."""
    if all(room["skipped"] for room in reply["rooms"]):
        return 3
    codes = {warning["code"] for warning in reply["warnings"]}
    return 1 if reply["findings"] else 4 if codes & SAYS_LITTLE or not reply["complete"] else 0


@pytest.mark.mpi
def test_check_says_by_its_exit_code_whether_it_found_something_and_compares_with_an_earlier_one(sonde_mpi):
    words = ("--ntasks", "2", "--budget", "8s", "--json")
    first = sonde_mpi("check", "-o", "before", *words)
    assert first.code == expected(first.json), first.err
    assert [room["room"] for room in first.json["rooms"]] == ["net", "noise", "io", "store", "bus", "power"]
    assert "report" not in first.json
    ran = sonde_mpi("check", "--against", "before", *words)
    if "error" in ran.json:  # on a busy machine nothing, or nothing whole, may come of the first in 8 s
        assert ran.json["error"]["code"] in ("survey.no_baseline", "survey.incomplete_baseline")
        assert ran.code == 3
        assert first.code != 0
    else:
        assert ran.code == expected(ran.json), ran.err
    assert [path.name for path in sonde_mpi.cwd.iterdir()] == [
        "before"
    ]  # nothing stays where nothing is asked for
    assert sonde_mpi.left() == []


@pytest.mark.mpi
def test_a_check_against_what_is_not_there(typed):
    missing = typed("check", "--against", "nowhere", "--ntasks", "2", "--budget", "8s", "--json").expect(3)
    assert missing.json["error"]["code"] == "core.no_such_file"
    assert "there is no folder nowhere" in missing.json["error"]["what"]
    assert list(typed.cwd.iterdir()) == []


@pytest.mark.mpi
@pytest.mark.slow
def test_with_time_for_all_rooms_noise_says_how_sensitive_the_machine_is(sonde_mpi):
    words = ("--ntasks", "2", "--budget", "50s", "--seed", "3")
    told = sonde_mpi("survey", "-o", "here", *words, "--json").expect(0).json
    noise = told["rooms"][1]
    assert noise["skipped"] is None
    assert noise["dataset"] == ["here/noise.nc"]
    assert noise["verdict"].startswith("alltoall of 1 KiB: ")
    assert {finding["code"] for finding in noise["findings"]} <= {"noise.busy_machine", "noise.blind"}
    with library.open(sonde_mpi.cwd / "here" / "noise.nc") as tree:
        assert (tree.attrs["study"], tree.attrs["level"], tree.attrs["matters"]) == ("survey", 0.01, 0.01)
    page = (sonde_mpi.cwd / "here" / "report.html").read_text()
    assert "Sensitivity to noise of alltoall of 1 KiB" in page
    sonde_mpi("data", "validate", "here/noise.nc").expect(0)
    assert sonde_mpi.left() == []


NOWHERE = "/nonexistent/mpi"


@pytest.fixture(scope="module")
def without_mpi(tmp_path_factory) -> Iterator[Surveyed]:
    for made in shell(tmp_path_factory.mktemp("survey"), None):
        yield survey(made, "--budget", "15s", SONDE_MPI=NOWHERE)


class TestNoMpi:
    def test_survey_skips_rooms_and_says_why(self, without_mpi):
        told = " ".join(without_mpi.out.split())
        assert f"in {3 - len(late(without_mpi.told))} of 6 rooms" in told
        for room in ("net", "noise", "io"):
            assert f"{room}: skipped: '{NOWHERE}' is not an mpirun" in told
        assert "store Object write, 4 KiB: " in told or "store" in late(
            without_mpi.told
        )  # which needs no MPI, and has the time of the others
        assert (without_mpi.shell.cwd / "here" / "report.html").is_file()

    def test_survey_as_json(self, without_mpi):
        rooms = without_mpi.told["rooms"]
        assert [room["room"] for room in rooms] == ["net", "noise", "io", "store", "bus", "power"]
        for room in rooms[:3]:
            assert NOWHERE in room["skipped"]
            assert room["dataset"] == []
        for room in rooms[3:]:
            if room["room"] not in late(without_mpi.told):
                assert room["skipped"] is None
                assert room["dataset"] == [f"here/{room['room']}.nc"]

    def test_check_is_no_finding(self, sonde):
        ran = sonde("check", "--budget", "8s", "--json", SONDE_MPI=NOWHERE)
        assert ran.code == expected(ran.json) != 1, ran.said
        assert NOWHERE in ran.json["rooms"][0]["skipped"]
        assert "drain" not in ran.json


def test_a_folder_that_cannot_be_made(typed):
    (typed.cwd / "file").write_text("")
    ran = typed("survey", "-o", "file/here", "--budget", "5s").expect(3)
    assert "cannot create the folder file/here" in ran.said
    assert "--output" in ran.said
