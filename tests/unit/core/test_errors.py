"""Errors carry what the house style needs, and exit codes are those of docs/reference/cli.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from sonde.core.errors import (
    DataError,
    EnvironmentFailure,
    Exit,
    Finding,
    SondeError,
    UsageError,
    Warning,
    nearest,
)


def test_exit_codes_are_fixed():
    assert {code.name: int(code) for code in Exit} == {
        "DONE": 0,
        "FINDING": 1,
        "USAGE": 2,
        "ENVIRONMENT": 3,
        "INCOMPLETE": 4,
        "INTERNAL": 5,
        "INTERRUPTED": 130,
    }


@pytest.mark.parametrize(
    ("kind", "code"),
    [(UsageError, Exit.USAGE), (DataError, Exit.ENVIRONMENT), (EnvironmentFailure, Exit.ENVIRONMENT)],
)
def test_an_error_carries_its_four_parts_and_its_exit_code(kind, code):
    error = kind("net.peer_timeout", "what failed", "what to type", "a.run/log")
    assert isinstance(error, SondeError)
    assert (error.code, error.what, error.hint, error.log) == (
        "net.peer_timeout",
        "what failed",
        "what to type",
        "a.run/log",
    )
    assert str(error) == "what failed"
    assert error.exit == code


def test_hint_and_log_may_be_missing():
    error = UsageError("core.x", "what failed")
    assert (error.hint, error.log) == ("", "")


def test_warnings_and_findings_as_json():
    assert Warning("a.b", "seen", "do").as_json() == {"code": "a.b", "evidence": "seen", "hint": "do"}
    assert Finding("a.b", "text", {"n": 1}, "sonde x").as_json() == {
        "code": "a.b",
        "text": "text",
        "evidence": {"n": 1},
        "next": "sonde x",
    }


def test_the_nearest_known_word_is_named_and_a_far_one_is_not():
    assert nearest("buget", ["budget", "seed"]) == " (nearest: budget)"
    assert nearest("zzz", ["budget", "seed"]) == ""
    assert nearest("x", []) == ""


def test_a_command_to_copy_survives_the_shell():
    import shlex

    from sonde.core.errors import typed

    words = ["sonde", "net", "show", Path("my runs/it's $HOME.nc"), "--pair", "0,1"]
    assert shlex.split(typed(*words)) == [str(word) for word in words]
    assert typed("sonde", "net", "show", "a.nc", "--pair", "0,1") == "sonde net show a.nc --pair 0,1"
