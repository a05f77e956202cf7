"""`sonde survey` and `sonde check`: ten lines, one report, and an honest word where nothing can run."""

from __future__ import annotations

import json

import numpy as np
import pytest

import sonde as library

ROOM = {"room", "verdict", "findings", "dataset", "skipped"}


@pytest.mark.mpi
def test_survey_ends_with_few_lines_and_a_report(sonde_mpi):
    ran = sonde_mpi(
        "survey", "-o", "here", "--ntasks", "2", "--budget", "30s", "--seed", "3", COLUMNS="1000"
    ).expect(0)
    lines = [line for line in ran.out.splitlines() if line.strip()]
    assert lines[-1].endswith("here/report.html")  # the last thing said is where to look
    findings = next((k for k, line in enumerate(lines) if line.startswith("!") and k), len(lines) - 1)
    assert findings <= 1 + 10  # the verdict stands above
    assert "in 5 of 6 rooms" in lines[0], ran.out
    assert "noise: skipped:" in ran.out  # its share has no time for a verdict
    folder = sonde_mpi.cwd / "here"
    page = (folder / "report.html").read_text()
    assert page.lstrip().lower().startswith("<!doctype html")
    made = sorted(path.name for path in folder.iterdir())
    assert made == [
        "bus.nc",
        "io.nc",
        "net-all_to_all.nc",
        "net-one_to_one.nc",
        "power.nc",
        "report.html",
        "store.nc",
    ]
    for name in (made[0], made[2], made[3], made[6]):
        assert name in page
        with library.open(folder / name) as tree:
            assert tree.attrs["seed"] == 3
            assert tree["raw"]["n"].values.sum() > 0
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
    assert "I/O study of 1 benchmark" in page
    sonde_mpi("data", "validate", "here/store.nc", "here/io.nc", "here/bus.nc", "here/power.nc").expect(0)
    assert sonde_mpi.left() == []


@pytest.mark.mpi
def test_survey_as_json(sonde_mpi):
    told = sonde_mpi("survey", "-o", "here", "--ntasks", "2", "--budget", "30s", "--json").expect(0).json
    assert (told["verb"], told["report"]) == ("survey", "here/report.html")
    room, noise, io, store, bus, power = told["rooms"]
    assert set(room) >= ROOM
    assert [one["room"] for one in told["rooms"]] == ["net", "noise", "io", "store", "bus", "power"]
    assert io["dataset"] == ["here/io.nc"]
    assert io["verdict"].startswith("ior -a MPIIO -c -t 1m -e, ")
    assert io["findings"] == []
    assert store["dataset"] == ["here/store.nc"]
    assert store["verdict"].startswith("Object write, 4 KiB: ")
    assert store["findings"] == []
    assert bus["dataset"] == ["here/bus.nc"] or bus["skipped"]
    assert bus["findings"] == []
    assert power["dataset"] == ["here/power.nc"]
    assert power["verdict"].startswith("simulated demonstration: The sum of caps stayed within the budget")
    assert power["findings"] == []
    assert noise["skipped"].endswith("s or more: too long for 30 s beside the others")
    assert room["skipped"] is None
    assert sorted(room["dataset"]) == ["here/net-all_to_all.nc", "here/net-one_to_one.nc"]


@pytest.mark.mpi
def test_check_says_by_its_exit_code_whether_it_found_something(sonde_mpi):
    ran = sonde_mpi("check", "--ntasks", "2", "--budget", "8s", "--json")
    assert ran.code == (1 if ran.json["findings"] else 0), ran.err
    assert [room["room"] for room in ran.json["rooms"]] == ["net", "noise", "io", "store", "bus", "power"]
    assert "report" not in ran.json
    assert list(sonde_mpi.cwd.iterdir()) == []
    assert sonde_mpi.left() == []


@pytest.mark.mpi
def test_check_against_an_earlier_survey(sonde_mpi):
    words = ("--ntasks", "2", "--budget", "8s", "--json")
    sonde_mpi("check", "-o", "before", *words)
    ran = sonde_mpi("check", "-o", "now", "--against", "before", *words)
    blunt = any(warning["code"] == "survey.blunt" for warning in ran.json["warnings"])
    assert ran.code == (1 if ran.json["findings"] else 4 if blunt else 0), ran.err
    missing = sonde_mpi("check", "--against", "nowhere", *words).expect(3)
    assert json.loads(missing.out)["error"]["code"] == "core.no_such_file"
    assert "nowhere" in json.loads(missing.out)["error"]["what"]


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


class TestNoMpi:
    WHERE = "/nonexistent/mpi"

    def test_survey_skips_rooms_and_says_why(self, sonde):
        ran = sonde("survey", "-o", "here", "--budget", "15s", "--color", "never", SONDE_MPI=self.WHERE)
        ran.expect(0)
        told = " ".join(ran.out.split())
        assert "in 3 of 6 rooms" in told
        for room in ("net", "noise", "io"):
            assert f"{room}: skipped: '{self.WHERE}' is not an mpirun" in told
        assert "store Object write, 4 KiB: " in told  # which needs no MPI, and has the time of the others
        assert (sonde.cwd / "here" / "report.html").is_file()

    def test_survey_as_json(self, sonde):
        ran = sonde("survey", "-o", "here", "--budget", "15s", "--json", SONDE_MPI=self.WHERE).expect(0)
        net, noise, io, store, bus, power = ran.json["rooms"]
        others = (net, noise, io)
        assert [room["room"] for room in others] == ["net", "noise", "io"]
        for room in others:
            assert self.WHERE in room["skipped"]
            assert room["dataset"] == []
        assert store["skipped"] is None
        assert store["dataset"] == ["here/store.nc"]
        assert bus["skipped"] is None
        assert power["dataset"] == ["here/power.nc"]

    def test_check_is_no_finding(self, sonde):
        ran = sonde("check", "--budget", "15s", "--color", "never", SONDE_MPI=self.WHERE).expect(0)
        assert "skipped" in ran.out
        assert "would drain" not in ran.out


def test_a_folder_that_cannot_be_made(sonde):
    (sonde.cwd / "file").write_text("")
    ran = sonde("survey", "-o", "file/here", "--budget", "5s").expect(3)
    assert "cannot make the folder file/here" in ran.said
    assert "--output" in ran.said
