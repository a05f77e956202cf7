"""What can be entered, by the file's head."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import pytest

from sonde.io.run_elf import Program, why_not


def elf(kinds, machine=62):
    head = struct.pack(
        "<4sBB10xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 2, machine, 1, 0, 64, 0, 0, 64, 56, len(kinds), 0, 0, 0
    )
    return head + b"".join(struct.pack("<I", kind).ljust(56, b"\0") for kind in kinds)


@pytest.mark.parametrize(
    ("content", "kind", "reason"),
    [
        (elf([1, 3, 2]), "elf", ""),
        (elf([1, 1]), "elf", "statically linked"),
        (elf([1, 3], machine=183), "elf", "not for x86-64"),
        (b"#!/bin/sh\n", "script", ""),
        (b"", "other", ""),
        (b"\x7fELF", "other", ""),
        (elf([1, 3])[:70], "elf", "statically linked"),
    ],
)
def test_kinds_of_files(tmp_path, content, kind, reason):
    path = tmp_path / "program"
    path.write_bytes(content)
    found = Program.read(path)
    assert found.kind == kind
    assert (reason in why_not(found)) if reason else why_not(found) == ""


def test_this_python_can_be_entered():
    found = Program.read(Path(os.path.realpath(sys.executable)))
    assert (found.kind, found.static, found.setuid) == ("elf", False, False)


def test_what_is_not_there_is_other(tmp_path):
    assert Program.read(tmp_path / "nowhere").kind == "other"


@pytest.mark.root
def test_a_program_with_another_user_s_rights(tmp_path):
    path = tmp_path / "program"
    path.write_bytes(elf([1, 3]))
    os.chown(path, 65534, -1)
    path.chmod(0o4755)
    assert "another user's rights" in why_not(Program.read(path))
