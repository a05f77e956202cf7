"""What an executable is, as far as it decides whether the tracer can enter it, and where its functions lie."""

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
_PROGRAM_HEADER_BYTES = 56  # of a file of 64 bits; the loader takes no other
X86_64 = 62
_INTERPRETER = 3
DEBUG_FILES = Path("/usr/lib/debug/.build-id")
_PIE, _EXECUTABLE, _FUNCTION = 0x08000000, 1, 2  # DF_1_PIE, PF_X, STT_FUNC
_MACHINES = {"EM_X86_64": X86_64, "EM_386": 3, "EM_AARCH64": 183}
# Of names in all, beside what their table holds: many symbols may share one, and each is a text of its own.
_NAMES_TIMES, _NAMES_BYTES = 16, 1 << 20
_MOST_DEBUG_BYTES = 256 << 20  # of a compressed table of symbols
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


@dataclass(frozen=True)
class Program:
    """kind : "elf", "script", "other". machine : of an ELF file. static : it has no loader.

    gains : whose rights a process gets that starts it: "another user's", "another group's", "more" (capabilities of
    the file); "" for those of who starts it
    """

    kind: str
    machine: int = 0
    static: bool = False
    gains: str = ""

    @classmethod
    def read(cls, path: Path) -> Program:
        """A file that cannot be read is "other"."""
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
    """Program.gains. The kernel then sets AT_SECURE, by which the loader knows (ld.so(8), "secure-execution mode")."""
    facts = os.fstat(file)
    if facts.st_mode & stat.S_ISUID and facts.st_uid != os.geteuid():
        return "another user's"
    # Without the right to execute for the group, S_ISGID is a mandatory lock's mark (inode(7)).
    if facts.st_mode & stat.S_ISGID and facts.st_mode & stat.S_IXGRP and facts.st_gid != os.getegid():
        return "another group's"
    with suppress(OSError):  # it has none, or its file system has no such attributes
        if os.getxattr(file, "security.capability") and os.geteuid() != 0:
            return "more"
    return ""


def why_not(program: Program) -> str:
    """Why the tracer cannot enter it, to follow its name; "" where it can."""
    if program.gains:
        return f"runs with {program.gains} rights, and the loader then preloads nothing"
    if program.kind == "elf" and program.machine != X86_64:
        return "is not for x86-64"
    if program.kind == "elf" and program.static:
        return "is statically linked, and has no calls between libraries that could be taken"
    return ""


@dataclass(frozen=True)
class Function:
    """A function that a file holds. exported : others find it by its name. local : only its own source knows that."""

    name: str
    address: int
    exported: bool = False
    local: bool = False


@dataclass(frozen=True)
class Object:
    """What an ELF file holds.

    functions : with those that its debug file or its compressed table of symbols names
    segments : those with code: (address, place in the file, bytes in the file)
    needed : libraries that it is linked with. executable : it is a program. moves_stacks : it was made by Go,
    which copies stacks, so that no return address may be replaced
    """

    machine: int
    functions: tuple[Function, ...]
    segments: tuple[tuple[int, int, int], ...]
    needed: tuple[str, ...] = ()
    executable: bool = False
    moves_stacks: bool = False

    def offset(self, address: int) -> int | None:
        """Where in the file the code of an address lies; None where it is none of the file."""
        for begin, place, length in self.segments:
            if begin <= address < begin + length:
                return address - begin + place
        return None


def read_object(path: Path) -> Object | None:
    """What a file holds; None of a file that cannot be read or is no ELF file of this kind of machine."""
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.elffile import ELFFile

    # pyelftools answers a damaged file with whatever its code comes to: AssertionError, TypeError, its own.
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
    """Of .dynsym where `exported`, else of .symtab."""
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
            raise ValueError("its names are longer than the table that they stand in")
        found.append(Function(texts[at:end].decode("utf-8", "replace"), value, exported, info >> 4 == 0))
    return found


def _debug_functions(elf: ELFFile) -> list[Function]:
    """Functions of a stripped file that its distribution tells elsewhere: in .gnu_debugdata, or in a debug file."""
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import NoteSection

    if (small := elf.get_section_by_name(".gnu_debugdata")) is not None:
        with suppress(lzma.LZMAError, ValueError):
            told = lzma.LZMADecompressor().decompress(small.data(), _MOST_DEBUG_BYTES)
            return _functions_of(ELFFile(io.BytesIO(told)))
    note = elf.get_section_by_name(".note.gnu.build-id")
    for one in note.iter_notes() if isinstance(note, NoteSection) else ():
        build = str(one["n_desc"])
        path = DEBUG_FILES / build[:2] / f"{build[2:]}.debug"
        if path.is_file():
            with path.open("rb") as file:
                return _functions_of(ELFFile(file))
    return []


def base_name(symbol: str) -> tuple[str, bool] | None:
    """What a function was called before the compiler made it its own, and whether its arguments may have been changed;
    None of a part of a function."""
    name, *suffixes = symbol.split(".")
    if not name or not suffixes:
        return symbol, False
    words = {word for word in suffixes if not word.isdigit()}
    if words & {"part", "cold"}:
        return None
    return name, bool(words - {"lto_priv", "localalias", "llvm"})
