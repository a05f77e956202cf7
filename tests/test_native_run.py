"""tests/native/run.py: a test that fails, is missing or was not run is never counted as passed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parent / "native/run.py"

# Prints and counts as doctest does; case 3 of 5 does what $1 in the file specifies.
PROGRAM = """#!{python}
import os, sys
words = sys.argv[1:]
if "--count" in words:
    print("[doctest] unskipped test cases passing the current filters: 5")
    sys.exit()
first, last = (int(word.partition("=")[2]) for word in words[:2])
selected, failed = 5, 0
if first <= 3 <= last:
    if {what!r} == "fails":
        failed = 1
        print("=" * 79, "../../test.cpp:5:", "TEST CASE:  core: one is two", "", sep="\\n")
        print("test.cpp:7: ERROR: CHECK( 1 == 2 ) is NOT correct!")
    if {what!r} == "crashes":
        os.abort()
    if {what!r} == "leaves out":
        selected = 4
print(f"[doctest] test cases: {{selected:2}} | {{selected - failed:2}} passed | {{failed:2}} failed | 2 skipped")
sys.exit(failed)
"""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "tests").mkdir()
    return tmp_path


def put(build: Path, name: str, what: str) -> None:
    path = build / "bin" / f"sonde-test-{name}"
    path.write_text(PROGRAM.format(python=sys.executable, what=what))
    path.chmod(0o755)
    with (build / "tests/programs.txt").open("a") as listed:
        listed.write(f"sonde-test-{name}\n")


def run(build: Path, *words: str, require: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, RUN, "--build", build, "--cases", "2", *words]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={"SONDE_TEST_REQUIRE": require}
    )


def last(ran: subprocess.CompletedProcess[str]) -> str:
    return ran.stdout.splitlines()[-1]


def test_all_cases_of_all_programs_are_run(build: Path) -> None:
    put(build, "core", "")
    put(build, "bus", "")
    ran = run(build)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert last(ran).startswith("C++ tests: 10 passed, 0 failed, ")
    assert "  - sonde-test-store: its library is not built here\n" in ran.stdout
    assert last(run(build, "core")).startswith("C++ tests: 5 passed, 0 failed, ")


def test_a_failure_is_printed_whole_and_counted(build: Path) -> None:
    put(build, "core", "fails")
    ran = run(build)
    assert ran.returncode == 1
    assert "test.cpp:7: ERROR: CHECK( 1 == 2 ) is NOT correct!" in ran.stdout
    assert "--first=3 --last=4" in ran.stdout
    assert "\nFAILED test.cpp:5 core: one is two\n" in ran.stdout
    assert last(ran).startswith("C++ tests: 4 passed, 1 failed, ")


@pytest.mark.parametrize("what", ["crashes", "leaves out"])
def test_cases_that_were_not_run_are_failures(build: Path, what: str) -> None:
    put(build, "core", what)
    ran = run(build)
    assert ran.returncode == 1
    assert "of 5 cases: " in ran.stdout
    assert "\nFAILED sonde-test-core --first=3 --last=4\n" in ran.stdout
    assert " 0 failed" not in last(ran)


def test_a_program_that_is_missing_is_a_failure(build: Path) -> None:
    assert run(build).returncode == 1  # nothing was built
    put(build, "core", "")
    put(build, "io", "")
    (build / "bin/sonde-test-io").unlink()
    ran = run(build)
    assert ran.returncode == 1
    assert "sonde-test-io missing" in ran.stderr


def test_where_all_is_required_each_program_must_be_built(build: Path) -> None:
    put(build, "core", "")
    ran = run(build, require="all")
    assert ran.returncode == 1
    assert "sonde-test-store" in ran.stderr


def test_a_name_that_no_program_has_is_refused(build: Path) -> None:
    ran = run(build, "boss")
    assert ran.returncode == 2
    assert "no program is called sonde-test-boss" in ran.stderr
