"""Addresses of keys, objects and items on the command line.

    kv:SPACE/KEY          a key; `kv:` may be left out
    object:SPACE/NAME     an object
    item:COLLECTION/NAME  an item
    hdf5:/FILE            an HDF5 file that the connector stores, by its absolute name

A name may contain any byte: %00 to %FF stand for one byte each, as in URLs, and %25 for the per cent sign itself. The
first '/' ends the space; write a '/' in the name of a space as %2F. The addresses that lists print can be typed again.
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
HDF5_FILES = b"h5.files"  # the space with the names of HDF5 files; as in native/store/h5/container.cpp


@dataclass(frozen=True)
class Address:
    """A key, object, item or HDF5 file. name: b"" for a whole space. str() gives the form to type."""

    kind: str
    space: bytes
    name: bytes

    def __str__(self) -> str:
        if self.kind == "hdf5":
            return f"hdf5:{_shown(self.name)}"
        return f"{self.kind}:{_shown(self.space, '/:')}/{_shown(self.name)}"

    def at(self, name: str | bytes) -> Address:
        """The address of another name in the same space, in the form that lists return."""
        raw = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
        return Address(self.kind, self.space, raw)


def parse(text: str, whole_space: bool = False, kinds: Sequence[str] = KINDS) -> Address:
    """The address in a text as typed. kinds: the allowed kinds; the first one need not be typed.

    whole_space: whether the name may be missing, as for a list: "kv:runs", "kv:runs/" and "kv:runs/42" are all valid.

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
                f"'{text}' is an HDF5 file, and only HDF5 programs can read and write its content",
                "see docs/reference/store-hdf5.md; ls, stat and rm accept it",
            )
        if head not in kinds:
            raise UsageError(
                "store.bad_address",
                f"'{text}' begins with '{head}:', which is not a kind{nearest(head, list(kinds))}",
                like,
            )
        kind, space = head, rest
    if kind == "hdf5":
        return _file(text, whole_space)
    if not space:
        raise UsageError("store.bad_address", f"'{text}' names no space", like)
    if not name and not whole_space:
        what = "ends after its space" if slash else "names a space only"
        raise UsageError("store.bad_address", f"'{text}' {what}", like)
    raw = _read(space, text)
    if kind != "item" and len(raw) > SPACE_BYTES:  # the limit of a collection includes the names of its items
        raise UsageError(
            "store.bad_address",
            f"the name of the space in '{text}' has {len(raw)} B; allowed: {SPACE_BYTES} B",
            "choose a shorter space, and put the rest into the name after the '/'",
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
            f"'{text}' has a '%' without two hexadecimal digits after it: '{part[bad.start() :][:3]}'",
            "write %25 for the per cent sign itself",
        )
    raw = part.encode("utf-8", "surrogateescape")
    return re.sub(rb"%(..)", lambda escaped: bytes.fromhex(escaped[1].decode()), raw)


def _shown(raw: bytes, more: str = "") -> str:
    """A name in printable form; blanks, special characters and all other bytes become %XX."""
    text = raw.decode("utf-8", "surrogateescape")
    return "".join(
        char
        if char.isprintable() and char not in " %" + more
        else "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape"))
        for char in text
    )
