"""Writes golden.txt beside this file: samples as Cyclone DDS' Python package (PyPI cyclonedds 11) serialises them.

Not run by the tests.

A case is five lines, and is read by tests/native/bus/test_bus_golden.cpp:
    idl TYPE IDL        the declaration, and which of its types is meant
    json VALUE          the sample, as sonde::bus::to_json() writes it
    le HEX              IdlStruct.serialize(), little endian, XCDR version 1
    be HEX              the same, big endian
    key HEX             its key fields alone, in the order in which they are declared, big endian, XCDR version 1
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclonedds.idl import IdlEnum, IdlStruct, types
from cyclonedds.idl import annotations as annotate
from cyclonedds.idl._support import Endianness

rng = random.Random(20261127)


def whole(bits: int, signed: bool) -> Callable[[], int]:
    least = -(2 ** (bits - 1)) if signed else 0
    return lambda: rng.choice([least, least + 2**bits - 1, 0, rng.randrange(least, least + 2**bits)])


def real() -> float:
    return rng.randrange(-8000, 8000) / 8


# IDL: (Python, value). Floats are such that all ways to write them agree.
NUMBERS: dict[str, tuple[str, Callable[[], Any]]] = {
    "boolean": ("bool", lambda: rng.random() < 0.5),
    "octet": ("types.byte", whole(8, False)),
    "char": ("types.char", lambda: chr(rng.randrange(32, 127))),
    "uint8": ("types.uint8", whole(8, False)),
    "int8": ("types.int8", whole(8, True)),
    "int16": ("types.int16", whole(16, True)),
    "uint16": ("types.uint16", whole(16, False)),
    "int32": ("types.int32", whole(32, True)),
    "uint32": ("types.uint32", whole(32, False)),
    "int64": ("types.int64", whole(64, True)),
    "uint64": ("types.uint64", whole(64, False)),
    "float": ("types.float32", real),
    "double": ("types.float64", real),
}
LETTERS = 'abcXYZ 09_-."\\/é€😀'


@dataclass
class Made:
    """A type: its IDL (and what stands behind a field's name), its Python, how its values are made and shown."""

    idl: str
    python: str
    make: Callable[[], Any]
    show: Callable[[Any], Any]
    tail: str = ""
    kind: str = ""
    keyable: bool = True


def number(name: str) -> Made:
    def show(value: Any) -> Any:
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return Made(name, *NUMBERS[name], show, kind=name)


def text() -> Made:
    bound = rng.choice([0, 0, 1, 3, 12])
    most = bound or 9

    def make() -> str:
        out = ""
        for _ in range(rng.randrange(most + 1)):
            letter = rng.choice(LETTERS)
            out += letter if len((out + letter).encode()) <= most else ""
        return out

    return Made(
        f"string<{bound}>" if bound else "string",
        f"types.bounded_str[{bound}]" if bound else "str",
        make,
        str,
    )


def listed(element: Made, length: int | None, bound: int = 0) -> Made:
    """An array of `length`, else a sequence."""

    def make() -> list[Any]:
        return [element.make() for _ in range(length or rng.randrange((bound or 5) + 1))]

    def show(values: list[Any]) -> Any:
        if element.kind in ("octet", "char", "uint8"):
            raw = "".join(values).encode("ascii") if element.kind == "char" else bytes(values)
            return "base64:" + base64.b64encode(raw).decode()
        return [element.show(v) for v in values]

    if length:
        python = f"types.array[{element.python}, {length}]"
        return Made(element.idl, python, make, show, f"[{length}]", "array", element.keyable)
    ends = f", {bound}" if bound else ""
    return Made(
        f"sequence<{element.idl}{ends}>", f"types.sequence[{element.python}{ends}]", make, show, keyable=False
    )


class Case:
    """The declarations of one case, in IDL and in Python."""

    def __init__(self) -> None:
        self.idl: list[str] = []
        self.names: dict[str, Any] = {
            "types": types,
            "annotate": annotate,
            "IdlStruct": IdlStruct,
            "IdlEnum": IdlEnum,
            "dataclass": dataclass,
            "__name__": "__main__",
        }

    def run(self, source: str) -> None:
        # Not in this file's way to treat annotations, which the package cannot resolve here.
        exec(compile(source, "<case>", "exec", dont_inherit=True), self.names)

    def enumeration(self) -> Made:
        name = f"E{len(self.idl)}"
        plain = rng.random() < 0.5
        values = range(3) if plain else sorted(rng.sample(range(1000), rng.randrange(1, 5)))
        members = {f"{name.lower()}_{k}": v for k, v in enumerate(values)}
        spelled = ", ".join(("" if plain else f"@value({v}) ") + m for m, v in members.items())
        self.idl.append(f"enum {name} {{ {spelled} }};")
        body = "".join(f"    {m} = {v}\n" for m, v in members.items())
        self.run(f"class {name}(IdlEnum, typename='g.{name}', default='{next(iter(members))}'):\n{body}")
        return Made(name, name, lambda: rng.choice(list(self.names[name])), lambda v: v.name)

    def any(self, depth: int) -> Made:
        draw = rng.random() if depth else rng.random() / 2
        if draw < 0.5:
            return number(rng.choice(list(NUMBERS)))
        if draw < 0.62:
            return text()
        if draw < 0.7:
            return self.enumeration()
        if draw < 0.9:
            element = self.any(depth - 1)
            if element.kind == "array":  # IDL has no arrays within the brackets of others, but by a typedef
                element = number("double")
            return (
                listed(element, None, rng.choice([0, 0, 3]))
                if draw < 0.82
                else listed(element, rng.randrange(1, 5))
            )
        return self.structure(depth - 1)

    def structure(self, depth: int) -> Made:
        fields = [self.any(depth) for _ in range(rng.randrange(1, 7))]
        return self.declare(
            [(f"f{k}", made, made.keyable and rng.random() < 0.3) for k, made in enumerate(fields)]
        )

    def declare(self, fields: list[tuple[str, Made, bool]]) -> Made:
        name = f"S{len(self.idl)}"
        inner = " ".join(("@key " if key else "") + f"{m.idl} {field}{m.tail};" for field, m, key in fields)
        self.idl.append(f"struct {name} {{ {inner} }};")
        body = "".join(
            f"    {f}: {m.python}\n" + (f"    annotate.key('{f}')\n" if key else "") for f, m, key in fields
        )
        self.run(f"@dataclass\n@annotate.final\nclass {name}(IdlStruct, typename='g.{name}'):\n{body}")
        keys = [m for _, m, key in fields if key] or [m for _, m, _ in fields]
        return Made(
            name,
            name,
            lambda: self.names[name](*(m.make() for _, m, _ in fields)),
            lambda v: {f: m.show(getattr(v, f)) for f, m, _ in fields},
            keyable=all(m.keyable for m in keys),
        )

    def lines(self, top: Made, value: Any) -> list[str]:
        shown = json.dumps(top.show(value), ensure_ascii=False, separators=(",", ":"))
        little, big = (
            value.serialize(endianness=e, use_version_2=False) for e in (Endianness.Little, Endianness.Big)
        )
        keyed = "@key" in self.idl[-1]
        key = (
            value.__idl__.serialize_key(value, use_version_2=False, endianness=Endianness.Big)
            if keyed
            else b""
        )
        return [
            f"idl g::{top.idl} module g {{ {' '.join(self.idl)} }};",
            f"json {shown}",
            f"le {little.hex()}",
            f"be {big.hex()}",
            f"key {key.hex()}",
        ]


lines: list[str] = []
for name in NUMBERS:  # each behind one byte, alone, in an array and in a sequence
    case = Case()
    made = number(name)
    parts = {
        "pad": number("uint8"),
        "one": made,
        "three": listed(made, 3),
        "some": listed(made, None),
        "end": made,
    }
    top = case.declare([(field, part, field in ("one", "three")) for field, part in parts.items()])
    lines += case.lines(top, top.make())
for _ in range(150):
    case = Case()
    top = case.structure(3)
    for _ in range(2):
        lines += case.lines(top, top.make())
Path(__file__).with_name("golden.txt").write_text("\n".join(lines) + "\n")
print(len(lines) // 5, "cases of", len({x for x in lines if x.startswith("idl")}), "types")
