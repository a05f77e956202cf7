from __future__ import annotations

import io
import json
import re
import shutil
import subprocess

import pytest

from sonde.core.printable import (
    SPELT,
    command_line,
    encodable,
    encodable_within,
    name_text,
    one_line,
    printable,
    printable_json,
)

NAMES = [
    b"plain",
    "µ 中".encode(),
    b"bad\xff",
    b"bad\xfe",
    rb"bad\xff",
    rb"bad\x5cxff",
    b"\\\xff",
    rb"\\xff",
    b"\x85",
    "\x85".encode(),
    rb"\u0085",
    b"a\nb",
    b"a\tb",
    b"\x1b[31m",
    rb"\x1b[31m",
    b"'\"`$(x)|%",
    "\u202e".encode(),
    b"",
    b"x" * 255,
]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain, µs, é, 中\n\ttext", "plain, µs, é, 中\n\ttext"),
        ("\x1b[31mred\x9b0m\r", r"\x1b[31mred\u009b0m\x0d"),
        ("abc\u202ecba\u2066\u200b", r"abc\u202ecba\u2066\u200b"),
        ("\U000e0041\ud800", r"\udb40\udc41\ud800"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_as_its_number(text: str, shown: str):
    assert printable(text) == shown
    value = json.dumps([text], ensure_ascii=False)
    assert json.loads(printable_json(value)) == [text]


def test_json_of_no_such_text_is_as_it_was():
    value = json.dumps({"a": ["µ", 1.5, None]}, ensure_ascii=False, indent=2)
    assert printable_json(value) == value


def test_a_byte_that_is_no_text_is_shown_as_its_number():
    assert printable("bad\udcff") == r"bad\xff"
    assert printable("a\udcc2\udcb5\udcff") == encodable("a\udcc2\udcb5\udcff") == r"aµ\xff"  # LC_ALL=C
    assert encodable_within({"\udcfe": ["\udcff", ("é", 1, None)]}) == {r"\xfe": [r"\xff", ["é", 1, None]]}
    assert encodable("bad\udcff\ud800é\n") == "bad\\xff\\ud800é\n"


def test_each_name_is_a_text_of_its_own_from_which_it_can_be_read_back():
    texts = [name_text(name) for name in NAMES]
    assert len(set(texts)) == len(NAMES)
    for name, text in zip(NAMES, texts, strict=True):
        assert (
            re.sub(rb"\\x([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), text.encode())
            == name
        )
        assert name_text(name.decode("utf-8", "surrogateescape")) == text
    assert len({one_line(text) for text in texts}) == len(NAMES)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_a_command_line_is_one_line_that_bash_reads_as_the_same_words():
    words = [name.decode("utf-8", "surrogateescape") for name in NAMES]
    line = command_line(words)
    assert line.splitlines() == [line]
    assert printable(line) == line
    script = f"printf '%s\\0' {line}"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    assert ran.stdout.split(b"\0")[:-1] == NAMES
    assert command_line(["echo", 1, "a b"]) == "echo 1 'a b'"


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("ascii", r"+ 5 us +- 2 %, 3 x 8 B > caf\u00e9 \u65e5\u672c \xff"),
        ("latin-1", "+ 5 µs ± 2 %, 3 × 8 B > café \\u65e5\\u672c \\xff"),
        ("utf-8", "✓ 5 µs ± 2 %, 3 × 8 B → café 日本 \\xff"),
    ],
)
def test_a_stream_with_fewer_characters_gets_units_and_names_that_stay_distinct(encoding: str, shown: str):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=SPELT)
    stream.write("✓ 5 µs ± 2 %, 3 × 8 B → café 日本 \udcff")
    stream.flush()
    assert stream.buffer.getvalue().decode(encoding) == shown  # type: ignore[attr-defined]
