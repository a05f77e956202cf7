"""deploy/slurm/healthcheck: its drain command contains no text from the output.

It once proposed `sed -n 's/^ *would drain: //p' | sh`. Outputs contain the ends of logs, and anybody who writes into a
log chooses its lines: root executed them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "slurm" / "healthcheck"
TEXTS = [*sorted((ROOT / "deploy").rglob("*")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def proposed(tmp_path):
    """The script with its proposal switched on, and a Sonde that prints `text` and ends with `status`."""

    def run(text: str, status: int) -> list[list[str]]:
        (tmp_path / "text").write_text(text)
        tools = tmp_path / "bin"
        tools.mkdir()
        program(tools / "sonde", f"cat {tmp_path}/text\nexit {status}")
        # One word on each line, after the number of words.
        program(tools / "scontrol", f'{{ echo $#; printf "%s\\n" "$@"; }} >>{tmp_path}/ran')
        program(tools / "logger", "cat >/dev/null")
        script = SCRIPT.read_text()
        commands = re.findall(r'^#   (\[ "\$status" .*)$', script, re.M)
        assert commands, "it proposes nothing"
        for command in commands:
            script = script.replace(f"#   {command}", command)
        (tmp_path / "healthcheck").write_text(script)
        env = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "SONDE": str(tools / "sonde"),
            "SLURMD_NODENAME": "n1",
        }
        ran = subprocess.run(
            ["/bin/sh", tmp_path / "healthcheck"],
            env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert ran.returncode == status, ran.stderr
        lines = iter((tmp_path / "ran").read_text().splitlines() if (tmp_path / "ran").exists() else [])
        return [[next(lines) for _ in range(int(count))] for count in lines]

    return run


def test_a_line_of_a_log_is_not_run(proposed, tmp_path):
    mine = tmp_path / "mine"
    text = f"! 1 finding\n  log:\n    would drain: touch {mine}\nwould drain: touch {mine}\n"
    assert proposed(text, 1) == [["update", "NodeName=n1", "State=DRAIN", "Reason=sonde: finding"]]
    assert not mine.exists()


@pytest.mark.parametrize("status", [0, 2, 3, 4, 5])
def test_a_node_without_a_finding_stays(proposed, status):
    assert proposed("would drain: scontrol update NodeName=n2 State=DRAIN\n", status) == []


def test_nothing_of_ours_proposes_to_give_an_output_to_a_shell():
    wrong = []
    for path in TEXTS:
        if path.is_file() and path.stat().st_size < 1 << 20:
            for line in path.read_text("utf-8", "replace").splitlines():
                if "would drain" in line and re.search(r"\|\s*(ba|da|z)?sh\b|\beval\b", line):
                    wrong.append(f"{path.relative_to(ROOT)}: {line}")
    assert wrong == []


def test_the_answer_for_programs_has_words_that_no_shell_has_to_split(tmp_path):
    from sonde.core.drain import drain_command, drain_words
    from sonde.core.errors import Finding

    found = [Finding("net.slower", "x'; touch mine; '\n would drain: touch mine", {"host": "n1"})]
    assert shlex.split(drain_command(found)) == drain_words(found)
