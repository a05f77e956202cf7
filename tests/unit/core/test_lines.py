"""One word of printable ASCII for any value, and back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.errors import UsageError
from sonde.core.lines import decoded, encoded, utf8_path


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("", ""),
        ("/usr/bin/cat", "/usr/bin/cat"),
        ("a\nfolder /etc", "a%0Afolder%20/etc"),
        ("a\tb", "a%09b"),
        ("100%", "100%25"),
        ("café", "caf%C3%A9"),
        (os.fsdecode(b"\xff"), "%FF"),
    ],
)
def test_what_could_end_a_word_is_encoded(value, word):
    assert encoded(value) == word


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_was_encoded_comes_back(value):
    word = encoded(value)
    assert decoded(word) == value
    assert word.isascii()
    assert not any(character.isspace() or not character.isprintable() for character in word)


def test_what_is_no_text_is_shown_as_such():
    assert decoded(encoded(os.fsdecode(b"a\xff"))) == "a\ufffd"


def test_what_is_no_encoding_stays():
    assert decoded("100% of it %zz") == "100% of it %zz"


def test_a_path_for_a_library_is_text():
    assert utf8_path(Path("/µ/ ß")) == "/µ/ ß"
    with pytest.raises(UsageError, match="UTF-8") as caught:
        utf8_path("/a\udcff")
    assert (caught.value.code, caught.value.hint) == ("core.bad_path", r"mv $'/a\xff' NEW-NAME")
