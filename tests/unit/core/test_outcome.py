"""What a command came to, as JSON."""

from __future__ import annotations

import pytest

from sonde.core.errors import Exit, Finding, Warning
from sonde.core.outcome import Outcome

KEYS = ["room", "verb", "schema", "dataset", "complete", "verdict", "findings", "warnings"]


def test_the_keys_that_every_command_has_come_first_and_values_follow():
    told = Outcome("net", "run", values={"cells": 3, "converged": 2}).as_json()
    assert list(told) == [*KEYS, "cells", "converged"]
    assert (told["schema"], told["dataset"], told["complete"]) == (None, None, True)


def test_findings_and_warnings_are_typed():
    outcome = Outcome("net", "check", findings=[Finding("a.b", "t")], warnings=[Warning("c.d", "e")])
    told = outcome.as_json()
    assert told["findings"] == [{"code": "a.b", "text": "t", "evidence": {}, "next": ""}]
    assert told["warnings"] == [{"code": "c.d", "evidence": "e", "hint": ""}]


def test_an_outcome_is_done_unless_it_says_otherwise():
    assert Outcome("net", "run").exit == Exit.DONE


@pytest.mark.parametrize("key", ["tables", "lines", "document", "exit"])
def test_what_is_only_for_a_person_is_not_in_json(key):
    assert key not in Outcome("net", "run", document="x", lines=["y"]).as_json()


def test_an_interruption_stands_before_all_else() -> None:
    from pathlib import Path

    from sonde.core.dataset import INTERRUPTED

    outcome = Outcome("lab", "run", "2 cells", warnings=[INTERRUPTED, Warning("lab.other", "", "")])
    outcome.tell_interrupted([Path("a.nc"), Path("b.nc")])
    assert (outcome.exit, outcome.verdict) == (Exit.INTERRUPTED, "interrupted: 2 cells")
    assert [warning.code for warning in outcome.warnings] == ["lab.interrupted", "lab.other"]
    assert "a.nc, b.nc" in outcome.warnings[0].evidence


def test_a_dry_run_shows_of_a_script_its_first_line():
    script = "\nset -e\nmkdir 'a b'\nexec agent\n"
    told = Outcome.dry_run("lab", "run", [], [["env", "agent", script, "-n 2"]], {})
    assert told.lines == [
        "It would start:",
        "  env agent 'set -e …' '-n 2'",
        "Scripts are cut short at …; --json has the whole command.",
    ]


def test_a_dry_run_shows_a_plain_command_whole():
    told = Outcome.dry_run("lab", "run", [], [["env", "a b", ""]], {})
    assert told.lines == ["It would start:", "  env 'a b' ''"]
