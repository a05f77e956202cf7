"""Read executables: whether the tracer can enter them, and where their functions are."""

from __future__ import annotations

import io
import lzma
import os
import stat
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_HEADER = struct.Struct("<4sBB10xHHIQQQIHHHHHH")
_PROGRAM_HEADER_BYTES = 56  # in a 64-bit file; the loader accepts no other size
X86_64 = 62
_INTERPRETER = 3
DEBUG_FILES = Path("/usr/lib/debug/.build-id")
_PIE, _EXECUTABLE, _FUNCTION = 0x08000000, 1, 2  # DF_1_PIE, PF_X, STT_FUNC
_MACHINES = {"EM_X86_64": X86_64, "EM_386": 3, "EM_AARCH64": 183}
# Limit for the total length of names, besides their table: many symbols may share one name, and each becomes its own
# string.
_NAMES_TIMES, _NAMES_BYTES = 16, 1 << 20
_MOST_DEBUG_BYTES = 256 << 20  # of a compressed table of symbols
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


@dataclass(frozen=True)
class Program:
    """kind : "elf", "script", "other". machine : of an ELF file. static : it has no loader.

    gains : additional rights of a process that runs it: "another user's", "another group's", "more" (capabilities of
    the file); "" if it gets only those of the user who starts it
    """

    kind: str
    machine: int = 0
    static: bool = False
    gains: str = ""

    @classmethod
    def read(cls, path: Path) -> Program:
        """Read a program. A file that cannot be read is "other"."""
        try:
            with path.open("rb") as file:
                head = file.read(_HEADER.size)
                gains = _gains(file.fileno())
                if head.startswith(b"#!"):
                    return cls("script")
                if len(head) < _HEADER.size or not head.startswith(b"\x7fELF") or head[4] != 2:
                    return cls("other")
                fields = _HEADER.unpack(head)
                machine, table, size, count = fields[4], fields[7], fields[11], fields[12]
                if size != _PROGRAM_HEADER_BYTES:
                    return cls("elf", machine, count == 0, gains)
                file.seek(table)
                headers = file.read(size * count)
        except (OSError, OverflowError, ValueError, struct.error):
            return cls("other")
        kinds = [struct.unpack_from("<I", headers, at)[0] for at in range(0, len(headers) - 3, size)]
        return cls("elf", machine, _INTERPRETER not in kinds, gains)


def _gains(file: int) -> str:
    """Program.gains. The kernel then sets AT_SECURE, which the loader obeys (ld.so(8), "secure-execution mode")."""
    facts = os.fstat(file)
    if facts.st_mode & stat.S_ISUID and facts.st_uid != os.geteuid():
        return "another user's"
    # Without execute permission for the group, S_ISGID marks a mandatory lock (inode(7)).
    if facts.st_mode & stat.S_ISGID and facts.st_mode & stat.S_IXGRP and facts.st_gid != os.getegid():
        return "another group's"
    with suppress(OSError):  # no capabilities, or the file system has no such attributes
        if os.getxattr(file, "security.capability") and os.geteuid() != 0:
            return "more"
    return ""


def why_not(program: Program) -> str:
    """Why the tracer cannot enter a program, as text after its name; "" if it can."""
    if program.gains:
        return f"runs with {program.gains} rights, and then the loader preloads no library"
    if program.kind == "elf" and program.machine != X86_64:
        return "is not built for x86-64"
    if program.kind == "elf" and program.static:
        return "is statically linked, so it has no calls between libraries to interpose"
    return ""


@dataclass(frozen=True)
class Function:
    """A function in a file. exported : other files find it by its name. local : only its own source file can refer to
    it."""

    name: str
    address: int
    exported: bool = False
    local: bool = False


@dataclass(frozen=True)
class Object:
    """The contents of an ELF file.

    functions : including those from its debug file or its compressed table of symbols
    segments : those with code: (address, offset in the file, bytes in the file)
    needed : libraries that it is linked with. executable : it is a program. moves_stacks : a Go program, which copies
    stacks, so its return addresses must not be replaced
    """

    machine: int
    functions: tuple[Function, ...]
    segments: tuple[tuple[int, int, int], ...]
    needed: tuple[str, ...] = ()
    executable: bool = False
    moves_stacks: bool = False

    def offset(self, address: int) -> int | None:
        """The offset in the file of the code at an address; None if the address is outside."""
        for begin, place, length in self.segments:
            if begin <= address < begin + length:
                return address - begin + place
        return None


