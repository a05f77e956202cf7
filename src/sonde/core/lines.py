"""Percent-encoding for values in files with one record a line, so that a value cannot end its line or its field.

A path may hold any byte but NUL: a line break, a tab, bytes that are not UTF-8. Everything except printable ASCII is
encoded, and so are blanks and `%` itself. native/core/text.hpp decodes the same.
"""

from __future__ import annotations

import os
from os import PathLike
from urllib.parse import quote_from_bytes, unquote

_AS_IT_IS = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")


def encoded(value: str | PathLike[str]) -> str:
    """A value as one word of printable ASCII: "a%0Ab" for a line break between a and b."""
    return quote_from_bytes(os.fsencode(value), _AS_IT_IS)


def decoded(word: str) -> str:
    """The value that `encoded` was given; invalid UTF-8 becomes U+FFFD. Text that is not encoded stays as it is."""
    return unquote(word, "utf-8", "replace")
