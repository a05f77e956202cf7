"""Checks are asked beside each other, each with its time limit; what they read of a machine never fails."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from sonde.core.diagnosis import GOOD, POOR, Answer, Check, Here, Ran, ask


def test_reading_never_fails(tmp_path):
    here = Here(tmp_path, tmp_path, {})
    assert here.read("none") == ""
    assert here.read(".") == ""
    (tmp_path / "bytes").write_bytes(b"\xff\xfe 12\n")
    assert here.number("bytes") is None
    (tmp_path / "number").write_text("-12\n")
    assert here.number("number") == -12


def test_a_program_is_run_and_ended_with_what_it_started(tmp_path):
    here = Here()
    assert here.run(["sh", "-c", "echo out; echo err >&2; exit 3"], 10) == Ran(3, "out\n", "err\n")
    assert here.run(["/no/such/program"], 1).status is None
    number = tmp_path / "pid"
    ran = here.run(["sh", "-c", f"sleep 60 & echo $! >{number}; wait"], 0.3)
    assert ran.status is None
    assert "no answer within 0.3 s" in ran.err
    state = Path(f"/proc/{number.read_text().strip()}/stat")
    until = time.monotonic() + 30
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until, "what the program started was left running"
        time.sleep(0.01)


def test_a_check_that_fails_or_does_not_answer_ends_no_other():
    gate = threading.Event()

    def fail(here: Here) -> Answer:
        raise ValueError("bad value")

    def hang(here: Here) -> Answer:
        gate.wait(30)
        return Answer("too late")

    checks = [
        Check("fail", "Fail", "g", fail, 5),
        Check("hang", "Hang", "g", hang, 0.2),
        Check("fine", "Fine", "g", lambda here: Answer("well", GOOD), 5),
    ]
    answers = ask(checks, Here())
    gate.set()
    assert answers["fail"] == Answer("the check failed: ValueError: bad value", POOR)
    assert answers["hang"] == Answer("no answer within 0.2 s", POOR)
    assert answers["fine"].text == "well"
    assert list(answers) == ["fail", "hang", "fine"]
