"""How keys, objects and items are written on the command line.

    kv:SPACE/KEY          a key; `kv:` may be left out
    object:SPACE/NAME     an object
    item:COLLECTION/NAME  an item
    hdf5:/FILE            an HDF5 file that the connector keeps, by its absolute name

A name may hold any byte: %00 to %FF stand for one each, as in URLs, and %25 for the per cent sign itself. The first '/'
ends the space, which holds one of its own as %2F. What lists print can be typed again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sonde.core.errors import UsageError, nearest

FORMS = {
    "kv": "kv:SPACE/KEY",
    "object": "object:SPACE/NAME",
    "item": "item:COLLECTION/NAME",
    "hdf5": "hdf5:/FILE",
    "table": "SPACE/TABLE",
}
KINDS = ("kv", "object", "item", "hdf5")
SPACE_BYTES = 63  # as in native/store/types.hpp
HDF5_FILES = b"h5.files"  # the space that holds the names of HDF5 files; as in native/store/h5/container.cpp


@dataclass(frozen=True)
class Address:
    """A key, object, item or HDF5 file. name: b"" where a whole space is meant. str() is how it is typed."""

    kind: str
    space: bytes
    name: bytes

    def __str__(self) -> str:
        if self.kind == "hdf5":
            return f"hdf5:{_shown(self.name)}"
        return f"{self.kind}:{_shown(self.space, '/:')}/{_shown(self.name)}"

    def at(self, name: str | bytes) -> Address:
        """Another name in the same space, as lists give it."""
        raw = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
        return Address(self.kind, self.space, raw)


def parse(text: str, whole_space: bool = False, kinds: Sequence[str] = KINDS) -> Address:
    """An address from what was typed. kinds: those allowed; the first need not be written.

    whole_space: a list, which needs no name: "kv:runs", "kv:runs/" and "kv:runs/42" are all good.

    Raises
    ------
    UsageError  store.bad_address: no space, no name, no such kind, or a per cent sign without two digits.
    """
    space, slash, name = text.partition("/")
    head, colon, rest = space.partition(":")
    kind = kinds[0]
    *forms, last = (FORMS[kind] for kind in kinds)
    like = f"write {', '.join(forms)}{' or ' * bool(forms)}{last}"
    if colon:
        if head == "hdf5" and head not in kinds:
            raise UsageError(
                "store.bad_address",
                f"'{text}' is an HDF5 file, whose content only HDF5 programs read and write",
                "see docs/reference/store-hdf5.md; ls, stat and rm take it",
            )
        if head not in kinds:
            raise UsageError(
                "store.bad_address",
                f"'{text}' begins with '{head}:', no kind{nearest(head, list(kinds))}",
                like,
            )
        kind, space = head, rest
    if kind == "hdf5":
        return _file(text, whole_space)
    if not space:
        raise UsageError("store.bad_address", f"'{text}' names no space", like)
    if not name and not whole_space:
        what = "ends behind its space" if slash else "names a space only"
        raise UsageError("store.bad_address", f"'{text}' {what}", like)
    raw = _read(space, text)
    if kind != "item" and len(raw) > SPACE_BYTES:  # the limit of a collection is one with its items' names
        raise UsageError(
            "store.bad_address",
            f"the name of the space in '{text}' has {len(raw)} B; allowed: {SPACE_BYTES} B",
            "choose a shorter space, and put the rest into the name behind the '/'",
        )
    return Address(kind, raw, _read(name, text))


def _file(text: str, whole_space: bool) -> Address:
    name = text.partition(":")[2]
    if not name.startswith("/") and (name or not whole_space):
        raise UsageError(
            "store.bad_address",
            f"'{text}' names no HDF5 file: in the store its name is absolute",
            'write hdf5:/home/a/results.h5, or "hdf5:$PWD/results.h5"',
        )
    return Address("hdf5", HDF5_FILES, _read(name, text))


def _read(part: str, text: str) -> bytes:
    if bad := re.search("%(?![0-9A-Fa-f]{2})", part):
        raise UsageError(
            "store.bad_address",
            f"'{text}' has a '%' without two hexadecimal digits behind it: '{part[bad.start() :][:3]}'",
            "write %25 for the per cent sign itself",
        )
    raw = part.encode("utf-8", "surrogateescape")
    return re.sub(rb"%(..)", lambda escaped: bytes.fromhex(escaped[1].decode()), raw)


def _shown(raw: bytes, more: str = "") -> str:
    """Printable text as it is; all else, blanks and what has a meaning, as %XX."""
    text = raw.decode("utf-8", "surrogateescape")
    return "".join(
        char
        if char.isprintable() and char not in " %" + more
        else "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape"))
        for char in text
    )
