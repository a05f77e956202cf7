"""What an executable is, as far as it decides whether the tracer can enter it. Reads ELF and program headers."""

from __future__ import annotations

import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

_HEADER = struct.Struct("<4sBB10xHHIQQQIHHHHHH")
X86_64 = 62
_INTERPRETER = 3


@dataclass(frozen=True)
class Program:
    """kind : "elf", "script", "other". machine : of an ELF file. static : it has no loader. setuid."""

    kind: str
    machine: int = 0
    static: bool = False
    setuid: bool = False

    @classmethod
    def read(cls, path: Path) -> Program:
        """A file that cannot be read is "other"."""
        try:
            with path.open("rb") as file:
                head = file.read(_HEADER.size)
                mode = os.fstat(file.fileno())
                setuid = bool(mode.st_mode & stat.S_ISUID and mode.st_uid != os.geteuid())
                if head.startswith(b"#!"):
                    return cls("script")
                if len(head) < _HEADER.size or not head.startswith(b"\x7fELF") or head[4] != 2:
                    return cls("other")
                fields = _HEADER.unpack(head)
                machine, table, size, count = fields[4], fields[7], fields[11], fields[12]
                file.seek(table)
                headers = file.read(size * count)
        except (OSError, struct.error):
            return cls("other")
        kinds = [struct.unpack_from("<I", headers, at)[0] for at in range(0, len(headers) - 3, size or 1)]
        return cls("elf", machine, _INTERPRETER not in kinds, setuid)


def why_not(program: Program) -> str:
    """Why the tracer cannot enter it, to follow its name; "" where it can."""
    if program.setuid:
        return "runs with another user's rights, and the loader then preloads nothing"
    if program.kind == "elf" and program.machine != X86_64:
        return "is not for x86-64"
    if program.kind == "elf" and program.static:
        return "is statically linked, and has no calls between libraries that could be taken"
    return ""
