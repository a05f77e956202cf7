"""What a command takes from its environment. With files of others: tests/hostile/test_hostile_settings.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sonde.core import surroundings

OWN = os.geteuid()


def test_files_that_libraries_look_for_are_switched_off_unless_somebody_switched_them_himself(tmp_path):
    environ = {"NCRCENV_IGNORE": "0", "HOME": "/root"}
    list(surroundings.make_safe(environ, tmp_path))
    assert environ["NCRCENV_IGNORE"] == "0"
    assert environ["SKIP_DEFAULT_XML_FILE"] == "1"


@pytest.mark.parametrize("name", surroundings.READ_BY_LIBRARIES)
def test_one_s_own_files_are_one_s_own(tmp_path, name):
    (tmp_path / name).write_text("")
    (tmp_path / name).chmod(0o600)
    list(surroundings.make_safe({"HOME": "/root"}, tmp_path))


def test_a_user_keeps_variables_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: OWN or 1000)
    environ = {"HOME": "nowhere", "PATH": ".", "TMPDIR": "here"}
    assert list(surroundings.make_safe(environ, tmp_path)) == []
    assert environ == {"HOME": "nowhere", "PATH": ".", "TMPDIR": "here", **surroundings.SWITCHED_OFF}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/usr/bin:/bin", "/usr/bin:/bin"),
        ("/usr/bin:", "/usr/bin"),
        (":", None),
        (".:lib", None),
        ("/tmp:/bin", "/bin"),
    ],
)
def test_root_s_lists_hold_no_folder_of_others(tmp_path, monkeypatch, before, after):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    environ = {"HOME": "/", "LD_LIBRARY_PATH": before}
    said = list(surroundings.make_safe(environ, Path("/")))
    assert environ.get("LD_LIBRARY_PATH") == after
    assert bool(said) == (before != after)
