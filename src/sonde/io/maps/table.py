"""Compile layer maps to the tracer's form: one binary table, laid out in native/io/table.hpp."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from sonde.core.errors import UsageError
from sonde.io.maps.layers import FAILS, KINDS, WIDTHS, Function, Layer, Value

MAGIC = b"SONDELYR"
VERSION = 1
HOWS = (
    "none", "arg", "ref", "out", "product", "mpi", "mpi_ref", "iov", "result", "result_product", "text",
    "hdf5", "hdf5_attribute", "constant", "length", "out_length", "counted_text", "mpi_status",
    "mpi_ref_status", "later",
)  # fmt: skip
_HEADER = struct.Struct("<8sIIIIQ")
_RULE = struct.Struct("<IIHBBB3x")


def compiled(layers: Sequence[Layer], most_bytes: int = 0) -> bytes:
    """The table of these layers, in this order: the number of a rule's layer is its position.

    Parameters
    ----------
    layers : if two rules match one function, the earlier counts
    most_bytes : limit of the output of all processes of a node; 0 for no limit

    Raises
    ------
    UsageError  io.bad_map: a name with a NUL, or more layers than a table can number.
    """
    if len(layers) > 0xFFFF:
        raise UsageError("io.bad_map", f"{len(layers)} layers are too many", "65535 are allowed")
    text, places = bytearray(b"\0"), dict[str, int]()

    def place(word: str) -> int:
        if "\0" in word:
            raise UsageError("io.bad_map", f"the name {word!r} holds a NUL", "no symbol does")
        if word not in places:
            places[word] = len(text)
            text.extend(word.encode() + b"\0")
        return places[word]

    rules = bytearray()
    every = rule_names(layers)
    for number, function, library, name in every:
        rules += _RULE.pack(
            place(library),
            place(name),
            number,
            KINDS.index(function.kind),
            FAILS.index(function.fails),
            WIDTHS.index(function.result),
        )
        for value in (function.amount, function.at, function.file, function.named):
            rules += _packed(value)
    return _HEADER.pack(MAGIC, VERSION, len(every), len(text), 0, most_bytes) + bytes(rules) + bytes(text)


def rule_names(layers: Sequence[Layer]) -> list[tuple[int, Function, str, str]]:
    """For each rule of the table, in order: number of its layer, its function, its library, its name."""
    return [
        (number, function, library, name)
        for number, layer in enumerate(layers)
        for function in layer.functions
        for library in function.libraries
        for name in function.names
    ]


def _packed(value: Value) -> bytes:
    return bytes((HOWS.index(value.how), value.a, value.b, WIDTHS.index(value.width)))
