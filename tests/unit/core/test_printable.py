from __future__ import annotations

import json

import pytest

from sonde.core.printable import printable, printable_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain, µs, é, 中\n\ttext", "plain, µs, é, 中\n\ttext"),
        ("\x1b[31mred\x9b0m\r", r"\x1b[31mred\x9b0m\x0d"),
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