def read_object(path: Path) -> Object | None:
    """The contents of a file; None if it cannot be read or is no ELF file for this kind of machine."""
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.elffile import ELFFile

    # pyelftools may raise any error on a damaged file: AssertionError, TypeError, its own.
    with suppress(Exception), path.open("rb") as file:
        elf = ELFFile(file)
        if elf.elfclass != 64 or not elf.little_endian:
            return None
        segments = list(elf.iter_segments())
        tags = [
            tag for segment in segments if isinstance(segment, DynamicSegment) for tag in segment.iter_tags()
        ]
        named = {tag.entry.d_tag for tag in tags}
        pie = any(tag.entry.d_tag == "DT_FLAGS_1" and tag.entry.d_val & _PIE for tag in tags)
        loaded = "DT_SONAME" not in named and (
            pie or any(segment["p_type"] == "PT_INTERP" for segment in segments)
        )
        functions = _functions_of(elf, exported=True)
        known = {(one.name, one.address) for one in functions}
        inner = _functions_of(elf) or _debug_functions(elf)
        functions += [one for one in inner if (one.name, one.address) not in known]
        return Object(
            elf["e_machine"] if isinstance(elf["e_machine"], int) else _MACHINES.get(elf["e_machine"], 0),
            tuple(functions),
            tuple(
                (segment["p_vaddr"], segment["p_offset"], segment["p_filesz"])
                for segment in segments
                if segment["p_type"] == "PT_LOAD" and segment["p_flags"] & _EXECUTABLE
            ),
            tuple(str(getattr(tag, "needed", "")) for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
            elf["e_type"] == "ET_EXEC" or loaded,
            elf.get_section_by_name(".gopclntab") is not None,
        )
    return None


def _functions_of(elf: ELFFile, exported: bool = False) -> list[Function]:
    """The functions of .dynsym if `exported`, else of .symtab."""
    table = elf.get_section_by_name(".dynsym" if exported else ".symtab")
    if table is None or table["sh_type"] == "SHT_NOBITS" or table["sh_entsize"] != _SYMBOL.itemsize:
        return []
    symbols = np.frombuffer(table.data(), _SYMBOL)
    texts = elf.get_section(table["sh_link"]).data()
    mine = symbols[((symbols["info"] & 15) == _FUNCTION) & (symbols["section"] != 0)]
    left = _NAMES_BYTES + _NAMES_TIMES * len(texts)
    found = []
    for at, value, info in zip(mine["name"].tolist(), mine["value"].tolist(), mine["info"].tolist()):
        end = texts.index(b"\0", at)
        left -= end - at
        if left < 0:
            raise ValueError("its names are longer than their table")
        found.append(Function(texts[at:end].decode("utf-8", "replace"), value, exported, info >> 4 == 0))
    return found


def _debug_functions(elf: ELFFile) -> list[Function]:
    """Functions of a stripped file from another place of its distribution: .gnu_debugdata, or a debug file."""
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import NoteSection

    if (small := elf.get_section_by_name(".gnu_debugdata")) is not None:
        with suppress(lzma.LZMAError, ValueError):
            symbols = lzma.LZMADecompressor().decompress(small.data(), _MOST_DEBUG_BYTES)
            return _functions_of(ELFFile(io.BytesIO(symbols)))
    note = elf.get_section_by_name(".note.gnu.build-id")
    for one in note.iter_notes() if isinstance(note, NoteSection) else ():
        build = str(one["n_desc"])
        path = DEBUG_FILES / build[:2] / f"{build[2:]}.debug"
        if path.is_file():
            with path.open("rb") as file:
                return _functions_of(ELFFile(file))
    return []


def base_name(symbol: str) -> tuple[str, bool] | None:
    """The name of a function before the compiler changed it, and whether its arguments may have changed; None for a
    part of a function."""
    name, *suffixes = symbol.split(".")
    if not name or not suffixes:
        return symbol, False
    words = {word for word in suffixes if not word.isdigit()}
    if words & {"part", "cold"}:
        return None
    return name, bool(words - {"lto_priv", "localalias", "llvm"})
