"""The program, started as a shell starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sonde.core.room import NAMES

SONDE = Path(sys.executable).with_name("sonde")
HEAVY = (
    "numpy",
    "scipy",
    "xarray",
    "netCDF4",
    "plotly",
    "matplotlib",
    "pandas",
    "rich",
    "jinja2",
    "difflib_none",
)


def start(*words: str, **more: object) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SONDE_CONFIG": "", "COLUMNS": "80"}
    return subprocess.run([SONDE, *words], capture_output=True, text=True, timeout=60, env=env, **more)


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom sonde.cli.entry import main\nmain(['--help'])\nprint(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = {name.partition(".")[0] for name in ran.stderr.split()}
    assert loaded & set(HEAVY) == set()
    of_rooms = tuple(f"sonde.{part}." for part in (*NAMES, "report", "data", "survey"))
    loaded = {name for name in ran.stderr.split() if name.startswith(of_rooms)}
    assert loaded == {f"sonde.{room}.room" for room in NAMES}


def test_an_error_imports_nothing_heavy():
    code = "import sys\nfrom sonde.cli.entry import main\nmain(['nonsense'])\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert {name.partition(".")[0] for name in ran.stdout.split()} & set(HEAVY) == set()


def test_the_program_exits_with_the_code():
    assert start("--version").returncode == 0
    assert start("nonsense").returncode == 2
    assert start("nonsense").stderr.startswith("error: sonde has no command 'nonsense'")


@pytest.mark.parametrize("words", [("--help",), ("--json", "net", "modes")])
def test_a_reader_that_goes_away_is_no_error(words):
    ran = subprocess.run(
        f"'{SONDE}' {' '.join(words)} | true; echo ${{PIPESTATUS[0]}} >&2",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.stderr == "0\n"


def test_a_closed_stdout_is_reported_and_not_traced():
    ran = subprocess.run(
        f"'{SONDE}' net modes --json > /dev/full", shell=True, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 3
    assert ran.stderr.startswith("error: net: standard output: no space left on device")


def test_ctrl_c_exits_130_with_one_word():
    code = (
        "import sys, time\nfrom sonde.cli import doctor, entry\n"
        "def wait(checks, here): print('ready', flush=True); time.sleep(60)\n"
        "doctor.ask = wait\nsys.exit(entry.main(['doctor']))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert err == "\ninterrupted\n"


def complete(line: str) -> list[str]:
    words = line.split(" ")
    env = {
        **os.environ,
        "_SONDE_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    ran = subprocess.run([SONDE], capture_output=True, text=True, timeout=60, env=env, check=True)
    return [item.partition(",")[2] for item in ran.stdout.split()]


def test_the_shell_completes_commands_and_options():
    assert complete("sonde d") == ["data", "doctor"]
    assert complete("sonde --js") == ["--json"]
    assert "--json" in complete("sonde doctor --j")


def test_the_completion_script_is_printed():
    env = {**os.environ, "_SONDE_COMPLETE": "bash_source"}
    ran = subprocess.run([SONDE], capture_output=True, text=True, timeout=60, env=env)
    assert ran.returncode == 0
    assert "_SONDE_COMPLETE=bash_complete" in ran.stdout


def test_json_of_a_failure_parses():
    told = json.loads(start("--json", "nonsense").stdout)
    assert told["error"]["code"] == "core.no_command"


def test_the_age_of_a_process_counts_from_its_start():
    import subprocess
    import sys
    import time

    code = "import time; time.sleep(0.3); from sonde.cli.entry import age_s; print(age_s())"
    began = time.monotonic()
    age = float(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    )
    assert 0.29 <= age <= time.monotonic() - began + 0.02  # the kernel counts in hundredths of a second


def test_what_runs_inside_another_process_begins_with_its_call(capsys):
    import time

    from sonde.core.options import Settings

    before = time.monotonic()
    assert before <= Settings().began <= time.monotonic()


GRUMBLE = """
import sys
sys.path.insert(0, sys.argv[1])
from sonde.cli import commands, entry

commands.COMMANDS["fake"] = commands.Command("fake_room", "group", "For tests.", commands.ROOMS)
sys.exit(entry.main(["fake", "fail", "grumble", *sys.argv[2:]]))
"""


def grumbles(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A command whose libraries warn about numbers and about coming removals, and log a warning."""
    return subprocess.run(
        [sys.executable, "-c", GRUMBLE, str(Path(__file__).parent), *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "SONDE_CONFIG": "", "COLUMNS": "80"} | env,
    )


def test_warnings_of_libraries_do_not_reach_a_user():
    ran = grumbles()
    assert (ran.returncode, ran.stdout) == (0, "✓ All is well.\n")
    assert ran.stderr == ""


def test_whoever_asks_for_warnings_of_libraries_has_them():
    for ran in (grumbles("--debug"), grumbles(PYTHONWARNINGS="always")):
        assert ran.returncode == 0
        assert "RuntimeWarning: divide by zero" in ran.stderr
        assert "findfont" in ran.stderr
