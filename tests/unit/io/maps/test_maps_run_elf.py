"""What can be entered, by the file's head."""

from __future__ import annotations

import lzma
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from sonde.io.maps import run_elf
from sonde.io.maps.run_elf import Object, Program, base_name, read_object, why_not


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
        (elf([1, 3], machine=183), "elf", "not built for x86-64"),
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
    assert (found.kind, found.static, found.gains) == ("elf", False, "")


def test_what_is_not_there_is_other(tmp_path):
    assert Program.read(tmp_path / "nowhere").kind == "other"


@pytest.mark.root
@pytest.mark.parametrize(
    ("user", "group", "mode", "reason"),
    [
        (65534, -1, 0o4755, "another user's rights"),
        (-1, 65534, 0o2755, "another group's rights"),
        (65534, 65534, 0o6755, "another user's rights"),
        (-1, 65534, 0o2745, ""),
        (-1, -1, 0o6755, ""),
    ],
)
def test_a_program_with_another_s_rights(tmp_path, user, group, mode, reason):
    path = tmp_path / "program"
    path.write_bytes(elf([1, 3]))
    os.chown(path, user, group)
    path.chmod(mode)
    why = why_not(Program.read(path))
    assert reason in why if reason else not why


@pytest.mark.parametrize(("user", "reason"), [(1000, "runs with more rights"), (0, "")])
def test_a_program_whose_file_has_capabilities(tmp_path, monkeypatch, user, reason):
    """Root has them all anyway: the kernel then sets no AT_SECURE."""
    path = tmp_path / "program"
    path.write_bytes(elf([1, 3]))
    asked = []

    def attribute(file, name):
        asked.append(name)
        return struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)  # vfs_cap_data of cap_net_raw=ep

    monkeypatch.setattr(os, "getxattr", attribute)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    why = why_not(Program.read(path))
    assert reason in why if reason else not why
    assert asked == ["security.capability"]


# Its code stands at an address that is neither its place in the file nor that of its segment.
CODE = b"\x0f\x1f\x84\x00\xce\xfa\xed\xfe"
SOURCE = r"""
__asm__(".section .text.far,\"ax\"\n.skip 4099\n.type own,@function\n"
        "own: .byte 0x0f,0x1f,0x84,0,0xce,0xfa,0xed,0xfe\nret\n.text");
void seen(void);
void seen(void) {}
int main(void) { return 0; }
"""


@pytest.fixture
def compiled(tmp_path):
    """compiled(name, options...)"""

    def make(name, *options):
        (tmp_path / "s.c").write_text(SOURCE)
        subprocess.run(["cc", "-w", "-o", tmp_path / name, tmp_path / "s.c", *options], check=True)
        return tmp_path / name

    return make


@pytest.mark.parametrize(
    ("options", "executable"),
    [
        (("-shared", "-fPIC", "-nostartfiles"), False),
        (
            ("-shared", "-fPIC", "-nostartfiles", "-Wl,-z,max-page-size=0x200000", "-Wl,-z,separate-code"),
            False,
        ),
        (("-shared", "-fPIC", "-nostartfiles", "-Wl,-z,noseparate-code", "-Wl,-soname,libs.so"), False),
        (("-no-pie", "-Wl,-Ttext-segment=0x7000000"), True),
        (("-pie", "-fPIE"), True),
        (("-static",), True),
        (("-static-pie", "-fPIE"), True),
    ],
)
def test_where_in_a_file_a_function_lies(compiled, options, executable):
    path = compiled("s", *options)
    found = read_object(path)
    (own,) = (one for one in found.functions if one.name == "own")
    assert (own.exported, own.local) == (False, True)
    at = found.offset(own.address)
    assert path.read_bytes()[at : at + len(CODE)] == CODE
    if executable or "-Wl,-soname,libs.so" in options:
        assert found.executable == executable


def test_offsets_are_of_the_segment_s_file_part_alone():
    one = Object(62, (), ((0x401000, 0x1000, 0x80), (0x7000, 0x3210, 0x10)))
    assert one.offset(0x401000) == 0x1000
    assert one.offset(0x40107F) == 0x107F
    assert one.offset(0x401080) is None  # zeroed memory behind what the file has
    assert one.offset(0x7004) == 0x3214
    assert one.offset(0x400FFF) is None


def test_what_is_exported_is_distinguished_from_what_is_not(compiled):
    found = read_object(compiled("libs.so", "-shared", "-fPIC", "-nostartfiles"))
    kinds = {one.name: (one.exported, one.local) for one in found.functions}
    assert (kinds["seen"], kinds["own"]) == ((True, False), (False, True))
    assert len([one for one in found.functions if one.name == "seen"]) == 1


def test_names_of_a_stripped_file_are_in_its_debug_file_or_packed(compiled, tmp_path, monkeypatch):
    whole = compiled("libs.so", "-shared", "-fPIC", "-nostartfiles", "-Wl,--build-id=0x12ab34cd")
    stripped = tmp_path / "stripped.so"
    subprocess.run(["strip", "-o", stripped, whole], check=True)

    def names(path):
        return [one.name for one in read_object(path).functions]

    assert "own" not in names(stripped)
    debug = tmp_path / "12" / "ab34cd.debug"
    debug.parent.mkdir()
    subprocess.run(["objcopy", "--only-keep-debug", whole, debug], check=True)
    monkeypatch.setattr(run_elf, "DEBUG_FILES", tmp_path)
    assert "own" in names(stripped)
    assert names(stripped).count("seen") == 1
    monkeypatch.undo()
    (tmp_path / "packed").write_bytes(lzma.compress(whole.read_bytes()))
    subprocess.run(
        ["objcopy", "--add-section", f".gnu_debugdata={tmp_path / 'packed'}", stripped], check=True
    )
    assert "own" in names(stripped)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n", elf([1, 3])[:70], elf([1, 3])])
def test_what_is_no_whole_elf_file_holds_nothing(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    found = read_object(path)
    assert found is None or found.functions == ()


@pytest.mark.parametrize(
    ("symbol", "base"),
    [
        ("f", ("f", False)),
        ("f.constprop.0", ("f", True)),
        ("f.isra.0.constprop.1", ("f", True)),
        ("f.lto_priv.2", ("f", False)),
        ("f.llvm.123", ("f", False)),
        ("f.part.0", None),
        ("f.isra.0.cold", None),
        (".hidden", (".hidden", False)),
    ],
)
def test_names_that_a_compiler_gave(symbol, base):
    assert base_name(symbol) == base
