"""`sonde bus conformance` as a user starts it: what it tells, of what it is, and what a module that lies comes to."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from claimed import domains
from sonde_shell import Shell, finish
from watching import wait_for

pytest.importorskip("sonde._bus", reason="the bus is not built")

from sonde._bus import implementations

ROOM = Path(__file__).parents[2] / "examples/bus-module/room.cpp"
OVER = [name for name in ("cyclonedds", "fastdds") if name in implementations()]


def test_null_keeps_its_promises_and_says_what_it_cannot(sonde: Shell):
    told = sonde("bus", "conformance", "null", "--json").expect(0).json
    assert [one["subject"] for one in told["subjects"]] == ["null"]
    assert told["subjects"][0]["version"]
    for check in told["checks"]:
        assert set(check) == {"subject", "name", "passed", "message", "elapsed_s"}
        assert check["passed"]
    assert {one["message"] for one in told["unsupported"]} == {"other processes"}
    many = len(told["checks"])
    assert f"{many} of {many} checks passed" in told["verdict"]
    listed = sonde("bus", "conformance", "--list", "--json").expect(0).json["cases"]
    cases = {name.partition("   (")[0] for name in listed}
    assert {one["name"] for one in [*told["checks"], *told["unsupported"]]} <= cases


@pytest.mark.parametrize("dds", OVER)
def test_some_cases_of_a_dds(sonde: Shell, dds: str):
    ran = sonde("bus", "conformance", dds, "--case", "matching*", COLUMNS="80").expect(0)
    head, *rest = ran.out.splitlines()
    assert head.startswith(f"✓ {dds} ")
    assert "checks passed" in head
    ways = [line for line in rest if line.startswith("  ✓")]
    assert all("1 of 1" in way for way in ways)
    assert any("udp4" in way for way in ways)
    assert max(map(len, ran.out.splitlines())) <= 80
    assert sonde.left() == []


@pytest.mark.parametrize("dds", OVER)
def test_on_the_profile_that_is_named(sonde: Shell, dds: str):
    one, other = domains(2)
    (sonde.cwd / "bus.xml").write_text(
        f'<sonde-bus version="1"><profile name="a" domain="{one}"/>'
        f'<profile name="mine" domain="{other}"/></sonde-bus>'
    )
    line = ("bus", "conformance", dds, "--case", "matching*")
    told = sonde(*line, "--profile", "bus.xml#mine", "--json").expect(0).json
    assert [check["subject"] for check in told["checks"]] == [f"{dds} mine"]
    assert "name one of: a, mine" in sonde(*line, "--profile", "bus.xml").expect(2).said


def test_what_nothing_can_be_said_of_is_not_called_good(sonde: Shell):
    ran = sonde("bus", "conformance", "null", "--case", "processes*").expect(0)
    assert ran.out.startswith("! null")
    assert "it declares everything that was requested" in ran.out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nodds",), 3, "there are:"),
        (("./none.so",), 3, "cannot load the module ./none.so"),
        (("null", "--case", "nothing*"), 2, "sonde bus conformance --list"),
        (("null", "--profile", "none.xml"), 3, "none.xml"),
    ],
)
def test_what_is_not_there_is_reported(sonde: Shell, words, code, said):
    assert said in sonde("bus", "conformance", *words).expect(code).said


def test_a_module_that_breaks_a_promise_is_reported_which(sonde: Shell):
    shutil.which("g++") or pytest.skip("no g++")
    mistaken = ROOM.read_text().replace("writer.domain != reader.domain || ", "")
    assert mistaken != ROOM.read_text()
    (sonde.cwd / "mine.cpp").write_text(mistaken)
    flags = shlex.split(sonde("bus", "conformance", "--flags").expect(0).out)
    line = ["g++", "-O0", "-shared", "-fPIC", "mine.cpp", *flags, "-o", "mine.so"]
    subprocess.run(line, cwd=sonde.cwd, check=True, timeout=300)
    ran = sonde("bus", "conformance", "./mine.so", "--case", "domains*", "--json")
    (finding,) = ran.expect(1).json["findings"]
    assert finding["code"] == "bus.nonconforming"
    assert "domains: nothing goes from one to another" in finding["text"]
    assert "0 of 1 check passed" in ran.json["verdict"]
    assert finding["next"].startswith("sonde bus conformance ./mine.so --case 'domains")
    assert sonde(*shlex.split(finding["next"])[1:]).code == 1


def test_ctrl_c_ends_the_cases_too(sonde: Shell):
    started = sonde.start("bus", "conformance", *(OVER[:1] or ["null"]), "--progress", "always")
    assert wait_for(lambda: any(Path(name).name == "sonde-busconform" for name in sonde.processes().values()))
    os.killpg(started.pid, signal.SIGINT)
    finish(started).expect(130)
    assert sonde.left() == []
