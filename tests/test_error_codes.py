"""The kind of each error that the native code makes is in one table, native/core/error_kind.cpp."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sonde import _core
from sonde.core.errors import DataError, EnvironmentFailure, UsageError, from_code
from sonde.core.room import NAMES
from sonde.power.jobs import jobs

NATIVE = Path(__file__).resolve().parent.parent / "native"
TABLE = NATIVE / "core/error_kind.cpp"
# An Error is written {"room.word", what, hint}, its code perhaps chosen between two.
CODE = re.compile(r'[{?:]\s*"([a-z]+\.[a-z_0-9]*[a-z0-9])"\s*[,:]')
PARTS = {*NAMES, "core", "bridge", "ioload", "munge", "service"}
"""The first words of codes. Events and files ("kv.get", "libaio.so") are written in the same way, and have others."""


def codes_of_sources() -> dict[str, str]:
    """The codes of errors that the native sources make, each with a file that does."""
    found: dict[str, str] = {}
    for path in sorted(NATIVE.rglob("*.[ch]pp")):
        if path != TABLE and not {"fuzz", "conformance"} & set(path.parts):
            for code in CODE.findall(path.read_text()):
                if code.partition(".")[0] in PARTS:
                    found.setdefault(code, str(path.relative_to(NATIVE)))
    return found


def test_each_code_of_the_native_sources_has_a_kind():
    codes = codes_of_sources()
    assert len(codes) > 150, "the search finds errors"
    unlisted = {code: file for code, file in codes.items() if _core.error_kind(code) is None}
    assert not unlisted, "list each code in native/core/error_kind.cpp, under its kind"


def test_each_code_is_listed_once():
    codes = re.findall(r'"([a-z]+\.[a-z_0-9]+)"', TABLE.read_text())
    assert sorted(codes) == sorted(set(codes))


def test_each_refusal_of_a_job_service_has_a_kind():
    """Services written in Python refuse with these words."""
    unlisted = [word for word in jobs.CODES.values() if _core.error_kind(f"power.{word}") is None]
    assert not unlisted, "list each in native/core/error_kind.cpp, under its kind"


@pytest.mark.parametrize(
    ("code", "kind", "raised"),
    [
        ("core.bad_size", "usage", UsageError),
        ("core.not_finite", "data", DataError),
        ("store.not_found", "not_found", EnvironmentFailure),
        ("bus.timed_out", "timed_out", EnvironmentFailure),
        ("power.hardware_failed", "environment", EnvironmentFailure),
        ("power.of_a_newer_version", None, EnvironmentFailure),
    ],
)
def test_the_class_of_an_exception_follows_from_the_kind(code, kind, raised):
    assert _core.error_kind(code) == kind
    error = from_code(code, "what", "hint")
    assert type(error) is raised
    assert (error.code, error.what, error.hint) == (code, "what", "hint")
