"""Files with one record a line that hold values chosen by others: no value can end its line or its field.

A path may hold any byte but NUL: a line break, a tab, bytes that are not UTF-8. Our own files percent-encode everything
except printable ASCII, and also blanks and `%` itself; native/core/text.hpp decodes it.
"""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote

from sonde.core.errors import UsageError, typed

_AS_IT_IS = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")


def encoded(value: str | PathLike[str]) -> str:
    """A value as one item of printable ASCII: "a%0Ab" for a line break between a and b."""
    return quote_from_bytes(os.fsencode(value), _AS_IT_IS)


def utf8_path(path: str | PathLike[str]) -> str:
    """A path in the form for Sonde's C++ libraries.

    Raises
    ------
    UsageError  core.bad_path: it holds bytes that are not UTF-8.
    """
    text = os.fspath(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            "core.bad_path",
            f"the path '{text}' holds bytes that are not UTF-8; allowed: paths in UTF-8",
            typed("mv", text, "NEW-NAME"),
        ) from None
    return text


def kernel_lines(path: Path) -> list[str]:
    """Lines of a file of /proc or /sys, which end with a line feed and with nothing else; invalid UTF-8 becomes U+FFFD.

    In names that others chose, such as those of programs, mounts and files, the kernel escapes little more than the
    line feed: str.splitlines() would end a line within such a name, and split() a field.

    Raises
    ------
    OSError.
    """
    lines = path.read_bytes().decode("utf-8", "replace").split("\n")
    return lines[:-1] if not lines[-1] else lines


def decoded(text: str) -> str:
    """The value that `encoded` was given; invalid UTF-8 becomes U+FFFD. Text that is not encoded stays unchanged."""
    return unquote(text, "utf-8", "replace")
