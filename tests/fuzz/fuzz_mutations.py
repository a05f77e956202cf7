"""Damage for inputs of parsers: sound ones, spoiled by a few steps. Pure; the same steps spoil the same."""

from __future__ import annotations

import random
from collections.abc import Sequence

Step = tuple[int, int, int, int]
"""What is done, where, how long, and with which word; each is taken modulo what there is."""

KINDS = 9
LARGEST = 1 << 32
MOST_STEPS = 6
MOST_BYTES = 1 << 16
WORDS = tuple(
    word.encode("utf-8", "surrogateescape") if isinstance(word, str) else word
    for word in (
        *"{}[](),:;=\"'\\/%#@<>&|*?.-+_~^$ \t\n\r\0",
        *(
            "null",
            "true",
            "NaN",
            "nan",
            "inf",
            "-inf",
            "Infinity",
            "0",
            "-0",
            "-1",
            "1e999",
            "1e-999",
            "0x",
            "_",
        ),
        *("18446744073709551616", "9223372036854775808", "4294967296", "65536", "9" * 400, "1" * 5000),
        *(
            "\\u0000",
            "\\ud800",
            "\u00e9",
            "\u202e",
            "\ufeff",
            "\u0660",
            "\uff11",
            "..",
            "../",
            "/dev/zero",
            "%00",
        ),
        *("[" * 3000, "{" * 300, '{"a":' * 2000, "(" * 300, " " * 300, "a" * 300, "\n" * 300, "\r\n\r\n"),
        *(
            "[]",
            "{}",
            '""',
            "[1]",
            '{"a": 1}',
            '"x"',
            "[[a]]",
            "a = 1",
            "1979-05-27",
            "'''",
            '"""',
            "<!DOCTYPE a>",
        ),
        *(
            b"\xff",
            b"\xff\xff\xff\xff",
            b"\0\0\0\0",
            b"\0\0\0\1",
            b"\1\0\0\0",
            b"\x80\0\0\0",
            b"\x7f\xff\xff\xff",
        ),
        *(b"\xff" * 8, b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"CDF\5", b"SBLK", b"\x1b]0;x\x07"),
    )
)


def spoiled(data: bytes, steps: Sequence[Step]) -> bytes:
    """`data` after these steps, at most MOST_BYTES of it."""
    out = bytearray(data)
    for kind, at, length, word in steps:
        kind, at = kind % KINDS, at % (len(out) + 1)
        piece = WORDS[word % len(WORDS)]
        end = at + 1 + length % 24
        if kind == 0 and out:
            out[at % len(out)] ^= 1 << length % 8
        elif kind == 1 and out:
            out[at % len(out)] = word % 256
        elif kind == 2:
            out[at:at] = piece
        elif kind == 3:
            out[at : at + len(piece)] = piece
        elif kind == 4:
            del out[at:end]
        elif kind == 5:
            del out[at:]
        elif kind == 6:
            out[at:at] = out[length % (len(out) + 1) :][: 1 + word % 64]
        elif kind == 7:
            out[at:end] = piece
        else:  # a number that lies, where numbers of four bytes stand
            at &= ~3
            out[at : at + 4] = (word % LARGEST).to_bytes(4, "big" if length % 2 else "little")
    return bytes(out[:MOST_BYTES])


def drawn(source: random.Random) -> list[Step]:
    """Steps as chance has them."""
    number = source.getrandbits
    return [
        (number(8), number(16), number(16), number(32) if number(1) else number(8))
        for _ in range(1 + number(8) % MOST_STEPS)
    ]
